//! Managed completion queues over loopback: contexts, order, budgets, panics.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{
    BUDGET_SOFTIRQ, BUDGET_WORKQUEUE, ManagedCq, PollContext, Qp, QpType, WrCqe, WrId,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

pub const WITH_THREADS: [PollContext; 3] = [
    PollContext::Softirq,
    PollContext::Workqueue,
    PollContext::UnboundWorkqueue,
];

/// Lets a callback wait until the test opens it.
#[derive(Default)]
pub struct Door(Mutex<bool>, Condvar);

impl Door {
    pub fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    pub fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |open| !*open));
    }
}

/// A counter, and a closure that counts in it.
pub fn counting(cq: &ManagedCq) -> (Arc<AtomicU64>, WrCqe) {
    let count = Arc::new(AtomicU64::new(0));
    let cqe = cq
        .register({
            let count = Arc::clone(&count);
            move |_, wc| {
                assert!(wc.is_ok(), "{wc:?}");
                count.fetch_add(1, Ordering::SeqCst);
            }
        })
        .unwrap();
    (count, cqe)
}

pub fn nops(qp: &Qp, id: WrId, count: u64) {
    let mut left = count;
    while left > 0 {
        let some = left.min(64);
        let mut batch = qp.post_send();
        for _ in 0..some {
            batch.nop(id).signaled();
        }
        batch.ring().unwrap();
        left -= some;
    }
}

/// A pair whose `a` reports to a managed queue.
pub struct Managed {
    pub a: Side,
    pub b: Side,
    pub cq: ManagedCq,
    pub qa: Qp,
    pub qb: Qp,
}

pub fn managed(context: PollContext, entries: u32) -> Managed {
    let (a, b) = sides();
    let cq = a.ctx.create_managed_cq(entries).poll_context(context);
    let cq = cq.build().unwrap();
    let qa = a.qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq());
    let qa = qa.max_send_wr(512).max_recv_wr(512);
    let (qa, qb) = connect(&qa, &b.qp(QpType::Rc).max_send_wr(512));
    Managed { a, b, cq, qa, qb }
}

#[test]
fn every_context_calls_back_for_sends_and_receives() {
    for context in WITH_THREADS {
        let t = managed(context, 1024);
        let (sent, send) = counting(&t.cq);
        let (received, recv) = counting(&t.cq);
        for round in 1..=200 {
            let mut batch = t.qa.post_recv();
            batch.recv(recv.wr_id());
            batch.ring().unwrap();
            nops(&t.qa, send.wr_id(), 1);
            let mut batch = t.qb.post_send();
            batch.send(WrId(1)).signaled();
            batch.ring().unwrap();
            done(&t.b.cq);
            until("both callbacks", || {
                let sum = sent.load(Ordering::SeqCst) + received.load(Ordering::SeqCst);
                sum == 2 * round
            });
        }
        let stats = t.cq.stats();
        assert_eq!(
            (stats.completions, stats.unclaimed),
            (400, 0),
            "{context:?}"
        );
        assert!(stats.armed >= 1 && stats.panics == 0);
        assert_eq!(t.cq.poll_context(), context);
    }
}

#[test]
fn a_direct_queue_is_the_callers_alone() {
    // proves: mcq-5
    let t = managed(PollContext::Direct, 1024);
    let (count, cqe) = counting(&t.cq);
    nops(&t.qa, cqe.wr_id(), 100);
    until("all in the queue", || t.cq.cq().pending() == 100);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!(t.cq.process_direct(Some(0)).unwrap(), 0);
    assert_eq!(t.cq.process_direct(Some(30)).unwrap(), 30);
    assert_eq!(count.load(Ordering::SeqCst), 30);
    assert_eq!(t.cq.process_direct(None).unwrap(), 70);
    assert_eq!(count.load(Ordering::SeqCst), 100);
    let stats = t.cq.stats();
    assert_eq!((stats.armed, stats.requeued), (0, 0));
    // A closure that asks for more is inside already.
    let inner = Arc::new(AtomicU64::new(9));
    let cqe = t.cq.register({
        let inner = Arc::clone(&inner);
        move |cq, _| inner.store(cq.process_direct(None).unwrap() as u64, Ordering::SeqCst)
    });
    let cqe = cqe.unwrap();
    nops(&t.qa, cqe.wr_id(), 2);
    until("both", || {
        t.cq.process_direct(None).unwrap() == 0 && t.cq.stats().completions == 102
    });
    assert_eq!(inner.load(Ordering::SeqCst), 0);
    let other = t.a.ctx.create_managed_cq(1).build().unwrap();
    assert_eq!(other.process_direct(None).unwrap_err().errno(), 95);
}

