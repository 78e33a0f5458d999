//! Our rings against Intel's own driver code.                          [E810 10]
//!
//! | module | what it shows |
//! |---|---|
//! | `producer` | the device reads every WQE as the oracle meant it, lap after lap |
//! | `consumer` | the oracle reads every completion as the device meant it |
//! | `words` | our driver half writes the oracle's words, bit for bit, and rings of its sizes |
//! | `arm` | arm words, and one event for each |
//! | `corrupt` | a wrong valid bit stops both sides |
//! | `end_to_end` | two devices whose programs are the oracle alone |
//!
//! Every test prints its seed; `SRDMA_SEED=n` sets another. Without the oracle nothing is shown,
//! and the one test that is left says so.

#![cfg(test)]

#[cfg(oracle)]
mod arm;
#[cfg(oracle)]
mod consumer;
#[cfg(oracle)]
mod corrupt;
#[cfg(oracle)]
mod end_to_end;
#[cfg(oracle)]
mod node;
#[cfg(oracle)]
mod producer;
#[cfg(oracle)]
mod rig;
#[cfg(oracle)]
mod words;

/// The line that the gate looks for: past the capture of the test harness.
#[test]
fn oracle_is_there_or_says_why() {
    use std::io::Write;
    let line = match srdma_oracle::STATUS {
        "linked" => "the Intel oracle is linked".to_owned(),
        why => format!("skip: no Intel oracle: {why}"),
    };
    writeln!(std::io::stderr(), "{line}").expect("a line on stderr");
}
