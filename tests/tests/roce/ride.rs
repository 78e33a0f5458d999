//! Acknowledgements that go along with a message of one packet, between devices of our own kind.
//! `[srdma]`

use crate::line::with_own_kind;
use srdma_core::hca::HcaConfig;
use srdma_core::hw::wqe::{SendWr, WqeBuf};
use srdma_core::qp::attr::QpState;
use srdma_core::wire::{NakCode, Opcode, Syndrome};
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, send_first, send_only, write_only};

const ACK: Opcode = Opcode::RC_ACKNOWLEDGE;
const SEND: Opcode = Opcode::RC_SEND_ONLY;
const RIDDEN: Opcode = Opcode::RC_SEND_ONLY_ACK;

fn ours() -> QpSpec {
    QpSpec::default().own_kind()
}

/// A device that owes an acknowledgement of [`RQ_PSN`].
fn owing(spec: &QpSpec) -> Rig {
    let mut rig = Rig::with(spec);
    rig.recv(0, 64);
    rig.tell(send_only(RQ_PSN, b"question").ack());
    assert_eq!(rig.poll().len(), 1);
    rig
}

fn ops(heard: &[Heard]) -> Vec<Opcode> {
    heard.iter().map(|one| one.head.bth.opcode).collect()
}

/// The PSN and the messages that a packet acknowledges on its way.
fn rides(heard: &Heard) -> Option<(u32, u32)> {
    let rider = heard.head.rider?;
    assert_eq!(rider.aeth.syndrome, Syndrome::ACK);
    Some((rider.psn.value(), rider.aeth.msn.value()))
}

#[test]
fn a_message_of_one_packet_takes_it_along() {
    // proves: ride-1
    let mut rig = owing(&ours());
    rig.send(0, 4);
    let heard = rig.transmit();
    assert_eq!(ops(&heard), [RIDDEN]);
    assert_eq!(rides(&heard[0]), Some((RQ_PSN, 1)));
    assert_eq!((heard[0].psn(), heard[0].payload.len()), (SQ_PSN, 4));
    assert_eq!(rig.counter("sent_acks"), 1);
    assert_eq!(ops(&rig.transmit()), [], "it is said");
    // Nothing came since.
    rig.send(0, 4);
    assert_eq!(ops(&rig.transmit()), [SEND]);

    let mut rig = owing(&ours());
    let (sge, key) = (rig.mem.sge(0, 1016), rig.mem.rkey());
    rig.node.write(rig.qp, &[sge], 0x1000, key);
    let heard = rig.transmit();
    assert_eq!(ops(&heard), [Opcode::RC_WRITE_ONLY_ACK]);
    assert_eq!(rides(&heard[0]), Some((RQ_PSN, 1)));
    assert_eq!(heard[0].head.reth.map(|reth| reth.len), Some(1016));

    let mut rig = owing(&ours());
    let mut wqe = WqeBuf::new();
    let wr = SendWr {
        imm: Some(0x0102_0304),
        ..SendWr::default()
    };
    wqe.send(&wr, &[rig.mem.sge(0, 4)]).unwrap();
    rig.node.post(rig.qp, &wqe);
    let heard = rig.transmit();
    assert_eq!(ops(&heard), [Opcode::RC_SEND_ONLY_IMM_ACK]);
    assert_eq!(heard[0].head.imm.map(|imm| imm.0), Some([1, 2, 3, 4]));
}

#[test]
fn otherwise_it_is_a_packet_of_its_own() {
    // proves: ride-1
    let mut rig = owing(&QpSpec::default());
    rig.send(0, 4);
    assert_eq!(ops(&rig.transmit()), [SEND, ACK], "others do not know it");
    let mut rig = owing(&ours());
    rig.send(0, 4);
    rig.send(0, 4);
    let heard = ops(&rig.transmit());
    assert_eq!(heard, [SEND, SEND, ACK], "they are of one length");
    let mut rig = owing(&ours());
    rig.send(0, 1017);
    assert_eq!(ops(&rig.transmit()), [SEND, ACK], "it has no room for it");
    let mut rig = owing(&ours());
    rig.send(0, 1025);
    assert_eq!(ops(&rig.transmit()).last(), Some(&ACK), "a long one");
    let mut rig = owing(&ours());
    let mut wqe = WqeBuf::new();
    let wr = SendWr {
        inv: Some(rig.mem.rkey()),
        ..SendWr::default()
    };
    wqe.send(&wr, &[rig.mem.sge(0, 4)]).unwrap();
    rig.node.post(rig.qp, &wqe);
    let heard = ops(&rig.transmit());
    assert_eq!(heard, [Opcode::RC_SEND_ONLY_INV, ACK], "it has no form");
    // What is held behind a hole is said as well.
    let mut rig = with_own_kind();
    rig.tell(send_only(RQ_PSN + 2, b"ahead").ack());
    rig.transmit();
    rig.tell(send_only(RQ_PSN - 1, b"again").ack());
    rig.send(0, 4);
    let heard = rig.transmit();
    assert_eq!(ops(&heard), [SEND, ACK]);
    assert!(!heard[1].payload.is_empty());
    // Others' messages of the same length are in the batch, before it or behind: they would not
    // join its run, nor it theirs.
    for first in [true, false] {
        let mut node = Node::new("10.0.0.1");
        let other = node.connected(&ours());
        let mut rig = Rig::on(node, &ours());
        let third = rig.node.connected(&ours());
        let who = if first {
            [rig.qp, other, third]
        } else {
            [other, third, rig.qp]
        };
        let sge = rig.mem.sge(0, 4);
        rig.recv(0, 64);
        rig.tell(send_only(RQ_PSN, b"question").ack());
        for qp in who {
            rig.node.send(qp, &[sge]);
        }
        let heard = rig.transmit();
        assert_eq!(heard.len(), 4);
        assert!(heard.iter().all(|one| rides(one).is_none()), "{first}");
    }
}

