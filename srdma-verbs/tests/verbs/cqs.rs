//! Completion queues beyond polling: timestamps, moderation, sizes.

use crate::common::{connect, done, pair, sides, until};
use core::time::Duration;
use srdma_verbs::{Cq, Qp, QpType, Reason, WrId};
use std::time::SystemTime;

/// Posts `count` receives and as many SENDs with an immediate.
fn exchange(to: &Qp, from: &Qp, count: u64) {
    for id in 0..count {
        let mut batch = to.post_recv();
        let _ = batch.recv(WrId(100 + id));
        batch.ring().unwrap();
    }
    for id in 0..count {
        let mut batch = from.post_send();
        let _ = batch.send_imm(WrId(id), 7).signaled();
        batch.ring().unwrap();
    }
}

#[test]
fn completions_say_when_they_came() {
    let (a, b) = sides();
    let stamped = |side: &crate::common::Side| side.ctx.create_cq(16).timestamps().build().unwrap();
    let (cq, peer_cq) = (stamped(&a), stamped(&b));
    let srq = b.pd.create_srq(8).build().unwrap();
    let qa = a.qp(QpType::Rc).send_cq(&cq).recv_cq(&a.cq);
    let qb = b.qp(QpType::Rc).recv_cq(&peer_cq).srq(&srq);
    let (qa, _qb) = connect(&qa, &qb);
    let start = (a.ctx.raw_clock(), b.ctx.raw_clock());
    let mut batch = srq.post_recv();
    let _ = batch.recv(WrId(55));
    batch.ring().unwrap();
    for id in [1, 2] {
        let mut batch = qa.post_send();
        if id == 1 {
            let _ = batch.send_imm(WrId(id), 9).signaled();
        } else {
            let _ = batch.nop(WrId(id)).signaled();
        }
        batch.ring().unwrap();
    }
    let (first, second) = (done(&cq), done(&cq));
    let received = done(&peer_cq);
    assert_eq!((received.wr_id(), received.imm()), (WrId(55), Some(9)));
    let stamps = [
        start.0,
        first.timestamp().unwrap(),
        second.timestamp().unwrap(),
    ];
    assert!(
        stamps.is_sorted() && stamps[2] <= a.ctx.raw_clock(),
        "{stamps:?}"
    );
    let stamp = received.timestamp().unwrap();
    assert!((start.1..=b.ctx.raw_clock()).contains(&stamp));
    let day = Duration::from_nanos(b.ctx.wallclock(stamp));
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    assert!(
        day <= now && now - day < Duration::from_secs(3600),
        "{day:?} {now:?}"
    );
    let mut batch = qa.post_send();
    let _ = batch.nop(WrId(3)).signaled();
    batch.ring().unwrap();
    assert!(done(&cq).timestamp().is_some());
}

#[test]
fn what_a_device_says_of_clocks_memory_and_speed_is_so() {
    let (a, _) = sides();
    let attr = a.ctx.query_device();
    assert!(attr.on_demand && attr.max_dm_size >= 1 << 20);
    assert_eq!(
        (attr.max_moderation_count, attr.clock_khz),
        (u16::MAX, 1_000_000)
    );
    let longest = Duration::from_micros(attr.max_moderation_us.into());
    a.cq.moderate_events(attr.max_moderation_count, longest)
        .unwrap();
    // Loopback has no cable; forty gigabits are four lanes of ten.
    let port = a.ctx.query_port(1).unwrap();
    let speed = (port.speed_mbps, port.active_width, port.active_speed);
    assert_eq!(speed, (40_000, 2, 8));
}

#[test]
fn a_queue_without_timestamps_has_none() {
    let pair = pair(QpType::Rc);
    exchange(&pair.qb, &pair.qa, 1);
    assert_eq!(done(&pair.a.cq).timestamp(), None);
    assert_eq!(done(&pair.b.cq).timestamp(), None);
}

#[test]
fn moderation_puts_an_event_off_until_there_are_enough() {
    // proves: event-37, event-38
    let (a, b) = sides();
    let channel = b.ctx.create_comp_channel().unwrap();
    let cq = b.ctx.create_cq(16).on_channel(&channel).build().unwrap();
    let qb = b.qp(QpType::Rc).recv_cq(&cq);
    let (qa, qb) = connect(&a.qp(QpType::Rc), &qb);
    cq.moderate_events(3, Duration::from_secs(4)).unwrap();
    cq.arm(false).unwrap();
    exchange(&qb, &qa, 2);
    done(&a.cq);
    done(&a.cq);
    assert!(matches!(
        channel.try_get().unwrap_err().reason(),
        Reason::WouldBlock
    ));
    exchange(&qb, &qa, 1);
    until("the third completion", || {
        a.ctx.drive();
        b.ctx.drive();
        channel.try_get().is_ok()
    });
    // Time makes an event due as well.
    cq.moderate_events(1000, Duration::from_millis(1)).unwrap();
    cq.arm(false).unwrap();
    exchange(&qb, &qa, 1);
    drop(channel.wait());
    let long = cq.moderate_events(1, Duration::from_secs(5)).unwrap_err();
    assert_eq!(long.errno(), 22);
}

#[test]
fn a_queue_shrinks_no_further_than_to_what_is_in_it() {
    let pair = pair(QpType::Rc);
    exchange(&pair.qb, &pair.qa, 5);
    let cq: &Cq = &pair.a.cq;
    until("five completions", || {
        pair.a.ctx.drive();
        pair.b.ctx.drive();
        cq.resize(4).is_err()
    });
    assert_eq!(cq.resize(4).unwrap_err().errno(), 22);
    cq.resize(5).unwrap();
    assert!(
        cq.entries() >= 5,
        "as many as asked, or what the dialect rounds up to"
    );
    for id in 0..5 {
        assert_eq!(done(cq).wr_id(), WrId(id));
    }
    cq.resize(1).unwrap();
    assert_eq!(cq.resize(0).unwrap_err().errno(), 22);
}

#[test]
fn a_queue_that_ignores_overruns_goes_on() {
    // proves: event-42
    let (a, b) = sides();
    let cq = a.ctx.create_cq(1).ignore_overrun().build().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc).send_cq(&cq), &b.qp(QpType::Rc));
    exchange(&qb, &qa, 12);
    for _ in 0..12 {
        done(&b.cq);
    }
    assert!(a.ctx.try_async_event().is_err(), "nobody is told");
}
