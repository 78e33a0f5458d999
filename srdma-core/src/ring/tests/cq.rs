//! Completion queue: wraps, extensions, overflow, parking, cleaning, resize.

use super::{cq_shadow, memory};
use crate::hw::cqe::{CqeInfo, FlushCode};
use crate::hw::{CqpCompletion, Major};
use crate::mem::HostWords;
use crate::num::Qpn;
use crate::ring::depth::cq_slots;
use crate::ring::*;
use proptest::prelude::*;

struct Ends {
    words: HostWords,
    shadow: CqShadow,
    device: CqProducer,
    driver: CqConsumer,
}

fn ends(size: u32, wide: bool) -> Ends {
    let words = memory(size as usize * if wide { 8 } else { 4 });
    let shadow = cq_shadow();
    let device = CqProducer::new(words.clone(), size, wide, shadow.clone(), size / 2).unwrap();
    let driver = CqConsumer::new(words.clone(), size, wide, shadow.clone()).unwrap();
    Ends {
        words,
        shadow,
        device,
        driver,
    }
}

fn plain(tag: u32) -> CqeInfo {
    CqeInfo {
        context: 0x1000,
        len: tag,
        ..CqeInfo::default()
    }
}

fn with_imm(tag: u32) -> CqeInfo {
    CqeInfo {
        imm: Some(!tag),
        ..plain(tag)
    }
}

fn pop(driver: &mut CqConsumer) -> Option<CqeInfo> {
    let info = driver.peek()?;
    driver.advance(info.extended());
    Some(info)
}

#[test]
fn golden_extension_at_the_wrap() {
    let mut ends = ends(4, false);
    for tag in 0..3 {
        ends.device.push(&plain(tag)).unwrap();
        assert_eq!(pop(&mut ends.driver), Some(plain(tag)));
    }
    ends.device.push(&with_imm(3)).unwrap();
    // The body in the last slot is of lap 1, the extension in slot 0 of lap 2.
    assert_eq!(ends.words.load(3 * 4 + 3) >> 63, 1);
    assert_eq!(ends.words.load(3), 1 << 62);
    assert_eq!(pop(&mut ends.driver), Some(with_imm(3)));
    assert_eq!((ends.driver.index(), ends.device.index()), (1, 1));
    assert_eq!(ends.shadow.head(ends.device.size()), 1);
}

#[test]
fn a_pair_without_its_second_half_is_not_there_yet() {
    let mut ends = ends(8, false);
    ends.device.push(&with_imm(1)).unwrap();
    let second = ends.words.load(7);
    ends.words.store(7, second & !(1 << 63));
    assert_eq!(ends.driver.peek(), None);
    ends.words.store(7, second);
    assert_eq!(ends.driver.peek(), Some(with_imm(1)));
}

#[test]
fn wide_slots_take_both_halves() {
    let mut ends = ends(4, true);
    for tag in 0..30 {
        let info = if tag % 3 == 0 {
            with_imm(tag)
        } else {
            plain(tag)
        };
        ends.device.push(&info).unwrap();
        assert_eq!(ends.device.index(), (tag + 1) % 4);
        assert_eq!(pop(&mut ends.driver), Some(info));
        assert_eq!(ends.driver.index(), (tag + 1) % 4);
    }
}

#[test]
fn a_full_queue_is_a_value() {
    let mut ends = ends(4, false);
    for tag in 0..3 {
        ends.device.push(&plain(tag)).unwrap();
    }
    assert_eq!(ends.device.push(&plain(3)), Err(CqOverflow));
    assert_eq!(ends.device.unread(), 3);
    assert_eq!(pop(&mut ends.driver), Some(plain(0)));
    assert_eq!(ends.device.push(&with_imm(3)), Err(CqOverflow), "two slots");
    assert_eq!(ends.device.push(&plain(3)), Ok(()));
    let rest: Vec<u32> = core::iter::from_fn(|| pop(&mut ends.driver))
        .map(|info| info.len)
        .collect();
    assert_eq!(rest, [1, 2, 3]);
    assert_eq!(ends.device.free(), 3);
}

#[test]
fn there_is_room_for_what_was_asked_if_all_are_extended() {
    // proves: e810-5
    for (asked, wide) in [(1, false), (1, true), (7, false), (8, true), (100, false)] {
        let mut ends = ends(cq_slots(asked, wide).unwrap(), wide);
        for lap in 0..5 {
            for tag in 0..asked {
                assert_eq!(
                    ends.device.push(&with_imm(tag)),
                    Ok(()),
                    "{asked}, lap {lap}"
                );
            }
            for tag in 0..asked {
                assert_eq!(pop(&mut ends.driver), Some(with_imm(tag)));
            }
        }
    }
}

#[test]
fn a_head_that_cannot_be_frees_nothing() {
    let mut ends = ends(8, false);
    for tag in 0..7 {
        ends.device.push(&plain(tag)).unwrap();
    }
    for head in [8, 0xf_ffff] {
        ends.shadow.store_head(head, head);
        assert_eq!(ends.device.push(&plain(9)), Err(CqOverflow), "{head}");
    }
}

