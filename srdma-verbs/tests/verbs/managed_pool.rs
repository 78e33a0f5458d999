//! The pool of completion queues: vectors, room, growth, exhaustion, thousands of queues.

use crate::common::*;
use srdma_verbs::{CqPool, MAX_CQE, MIN_POOL_CQE, PollContext, PooledCq, QpType, WrId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CTX: PollContext = PollContext::Workqueue;

fn useful(side: &Side) -> u32 {
    let processors = std::thread::available_parallelism().unwrap().get();
    let vectors = usize::from(side.ctx.query_device().comp_vectors);
    u32::try_from(vectors.min(processors)).unwrap()
}

fn get(pool: &CqPool, entries: u32, hint: u32) -> PooledCq {
    pool.get(entries, Some(hint), CTX).unwrap()
}

#[test]
fn the_hint_picks_the_vector() {
    // proves: mcq-15
    let side = Side::new(config());
    let (pool, vectors) = (side.ctx.cq_pool(), useful(&side));
    for hint in [0, 1, 2, 3, 7, vectors, u32::MAX] {
        let cq = get(&pool, 10, hint);
        assert_eq!(u32::from(cq.comp_vector()), hint % vectors, "{hint}");
        assert_eq!((cq.entries(), cq.poll_context()), (10, CTX));
    }
    // Without one they take turns, beginning after the first.
    let mut last = 0;
    for _ in 0..8 {
        let cq = pool.get(1, None, CTX).unwrap();
        last = (last + 1) % vectors;
        assert_eq!(u32::from(cq.comp_vector()), last);
    }
    let direct = pool.get(1, None, PollContext::Direct).unwrap_err();
    assert_eq!(direct.errno(), 22);
    for entries in [0, MAX_CQE + 1] {
        assert_eq!(pool.get(entries, None, CTX).unwrap_err().errno(), 22);
    }
}

#[test]
fn queues_are_shared_while_there_is_room() {
    // proves: mcq-16
    let side = Side::new(config());
    let (pool, vectors) = (side.ctx.cq_pool(), useful(&side) as usize);
    assert_eq!(pool.queues(), 0);
    let first = get(&pool, 1000, 0);
    assert_eq!(pool.queues(), vectors, "one for each vector");
    assert_eq!(first.cq().entries(), MIN_POOL_CQE);
    let more: Vec<PooledCq> = (0..3).map(|_| get(&pool, 1000, 0)).collect();
    assert!(more.iter().all(|cq| **cq == *first));
    // 96 are left.
    let full = get(&pool, 97, 0);
    assert!(*full != *first);
    assert_eq!(pool.queues(), 2 * vectors);
    // The list begins with what came last, which has room for this as well.
    assert!(*get(&pool, 96, 0) == *full);
    let rest = get(&pool, MIN_POOL_CQE - 97, 0);
    assert!(*rest == *full);
    let fits = get(&pool, 96, 0);
    assert!(*fits == *first, "that one is full, this is not");
    assert_eq!(pool.queues(), 2 * vectors);
    // A larger wish makes larger queues.
    let large = get(&pool, MIN_POOL_CQE + 1, 0);
    assert_eq!(large.cq().entries(), MIN_POOL_CQE + 1);
    assert_eq!(pool.queues(), 3 * vectors);
    // Room comes back, queues stay.
    drop((more, full, rest, fits, large));
    assert_eq!(pool.queues(), 3 * vectors);
    let again: Vec<PooledCq> = (0..3).map(|_| get(&pool, 1000, 0)).collect();
    assert_eq!(pool.queues(), 3 * vectors);
    drop((first, again));
    // Each context has queues of its own.
    drop(pool.get(1, None, PollContext::Softirq).unwrap());
    assert_eq!(pool.queues(), 4 * vectors);
    // The pool is everybody's while somebody has it.
    assert_eq!(side.ctx.cq_pool().queues(), 4 * vectors);
    drop(pool);
    assert_eq!(side.ctx.cq_pool().queues(), 0);
}

#[test]
fn nobody_changes_a_shared_queue() {
    // proves: mcq-17
    let side = Side::new(config());
    let cq = get(&side.ctx.cq_pool(), 10, 0);
    let second = core::time::Duration::from_secs(1);
    let refused = [
        cq.destroy(),
        cq.moderate_events(1, second),
        cq.cq().destroy(),
        cq.cq().resize(100),
        cq.cq().moderate_events(1, second),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().errno(), 95);
    }
}

