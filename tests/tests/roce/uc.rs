//! The unreliable connection: messages arrive whole or not at all.      [RoCEv2 2.12, 3.2]

use srdma_core::hw::HwQpType;
use srdma_core::mem::Access;
use srdma_core::num::Rkey;
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::node::QpSpec;
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{
    brief, send_first, send_last, send_middle, send_only, uc, write_first, write_last, write_only,
    write_only_imm,
};

const MTU: usize = 1024;

#[test]
fn requests_complete_when_they_have_left() {
    // proves: roce-77
    let mut rig = Rig::uc();
    rig.send(0, 4);
    rig.send(0, 3000);
    assert!(rig.done().is_empty(), "nothing has left");
    assert!(rig.transmit_some(0).is_empty());
    assert!(rig.done().is_empty(), "it was refused");
    let heard = rig.transmit();
    assert_eq!(
        brief(&heard),
        [
            (0x24, SQ_PSN),
            (0x20, SQ_PSN + 1),
            (0x21, SQ_PSN + 2),
            (0x22, SQ_PSN + 3)
        ]
    );
    assert!(heard.iter().all(|h| !h.head.bth.ack_req), "nobody answers");
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None)]);
    rig.node.advance(10_000_000_000);
    assert!(rig.transmit().is_empty(), "nothing is sent again");
}

#[test]
fn what_is_held_stays_and_acknowledged_services_go_on() {
    let mut rig = Rig::uc();
    rig.send(0, 4);
    rig.node.hold_unreliable(true);
    for _ in 0..3 {
        assert!(rig.transmit().is_empty());
    }
    assert!(rig.done().is_empty());
    rig.node.hold_unreliable(false);
    assert_eq!(brief(&rig.transmit()), [(0x24, SQ_PSN)]);
    assert_eq!(rig.done(), [('s', 0, None)]);
    let mut reliable = Rig::rc();
    reliable.node.hold_unreliable(true);
    reliable.send(0, 4);
    assert_eq!(brief(&reliable.transmit()), [(0x04, SQ_PSN)]);
}

#[test]
fn messages_arrive() {
    let mut rig = Rig::uc();
    rig.recv(0, 4096);
    rig.recv(4096, 64);
    let data = srdma_tests::node::pattern(2100, 3);
    assert!(rig.hear(uc(send_first(RQ_PSN, &data[..MTU]))).is_empty());
    rig.tell(uc(send_middle(RQ_PSN + 1, &data[MTU..2 * MTU])));
    rig.tell(uc(send_last(RQ_PSN + 2, &data[2 * MTU..]).ack()));
    assert!(rig.transmit().is_empty(), "no acknowledgement ever");
    assert_eq!(rig.poll()[0].cqe.len, 2100);
    assert_eq!(rig.mem.read(0, 2100), data);
    let (at, key) = (rig.mem.at(8192), rig.mem.rkey());
    rig.tell(uc(write_only(RQ_PSN + 3, at, key, b"write")));
    assert_eq!(rig.mem.read(8192, 5), b"write");
    rig.tell(uc(write_only_imm(
        RQ_PSN + 4,
        at,
        key,
        b"again",
        [1, 2, 3, 4],
    )));
    let cqe = rig.poll()[0].cqe;
    assert_eq!((cqe.len, cqe.imm), (5, Some(0x0102_0304)));
}

#[test]
fn a_gap_drops_the_message_and_keeps_the_receive() {
    // proves: roce-126
    let mut rig = Rig::uc();
    rig.recv(0, 4096);
    rig.tell(uc(send_first(RQ_PSN, &[1; MTU])));
    rig.tell(uc(send_last(RQ_PSN + 2, &[2; 8])));
    assert!(rig.done().is_empty());
    // The rest of a message whose start is missing.
    rig.tell(uc(send_middle(RQ_PSN + 3, &[3; MTU])));
    rig.tell(uc(send_last(RQ_PSN + 4, &[3; 8])));
    assert!(rig.done().is_empty());
    // Far away, and back again: every start is taken.
    rig.tell(uc(send_only(RQ_PSN + 1000, b"hello")));
    assert_eq!(rig.done(), [('r', 0, None)], "the same receive");
    assert_eq!(rig.mem.read(0, 5), b"hello");
    rig.recv(0, 4096);
    rig.tell(uc(send_only(RQ_PSN, b"older")));
    assert_eq!(rig.done(), [('r', 1, None)]);
    assert_eq!(rig.state(), QpState::Rts);
    assert!(rig.transmit().is_empty() && rig.aes().is_empty());
}

