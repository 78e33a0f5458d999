//! Receive queues: strides, stale quanta, indexes, shadow areas.

use super::memory;
use crate::hw::{RqCmd, WqeBuf, WqeFault};
use crate::mem::Sge;
use crate::num::Lkey;
use crate::ring::*;

fn recv(sges: usize, tag: u64) -> WqeBuf {
    let mut buf = WqeBuf::new();
    let sges: Vec<Sge> = (1..)
        .take(sges)
        .map(|len| Sge {
            addr: tag,
            len,
            lkey: Lkey(7),
        })
        .collect();
    buf.recv(&sges, Some(tag)).unwrap();
    buf
}

#[test]
fn entries_of_all_strides_wrap_many_times() {
    for (shift, most) in [(0, 1), (1, 3), (2, 7), (3, 13)] {
        let words = memory(16 * (4 << shift));
        let mut driver = RqProducer::new(words.clone(), 16, shift).unwrap();
        let mut device = RqConsumer::new(words, 16, shift).unwrap();
        let mut cmd = RqCmd::default();
        for tag in 0..100_u32 {
            // Long and short entries alternate, so that stale quanta lie behind the short ones.
            let sges = if tag % 3 == 0 { most } else { 1 };
            assert_eq!(driver.push(&recv(sges, tag.into())), Ok(tag % 16));
            assert_eq!(device.index(), tag % 16);
            assert_eq!(u32::from(device.wqe_index()), (tag % 16) << shift);
            assert_eq!(device.available(driver.head()), 1);
            assert_eq!(device.read(&mut cmd), Some(Ok(())));
            assert_eq!((cmd.sges.len(), cmd.wr_id), (sges, tag.into()));
            device.advance();
            assert!(device.peek().is_none());
            driver.release_to(tag % 16 + 1);
        }
    }
}

#[test]
fn one_entry_stays_free() {
    let mut driver = RqProducer::new(memory(64), 16, 0).unwrap();
    for _ in 0..15 {
        driver.push(&recv(1, 1)).unwrap();
    }
    assert_eq!(driver.push(&recv(1, 1)), Err(PushFault::Full));
    driver.release_to(3);
    assert_eq!((driver.free(), driver.used(), driver.tail()), (3, 12, 3));
    driver.release_to(2);
    assert_eq!(driver.tail(), 3, "a tail does not go back");
}

#[test]
fn an_entry_longer_than_its_slot_is_refused_on_both_sides() {
    let words = memory(64);
    let mut driver = RqProducer::new(words.clone(), 16, 0).unwrap();
    assert_eq!(driver.push(&recv(2, 1)), Err(PushFault::TooLong));
    words.store(3, 1 << 63 | 2 << 38);
    let device = RqConsumer::new(words, 16, 0).unwrap();
    let got = device.read(&mut RqCmd::default());
    assert_eq!(got, Some(Err(WqeFault::Straddles)));
}

#[test]
fn the_largest_ring_uses_all_fifteen_bits_of_an_index() {
    let words = memory(32768 * 4);
    let mut driver = RqProducer::new(words.clone(), 4096, 3).unwrap();
    let mut device = RqConsumer::new(words, 4096, 3).unwrap();
    for _ in 0..4095 {
        driver.push(&recv(1, 0)).unwrap();
        device.advance();
    }
    assert_eq!(device.wqe_index(), 0x7ff8);
}

#[test]
fn shadows_carry_heads_and_tails() {
    let srq = SrqShadow::new(memory(8)).unwrap();
    srq.store_head(70_000);
    assert_eq!(srq.head(), 70_000);
    let qp = QpShadow::new(memory(8)).unwrap();
    qp.store_sq_tail(32_767);
    assert_eq!(qp.sq_tail(), 32_767);
    assert_eq!(QpShadow::new(memory(7)).err(), Some(RingFault::ShortMemory));
}
