//! Shared receive queues.                                               [RoCEv2 3.7, 4.3]

use srdma_core::hw::{AeCode, CqpCmd, HwQpType};
use srdma_core::num::{Qpn, SrqId};
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{answers, datagram, send_first, send_last, send_only};

const MTU: usize = 1024;

fn rig(limit: u32) -> (Rig, SrqId) {
    rig_of(HwQpType::RC, limit)
}

fn rig_of(kind: HwQpType, limit: u32) -> (Rig, SrqId) {
    let mut node = Node::new("10.0.0.1");
    let srq = node.create_srq(64, limit);
    let spec = QpSpec {
        kind,
        srq: Some(srq),
        ..QpSpec::default()
    };
    (Rig::on(node, &spec), srq)
}

fn post(rig: &mut Rig, srq: SrqId, offset: u64) {
    let sge = rig.mem.sge(offset, 2048);
    rig.node.post_srq(srq, &[sge]);
}

#[test]
fn queue_pairs_share_receives_in_order() {
    let (mut rig, srq) = rig(0);
    let second = rig.node.connected(&QpSpec {
        srq: Some(srq),
        ..QpSpec::default()
    });
    for n in 0..4 {
        post(&mut rig, srq, 4096 * n);
    }
    let first = rig.qp;
    // The second queue pair's message begins and ends inside the first one's.
    rig.tell(send_first(RQ_PSN, &[1; MTU]));
    rig.qp = second;
    rig.tell(send_only(RQ_PSN, b"inside"));
    rig.qp = first;
    rig.tell(send_last(RQ_PSN + 1, b"end"));
    let wcs = rig.poll();
    let brief: Vec<(Qpn, u64, u32)> = wcs.iter().map(|w| (w.qpn, w.wr_id, w.cqe.len)).collect();
    assert_eq!(brief, [(second, 1, 6), (first, 0, 1027)]);
    assert_eq!(rig.mem.read(4096, 6), b"inside");
    assert_eq!(rig.mem.read(1024, 3), b"end");
}

#[test]
fn an_empty_queue_makes_the_peer_wait() {
    // proves: roce-120
    let (mut rig, srq) = rig(0);
    let rnr = [(0x11, RQ_PSN, 0x20 | 12)];
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"x").ack())), rnr);
    post(&mut rig, srq, 0);
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"x").ack()))[0].2, 0x1f);
    assert_eq!(rig.done(), [('r', 0, None)]);
}

#[test]
fn the_limit_is_told_once_an_arming() {
    // proves: roce-120
    let (mut rig, srq) = rig(3);
    for _ in 0..6 {
        post(&mut rig, srq, 0);
    }
    let mut told = vec![];
    for n in 0..6 {
        rig.tell(send_only(RQ_PSN + n, b"x").ack());
        told.push(rig.aes().len());
    }
    assert_eq!(told, [0, 0, 0, 1, 0, 0], "when fewer than three are left");
    for _ in 0..6 {
        post(&mut rig, srq, 0);
    }
    rig.tell(send_only(RQ_PSN + 6, b"x").ack());
    assert!(rig.aes().is_empty(), "not armed");
    rig.node.arm_srq(srq, 5);
    rig.tell(send_only(RQ_PSN + 7, b"x").ack());
    let events = rig.node.aes();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].code, events[0].id), (AeCode::SRQ_LIMIT, srq.0));
    assert_eq!(events[0].context, 0x5000 + u64::from(srq.0));
}

#[test]
fn an_error_takes_no_more_than_was_taken() {
    // proves: roce-142
    let (mut rig, srq) = rig(0);
    for _ in 0..3 {
        post(&mut rig, srq, 0);
    }
    rig.tell(send_first(RQ_PSN, &[1; MTU]));
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    assert_eq!(rig.done(), [('r', 0, Some(1))], "the one in use");
    assert_eq!(rig.aes(), [AeCode::LAST_WQE_REACHED]);
    // The others serve other queue pairs.
    rig.qp = rig.node.connected(&QpSpec {
        srq: Some(srq),
        ..QpSpec::default()
    });
    rig.tell(send_only(RQ_PSN, b"x").ack());
    assert_eq!(rig.done(), [('r', 1, None)]);

    // A refusal ends a queue pair the same way.
    let before = rig.qp;
    rig.tell(send_last(RQ_PSN + 1, b"x"));
    assert_eq!(rig.node.state(before), QpState::Err);
    assert!(rig.aes().contains(&AeCode::LAST_WQE_REACHED));
    assert!(rig.done().is_empty());
}

#[test]
fn a_queue_in_use_is_not_destroyed() {
    let (mut rig, srq) = rig(0);
    rig.node.refused(CqpCmd::DestroySrq(srq));
    rig.node.ok(CqpCmd::DestroyQp(rig.qp));
    rig.node.ok(CqpCmd::DestroySrq(srq));
}

#[test]
fn datagrams_come_from_a_shared_queue_too() {
    let (mut rig, srq) = rig_of(HwQpType::UD, 0);
    rig.tell(datagram(0, 0x1234_5678, 7, b"lost"));
    post(&mut rig, srq, 0);
    rig.tell(datagram(1, 0x1234_5678, 7, b"hello"));
    let wc = rig.poll()[0];
    assert_eq!((wc.wr_id, wc.cqe.len, wc.cqe.peer), (0, 45, 7));
}
