//! A hundred connected queue pairs that have nothing to do use no CPU.
//!
//! Measured in a child process, where no other test runs.

use crate::common::*;
use crate::peer;
use srdma_verbs::{Qp, QpType, WrId};
use std::process::Command;
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
    // The threads may spin a little before they sleep.
    std::thread::sleep(Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    let used = ticks() - before;
    assert!(used <= 1, "{used} clock ticks in two idle seconds");
}
