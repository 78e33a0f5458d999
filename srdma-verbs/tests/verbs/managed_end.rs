//! Managed completion queues: ends, drains, sleep, and who holds up whom.

use crate::common::*;
use crate::managed::{Door, WITH_THREADS, counting, managed, nops};
use core::time::Duration;
use srdma_verbs::{ManagedCq, PollContext, QpType, Reason, WcStatus, WrId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn nothing_runs_after_the_end() {
    // proves: mcq-7
    for round in 0..60 {
        let t = managed(WITH_THREADS[round % 3], 1024);
        let ended = Arc::new(AtomicBool::new(false));
        let done = {
            let ended = Arc::clone(&ended);
            move |_: &ManagedCq, _: &srdma_verbs::Completion| {
                assert!(!ended.load(Ordering::SeqCst), "it has ended");
            }
        };
        let cqe = t.cq.register(done).unwrap();
        assert!(matches!(t.cq.destroy().unwrap_err().reason(), Reason::Busy));
        nops(&t.qa, cqe.wr_id(), 300);
        t.qa.destroy().unwrap();
        t.cq.destroy().unwrap();
        ended.store(true, Ordering::SeqCst);
        assert_eq!(t.cq.stats().panics, 0);
        let again = t.cq.destroy().unwrap_err();
        assert!(matches!(again.reason(), Reason::Destroyed), "{again}");
    }
}

#[test]
fn its_own_closure_cannot_end_a_queue_and_nobody_else_may_as_a_plain_one() {
    // proves: mcq-17
    let t = managed(PollContext::Workqueue, 64);
    let free = t.a.ctx.create_managed_cq(4).build().unwrap();
    assert_eq!(free.cq().destroy().unwrap_err().errno(), 95);
    free.destroy().unwrap();
    let found = Arc::new(Mutex::new(None));
    let qp = t.qa.clone();
    let cqe = t.cq.register({
        let found = Arc::clone(&found);
        move |cq, _| {
            qp.destroy().unwrap();
            *found.lock().unwrap() = Some(cq.destroy().unwrap_err().errno());
        }
    });
    let cqe = cqe.unwrap();
    nops(&t.qa, cqe.wr_id(), 1);
    until("the answer", || found.lock().unwrap().is_some());
    assert_eq!(*found.lock().unwrap(), Some(16));
    t.cq.destroy().unwrap();
}

/// The callback of one queue waits; the device and the other queues go on without anybody's help.
#[test]
fn a_waiting_callback_holds_up_neither_device_nor_others() {
    let (a, b) = sides();
    let make = |context| {
        let cq = a
            .ctx
            .create_managed_cq(64)
            .poll_context(context)
            .comp_vector(0);
        cq.build().unwrap()
    };
    let stuck = make(PollContext::UnboundWorkqueue);
    let (door, entered) = (Arc::new(Door::default()), Arc::new(AtomicBool::new(false)));
    let wait = stuck.register({
        let (door, entered) = (Arc::clone(&door), Arc::clone(&entered));
        move |_, _| {
            entered.store(true, Ordering::SeqCst);
            door.pass();
        }
    });
    let wait = wait.unwrap();
    let connect_to = |cq: &ManagedCq| {
        let qa = a.qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq());
        connect(&qa, &b.qp(QpType::Rc))
    };
    let (qa, _qb) = connect_to(&stuck);
    nops(&qa, wait.wr_id(), 1);
    until("the callback", || entered.load(Ordering::SeqCst));
    for context in WITH_THREADS {
        let cq = make(context);
        let (qa, qb) = connect_to(&cq);
        let (received, recv) = counting(&cq);
        let mut batch = qa.post_recv();
        batch.recv(recv.wr_id());
        batch.ring().unwrap();
        send(&qb, 1);
        // Only looks: the device of the receiver runs by itself.
        until("the receive", || {
            std::thread::sleep(Duration::from_micros(10));
            received.load(Ordering::SeqCst) == 1
        });
    }
    door.open();
}

#[test]
fn the_last_handle_ends_it() {
    let t = managed(PollContext::Workqueue, 64);
    let token = Arc::new(());
    let cqe = t.cq.register({
        let token = Arc::clone(&token);
        move |_, _| assert!(Arc::strong_count(&token) > 0)
    });
    let cqe = cqe.unwrap();
    nops(&t.qa, cqe.wr_id(), 10);
    let (cq, qa, qb) = (t.cq, t.qa, t.qb);
    drop(cq);
    until("its closures gone", || Arc::strong_count(&token) == 1);
    nops(&qa, cqe.wr_id(), 1);
    drop((qa, qb, cqe));
}

