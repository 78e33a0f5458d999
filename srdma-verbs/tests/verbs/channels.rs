//! Completion channels as uverbs have them: what is readable when, who gets which event, and what
//! destroying waits for.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{CompChannel, Cq, Qp, QpType, Reason, WcStatus, WrId};
use std::collections::HashSet;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device with a channel, and queues on it that each have a queue pair.
struct Many {
    _side: Side,
    channel: CompChannel,
    queues: Vec<(Cq, Qp)>,
}

/// `count` queues, an even number: queue pairs of one device, connected to each other.
fn many(count: usize) -> Many {
    let side = Side::new(config());
    let channel = side.ctx.create_comp_channel().unwrap();
    let vectors = usize::from(side.ctx.query_device().comp_vectors);
    let cqs: Vec<Cq> = (0..count)
        .map(|number| {
            // More than a queue pair can have outstanding, whatever it is rounded to.
            let cq = side.ctx.create_cq(256).on_channel(&channel);
            let vector = u16::try_from(number % vectors).unwrap();
            cq.comp_vector(vector).build().unwrap()
        })
        .collect();
    let mut queues = Vec::new();
    for pair in cqs.chunks(2) {
        let qp = |cq: &Cq| {
            let qp = side.pd.create_qp(QpType::Rc).send_cq(cq).recv_cq(cq);
            qp.max_send_wr(4).max_recv_wr(4)
        };
        let (qa, qb) = connect(&qp(&pair[0]), &qp(&pair[1]));
        queues.push((pair[0].clone(), qa));
        queues.push((pair[1].clone(), qb));
    }
    Many {
        _side: side,
        channel,
        queues,
    }
}

impl Many {
    fn fd(&self) -> RawFd {
        self.channel.fd().unwrap().as_raw_fd()
    }

    /// A completion in a queue.
    fn complete(&self, number: usize) {
        let (cq, qp) = &self.queues[number];
        let before = cq.pending();
        let mut batch = qp.post_send();
        batch.nop(WrId(number as u64)).signaled();
        batch.ring().unwrap();
        until("the completion", || cq.pending() > before);
    }

    /// An event of a queue, in the channel or on its way there.
    fn raise(&self, number: usize) {
        self.queues[number].0.arm(false).unwrap();
        self.complete(number);
    }

    fn get(&self) -> Cq {
        let event = self.channel.wait_for(Duration::from_secs(60)).unwrap();
        event.cq().clone()
    }
}

/// By a descriptor of its own each time, so that the level counts and no edge.
fn readable(fd: RawFd, limit: Duration) -> bool {
    let mut poll = mio::Poll::new().unwrap();
    let mut source = mio::unix::SourceFd(&fd);
    poll.registry()
        .register(&mut source, mio::Token(0), mio::Interest::READABLE)
        .unwrap();
    let mut events = mio::Events::with_capacity(1);
    poll.poll(&mut events, Some(limit)).unwrap();
    !events.is_empty()
}

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_fresh_channel_has_nothing_and_is_closed_on_exec() {
    // proves: event-1, event-2
    let t = many(2);
    assert!(!readable(t.fd(), NOW));
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", t.fd())).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    assert_ne!(flags & 0o2_000_000, 0, "O_CLOEXEC of {flags:o}");
    let error = t.channel.try_get().unwrap_err();
    assert!(error.is_would_block());
    assert_eq!(error.errno(), 11);
    let sleeper = std::thread::spawn({
        let channel = t.channel.clone();
        move || channel.wait().cq().clone()
    });
    for _ in 0..200 {
        std::thread::yield_now();
    }
    assert!(!sleeper.is_finished());
    t.raise(0);
    assert_eq!(sleeper.join().unwrap(), t.queues[0].0);
}

#[test]
fn readable_while_an_event_is_there() {
    // proves: event-3, event-4
    let t = many(4);
    let fd = t.fd();
    for number in 0..3 {
        t.raise(number);
        assert!(readable(fd, LONG));
    }
    let mut seen = HashSet::new();
    for left in (0..3).rev() {
        // One call, one event, however many wait.
        seen.insert(t.get().id());
        assert_eq!(readable(fd, NOW), left != 0, "{left} are left");
    }
    assert_eq!(seen.len(), 3);
    assert!(t.channel.try_get().is_err());
}