#[test]
fn callbacks_come_in_the_order_of_the_queue() {
    // proves: mcq-7
    for context in WITH_THREADS {
        let t = managed(context, 1024);
        let order = Arc::new(Mutex::new(Vec::new()));
        let inside = Arc::new(AtomicBool::new(false));
        let cqes: Vec<WrCqe> = (0..400u64)
            .map(|number| {
                let (order, inside) = (Arc::clone(&order), Arc::clone(&inside));
                let done = move |_: &ManagedCq, _: &srdma_verbs::Completion| {
                    assert!(!inside.swap(true, Ordering::SeqCst), "one at a time");
                    order.lock().unwrap().push(number);
                    inside.store(false, Ordering::SeqCst);
                };
                t.cq.register(done).unwrap()
            })
            .collect();
        for cqe in &cqes {
            nops(&t.qa, cqe.wr_id(), 1);
        }
        until("all", || order.lock().unwrap().len() == cqes.len());
        assert!(order.lock().unwrap().iter().copied().eq(0..400));
        assert_eq!(t.cq.stats().panics, 0);
    }
}

/// Posts `total` NOPs over several queue pairs while the first callback waits; then lets go.
fn behind_a_door(context: PollContext, total: u64) -> (ManagedCq, u64) {
    let (a, b) = sides();
    let entries = u32::try_from(total).unwrap() + 1;
    let cq = a.ctx.create_managed_cq(entries).poll_context(context);
    let cq = cq.build().unwrap();
    let door = Arc::new(Door::default());
    let count = Arc::new(AtomicU64::new(0));
    let done = {
        let (door, count) = (Arc::clone(&door), Arc::clone(&count));
        move |_: &ManagedCq, _: &srdma_verbs::Completion| {
            door.pass();
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let cqe = cq.register(done).unwrap();
    let mut left = total;
    let mut pairs = Vec::new();
    while left > 0 {
        let some = left.min(4000);
        let qa = a.qp(QpType::Rc).send_cq(cq.cq()).max_send_wr(4000);
        let pair = connect(&qa, &b.qp(QpType::Rc));
        nops(&pair.0, cqe.wr_id(), some);
        pairs.push(pair);
        left -= some;
    }
    // What the waiting turn has polled is not in the queue any more.
    let batch = srdma_verbs::POLL_BATCH as u64;
    until("all but a batch in the queue", || {
        u64::from(cq.cq().pending()) + batch >= total
    });
    door.open();
    until("all of them", || count.load(Ordering::SeqCst) == total);
    until("the last turn", || cq.stats().completions == total);
    (cq, total)
}

#[test]
fn a_softirq_turn_has_a_small_budget() {
    // proves: mcq-4
    let (cq, total) = behind_a_door(PollContext::Softirq, 2000);
    let stats = cq.stats();
    assert_eq!(stats.largest_run, BUDGET_SOFTIRQ as u64);
    assert!(stats.requeued >= total / 256 - 1, "{stats:?}");
}

#[test]
fn a_workqueue_turn_has_a_large_one_and_is_followed_by_another() {
    // proves: mcq-6
    let (cq, _) = behind_a_door(PollContext::Workqueue, BUDGET_WORKQUEUE as u64 + 1000);
    let stats = cq.stats();
    assert_eq!(stats.largest_run, BUDGET_WORKQUEUE as u64);
    assert_eq!(stats.requeued, 1, "{stats:?}");
    let (cq, total) = behind_a_door(PollContext::Workqueue, 2000);
    let stats = cq.stats();
    assert_eq!(stats.requeued, 0, "{total} are no reason: {stats:?}");
}

#[test]
fn a_callback_may_post_and_destroy_its_queue_pair() {
    for context in WITH_THREADS {
        let t = managed(context, 1024);
        let qp = Arc::new(t.qa.clone());
        let (left, gone) = (
            Arc::new(AtomicU64::new(50)),
            Arc::new(AtomicBool::new(false)),
        );
        let me = Arc::new(OnceLock::new());
        let cqe = t.cq.register({
            let (qp, left, gone, me) = (qp, Arc::clone(&left), Arc::clone(&gone), Arc::clone(&me));
            move |_, _| {
                if left.fetch_sub(1, Ordering::SeqCst) > 1 {
                    nops(&qp, *me.get().unwrap(), 1);
                } else {
                    qp.destroy().unwrap();
                    gone.store(true, Ordering::SeqCst);
                }
            }
        });
        let cqe = cqe.unwrap();
        me.set(cqe.wr_id()).unwrap();
        nops(&t.qa, cqe.wr_id(), 1);
        until("the end", || gone.load(Ordering::SeqCst));
        assert_eq!(t.cq.stats().panics, 0, "{:?}", t.cq.take_panic());
        t.cq.destroy().unwrap();
        assert!(t.qa.post_send().ring().is_err());
    }
}

#[test]
fn a_panic_is_counted_and_the_next_is_called() {
    // proves: mcq-8
    for context in WITH_THREADS {
        let t = managed(context, 64);
        let bad =
            t.cq.register(|_, _| std::panic::resume_unwind(Box::new("on purpose")))
                .unwrap();
        let (count, good) = counting(&t.cq);
        for _ in 0..3 {
            nops(&t.qa, bad.wr_id(), 1);
            nops(&t.qa, good.wr_id(), 1);
        }
        until("the good ones", || count.load(Ordering::SeqCst) == 3);
        assert_eq!(t.cq.stats().panics, 3);
        let panic = t.cq.take_panic().unwrap();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
        assert!(t.cq.take_panic().is_none(), "the first is kept");
    }
}

#[test]
fn what_names_no_closure_is_counted() {
    // proves: mcq-3
    let t = managed(PollContext::Workqueue, 64);
    let (count, cqe) = counting(&t.cq);
    let stale = cqe.wr_id();
    drop(cqe);
    nops(&t.qa, stale, 2);
    nops(&t.qa, WrId(0), 1);
    until("all", || t.cq.stats().completions == 3);
    assert_eq!(t.cq.stats().unclaimed, 3);
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_missing_vector_is_refused() {
    // proves: mcq-1
    let (a, _) = sides();
    let vectors = a.ctx.query_device().comp_vectors;
    let make = |vector| a.ctx.create_managed_cq(8).comp_vector(vector).build();
    assert_eq!(make(vectors).unwrap_err().errno(), 22);
    let cq = make(vectors - 1).unwrap();
    assert_eq!((cq.comp_vector(), cq.stats().armed), (vectors - 1, 1));
    let processors = std::thread::available_parallelism().unwrap().get();
    let useful = usize::from(vectors).min(processors);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        let cq = a.ctx.create_managed_cq(8).build().unwrap();
        assert!(usize::from(cq.comp_vector()) < useful);
        seen.insert(cq.comp_vector());
    }
    assert_eq!(seen.len(), useful, "they take turns");
    assert_eq!(a.ctx.create_managed_cq(0).build().unwrap_err().errno(), 22);
}

#[test]
fn an_arm_that_reports_tells_what_gives_no_event() {
    // proves: mcq-2
    let (a, b) = sides();
    let channel = a.ctx.create_comp_channel().unwrap();
    let cq = a.ctx.create_cq(64).on_channel(&channel).build().unwrap();
    let (qa, _qb) = connect(&a.qp(QpType::Rc).send_cq(&cq), &b.qp(QpType::Rc));
    assert!(!cq.arm_reporting(false).unwrap());
    nops(&qa, WrId(1), 1);
    drop(channel.wait());
    assert!(cq.arm_reporting(false).unwrap(), "one is there");
    done(&cq);
    assert!(!cq.arm_reporting(false).unwrap());
    nops(&qa, WrId(2), 1);
    assert!(channel.wait_for(Duration::from_secs(60)).is_some());
    done(&cq);
}

#[test]
fn adaptive_moderation_follows_the_load() {
    let (a, b) = sides();
    let cq = a
        .ctx
        .create_managed_cq(1024)
        .poll_context(PollContext::Softirq);
    let cq = cq.adaptive(true).build().unwrap();
    let (qa, _qb) = connect(
        &a.qp(QpType::Rc).send_cq(cq.cq()).max_send_wr(512),
        &b.qp(QpType::Rc),
    );
    let (count, cqe) = counting(&cq);
    let mut posted = 0;
    // Bursts that grow, until a measurement finds them better than the one before.
    for burst in (1..=300).cycle().take(40_000) {
        if cq.stats().profiles > 0 {
            break;
        }
        nops(&qa, cqe.wr_id(), burst);
        posted += burst;
        until("the burst", || count.load(Ordering::SeqCst) == posted);
    }
    assert!(cq.stats().profiles > 0, "{:?}", cq.stats());
    // Whatever it is set to, nothing stays behind.
    nops(&qa, cqe.wr_id(), 1);
    until("the last", || count.load(Ordering::SeqCst) == posted + 1);
}
