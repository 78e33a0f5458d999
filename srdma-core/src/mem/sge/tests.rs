//! Tests of scatter and gather lists: every walk equals a flat copy.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const VA: u64 = 0x10_0000;

fn sge(addr: u64, len: u32) -> Sge {
    Sge {
        addr,
        len,
        lkey: Lkey(0x900),
    }
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
        if let Some((entry, addr, bytes)) = single(&sges, offset as u64, len) {
            prop_assert_eq!((entry.lkey, bytes as usize), (sges[0].lkey, len));
            prop_assert_eq!(&got, &(addr..addr + u64::from(bytes)).collect::<Vec<_>>());
        } else {
            let first = sges.first().map_or(0, |first| first.len as usize);
            prop_assert!(len == 0 || offset + len > first);
        }
        let found = locate(&sges, offset as u64).map(|(index, within)| {
            sges[index].addr + u64::from(within)
        });
        prop_assert_eq!(found, all.get(offset).copied());
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
