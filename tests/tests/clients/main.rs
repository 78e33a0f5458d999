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

use place::{Place, places, places_of_other_dialects};
use run::pair;
use std::time::Instant;
use table::{Row, TABLE};

/// Runs a line in a place, and shows how long it took.
fn run_line(place: &Place, words: &[String]) -> Option<String> {
    let start = Instant::now();
    let result = pair(place, words);
    let took = start.elapsed().as_secs_f32();
    println!("{took:6.2} s  {:11} {}", place.name, words.join(" "));
    result.err()
}

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
            let chosen = if line.everywhere { places.len() } else { 1 };
            let turn = places.iter().cycle().skip(ran);
            let many = places.len().min(chosen);
            for place in turn.take(many) {
                failed.extend(run_line(place, &line.words));
                ran += 1;
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

/// What sleeps on a channel does so in every dialect: of each row the first line with events.
#[test]
fn programs_run_in_other_dialects() {
    // proves: dialect-3
    let places = places_of_other_dialects();
    let mut failed = Vec::new();
    for row in TABLE.iter().filter(|row| run::is_installed(row.program)) {
        let lines = row.lines(false);
        let sleeps = |line: &&table::Line| line.words.iter().any(|word| word == "-e");
        if let Some(line) = lines.iter().find(sleeps) {
            let runs = places.iter().map(|place| run_line(place, &line.words));
            failed.extend(runs.flatten());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
