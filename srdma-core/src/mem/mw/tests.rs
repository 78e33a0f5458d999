//! Tests of windows: binding, rights, ranges, and who may use them.

use super::*;
use crate::mem::{HostBuf, Rereg};
use crate::num::{Lkey, Rkey};

const PD: PdId = PdId(3);
const OTHER: PdId = PdId(4);
const QPN: Qpn = Qpn::new(7);
const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE)
    .union(Access::MW_BIND);
const READ: Access = Access::REMOTE_READ;
const PARENT: u32 = 0x105;

/// Region 1 (4096 bytes at 0x1000), window 2 of type 1, window 3 of type 2, both with key byte 0.
fn table() -> MrTable {
    let mut table = MrTable::new();
    let range = HostBuf::new(4096).unwrap().range();
    table.register(1, 5, PD, ALL, 0x1000, 4096, range).unwrap();
    table.alloc_mw(2, 0, PD, true).unwrap();
    table.alloc_mw(3, 0, PD, false).unwrap();
    table
}

const fn bind(window: u32, va: u64, len: u64) -> Bind {
    let type1 = window >> 8 == 2;
    Bind {
        window,
        parent: PARENT,
        va,
        len,
        access: READ,
        zero_based: false,
        type1,
    }
}

fn read(table: &MrTable, key: u32, qpn: Qpn, addr: u64, len: u64) -> Result<u64, KeyFault> {
    let grant = table.check_remote(Rkey(key), PD, qpn, READ, addr, len)?;
    Ok(grant.claim().offset)
}

#[test]
fn a_window_opens_its_own_range_only() {
    // proves: roce-137
    let mut table = table();
    for (window, key) in [(0x201, 0x201), (0x301, 0x301)] {
        table.bind(&bind(window, 0x1100, 0x100), PD, QPN).unwrap();
        for (addr, len, want) in [
            (0x1100, 0x100, Ok(0x100)),
            (0x11ff, 1, Ok(0x1ff)),
            (0x10ff, 1, Err(KeyFault::Bounds)),
            (0x1200, 1, Err(KeyFault::Bounds)),
            (0x1100, 0x101, Err(KeyFault::Bounds)),
            (0x1180, u64::MAX, Err(KeyFault::Wrap)),
        ] {
            assert_eq!(
                read(&table, key, QPN, addr, len),
                want,
                "{key:#x} {addr:#x} {len:#x}"
            );
        }
        assert_eq!(read(&table, PARENT, QPN, 0x1200, 1), Ok(0x200));
    }
}

#[test]
fn a_window_gives_its_own_rights_only() {
    let mut table = table();
    let access = Access::REMOTE_WRITE;
    table
        .bind(
            &Bind {
                access,
                ..bind(0x301, 0x1000, 8)
            },
            PD,
            QPN,
        )
        .unwrap();
    let check = |need| {
        table
            .check_remote(Rkey(0x301), PD, QPN, need, 0x1000, 8)
            .err()
    };
    assert_eq!(check(Access::REMOTE_WRITE), None);
    assert_eq!(check(READ), Some(KeyFault::Rights));
    assert_eq!(check(Access::REMOTE_ATOMIC), Some(KeyFault::Rights));
    let local = table.check_local(Lkey(0x301), PD, Access::LOCAL_READ, 0x1000, 8);
    assert_eq!(
        local.err(),
        Some(KeyFault::Rights),
        "a window has no local key"
    );
}

#[test]
fn type_2_serves_its_queue_pair_and_type_1_the_domain() {
    // proves: roce-136
    let mut table = table();
    let other = Qpn::new(8);
    table.bind(&bind(0x201, 0x1000, 8), PD, QPN).unwrap();
    table.bind(&bind(0x301, 0x1000, 8), PD, QPN).unwrap();
    assert_eq!(read(&table, 0x201, other, 0x1000, 8), Ok(0));
    assert_eq!(read(&table, 0x301, other, 0x1000, 8), Err(KeyFault::BadQp));
    for key in [0x201, 0x301] {
        assert_eq!(read(&table, key, QPN, 0x1000, 8), Ok(0));
        let foreign = table.check_remote(Rkey(key), OTHER, QPN, READ, 0x1000, 8);
        assert_eq!(foreign.err(), Some(KeyFault::BadPd));
    }
}