#[test]
fn a_device_without_queues_left_refuses_and_keeps_none() {
    let side = Side::new(config());
    let pool = side.ctx.cq_pool();
    let mut held = Vec::new();
    let most = side.ctx.query_device().max_cq;
    // All but one: less than the pool makes at once where there are several vectors.
    while let Ok(cq) = side.ctx.create_cq(1).build() {
        held.push(cq);
        assert!(held.len() <= most as usize);
    }
    assert_eq!(held.len() + 1, most as usize, "the fixture has one");
    held.pop();
    let got = pool.get(1, Some(0), CTX);
    if useful(&side) > 1 {
        assert_eq!(got.unwrap_err().errno(), 12);
        assert_eq!(pool.queues(), 0);
        // What was made of the batch is gone: there is room for as many as before.
        held.push(side.ctx.create_cq(1).build().unwrap());
        assert!(side.ctx.create_cq(1).build().is_err());
    }
    drop(held);
    drop(pool.get(1, Some(0), CTX).unwrap());
}

#[test]
fn users_of_one_queue_do_not_disturb_each_other() {
    let (a, b) = sides();
    let pool = a.ctx.cq_pool();
    pool.set_adaptive(true);
    let users: Vec<_> = (0..24)
        .map(|number| {
            let cq = get(&pool, 64, number);
            let qa = a.qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq());
            let (qa, qb) = connect(&qa, &b.qp(QpType::Rc));
            let count = Arc::new(AtomicU64::new(0));
            let cqe = cq.register({
                let count = Arc::clone(&count);
                move |_, wc| {
                    assert!(wc.is_ok());
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            (cq, qa, qb, count, cqe.unwrap())
        })
        .collect();
    for _ in 0..20 {
        for (_, qa, _, _, cqe) in &users {
            let mut batch = qa.post_send();
            batch.nop(cqe.wr_id()).signaled();
            batch.ring().unwrap();
        }
    }
    for (cq, qa, _, count, _) in &users {
        until("all of a user", || count.load(Ordering::SeqCst) == 20);
        assert_eq!(cq.stats().panics, 0);
        qa.drain().unwrap();
        qa.destroy().unwrap();
    }
}

/// Each has its own closures and events, and they share a few threads.
#[test]
fn thousands_of_queues_are_served() {
    const QUEUES: usize = 3000;
    let (a, b) = sides();
    let contexts = [
        PollContext::Softirq,
        PollContext::Workqueue,
        PollContext::UnboundWorkqueue,
    ];
    let count = Arc::new(AtomicU64::new(0));
    let queues: Vec<_> = (0..QUEUES)
        .map(|number| {
            let cq = a
                .ctx
                .create_managed_cq(4)
                .poll_context(contexts[number % 3]);
            let cq = cq.build().unwrap();
            let cqe = cq.register({
                let count = Arc::clone(&count);
                move |_, wc| {
                    assert!(wc.is_ok());
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
            (cq, cqe.unwrap())
        })
        .collect();
    // Enough queue pairs to reach some of them at the same time.
    let pairs: Vec<_> = queues
        .iter()
        .step_by(10)
        .map(|(cq, cqe)| {
            let qa = a
                .qp(QpType::Rc)
                .send_cq(cq.cq())
                .max_send_wr(4)
                .max_recv_wr(1);
            (
                connect(&qa, &b.qp(QpType::Rc).max_send_wr(1)).0,
                cqe.wr_id(),
            )
        })
        .collect();
    for round in 1..=3 {
        for (qp, id) in &pairs {
            let mut batch = qp.post_send();
            batch.nop(WrId(id.0)).signaled();
            batch.ring().unwrap();
        }
        let expected = round * pairs.len() as u64;
        until("one of each", || count.load(Ordering::SeqCst) == expected);
    }
    drop(pairs);
    for (cq, _) in &queues {
        cq.destroy().unwrap();
    }
}
