//! `perf` as a user calls it: processes, conversations, the form of the result, sudden ends.
//!
//! Figures are not judged. That all bytes arrived is checked by the program itself, and it fails
//! if they did not.

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

use common::{Background, address, json_lines, run, srdma, wait_until};
use serde_json::Value;

/// Every row of the table: operation, mode, size, events.
fn expected() -> Vec<(String, String, u64, bool)> {
    let mut rows = Vec::new();
    let mut add = |op: &str, mode: &str, size, events| {
        rows.push((op.to_owned(), mode.to_owned(), size, events));
    };
    for events in [false, true] {
        for (op, size) in [("send", 64), ("write", 64), ("read", 64), ("atomic", 8)] {
            add(op, "lat", size, events);
        }
    }
    for size in [65_536, 1_048_576] {
        for op in ["send", "write", "read"] {
            add(op, "bw", size, false);
        }
    }
    for (op, size) in [("send", 64), ("write", 64), ("read", 64), ("atomic", 8)] {
        add(op, "rate", size, false);
    }
    rows
}

fn check_row(row: &Value) {
    assert_eq!(row["qps"], 1, "{row}");
    let figures = match row["mode"].as_str().unwrap() {
        "lat" => {
            let [p50, p99, p999] = ["p50", "p99", "p999"].map(|p| row["rtt_ns"][p].as_u64());
            assert!(p50 > Some(0) && p50 <= p99 && p99 <= p999, "{row}");
            assert!(row["limit"]["rtt_ns"]["p50"].as_u64() > Some(0), "{row}");
            &["rtt_ns", "limit", "ratio"][..]
        }
        "bw" => {
            assert!(row["limit"]["bytes_per_sec"].as_f64() > Some(0.0), "{row}");
            &["bytes_per_sec", "msgs_per_sec", "limit", "ratio"]
        }
        _ => {
            assert!(row["limit"]["msgs_per_sec"].as_f64() > Some(0.0), "{row}");
            &["bytes_per_sec", "msgs_per_sec", "limit", "ratio"]
        }
    };
    assert!(row["ratio"].as_f64() > Some(0.0), "{row}");
    let mut expected = vec!["op", "mode", "size", "qps", "mtu", "events"];
    expected.extend(figures);
    let mut names: Vec<_> = row
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        // A busy machine may lose packets; then their number is there as well.
        .filter(|name| *name != "dropped")
        .collect();
    expected.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn only_what_sleeps_is_measured_in_every_dialect() {
    for dialect in ["e810", "mlx5", "hns"] {
        let (local, remote) = (address(), address());
        let mut args = vec!["perf", "--events", "--json", "--duration", "0.01"];
        args.extend(["--dialect", dialect, "--local", &local, "--remote", &remote]);
        let rows = json_lines(&srdma(&args));
        let ops: Vec<_> = rows.iter().map(|row| row["op"].as_str().unwrap()).collect();
        assert_eq!(ops, ["send", "write", "read", "atomic"], "{dialect}");
        assert!(rows.iter().all(|row| row["events"] == true));
    }
}

#[test]
fn the_table_has_every_row() {
    let plain: &[&str] = &[];
    let meagre = [
        "--no-gso",
        "--no-gro",
        "--rcvbuf-cap",
        "212992",
        "--mtu",
        "1024",
    ];
    for extra in [plain, &meagre] {
        let (local, remote) = (address(), address());
        let mut args = vec!["perf", "--json", "--duration", "0.01"];
        args.extend(["--local", &local, "--remote", &remote]);
        args.extend(extra);
        let rows = json_lines(&srdma(&args));
        let of = |row: &Value| {
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            let events = row["events"].as_bool().unwrap();
            (
                text("op"),
                text("mode"),
                row["size"].as_u64().unwrap(),
                events,
            )
        };
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected());
        for row in &rows {
            check_row(row);
            assert_eq!(row["mtu"], if extra.is_empty() { 4096 } else { 1024 });
        }
    }
}

#[test]
fn people_get_a_table() {
    let over_sockets = table(&[]);
    assert!(!over_sockets.contains("memory"), "{over_sockets}");
    let over_the_bridge = table(&["--bridge"]);
    let heading = "through memory that they share";
    assert!(over_the_bridge.contains(heading), "{over_the_bridge}");
}

fn table(options: &[&str]) -> String {
    let (local, remote) = (address(), address());
    let args = [
        "perf",
        "--duration",
        "0.005",
        "--local",
        &local,
        "--remote",
        &remote,
    ];
    let text = srdma(&[&args, options].concat());
    for word in [
        "SEND",
        "WRITE",
        "READ",
        "CAS",
        "FETCH-ADD",
        "1 MiB",
        "events",
        "ratio",
    ] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    text
}

