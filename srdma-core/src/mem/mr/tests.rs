//! Tests of registering, changing and taking back regions.

use super::*;
use crate::mem::{AccessFault, HostBuf, KeyFault};
use crate::num::{Lkey, Qpn, Rkey};

const PD: PdId = PdId(3);
const OTHER: PdId = PdId(4);
const QPN: Qpn = Qpn::new(7);
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

fn memory(len: usize) -> HostRange {
    HostBuf::new(len).unwrap().range()
}

fn read(table: &MrTable, key: u32, pd: PdId, addr: u64) -> Result<(), KeyFault> {
    table
        .check_remote(Rkey(key), pd, QPN, Access::REMOTE_READ, addr, 8)
        .map(|_| ())
}

#[test]
fn what_cannot_be_a_region_is_refused() {
    // proves: roce-134
    let mut table = MrTable::new();
    let needs = RegFault::Access(AccessFault::NeedsLocalWrite);
    for (index, access, va, len, want) in [
        (0, ALL, 0, 64, RegFault::ZeroIndex),
        (1 << 24, ALL, 0, 64, RegFault::Table(TableFault::OutOfRange)),
        (9, Access::REMOTE_WRITE, 0, 64, needs),
        (9, Access::REMOTE_ATOMIC, 0, 64, needs),
        (9, ALL, 0, 65, RegFault::Length),
        (9, ALL, 0, u64::MAX, RegFault::Length),
        (9, ALL, u64::MAX - 62, 64, RegFault::Length),
    ] {
        let got = table.register(index, 0, PD, access, va, len, memory(64));
        assert_eq!(got, Err(want), "{index:#x} {access:?} {va:#x} {len}");
    }
    assert!(table.is_empty());
    table
        .register(0xff_ffff, 0, PD, ALL, u64::MAX - 63, 64, memory(64))
        .unwrap();
    let again = table.register(0xff_ffff, 1, PD, ALL, 0, 64, memory(64));
    assert_eq!(again, Err(RegFault::Table(TableFault::Taken)));
    assert_eq!(table.len(), 1);
}

#[test]
fn zero_based_regions_count_from_zero() {
    let mut table = MrTable::new();
    let access = ALL | Access::ZERO_BASED;
    table
        .register(9, 0, PD, access, 0xdead_0000, 64, memory(64))
        .unwrap();
    assert_eq!(read(&table, 0x900, PD, 0), Ok(()));
    assert_eq!(read(&table, 0x900, PD, 56), Ok(()));
    assert_eq!(read(&table, 0x900, PD, 57), Err(KeyFault::Bounds));
    assert_eq!(read(&table, 0x900, PD, 0xdead_0000), Err(KeyFault::Bounds));
}

#[test]
fn only_the_owner_with_the_whole_key_takes_a_region_back() {
    let mut table = MrTable::new();
    let range = memory(64);
    let at = range.addr();
    table.register(9, 5, PD, ALL, 0, 64, range).unwrap();
    assert_eq!(table.deregister(0x904, PD).err(), Some(RegFault::NotFound));
    assert_eq!(table.deregister(0xa05, PD).err(), Some(RegFault::NotFound));
    assert_eq!(table.deregister(0x905, OTHER).err(), Some(RegFault::BadPd));
    assert_eq!(table.deregister(0x905, PD).unwrap().addr(), at);
    assert_eq!(read(&table, 0x905, PD, 0), Err(KeyFault::Unallocated));
    assert_eq!(table.deregister(0x905, PD).err(), Some(RegFault::NotFound));
}

