//! Requests as the program posts them: fences, inline data, faults of its own. [RoCEv2 2.10, 2.11]

use srdma_core::hw::AeSource;
use srdma_core::hw::cqp::StagKind;
use srdma_core::hw::wqe::{ReadWr, RemoteAddr, SendWr, SqHeader, SqOp, WqeBuf, WrFlags};
use srdma_core::num::{PdId, Rkey};
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_core::wire::NakCode;
use srdma_tests::node::{ALL, QpSpec, pattern};
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, ack, atomic_ack, brief, nak, read_response};

fn psns(heard: &[Heard]) -> Vec<u32> {
    heard.iter().map(Heard::psn).collect()
}

fn send_wr(flags: WrFlags) -> SendWr {
    SendWr {
        flags,
        ..SendWr::default()
    }
}

/// A SEND of four bytes.
fn send(rig: &mut Rig, flags: WrFlags) {
    let mut wqe = WqeBuf::new();
    wqe.send(&send_wr(flags), &[rig.mem.sge(0, 4)]).unwrap();
    rig.node.post(rig.qp, &wqe);
}

fn read(rig: &mut Rig, flags: WrFlags) {
    let mut wqe = WqeBuf::new();
    let wr = ReadWr {
        flags,
        remote: RemoteAddr {
            addr: 0x1000,
            rkey: Rkey(0x99),
        },
        ..ReadWr::default()
    };
    wqe.read(&wr, &[rig.mem.sge(0, 8)]).unwrap();
    rig.node.post(rig.qp, &wqe);
}

#[test]
fn a_fence_waits_for_reads_and_atomics() {
    // proves: roce-64
    let fence = WrFlags {
        read_fence: true,
        ..WrFlags::SIGNALED
    };
    let mut rig = Rig::rc();
    send(&mut rig, WrFlags::SIGNALED);
    read(&mut rig, WrFlags::SIGNALED);
    let local = (rig.mem.at(64), rig.mem.lkey());
    rig.node.fetch_add(rig.qp, local, 0x1000, Rkey(0x99), 3);
    send(&mut rig, fence);
    send(&mut rig, WrFlags::SIGNALED);
    assert_eq!(psns(&rig.transmit()), [SQ_PSN, SQ_PSN + 1, SQ_PSN + 2]);
    assert!(
        rig.hear(read_response(SQ_PSN + 1, true, true, &[0; 8]))
            .is_empty()
    );
    let rest = rig.hear(atomic_ack(SQ_PSN + 2, 0));
    assert_eq!(psns(&rest), [SQ_PSN + 3, SQ_PSN + 4]);
    // A SEND before it does not hold it up.
    let mut rig = Rig::rc();
    send(&mut rig, WrFlags::SIGNALED);
    send(&mut rig, fence);
    assert_eq!(rig.transmit().len(), 2);
}

#[test]
fn a_local_fence_and_an_invalidate_wait_for_everything() {
    // proves: roce-65
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    send(&mut rig, WrFlags::SIGNALED);
    let mut wqe = WqeBuf::new();
    wqe.local_invalidate(WrFlags::SIGNALED, window);
    rig.node.post(rig.qp, &wqe);
    send(&mut rig, WrFlags::SIGNALED);
    assert_eq!(
        psns(&rig.transmit()),
        [SQ_PSN],
        "the key may still be in use"
    );
    let heard = rig.hear(ack(SQ_PSN));
    assert_eq!(psns(&heard), [SQ_PSN + 1], "no number for local work");
    rig.tell(ack(SQ_PSN + 1));
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None), ('s', 2, None)]);

    let mut rig = Rig::rc();
    send(&mut rig, WrFlags::SIGNALED);
    send(
        &mut rig,
        WrFlags {
            local_fence: true,
            ..WrFlags::SIGNALED
        },
    );
    assert_eq!(psns(&rig.transmit()), [SQ_PSN]);
    assert_eq!(psns(&rig.hear(ack(SQ_PSN))), [SQ_PSN + 1]);
}

#[test]
fn inline_data_is_in_the_request() {
    // proves: roce-68
    let mut rig = Rig::rc();
    let mut wqe = WqeBuf::new();
    for len in [0, 1, 8, 9, 39, 40, 70, 101] {
        let mut buffer = pattern(len, 1);
        wqe.send_inline(&send_wr(WrFlags::SIGNALED), &buffer)
            .unwrap();
        rig.node.post_quietly(rig.qp, &wqe);
        buffer.fill(0xee);
    }
    rig.node.ring_sq(rig.qp);
    let heard = rig.transmit();
    for (len, one) in [0, 1, 8, 9, 39, 40, 70, 101].into_iter().zip(heard) {
        assert_eq!(one.payload, pattern(len, 1), "{len} bytes");
    }
}

#[test]
fn messages_of_no_bytes_need_neither_memory_nor_key() {
    // proves: roce-69
    let mut rig = Rig::rc();
    rig.node.send(rig.qp, &[]);
    rig.node.write(rig.qp, &[], 0xdead, Rkey(0x0bad_0bad));
    rig.node.read(rig.qp, &[], 0xdead, Rkey(0x0bad_0bad));
    let heard = rig.transmit();
    assert_eq!(
        brief(&heard),
        [(4, SQ_PSN), (0x0a, SQ_PSN + 1), (0x0c, SQ_PSN + 2)]
    );
    assert!(heard.iter().all(|h| h.payload.is_empty()));
    rig.tell(ack(SQ_PSN + 1));
    rig.tell(read_response(SQ_PSN + 2, true, true, b""));
    assert_eq!(rig.done().len(), 3);
}

