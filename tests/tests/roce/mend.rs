//! The requester's side of keeping: what is sent again, to whom.         [RoCEv2 6.3]

use srdma_core::qp::attr::QpState;
use srdma_core::wire::NakCode;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, ack, nak};

/// How long one retry covers the answers to one loss, if there is no ACK timeout.
const PAID_NS: u64 = 60_000_000;

/// A requester with `n` SENDs in flight.
fn flying(n: u32) -> Rig {
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &QpSpec::default());
    for _ in 0..n {
        rig.send(0, 4);
    }
    assert_eq!(rig.transmit().len(), n as usize);
    rig
}

fn psns(heard: &[Heard]) -> Vec<u32> {
    heard.iter().map(|h| h.psn() - SQ_PSN).collect()
}

fn missing(rig: &mut Rig, n: u32) -> Vec<u32> {
    rig.node.advance(1_000_000);
    psns(&rig.hear(nak(SQ_PSN + n, NakCode::PSN_SEQUENCE)))
}

fn done(rig: &mut Rig, n: u32) -> Vec<u32> {
    psns(&rig.hear(ack(SQ_PSN + n)))
}

#[test]
fn what_is_missing_is_sent_again_and_nothing_else() {
    // proves: ieq-10, roce-52
    let mut rig = flying(20);
    let heard = {
        rig.node.advance(1_000_000);
        rig.hear(nak(SQ_PSN + 5, NakCode::PSN_SEQUENCE))
    };
    assert_eq!(psns(&heard), [5]);
    assert!(heard[0].head.bth.ack_req, "its effect is asked for");
    assert_eq!(rig.done().len(), 5);
    // New work does not wait for the hole.
    rig.send(0, 4);
    assert_eq!(psns(&rig.transmit()), [20]);
    assert_eq!(done(&mut rig, 11), [0; 0], "it kept the rest: no more");
    assert_eq!(missing(&mut rig, 12), [12]);
    assert_eq!(done(&mut rig, 20), [0; 0]);
    assert_eq!(rig.done().len(), 16);
    assert_eq!(rig.counter("retransmitted_pkts"), 2);
    assert_eq!(rig.counter("ieq_mended"), 2);
}

#[test]
fn a_peer_that_keeps_nothing_is_sent_everything() {
    // proves: ieq-11
    let mut rig = flying(10);
    assert_eq!(missing(&mut rig, 2), [2]);
    // It misses the very next one as well, and so all.
    assert_eq!(missing(&mut rig, 3), (3..10).collect::<Vec<_>>());
    assert_eq!(done(&mut rig, 4), [0; 0]);
    assert_eq!(missing(&mut rig, 6), [6, 7, 8, 9], "it is remembered");
    // The same told by an acknowledgement of that packet alone.
    let mut rig = flying(10);
    assert_eq!(missing(&mut rig, 2), [2]);
    assert_eq!(done(&mut rig, 2), (3..10).collect::<Vec<_>>());
    assert_eq!(done(&mut rig, 9), [0; 0]);
    assert_eq!(rig.state(), QpState::Rts);
    assert_eq!(rig.done().len(), 10);
}

#[test]
fn a_peer_that_kept_something_once_is_sent_bursts_in_growing_pieces() {
    // proves: ieq-11
    let mut rig = flying(100);
    assert_eq!(missing(&mut rig, 2), [2]);
    done(&mut rig, 9);
    assert_eq!(missing(&mut rig, 10), [10]);
    assert_eq!(missing(&mut rig, 11), [11, 12]);
    assert_eq!(missing(&mut rig, 13), [13, 14, 15, 16]);
    assert_eq!(done(&mut rig, 16), [0; 0], "it will say what is missing");
    assert_eq!(missing(&mut rig, 17), (17..25).collect::<Vec<_>>());
    done(&mut rig, 40);
    assert_eq!(missing(&mut rig, 41), [41], "a new hole");
    done(&mut rig, 99);
    assert_eq!(rig.done().len(), 100);
}

