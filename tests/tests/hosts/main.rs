//! Two hosts: network namespaces joined by a cable, `srdma-cli perf` in each.
//!
//! ```text
//! namespace a                                  namespace b
//!   perf client ── veth, MTU 1500 or 9000 ── veth ── perf server
//! ```
//!
//! The whole table of perf runs over IPv4 and IPv6, with offloads and without; perf checks the data
//! itself. A cable that is pulled ends the run with an error, on both sides. How fast it was is
//! printed and not judged. Skipped, with a message, only where namespaces are forbidden.
//!
//! gate: heavy

#![cfg(test)]

mod door;
mod events;
mod perf;
mod port;

use perf::Host;
use serde_json::Value;
use srdma_tests::netns::{Namespace, NetnsError};
use srdma_tests::program::program;

/// Addresses of both hosts, of one family.
const FAMILIES: [[&str; 2]; 2] = [["10.47.91.1", "10.47.91.2"], ["fd47:91::1", "fd47:91::2"]];

/// Lines of the table of `perf`: operations × what is measured.
const LINES: usize = 18;

/// Two hosts and the cable; `None` where there cannot be any.
fn hosts(tag: &str, mtu: u16) -> Option<[Namespace; 2]> {
    let made = Namespace::new(&format!("{tag}-a"));
    let a = match made {
        Ok(a) => a,
        Err(NetnsError::Forbidden(why)) => {
            println!("skip: network namespaces are forbidden here ({why}); two hosts not tested");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let b = Namespace::new(&format!("{tag}-b")).unwrap();
    let addrs = |at: usize| {
        [
            format!("{}/24", FAMILIES[0][at]),
            format!("{}/64", FAMILIES[1][at]),
        ]
    };
    let (ours, theirs) = (addrs(0), addrs(1));
    let (ours, theirs) = (
        ours.each_ref().map(String::as_str),
        theirs.each_ref().map(String::as_str),
    );
    a.join(&b, mtu, &ours, &theirs).unwrap();
    Some([a, b])
}

/// The table over a cable of this MTU, whose packets carry `path_mtu` bytes.
fn table(mtu: u16, path_mtu: u64) {
    let program = program();
    let Some([a, b]) = hosts(&format!("{mtu}"), mtu) else {
        return;
    };
    let ways: [&[&str]; 4] = [
        &[],
        &["--no-gso", "--no-gro", "--rcvbuf-cap", "212992"],
        &["--no-gso"],
        &["--no-gro", "--rcvbuf-cap", "212992"],
    ];
    for [ours, theirs] in FAMILIES {
        for way in ways {
            println!("MTU {mtu}, {ours} to {theirs}, {way:?}");
            let mut server = Host::server(&b, &program, theirs, way);
            let lines = server.serve(&a, &program, ours, way, "0.05");
            assert_eq!(lines.len(), LINES, "{lines:?}");
            for line in &lines {
                check(line, path_mtu);
            }
            server.end();
        }
    }
}

/// One line of the result.
fn check(line: &Value, path_mtu: u64) {
    println!("{line}");
    assert_eq!(line["mtu"].as_u64(), Some(path_mtu), "{line}");
    let positive = |value: &Value| value.as_f64().is_some_and(|figure| figure > 0.0);
    let fine = match line["mode"].as_str() {
        Some("bw") => positive(&line["bytes_per_sec"]),
        Some("rate") => positive(&line["msgs_per_sec"]),
        Some("lat") => positive(&line["rtt_ns"]["p50"]),
        _ => false,
    };
    assert!(fine, "{line}");
    let known = ["send", "write", "read", "atomic"];
    assert!(known.contains(&line["op"].as_str().unwrap()), "{line}");
}

#[test]
fn ethernet_frames() {
    table(1500, 1024);
}

#[test]
fn jumbo_frames() {
    table(9000, 4096);
}

#[test]
fn a_server_that_is_killed_is_noticed() {
    let program = program();
    let Some([a, b]) = hosts("kill", 1500) else {
        return;
    };
    let [ours, theirs] = FAMILIES[1];
    let mut server = Host::server(&b, &program, theirs, &[]);
    let client = server.client(&a, &program, ours, &["--duration", "60", "--op", "write"]);
    let client = client.spawn_and_wait_for_traffic(&a);
    server.kill();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("peer") || text.contains("retries"), "{text}");
    // The hosts go on: a new server on the same address serves at once.
    let mut server = Host::server(&b, &program, theirs, &[]);
    let lines = server.serve(
        &a,
        &program,
        ours,
        &["--op", "send", "--mode", "bw"],
        "0.05",
    );
    check(&lines[0], 1024);
    server.end();
}

#[test]
fn a_cable_that_is_pulled_is_noticed() {
    let program = program();
    let Some([a, b]) = hosts("pull", 9000) else {
        return;
    };
    let [ours, theirs] = FAMILIES[0];
    let mut server = Host::server(&b, &program, theirs, &[]);
    let client = server.client(&a, &program, ours, &["--duration", "60", "--op", "read"]);
    let client = client.spawn_and_wait_for_traffic(&a);
    b.ip(&["link", "set", "cable", "down"]).unwrap();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("retries exhausted"), "{text}");
    server.kill();
}
