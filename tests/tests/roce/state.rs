//! States: what a modify takes, draining, errors, reset.                [RoCEv2 2.13, 3.10, 4.1]

use srdma_core::hw::cqp::{FlushWqes, RegMr};
use srdma_core::hw::wqe::{SendWr, WqeBuf, WrFlags};
use srdma_core::hw::{AeCode, CqpCmd, FlushCode, HwQpType};
use srdma_core::mem::{Access, HostBuf};
use srdma_core::num::Rkey;
use srdma_core::qp::attr::{AttrMask, QpState, QpType, transition};
use srdma_core::wire::NakCode;
use srdma_tests::node::{Node, PD, QpSpec, required};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{
    ack, answers, brief, fetch_add, nak, read_response, send_first, send_last, send_only,
};

/// Takes a fresh queue pair to `state`.
fn at(node: &mut Node, spec: &QpSpec, state: QpState) -> srdma_core::num::Qpn {
    let qp = node.create(spec);
    match state {
        QpState::Reset => {}
        QpState::Init | QpState::Rtr | QpState::Rts => node.climb(qp, state),
        QpState::Sqd => {
            node.connect(qp);
            assert!(node.modify(qp, QpState::Sqd, AttrMask::NONE));
        }
        QpState::Sqe => {
            node.connect(qp);
            let mut wqe = WqeBuf::new();
            wqe.fetch_add(
                WrFlags::SIGNALED,
                (0, srdma_core::num::Lkey(0)),
                Default::default(),
                1,
            );
            node.post(qp, &wqe);
            node.transmit();
        }
        QpState::Err => {
            node.connect(qp);
            assert!(node.modify(qp, QpState::Err, AttrMask::NONE));
        }
    }
    assert_eq!(node.state(qp), state);
    qp
}

