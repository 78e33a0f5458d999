//! XRC: what a target refuses, and what the device refuses to make.     [IBTA A14]

use super::xrc::{XRC_CQ, XRCD, initiator, naming, send, target, xrc_srq};
use srdma_core::hw::cqp::{CqpMinor, XrcHome};
use srdma_core::hw::wqe::{SendWr, WqeBuf, WrFlags};
use srdma_core::hw::{AeCode, CqpCmd, HwQpType};
use srdma_core::num::{CqId, SrqId, XrcdId};
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::node::{Node, PD, QpSpec};
use srdma_tests::pair::Pair;
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN, brief_wcs};
use srdma_tests::wire_dsl::{
    Frame, ack, answers, fetch_add, read_request, send_first, send_last, send_middle, send_only,
    write_first, write_only,
};

const MTU: usize = 1024;
const ACKED: u8 = 0x1f;
const NAK_INVALID: u8 = 0x61;

/// A target with two XRC queues, and the script as its initiator.
fn rig() -> (Rig, SrqId, SrqId) {
    let mut node = Node::new("10.0.0.1");
    node.create_cq(XRC_CQ, 64);
    let (first, second) = (xrc_srq(&mut node, PD), xrc_srq(&mut node, PD));
    let mut rig = Rig::on(node, &target());
    for srq in [first, second] {
        let sge = rig.mem.sge(4096, 8192);
        rig.node.post_srq(srq, &[sge]);
    }
    (rig, first, second)
}

/// The same request in the class of XRC, for a queue.
fn to(srq: SrqId, mut frame: Frame) -> Frame {
    frame.head.bth.opcode = frame.head.bth.opcode.in_xrc();
    frame.head.xrceth = Some(srq.0);
    frame
}

#[track_caller]
fn refuses(rig: &mut Rig, frame: Frame, psn: u32) {
    let heard = rig.hear(frame);
    assert_eq!(answers(&heard), [(0xb1, psn, NAK_INVALID)]);
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(rig.aes(), [AeCode::XRC_DOMAIN_VIOLATION]);
}

#[test]
fn a_queue_that_is_not_there_is_refused() {
    // proves: xrc-2
    for request in [send_only(RQ_PSN, b"x").ack(), send_first(RQ_PSN, &[1; MTU])] {
        let (mut rig, ..) = rig();
        refuses(&mut rig, to(SrqId(0x00ff_ffff), request), RQ_PSN);
        assert!(rig.node.poll_cq(XRC_CQ).is_empty(), "nothing was taken");
    }
}

#[test]
fn a_queue_of_another_kind_or_domain_is_refused() {
    // proves: xrc-2
    let other = XrcHome {
        xrcd: XrcdId(XRCD.0 + 1),
        cq: XRC_CQ,
    };
    for xrc in [None, Some(other)] {
        let (mut rig, ..) = rig();
        let srq = rig.node.create_srq_of(16, 0, PD, xrc);
        let sge = rig.mem.sge(0, 64);
        rig.node.post_srq(srq, &[sge]);
        let (addr, rkey) = (rig.mem.at(0), rig.mem.rkey());
        refuses(
            &mut rig,
            to(srq, write_only(RQ_PSN, addr, rkey, b"none")),
            RQ_PSN,
        );
        assert_eq!(rig.mem.read(0, 4), [0; 4]);
    }
}

#[test]
fn a_message_stays_with_its_queue() {
    // proves: xrc-3, xrc-8
    let (mut rig, first, second) = rig();
    rig.tell(to(first, send_first(RQ_PSN, &[1; MTU])));
    rig.tell(to(first, send_middle(RQ_PSN + 1, &[2; MTU])));
    let heard = rig.hear(to(second, send_last(RQ_PSN + 2, b"end").ack()));
    assert_eq!(answers(&heard), [(0xb1, RQ_PSN + 2, NAK_INVALID)]);
    let flushed = rig.node.poll_cq(XRC_CQ);
    assert_eq!(brief_wcs(&flushed), [('r', 0, Some(10))]);
    assert_eq!(flushed[0].cqe.context, 0x5000 + u64::from(first.0));
}

#[test]
fn a_queue_that_goes_away_in_a_message_ends_it() {
    // proves: xrc-2
    let (mut rig, first, _) = rig();
    rig.tell(to(first, send_first(RQ_PSN, &[1; MTU])));
    rig.node.ok(CqpCmd::DestroySrq(first));
    refuses(
        &mut rig,
        to(first, send_last(RQ_PSN + 1, b"end")),
        RQ_PSN + 1,
    );
    assert!(rig.node.poll_cq(XRC_CQ).is_empty(), "with its receives");
}