#[test]
fn an_acknowledgement_past_what_was_sent_again_shows_that_a_peer_keeps() {
    // proves: ieq-11
    let mut rig = flying(10);
    assert_eq!(missing(&mut rig, 2), [2]);
    // Taken for a peer that keeps nothing …
    rig.tell(nak(SQ_PSN + 3, NakCode::PSN_SEQUENCE));
    rig.node.advance(1_000_000);
    rig.tell(nak(SQ_PSN + 3, NakCode::PSN_SEQUENCE));
    // … but all is there before anything could be sent again.
    rig.tell(ack(SQ_PSN + 9));
    assert!(rig.transmit().is_empty());
    for _ in 0..5 {
        rig.send(0, 4);
    }
    rig.transmit();
    assert_eq!(missing(&mut rig, 11), [11]);
}

#[test]
fn losses_behind_a_missing_response_do_not_add_up() {
    // proves: roce-61
    let spec = QpSpec {
        retry_cnt: 1,
        ..QpSpec::default()
    };
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &spec);
    let sge = rig.mem.sge(0, 8);
    let (addr, rkey) = (rig.mem.at(64), rig.mem.rkey());
    rig.node.read(rig.qp, &[sge], addr, rkey);
    for _ in 0..20 {
        rig.send(0, 4);
    }
    rig.transmit();
    // The response is lost, and then every other request.
    for n in (2..20).step_by(2) {
        rig.hear(nak(SQ_PSN + n, NakCode::PSN_SEQUENCE));
    }
    assert_eq!(rig.state(), QpState::Rts);
    assert!(rig.done().is_empty());
}

#[test]
fn a_batch_that_does_not_leave_is_sent_later() {
    // proves: ieq-10
    let mut rig = flying(10);
    rig.node.advance(1_000_000);
    rig.tell(nak(SQ_PSN + 2, NakCode::PSN_SEQUENCE));
    for _ in 0..3 {
        rig.send(0, 4);
    }
    assert!(rig.transmit_some(0).is_empty());
    assert_eq!(psns(&rig.transmit()), [2, 10, 11, 12]);
    done(&mut rig, 12);
    assert_eq!(rig.done().len(), 13);
}

#[test]
fn reads_and_atomics_that_are_missing_are_asked_for_again_alone() {
    // proves: ieq-10
    let mut rig = Rig::on(Node::keeping("10.0.0.1"), &QpSpec::default());
    rig.send(0, 4);
    let sge = rig.mem.sge(1024, 3000);
    let key = rig.mem.rkey();
    rig.node.read(rig.qp, &[sge], rig.mem.at(8192), key);
    rig.send(0, 4);
    rig.transmit();
    assert_eq!(missing(&mut rig, 1), [1]);
    assert_eq!(rig.counter("retransmitted_pkts"), 1);
    for (n, len) in [(1u8, 1024), (2, 1024), (3, 952)] {
        let frame = srdma_tests::wire_dsl::read_response(
            SQ_PSN + u32::from(n),
            n == 1,
            n == 3,
            &srdma_tests::node::pattern(len, n),
        );
        rig.tell(frame);
    }
    assert_eq!(done(&mut rig, 4), [0; 0]);
    assert_eq!(rig.done().len(), 3);
}

#[test]
fn lost_over_and_over_ends_in_the_last_retry() {
    // proves: roce-59
    let mut rig = Rig::on(
        Node::keeping("10.0.0.1"),
        &QpSpec {
            retry_cnt: 2,
            timeout: 0,
            ..QpSpec::default()
        },
    );
    rig.send(0, 4);
    rig.transmit();
    assert_eq!(missing(&mut rig, 0), [0]);
    rig.node.advance(PAID_NS);
    assert_eq!(missing(&mut rig, 0), [0]);
    rig.node.advance(PAID_NS);
    assert_eq!(missing(&mut rig, 0), [0; 0]);
    assert_eq!(rig.done(), [('s', 0, Some(8))]);
}
