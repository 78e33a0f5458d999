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
    }
}

#[test]
fn families_do_not_mix() {
    let output = common::run(&["perf", "limit", "--local", "::1"]);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("not of one family"), "{text}");
}
