//! `perf limit` as a user calls it: both processes, every pump, the shape of its JSON.
//!
//! Figures are not judged; that something arrived, undamaged, is.

#![allow(
    clippy::tests_outside_test_module,
    reason = "all of this file is a test"
)]

mod common;

use common::{json_lines, srdma};

#[test]
fn every_limit_is_measured() {
    for extra in [&[][..], &["--no-gso"], &["--no-gro", "--mtu", "1024"]] {
        let mut args = vec!["perf", "limit", "--json", "--duration", "0.02"];
        args.extend(extra);
        args.extend(["--rcvbuf-cap", "212992"]);
        let lines = json_lines(&srdma(&args));
        let names: Vec<_> = lines
            .iter()
            .map(|line| line["limit"].as_str().unwrap())
            .collect();
        let expected = [
            "gso_gro_pump",
            "opposed_pumps",
            "one_packet_pump",
            "segment_pump",
            "spinning_ping_pong",
            "blocking_ping_pong",
        ];
        assert_eq!(names, expected, "{extra:?}");
        for line in &lines {
            if let Some(rtt) = line.get("rtt_ns") {
                let [p50, p999] = ["p50", "p999"].map(|name| rtt[name].as_u64().unwrap());
                assert!(p50 > 0 && p50 <= p999, "{line}");
            } else {
                assert!(line["msgs_per_sec"].as_f64().unwrap() > 0.0, "{line}");
            }
        }
        assert!(lines[0]["bytes_per_sec"].as_f64().unwrap() > 0.0);
        assert!(lines[1]["bytes_per_sec"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_pump_is_measured_by_size() {
    let args = ["perf", "limit", "--json", "--duration", "0.02", "--by-size"];
    let lines = json_lines(&srdma(&[&args[..], &["--mtu", "2048"]].concat()));
    let payloads = lines.iter().map(|line| line["payload"].as_u64().unwrap());
    assert_eq!(payloads.collect::<Vec<_>>(), [64, 256, 1024, 2048]);
    for line in &lines {
        assert_eq!(line["limit"], "gso_gro_pump");
        assert!(line["bytes_per_sec"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn families_do_not_mix() {
    let output = common::run(&["perf", "limit", "--local", "::1"]);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("not of one family"), "{text}");
}