#[test]
fn draining_ends_after_every_callback() {
    // proves: mcq-11
    let contexts = WITH_THREADS.into_iter().chain([PollContext::Direct]);
    for (context, full) in contexts.flat_map(|context| [(context, false), (context, true)]) {
        let t = managed(context, 2048);
        let (sends, recvs) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let count = |count: &Arc<AtomicU64>| {
            let count = Arc::clone(count);
            let done = move |_: &ManagedCq, wc: &srdma_verbs::Completion| {
                assert!(wc.is_ok() || wc.status() == WcStatus::WrFlushErr, "{wc:?}");
                count.fetch_add(1, Ordering::SeqCst);
            };
            t.cq.register(done).unwrap()
        };
        let (send, recv) = (count(&sends), count(&recvs));
        let caps = t.qa.caps();
        let (receives, sent) = if full {
            (caps.max_recv_wr, caps.max_send_wr)
        } else {
            (100, 100)
        };
        let mut batch = t.qa.post_recv();
        for _ in 0..receives {
            batch.recv(recv.wr_id());
        }
        batch.ring().unwrap();
        // The peer has no receive posted: the sends wait, and are flushed.
        let mut batch = t.qa.post_send();
        for _ in 0..sent {
            batch.send(send.wr_id()).signaled();
        }
        batch.ring().unwrap();
        t.qa.drain().unwrap();
        let counts = (sends.load(Ordering::SeqCst), recvs.load(Ordering::SeqCst));
        assert_eq!(counts, (sent.into(), receives.into()), "{context:?} {full}");
        assert_eq!(t.cq.stats().panics, 0, "{:?}", t.cq.take_panic());
        t.qa.drain().unwrap();
        t.qa.destroy().unwrap();
        t.cq.destroy().unwrap();
    }
}

#[test]
fn draining_needs_a_managed_queue_and_leaves_shared_receives_alone() {
    let (a, b) = sides();
    let (plain, _qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    assert_eq!(plain.drain().unwrap_err().errno(), 95);
    let cq = a.ctx.create_managed_cq(64).build().unwrap();
    let srq = a.pd.create_srq(8).build().unwrap();
    let qa = a.qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq()).srq(&srq);
    let (qa, _qb) = connect(&qa, &b.qp(QpType::Rc));
    let mut batch = srq.post_recv();
    batch.recv(WrId(1));
    batch.ring().unwrap();
    qa.drain().unwrap();
    assert!(qa.drain_recv().is_err());
    let gone = qa.clone();
    qa.destroy().unwrap();
    assert!(gone.drain_send().is_err());
}

/// From its own closure a drain would wait for itself; from that of another queue of the same
/// thread it does not.
#[test]
fn a_closure_drains_others_but_not_its_own() {
    for context in WITH_THREADS {
        let t = managed(context, 64);
        let other = t.a.ctx.create_managed_cq(64).poll_context(context);
        let other = other.comp_vector(t.cq.comp_vector()).build().unwrap();
        let qc = t.a.qp(QpType::Rc).send_cq(other.cq()).recv_cq(other.cq());
        let (qc, _qd) = connect(&qc, &t.b.qp(QpType::Rc));
        let result = Arc::new(Mutex::new(None));
        let cqe = t.cq.register({
            let (own, result) = (t.qa.clone(), Arc::clone(&result));
            move |_, _| {
                let own = own.drain().unwrap_err().errno();
                *result.lock().unwrap() = Some((own, qc.drain().is_ok()));
            }
        });
        let cqe = cqe.unwrap();
        nops(&t.qa, cqe.wr_id(), 1);
        until("the answer", || result.lock().unwrap().is_some());
        assert_eq!(*result.lock().unwrap(), Some((16, true)), "{context:?}");
    }
}

/// A completion or a few at a time, so that nearly each comes around an arm; and the thread that
/// posts never polls, so that nobody serves the device but who serves the queue.
#[test]
fn no_completion_is_left_asleep() {
    const ROUNDS: u64 = 2500;
    let seed = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed {seed:#x}");
    for context in WITH_THREADS {
        let t = managed(context, 1024);
        let (count, cqe) = counting(&t.cq);
        let mut state = seed;
        let mut posted = 0;
        for round in 0..ROUNDS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let some = 1 + state % 4;
            nops(&t.qa, cqe.wr_id(), some);
            posted += some;
            for _ in 0..(state >> 32) % 300 {
                std::hint::spin_loop();
            }
            if (state >> 16).is_multiple_of(3) || round + 1 == ROUNDS {
                until("what was posted", || {
                    if !state.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                    count.load(Ordering::SeqCst) == posted
                });
            }
        }
    }
}

/// The closure of the only completion of a batch raises the next one: it stands in the queue when
/// the turn arms, and gives no event.
#[test]
fn what_came_before_the_arm_has_a_turn() {
    for context in WITH_THREADS {
        let t = managed(context, 64);
        let (count, last) = counting(&t.cq);
        let first = t.cq.register({
            let (qa, id) = (t.qa.clone(), last.wr_id());
            move |cq, _| {
                nops(&qa, id, 1);
                until("it stands there", || cq.cq().pending() != 0);
            }
        });
        let first = first.unwrap();
        nops(&t.qa, first.wr_id(), 1);
        until("the one behind", || count.load(Ordering::SeqCst) == 1);
        let stats = t.cq.stats();
        assert_eq!((stats.missed, stats.panics), (1, 0), "{context:?}");
    }
}
