//! `perf suite` as a user calls it: small runs of it, the form of the result, and the page.
//!
//! Figures are not judged, nor whether goals hold: that every row has what it takes is.

#![allow(
    clippy::tests_outside_test_module,
    reason = "all of this file is a test"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod common;

use common::{Folder, address, json_lines, run, srdma};
use serde_json::Value;

/// Rows of the groups with these titles.
fn suite(options: &[&str]) -> Vec<Value> {
    let (local, remote) = (address(), address());
    let mut args = vec!["perf", "suite", "--json", "--quick", "--duration", "0.01"];
    args.extend(["--local", &local, "--remote", &remote]);
    args.extend(options);
    json_lines(&srdma(&args))
}

/// A row that was measured has a figure, and a ratio that belongs to it.
fn check_row(row: &Value) {
    let figure = row["figure"].as_f64().unwrap();
    assert!(
        figure >= 0.0 && !row["unit"].as_str().unwrap().is_empty(),
        "{row}"
    );
    assert!(
        row.get("skipped").is_none() && row.get("failed").is_none(),
        "{row}"
    );
    if let Some(limit) = row.get("limit") {
        let ratio = figure / limit.as_f64().unwrap();
        assert!(
            (row["ratio"].as_f64().unwrap() - ratio).abs() < 1e-6,
            "{row}"
        );
        assert!(!row["against"].as_str().unwrap().is_empty(), "{row}");
    }
    assert_eq!(
        row.get("goal").is_some(),
        row.get("holds").is_some(),
        "{row}"
    );
}

#[test]
fn rows_have_figures_limits_and_verdicts_and_the_page_shows_them() {
    let folder = Folder::new();
    let page = folder.join("report.html");
    let rows = suite(&[
        "--only",
        "bandwidth, 4 KiB",
        "--only",
        "round trip, 64 B",
        "--only",
        "rate, 64 B, one",
        "--only",
        "both directions",
        "--only",
        "lost both ways",
        "--html",
        page.to_str().unwrap(),
    ]);
    rows.iter().for_each(check_row);
    let of = |group: &str| rows.iter().filter(|row| row["group"] == group).count();
    assert_eq!(of("bandwidth, 4 KiB"), 6);
    assert_eq!(of("bandwidth, 1 MiB, both directions"), 1);
    assert_eq!(of("round trip, 64 B, polling"), 7);
    assert_eq!(of("round trip, 64 B, events"), 4);
    assert_eq!(of("WRITE, 1 MiB, packets lost both ways"), 4);
    let capped = rows.iter().filter(|row| row.get("dropped").is_some());
    assert_eq!(capped.count(), 5);
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(
        page.matches("<svg").count(),
        3,
        "throughput, latency, goodput"
    );
    assert!(page.ends_with("</html>\n") && page.contains("≥ 0.75"));
}

#[test]
fn what_one_process_does_alone_is_measured() {
    let rows = suite(&["--only", "start-up", "--only", "idle", "--only", "regions"]);
    let skipped = |row: &&Value| row.get("skipped").is_none();
    rows.iter().filter(skipped).for_each(check_row);
    assert_eq!(rows.len(), 5);
    let library = &rows[4];
    assert_eq!(library["row"], "libsrdma.so, as loaded");
    assert!(library["figure"].as_f64() > Some(0.0) || library.get("skipped").is_some());
}

#[test]
fn queue_pairs_by_the_thousand_connect_and_work() {
    let rows = suite(&["--only", "made and connected"]);
    rows.iter().for_each(check_row);
    assert_eq!(rows[1]["figure"], rows[1]["limit"], "all of them work");
}

#[test]
fn what_a_machine_does_not_offer_is_skipped_with_a_reason() {
    let rows = suite(&["--only", "veth", "--only", "perftest"]);
    assert_eq!(rows.len(), 9);
    for row in &rows {
        match row.get("skipped") {
            Some(why) => {
                println!("skip: {}: {why}", row["row"]);
                assert!(!why.as_str().unwrap().is_empty());
            }
            None => check_row(row),
        }
    }
}

#[test]
fn people_get_a_table_with_a_verdict() {
    let (local, remote) = (address(), address());
    let mut args = vec!["perf", "suite", "--quick", "--duration", "0.01"];
    args.extend([
        "--local",
        &local,
        "--remote",
        &remote,
        "--only",
        "both directions",
    ]);
    let text = srdma(&args);
    for words in ["WRITE", "≥ 0.90", "goals hold", "are missed", "figure"] {
        assert!(text.contains(words), "{words} is missing in\n{text}");
    }
}

#[test]
fn wrong_options_are_refused() {
    for (options, word) in [
        (&["--only", "no such group"][..], "there are:"),
        (&["--local", "127.0.0.2"], "two addresses"),
        (&["--remote", "::1"], "one family"),
    ] {
        let output = run(&[&["perf", "suite"][..], options].concat());
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(word), "{options:?}: {text}");
    }
}
