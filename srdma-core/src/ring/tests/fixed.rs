//! Event and control rings, the polarity table, depths.

use super::memory;
use crate::hw::cqp::{CQP_HEADER, CqpCmd};
use crate::hw::{AeCode, AeSource, Aeqe, Ceqe, Polarity};
use crate::num::Qpn;
use crate::ring::depth::*;
use crate::ring::*;

#[test]
fn polarity_starts_at_one_and_flips_at_index_zero() {
    let words = memory(6);
    let mut ceq = Producer::<Ceqe>::new(words.clone(), 3, 3).unwrap();
    for lap in 0..4 {
        for index in 0..3 {
            assert_eq!(ceq.try_push(Ceqe { cookie: 2 }), Ok(index));
            ceq.release(1);
            let valid = words.load(index as usize) >> 63;
            assert_eq!(valid, if lap % 2 == 0 { 1 } else { 0 });
        }
    }
    let mut cursor = Cursor::new(3);
    assert_eq!(cursor.polarity(), Polarity::ONE);
    cursor.advance(3);
    assert_eq!((cursor.index(), cursor.polarity()), (0, Polarity::ZERO));
}

#[test]
fn event_queues_run_over_many_laps() {
    let words = memory(10);
    let mut device = Producer::<Aeqe>::new(words.clone(), 5, 5).unwrap();
    let mut driver = Consumer::<Aeqe>::new(words, 5).unwrap();
    let (mut sent, mut got) = (0_u32, 0_u32);
    for round in 0..40 {
        for _ in 0..round % 6 {
            let event = Aeqe {
                code: AeCode::LLP_TOO_MANY_RETRIES,
                source: AeSource::SQ,
                id: sent,
                ..Aeqe::default()
            };
            match device.try_push(event) {
                Ok(_) => sent += 1,
                Err(fault) => assert_eq!((fault, sent - got), (PushFault::Full, 5)),
            }
        }
        let before = got;
        while let Some(event) = driver.pop() {
            assert_eq!(event.id, got);
            got += 1;
        }
        assert_eq!(sent, got);
        device.release(got - before);
    }
    assert!(got > 40);
}

#[test]
fn a_stale_event_is_cleaned_and_stays_valid() {
    let words = memory(4);
    let mut device = Producer::<Ceqe>::new(words.clone(), 4, 4).unwrap();
    let mut driver = Consumer::<Ceqe>::new(words, 4).unwrap();
    for cookie in [2, 4, 2] {
        device.try_push(Ceqe { cookie }).unwrap();
    }
    driver.rewrite_pending(|event| (event.cookie == 2).then(Ceqe::default));
    let seen: Vec<u64> = core::iter::from_fn(|| driver.pop())
        .map(|event| event.cookie)
        .collect();
    assert_eq!(seen, [0, 4, 0]);
}

#[test]
fn commands_pass_through_the_control_ring() {
    let words = memory(4 * 8);
    let mut driver = Producer::<CqpWqe>::new(words.clone(), 4, 3).unwrap();
    let mut device = Consumer::<CqpWqe>::new(words, 4).unwrap();
    for lap in 0..20_u32 {
        let cmd = CqpCmd::DestroyQp(Qpn::new(lap));
        assert_eq!(driver.try_push(CqpWqe(cmd.encode())), Ok(lap % 4));
        let got = device.pop().unwrap();
        assert_eq!(got.0[CQP_HEADER] >> 63, 0);
        assert_eq!(CqpCmd::decode(&got.0), Ok(cmd));
        assert_eq!(device.peek(), None);
        driver.release(1);
    }
    for _ in 0..3 {
        driver.try_push(CqpWqe::default()).unwrap();
    }
    assert_eq!(driver.try_push(CqpWqe::default()), Err(PushFault::Full));
}

#[test]
fn wrong_geometry_is_refused() {
    let full = Producer::<Ceqe>::new(memory(3), 4, 4);
    assert_eq!(full.err(), Some(RingFault::ShortMemory));
    let none = Consumer::<Aeqe>::new(memory(3), 0);
    assert_eq!(none.err(), Some(RingFault::BadSize));
}

#[test]
fn depths_follow_the_tables() {
    assert_eq!((sq_shift(2, 0), sq_depth(16, 1)), (1, Some(512)));
    assert_eq!((rq_shift(2), rq_depth(16, 1)), (1, Some(64)));
    assert_eq!(wqe_shift(1, 8), 0);
    assert_eq!(wqe_shift(3, 39), 1);
    assert_eq!(wqe_shift(7, 101), 2);
    assert_eq!(wqe_shift(8, 0), 3);
    assert_eq!(sq_shift(13, 101), 3);
    assert_eq!(sq_depth(4063, 3), Some(32768));
    assert_eq!(sq_depth(4064, 3), None);
    assert_eq!(max_send_wr(32768, 3), 4063);
    assert_eq!(max_send_wr(512, 1), 127);
    assert_eq!((rq_depth(1, 0), rq_depth(1, 3)), (Some(8), Some(64)));
    assert_eq!(max_recv_wr(64, 1), 31);
    assert_eq!(srq_depth(262_143, 0), Some(262_144));
    assert_eq!((cq_slots(1, false), cq_slots(1, true)), (Some(4), Some(4)));
    assert_eq!(
        (cq_slots(100, false), cq_slots(100, true)),
        (Some(202), Some(102))
    );
    assert_eq!(cq_slots(4 << 20, false), Some((8 << 20) + 2));
    assert_eq!(cq_slots(1 << 23, false), None);
}
