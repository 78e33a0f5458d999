//! The requester of a reliable connection: numbers, acknowledgements, refusals, fences. [RoCEv2 2]

use srdma_core::hw::AeSource;
use srdma_core::hw::wqe::{SendWr, WqeBuf, WrFlags, WriteWr};
use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::NakCode;
use srdma_tests::node::QpSpec;
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, ack, brief, nak};

const UNSIGNALED: WrFlags = WrFlags {
    signaled: false,
    read_fence: false,
    local_fence: false,
};

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

#[test]
fn messages_take_as_many_numbers_as_packets() {
    // proves: roce-42, roce-44, roce-45
    let mut rig = Rig::rc();
    let mut psn = SQ_PSN;
    for (len, ops) in [
        (0, vec![0x04]),
        (1, vec![0x04]),
        (1024, vec![0x04]),
        (1025, vec![0x00, 0x02]),
        (2048, vec![0x00, 0x02]),
        (2049, vec![0x00, 0x01, 0x02]),
    ] {
        rig.send(0, len);
        let heard = rig.transmit();
        let expected: Vec<(u8, u32)> = ops.into_iter().zip(psn..).collect();
        assert_eq!(brief(&heard), expected, "{len} bytes");
        assert!(heard.last().unwrap().head.bth.ack_req);
        psn += u32::try_from(heard.len()).unwrap();
    }
}

#[test]
fn writes_announce_themselves_in_their_first_packet() {
    let mut rig = Rig::rc();
    let data = rig.mem.fill(0, 2500, 1);
    let sge = rig.mem.sge(0, 2500);
    rig.node.write(rig.qp, &[sge], 0x1234, Rkey(0x77));
    let heard = rig.transmit();
    assert_eq!(
        brief(&heard),
        [(6, SQ_PSN), (7, SQ_PSN + 1), (8, SQ_PSN + 2)]
    );
    let reth = heard[0].head.reth.unwrap();
    assert_eq!((reth.addr, reth.rkey, reth.len), (0x1234, Rkey(0x77), 2500));
    let got: Vec<u8> = heard.iter().flat_map(|h| h.payload.clone()).collect();
    assert_eq!(got, data);
    for one in &heard {
        let bth = one.head.bth;
        assert_eq!((bth.dest.value(), bth.pkey.0), (0x22, 0xffff));
        assert!(!bth.fecn && !bth.becn);
    }
}

#[test]
fn immediates_and_solicitation_ride_on_the_last_packet() {
    let mut rig = Rig::rc();
    let imm = Some(u32::from_be_bytes([1, 2, 3, 4]));
    let mut wqe = WqeBuf::new();
    let wr = SendWr {
        solicited: true,
        imm,
        ..send_wr(WrFlags::SIGNALED)
    };
    wqe.send(&wr, &[rig.mem.sge(0, 2000)]).unwrap();
    rig.node.post(rig.qp, &wqe);
    let wr = WriteWr {
        flags: WrFlags::SIGNALED,
        imm,
        ..WriteWr::default()
    };
    wqe.write(&wr, &[rig.mem.sge(0, 2000)]).unwrap();
    rig.node.post(rig.qp, &wqe);
    let heard = rig.transmit();
    let ops: Vec<u8> = heard.iter().map(Heard::op).collect();
    assert_eq!(ops, [0, 3, 6, 9]);
    // proves: roce-17, e810-1
    for at in [1, 3] {
        assert_eq!(heard[at].head.imm.unwrap().0, [1, 2, 3, 4]);
        assert_eq!(heard[at].head.bth.solicited, at == 1);
        assert!(heard[at - 1].head.imm.is_none() && !heard[at - 1].head.bth.solicited);
    }
}

#[test]
fn long_messages_ask_for_acknowledgement_on_the_way() {
    // proves: roce-46
    let mut rig = Rig::rc();
    let sge = rig.mem.sge(0, 64 * 1024);
    rig.node.send(rig.qp, &[sge, rig.mem.sge(0, 36 * 1024)]);
    let mut since = 0;
    let heard = rig.transmit();
    assert_eq!(heard.len(), 100);
    for one in heard {
        since += 1;
        assert!(since <= 64);
        if one.head.bth.ack_req {
            since = 0;
        }
    }
    assert_eq!(since, 0);
}

#[test]
fn psns_wrap_at_the_requester() {
    // proves: roce-41
    let mut rig = Rig::with(&QpSpec {
        sq_psn: 0x00ff_fffe,
        ..QpSpec::default()
    });
    for _ in 0..4 {
        rig.send(0, 4);
    }
    assert_eq!(psns(&rig.transmit()), [0x00ff_fffe, 0x00ff_ffff, 0, 1]);
    rig.tell(ack(0x00ff_ffff));
    assert_eq!(rig.done().len(), 2);
    assert_eq!(psns(&rig.hear(nak(1, NakCode::PSN_SEQUENCE))), [1]);
    assert_eq!(rig.done().len(), 1);
    rig.tell(ack(1));
    assert_eq!(rig.done().len(), 1);
}

#[test]
fn one_acknowledgement_completes_all_before_it_in_order() {
    // proves: roce-47, roce-66
    let mut rig = Rig::rc();
    for len in [4, 3000, 4] {
        rig.send(0, len);
    }
    rig.transmit();
    rig.tell(ack(SQ_PSN + 2));
    assert_eq!(rig.done(), [('s', 0, None)], "the second message goes on");
    rig.tell(ack(SQ_PSN + 4));
    assert_eq!(rig.done(), [('s', 1, None), ('s', 2, None)]);
}

