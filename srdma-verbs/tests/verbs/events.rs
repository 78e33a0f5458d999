//! Completion channels and asynchronous events: arm, get, acknowledge, destroy.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{Access, AsyncKind, Element, QpAttr, QpState, QpType, Reason, WrId};

/// `b` receives into a queue with a channel, on its last vector.
fn armed() -> Watched {
    let b = Side::new(config());
    let last = b.ctx.query_device().comp_vectors - 1;
    watched(b, last)
}

#[test]
fn one_arm_gives_one_event() {
    // proves: event-8, event-9, event-17
    let t = armed();
    t.send(false);
    done(&t.cq);
    assert!(!t.has_event(), "not armed");
    t.cq.arm(false).unwrap();
    t.send(false);
    t.send(false);
    assert_eq!(t.channel.wait().cq(), &t.cq);
    assert!(!t.has_event());
    done(&t.cq);
    done(&t.cq);
    t.cq.arm(false).unwrap();
    t.send(false);
    assert!(t.channel.wait_for(Duration::from_secs(60)).is_some());
    done(&t.cq);
    // Arming twice is once.
    t.cq.arm(false).unwrap();
    t.cq.arm(false).unwrap();
    t.send(false);
    until("the event", || t.has_event());
    done(&t.cq);
    assert!(t.channel.wait_for(Duration::ZERO).is_none());
}

#[test]
fn solicited_only_waits_for_its_mark() {
    // proves: roce-119, event-11, event-13
    let t = armed();
    t.cq.arm(true).unwrap();
    t.send(false);
    done(&t.cq);
    assert!(!t.has_event());
    t.send(true);
    done(&t.cq);
    until("the solicited event", || t.has_event());
    // Errors are always worth an event.
    t.cq.arm(true).unwrap();
    receive(&t.qb, 9);
    t.qb.modify(&QpAttr::to(QpState::Err)).unwrap();
    until("the event of the flush", || t.has_event());
    assert_flushed(&t.cq, &[9]);
}

#[test]
fn a_sleeping_program_is_woken() {
    let t = armed();
    t.cq.arm(false).unwrap();
    let channel = t.channel.clone();
    let sleeper = std::thread::spawn(move || {
        let event = channel.wait();
        event.cq().clone()
    });
    t.send(false);
    assert_eq!(sleeper.join().unwrap(), t.cq);
    // By descriptor.
    let mut poll = mio::Poll::new().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&t.channel.fd().unwrap());
    let mut source = mio::unix::SourceFd(&fd);
    poll.registry()
        .register(&mut source, mio::Token(1), mio::Interest::READABLE)
        .unwrap();
    done(&t.cq);
    t.cq.arm(false).unwrap();
    t.send(false);
    let mut events = mio::Events::with_capacity(4);
    poll.poll(&mut events, None).unwrap();
    assert_eq!(events.iter().count(), 1);
    assert!(t.has_event());
}

#[test]
fn destroying_waits_for_acknowledgements() {
    let t = armed();
    t.cq.arm(false).unwrap();
    t.send(false);
    let event = t.channel.wait();
    assert!(matches!(
        t.channel.clone().destroy().unwrap_err().reason(),
        Reason::Busy
    ));
    let cq = event.defer_ack();
    t.qb.destroy().unwrap();
    let destroyer = std::thread::spawn({
        let cq = t.cq.clone();
        move || cq.destroy()
    });
    for _ in 0..200 {
        std::thread::yield_now();
    }
    assert!(!destroyer.is_finished(), "an event is not acknowledged");
    cq.ack_events(1);
    destroyer.join().unwrap().unwrap();
    assert!(matches!(
        cq.arm(false).unwrap_err().reason(),
        Reason::Destroyed
    ));
    t.channel.destroy().unwrap();
    drop((t.a, t.b, t.qa));
}

#[test]
fn events_of_a_dead_queue_are_not_delivered() {
    let t = armed();
    t.cq.arm(false).unwrap();
    t.send(false);
    until("the completion", || t.cq.poll().next().is_some());
    t.qb.destroy().unwrap();
    t.cq.destroy().unwrap();
    assert!(t.channel.try_get().is_err());
}