#[test]
fn the_completion_is_there_before_its_event() {
    // proves: event-18
    const ROUNDS: usize = 2000;
    let t = many(2);
    let (cq, qp) = &t.queues[0];
    let armed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while armed.load(Ordering::SeqCst) < round {
                    std::thread::yield_now();
                }
                let mut batch = qp.post_send();
                batch.nop(WrId(round as u64)).signaled();
                batch.ring().unwrap();
            }
        });
        for round in 1..=ROUNDS {
            cq.arm(false).unwrap();
            armed.store(round, Ordering::SeqCst);
            drop(t.channel.wait_for(LONG).unwrap());
            let mut poll = cq.poll();
            let wc = poll.next().expect("an event without a completion");
            assert_eq!(wc.wr_id(), WrId(round as u64));
        }
    });
}

#[test]
fn an_event_outlives_the_completion_that_raised_it() {
    // proves: event-20
    let t = many(2);
    t.raise(0);
    let cq = &t.queues[0].0;
    done(cq);
    assert_eq!(&t.get(), cq);
    assert_quiet(cq);
    // And the queue goes on.
    t.raise(0);
    assert_eq!(&t.get(), cq);
}

#[test]
fn events_come_in_the_order_of_their_completions() {
    // proves: event-23
    let t = many(8);
    // Each in the channel before the next comes: it is an edge there.
    let mut poll = mio::Poll::new().unwrap();
    let mut events = mio::Events::with_capacity(1);
    let fd = t.fd();
    let mut source = mio::unix::SourceFd(&fd);
    poll.registry()
        .register(&mut source, mio::Token(0), mio::Interest::READABLE)
        .unwrap();
    let expected = [5, 0, 7, 2, 6, 1];
    for number in expected {
        t.raise(number);
        poll.poll(&mut events, None).unwrap();
    }
    for number in expected {
        let cq = t.get();
        assert_eq!(cq, t.queues[number].0);
        assert_eq!(done(&cq).wr_id(), WrId(number as u64));
    }
}

#[test]
fn each_event_goes_to_one_of_the_sleepers() {
    // proves: event-24
    const EVENTS: usize = 400;
    let t = many(8);
    let taken = AtomicUsize::new(0);
    let posted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while taken.load(Ordering::SeqCst) < EVENTS {
                    let Some(event) = t.channel.wait_for(Duration::from_millis(50)) else {
                        continue;
                    };
                    done(event.cq());
                    let number = taken.fetch_add(1, Ordering::SeqCst);
                    assert!(number < EVENTS, "one too many");
                }
            });
        }
        for number in 0..EVENTS {
            t.queues[number % 8].0.arm(false).unwrap();
            let mut batch = t.queues[number % 8].1.post_send();
            batch.nop(WrId(0)).signaled();
            batch.ring().unwrap();
            posted.fetch_add(1, Ordering::SeqCst);
            until("room", || {
                std::thread::sleep(Duration::from_micros(10));
                taken.load(Ordering::SeqCst) > number
            });
        }
    });
    assert_eq!(taken.into_inner(), posted.into_inner());
    assert!(t.channel.try_get().is_err());
}

#[test]
fn a_queue_in_use_is_not_destroyed_and_goes_on() {
    // proves: event-27, event-34
    let t = many(2);
    let (cq, qp) = &t.queues[0];
    assert_eq!(cq.destroy().unwrap_err().errno(), 16);
    t.raise(0);
    assert_eq!(&t.get(), cq);
    done(cq);
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    let busy = t.channel.clone().destroy().unwrap_err();
    assert!(matches!(busy.reason(), Reason::Busy));
    t.queues[1].1.destroy().unwrap();
    t.queues[1].0.destroy().unwrap();
    t.channel.destroy().unwrap();
}