#[test]
fn type_1_is_replaced_and_the_key_before_is_dead() {
    // proves: roce-138
    let mut table = table();
    assert_eq!(
        read(&table, 0x200, QPN, 0x1000, 0),
        Err(KeyFault::Bounds),
        "length 0, valid"
    );
    table.bind(&bind(0x201, 0x1000, 8), PD, QPN).unwrap();
    let claim = table
        .check_remote(Rkey(0x201), PD, QPN, READ, 0x1000, 8)
        .unwrap()
        .claim();
    table.renew(&claim, 0, 8).unwrap();
    table.bind(&bind(0x202, 0x1008, 8), PD, QPN).unwrap();
    assert_eq!(read(&table, 0x201, QPN, 0x1000, 8), Err(KeyFault::BadKey));
    assert_eq!(read(&table, 0x202, QPN, 0x1008, 8), Ok(8));
    assert_eq!(table.renew(&claim, 0, 8).err(), Some(KeyFault::Invalid));
    // Length 0 unbinds, whatever the parent; the region is free again.
    table
        .bind(
            &Bind {
                parent: 0,
                ..bind(0x203, 0, 0)
            },
            PD,
            QPN,
        )
        .unwrap();
    assert_eq!(read(&table, 0x203, QPN, 0x1008, 8), Err(KeyFault::Bounds));
    table.deregister(PARENT, PD).unwrap();
}

#[test]
fn type_2_is_invalidated_before_it_is_bound_again() {
    // proves: roce-138
    let mut table = table();
    assert_eq!(
        read(&table, 0x300, QPN, 0x1000, 8),
        Err(KeyFault::Invalid),
        "free"
    );
    table.bind(&bind(0x301, 0x1000, 8), PD, QPN).unwrap();
    let again = bind(0x302, 0x1000, 8);
    assert_eq!(table.bind(&again, PD, QPN), Err(BindFault::StillBound));
    assert_eq!(read(&table, 0x301, QPN, 0x1000, 8), Ok(0));
    table.local_invalidate(0x301, PD, QPN).unwrap();
    assert_eq!(read(&table, 0x301, QPN, 0x1000, 8), Err(KeyFault::Invalid));
    table.bind(&again, PD, QPN).unwrap();
    assert_eq!(read(&table, 0x301, QPN, 0x1000, 8), Err(KeyFault::BadKey));
    assert_eq!(read(&table, 0x302, QPN, 0x1000, 8), Ok(0));
}

/// Expects a refusal with this event code, and that nothing changed.
fn refuse(table: &mut MrTable, bind: Bind, want: BindFault, code: u16) {
    assert_eq!(table.bind(&bind, PD, QPN), Err(want), "{bind:?}");
    assert_eq!(want.ae_code(), code, "{want}");
    assert_eq!(read(table, 0x200, QPN, 0x1000, 8), Err(KeyFault::Bounds));
    assert_eq!(read(table, 0x300, QPN, 0x1000, 8), Err(KeyFault::Invalid));
}

const T1: Bind = bind(0x201, 0x1000, 8);
const T2: Bind = bind(0x301, 0x1000, 8);

#[test]
fn wrong_windows_are_refused() {
    // proves: roce-139
    let t = &mut table();
    let unknown = BindFault::Key(KeyFault::Unallocated);
    refuse(t, bind(0x901, 0x1000, 8), unknown, 0x0102);
    refuse(t, bind(0x105, 0x1000, 8), BindFault::NotWindow, 0x0115);
    let (type1, zero_based) = (true, true);
    refuse(t, Bind { type1, ..T2 }, BindFault::WrongType, 0x0120);
    refuse(t, Bind { type1: false, ..T1 }, BindFault::WrongType, 0x0120);
    refuse(
        t,
        Bind { zero_based, ..T1 },
        BindFault::ZeroBasedType1,
        0x011e,
    );
    for bind in [T1, T2] {
        let foreign = BindFault::Key(KeyFault::BadPd);
        assert_eq!(t.bind(&bind, OTHER, QPN), Err(foreign));
        assert_eq!(foreign.ae_code(), 0x0105);
    }
    assert_eq!(BindFault::StillBound.ae_code(), 0x0114);
    t.deregister(PARENT, PD).unwrap();
}

#[test]
fn wrong_ranges_are_refused() {
    let t = &mut table();
    for (va, len) in [
        (0x1000, 4097),
        (0x1ff9, 8),
        (0xfff, 8),
        (u64::MAX, 2),
        (0x1008, u64::MAX),
    ] {
        refuse(t, bind(0x201, va, len), BindFault::Bounds, 0x0119);
        refuse(t, bind(0x301, va, len), BindFault::Bounds, 0x0119);
    }
    refuse(t, bind(0x301, 0x1000, 0), BindFault::Bounds, 0x0119);
    t.deregister(PARENT, PD).unwrap();
}

