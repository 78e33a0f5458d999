//! Tests of grants: what they do to memory, and that two atomics never interleave.

use crate::mem::{Access, AtomicStep, Grant, HostBuf, KeyFault, MrTable};
use crate::num::{Lkey, PdId, Qpn, Rkey};
use std::sync::Arc;

const PD: PdId = PdId(3);
const QPN: Qpn = Qpn::new(7);
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE);

fn table(buf: &Arc<HostBuf>) -> MrTable {
    let mut table = MrTable::new();
    table
        .register(1, 0, PD, ALL, 0x1000, buf.len() as u64, buf.range())
        .unwrap();
    table
}

fn grant(table: &MrTable, addr: u64, len: u64) -> Grant<'_> {
    table
        .check_remote(Rkey(0x100), PD, QPN, Access::REMOTE_ATOMIC, addr, len)
        .unwrap()
}

const fn swap(expected: u64, new: u64) -> AtomicStep {
    AtomicStep::CompareSwap { expected, new }
}

const fn store(bytes: [u8; 8]) -> AtomicStep {
    AtomicStep::Store(u64::from_ne_bytes(bytes))
}

#[test]
fn placing_at_any_place_and_length_is_a_flat_copy() {
    let buf = HostBuf::new(128).unwrap();
    let table = table(&buf);
    let whole = grant(&table, 0x1000, 128);
    let bytes: Vec<u8> = (1..=64).collect();
    for offset in 0..20 {
        for len in 0..=64 {
            whole.place(0, &[0xee; 128]).unwrap();
            whole.place(offset, &bytes[..len]).unwrap();
            let mut model = [0xee; 128];
            model[offset..offset + len].copy_from_slice(&bytes[..len]);
            let mut seen = [0; 128];
            whole.copy_out(0, &mut seen).unwrap();
            assert_eq!(seen, model, "{len} bytes at {offset}");
        }
    }
}

#[test]
fn a_part_keeps_its_place_in_the_region() {
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    let part = grant(&table, 0x1008, 16).slice(4, 8).unwrap();
    assert_eq!(
        (part.len(), part.span().unwrap().addr()),
        (8, buf.addr() + 12)
    );
    let again = table.renew(&part.claim(), 2, 6).unwrap();
    assert_eq!(again.span().unwrap().addr(), buf.addr() + 14);
    assert!(grant(&table, 0x1008, 16).slice(9, 8).is_none());
    assert!(grant(&table, 0x1008, 16).slice(usize::MAX, 2).is_none());
    assert_eq!(
        table.renew(&part.claim(), 2, 7).err(),
        Some(KeyFault::Bounds)
    );
    assert_eq!(
        table.renew(&part.claim(), u64::MAX, 2).err(),
        Some(KeyFault::Bounds)
    );
    assert!(table.renew(&part.claim(), 8, 0).unwrap().is_empty());
}

#[test]
#[should_panic(expected = "is_some_and")]
fn placing_beyond_the_end_is_our_own_bug() {
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    grant(&table, 0x1000, 8).place(1, &[0; 8]).unwrap();
}

#[test]
fn atomics_give_the_value_before() {
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    let word = grant(&table, 0x1008, 8);
    assert_eq!(word.atomic(AtomicStep::FetchAdd(u64::MAX)), Ok(Some(0)));
    assert_eq!(word.atomic(AtomicStep::FetchAdd(2)), Ok(Some(u64::MAX)));
    assert_eq!(word.atomic(swap(7, 9)), Ok(Some(1)));
    assert_eq!(word.atomic(swap(1, 9)), Ok(Some(1)));
    let mut bytes = [0; 8];
    word.copy_out(0, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 9);
    assert_eq!(word.atomic(store([1, 2, 3, 4, 5, 6, 7, 8])), Ok(Some(9)));
    word.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn atomics_need_eight_aligned_bytes() {
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    for (addr, len) in [(0x1001, 8), (0x1004, 8), (0x1008, 4), (0x1008, 0)] {
        let short = grant(&table, addr, len);
        assert_eq!(short.atomic(AtomicStep::FetchAdd(1)), Ok(None));
        assert_eq!(short.atomic(swap(0, 1)), Ok(None));
        assert_eq!(short.atomic(store([0; 8])), Ok(None));
    }
}

#[test]
fn atomics_of_many_queue_pairs_never_interleave() {
    // proves: roce-112
    const ROUNDS: u64 = 5_000;
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    std::thread::scope(|scope| {
        for qpn in 0..4 {
            let table = &table;
            scope.spawn(move || {
                let need = Access::REMOTE_ATOMIC;
                let at = |addr| {
                    table
                        .check_remote(Rkey(0x100), PD, Qpn::new(qpn), need, addr, 8)
                        .unwrap()
                };
                for _ in 0..ROUNDS {
                    at(0x1000).atomic(AtomicStep::FetchAdd(1)).unwrap().unwrap();
                    let word = at(0x1008);
                    let mut seen = 0;
                    while let before = word.atomic(swap(seen, seen + 1)).unwrap().unwrap()
                        && before != seen
                    {
                        seen = before;
                    }
                }
            });
        }
    });
    assert_eq!(
        grant(&table, 0x1000, 8).atomic(AtomicStep::FetchAdd(0)),
        Ok(Some(4 * ROUNDS))
    );
    assert_eq!(
        grant(&table, 0x1008, 8).atomic(AtomicStep::FetchAdd(0)),
        Ok(Some(4 * ROUNDS))
    );
}

#[test]
fn a_program_that_polls_the_end_sees_all_bytes_before_it() {
    const LEN: usize = 1000;
    let buf = HostBuf::new(LEN).unwrap();
    let table = table(&buf);
    std::thread::scope(|scope| {
        let (table, buf) = (&table, &buf);
        scope.spawn(move || {
            for round in 1..=200_u8 {
                grant(table, 0x1000, LEN as u64)
                    .place(0, &[round; LEN])
                    .unwrap();
                while buf.words().load_acquire(0) != 0 {
                    std::thread::yield_now();
                }
            }
        });
        let words = buf.words();
        for round in 1..=200_u8 {
            let full = u64::from_ne_bytes([round; 8]);
            while words.load_acquire(LEN / 8 - 1) != full {
                std::thread::yield_now();
            }
            assert!((0..LEN / 8).all(|n| words.load(n) == full), "round {round}");
            words.store_release(0, 0);
        }
    });
}

#[test]
fn the_default_claim_opens_nothing() {
    let buf = HostBuf::new(64).unwrap();
    let table = table(&buf);
    let local = table
        .check_local(Lkey(0x100), PD, Access::LOCAL_WRITE, 0x1000, 8)
        .unwrap();
    assert!(!local.claim().is_empty());
    assert_eq!(
        table.renew(&Default::default(), 0, 0).err(),
        Some(KeyFault::Invalid)
    );
}