#[test]
fn what_did_not_leave_goes_along_again() {
    // proves: ride-1, roce-115
    let mut rig = owing(&ours());
    rig.send(0, 4);
    assert_eq!(rig.transmit_some(0).len(), 0);
    let heard = rig.transmit();
    assert_eq!(ops(&heard), [RIDDEN]);
    assert_eq!(rides(&heard[0]), Some((RQ_PSN, 1)));
    assert_eq!(ops(&rig.transmit()), []);
    // What is sent again later has none: it was said.
    rig.node.advance(1_000_000_000);
    let heard = rig.transmit();
    assert!(!heard.is_empty() && heard.iter().all(|one| rides(one).is_none()));
}

#[test]
fn it_is_an_acknowledgement_like_any_other() {
    // proves: ride-1
    let syndrome = Syndrome::ACK;
    // From whomever it comes.
    for spec in [ours(), QpSpec::default()] {
        let mut rig = Rig::with(&spec);
        rig.recv(0, 64);
        rig.send(0, 4);
        rig.send(0, 4);
        rig.transmit();
        rig.tell(send_only(RQ_PSN, b"answer").riding(SQ_PSN + 1, syndrome));
        let done = rig.done();
        assert_eq!(done, [('s', 0, None), ('s', 1, None), ('r', 0, None)]);
        assert_eq!(rig.mem.read(0, 6), b"answer");
        assert_eq!(rig.counter("rcvd_acks"), 1);
    }
    // The request may have to wait, or to be refused.
    let mut rig = Rig::with(&ours());
    rig.recv(0, 64);
    rig.send(0, 4);
    rig.transmit();
    rig.tell(send_only(RQ_PSN + 1, b"ahead").riding(SQ_PSN, syndrome));
    assert_eq!(rig.done(), [('s', 0, None)]);
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.transmit();
    let key = srdma_core::num::Rkey(rig.mem.rkey().0 ^ 1);
    rig.tell(write_only(RQ_PSN, 0, key, b"nowhere").riding(SQ_PSN, syndrome));
    assert_eq!(rig.done()[0], ('s', 0, None));
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn a_receive_names_the_operation_that_everybody_knows() {
    // proves: ride-1, e810-10
    for (opcode, op) in [
        (Opcode::RC_SEND_ONLY, 0x04),
        (Opcode::RC_SEND_ONLY_IMM, 0x05),
        (Opcode::RC_WRITE_ONLY_IMM, 0x0b),
    ] {
        let mut rig = Rig::with(&ours());
        rig.recv(0, 64);
        rig.send(0, 4);
        rig.transmit();
        let mut frame = write_only(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), b"data").op(opcode);
        frame.head.reth = frame.head.reth.filter(|_| op == 0x0b);
        let frame = if op == 0x04 {
            frame
        } else {
            frame.imm([1, 2, 3, 4])
        };
        rig.tell(frame.riding(SQ_PSN, Syndrome::ACK));
        let done = rig.poll();
        assert_eq!(done.len(), 2, "{opcode:?}");
        assert_eq!(done[1].cqe.op, op);
    }
}

#[test]
fn what_it_cannot_acknowledge_it_does_not() {
    // proves: ride-1
    let nak = Syndrome::Nak(NakCode::REMOTE_ACCESS);
    for (psn, syndrome) in [
        (SQ_PSN - 1, Syndrome::ACK),
        (SQ_PSN + 1, Syndrome::ACK),
        (SQ_PSN, nak),
        (SQ_PSN, Syndrome::RnrNak { timer: 1 }),
        (SQ_PSN, Syndrome::Reserved(0x80)),
    ] {
        let mut rig = Rig::with(&ours());
        rig.recv(0, 64);
        rig.send(0, 4);
        rig.transmit();
        rig.tell(send_only(RQ_PSN, b"answer").riding(psn, syndrome));
        assert_eq!(rig.done(), [('r', 0, None)], "{psn:#x} {syndrome:?}");
        assert_eq!(rig.state(), QpState::Rts);
    }
    // Of a longer message there is no such form.
    let mut first = send_first(RQ_PSN, &[0; 1024]);
    first.head.bth.opcode = Opcode(0xe0);
    let mut rig = Rig::with(&ours());
    rig.tell(first);
    assert_eq!(rig.counter("malformed_opcode"), 1);
}

#[test]
fn a_plain_wire_has_nothing_of_our_own() {
    // proves: wire-1
    let mut config = HcaConfig::default();
    config.plain_wire = true;
    let mut rig = Rig::on(Node::with("10.0.0.1", config), &ours());
    rig.recv(0, 64);
    rig.tell(send_only(RQ_PSN, b"question").ack());
    rig.send(0, 4);
    assert_eq!(ops(&rig.transmit()), [SEND, ACK]);
    rig.send(0, 2048);
    let places = rig.transmit();
    assert!(places.iter().all(|one| one.head.bth.place == 0));
    let sge = rig.mem.sge(0, 3 * 1024);
    rig.node.write(rig.qp, &[sge], 0x1000, rig.mem.rkey());
    let heard = ops(&rig.transmit());
    assert_eq!(heard.iter().map(|op| op.0).max(), Some(0x08));
    // Holes are told as to anybody.
    let heard = rig.hear(send_only(RQ_PSN + 2, b"ahead").ack());
    assert!(heard.iter().all(|one| one.payload.is_empty()));
    // What others say is understood all the same.
    let psn = SQ_PSN + 5;
    rig.tell(send_only(RQ_PSN + 3, b"ahead").riding(psn, Syndrome::ACK));
    assert_eq!(rig.counter("rcvd_acks"), 1);
}
