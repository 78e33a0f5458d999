//! Tests of invalidation.

use crate::mem::{Access, Bind, FastReg, HostBuf, InvalidateFault, KeyFault, MrTable, RegFault};
use crate::num::{PdId, Qpn, Rkey};

const PD: PdId = PdId(3);
const OTHER: PdId = PdId(4);
const QPN: Qpn = Qpn::new(7);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE)
    .union(Access::MW_BIND);
const BAD_STATE: InvalidateFault = InvalidateFault::Key(KeyFault::Invalid);

fn fast(table: &mut MrTable, stag: u32, access: Access) -> Result<(), RegFault> {
    let range = HostBuf::new(64).unwrap().range();
    table.fast_register(
        FastReg {
            stag,
            access,
            va: 0,
            len: 64,
            range,
        },
        PD,
    )
}

/// Region 1 by command, windows 2 (type 1) and 3 (type 2) bound to it, region 4 by work request.
fn table() -> MrTable {
    let mut table = MrTable::new();
    let range = HostBuf::new(4096).unwrap().range();
    table.register(1, 0, PD, ALL, 0, 4096, range).unwrap();
    table.alloc_mw(2, 0, PD, true).unwrap();
    table.alloc_mw(3, 0, PD, false).unwrap();
    table.alloc_mr(4, 0, PD).unwrap();
    fast(&mut table, 0x400, ALL).unwrap();
    for (window, type1) in [(0x200, true), (0x300, false)] {
        let access = Access::REMOTE_READ;
        let bind = Bind {
            window,
            parent: 0x100,
            va: 0,
            len: 8,
            access,
            zero_based: false,
            type1,
        };
        table.bind(&bind, PD, QPN).unwrap();
    }
    table
}

fn read(table: &MrTable, key: u32) -> Option<KeyFault> {
    table
        .check_remote(Rkey(key), PD, QPN, Access::REMOTE_READ, 0, 8)
        .err()
}

#[test]
fn a_peer_invalidates_what_was_given_to_it() {
    // proves: roce-113
    let mut table = table();
    for key in [0x300, 0x400] {
        assert_eq!(read(&table, key), None);
        let need = Access::REMOTE_READ;
        let claim = table
            .check_remote(Rkey(key), PD, QPN, need, 0, 8)
            .unwrap()
            .claim();
        table.remote_invalidate(Rkey(key), PD, QPN).unwrap();
        assert_eq!(read(&table, key), Some(KeyFault::Invalid));
        assert_eq!(table.renew(&claim, 0, 8).err(), Some(KeyFault::Invalid));
        assert_eq!(table.remote_invalidate(Rkey(key), PD, QPN), Err(BAD_STATE));
        assert_eq!(
            table.local_invalidate(key, PD, QPN),
            Ok(()),
            "free stays free"
        );
    }
    fast(&mut table, 0x401, ALL).unwrap();
    assert_eq!(read(&table, 0x401), None);
}

#[test]
fn type_1_windows_and_plain_regions_cannot_be_invalidated() {
    // proves: roce-139
    let mut table = table();
    let refused = InvalidateFault::Type1Window;
    assert_eq!(table.local_invalidate(0x200, PD, QPN), Err(refused));
    assert_eq!(table.remote_invalidate(Rkey(0x200), PD, QPN), Err(refused));
    assert_eq!(refused.ae_code(), 0x011d);
    let (local, remote) = (
        InvalidateFault::PlainRegion,
        InvalidateFault::NoRemoteRights,
    );
    assert_eq!(table.local_invalidate(0x100, PD, QPN), Err(local));
    assert_eq!(table.remote_invalidate(Rkey(0x100), PD, QPN), Err(remote));
    assert_eq!((local.ae_code(), remote.ae_code()), (0x0111, 0x0112));
    assert_eq!((read(&table, 0x100), read(&table, 0x200)), (None, None));
}

#[test]
fn each_wrong_key_has_its_fault() {
    let mut table = table();
    let other = Qpn::new(8);
    for (key, pd, qpn, fault) in [
        (0x301, PD, QPN, KeyFault::BadKey),
        (0x300, OTHER, QPN, KeyFault::BadPd),
        (0x300, PD, other, KeyFault::BadQp),
        (0x401, PD, QPN, KeyFault::BadKey),
        (0x400, OTHER, QPN, KeyFault::BadPd),
        (0x500, PD, QPN, KeyFault::Unallocated),
        (0, PD, QPN, KeyFault::ZeroStag),
    ] {
        let want = Err(InvalidateFault::Key(fault));
        assert_eq!(table.local_invalidate(key, pd, qpn), want, "{key:#x}");
        assert_eq!(
            table.remote_invalidate(Rkey(key), pd, qpn),
            want,
            "{key:#x}"
        );
    }
    assert_eq!((read(&table, 0x300), read(&table, 0x400)), (None, None));
}

#[test]
fn a_peer_without_rights_or_with_windows_in_the_way_is_refused() {
    let mut table = table();
    table.local_invalidate(0x400, PD, QPN).unwrap();
    fast(&mut table, 0x402, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let refused = Err(InvalidateFault::NoRemoteRights);
    assert_eq!(table.remote_invalidate(Rkey(0x402), PD, QPN), refused);
    table.local_invalidate(0x300, PD, QPN).unwrap();
    let access = Access::REMOTE_WRITE;
    let (zero_based, type1) = (false, false);
    let bind = Bind {
        window: 0x301,
        parent: 0x402,
        va: 0,
        len: 8,
        access,
        zero_based,
        type1,
    };
    table.bind(&bind, PD, QPN).unwrap();
    let held = InvalidateFault::HasWindows;
    assert_eq!(table.local_invalidate(0x402, PD, QPN), Err(held));
    assert_eq!(held.ae_code(), 0x0113);
    table.remote_invalidate(Rkey(0x301), PD, QPN).unwrap();
    assert_eq!(table.local_invalidate(0x402, PD, QPN), Ok(()));
    table.deregister(0x402, PD).unwrap();
}
