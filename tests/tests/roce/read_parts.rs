//! Parts of a READ that are asked for again, beside what is due.         [RoCEv2 2.8, 3.3]

use srdma_core::qp::attr::QpState;
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{Heard, brief, read_request};

const MTU: usize = 1024;

fn bytes(heard: &[Heard]) -> Vec<u8> {
    heard.iter().flat_map(|h| h.payload.clone()).collect()
}

#[test]
fn parts_that_are_asked_for_again_leave_what_is_due() {
    // proves: roce-90, roce-117
    let mut rig = Rig::rc();
    let big = rig.node.mem(1 << 23);
    let data = big.fill(0, 64 * 1024, 9);
    rig.tell(read_request(RQ_PSN, big.at(0), big.rkey(), 1 << 23));
    rig.tell(read_request(RQ_PSN + 8192, big.at(0), big.rkey(), 1024));
    let sent = rig.transmit_some(usize::MAX);
    let next = RQ_PSN + u32::try_from(sent.len()).unwrap();
    for (at, packets) in [(5u32, 1), (9, 3), (5, 1)] {
        let from = big.at(u64::from(at) * 1024);
        rig.tell(read_request(RQ_PSN + at, from, big.rkey(), packets * 1024));
    }
    let mut heard = rig.transmit_some(usize::MAX);
    let rest = heard.split_off(4);
    let parts = [(0x10, 5), (0x0d, 9), (0x0e, 10), (0x0f, 11)];
    assert_eq!(brief(&heard), parts.map(|(op, at)| (op, RQ_PSN + at)));
    assert_eq!(bytes(&heard[..1]), data[5 * MTU..6 * MTU]);
    assert_eq!(bytes(&heard[1..]), data[9 * MTU..12 * MTU]);
    // The first stream goes on where it was, and what was asked for later follows.
    assert_eq!(brief(&rest)[0], (0x0e, next));
    let all = rig.transmit();
    assert_eq!(brief(&all).last(), Some(&(0x10, RQ_PSN + 8192)));
}

#[test]
fn parts_that_did_not_leave_are_sent_again_as_they_were() {
    let mut rig = Rig::rc();
    rig.mem.fill(0, 16 * 1024, 5);
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    rig.hear(read_request(RQ_PSN, at, key, 16 * 1024));
    for (from, len) in [(2u32, 3000), (9, 1024)] {
        let addr = rig.mem.at(u64::from(from) * 1024);
        rig.tell(read_request(RQ_PSN + from, addr, key, len));
    }
    let parts = [(0x0d, 2), (0x0e, 3), (0x0f, 4), (0x10, 9)];
    let parts = parts.map(|(op, at)| (op, RQ_PSN + at));
    let mut heard = Vec::new();
    for runs in [0, 1, 0, 1, 0, usize::MAX] {
        heard.extend(rig.transmit_some(runs));
    }
    assert_eq!(brief(&heard), parts);
    assert_eq!(heard[2].payload.len(), 3000 - 2048, "not a byte more");
    assert!(rig.transmit().is_empty());
}

#[test]
fn who_asks_without_end_is_answered_to_an_end() {
    let mut rig = Rig::rc();
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    rig.hear(read_request(RQ_PSN, at, key, 64 * 1024));
    for n in 0..1000u32 {
        let packets = 1 + n / 64 % 3;
        let from = rig.mem.at(u64::from(n % 60) * 1024);
        rig.tell(read_request(RQ_PSN + n % 60, from, key, packets * 1024));
    }
    let heard = rig.transmit();
    assert!(heard.len() <= 64 * 3, "{}", heard.len());
    assert_eq!(rig.state(), QpState::Rts);
}
