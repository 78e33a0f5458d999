//! A hundred connected queue pairs, and threads that wait to call back, use no CPU without work.
//!
//! Measured in a child process, where no other test runs.

use crate::common::*;
use crate::peer;
use srdma_verbs::{ManagedCq, PollContext, Qp, QpType, WrId};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// CPU time of all threads of this process, in clock ticks.
fn ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            let stat = stat.unwrap();
            // The name may hold blanks; the fields behind it do not.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
            fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap()
        })
        .sum()
}

/// A queue whose threads have called back once.
fn call_back(a: &Side, b: &Side, context: PollContext) -> (ManagedCq, Qp) {
    let cq = a.ctx.create_managed_cq(8).poll_context(context);
    let cq = cq.build().unwrap();
    let (qp, _) = connect(&a.qp(QpType::Rc).send_cq(cq.cq()), &b.qp(QpType::Rc));
    let calls = Arc::new(AtomicU32::new(0));
    let cqe = cq.register({
        let calls = Arc::clone(&calls);
        move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
        }
    });
    let cqe = cqe.unwrap();
    let mut batch = qp.post_send();
    batch.nop(cqe.wr_id()).signaled();
    batch.ring().unwrap();
    while calls.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    (cq, qp)
}

#[test]
fn idle_connections_cost_nothing() {
    if peer::role() != Some("idle") {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "idle::idle_connections_cost_nothing",
                "--nocapture",
            ])
            .env(peer::ROLE, "idle")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let (a, b) = (
        Side::new(Sockets::DEFAULT.on(address())),
        Side::new(Sockets::DEFAULT.on(address())),
    );
    let pairs: Vec<(Qp, Qp)> = (0..100)
        .map(|_| connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc)))
        .collect();
    let (source, target) = (a.pattern(10_000, 1), b.mr(10_000));
    for (qp, _) in &pairs {
        let mut batch = qp.post_send();
        batch
            .write(WrId(1))
            .local(source.sge(..))
            .remote(target.addr(), target.rkey())
            .signaled();
        batch.ring().unwrap();
        done(&a.cq);
    }
    let called: Vec<(ManagedCq, Qp)> = [
        PollContext::Softirq,
        PollContext::Workqueue,
        PollContext::UnboundWorkqueue,
    ]
    .map(|context| call_back(&a, &b, context))
    .into();
    // The threads may spin a little before they sleep.
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    let used = ticks() - before;
    assert!(used <= 1, "{used} clock ticks in two idle seconds");
    drop(called);
}