#[test]
fn responder_faults_become_asynchronous_events() {
    // proves: event-44, event-46, event-56
    let p = pair(QpType::Rc);
    let source = p.a.mr(8);
    let target = p.b.pd.register(vec![0; 8], Access::LOCAL_WRITE).unwrap();
    write(&p.qa, 1, &source, &target);
    assert!(!next(&p.a.cq).is_ok());
    let event = p.b.ctx.wait_async_event();
    assert_eq!(event.kind(), AsyncKind::QpAccessErr);
    let Element::Qp(qp) = event.element() else {
        panic!("{event:?}")
    };
    assert_eq!(qp, &p.qb);
    assert!(
        p.a.ctx.try_async_event().is_err(),
        "the completion said it all"
    );
    // Destroying waits until the event is acknowledged.
    let destroyer = std::thread::spawn(move || p.qb.destroy());
    for _ in 0..200 {
        std::thread::yield_now();
    }
    assert!(!destroyer.is_finished());
    drop(event);
    destroyer.join().unwrap().unwrap();
}

#[test]
fn a_missing_right_of_the_queue_pair_is_a_request_error() {
    let (a, b) = sides();
    let (qa, qb) = connect(
        &a.qp(QpType::Rc),
        &b.qp(QpType::Rc).access(Access::REMOTE_READ),
    );
    let (source, target) = (a.mr(8), b.mr(8));
    write(&qa, 1, &source, &target);
    assert_eq!(next(&a.cq).status(), srdma_verbs::WcStatus::RemInvReqErr);
    let event = b.ctx.async_event_within(Duration::from_secs(60)).unwrap();
    assert_eq!(event.kind(), AsyncKind::QpReqErr);
    drop(event);
    assert_eq!(qb.state(), QpState::Err);
}

#[test]
fn the_limit_of_a_shared_queue_is_told_once() {
    // proves: roce-120, event-49
    let (a, b) = sides();
    let srq = b.pd.create_srq(16).build().unwrap();
    let (qa, _qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).srq(&srq));
    let mut batch = srq.post_recv();
    for id in 0..8 {
        batch.recv(WrId(id));
    }
    batch.ring().unwrap();
    assert!(srq.set_limit(srq.query().max_wr + 1).is_err());
    srq.set_limit(6).unwrap();
    for sent in 0..6 {
        send(&qa, sent);
        done(&a.cq);
        done(&b.cq);
        if sent < 2 {
            assert!(b.ctx.try_async_event().is_err(), "{sent} were taken");
        }
    }
    let event = b.ctx.async_event_within(Duration::from_secs(60)).unwrap();
    assert_eq!(event.kind(), AsyncKind::SrqLimitReached);
    assert!(matches!(event.element(), Element::Srq(found) if found.id() == srq.id()));
    drop(event);
    assert!(b.ctx.try_async_event().is_err(), "once");
}

#[test]
fn a_shared_queue_s_queue_pair_tells_its_last_receive() {
    // proves: roce-142, event-50
    let (a, b) = sides();
    let srq = b.pd.create_srq(16).build().unwrap();
    let (_qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).srq(&srq));
    qb.modify(&QpAttr::to(QpState::Err)).unwrap();
    let event = b.ctx.async_event_within(Duration::from_secs(60)).unwrap();
    assert_eq!(event.kind(), AsyncKind::QpLastWqeReached);
}

#[test]
fn draining_the_send_queue_is_told() {
    // proves: event-52
    let p = pair(QpType::Rc);
    let (source, target) = (p.a.mr(100_000), p.b.mr(100_000));
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(target.addr(), target.rkey())
        .signaled();
    batch.ring().unwrap();
    p.qa.modify(&QpAttr::to(QpState::Sqd).notify_drained(true))
        .unwrap();
    done(&p.a.cq);
    let event = p.a.ctx.async_event_within(Duration::from_secs(60)).unwrap();
    assert_eq!(event.kind(), AsyncKind::SqDrained);
    assert_eq!(p.qa.state(), QpState::Sqd);
    p.qa.modify(&QpAttr::to(QpState::Rts)).unwrap();
    let mut batch = p.qa.post_send();
    batch.nop(WrId(2)).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&p.a.cq).wr_id(), WrId(2));
}