#[test]
fn broken_messages_are_dropped_in_silence() {
    // Rows 24 and 25 of the fault table.                                   [RoCEv2 3.9]
    let mut rig = Rig::uc();
    rig.recv(0, 2048);
    let (at, key) = (rig.mem.at(8192), rig.mem.rkey());
    let frames = vec![
        vec![send_middle(0, &[0; MTU])],
        vec![send_last(0, b"x")],
        vec![send_first(0, &[0; MTU]), write_last(0, b"x")],
        vec![send_first(0, &[0; 100])],
        vec![send_first(0, &[0; MTU]), send_middle(0, &[0; 4])],
        vec![send_first(0, &[0; MTU]), send_last(0, b"")],
        vec![send_only(0, &[0; MTU + 4])],
        vec![
            send_first(0, &[0; MTU]),
            send_middle(0, &[0; MTU]),
            send_last(0, b"xxxx"),
        ],
        vec![write_first(0, at, key, 2000, &[0; MTU]), send_last(0, b"x")],
        vec![
            write_first(0, at, key, 2000, &[0; MTU]),
            write_last(0, b"x"),
        ],
        vec![write_only(0, at, Rkey(0x5a), b"x")],
        vec![write_only(0, 0, key, b"x")],
        vec![write_only_imm(0, at, Rkey(0x5a), b"x", [0; 4])],
        vec![write_first(0, at, key, (1 << 31) + 1, &[0; MTU])],
    ];
    let mut psn = RQ_PSN;
    for message in frames {
        for frame in message {
            let mut frame = uc(frame);
            frame.head.bth.psn = srdma_core::num::Psn::new(psn);
            rig.tell(frame);
            psn += 1;
        }
        assert!(rig.transmit().is_empty() && rig.done().is_empty());
        assert_eq!(rig.state(), QpState::Rts, "{psn:#x}");
    }
    assert!(rig.aes().is_empty());
    assert_eq!(rig.mem.read(8192 + MTU, 4), [0; 4]);
    rig.tell(uc(send_only(psn, b"still there")));
    assert_eq!(rig.done(), [('r', 0, None)], "one receive served them all");
}

#[test]
fn without_a_receive_the_message_is_dropped() {
    let mut rig = Rig::uc();
    rig.tell(uc(send_first(RQ_PSN, &[1; MTU])));
    rig.recv(0, 2048);
    rig.tell(uc(send_last(RQ_PSN + 1, b"x")));
    assert!(rig.done().is_empty(), "its start is missing");
    rig.tell(uc(send_only(RQ_PSN + 2, b"x")));
    assert_eq!(rig.done(), [('r', 0, None)]);
}

#[test]
fn writes_need_the_right() {
    let mut rig = Rig::with(&QpSpec {
        kind: HwQpType::UC,
        access: Access::LOCAL_READ,
        ..QpSpec::default()
    });
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    rig.tell(uc(write_only(RQ_PSN, at, key, b"x")));
    assert_eq!(rig.mem.read(0, 1), [0]);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn a_local_fault_stops_the_send_queue_only() {
    // proves: roce-82
    for kind in [HwQpType::UC, HwQpType::UD] {
        let mut rig = Rig::with(&QpSpec {
            kind,
            ..QpSpec::default()
        });
        let ah = rig.node.ah(rig.peer.ip());
        let mut sge = rig.mem.sge(0, 4);
        sge.lkey.0 ^= 1;
        rig.recv(0, 64);
        if kind == HwQpType::UC {
            rig.node.send(rig.qp, &[sge]);
            rig.send(0, 4);
        } else {
            rig.node.send_ud(rig.qp, ah, 0x22, 0x1234_5678, &[sge]);
            rig.node
                .send_ud(rig.qp, ah, 0x22, 0x1234_5678, &[rig.mem.sge(0, 4)]);
        }
        assert!(rig.transmit().is_empty());
        assert_eq!(rig.done(), [('s', 0, Some(2)), ('s', 1, Some(1))]);
        assert_eq!(rig.state(), QpState::Sqe);
        assert_eq!(rig.node.aes()[0].source.0, 5);
        // Posting goes on, and is flushed; receiving goes on.
        rig.node.send(rig.qp, &[]);
        assert_eq!(rig.done(), [('s', 2, Some(1))]);
        if kind == HwQpType::UC {
            rig.tell(uc(send_only(RQ_PSN, b"hello")));
            assert_eq!(rig.done(), [('r', 0, None)]);
        }
        assert!(rig.node.modify(rig.qp, QpState::Rts, AttrMask::NONE));
        if kind == HwQpType::UC {
            rig.send(0, 4);
        } else {
            rig.node
                .send_ud(rig.qp, ah, 0x22, 0x1234_5678, &[rig.mem.sge(0, 4)]);
        }
        assert_eq!(rig.transmit().len(), 1, "it sends again");
        assert_eq!(rig.done(), [('s', 3, None)]);
    }
}

#[test]
fn operations_that_need_an_answer_are_no_requests() {
    let mut rig = Rig::uc();
    rig.node.read(rig.qp, &[rig.mem.sge(0, 8)], 0x1000, Rkey(1));
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 0, Some(4))], "LOC_QP_OP");
    assert_eq!(rig.state(), QpState::Sqe);
}