#[test]
fn duplicates_are_answered_whatever_became_of_the_queue() {
    let (mut rig, first, _) = rig();
    let request = to(first, send_only(RQ_PSN, b"once").ack());
    assert_eq!(answers(&rig.hear(request.clone())), [(0xb1, RQ_PSN, ACKED)]);
    rig.node.ok(CqpCmd::DestroySrq(first));
    assert_eq!(answers(&rig.hear(request)), [(0xb1, RQ_PSN, ACKED)]);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn a_stopped_target_gives_back_what_it_took() {
    // proves: xrc-8
    let (mut rig, first, second) = rig();
    rig.tell(to(first, send_first(RQ_PSN, &[1; MTU])));
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    let flushed = rig.node.poll_cq(XRC_CQ);
    assert_eq!(brief_wcs(&flushed), [('r', 0, Some(1))]);
    assert_eq!(flushed[0].qpn, rig.qp);
    assert!(rig.aes().is_empty(), "its queues serve other targets");
    rig.qp = rig.node.connected(&target());
    rig.tell(to(second, send_only(RQ_PSN, b"x")));
    assert_eq!(brief_wcs(&rig.node.poll_cq(XRC_CQ)), [('r', 0, None)]);
}

#[test]
fn each_end_hears_its_half_only() {
    // proves: xrc-1
    let (mut rig, first, _) = rig();
    let request = to(first, send_only(RQ_PSN, b"x").ack());
    assert!(
        rig.hear(ack(SQ_PSN).op(srdma_core::wire::Opcode::XRC_ACKNOWLEDGE))
            .is_empty()
    );
    assert!(
        rig.hear(send_only(RQ_PSN, b"x").ack()).is_empty(),
        "RC is another service"
    );
    assert_eq!(rig.counter("wrong_service"), 2);
    assert_eq!(answers(&rig.hear(request.clone())), [(0xb1, RQ_PSN, ACKED)]);

    let mut node = Node::new("10.0.0.1");
    node.create_cq(XRC_CQ, 64);
    let mut rig = Rig::on(node, &initiator());
    assert!(rig.hear(request.clone()).is_empty());
    assert_eq!(rig.counter("wrong_service"), 1);

    let mut rc = Rig::rc();
    assert!(rc.hear(request).is_empty());
    assert_eq!(rc.counter("wrong_service"), 1);
}

#[test]
fn targets_do_not_send() {
    // proves: xrc-6
    let (mut rig, first, _) = rig();
    let sge = rig.mem.sge(0, 8);
    send(&mut rig.node, rig.qp, first, &[sge], None);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 0, Some(4))]);
}

#[test]
fn a_request_names_a_queue_on_an_initiator_and_nowhere_else() {
    let plain = |rig: &mut Rig, mut wqe: WqeBuf| {
        let wr = SendWr {
            flags: WrFlags::SIGNALED,
            ..SendWr::default()
        };
        wqe.send(&wr, &[rig.mem.sge(0, 8)]).unwrap();
        rig.node.post(rig.qp, &wqe);
        assert!(rig.transmit().is_empty());
        assert_eq!(rig.done(), [('s', 0, Some(4))]);
    };
    plain(&mut Rig::with(&initiator()), WqeBuf::new());
    plain(&mut Rig::rc(), naming(SrqId(5)));
    plain(&mut Rig::uc(), naming(SrqId(5)));
}

#[test]
fn what_makes_no_sense_is_not_made() {
    // proves: xrc-10
    let mut node = Node::new("10.0.0.1");
    node.create_cq(XRC_CQ, 64);
    let xrc = xrc_srq(&mut node, PD);
    let basic = node.create_srq(16, 0);
    let with = |spec: QpSpec, srq| QpSpec {
        srq: Some(srq),
        ..spec
    };
    let homeless = QpSpec {
        xrcd: None,
        ..target()
    };
    let housed = QpSpec {
        xrcd: Some(XRCD),
        ..QpSpec::default()
    };
    for spec in [
        homeless,
        housed,
        with(QpSpec::default(), xrc),
        with(target(), xrc),
        with(target(), basic),
        with(initiator(), basic),
    ] {
        let cmd = node.prepare(&spec);
        assert_eq!(
            node.refused(CqpCmd::CreateQp(cmd)),
            CqpMinor::INVALID_COMMAND
        );
    }
    let lost = XrcHome {
        xrcd: XRCD,
        cq: CqId(77),
    };
    let cmd = node.prepare_srq(16, 0, PD, Some(lost));
    assert_eq!(node.refused(CqpCmd::CreateSrq(cmd)), CqpMinor::INVALID_ID);
    assert_eq!(node.refused(CqpCmd::DestroyCq(XRC_CQ)), CqpMinor::IN_USE);
    node.ok(CqpCmd::DestroySrq(xrc));
    node.ok(CqpCmd::DestroyCq(XRC_CQ));
}