#[test]
fn a_queue_that_overflows_says_so() {
    // proves: roce-140, event-39, event-40, event-41
    let (a, b) = sides();
    let small = a.ctx.create_cq(4).build().unwrap();
    let (qa, _qb) = connect(&a.qp(QpType::Rc).send_cq(&small), &b.qp(QpType::Rc));
    let mut batch = qa.post_send();
    for id in 0..40 {
        batch.nop(WrId(id)).signaled();
    }
    batch.ring().unwrap();
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let event = a.ctx.async_event_within(Duration::from_secs(60)).unwrap();
        kinds.push(event.kind());
    }
    kinds.sort_by_key(|kind| kind.value());
    assert_eq!(kinds, [AsyncKind::CqErr, AsyncKind::QpFatal]);
    assert_eq!(qa.state(), QpState::Err);
    // What it holds from before can be polled, in order, and it can be destroyed.
    let mut ids = Vec::new();
    let mut poll = small.poll();
    while let Some(wc) = poll.next() {
        ids.push(wc.wr_id());
    }
    drop(poll);
    assert!(ids.len() >= 4, "{ids:?}");
    assert!(ids.iter().copied().eq((0..).map(WrId).take(ids.len())));
    qa.destroy().unwrap();
    small.destroy().unwrap();
}

#[test]
fn threads_share_queues_channels_and_devices() {
    // proves: event-22
    use std::sync::atomic::{AtomicU64, Ordering};
    const MESSAGES: u64 = 4000;
    let (a, b) = sides();
    let channel = b.ctx.create_comp_channel().unwrap();
    let cq = b.ctx.create_cq(1024).on_channel(&channel).build().unwrap();
    let (qa, qb) = connect(
        &a.qp(QpType::Rc).max_send_wr(256),
        &b.qp(QpType::Rc).recv_cq(&cq).max_recv_wr(512),
    );
    let memory = b.mr(64);
    let (posted, sent, received) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let receive = |count: u64| {
        let mut batch = qb.post_recv();
        for id in 0..count {
            batch.recv(WrId(id)).local(memory.sge(..));
        }
        batch.ring().unwrap();
    };
    receive(400);
    cq.arm(false).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while posted.fetch_add(4, Ordering::Relaxed) < MESSAGES {
                    let mut batch = qa.post_send();
                    for id in 0..4 {
                        batch.send(WrId(id)).inline(b"shared").signaled();
                    }
                    batch.ring().unwrap();
                    let before = sent.load(Ordering::Relaxed);
                    until("room", || {
                        let mut poll = a.cq.poll();
                        while let Some(wc) = poll.next() {
                            assert!(wc.is_ok(), "{wc:?}");
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                        let now = sent.load(Ordering::Relaxed);
                        now > before || now >= MESSAGES
                    });
                }
            });
            scope.spawn(|| {
                while received.load(Ordering::Relaxed) < MESSAGES {
                    let Some(event) = channel.wait_for(Duration::from_millis(100)) else {
                        continue;
                    };
                    event.cq().arm(false).unwrap();
                    let mut taken = 0;
                    let mut poll = event.cq().poll();
                    while let Some(wc) = poll.next() {
                        assert!(wc.is_ok(), "{wc:?}");
                        taken += 1;
                    }
                    drop(poll);
                    receive(taken);
                    received.fetch_add(taken, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(received.load(Ordering::Relaxed), MESSAGES);
}

/// The waiter announces its sleep just when another thread's pass raises what it waits for.
#[test]
fn an_event_of_another_threads_pass_wakes_the_waiter() {
    use std::sync::atomic::{AtomicU64, Ordering};
    const ROUNDS: u64 = 5000;
    let armed = armed();
    let round = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < number {
                    armed.b.ctx.drive();
                }
                armed.send(false);
            }
        });
        for number in 1..=ROUNDS {
            armed.cq.arm(false).unwrap();
            round.store(number, Ordering::Release);
            let event = armed.channel.wait_for(Duration::from_secs(60));
            assert!(event.is_some(), "round {number}: asleep over an event");
            let mut poll = armed.cq.poll();
            while poll.next().is_some() {}
        }
    });
}