#[test]
fn a_server_serves_clients_one_after_the_other() {
    let (local, remote) = (address(), address());
    let server = Background::server(&remote, &[]);
    let host = server.host.clone();
    let cases: &[&[&str]] = &[
        &[
            "--op", "write", "--mode", "bw", "--size", "100000", "--qps", "3", "--depth", "5",
        ],
        &[
            "--op", "send", "--mode", "rate", "--size", "1", "--qps", "4", "--events",
        ],
        &[
            "--op", "read", "--mode", "bw", "--size", "4096", "--mtu", "256", "--depth", "1",
        ],
        &["--op", "atomic", "--mode", "lat", "--events"],
        &["--op", "write", "--mode", "bw", "--both", "--qps", "2"],
        &[
            "--op", "send", "--mode", "rate", "--batch", "1", "--depth", "64",
        ],
        &["--op", "atomic", "--qps", "2"],
        &["--op", "send", "--mode", "lat", "--size", "20000"],
        &["--op", "write", "--mode", "lat", "--size", "8", "--events"],
    ];
    for case in cases {
        let mut args = vec!["perf", "client", &host, "--address", &local, "--json"];
        args.extend(["--duration", "0.02"]);
        args.extend(*case);
        let rows = json_lines(&srdma(&args));
        assert_eq!(rows.len(), 1, "{case:?}");
        assert!(rows[0].get("limit").is_none(), "the server may be far away");
    }
}

#[test]
fn events_work_in_every_dialect_and_between_two() {
    for (there, here) in [
        ("mlx5", "mlx5"),
        ("hns", "hns"),
        ("e810", "mlx5"),
        ("hns", "e810"),
    ] {
        let (local, remote) = (address(), address());
        let server = Background::server(&remote, &["--dialect", there]);
        for case in [
            ["--op", "send", "--mode", "lat"],
            ["--op", "write", "--mode", "lat"],
            ["--op", "send", "--mode", "rate"],
        ] {
            let mut args = vec!["perf", "client", &server.host, "--address", &local];
            args.extend(["--json", "--duration", "0.02", "--events", "--size", "8"]);
            args.extend(["--dialect", here]);
            args.extend(case);
            let rows = json_lines(&srdma(&args));
            assert_eq!(rows.len(), 1, "{there} {here} {case:?}");
            assert_eq!(rows[0]["events"], true);
        }
    }
    let wrong = run(&["perf", "client", "127.0.0.1", "--dialect", "mlx4"]);
    assert!(!wrong.status.success());
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains("e810, mlx5 or hns"), "{text}");
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_starts() {
    let wrong: &[(&[&str], &str)] = &[
        (&["--op", "atomic", "--mode", "bw"], "eight bytes"),
        (&["--op", "send", "--mode", "lat", "--qps", "2"], "one QP"),
        (&["--op", "send", "--size", "0"], "size"),
        (&["--op", "send", "--mtu", "1500"], "mtu"),
        (&["--op", "read", "--both"], "directions"),
    ];
    for (options, word) in wrong {
        let mut args = vec!["perf", "client", "127.0.0.1"];
        args.extend(*options);
        let output = run(&args);
        assert!(!output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(word), "{options:?}: {text}");
    }
}

#[test]
fn without_a_server_the_error_says_what_to_start() {
    let output = run(&["perf", "client", &format!("{}:1", address())]);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("srdma-cli perf server"), "{text}");
}

#[test]
fn a_killed_server_ends_the_client_with_an_error() {
    let (local, remote) = (address(), address());
    let mut server = Background::server(&remote, &["--once"]);
    let args = ["perf", "client", &server.host, "--address", &local];
    let options = ["--op", "write", "--mode", "bw", "--duration", "600"];
    let mut client = Background::start(&[&args[..], &options].concat());
    // It is measuring when it has a device: its two sockets, and three more threads.
    wait_until("the client measures", || client.threads() >= 3);
    server.kill();
    let (status, errors) = client.end();
    assert!(!status.success());
    let known = errors.contains("peer is gone") || errors.contains("retries exhausted");
    assert!(known, "{errors}");
}

#[test]
fn children_end_with_their_parent() {
    let (local, remote) = (address(), address());
    let args = [
        "perf",
        "--duration",
        "600",
        "--local",
        &local,
        "--remote",
        &remote,
    ];
    let mut parent = Background::start(&args);
    wait_until("there is a server process", || {
        !parent.children().is_empty()
    });
    let children = parent.children();
    parent.kill();
    for child in children {
        wait_until("the child is gone", || !common::is_running(child));
    }
}

#[test]
fn bad_networks_are_survived() {
    let (local, remote) = (address(), address());
    let server = Background::server(&remote, &[]);
    for op in ["send", "write", "read"] {
        let mut args = vec![
            "perf",
            "client",
            &server.host,
            "--address",
            &local,
            "--json",
        ];
        args.extend([
            "--op",
            op,
            "--mode",
            "bw",
            "--size",
            "65536",
            "--duration",
            "0.1",
        ]);
        args.extend(["--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.01"]);
        args.extend(["--corrupt", "0.01", "--seed", "7"]);
        assert_eq!(json_lines(&srdma(&args)).len(), 1, "{op}");
    }
}
