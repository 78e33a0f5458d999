//! `counters` reads what a running process counts, and forgets processes that are gone.

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
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process on `address`, and a counter of its device.
fn look(address: &str, counter: &str) -> Option<(Value, u64)> {
    let all = json_lines(&srdma(&["counters", "--json"]));
    let mut found = all.into_iter().filter_map(|process| {
        let devices = process["devices"].as_array()?;
        let device = devices.iter().find(|device| device["name"] == address)?;
        let value = device["counters"][counter].as_u64()?;
        Some((process.clone(), value))
    });
    found.next()
}

#[test]
fn counters_of_a_running_process_move() {
    let (here, there) = (address(), address());
    let mut server = Background::server(&here, &[]);
    let options = [
        "--address",
        &there,
        "--op",
        "send",
        "--mode",
        "lat",
        "--duration",
        "3",
    ];
    let mut client =
        Background::start(&[&["perf", "client", &*server.host][..], &options].concat());
    wait_until("the client counts packets", || {
        look(&there, "sent_pkts").is_some_and(|(_, value)| value > 0)
    });
    let (process, first) = look(&there, "sent_pkts").unwrap();
    wait_until("it counts more", || {
        look(&there, "sent_pkts").is_none_or(|(_, value)| value > first)
    });
    let pid = process["pid"].to_string();
    let text = srdma(&["counters", "--all", "--pid", &pid]);
    assert!(
        text.contains(&there) || look(&there, "sent_pkts").is_none(),
        "{text}"
    );
    client.kill();
    server.kill();
    assert!(
        look(&there, "sent_pkts").is_none(),
        "a killed process is forgotten"
    );
}

#[test]
fn the_file_of_a_killed_process_goes_when_another_starts() {
    let start = |server: &Background| {
        let there = address();
        let args = ["perf", "client", &*server.host, "--address", &there];
        let options = ["--op", "send", "--mode", "lat", "--duration", "9"];
        Background::start(&[&args[..], &options].concat())
    };
    let (first, second) = (address(), address());
    let mut servers = [&first, &second].map(|here| Background::server(here, &[]));
    let mut killed = start(&servers[0]);
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    let file = format!("/dev/shm/srdma-{user}/stats/{}", killed.id());
    wait_until("it can be asked", || Path::new(&file).exists());
    killed.kill();
    let mut other = start(&servers[1]);
    wait_until("its file is gone", || !Path::new(&file).exists());
    other.kill();
    servers.iter_mut().for_each(Background::kill);
}

#[test]
fn nothing_to_show_is_said() {
    // No process has this number.
    let options = ["counters", "--pid", "4294967295"];
    let output = run(&options);
    assert!(output.status.success() && output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("has a device open"), "{text}");
    let output = run(&[&options[..], &["--json"]].concat());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}
