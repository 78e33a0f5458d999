//! Tests of key checks: every fault, the edges of 2^64 and 2^31, stale keys and claims.

use super::*;
use crate::mem::{HostBuf, HostRange, RegFault, Rereg};
use proptest::prelude::*;

const PD: PdId = PdId(3);
const OTHER: PdId = PdId(4);
const QPN: Qpn = Qpn::new(7);
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);
const READ: Access = Access::REMOTE_READ;

fn table(va: u64, len: usize) -> MrTable {
    let mut table = MrTable::new();
    let range = HostBuf::new(len).unwrap().range();
    table
        .register(9, 0x5a, PD, ALL, va, len as u64, range)
        .unwrap();
    table
}

fn remote(table: &MrTable, key: u32, addr: u64, len: u64) -> Result<u64, KeyFault> {
    let grant = table.check_remote(Rkey(key), PD, QPN, READ, addr, len)?;
    assert_eq!(grant.len() as u64, len);
    Ok(grant.claim().offset)
}

#[test]
fn each_wrong_key_has_its_fault() {
    // proves: roce-103
    let table = table(0x1000, 4096);
    assert_eq!(remote(&table, 0x95a, 0x1000, 8), Ok(0));
    for (key, fault) in [
        (0x95b, KeyFault::BadKey),
        (0xa5a, KeyFault::Unallocated),
        (0xffff_ff5a, KeyFault::Unallocated),
        (0x5a, KeyFault::BadIndex),
        (0, KeyFault::ZeroStag),
    ] {
        assert_eq!(remote(&table, key, 0x1000, 8), Err(fault), "{key:#x}");
        let local = table.check_local(Lkey(key), PD, Access::LOCAL_READ, 0x1000, 8);
        assert_eq!(local.err(), Some(fault), "{key:#x}");
    }
    let foreign = table.check_remote(Rkey(0x95a), OTHER, QPN, READ, 0x1000, 8);
    assert_eq!(foreign.err(), Some(KeyFault::BadPd));
    let foreign = table.check_local(Lkey(0x95a), OTHER, Access::LOCAL_READ, 0x1000, 8);
    assert_eq!(foreign.err(), Some(KeyFault::BadPd));
}

#[test]
fn ranges_end_where_the_region_ends() {
    // proves: roce-103
    let table = table(0x1000, 4096);
    for (addr, len, want) in [
        (0x1000, 0, Ok(0)),
        (0x1fff, 1, Ok(0xfff)),
        (0x2000, 0, Ok(0x1000)),
        (0x1000, 4096, Ok(0)),
        (0x1000, 4097, Err(KeyFault::Bounds)),
        (0x2000, 1, Err(KeyFault::Bounds)),
        (0x2001, 0, Err(KeyFault::Bounds)),
        (0xfff, 1, Err(KeyFault::Bounds)),
        (0xfff, 0, Err(KeyFault::Bounds)),
        (0x1000, 1 << 31, Err(KeyFault::Bounds)),
        (0, u64::MAX, Err(KeyFault::Bounds)),
        (u64::MAX, 1, Err(KeyFault::Bounds)),
        (u64::MAX, 2, Err(KeyFault::Wrap)),
        (u64::MAX - 7, 16, Err(KeyFault::Wrap)),
        (0x1800, u64::MAX - 0x17ff, Err(KeyFault::Bounds)),
        (0x1800, u64::MAX, Err(KeyFault::Wrap)),
    ] {
        assert_eq!(
            remote(&table, 0x95a, addr, len),
            want,
            "{len:#x} at {addr:#x}"
        );
    }
}

#[test]
fn a_region_may_end_at_the_last_address() {
    let va = u64::MAX - 4095;
    let table = table(va, 4096);
    for (addr, len, want) in [
        (va, 4096, Ok(0)),
        (u64::MAX, 1, Ok(4095)),
        (u64::MAX, 2, Err(KeyFault::Wrap)),
        (va, 4097, Err(KeyFault::Wrap)),
        (0, 0, Ok(4096)),
        (0, 1, Err(KeyFault::Bounds)),
        (va - 1, 1, Err(KeyFault::Bounds)),
    ] {
        assert_eq!(
            remote(&table, 0x95a, addr, len),
            want,
            "{len:#x} at {addr:#x}"
        );
    }
}

#[test]
fn the_longest_message_fits_a_region_of_that_length() {
    const LONGEST: u64 = crate::limits::MAX_MSG_BYTES;
    for base in [0, 0x10, u64::MAX - LONGEST + 1] {
        assert_eq!(within(base, LONGEST, base, LONGEST), Ok(0));
        assert_eq!(within(base, LONGEST, base + 1, LONGEST - 1), Ok(1));
        within(base, LONGEST, base + 1, LONGEST).unwrap_err();
        within(base, LONGEST, base, LONGEST + 1).unwrap_err();
    }
}

