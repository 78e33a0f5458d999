//! Send queue: chunks, padding, clear-ahead, staging, any mix of sizes.

use super::memory;
use crate::hw::wqe::{RemoteAddr, SendWr, WrFlags, WriteWr};
use crate::hw::{SqCmd, SqHeader, SqOp, WqeBuf, WqeFault};
use crate::mem::{HostWords, Sge};
use crate::num::{Lkey, Rkey};
use crate::ring::*;
use proptest::prelude::*;

/// A WQE of 1..=7 quanta, told apart by `tag`.
fn wqe(quanta: usize, tag: u32) -> WqeBuf {
    let sge = |len| Sge {
        addr: tag.into(),
        len,
        lkey: Lkey(1),
    };
    let sges: Vec<Sge> = (1..).take(2 * quanta - 1).map(sge).collect();
    let mut buf = WqeBuf::new();
    let remote = RemoteAddr {
        addr: tag.into(),
        rkey: Rkey(tag),
    };
    let wr = WriteWr {
        flags: WrFlags::SIGNALED,
        remote,
        ..WriteWr::default()
    };
    buf.write(&wr, &sges).unwrap();
    assert_eq!(buf.quanta() as usize, quanta);
    buf
}

fn ends(quanta: u32) -> (HostWords, SqProducer, SqConsumer) {
    let words = memory(quanta as usize * 4);
    let driver = SqProducer::new(words.clone(), quanta).unwrap();
    let device = SqConsumer::new(words.clone(), quanta).unwrap();
    (words, driver, device)
}

fn header(words: &HostWords, index: usize) -> u64 {
    words.load(index * 4 + 3)
}

#[test]
fn golden_nop_fills_the_chunk() {
    let (words, mut driver, mut device) = ends(512);
    for _ in 0..7 {
        driver.push(&wqe(1, 0)).unwrap();
    }
    let mut buf = WqeBuf::new();
    let sge = Sge {
        addr: 1,
        len: 1,
        lkey: Lkey(1),
    };
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        inv: Some(Rkey(0x0bad_beef)),
        ..SendWr::default()
    };
    buf.send(&wr, &[sge; 2]).unwrap();
    let slot = driver.push(&buf).unwrap();
    assert_eq!((slot.index, slot.padding), (8, 1));
    assert_eq!(header(&words, 7), 0x8000_000c_0000_0000);
    assert_eq!([28, 29, 30].map(|word| words.load(word)), [0; 3]);
    assert_eq!(header(&words, 8), 0xc000_0084_0bad_beef);

    let mut cmd = SqCmd::new();
    for index in 0..7 {
        assert_eq!(
            (device.index(), device.read(&mut cmd)),
            (index, Some(Ok(())))
        );
        device.advance(&cmd);
    }
    assert_eq!(device.read(&mut cmd), Some(Ok(())));
    assert_eq!((cmd.op, cmd.signaled, cmd.quanta), (SqOp::NOP, false, 1));
    device.advance(&cmd);
    assert_eq!((device.index(), device.read(&mut cmd)), (8, Some(Ok(()))));
    assert_eq!(cmd.op, SqOp::SEND_INV);
}

#[test]
fn a_ring_of_512_takes_255() {
    let (_, mut driver, _) = ends(512);
    for _ in 0..255 {
        driver.push(&wqe(1, 0)).unwrap();
    }
    assert_eq!((driver.used(), driver.free()), (255, 0));
    assert_eq!(driver.push(&wqe(1, 0)), Err(PushFault::Full));
    driver.release_to(1);
    driver.push(&wqe(1, 0)).unwrap();
    for quanta in [256, 513, 65536] {
        let refused = SqProducer::new(memory(2052), quanta).err();
        assert_eq!(refused, Some(RingFault::BadSize), "{quanta}");
    }
}

#[test]
fn the_space_check_covers_the_padding() {
    let (_, mut driver, _) = ends(512);
    for _ in 0..253 {
        driver.push(&wqe(1, 0)).unwrap();
    }
    // Two quanta are free and the chunk has three left: a WQE of two fits, one of four needs
    // padding besides.
    assert_eq!(driver.push(&wqe(4, 0)), Err(PushFault::Full));
    assert_eq!(driver.head(), 253, "a refused WQE leaves nothing behind");
    assert_eq!(driver.push(&wqe(2, 0)).map(|slot| slot.index), Ok(253));
}

#[test]
fn padding_at_the_end_of_the_ring_has_the_old_polarity() {
    let (words, mut driver, mut device) = ends(512);
    let mut cmd = SqCmd::new();
    for _ in 0..511 {
        let slot = driver.push(&wqe(1, 0)).unwrap();
        assert_eq!(device.read(&mut cmd), Some(Ok(())));
        device.advance(&cmd);
        driver.release_to(slot.index + 1);
    }
    let slot = driver.push(&wqe(2, 5)).unwrap();
    assert_eq!((slot.index, slot.padding), (0, 1));
    assert_eq!(header(&words, 511), 0x8000_000c_0000_0000);
    assert_eq!(header(&words, 0) >> 63, 0, "the first of the second lap");
    assert_eq!((device.index(), device.read(&mut cmd)), (511, Some(Ok(()))));
    device.advance(&cmd);
    assert_eq!((device.index(), device.read(&mut cmd)), (0, Some(Ok(()))));
    assert_eq!(cmd.remote_addr, 5);
}

