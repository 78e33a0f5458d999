//! Several processes on one address, and peers on another host: all packets come to one port.
//!
//! ```text
//! namespace a                                   namespace b
//!   client one ─┐ (door of a)     (door of b) ┌─ server one
//!   client two ─┴───────── cable ─────────────┴─ server two
//! ```
//!
//! Who comes second is reached through the door of who came first, until that one is killed.

use crate::perf::Host;
use crate::{FAMILIES, LINES, check, hosts};
use srdma_tests::program::program;
use std::time::Duration;

#[test]
fn who_is_not_at_the_door_is_reached_and_takes_it_over() {
    let program = program();
    let Some([a, b]) = hosts("door", 9000) else {
        return;
    };
    for [ours, theirs] in FAMILIES {
        let mut first = Host::server(&b, &program, theirs, &[]);
        // Latency leaves the processors to the others.
        let long = "--duration 600 --op send --mode lat --events --size 64";
        let long: Vec<&str> = long.split(' ').collect();
        let one = first.client(&a, &program, ours, &long);
        let mut one = one.spawn_and_wait_for_traffic(&a);
        // Everything that perf knows, through both doors; it checks the data.
        let mut second = Host::server(&b, &program, theirs, &[]);
        let lines = second.serve(&a, &program, ours, &[], "0.05");
        assert_eq!(lines.len(), LINES, "{lines:?}");
        lines.iter().for_each(|line| check(line, 4096));
        second.end();
        // Both processes at the doors go in the middle of traffic.
        let mut third = Host::server(&b, &program, theirs, &[]);
        let case = [
            "--duration",
            "3",
            "--op",
            "write",
            "--mode",
            "bw",
            "--size",
            "65536",
        ];
        let two = third.client(&a, &program, ours, &case).spawn();
        std::thread::sleep(Duration::from_secs(1));
        first.kill();
        std::thread::sleep(Duration::from_millis(500));
        one.kill().unwrap();
        let output = two.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        third.end();
        one.wait().unwrap();
        // A newcomer finds the doors where they are now.
        let mut fourth = Host::server(&b, &program, theirs, &[]);
        let lines = fourth.serve(&a, &program, ours, &["--op", "send"], "0.05");
        lines.iter().for_each(|line| check(line, 4096));
        fourth.end();
    }
}