#[test]
fn a_modify_takes_what_the_table_says_and_nothing_else() {
    // proves: roce-129, roce-130, roce-131
    let mut node = Node::new("10.0.0.1");
    for (kind, name) in [
        (HwQpType::RC, QpType::Rc),
        (HwQpType::UC, QpType::Uc),
        (HwQpType::UD, QpType::Ud),
    ] {
        let spec = QpSpec {
            kind,
            ..QpSpec::default()
        };
        for from in QpState::ALL {
            if from == QpState::Sqe && kind == HwQpType::RC {
                continue;
            }
            for to in QpState::ALL {
                let qp = at(&mut node, &spec, from);
                let row = transition(name, from, to);
                for (bit, what) in AttrMask::ALL {
                    let (needed, allowed) = row.map_or((AttrMask::NONE, AttrMask::STATE), |row| {
                        (
                            row.required,
                            row.required.with(row.optional).with(AttrMask::STATE),
                        )
                    });
                    let mask = if needed.contains(*bit) {
                        needed.without(*bit)
                    } else if allowed.contains(*bit) {
                        continue;
                    } else {
                        needed.with(*bit)
                    };
                    assert!(!node.modify(qp, to, mask), "{name} {from} {to} {what}");
                    assert_eq!(node.state(qp), from, "a refusal changes nothing");
                }
                let mask = row.map_or(AttrMask::NONE, |row| row.required);
                assert_eq!(
                    node.modify(qp, to, mask),
                    row.is_some(),
                    "{name} {from} {to}"
                );
                assert_eq!(node.state(qp), if row.is_some() { to } else { from });
                node.ok(CqpCmd::DestroyQp(qp));
            }
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    type Spoil = fn(&mut QpSpec);
    let rows: [(QpState, QpState, Spoil); 10] = [
        (QpState::Init, QpState::Rtr, |s| s.mtu = 8192),
        (QpState::Init, QpState::Rtr, |s| s.mtu = 1000),
        (QpState::Init, QpState::Rtr, |s| s.mtu = 0),
        (QpState::Init, QpState::Rtr, |s| {
            s.peer = "0.0.0.0".parse().unwrap();
        }),
        (QpState::Init, QpState::Rtr, |s| {
            s.peer = "fd00::2".parse().unwrap();
        }),
        (QpState::Init, QpState::Rtr, |s| s.ird = 129),
        (QpState::Rtr, QpState::Rts, |s| s.ord = 129),
        (QpState::Rtr, QpState::Rts, |s| s.timeout = 32),
        (QpState::Rtr, QpState::Rts, |s| s.retry_cnt = 8),
        (QpState::Rtr, QpState::Rts, |s| s.ord = 255),
    ];
    for (n, (from, to, spoil)) in rows.into_iter().enumerate() {
        let mut node = Node::new("10.0.0.1");
        let spec = QpSpec::default();
        let qp = at(&mut node, &spec, from);
        spoil(node.spec_mut(qp));
        let mask = required(&spec, from, to);
        assert!(!node.modify(qp, to, mask), "row {n}");
        assert_eq!(node.state(qp), from);
        *node.spec_mut(qp) = QpSpec {
            qpn: qp.value(),
            ..spec
        };
        assert!(node.modify(qp, to, mask), "row {n}");
    }
}

#[test]
fn rights_to_write_need_the_local_one() {
    // proves: roce-134
    let mut node = Node::new("10.0.0.1");
    for (access, fine) in [
        (Access::REMOTE_WRITE, false),
        (Access::REMOTE_ATOMIC, false),
        (Access::REMOTE_READ, true),
        (Access::REMOTE_WRITE.union(Access::LOCAL_WRITE), true),
    ] {
        let buf = HostBuf::new(64).unwrap();
        let pbl = node.hca.host_mut().insert_region(buf.range());
        let reg = RegMr {
            stag: node.fresh_id() << 8,
            pd: PD,
            va: buf.addr(),
            len: 64,
            access,
            pbl,
        };
        assert_eq!(node.cmd(CqpCmd::RegMr(reg)).is_ok(), fine, "{access:?}");
    }
}

#[test]
fn receives_posted_in_init_are_used() {
    // proves: roce-132
    let mut node = Node::new("10.0.0.1");
    let mem = node.mem(4096);
    let qp = at(&mut node, &QpSpec::default(), QpState::Init);
    node.recv(qp, &[mem.sge(0, 64)]);
    for (from, to) in [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)] {
        let mask = required(&QpSpec::default(), from, to);
        assert!(node.modify(qp, to, mask));
    }
    let peer = "10.0.0.2:49443".parse().unwrap();
    node.inject(peer, qp, &send_only(RQ_PSN, b"early").ack());
    assert_eq!(node.poll().len(), 1);
    assert_eq!(mem.read(0, 5), b"early");
}

// ---- draining --------------------------------------------------------------------------

#[test]
fn a_draining_queue_ends_what_it_began_and_begins_nothing() {
    // proves: roce-81
    let mut rig = Rig::rc();
    // proves: event-52
    let big = rig.node.mem(1 << 19);
    rig.node.send(rig.qp, &[big.sge(0, 1 << 19)]);
    rig.send(0, 4);
    let first = rig.transmit();
    assert!(first.len() < 512, "the window ends it: {}", first.len());
    assert!(
        rig.node
            .modify(rig.qp, QpState::Sqd, AttrMask::EN_SQD_ASYNC_NOTIFY)
    );
    let mut next = SQ_PSN + u32::try_from(first.len()).unwrap();
    while next < SQ_PSN + 512 {
        assert!(rig.aes().is_empty());
        let more = rig.hear(ack(next - 1));
        assert!(!more.is_empty(), "it goes on after {next:#x}");
        next += u32::try_from(more.len()).unwrap();
    }
    assert_eq!(next, SQ_PSN + 512);
    assert!(
        rig.hear(ack(next - 1)).is_empty(),
        "the other message stays"
    );
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert_eq!(rig.aes(), [AeCode::QP_SUSPEND_COMPLETE]);
    // Posting and receiving go on.
    rig.send(0, 4);
    assert!(rig.transmit().is_empty());
    rig.recv(0, 64);
    assert_eq!(rig.hear(send_only(RQ_PSN, b"x").ack()).len(), 1);
    rig.poll();
    assert!(rig.node.modify(rig.qp, QpState::Rts, AttrMask::NONE));
    assert_eq!(
        brief(&rig.transmit()),
        [(4, SQ_PSN + 512), (4, SQ_PSN + 513)]
    );
}

#[test]
fn a_request_that_waits_for_a_fence_has_not_begun() {
    // proves: roce-81
    let mut rig = Rig::rc();
    let (sge, qp) = (rig.mem.sge(0, 8), rig.qp);
    rig.node.read(qp, &[sge], 0x1000, Rkey(0x99));
    let mut wqe = WqeBuf::new();
    let wr = SendWr {
        flags: WrFlags {
            read_fence: true,
            ..WrFlags::SIGNALED
        },
        ..SendWr::default()
    };
    wqe.send(&wr, &[sge]).unwrap();
    rig.node.post(qp, &wqe);
    assert_eq!(rig.transmit().len(), 1);
    assert!(
        rig.node
            .modify(qp, QpState::Sqd, AttrMask::EN_SQD_ASYNC_NOTIFY)
    );
    let heard = rig.hear(read_response(SQ_PSN, true, true, &[0; 8]));
    assert!(heard.is_empty(), "no request begins: {:?}", brief(&heard));
    assert_eq!(rig.aes(), [AeCode::QP_SUSPEND_COMPLETE]);
    assert!(rig.node.modify(qp, QpState::Rts, AttrMask::NONE));
    assert_eq!(brief(&rig.transmit()), [(4, SQ_PSN + 1)]);
}

#[test]
fn a_draining_queue_sends_again_what_is_lost() {
    let mut rig = Rig::rc();
    rig.send(0, 3000);
    rig.transmit();
    assert!(rig.node.modify(rig.qp, QpState::Sqd, AttrMask::NONE));
    assert_eq!(rig.hear(nak(SQ_PSN, NakCode::PSN_SEQUENCE)).len(), 3);
    rig.tell(ack(SQ_PSN + 2));
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert!(rig.aes().is_empty(), "nobody asked to be told");
}

#[test]
fn an_empty_queue_drains_at_once() {
    let mut rig = Rig::rc();
    assert!(
        rig.node
            .modify(rig.qp, QpState::Sqd, AttrMask::EN_SQD_ASYNC_NOTIFY)
    );
    assert_eq!(rig.aes(), [AeCode::QP_SUSPEND_COMPLETE]);
}

// ---- errors ----------------------------------------------------------------------------

#[test]
fn an_error_by_command_flushes_both_queues_in_order() {
    // proves: roce-133, e810-8
    let mut rig = Rig::rc();
    for n in 0..3 {
        rig.recv(64 * n, 64);
        rig.send(0, 4);
    }
    rig.transmit();
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    let cqes = rig.node.cqes(srdma_tests::node::CQ);
    assert_eq!(cqes.len(), 2, "one entry a queue");
    for cqe in &cqes {
        assert_eq!(cqe.flush_code(), Some(FlushCode::GENERAL));
        // The receive ring has a stride of eight quanta.
        assert_eq!(cqe.wqe_index, if cqe.sq { 1 } else { 0 });
    }
    assert!(rig.aes().is_empty(), "the program knows");
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    assert!(
        rig.node.cqes(srdma_tests::node::CQ).is_empty(),
        "nothing more to say"
    );
    rig.node.advance(10_000_000_000);
    assert!(rig.transmit().is_empty(), "no timer runs");
}

#[test]
fn an_open_message_is_flushed_with_its_receive() {
    let mut rig = Rig::rc();
    rig.recv(0, 2048);
    rig.recv(2048, 2048);
    rig.tell(send_first(RQ_PSN, &[1; 1024]));
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    assert_eq!(rig.done(), [('r', 0, Some(1)), ('r', 1, Some(1))]);
}

#[test]
fn a_flush_by_command_says_what_it_found() {
    let flush = |rig: &mut Rig| {
        let cmd = FlushWqes {
            qpn: rig.qp,
            sq: Some(FlushCode::GENERAL),
            rq: Some(FlushCode::GENERAL),
            user_codes: true,
            ae: None,
        };
        let done = rig.node.cmd(CqpCmd::FlushWqes(cmd));
        (done.is_ok(), done.minor.0)
    };
    let mut rig = Rig::rc();
    assert!(!flush(&mut rig).0, "not while it works");
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    assert_eq!(flush(&mut rig), (true, 0));
    rig.recv(0, 64);
    assert_eq!(flush(&mut rig), (true, 2));
    let mut wqe = WqeBuf::new();
    wqe.nop(WrFlags::SIGNALED);
    rig.node.post_quietly(rig.qp, &wqe);
    assert_eq!(flush(&mut rig), (true, 3));
    rig.recv(0, 64);
    rig.node.post_quietly(rig.qp, &wqe);
    assert_eq!(flush(&mut rig).1, 4);
    assert_eq!(rig.done().len(), 4);
}

#[test]
fn an_error_ends_only_in_reset_and_reset_starts_over() {
    // proves: roce-131
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.hear(send_only(RQ_PSN, b"x").ack());
    rig.recv(0, 2048);
    rig.tell(send_first(RQ_PSN + 1, &[1; 1024]));
    rig.send(0, 3000);
    rig.transmit();
    rig.poll();
    assert!(rig.node.modify(rig.qp, QpState::Reset, AttrMask::NONE));
    assert!(rig.done().is_empty(), "no completion for what was posted");
    rig.node.advance(10_000_000_000);
    assert!(rig.transmit().is_empty());
    rig.node.connect(rig.qp);
    rig.recv(0, 64);
    let heard = rig.hear(send_only(RQ_PSN, b"y").ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x1f)]);
    assert_eq!(heard[0].msn(), Some(1), "counted anew");
    rig.send(0, 4);
    assert_eq!(brief(&rig.transmit()), [(4, SQ_PSN)]);
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done().len(), 2);
}

