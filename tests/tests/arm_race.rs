//! gate: heavy
//!
//! Ten million times a program arms a completion queue while another thread completes into it, in
//! each model of what arming does: nobody sleeps over an event. `SRDMA_RACE_ROUNDS` and
//! `SRDMA_RACE_SEED` make it longer, shorter, or the same again.

#![cfg(test)]

use srdma_core::obj::arm::ArmModel;
use srdma_tests::race::run;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many rounds each model gets: most of them the one that devices have if nothing is said.
const ROUNDS: [(ArmModel, u64); 3] = [
    (ArmModel::Strict, 8_000_000),
    (ArmModel::Compare, 1_000_000),
    (ArmModel::Report, 1_000_000),
];

#[test]
fn nobody_sleeps_over_an_event() {
    // proves: event-19, e810-26
    let seed = setting("SRDMA_RACE_SEED").unwrap_or_else(|| fastrand::u64(..));
    for (model, usual) in ROUNDS {
        let rounds = setting("SRDMA_RACE_ROUNDS").unwrap_or(usual);
        println!("{model:?}, {rounds} rounds, seed {seed}");
        let outcome = run(model, rounds, seed);
        println!("{outcome:?}");
        assert!(outcome.arms >= rounds);
        assert!(
            outcome.events <= outcome.arms,
            "an arm gives one event at most"
        );
    }
}