#[test]
fn unread_events_go_with_their_queue() {
    // proves: event-29, event-30
    let t = many(4);
    for number in [0, 1, 2] {
        t.raise(number);
    }
    assert!(readable(t.fd(), LONG));
    until("all three", || {
        t.queues.iter().take(3).all(|(cq, _)| cq.pending() == 1)
    });
    for number in [1, 0] {
        let (cq, qp) = &t.queues[number];
        qp.destroy().unwrap();
        cq.destroy().unwrap();
    }
    assert_eq!(t.get(), t.queues[2].0);
    assert!(!readable(t.fd(), NOW));
    assert!(t.channel.try_get().is_err());
}

#[test]
fn acknowledgements_count_for_their_queue_alone() {
    // proves: event-28, event-31, event-32
    const EVENTS: u32 = 5;
    let t = many(2);
    for number in [0, 1] {
        for _ in 0..EVENTS {
            t.raise(number);
            let event = t.channel.wait_for(LONG).unwrap();
            let cq = event.defer_ack();
            assert_eq!(cq, t.queues[number].0);
            done(&cq);
        }
        t.queues[number].1.destroy().unwrap();
    }
    let destroy = |number: usize| {
        let cq = t.queues[number].0.clone();
        std::thread::spawn(move || cq.destroy())
    };
    let (a, b) = (destroy(0), destroy(1));
    let settle = || (0..200).for_each(|_| std::thread::yield_now());
    settle();
    // By a thread that read none of them, in two portions.
    let acks = t.queues[0].0.clone();
    std::thread::spawn(move || acks.ack_events(EVENTS - 1))
        .join()
        .unwrap();
    settle();
    assert!(!a.is_finished() && !b.is_finished());
    t.queues[0].0.ack_events(1);
    a.join().unwrap().unwrap();
    settle();
    assert!(!b.is_finished(), "those of another queue do not count");
    t.queues[1].0.ack_events(EVENTS);
    b.join().unwrap().unwrap();
}

#[test]
fn an_error_names_its_request_and_queue_pair() {
    // proves: event-43
    let t = many(2);
    let (cq, qp) = &t.queues[0];
    receive(qp, 77);
    let error = srdma_verbs::QpAttr::to(srdma_verbs::QpState::Err);
    qp.modify(&error).unwrap();
    let wc = next(cq);
    assert_eq!((wc.wr_id(), wc.qp_num()), (WrId(77), qp.qp_num()));
    assert_eq!(wc.status(), WcStatus::WrFlushErr);
    assert_ne!(wc.vendor_err(), 0);
}

#[test]
fn thousands_of_queues_share_a_channel() {
    const QUEUES: usize = 2000;
    let t = many(QUEUES);
    for (cq, _) in &t.queues {
        cq.arm(false).unwrap();
    }
    for (number, (_, qp)) in t.queues.iter().enumerate() {
        let mut batch = qp.post_send();
        batch.nop(WrId(number as u64)).signaled();
        batch.ring().unwrap();
    }
    let mut seen = HashSet::new();
    for _ in 0..QUEUES {
        let cq = t.get();
        assert!(seen.insert(cq.id()), "twice from {cq:?}");
    }
    assert!(t.channel.try_get().is_err());
    for (number, (cq, _)) in t.queues.iter().enumerate() {
        assert_eq!(done(cq).wr_id(), WrId(number as u64));
    }
    assert!(!readable(t.fd(), NOW));
}

/// Its peer does what it may not, and the queue pair is destroyed just when the event comes.
#[test]
fn nobody_hears_of_a_queue_pair_that_is_gone() {
    const ROUNDS: u32 = 150;
    let (a, b) = sides();
    let source = a.mr(8);
    let target = b.mr(8);
    for round in 0..ROUNDS {
        let closed = b.qp(QpType::Rc).access(srdma_verbs::Access::REMOTE_READ);
        let (qa, qb) = connect(&a.qp(QpType::Rc), &closed);
        write(&qa, 1, &source, &target);
        for _ in 0..round % 50 {
            std::hint::spin_loop();
        }
        qb.destroy().unwrap();
        // The handle is still there, so a record could still find it.
        let late = b.ctx.try_async_event();
        assert!(late.is_err(), "round {round}: {late:?}");
        qa.destroy().unwrap();
        let mut poll = a.cq.poll();
        while poll.next().is_some() {}
    }
}
