//! Acknowledgements that nobody waits for: not asked for, and given in a while.  [IBTA 9.7.5.1.2]

use srdma_core::hw::wqe::{SendWr, WqeBuf, WrFlags};
use srdma_core::time::Instant;
use srdma_tests::node::QpSpec;
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, ack, answers, read_request, send_first, send_last, send_only};

const LATE_NS: u64 = 1_000_000;

fn near(timeout: u8) -> Rig {
    Rig::with(&QpSpec {
        peer_rx: 1 << 20,
        timeout,
        ..QpSpec::default()
    })
}

/// A requester that has measured its way to a peer of our kind.
fn measured(timeout: u8) -> Rig {
    let mut rig = near(timeout);
    rig.send(0, 4);
    rig.transmit();
    rig.node.advance(10_000);
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done().len(), 1);
    rig
}

/// Posts an unsignaled SEND of four bytes.
fn send_quietly(rig: &mut Rig) {
    let flags = WrFlags {
        signaled: false,
        read_fence: false,
        local_fence: false,
    };
    let mut wqe = WqeBuf::new();
    let wr = SendWr {
        flags,
        ..SendWr::default()
    };
    wqe.send(&wr, &[rig.mem.sge(0, 4)]).unwrap();
    rig.node.post(rig.qp, &wqe);
}

fn asks(heard: &[Heard]) -> Vec<bool> {
    heard.iter().map(|one| one.head.bth.ack_req).collect()
}

fn quiet_asks(rig: &mut Rig) -> Vec<bool> {
    send_quietly(rig);
    asks(&rig.transmit())
}

#[test]
fn a_message_that_nobody_waits_for_does_not_ask() {
    // proves: roce-45
    let mut rig = measured(14);
    assert_eq!(quiet_asks(&mut rig), [false]);
    rig.send(0, 4);
    assert_eq!(asks(&rig.transmit()), [true], "signaled");
    // But not so many that the end of what was sent is far behind.
    let asked = (0..64).filter(|_| quiet_asks(&mut rig) == [true]).count();
    assert_eq!(asked, 4);
}

#[test]
fn others_are_asked_each_time() {
    // proves: roce-45
    let mut stranger = Rig::rc();
    stranger.send(0, 4);
    stranger.transmit();
    stranger.tell(ack(SQ_PSN));
    assert_eq!(
        quiet_asks(&mut stranger),
        [true],
        "it may never answer unasked"
    );
    assert_eq!(quiet_asks(&mut near(14)), [true], "nothing is measured yet");
    assert_eq!(
        quiet_asks(&mut measured(11)),
        [true],
        "the timeout is too short"
    );
    assert_eq!(quiet_asks(&mut measured(0)), [false], "it never times out");
}

#[test]
fn what_did_not_ask_is_acknowledged_in_a_while() {
    // proves: ack-1
    let mut rig = Rig::rc();
    for at in 0..3 {
        rig.recv(at * 64, 64);
    }
    assert!(rig.hear(send_only(RQ_PSN, b"one")).is_empty());
    rig.node.advance(LATE_NS / 2);
    assert!(rig.hear(send_only(RQ_PSN + 1, b"two")).is_empty());
    rig.node.advance(LATE_NS / 2);
    assert_eq!(answers(&rig.transmit()), [(0x11, RQ_PSN + 1, 0x1f)]);
    // Once, and the next one has its own time.
    rig.node.advance(2 * LATE_NS);
    assert!(rig.transmit().is_empty());
    rig.tell(send_only(RQ_PSN + 2, b"three"));
    rig.node.advance(LATE_NS);
    assert_eq!(answers(&rig.transmit()), [(0x11, RQ_PSN + 2, 0x1f)]);
    assert_eq!(rig.counter("sent_acks"), 2);
}

#[test]
fn an_answer_on_the_way_takes_it_along() {
    // proves: ack-1
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.recv(64, 64);
    rig.tell(send_only(RQ_PSN, b"one"));
    let asked = rig.hear(send_only(RQ_PSN + 1, b"two").ack());
    assert_eq!(answers(&asked), [(0x11, RQ_PSN + 1, 0x1f)]);
    rig.node.advance(2 * LATE_NS);
    assert!(rig.transmit().is_empty(), "it said it all");
    rig.recv(0, 2048);
    rig.tell(send_first(RQ_PSN + 2, &[1; 1024]));
    rig.tell(send_last(RQ_PSN + 3, b"end"));
    let (addr, rkey) = (rig.mem.at(0), rig.mem.rkey());
    let read = rig.hear(read_request(RQ_PSN + 4, addr, rkey, 8));
    assert_eq!(read.len(), 1, "a response acknowledges what was before");
    rig.node.advance(2 * LATE_NS);
    assert!(rig.transmit().is_empty());
}

#[test]
fn a_lost_message_that_did_not_ask_is_sent_again_and_asks() {
    // proves: ack-2
    let mut rig = measured(14);
    assert_eq!(quiet_asks(&mut rig), [false]);
    // A probe of what asks is due after 4 ms; this one leaves 2 ms more.
    rig.node.advance(5 * LATE_NS);
    assert!(
        rig.transmit().is_empty(),
        "its acknowledgement may be on the way"
    );
    rig.node.advance(2 * LATE_NS);
    let probe = rig.transmit();
    assert_eq!(asks(&probe), [true]);
    assert_eq!(probe[0].psn(), SQ_PSN + 1);
    rig.tell(ack(SQ_PSN + 1));
    rig.node.advance(100 * LATE_NS);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.counter("ack_timeouts"), 0);
}

#[test]
fn one_that_asks_is_probed_for_at_its_own_time() {
    // proves: ack-2
    let mut rig = measured(14);
    assert_eq!(quiet_asks(&mut rig), [false]);
    rig.send(0, 4);
    assert_eq!(asks(&rig.transmit()), [true]);
    rig.node.advance(4_000_000);
    assert_eq!(rig.transmit().len(), 1, "no need to wait any longer");
}

#[test]
fn what_is_owed_is_due_before_a_queue_pair_may_end() {
    // proves: ack-1
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    assert!(rig.hear(send_only(RQ_PSN, b"one")).is_empty());
    assert!(rig.node.hca.settle_acks(Instant(1)));
    assert_eq!(answers(&rig.transmit()), [(0x11, RQ_PSN, 0x1f)]);
    assert!(!rig.node.hca.settle_acks(Instant(2)), "once");
}
