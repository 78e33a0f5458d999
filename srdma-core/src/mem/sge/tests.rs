//! Tests of scatter and gather lists: every walk equals a flat copy.

use super::*;
use crate::mem::{HostBuf, HostRange};
use proptest::collection::vec;
use proptest::prelude::*;

const PD: PdId = PdId(3);
const VA: u64 = 0x10_0000;
const MEMORY: usize = 4096;

fn sge(addr: u64, len: u32) -> Sge {
    Sge {
        addr,
        len,
        lkey: Lkey(0x900),
    }
}

fn table(access: Access) -> (MrTable, HostRange) {
    let mut table = MrTable::new();
    let range = HostBuf::new(MEMORY).unwrap().range();
    table
        .register(9, 0, PD, access, VA, MEMORY as u64, range.clone())
        .unwrap();
    (table, range)
}

/// Lists of entries that do not overlap: (gap, length) pairs laid one after the other.
fn lists() -> impl Strategy<Value = Vec<Sge>> {
    vec(
        (0..40_u64, prop_oneof![Just(0), 1..9_u32, 1..250_u32]),
        0..=MAX_LIST,
    )
    .prop_map(|parts| {
        let mut at = VA;
        parts
            .iter()
            .map(|(gap, len)| {
                let entry = sge(at + gap, *len);
                at = entry.addr + u64::from(*len);
                entry
            })
            .collect()
    })
}

/// Addresses of the message's bytes, one by one.
fn flat(sges: &[Sge]) -> Vec<u64> {
    sges.iter()
        .flat_map(|sge| sge.addr..sge.addr + u64::from(sge.len))
        .collect()
}

proptest! {
    #[test]
    fn pieces_are_the_flat_message(sges in lists(), offset in 0..3000_usize, len in 0..3000_usize) {
        let all = flat(&sges);
        prop_assert_eq!(total_len(&sges), all.len() as u64);
        let start = offset.min(all.len());
        let want = &all[start..(start + len).min(all.len())];
        let mut got = Vec::new();
        for_each_piece(&sges, offset as u64, len, |entry, addr, len| {
            assert!(len > 0 && addr >= entry.addr);
            assert!(addr + u64::from(len) <= entry.addr + u64::from(entry.len));
            got.extend(addr..addr + u64::from(len));
            Ok::<_, ()>(())
        }).unwrap();
        prop_assert_eq!(&got, want);
        let found = locate(&sges, offset as u64).map(|(index, within)| {
            sges[index].addr + u64::from(within)
        });
        prop_assert_eq!(found, all.get(offset).copied());
    }

    #[test]
    fn scatter_and_gather_are_flat_copies(
        sges in lists(), cuts in vec(1..300_usize, 1..8), seed in any::<u64>(),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (table, range) = table(Access::LOCAL_WRITE);
        let claims = SgeClaims::check(&table, PD, &sges, Access::LOCAL_WRITE).unwrap();
        let all = flat(&sges);
        prop_assert_eq!(claims.total_len(), all.len() as u64);
        let message: Vec<u8> = (0..all.len()).map(|_| rng.u8(..)).collect();
        let mut offset = 0;
        for size in cuts.iter().cycle() {
            let part = &message[offset..(offset + size).min(message.len())];
            claims.scatter(&table, offset as u64, part).unwrap();
            offset += part.len();
            if offset == message.len() {
                break;
            }
        }
        let mut model = vec![0; MEMORY];
        for (addr, byte) in all.iter().zip(&message) {
            model[usize::try_from(addr - VA).unwrap()] = *byte;
        }
        let mut seen = vec![0; MEMORY];
        range.read(0, &mut seen).unwrap();
        prop_assert_eq!(seen, model);

        let from = rng.usize(..=message.len());
        let len = rng.usize(..=message.len() - from);
        let mut back = Vec::new();
        claims.gather(&table, from as u64, len, |grant| {
            let mut part = vec![0; grant.len()];
            grant.copy_out(0, &mut part)?;
            back.extend(part);
            Ok::<_, KeyFault>(())
        }).unwrap();
        prop_assert_eq!(&back, &message[from..from + len]);
        prop_assert_eq!(
            claims.scatter(&table, from as u64, &vec![0; message.len() - from + 1]),
            Err(KeyFault::Bounds)
        );
    }
}

#[test]
fn lists_of_the_longest_entries_do_not_overflow() {
    let sges = [sge(u64::MAX - 3, u32::MAX); MAX_LIST];
    let total = MAX_LIST as u64 * u64::from(u32::MAX);
    assert_eq!(total_len(&sges), total);
    assert_eq!(locate(&sges, total - 1), Some((MAX_LIST - 1, u32::MAX - 1)));
    assert_eq!(locate(&sges, total), None);
    assert_eq!(locate(&sges, u64::MAX), None);
    assert_eq!(pieces(&sges, 0, usize::MAX).count(), MAX_LIST);
    let wrapped = pieces(&sges, 5, 1).next().unwrap();
    assert_eq!((wrapped.addr, wrapped.within, wrapped.len), (1, 5, 1));
}

#[test]
fn an_error_ends_the_walk() {
    let sges = [sge(VA, 4), sge(VA + 8, 4)];
    let mut calls = 0;
    let stopped = for_each_piece(&sges, 0, 8, |_, _, _| {
        calls += 1;
        Err("stop")
    });
    assert_eq!((stopped, calls), (Err("stop"), 1));
}

#[test]
fn keys_of_a_list_are_checked_when_it_is_taken() {
    let (table, _range) = table(Access::LOCAL_READ);
    let check = |sges: &[Sge], need| SgeClaims::check(&table, PD, sges, need).err();
    let good = sge(VA, 8);
    assert_eq!(check(&[good; MAX_LIST], Access::LOCAL_READ), None);
    assert_eq!(
        check(&[good; MAX_LIST + 1], Access::LOCAL_READ),
        Some(KeyFault::Bounds)
    );
    assert_eq!(check(&[good], Access::LOCAL_WRITE), Some(KeyFault::Rights));
    let last = sge(VA + MEMORY as u64 - 7, 8);
    assert_eq!(
        check(&[good, last], Access::LOCAL_READ),
        Some(KeyFault::Bounds)
    );
    let empty = Sge::default();
    assert_eq!(
        check(&[empty, good, empty], Access::LOCAL_READ),
        None,
        "key 0 without bytes"
    );
    let zero = Sge { len: 1, ..empty };
    assert_eq!(check(&[zero], Access::LOCAL_READ), Some(KeyFault::ZeroStag));
}

#[test]
fn a_region_that_is_gone_takes_no_more_bytes() {
    let (mut table, range) = table(Access::LOCAL_WRITE);
    let claims = SgeClaims::check(&table, PD, &[sge(VA, 16)], Access::LOCAL_WRITE).unwrap();
    claims.scatter(&table, 0, &[1; 8]).unwrap();
    table.deregister(0x900, PD).unwrap();
    assert_eq!(claims.scatter(&table, 8, &[2; 8]), Err(KeyFault::Invalid));
    table
        .register(9, 0, PD, Access::LOCAL_WRITE, VA, 16, range.clone())
        .unwrap();
    assert_eq!(claims.scatter(&table, 8, &[3; 8]), Err(KeyFault::Invalid));
    let mut seen = [0; 16];
    range.read(0, &mut seen).unwrap();
    assert_eq!(seen, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}
