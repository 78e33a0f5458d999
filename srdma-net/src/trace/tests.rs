//! What variables mean, and that captures have the shape that readers expect.

use super::*;
use srdma_core::trace::{PacketNote, PacketPath};

#[test]
fn variables_are_read() {
    let config = |trace, capture| TraceConfig::from_variables(trace, capture);
    assert_eq!(config(None, None), TraceConfig::default());
    assert_eq!(config(Some(""), Some("")), TraceConfig::default());
    let lines = |path: &str, json| TraceConfig {
        lines: Some(path.into()),
        json,
        capture: None,
    };
    assert_eq!(config(Some("-"), None), lines("-", false));
    assert_eq!(config(Some("-,json"), None), lines("-", true));
    assert_eq!(config(Some("/a,b"), None), lines("/a,b", false));
    assert_eq!(config(Some("/a,json"), None), lines("/a", true));
    assert_eq!(config(None, Some("x")).capture, Some("x".into()));
}

#[test]
fn captures_are_blocks_of_known_length() {
    let path = std::env::temp_dir().join(format!("srdma-capture-{}", std::process::id()));
    let (mut first, mut second) = (Capture::open(&path).unwrap(), Capture::open(&path).unwrap());
    for (source, target) in [("127.0.0.1:5", "127.0.0.2:4791"), ("[::1]:5", "[::1]:4791")] {
        let packet = PacketPath {
            source: source.parse().unwrap(),
            target: target.parse().unwrap(),
            tclass: 2,
            hop_limit: 64,
            ip_id: 1,
            note: PacketNote::NONE.with_dropped(true),
        };
        let words = packet.words(packet.note);
        let record = Record {
            kind: Kind::FAULT_IN,
            device: 0,
            time_ns: 1,
            words: &words,
            bytes: vec![0; 17],
        };
        let block = first.block(&record, "a");
        first.append(&block);
        let block = second.block(&record, "b");
        second.append(&block);
    }
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut kinds) = (0, Vec::new());
    while at < bytes.len() {
        let len = usize::try_from(word(at + 4)).unwrap();
        assert_eq!(usize::try_from(word(at + len - 4)).unwrap(), len);
        kinds.push(word(at));
        at += len;
    }
    assert_eq!(
        kinds,
        [0x0a0d_0d0a, 1, 6, 6, 6, 6],
        "one head, four packets"
    );
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("fault: dropped"), "the comment says so");
}

#[test]
fn lines_are_text_or_json() {
    let record = Record {
        kind: Kind::ACK,
        device: 0,
        time_ns: 1_700_000_000_000_000_001,
        words: &[3, 9],
        bytes: Vec::new(),
    };
    let text = line::line(&record, 7, "d\"x", false);
    assert_eq!(text, "1700000000.000000001 7 d\"x ack       cq=3 count=9\n");
    let json = line::line(&record, 7, "d\"x", true);
    let want = "{\"time_ns\":1700000000000000001,\"pid\":7,\"device\":\"d\\\"x\",\
        \"what\":\"ack\",\"fields\":{\"cq\":3,\"count\":9}}\n";
    assert_eq!(json, want);
}
