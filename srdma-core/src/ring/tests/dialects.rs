//! Rings in the words of other NICs: laps, resizes, parking, doorbells.

use super::memory;
use crate::hw::cqe::{CqeInfo, FlushCode};
use crate::hw::dialect::{Dialect, EqName};
use crate::hw::{Aeqe, Ceqe};
use crate::mem::HostWords;
use crate::num::Qpn;
use crate::ring::*;

const OTHERS: [Dialect; 2] = [Dialect::Mlx5, Dialect::Hns];

struct Ends {
    words: HostWords,
    device: CqProducer,
    driver: CqConsumer,
}

fn ends(dialect: Dialect, size: u32) -> Ends {
    let words = memory(size as usize * 8);
    let shadow = CqShadow::speaking(dialect, memory(8)).unwrap();
    let device = CqProducer::new(words.clone(), size, false, shadow.clone(), size / 2).unwrap();
    let driver = CqConsumer::new(words.clone(), size, false, shadow).unwrap();
    Ends {
        words,
        device,
        driver,
    }
}

fn plain(tag: u32) -> CqeInfo {
    CqeInfo {
        op: 4,
        qpn: Qpn::new(7),
        context: 0x1000,
        len: tag,
        ..CqeInfo::default()
    }
}

fn pop(driver: &mut CqConsumer) -> Option<CqeInfo> {
    let info = driver.peek()?;
    driver.advance(info.extended());
    Some(info)
}

#[test]
fn completions_go_round_and_owner_bits_turn_over() {
    // proves: event-70
    for dialect in OTHERS {
        let mut ends = ends(dialect, 4);
        assert_eq!(ends.driver.peek(), None, "nothing in a fresh ring");
        for tag in 0..40 {
            let info = if tag % 3 == 0 {
                CqeInfo {
                    imm: Some(tag),
                    op: 5,
                    ..plain(tag)
                }
            } else {
                plain(tag)
            };
            ends.device.push(&info).unwrap();
            let slot = (tag % 4) as usize * 8;
            let (word, bit, first) = match dialect {
                Dialect::Mlx5 => (7, 56, 0),
                _ => (0, 7, 1),
            };
            let lap = u64::from(tag / 4 % 2);
            let owner = ends.words.load(slot + word) >> bit & 1;
            assert_eq!(owner, first ^ lap, "{dialect} {tag}");
            assert_eq!(pop(&mut ends.driver), Some(info), "{dialect} {tag}");
            assert_eq!(ends.driver.peek(), None);
        }
        // One slot stays free.
        for tag in 0..3 {
            ends.device.push(&plain(tag)).unwrap();
        }
        assert_eq!(ends.device.push(&plain(3)), Err(CqOverflow), "{dialect}");
        assert_eq!(ends.driver.pending(), 3);
        assert_eq!(pop(&mut ends.driver), Some(plain(0)));
        ends.device.push(&plain(3)).unwrap();
    }
}

/// Whoever only looks sees what whoever reads would.
#[test]
fn an_entry_that_is_ready_is_one_that_can_be_read() {
    for dialect in Dialect::ALL {
        let mut ends = ends(dialect, 4);
        for tag in 0..40 {
            assert!(!ends.driver.is_ready(), "{dialect} {tag}");
            let some = 1 + tag % 3;
            for more in 0..some {
                ends.device.push(&plain(tag + more)).unwrap();
            }
            for more in 0..some {
                assert!(ends.driver.is_ready(), "{dialect} {tag}");
                assert_eq!(pop(&mut ends.driver), Some(plain(tag + more)));
            }
        }
        let next = memory(8 * 8);
        ends.device.push(&plain(40)).unwrap();
        ends.device.switch(next.clone(), 8).unwrap();
        ends.driver.resize(next, 8).unwrap();
        assert!(ends.driver.is_ready(), "{dialect}: one in the old buffer");
        assert_eq!(pop(&mut ends.driver), Some(plain(40)));
        assert!(!ends.driver.is_ready(), "{dialect}");
        ends.device.push(&plain(41)).unwrap();
        assert!(ends.driver.is_ready(), "{dialect}: one in the new buffer");
    }
}

#[test]
fn sizes_are_powers_of_two() {
    for dialect in OTHERS {
        let shadow = CqShadow::speaking(dialect, memory(8)).unwrap();
        let made = CqConsumer::new(memory(48), 6, false, shadow);
        assert_eq!(made.err(), Some(RingFault::BadSize));
    }
    CqConsumer::new(memory(24), 6, false, super::cq_shadow()).unwrap();
}

#[test]
fn a_resize_reads_the_old_buffer_first() {
    for dialect in OTHERS {
        let mut ends = ends(dialect, 4);
        for tag in 0..2 {
            ends.device.push(&plain(tag)).unwrap();
        }
        assert_eq!(pop(&mut ends.driver), Some(plain(0)));
        let next = memory(8 * 8);
        ends.device.switch(next.clone(), 8).unwrap();
        ends.driver.resize(next, 8).unwrap();
        for tag in 2..9 {
            ends.device.push(&plain(tag)).unwrap();
        }
        assert_eq!(ends.device.push(&plain(9)), Err(CqOverflow), "{dialect}");
        for tag in 1..9 {
            assert_eq!(pop(&mut ends.driver), Some(plain(tag)), "{dialect}");
        }
        ends.device.push(&plain(9)).unwrap();
        assert_eq!(pop(&mut ends.driver), Some(plain(9)));
    }
}