#[test]
fn parking_rewrites_the_entry_in_place() {
    // The words of Intel's driver: WQEIDX 3, 5, 6, 7 and MINERR 1.  [E810 3.5]
    let mut ends = ends(8, false);
    let flush = CqeInfo::flush(true, Qpn::new(5), 0x1000, 0, FlushCode::PROT);
    ends.device.push(&flush).unwrap();
    assert_eq!(ends.words.load(3), 0xc080_0000_0001_0002);
    assert_eq!(ends.driver.peek(), Some(flush));
    for index in [3, 5, 6, 7] {
        ends.driver.park(index, FlushCode::GENERAL);
        let info = ends.driver.peek().unwrap();
        assert_eq!(info.flush_code(), Some(FlushCode::GENERAL));
        assert_eq!(info.wqe_index, index);
    }
    assert_eq!(ends.words.load(3), 0xc080_0007_0001_0001);
    assert_eq!(ends.shadow.head(ends.device.size()), 0);
    ends.driver.advance(false);
    assert_eq!(
        (ends.shadow.head(ends.device.size()), ends.driver.peek()),
        (1, None)
    );
}

#[test]
fn cleaning_takes_a_qp_out_of_what_waits() {
    let mut ends = ends(16, false);
    let other = CqeInfo {
        context: 0x2000,
        ..plain(1)
    };
    let shared = CqeInfo {
        srq_wr_id: Some(0x1000),
        ..plain(2)
    };
    for info in [plain(0), other, shared, with_imm(3)] {
        ends.device.push(&info).unwrap();
    }
    ends.driver.clean(0x1000);
    let got: Vec<CqeInfo> = core::iter::from_fn(|| pop(&mut ends.driver)).collect();
    let contexts: Vec<u64> = got.iter().map(|info| info.context).collect();
    assert_eq!(contexts, [0, 0x2000, 0, 0]);
    assert_eq!(
        got[2].srq_wr_id,
        Some(0x1000),
        "the receive is used up all the same"
    );
}

#[test]
fn a_resize_reads_the_old_buffers_first() {
    let mut ends = ends(4, false);
    let push = |device: &mut CqProducer, tag| device.push(&plain(tag)).unwrap();
    push(&mut ends.device, 0);
    push(&mut ends.device, 1);
    assert_eq!(pop(&mut ends.driver), Some(plain(0)));
    for size in [8, 16] {
        let next = memory(size * 4);
        let size = u32::try_from(size).unwrap();
        ends.device.switch(next.clone(), size).unwrap();
        ends.driver.resize(next, size).unwrap();
    }
    assert_eq!(pop(&mut ends.driver), Some(plain(1)));
    assert_eq!((ends.driver.peek(), ends.driver.old_buffers()), (None, 2));
    // The shadow head (2) is still of the first buffer, and must not count for the third.
    assert_eq!(
        (ends.shadow.head(ends.device.size()), ends.device.free()),
        (2, 15)
    );
    for tag in 2..17 {
        push(&mut ends.device, tag);
    }
    assert_eq!(ends.device.push(&plain(17)), Err(CqOverflow));
    assert_eq!(ends.driver.peek(), Some(plain(2)));
    assert_eq!(ends.driver.old_buffers(), 0);
    assert_eq!(
        (
            ends.shadow.arm_word().select(),
            ends.shadow.head(ends.device.size())
        ),
        (2, 0)
    );
    assert_eq!(pop(&mut ends.driver), Some(plain(2)));
    assert_eq!(ends.device.push(&plain(17)), Ok(()));
    for tag in 3..18 {
        assert_eq!(pop(&mut ends.driver), Some(plain(tag)));
    }
}

#[test]
fn a_resize_and_an_arm_share_a_word() {
    let ends = ends(4, false);
    ends.shadow.arm(false);
    ends.shadow.retire(3);
    assert_eq!(ends.shadow.arm_word().bits(), 0x1c003);
    ends.shadow.arm(true);
    let word = ends.shadow.arm_word();
    assert_eq!(
        (word.seq(), word.next(), word.next_solicited()),
        (2, false, true)
    );
    assert_eq!(word.select(), 3);
}

#[test]
fn control_completions_pass() {
    let mut ends = ends(4, false);
    for index in 0..12 {
        let done = CqpCompletion {
            context: 8,
            wqe_index: index,
            major: Major::NONE,
            minor: crate::hw::cqp::CqpMinor::NONE,
            value: 3,
            detail: 0,
        };
        ends.device.push_control(&done).unwrap();
        assert_eq!(ends.driver.peek_control(), Some(done));
        ends.driver.advance(false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any mix of entries and lags, narrow or wide: all arrive in order; overflow only when full.
    #[test]
    fn mixes_arrive_in_order(
        size in 4_u32..20, wide: bool,
        steps in prop::collection::vec((any::<bool>(), 0_u32..4), 1..400),
    ) {
        let mut ends = ends(size, wide);
        let (mut sent, mut got, mut slots) = (0, 0, 0);
        for (extended, pops) in steps {
            let info = if extended { with_imm(sent) } else { plain(sent) };
            let needs = if extended && !wide { 2 } else { 1 };
            match ends.device.push(&info) {
                Ok(()) => {
                    sent += 1;
                    slots += needs;
                    prop_assert!(slots < size);
                }
                Err(CqOverflow) => prop_assert!(slots + needs >= size),
            }
            for _ in 0..pops {
                if let Some(info) = pop(&mut ends.driver) {
                    prop_assert_eq!((info.len, info.context), (got, 0x1000));
                    prop_assert!(info.imm.is_none_or(|imm| imm == !got));
                    slots -= if info.extended() && !wide { 2 } else { 1 };
                    got += 1;
                }
            }
        }
    }
}
