//! Completion queues: arming, events, overrun; the asynchronous event queue. [E810 3.11, 4, 5]

use srdma_core::hca::board::Doorbell;
use srdma_core::hw::{AeCode, CqpCmd};
use srdma_core::num::{CqId, MsixVector};
use srdma_core::obj::arm::ArmModel;
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::node::{CQ, Node, QpSpec};
use srdma_tests::race;
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{read_request, send_only, write_only, write_only_imm};

const COOKIE: u64 = 0x1000;

/// Takes one SEND.
fn receive(rig: &mut Rig, n: u32, solicited: bool) {
    rig.recv(0, 64);
    let frame = send_only(RQ_PSN + n, b"x").ack();
    rig.tell(if solicited { frame.solicited() } else { frame });
}

#[test]
fn an_armed_queue_tells_once() {
    // proves: e810-20, e810-23
    let mut rig = Rig::rc();
    receive(&mut rig, 0, false);
    assert!(
        rig.node.interrupts().is_empty() && rig.node.ces().is_empty(),
        "not armed"
    );
    rig.node.arm(CQ, false);
    assert!(
        rig.node.interrupts().is_empty(),
        "what is there raises nothing"
    );
    assert!(rig.node.ces().is_empty());
    rig.node.arm(CQ, false);
    receive(&mut rig, 1, false);
    receive(&mut rig, 2, false);
    assert_eq!(rig.node.interrupts(), [1]);
    assert_eq!(rig.node.ces(), [COOKIE], "once, however often it was armed");
}

#[test]
fn only_what_is_solicited_or_wrong_meets_a_solicited_arm() {
    // proves: roce-119, e810-18
    let mut rig = Rig::rc();
    rig.node.arm(CQ, true);
    receive(&mut rig, 0, false);
    assert!(rig.node.interrupts().is_empty() && rig.node.ces().is_empty());
    receive(&mut rig, 1, true);
    assert_eq!(rig.node.ces(), [COOKIE]);
    assert_eq!(rig.node.interrupts(), [1]);
    rig.node.hca.ring(rig.node.now, Doorbell::CqAck(CQ));
    rig.node.arm(CQ, true);
    rig.send(0, 4);
    rig.transmit();
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    assert_eq!(rig.node.ces(), [COOKIE], "an error");
    // An arm for any completion is met by a solicited one too.
    let mut rig = Rig::rc();
    rig.node.arm(CQ, true);
    rig.node.arm(CQ, false);
    receive(&mut rig, 0, true);
    assert_eq!(rig.node.ces(), [COOKIE]);
}

#[test]
fn a_write_meets_a_solicited_arm_only_with_immediate_and_mark() {
    // proves: event-14
    let mut rig = Rig::rc();
    let (addr, rkey) = (rig.mem.at(0), rig.mem.rkey());
    rig.node.arm(CQ, true);
    rig.recv(0, 64);
    rig.recv(0, 64);
    rig.tell(write_only(RQ_PSN, addr, rkey, b"x").solicited().ack());
    rig.tell(write_only_imm(RQ_PSN + 1, addr, rkey, b"x", [0; 4]).ack());
    assert!(rig.node.interrupts().is_empty() && rig.node.ces().is_empty());
    let marked = write_only_imm(RQ_PSN + 2, addr, rkey, b"x", [0; 4]);
    rig.tell(marked.solicited().ack());
    assert_eq!(rig.node.interrupts(), [1]);
    assert_eq!(rig.node.ces(), [COOKIE]);
    assert_eq!(rig.done().len(), 2, "the plain WRITE completes nowhere");
}

#[test]
fn an_event_waits_until_the_last_is_acknowledged() {
    // proves: e810-21, e810-29
    let mut rig = Rig::rc();
    rig.node.arm(CQ, false);
    receive(&mut rig, 0, false);
    rig.node.arm(CQ, false);
    receive(&mut rig, 1, false);
    rig.node.interrupts();
    assert_eq!(rig.node.ces(), [COOKIE], "the second waits");
    rig.node.hca.ring(rig.node.now, Doorbell::CqAck(CQ));
    assert_eq!(
        rig.node.ces(),
        [COOKIE],
        "the arm before the acknowledgement counted"
    );
    rig.node.hca.ring(rig.node.now, Doorbell::CqAck(CQ));
    assert!(rig.node.ces().is_empty());
}

#[test]
fn a_vector_fires_again_when_it_is_enabled() {
    // proves: e810-28
    let mut rig = Rig::rc();
    rig.node.arm(CQ, false);
    receive(&mut rig, 0, false);
    assert_eq!(rig.node.interrupts(), [1]);
    rig.node.hca.ring(rig.node.now, Doorbell::CqAck(CQ));
    rig.node.arm(CQ, false);
    receive(&mut rig, 1, false);
    assert!(
        rig.node.interrupts().is_empty(),
        "its handler has not said that it is done"
    );
    rig.node
        .hca
        .ring(rig.node.now, Doorbell::Irq(MsixVector(1)));
    assert_eq!(rig.node.interrupts(), [1], "what came meanwhile");
    assert_eq!(rig.node.ces(), [COOKIE, COOKIE]);
}

