//! gate: heavy
//!
//! One million mixed operations with 5 % loss, 2 % duplication, 2 % reordering and 1 % corruption
//! complete with every byte checked, for each of 20 seeds, in every mix of what two devices do with
//! packets out of order and in every pair of dialects. `SRDMA_STORM_SEEDS` and `SRDMA_STORM_OPS`
//! make it longer or shorter.

#![cfg(test)]

use srdma_tests::fabric::FabricConfig;
use srdma_tests::storm::{StormConfig, run};
use srdma_verbs::{Dialect, IeqMode};
use std::sync::atomic::{AtomicU64, Ordering};

/// Who keeps packets out of order: both, nobody, one of them.
const MODES: [[IeqMode; 2]; 5] = [
    [IeqMode::Reorder; 2],
    [IeqMode::Off; 2],
    [IeqMode::Reorder, IeqMode::Off],
    [IeqMode::Capture, IeqMode::Reorder],
    [IeqMode::Capture; 2],
];

/// Both of one, and then of two that differ, so that the first three seeds see each.
fn dialects(seed: u64) -> [Dialect; 2] {
    let seed = usize::try_from(seed).expect("small");
    let of = |at: usize| Dialect::ALL[at % Dialect::ALL.len()];
    [of(seed), of(seed + seed / 3)]
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

fn storm(seed: u64, operations: u64) {
    let network = FabricConfig {
        loss: 0.05,
        duplicate: 0.02,
        reorder: 0.02,
        corrupt: 0.01,
        seed,
        ..FabricConfig::default()
    };
    let config = StormConfig {
        operations,
        qps: 4,
        network,
        v6: seed % 4 == 3,
        dialects: dialects(seed),
        ieq: MODES[usize::try_from(seed).expect("small") % MODES.len()],
    };
    println!("seed {seed}: {config:?}");
    let report = run(&config).expect("verbs calls succeed");
    println!("seed {seed}: {report:?}");
    assert!(report.operations >= operations / 4 * 4);
    assert!(report.retries > 0, "the network was not bad at all");
}

#[test]
// proves: roce-144 (at five times the loss)
// proves: roce-148
// proves: roce-149
// proves: ieq-12
fn a_million_operations_over_a_bad_network_for_twenty_seeds() {
    let seeds = setting("SRDMA_STORM_SEEDS", 20);
    let operations = setting("SRDMA_STORM_OPS", 1_000_000);
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        break;
                    }
                    storm(seed, operations);
                }
            });
        }
    });
}