#[test]
fn a_destroyed_queue_pair_is_nobody() {
    let mut rig = Rig::rc();
    rig.send(0, 3000);
    rig.recv(0, 64);
    rig.tell(fetch_add(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 1));
    rig.tell(send_only(RQ_PSN + 1, b"x").ack());
    rig.node.ok(CqpCmd::DestroyQp(rig.qp));
    assert!(rig.transmit().is_empty(), "what was due is not sent");
    let gone = rig.qp;
    rig.poll();
    assert!(rig.hear(send_only(RQ_PSN + 2, b"x").ack()).is_empty());
    assert_eq!(rig.counter("unknown_qpn"), 1);
    rig.node.ring_sq(gone);
    rig.node.advance(10_000_000_000);
    // Another takes its place; it knows nothing of the old.
    rig.qp = rig.node.connected(&QpSpec::default());
    assert!(rig.transmit().is_empty());
    assert!(rig.hear(send_last(RQ_PSN, b"x"))[0].syndrome() == Some(0x61));
    rig.qp = gone;
    assert!(rig.hear(send_only(RQ_PSN, b"x").ack()).is_empty());
}

#[test]
fn a_batch_in_flight_survives_the_end_of_its_queue_pair() {
    for modify in [true, false] {
        let mut rig = Rig::rc();
        rig.send(0, 3000);
        rig.transmit();
        if modify {
            assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
        } else {
            rig.node.ok(CqpCmd::DestroyQp(rig.qp));
        }
        rig.tell(ack(SQ_PSN + 2));
        rig.tell(nak(SQ_PSN, NakCode::PSN_SEQUENCE));
        assert!(rig.transmit().is_empty());
    }
}