#[test]
fn the_initiator_learns_of_a_refusal() {
    let (a, mut b) = (Node::new("10.0.0.1"), Node::new("10.0.0.2"));
    b.create_cq(XRC_CQ, 64);
    let mut pair = Pair::join(a, b, &initiator(), &target());
    let sge = pair.ma.sge(0, 8);
    send(&mut pair.a, pair.qa, SrqId(3), &[sge], None);
    pair.run();
    assert_eq!(brief_wcs(&pair.a.poll()), [('s', 0, Some(10))]);
    assert_eq!(pair.a.state(pair.qa), QpState::Err);
    assert_eq!(pair.b.state(pair.qb), QpState::Err);
}

/// What is right about a random request, so that most of it is looked at.
fn random_request(rng: &mut fastrand::Rng, psn: u32, rig: &Rig, srqs: [SrqId; 4]) -> Frame {
    let data = vec![rng.u8(..); [0, 8, MTU - 4, MTU, MTU + 4][rng.usize(..5)]];
    let (addr, rkey) = (rig.mem.at(rng.u64(..64) * 8), rig.mem.rkey());
    let frame = match rng.u8(..9) {
        0 => send_only(psn, &data),
        1 => send_first(psn, &data),
        2 => send_middle(psn, &data),
        3 => send_last(psn, &data),
        4 => write_only(psn, addr, rkey, &data),
        5 => write_first(psn, addr, rkey, rng.u32(..5000), &data),
        6 => read_request(psn, addr, rkey, rng.u32(..5000)),
        7 => fetch_add(psn, addr, rkey, 1),
        _ => ack(psn),
    };
    let mut frame = to(srqs[rng.usize(..4)], frame);
    if rng.u8(..40) == 0 {
        frame.head.xrceth = None;
    }
    frame.ack()
}

#[test]
fn anything_may_arrive_at_a_target() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut rig, mut first, mut second) = rig();
    let basic = rig.node.create_srq(16, 0);
    let quiet = rig.node.connected(&QpSpec {
        peer: "10.0.0.3".parse().unwrap(),
        ..QpSpec::default()
    });
    let (mut psn, mut served) = (RQ_PSN, 0);
    for _ in 0..5000 {
        if rig.state() == QpState::Err {
            rig.node.ok(CqpCmd::DestroyQp(rig.qp));
            for srq in [first, second] {
                rig.node.ok(CqpCmd::DestroySrq(srq));
            }
            (first, second) = (xrc_srq(&mut rig.node, PD), xrc_srq(&mut rig.node, PD));
            for n in 0..80 {
                let sge = rig.mem.sge(4096, 8192);
                rig.node.post_srq([first, second][n % 2], &[sge]);
            }
            rig.qp = rig.node.connected(&target());
            psn = RQ_PSN;
        }
        let mostly = if rng.u8(..40) == 0 { basic } else { first };
        let frame = random_request(&mut rng, psn, &rig, [first, first, mostly, second]);
        let heard = rig.hear(frame);
        if answers(&heard).iter().any(|answer| answer.2 & 0xe0 == 0) {
            psn += rng.u32(..5).min(1);
            served += 1;
        }
        rig.node.poll_cq(XRC_CQ);
        rig.aes();
        rig.node.interrupts();
    }
    assert!(served > 200, "most of it was looked at: {served}");
    assert_eq!(rig.node.state(quiet), QpState::Rts);
}

#[test]
fn the_type_is_the_contexts() {
    let mut node = Node::new("10.0.0.1");
    node.create_cq(XRC_CQ, 64);
    let spec = QpSpec {
        kind: HwQpType::XRC_RECV,
        ..target()
    };
    let qpn = node.connected(&spec);
    assert_eq!(node.state(qpn), QpState::Rts);
}