#[test]
fn acknowledgements_of_nothing_have_no_effect() {
    // proves: roce-51
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.send(0, 4);
    rig.transmit();
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done().len(), 1);
    for psn in [
        SQ_PSN + 2,
        SQ_PSN + 3,
        SQ_PSN,
        SQ_PSN - 1,
        SQ_PSN + (1 << 22),
        0x00ff_ffff,
    ] {
        rig.tell(ack(psn));
        rig.tell(nak(psn, NakCode::REMOTE_ACCESS));
        assert!(rig.transmit().is_empty(), "{psn:#x}");
    }
    assert!(rig.done().is_empty());
    assert_eq!(rig.state(), QpState::Rts);
    rig.tell(ack(SQ_PSN + 1));
    assert_eq!(rig.done().len(), 1);
}

#[test]
fn a_sequence_nak_goes_back_to_its_number() {
    // proves: roce-50, roce-52
    let mut rig = Rig::rc();
    for len in [4, 3000, 4] {
        rig.send(0, len);
    }
    let sent = rig.transmit();
    let again = rig.hear(nak(SQ_PSN + 2, NakCode::PSN_SEQUENCE));
    assert_eq!(rig.done(), [('s', 0, None)], "acknowledged by the NAK");
    assert_eq!(brief(&again), brief(&sent)[2..]);
    assert_eq!(again[0].payload, sent[2].payload);
}

#[test]
fn a_repeated_nak_does_not_send_twice() {
    // proves: roce-53
    let mut rig = Rig::rc();
    for _ in 0..3 {
        rig.send(0, 4);
    }
    rig.transmit();
    assert_eq!(rig.hear(nak(SQ_PSN + 1, NakCode::PSN_SEQUENCE)).len(), 2);
    rig.node.advance(50_000);
    assert!(rig.hear(nak(SQ_PSN + 1, NakCode::PSN_SEQUENCE)).is_empty());
    rig.node.advance(1_000_000);
    assert_eq!(rig.hear(nak(SQ_PSN + 1, NakCode::PSN_SEQUENCE)).len(), 2);
}

#[test]
fn fatal_naks_name_the_request_and_the_reason() {
    // proves: roce-54, roce-55, roce-133, e810-32
    for (code, flush, event) in [
        (NakCode::INVALID_REQUEST, 10, 0x208),
        (NakCode::REMOTE_ACCESS, 3, 0x20d),
        (NakCode::REMOTE_OPERATION, 5, 0x20e),
        (NakCode(4), 5, 0x20e),
        (NakCode(5), 5, 0x20e),
        (NakCode(31), 5, 0x20e),
    ] {
        let mut rig = Rig::rc();
        rig.recv(0, 64);
        for len in [4, 3000, 4, 4] {
            rig.send(0, len);
        }
        rig.transmit();
        rig.tell(nak(SQ_PSN + 2, code));
        let done = rig.done();
        let general = Some(1);
        assert_eq!(done[0], ('s', 0, None), "acknowledged by the NAK");
        assert_eq!(done[1], ('s', 1, Some(flush)), "{code:?}");
        let mut rest = done[2..].to_vec();
        rest.sort_unstable();
        assert_eq!(
            rest,
            [('r', 0, general), ('s', 2, general), ('s', 3, general)]
        );
        assert_eq!(rig.state(), QpState::Err);
        let events = rig.node.aes();
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].code.0, events[0].source), (event, AeSource::SQ));
        assert!(rig.transmit().is_empty());
    }
}

#[test]
fn requests_without_a_signal_complete_in_silence() {
    // proves: roce-67, e810-31
    let mut rig = Rig::rc();
    send(&mut rig, UNSIGNALED);
    send(&mut rig, UNSIGNALED);
    send(&mut rig, WrFlags::SIGNALED);
    send(&mut rig, UNSIGNALED);
    rig.transmit();
    rig.tell(ack(SQ_PSN + 3));
    assert_eq!(rig.done(), [('s', 2, None)]);
    send(&mut rig, UNSIGNALED);
    rig.transmit();
    rig.tell(nak(SQ_PSN + 4, NakCode::REMOTE_ACCESS));
    // What was before it and done counts as its predecessor: the entry names the request at fault.
    let cqes = rig.node.cqes(srdma_tests::node::CQ);
    assert_eq!(cqes.len(), 1);
    assert_eq!(cqes[0].flush_code().unwrap().0, 3);
    assert_eq!(cqes[0].wqe_index, 4);
}

#[test]
fn a_message_of_half_the_range_gets_on() {
    let mut rig = Rig::with(&QpSpec {
        mtu: 256,
        ..QpSpec::default()
    });
    let part = rig.node.mem(1 << 28);
    rig.node.send(rig.qp, &[part.sge(0, 1 << 28); 8]);
    rig.send(0, 4);
    let mut next = SQ_PSN;
    for _ in 0..10 {
        let heard = rig.transmit();
        assert_eq!(heard[0].psn(), next);
        next += u32::try_from(heard.len()).unwrap();
        rig.tell(ack(next - 1));
    }
    let again = rig.hear(nak(next, NakCode::PSN_SEQUENCE));
    assert_eq!(again[0].psn(), next);
    assert!(rig.done().is_empty());
    assert_eq!(rig.state(), QpState::Rts);
}