#[test]
fn an_overrun_ends_the_queue_pairs_of_the_queue() {
    // proves: roce-140, e810-25
    let mut node = Node::new("10.0.0.1");
    let small = CqId(7);
    node.create_cq(small, 4);
    let spec = QpSpec {
        recv_cq: small,
        ..QpSpec::default()
    };
    let neighbour = node.connected(&spec);
    let other = node.connected(&QpSpec::default());
    let mut rig = Rig::on(node, &spec);
    rig.node.recv(neighbour, &[]);
    let mut n = 0;
    while rig.state() == QpState::Rts {
        receive(&mut rig, n, false);
        n += 1;
        assert!(n < 10, "four slots hold no ten completions");
    }
    let heard = rig.transmit();
    assert!(
        heard.iter().all(|h| h.psn() < RQ_PSN + n - 1),
        "what is lost is not acknowledged"
    );
    rig.node.interrupts();
    let events = rig.node.aes();
    let cq_errors: Vec<_> = events
        .iter()
        .filter(|event| event.code == AeCode::CQ_OPERATION_ERROR)
        .collect();
    assert_eq!(cq_errors.len(), 1, "{events:?}");
    assert_eq!((cq_errors[0].id, cq_errors[0].context), (7, 0x7000));
    assert!(events.iter().any(|event| {
        event.code == AeCode::LOCAL_QP_CATASTROPHIC && event.id == rig.qp.value()
    }));
    assert_eq!(
        rig.node.state(neighbour),
        QpState::Err,
        "it completes there too"
    );
    assert_eq!(rig.node.state(other), QpState::Rts);
    let left = rig.node.cqes(small);
    assert_eq!(
        left.len(),
        usize::try_from(n - 1).unwrap(),
        "what is there can be polled"
    );
    rig.node.advance(1_000_000_000);
    assert!(
        rig.node.cqes(small).is_empty() && rig.aes().is_empty(),
        "told once"
    );
}

#[test]
fn a_destroyed_queue_writes_no_event() {
    // proves: e810-22
    let mut node = Node::new("10.0.0.1");
    let id = CqId(9);
    node.create_cq(id, 64);
    let spec = QpSpec {
        recv_cq: id,
        ..QpSpec::default()
    };
    let mut rig = Rig::on(node, &spec);
    rig.node.arm(id, false);
    rig.node.refused(CqpCmd::DestroyCq(id));
    rig.node.ok(CqpCmd::DestroyQp(rig.qp));
    rig.node.ok(CqpCmd::DestroyCq(id));
    assert!(rig.node.ces().is_empty());
    rig.node.hca.ring(rig.node.now, Doorbell::Cq(id));
    rig.node.hca.ring(rig.node.now, Doorbell::CqAck(id));
    assert!(rig.node.ces().is_empty());
}

#[test]
fn lost_events_are_told_by_the_next() {
    // proves: e810-24
    let mut node = Node::new("10.0.0.1");
    let mut raised = 0;
    // Each queue pair in RTR tells of its first request.
    while node.hca.counters().aeqes_lost == 0 {
        let qp = node.create(&QpSpec::default());
        node.climb(qp, QpState::Rtr);
        let peer = "10.0.0.2:49443".parse().unwrap();
        node.inject(
            peer,
            qp,
            &read_request(RQ_PSN, 0, srdma_core::num::Rkey(0), 0),
        );
        assert_eq!(
            node.transmit().len(),
            1,
            "no queue pair waits for the event queue"
        );
        raised += 1;
        assert!(raised < 2000);
    }
    let mut events = Vec::new();
    loop {
        let some = node.aes();
        if some.is_empty() {
            break;
        }
        events.extend(some);
    }
    assert_eq!(events.len(), raised - 1);
    assert!(events.iter().all(|event| !event.overflow));
    let qp = node.create(&QpSpec::default());
    node.climb(qp, QpState::Rtr);
    let peer = "10.0.0.2:49443".parse().unwrap();
    node.inject(
        peer,
        qp,
        &read_request(RQ_PSN, 0, srdma_core::num::Rkey(0), 0),
    );
    assert!(node.aes()[0].overflow);
}

#[test]
fn the_first_request_before_rts_is_told_once() {
    // proves: event-51
    let mut node = Node::new("10.0.0.1");
    let qp = node.create(&QpSpec::default());
    node.climb(qp, QpState::Rtr);
    let peer = "10.0.0.2:49443".parse().unwrap();
    for n in 0..3 {
        let request = read_request(RQ_PSN + n, 0, srdma_core::num::Rkey(0), 0);
        node.inject(peer, qp, &request);
    }
    let events = node.aes();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].code, AeCode::LLP_CONNECTION_ESTABLISHED);
    assert_eq!(node.state(qp), QpState::Rtr);
}

#[test]
fn rings_wrap_many_times() {
    // proves: e810-16, e810-6, e810-14
    let mut rig = Rig::rc();
    for n in 0..2000_u32 {
        receive(&mut rig, n, false);
        rig.send(0, 4);
        rig.transmit();
        rig.tell(srdma_tests::wire_dsl::ack(0x100 + n));
        let done = rig.done();
        assert_eq!(done, [('r', u64::from(n), None), ('s', u64::from(n), None)]);
    }
}

/// A short form of `tests/arm_race.rs`.
#[test]
fn no_event_is_lost_to_a_race() {
    // proves: event-19, e810-26
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for model in [ArmModel::Strict, ArmModel::Compare, ArmModel::Report] {
        let outcome = race::run(model, 30_000, seed);
        println!("{model:?}: {outcome:?}");
        assert!(outcome.events <= outcome.arms);
        assert!(outcome.sleeps > 0, "somebody slept, or this shows nothing");
    }
}
