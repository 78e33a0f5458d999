//! `trace`: the whole life of a message on both sides, and captures that tshark reads.
//!
//! A program that is not installed is skipped with a message; `tests/run` installs them.

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

use common::{Folder, address, command, is_installed, json_lines};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// One message each way between two processes, both under one trace.
fn ping_pong(files: &Folder, options: &[&str], extra: &str) -> Output {
    // The programs agree over TCP, on any address: so each pair has a port of its own.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let port = 20_000 + std::process::id() % 3000 * 4 + NEXT.fetch_add(1, Ordering::Relaxed);
    let program = format!("ibv_rc_pingpong -g 0 -s 64 -e -p {port} {extra}");
    let script = format!("{program} -d a & sleep 1; {program} -d b $HOST; wait $!");
    let (here, there) = (address(), address());
    let args = [&["trace"][..], options, &["--", "sh", "-c", &script]].concat();
    let mut run = command(&args);
    run.env("SRDMA_DEVICES", format!("a={here},b={there}"));
    run.env("HOST", here).env("XDG_CACHE_HOME", files.path());
    let output = run.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output
}

/// What `device` did, in order.
fn of<'a>(lines: &'a [Value], device: &str) -> Vec<&'a Value> {
    let is = |line: &&Value| line["device"] == device;
    lines.iter().filter(is).collect()
}

fn position(lines: &[&Value], what: &str, field: &str, value: &str) -> usize {
    let is = |line: &&Value| {
        let said = line["fields"][field].to_string();
        line["what"] == what && said.trim_matches('"').contains(value)
    };
    let found = lines.iter().position(is);
    assert!(
        found.is_some(),
        "no {what} with {field} {value}: {lines:#?}"
    );
    found.unwrap()
}

#[test]
fn both_sides_of_a_message_are_shown() {
    if is_installed("ibv_rc_pingpong") {
        message_is_shown(&[]);
        message_is_shown(&["--bridge"]);
    }
}

fn message_is_shown(options: &[&str]) {
    let files = Folder::new();
    let out = files.join("lines");
    let options = [&["--json", "-o", out.to_str().unwrap()], options].concat();
    ping_pong(&files, &options, "-n 1");
    let lines = json_lines(&std::fs::read_to_string(&out).unwrap());
    let times: Vec<_> = lines.iter().map(|line| line["time_ns"].as_u64()).collect();
    assert!(times.is_sorted(), "in order of time");
    // The client: from doorbell to acknowledgement.
    let sender = of(&lines, "b");
    let sent = [
        position(&sender, "doorbell", "queue", "Sq("),
        position(&sender, "taken", "queue", "Sq("),
        position(&sender, "wqe", "op", "SEND"),
        position(&sender, "out", "packet", "RC SEND_ONLY"),
        position(&sender, "in", "packet", "RC ACKNOWLEDGE"),
        position(&sender, "cqe", "operation", "SEND"),
    ];
    assert!(sent.is_sorted(), "{sent:?}");
    // The server: from the packet to the program's acknowledgement of the event.
    let receiver = of(&lines, "a");
    let arrived = position(&receiver, "in", "packet", "RC SEND_ONLY");
    let after = &receiver[arrived..];
    let received = [
        position(after, "in", "packet", "RC SEND_ONLY"),
        position(after, "rqe", "sge0", "+64"),
        position(after, "cqe", "bytes", "64"),
        position(after, "ceqe", "valid", "1"),
        position(after, "interrupt", "vector", ""),
        position(after, "ceqe-read", "cq", ""),
        position(after, "event", "cq", ""),
        position(after, "arm", "next", "true"),
        position(after, "ack", "cq", ""),
    ];
    assert!(received.is_sorted(), "{received:?}");
    // Raw words are there, and agree with the fields.
    let wqe = sender[sent[2]];
    let header = wqe["words"][3].as_str().unwrap().trim_start_matches("0x");
    let header = u64::from_str_radix(header, 16).unwrap();
    assert_eq!((header >> 32 & 0x3f, header >> 63), (3, 1), "{wqe}");
    assert_eq!(position(&sender, "device", "name", "b"), 0);
    assert!(position(&sender, "command", "command", "CreateQp") > 0);
}

#[test]
fn tshark_reads_captures() {
    if !is_installed("ibv_rc_pingpong") || !is_installed("tshark") {
        return;
    }
    let files = Folder::new();
    let (out, capture) = (files.join("lines"), files.join("capture"));
    let (out, capture) = (out.to_str().unwrap(), capture.to_str().unwrap());
    ping_pong(&files, &["-o", out, "--pcap", capture], "-n 20 -s 9000");
    let short = files.join("short");
    let short = short.to_str().unwrap();
    let lines = files.join("of-the-short");
    let lines = lines.to_str().unwrap();
    ping_pong(&files, &["-o", lines, "--pcap", short], "-n 20 -s 64");
    let names = tshark(Path::new(short), &["-T", "fields", "-e", "_ws.col.Info"]);
    assert!(names.contains("RC Send Only"), "{names}");
    assert!(!names.contains("Unknown"), "all of it is known: {names}");
    let capture = Path::new(capture);
    let packets = tshark(capture, &["-T", "fields", "-e", "infiniband.bth.opcode"]);
    let opcodes: Vec<_> = packets.lines().collect();
    assert!(opcodes.len() >= 4 * 20, "{packets}");
    for opcode in ["0", "1", "2", "17"] {
        assert!(opcodes.contains(&opcode), "no {opcode}: {packets}");
    }
    let all = opcodes.iter().all(|opcode| opcode.parse::<u8>().is_ok());
    assert!(all, "every packet is RoCE: {packets}");
    assert_eq!(tshark(capture, &["-Y", "_ws.malformed"]), "");
    let text = std::fs::read_to_string(out).unwrap();
    assert!(text.contains("RC SEND_FIRST"), "text as well");
}

#[test]
fn faults_are_comments() {
    if is_installed("ibv_rc_pingpong") && is_installed("tshark") {
        comments_of_faults(&[]);
        comments_of_faults(&["--bridge"]);
    }
}

fn comments_of_faults(more: &[&str]) {
    let files = Folder::new();
    let (out, capture) = (files.join("lines"), files.join("capture"));
    let (out, capture) = (out.to_str().unwrap(), capture.to_str().unwrap());
    let rules = "drop nth=5; out corrupt nth=7; out duplicate nth=9";
    let options = [&["-o", out, "--pcap", capture, "--faults", rules], more].concat();
    ping_pong(&files, &options, "-n 20");
    let comments = tshark(Path::new(capture), &["-T", "fields", "-e", "frame.comment"]);
    for fault in ["dropped", "bits flipped", "duplicate"] {
        assert!(comments.contains(&format!("fault: {fault}")), "{comments}");
    }
    let lines = std::fs::read_to_string(out).unwrap();
    assert!(
        lines.contains(" fault-in ") && lines.contains("cause=icrc_error"),
        "{lines}"
    );
    let bad = command(&["run", "--faults", "dorp", "--", "true"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&bad.stderr);
    assert!(!bad.status.success() && errors.contains("dorp"), "{errors}");
}

fn tshark(capture: &Path, args: &[&str]) -> String {
    let mut run = Command::new("tshark");
    let output = run.arg("-r").arg(capture).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_status_is_the_programs() {
    let run = |args: &[&str]| {
        let args = [&["trace", "-q", "--"][..], args].concat();
        command(&args).output().unwrap().status.code()
    };
    assert_eq!(run(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(run(&["/no/such/program"]), Some(127));
}