#[test]
fn a_region_changes_part_by_part_or_not_at_all() {
    let mut table = MrTable::new();
    table
        .register(9, 5, PD, ALL, 0x1000, 64, memory(64))
        .unwrap();
    let refused = Rereg {
        access: Some(Access::REMOTE_WRITE),
        pd: Some(OTHER),
        ..Rereg::default()
    };
    assert!(table.rereg(0x905, PD, refused).is_err());
    let short = Rereg {
        memory: Some((0, 65, memory(64))),
        ..Rereg::default()
    };
    assert_eq!(table.rereg(0x905, PD, short), Err(RegFault::Length));
    assert_eq!(read(&table, 0x905, PD, 0x1000), Ok(()));

    table
        .rereg(
            0x905,
            PD,
            Rereg {
                pd: Some(OTHER),
                ..Rereg::default()
            },
        )
        .unwrap();
    assert_eq!(read(&table, 0x905, PD, 0x1000), Err(KeyFault::BadPd));
    assert_eq!(read(&table, 0x905, OTHER, 0x1000), Ok(()));
    let local = Rereg {
        access: Some(Access::LOCAL_READ),
        ..Rereg::default()
    };
    assert_eq!(table.rereg(0x905, PD, local.clone()), Err(RegFault::BadPd));
    table.rereg(0x905, OTHER, local).unwrap();
    assert_eq!(read(&table, 0x905, OTHER, 0x1000), Err(KeyFault::Rights));
    let moved = Rereg {
        key: Some(6),
        access: Some(ALL),
        memory: Some((0x8000, 8, memory(8))),
        ..Rereg::default()
    };
    table.rereg(0x905, OTHER, moved).unwrap();
    assert_eq!(read(&table, 0x906, OTHER, 0x8000), Ok(()));
    assert_eq!(read(&table, 0x906, OTHER, 0x1000), Err(KeyFault::Bounds));
    assert_eq!(
        table.rereg(0x905, OTHER, Rereg::default()),
        Err(RegFault::NotFound)
    );
}

#[test]
fn regions_are_registered_by_request_when_free() {
    let mut table = MrTable::new();
    table.alloc_mr(9, 5, PD).unwrap();
    table.alloc_mw(10, 5, PD, false).unwrap();
    assert_eq!(read(&table, 0x905, PD, 0), Err(KeyFault::Invalid));
    let reg = |stag, access, len| FastReg {
        stag,
        access,
        va: 0,
        len,
        range: memory(64),
    };
    assert_eq!(
        table.fast_register(reg(0xa06, ALL, 64), PD),
        Err(RegFault::IsWindow)
    );
    assert_eq!(
        table.fast_register(reg(0xb06, ALL, 64), PD),
        Err(RegFault::NotFound)
    );
    assert_eq!(
        table.fast_register(reg(0x906, ALL, 64), OTHER),
        Err(RegFault::BadPd)
    );
    assert_eq!(
        table.fast_register(reg(0x906, ALL, 65), PD),
        Err(RegFault::Length)
    );
    assert_eq!(read(&table, 0x905, PD, 0), Err(KeyFault::Invalid));
    table.fast_register(reg(0x906, ALL, 64), PD).unwrap();
    assert_eq!(read(&table, 0x905, PD, 0), Err(KeyFault::BadKey));
    assert_eq!(read(&table, 0x906, PD, 0), Ok(()));
    assert_eq!(
        table.fast_register(reg(0x907, ALL, 64), PD),
        Err(RegFault::Valid)
    );
    let lkey = table.check_local(Lkey(0x906), PD, Access::LOCAL_WRITE, 0, 8);
    lkey.unwrap();
}

#[test]
fn codes_of_registering_are_those_of_the_hardware() {
    for (fault, code) in [
        (RegFault::Valid, 0x010c),
        (RegFault::IsWindow, 0x010d),
        (RegFault::Access(AccessFault::NeedsLocalWrite), 0x010e),
        (RegFault::Length, 0x0110),
        (RegFault::BadPd, 0x0105),
        (RegFault::HasWindows, 0x0113),
        (RegFault::ZeroIndex, 0x0206),
        (RegFault::NotFound, 0x0102),
    ] {
        assert_eq!(fault.ae_code(), code, "{fault}");
    }
}