#[test]
fn wrong_regions_are_refused() {
    let t = &mut table();
    let region = |t: &mut MrTable, index, pd, access| {
        let range = HostBuf::new(64).unwrap().range();
        t.register(index, 0, pd, access, 0, 64, range).unwrap();
    };
    let bindable = Access::MW_BIND | READ;
    region(t, 4, PD, bindable | Access::ZERO_BASED);
    region(t, 5, PD, ALL.without(Access::MW_BIND));
    region(t, 6, PD, bindable);
    region(t, 7, OTHER, bindable);
    t.alloc_mr(8, 0, PD).unwrap();
    let on = |parent| Bind {
        parent,
        va: 0,
        ..T2
    };
    let key = BindFault::Key;
    refuse(t, on(0), key(KeyFault::ZeroStag), 0x0206);
    refuse(t, on(0x104), key(KeyFault::BadKey), 0x0106);
    refuse(t, on(0x200), BindFault::ParentIsWindow, 0x0117);
    refuse(t, on(0x400), BindFault::ParentZeroBased, 0x0116);
    refuse(t, on(0x500), BindFault::Disabled, 0x011b);
    refuse(t, on(0x700), key(KeyFault::BadPd), 0x0105);
    refuse(t, on(0x800), BindFault::ParentInvalid, 0x011a);
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let unbacked = Bind {
            access,
            ..on(0x600)
        };
        refuse(t, unbacked, BindFault::Rights, 0x0118);
    }
    for access in [Access::FLUSH_GLOBAL, Access::LOCAL_WRITE] {
        refuse(t, Bind { access, ..T2 }, BindFault::Rights, 0x0118);
    }
    t.bind(&on(0x600), PD, QPN).unwrap();
}

#[test]
fn zero_based_windows_count_from_zero() {
    let mut table = table();
    table
        .bind(
            &Bind {
                zero_based: true,
                ..bind(0x301, 0x1100, 0x10)
            },
            PD,
            QPN,
        )
        .unwrap();
    assert_eq!(read(&table, 0x301, QPN, 0, 16), Ok(0x100));
    assert_eq!(read(&table, 0x301, QPN, 15, 2), Err(KeyFault::Bounds));
    assert_eq!(read(&table, 0x301, QPN, 0x1100, 1), Err(KeyFault::Bounds));
}

#[test]
fn bound_windows_hold_their_region() {
    // proves: roce-135
    let mut table = table();
    table.bind(&bind(0x201, 0x1000, 8), PD, QPN).unwrap();
    table.bind(&bind(0x301, 0x1000, 8), PD, QPN).unwrap();
    assert_eq!(
        table.deregister(PARENT, PD).err(),
        Some(RegFault::HasWindows)
    );
    assert_eq!(
        table.rereg(PARENT, PD, Rereg::default()),
        Err(RegFault::HasWindows)
    );
    table.local_invalidate(0x301, PD, QPN).unwrap();
    assert_eq!(
        table.deregister(PARENT, PD).err(),
        Some(RegFault::HasWindows)
    );
    table.dealloc_mw(0x201, PD).unwrap();
    table.deregister(PARENT, PD).unwrap();
}

#[test]
fn only_the_owner_with_the_whole_key_gives_a_window_back() {
    let mut table = table();
    assert_eq!(table.dealloc_mw(0x301, PD), Err(RegFault::NotFound));
    assert_eq!(table.dealloc_mw(PARENT, PD), Err(RegFault::NotFound));
    assert_eq!(table.dealloc_mw(0x300, OTHER), Err(RegFault::BadPd));
    assert_eq!(table.deregister(0x300, PD).err(), Some(RegFault::NotFound));
    assert_eq!(table.dealloc_mw(0x300, PD), Ok(()));
    assert_eq!(
        read(&table, 0x300, QPN, 0x1000, 8),
        Err(KeyFault::Unallocated)
    );
    assert_eq!(table.alloc_mw(0, 0, PD, true), Err(RegFault::ZeroIndex));
}

#[test]
fn the_next_owner_of_a_number_has_no_windows() {
    let mut table = table();
    assert_eq!(table.free_windows_of(QPN), 0);
    table.bind(&bind(0x201, 0x1000, 8), PD, QPN).unwrap();
    table.bind(&bind(0x301, 0x1000, 8), PD, QPN).unwrap();
    assert!(table.has_windows(QPN) && !table.has_windows(Qpn::new(8)));
    assert_eq!(table.free_windows_of(Qpn::new(8)), 0);
    assert_eq!(table.free_windows_of(QPN), 1);
    assert_eq!((table.bound, table.has_windows(QPN)), (0, false));
    assert_eq!(read(&table, 0x301, QPN, 0x1000, 8), Err(KeyFault::Invalid));
    assert_eq!(
        read(&table, 0x201, QPN, 0x1000, 8),
        Ok(0),
        "type 1 is of the domain"
    );
}
