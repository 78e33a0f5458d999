//! The gate by itself, and against closing threads.

use super::*;
use std::sync::Arc;

#[test]
fn one_run_at_a_time_and_none_twice() {
    // proves: mcq-9
    let gate = Gate::new();
    assert!(!gate.start(), "nothing was scheduled");
    assert!(gate.schedule());
    assert!(!gate.schedule(), "it is listed already");
    assert!(gate.start());
    assert!(gate.is_mine());
    assert!(!gate.schedule() && !gate.start(), "it runs");
    assert!(gate.list_again());
    assert!(!gate.is_mine());
    assert!(gate.start());
    gate.complete();
    assert!(gate.enter());
    assert!(!gate.enter());
    gate.complete();
    assert!(gate.schedule());
}

#[test]
fn a_closed_gate_stays_closed_until_opened() {
    let gate = Gate::new();
    assert!(gate.schedule());
    assert!(gate.close());
    assert!(!gate.start(), "what was listed is void");
    assert!(!gate.schedule() && !gate.enter());
    gate.open();
    assert!(gate.enter());
    assert!(!gate.close(), "the runner would wait for itself");
    assert!(gate.list_again(), "and nothing has changed");
}

#[test]
fn closing_waits_for_the_run() {
    // proves: mcq-7
    let gate = Arc::new(Gate::new());
    assert!(gate.enter());
    let closer = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.close()
    });
    while !lock(&gate.state).closed {
        std::thread::yield_now();
    }
    assert!(!closer.is_finished());
    assert!(!gate.list_again(), "closed meanwhile: it is not listed");
    assert!(closer.join().unwrap());
}