#[test]
fn rights_decide_each_use() {
    // proves: roce-103
    let range = HostBuf::new(64).unwrap().range();
    for access in [Access::LOCAL_READ, Access::LOCAL_WRITE, READ, ALL] {
        let mut table = MrTable::new();
        table
            .register(9, 0, PD, access, 0, 64, range.clone())
            .unwrap();
        for need in [
            READ,
            Access::REMOTE_WRITE,
            Access::REMOTE_ATOMIC,
            Access::FLUSH_GLOBAL,
        ] {
            let got = table.check_remote(Rkey(0x900), PD, QPN, need, 0, 8);
            let want = if access.contains(need) {
                None
            } else {
                Some(KeyFault::Rights)
            };
            assert_eq!(got.err(), want, "{access:?} {need:?}");
        }
        let scatter = table.check_local(Lkey(0x900), PD, Access::LOCAL_WRITE, 0, 8);
        assert_eq!(scatter.is_ok(), access.contains(Access::LOCAL_WRITE));
        table
            .check_local(Lkey(0x900), PD, Access::LOCAL_READ, 0, 8)
            .unwrap();
        // A key for local use opens nothing to a peer, not even no bytes.
        let nothing = table.check_remote(Rkey(0x900), PD, QPN, Access::LOCAL_READ, 0, 0);
        assert_eq!(nothing.is_ok(), access.intersects(Access::REMOTE));
    }
}

#[test]
fn claims_die_with_their_region() {
    // proves: roce-103
    let mut table = table(0x1000, 4096);
    let claim = |table: &MrTable, key| {
        table
            .check_remote(Rkey(key), PD, QPN, READ, 0x1000, 4096)
            .unwrap()
            .claim()
    };
    let first = claim(&table, 0x95a);
    assert_eq!(table.renew(&first, 4000, 96).unwrap().claim().offset, 4000);

    let change = Rereg {
        key: Some(0x5b),
        ..Rereg::default()
    };
    table.rereg(0x95a, PD, change).unwrap();
    assert_eq!(remote(&table, 0x95a, 0x1000, 8), Err(KeyFault::BadKey));
    assert_eq!(table.renew(&first, 0, 8).err(), Some(KeyFault::Invalid));

    let second = claim(&table, 0x95b);
    table.renew(&second, 0, 8).unwrap();
    let range = table.deregister(0x95b, PD).unwrap();
    assert_eq!(table.renew(&second, 0, 8).err(), Some(KeyFault::Invalid));
    table
        .register(9, 0x5b, PD, ALL, 0x1000, 4096, range)
        .unwrap();
    assert_eq!(table.renew(&second, 0, 8).err(), Some(KeyFault::Invalid));
    assert_eq!(table.renew(&first, 0, 8).err(), Some(KeyFault::Invalid));
    table.renew(&claim(&table, 0x95b), 0, 8).unwrap();
}

#[test]
fn key_zero_is_for_the_privileged() {
    let mut table = MrTable::new();
    let buf = HostBuf::new(4096).unwrap();
    let at = buf.addr();
    let local = |table: &MrTable, key, pd| {
        table
            .check_local(Lkey(key), pd, Access::LOCAL_WRITE, at, 64)
            .map(|g| g.span().unwrap().addr())
    };
    assert_eq!(local(&table, 0, PD), Err(KeyFault::ZeroStag));
    table.register_reserved(PD, buf.range()).unwrap();
    assert_eq!(local(&table, 0, PD), Ok(at));
    assert_eq!(local(&table, 0, OTHER), Err(KeyFault::ZeroStag));
    assert_eq!(local(&table, 1, PD), Err(KeyFault::ZeroStag));
    let peer = table.check_remote(Rkey(0), PD, QPN, Access::LOCAL_READ, at, 64);
    assert_eq!(peer.err(), Some(KeyFault::ZeroStag));
    assert_eq!(table.deregister(0, PD).err(), Some(RegFault::NotFound));
}

#[test]
fn empty_regions_open_no_bytes() {
    let mut table = MrTable::new();
    table
        .register(9, 0, PD, ALL, 0x1000, 0, HostRange::empty())
        .unwrap();
    assert_eq!(remote(&table, 0x900, 0x1000, 0), Ok(0));
    assert_eq!(remote(&table, 0x900, 0x1000, 1), Err(KeyFault::Bounds));
}

proptest! {
    #[test]
    fn ranges_agree_with_wide_arithmetic(
        near in 0..3_usize, low in 0..300_u64, size in 0..200_u64, at in 0..300_u64,
        len in prop_oneof![0..300_u64, u64::MAX - 300..=u64::MAX],
    ) {
        // proves: roce-103
        let base = [0, 1 << 63, u64::MAX - 600].get(near).copied().unwrap_or(0);
        let (va, addr) = (base + low, base + at);
        let (end, top) = (u128::from(va) + u128::from(size), u128::from(addr) + u128::from(len));
        let want = if addr >= va && top <= end {
            Ok(addr - va)
        } else if top > 1 << 64 {
            Err(KeyFault::Wrap)
        } else {
            Err(KeyFault::Bounds)
        };
        prop_assert_eq!(within(va, size, addr, len), want);
    }
}
