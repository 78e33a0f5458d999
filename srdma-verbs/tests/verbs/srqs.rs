//! Shared receive queues that change their size while receives are posted and taken.

use crate::common::{Side, connect, done, sides};
use srdma_verbs::{AsyncKind, Qp, QpType, Srq, WrId};

fn post(srq: &Srq, ids: core::ops::Range<u64>) {
    for id in ids {
        let mut batch = srq.post_recv();
        let _ = batch.recv(WrId(id));
        batch.ring().unwrap();
    }
}

/// Sends that take the next receives, which must be these.
fn take(from: &Qp, sender: &Side, receiver: &Side, ids: core::ops::Range<u64>) {
    for id in ids {
        let mut batch = from.post_send();
        let _ = batch.send(WrId(0)).signaled();
        batch.ring().unwrap();
        assert_eq!(done(&receiver.cq).wr_id(), WrId(id));
        done(&sender.cq);
    }
}

fn setup(max_wr: u32) -> (Side, Side, Srq, Qp, Qp) {
    let (a, b) = sides();
    let srq = b.pd.create_srq(max_wr).build().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).srq(&srq));
    (a, b, srq, qa, qb)
}

#[test]
fn receives_keep_their_order_over_changes_of_size() {
    let (a, b, srq, qa, _qb) = setup(7);
    assert_eq!(srq.query().max_wr, 7);
    let mut at = 0;
    for round in 0..40 {
        let posted = 1 + round % 7;
        post(&srq, at..at + posted);
        let early = round % (posted + 1);
        take(&qa, &a, &b, at..at + early);
        srq.resize([7, 31, 15, 63][usize::try_from(round % 4).unwrap()])
            .unwrap();
        take(&qa, &a, &b, at + early..at + posted);
        at += posted;
    }
}

#[test]
fn a_larger_queue_takes_as_much_as_it_says() {
    let (a, b, srq, qa, _qb) = setup(7);
    post(&srq, 0..7);
    take(&qa, &a, &b, 0..2);
    post(&srq, 7..9);
    srq.resize(20).unwrap();
    let room = u64::from(srq.query().max_wr);
    assert_eq!(room, 31);
    post(&srq, 9..2 + room);
    let mut batch = srq.post_recv();
    let _ = batch.recv(WrId(999));
    assert_eq!(batch.ring().unwrap_err().errno(), libc::ENOMEM);
    take(&qa, &a, &b, 2..2 + room);
}

#[test]
fn a_queue_shrinks_no_further_than_to_what_is_posted() {
    let (a, b, srq, qa, _qb) = setup(31);
    post(&srq, 0..10);
    assert_eq!(srq.resize(7).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(srq.resize(0).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(srq.resize(1 << 20).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(srq.query().max_wr, 31, "nothing has changed");
    take(&qa, &a, &b, 0..4);
    srq.resize(7).unwrap();
    take(&qa, &a, &b, 4..10);
}

#[test]
fn the_limit_outlives_a_change_of_size() {
    let (a, b, srq, qa, _qb) = setup(15);
    post(&srq, 0..6);
    srq.set_limit(4).unwrap();
    srq.resize(31).unwrap();
    assert_eq!((srq.query().limit, srq.query().max_wr), (4, 31));
    take(&qa, &a, &b, 0..2);
    assert!(b.ctx.try_async_event().is_err(), "four are left");
    take(&qa, &a, &b, 2..3);
    let event = b.ctx.wait_async_event();
    assert_eq!(event.kind(), AsyncKind::SrqLimitReached);
}