#[test]
fn parking_and_cleaning_change_an_entry_in_place() {
    for dialect in OTHERS {
        let mut ends = ends(dialect, 8);
        let flush = CqeInfo::flush(true, Qpn::new(5), 0x2000, 1, FlushCode::RETRY_EXC);
        ends.device.push(&flush).unwrap();
        let shared = CqeInfo {
            srq_wr_id: Some(0x1000),
            srqn: 3,
            ..plain(1)
        };
        ends.device.push(&shared).unwrap();
        ends.device.push(&plain(2)).unwrap();
        assert_eq!(ends.driver.peek(), Some(flush));
        ends.driver.park(6, FlushCode::GENERAL);
        let rest = CqeInfo::flush(true, Qpn::new(5), 0x2000, 6, FlushCode::GENERAL);
        assert_eq!(ends.driver.peek(), Some(rest), "{dialect}");
        assert_eq!(ends.driver.clean(0x1000), 1, "one came from an SRQ");
        assert_eq!(pop(&mut ends.driver), Some(rest));
        for _ in 0..2 {
            assert_eq!(pop(&mut ends.driver).unwrap().context, 0, "{dialect}");
        }
    }
}

#[test]
fn a_request_says_how_far_the_driver_is() {
    // proves: event-73
    for dialect in OTHERS {
        let mut ends = ends(dialect, 4);
        let arming = crate::hw::dialect::Arming::new(dialect);
        assert_eq!(ends.device.request(3), None, "never asked");
        // Over the lap of the index in the hns dialect, which is twice the ring.
        for tag in 0..11 {
            ends.device.push(&plain(tag)).unwrap();
            ends.driver.ask(3, &arming, false);
            let request = ends.device.request(3).unwrap();
            assert_eq!(ends.device.written_since(&request), Some(1), "{dialect}");
            pop(&mut ends.driver).unwrap();
            ends.driver.ask(3, &arming, true);
            let request = ends.device.request(3).unwrap();
            assert!(request.next, "the weaker one changes nothing");
            assert_eq!(ends.device.written_since(&request), Some(0), "{dialect}");
        }
        assert_eq!(ends.device.request(4), None, "another queue's");
    }
}

#[test]
fn event_queues_go_round_with_doorbells() {
    // proves: event-71
    for dialect in OTHERS {
        let bytes = Ceqe::ring_bytes(dialect, 8);
        assert_eq!(bytes, 8 * 64 + 64, "the doorbells stand behind the ring");
        let words = memory(bytes / 8);
        let mut driver = Consumer::<Ceqe>::speaking(dialect, words.clone(), 8).unwrap();
        let mut device = Producer::<Ceqe>::speaking(dialect, words, 8, 8).unwrap();
        let eq = EqName::Completions(2);
        let mut taken = 0;
        for round in 0..100u64 {
            assert_eq!(driver.pop(), None, "{dialect} {round}");
            for entry in 0..1 + round % 8 {
                let cookie = 100 * round + entry;
                device.try_push(Ceqe { cookie }).unwrap();
                assert_eq!(driver.pop(), Some(Ceqe { cookie }), "{dialect}");
            }
            assert_eq!(driver.unannounced(), 1 + round % 8);
            assert_eq!(device.doorbell(eq, taken), 0, "not rung yet");
            driver.ring_doorbell(eq, round % 3 == 0);
            let more = device.doorbell(eq, taken);
            assert_eq!(u64::from(more), 1 + round % 8, "{dialect} {round}");
            assert_eq!(device.doorbell(EqName::Async, taken), 0, "another queue's");
            taken += u64::from(more);
            device.release(more);
        }
        for cookie in 1..=8 {
            device.try_push(Ceqe { cookie }).unwrap();
        }
        assert_eq!(device.try_push(Ceqe { cookie: 9 }), Err(PushFault::Full));
        driver.rewrite_pending(|entry| (entry.cookie == 2).then_some(Ceqe { cookie: 0 }));
        let read: Vec<_> = core::iter::from_fn(|| driver.pop()).collect();
        let expected = [1, 0, 3, 4, 5, 6, 7, 8].map(|cookie| Ceqe { cookie });
        assert_eq!(read, expected, "{dialect}");
    }
}

#[test]
fn a_doorbell_never_acknowledges_more_than_there_is() {
    for dialect in OTHERS {
        let words = memory(Aeqe::ring_bytes(dialect, 8) / 8);
        let mut device = Producer::<Aeqe>::speaking(dialect, words.clone(), 8, 8).unwrap();
        device.try_push(Aeqe::default()).unwrap();
        for count in 0..64 {
            for (register, word) in dialect
                .eq_doorbell(EqName::Async, 8, count, true)
                .into_iter()
                .chain(dialect.eq_doorbell(EqName::Async, 8, count, false))
            {
                words.store(8 * 8 + register, word);
                assert!(device.doorbell(EqName::Async, 0) <= 1, "{dialect} {count}");
            }
        }
    }
}