#[test]
fn a_local_key_that_does_not_fit_ends_the_requester() {
    // proves: e810-34
    let mut rig = Rig::rc();
    let other = rig.node.mem_with(4096, ALL, PdId(9));
    let cases = [
        (rig.mem.sge(64 * 1024 - 2, 4), 0x108),
        (other.sge(0, 4), 0x105),
        (
            srdma_core::hw::Sge {
                lkey: srdma_core::num::Lkey(rig.mem.stag ^ 3),
                ..rig.mem.sge(0, 4)
            },
            0x106,
        ),
    ];
    for (bad, code) in cases {
        rig.renew();
        rig.send(0, 4);
        rig.node.send(rig.qp, &[bad]);
        rig.send(0, 4);
        assert_eq!(psns(&rig.transmit()), [SQ_PSN], "what was before leaves");
        assert!(rig.done().is_empty(), "its turn to fail comes after");
        rig.tell(ack(SQ_PSN));
        assert_eq!(
            rig.done(),
            [('s', 0, None), ('s', 1, Some(2)), ('s', 2, Some(1))]
        );
        assert_eq!(rig.state(), QpState::Err);
        let event = rig.node.aes()[0];
        assert_eq!((event.code.0, event.source), (code, AeSource::SQ));
    }
}

#[test]
fn a_request_that_makes_no_sense_ends_the_requester() {
    let header = |op: SqOp| SqHeader::ZERO.with_op(op).with_signaled(true).bits();
    for op in [0x02, 0x07, 0x09, 0x0b, 0x13, 0x1f, 0x30, 0x3e, 0x3f] {
        let mut rig = Rig::rc();
        let mut wqe = WqeBuf::new();
        wqe.nop(WrFlags::SIGNALED);
        let index = rig.node.post_quietly(rig.qp, &wqe);
        let words = rig.node.sq_words(rig.qp);
        words.store(4 * index as usize + 3, header(SqOp(op)) | 1 << 63);
        rig.node.ring_sq(rig.qp);
        assert!(rig.transmit().is_empty());
        assert_eq!(rig.done(), [('s', 0, Some(4))], "{op:#x}");
        let event = rig.node.aes()[0];
        assert_eq!(
            (event.code.0, event.source),
            (0x20a, AeSource::SQ),
            "{op:#x}"
        );
    }
}

#[test]
fn a_bind_that_fails_ends_the_requester() {
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    let mut wqe = WqeBuf::new();
    let bind = srdma_core::mem::Bind {
        window,
        parent: rig.mem.stag ^ 1,
        va: rig.mem.at(0),
        len: 64,
        access: srdma_core::mem::Access::REMOTE_READ,
        zero_based: false,
        type1: false,
    };
    wqe.bind_mw(WrFlags::SIGNALED, &bind);
    rig.node.post(rig.qp, &wqe);
    rig.transmit();
    assert_eq!(rig.done(), [('s', 0, Some(9))], "MW_BIND");
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn a_nop_completes_and_padding_does_not() {
    // proves: e810-15
    let mut rig = Rig::rc();
    let mut wqe = WqeBuf::new();
    for _ in 0..3 {
        // Five quanta each: three of them do not fit the chunks without padding.
        wqe.send_inline(&send_wr(WrFlags::SIGNALED), &[1; 101])
            .unwrap();
        rig.node.post(rig.qp, &wqe);
        wqe.nop(WrFlags::SIGNALED);
        rig.node.post(rig.qp, &wqe);
    }
    rig.transmit();
    rig.tell(ack(SQ_PSN + 2));
    let numbers: Vec<u64> = rig.poll().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_did_not_leave_is_sent_again_in_full() {
    // proves: roce-40
    let mut rig = Rig::rc();
    let data = rig.mem.fill(0, 10_000, 6);
    rig.send(0, 10_000);
    assert!(rig.transmit_some(0).is_empty());
    let heard = rig.transmit();
    assert_eq!(psns(&heard)[0], SQ_PSN);
    let got: Vec<u8> = heard.iter().flat_map(|h| h.payload.clone()).collect();
    assert_eq!(got, data);
    // Sent again from the middle, packets stand in other places of their run; each is signed for
    // the identification it has there (the harness checks every one).
    let again = rig.hear(nak(SQ_PSN + 3, NakCode::PSN_SEQUENCE));
    assert_eq!(again[0].psn(), SQ_PSN + 3);
    assert_ne!(again[0].datagram.ip_id, heard[3].datagram.ip_id);
}

#[test]
fn sends_wait_for_the_state() {
    // proves: roce-80
    use srdma_tests::node::Node;
    for state in [QpState::Init, QpState::Rtr] {
        let mut node = Node::new("10.0.0.1");
        let qp = node.create(&QpSpec::default());
        node.climb(qp, state);
        node.send(qp, &[]);
        assert!(node.transmit().is_empty(), "{state}");
        assert!(node.poll().is_empty(), "{state}");
    }
    let mut rig = Rig::rc();
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    rig.send(0, 4);
    rig.send(0, 4);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 0, Some(1)), ('s', 1, Some(1))]);
}
