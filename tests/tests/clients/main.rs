//! Programs of Debian packages, unmodified, as clients of `libsrdma.so`.
//!
//! ```text
//! place        server                    client
//! one address  127.x.y.2                 the same device
//! two          127.x.y.3                 127.x.y.4
//! two hosts    namespace b ── veth ──── namespace a
//! ```
//!
//! `table.rs` says which programs with which options. Each line runs once, in a place in turn, and
//! in all places where it is the first of its kind; with `SRDMA_CLIENTS=long` each runs in all
//! places, with 10,000 messages. `robust.rs` kills, crowds and constrains the same programs.
//!
//! gate: clients

#![cfg(test)]

mod links;
mod paper;
mod place;
mod qperf;
mod robust;
mod run;
mod table;

use place::{HOSTS, Place, places};
use run::pair;
use std::time::Instant;
use table::{Row, TABLE};

/// Runs every line of the rows that `choose` takes; fails with all that failed.
fn run_rows(choose: impl Fn(&Row) -> bool) {
    let long = std::env::var("SRDMA_CLIENTS").is_ok_and(|form| form == "long");
    let places = places();
    let (mut ran, mut failed) = (0, Vec::new());
    for row in TABLE.iter().filter(|row| choose(row)) {
        if !run::is_installed(row.program) {
            println!("skip: {} is not installed", row.program);
            continue;
        }
        for line in row.lines(long) {
            let fits = |place: &&Place| !(line.one_machine && place.name == HOSTS);
            let chosen = if line.everywhere { places.len() } else { 1 };
            let turn = places.iter().filter(fits).cycle().skip(ran);
            let many = places.iter().filter(fits).count().min(chosen);
            for place in turn.take(many) {
                let start = Instant::now();
                let result = pair(place, &line.words);
                let took = start.elapsed().as_secs_f32();
                println!("{took:6.2} s  {:11} {}", place.name, line.words.join(" "));
                ran += 1;
                failed.extend(result.err());
            }
        }
    }
    println!("{ran} runs");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn pingpongs() {
    run_rows(|row| row.program.starts_with("ibv_"));
}

#[test]
fn perftest_send() {
    run_rows(|row| row.program.starts_with("ib_send"));
}

#[test]
fn perftest_write() {
    run_rows(|row| row.program.starts_with("ib_write"));
}

#[test]
fn perftest_read_and_atomic() {
    run_rows(|row| row.program.starts_with("ib_read") || row.program.starts_with("ib_atomic"));
}