#[test]
fn clear_ahead_writes_the_pattern_of_the_coming_lap() {
    let (words, mut driver, mut device) = ends(512);
    let mut cmd = SqCmd::new();
    let block = |index: usize| {
        let all: Vec<u64> = (index * 4..(index + 128) * 4)
            .map(|word| words.load(word))
            .collect();
        all.iter().all(|word| *word == all[0]).then_some(all[0])
    };
    // Per post at a multiple of 128: the block that is cleared and its pattern.  [E810 1.5]
    let golden = [
        [(128, 0), (256, 0), (384, 0), (0, u64::MAX)],
        [(128, u64::MAX), (256, u64::MAX), (384, u64::MAX), (0, 0)],
    ];
    for lap in 0..4 {
        for (part, (target, pattern)) in golden[lap % 2].into_iter().enumerate() {
            // Something that is not the pattern stands there before.
            (target * 4..(target + 128) * 4).for_each(|word| words.store(word, 1));
            for _ in 0..128 {
                let slot = driver.push(&wqe(1, 0)).unwrap();
                if slot.index as usize == part * 128 {
                    assert_eq!(block(target), Some(pattern), "lap {lap} part {part}");
                }
                assert_eq!(device.read(&mut cmd), Some(Ok(())));
                device.advance(&cmd);
                driver.release_to(slot.index + 1);
            }
        }
    }
}

#[test]
fn staged_entries_appear_together_or_not_at_all() {
    let (_, mut driver, mut device) = ends(512);
    let mut cmd = SqCmd::new();
    driver.push(&wqe(3, 1)).unwrap();
    for tag in 2..8 {
        driver.stage(&wqe(3, tag)).unwrap();
    }
    assert_eq!(device.read(&mut cmd), Some(Ok(())));
    device.advance(&cmd);
    assert!(device.peek().is_none());
    driver.rollback();
    assert_eq!(driver.head(), 3);
    // Other sizes now: whatever header the old ones left must not show.
    driver.push(&wqe(1, 20)).unwrap();
    assert_eq!(device.read(&mut cmd), Some(Ok(())));
    assert_eq!(cmd.remote_addr, 20);
    device.advance(&cmd);
    for _ in 4..40 {
        assert!(device.peek().is_none());
        driver.push(&wqe(1, 21)).unwrap();
        assert_eq!(device.read(&mut cmd), Some(Ok(())));
        device.advance(&cmd);
    }
    driver.stage(&wqe(2, 30)).unwrap();
    driver.stage(&wqe(2, 31)).unwrap();
    driver.commit();
    for tag in [30, 31] {
        assert_eq!(device.read(&mut cmd), Some(Ok(())));
        assert_eq!(cmd.remote_addr, tag);
        device.advance(&cmd);
    }
    assert!(device.peek().is_none());
}

#[test]
fn a_wqe_across_chunks_is_a_fault() {
    let (words, _, mut device) = ends(512);
    let one = SqHeader::ZERO.with_op(SqOp::NOP).with_valid(Polarity::ONE);
    let two = one
        .with_op(SqOp::SEND)
        .with_more_frags(2)
        .with_signaled(true);
    for index in 0..7 {
        words.store(index * 4 + 3, one.bits());
    }
    words.store(7 * 4 + 3, two.bits());
    let mut cmd = SqCmd::new();
    for _ in 0..7 {
        assert_eq!(device.read(&mut cmd), Some(Ok(())));
        device.advance(&cmd);
    }
    assert_eq!(device.read(&mut cmd), Some(Err(WqeFault::Straddles)));
    assert!(cmd.signaled && cmd.op == SqOp::SEND);
    device.advance(&cmd);
    assert_eq!(
        device.index(),
        8,
        "chunks are where a reader can find its way again"
    );
}

#[test]
fn a_wqe_can_be_read_again_until_it_is_completed() {
    let (_, mut driver, mut device) = ends(512);
    let mut cmd = SqCmd::new();
    let slots = [1, 2, 4].map(|quanta| driver.push(&wqe(quanta, 100)).unwrap());
    for _ in slots {
        assert_eq!(device.read(&mut cmd), Some(Ok(())));
        device.advance(&cmd);
    }
    for (slot, quanta) in slots.iter().zip([1, 2, 4]) {
        assert_eq!(device.read_at(slot.index, &mut cmd), Ok(()));
        assert_eq!((cmd.quanta, cmd.remote_addr), (quanta, 100));
    }
    assert_eq!(driver.header_at(slots[1].index).op(), SqOp::WRITE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any mix of sizes, batches and lags: the device sees every WQE once, in order.
    #[test]
    fn mixes_arrive_in_order(
        steps in prop::collection::vec((1_usize..=7, 0_u8..10, any::<bool>()), 1..1500),
    ) {
        let (_, mut driver, mut device) = ends(1024);
        let mut cmd = SqCmd::new();
        let (mut sent, mut got) = (0, 0);
        let mut in_flight = std::collections::VecDeque::new();
        for (quanta, drain, undo) in steps {
            if undo {
                let _ = driver.stage(&wqe(quanta, 0xdead));
                driver.rollback();
            }
            match driver.push(&wqe(quanta, sent)) {
                Ok(slot) => {
                    in_flight.push_back((slot.index, quanta));
                    sent += 1;
                }
                Err(fault) => prop_assert_eq!(fault, PushFault::Full),
            }
            if drain > 7 || in_flight.len() > 60 {
                while let Some(result) = device.read(&mut cmd) {
                    prop_assert_eq!(result, Ok(()));
                    if cmd.op != SqOp::NOP {
                        let (index, quanta) = in_flight.pop_front().unwrap();
                        prop_assert_eq!((device.index(), cmd.remote_addr), (index, got.into()));
                        prop_assert_eq!(cmd.sges.len(), 2 * quanta - 1);
                        driver.release_to(index + u32::try_from(quanta).unwrap());
                        got += 1;
                    }
                    device.advance(&cmd);
                }
                prop_assert_eq!(sent, got);
            }
        }
    }
}
