//! The driver's privileged queues as the device serves them: datagrams whole in memory. [E810 8]

use srdma_core::hw::cqp::CreateAh;
use srdma_core::hw::wqe::{SendWr, UdTarget, WqeBuf, WrFlags};
use srdma_core::hw::{AeCode, CqpCmd, HwQpType};
use srdma_core::num::{AhId, Pkey, Psn, Qkey, Qpn};
use srdma_core::obj::ah::AddressVector;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::{Bth, Deth, Opcode};
use srdma_tests::node::{Node, PD, QpSpec};
use srdma_tests::rig::Rig;
use srdma_tests::wire_dsl::{datagram, send_only};

const QKEY: u32 = 0x8001_0000;

fn uda(qpn: u32) -> QpSpec {
    QpSpec {
        kind: HwQpType::UDA,
        qpn,
        qkey: QKEY,
        ..QpSpec::default()
    }
}

fn ilq() -> Rig {
    Rig::on(Node::new("10.0.0.1"), &uda(1))
}

/// BTH and DETH of a datagram to the peer's GSI queue pair, and its payload.
fn whole(psn: u32, payload: &[u8]) -> Vec<u8> {
    let mut bth = Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(psn));
    bth.pkey = Pkey(0x7fff);
    let deth = Deth {
        qkey: Qkey(QKEY),
        source: Qpn::GSI,
    };
    [&bth.to_bytes()[..], &deth.to_bytes(), payload].concat()
}

fn post_raw(rig: &mut Rig, len: u32, dwords: u8, ah: AhId) {
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        ud: Some(UdTarget {
            ah,
            qkey: Qkey(0),
            dest: Qpn::new(0),
        }),
        ..SendWr::default()
    };
    let mut wqe = WqeBuf::new();
    wqe.send(&wr, &[rig.mem.sge(0, len)]).unwrap();
    wqe.set_l4_len(dwords);
    rig.node.post(rig.qp, &wqe);
}

#[test]
fn a_datagram_for_the_local_queue_stands_whole_in_its_buffer() {
    // proves: puda-2
    let mut rig = ilq();
    rig.recv(0, 1024);
    rig.tell(datagram(5, QKEY, 0x33, b"hello"));
    let cqe = rig.poll()[0].cqe;
    assert_eq!(
        (cqe.len, cqe.peer, cqe.qpn),
        (40 + 12 + 8 + 8 + 4, 0x33, Qpn::GSI)
    );
    assert!(cqe.stag_or_ipv4);
    let packet = rig.mem.read(40, 32);
    let bth = Bth::from_bytes(packet[..12].try_into().unwrap());
    assert_eq!(
        (bth.opcode, bth.psn, bth.pad),
        (Opcode::UD_SEND_ONLY, Psn::new(5), 3)
    );
    let deth = Deth::from_bytes(packet[12..20].try_into().unwrap());
    assert_eq!((deth.qkey.0, deth.source), (QKEY, Qpn::new(0x33)));
    assert_eq!(&packet[20..25], b"hello");
    assert_ne!(packet[28..], [0; 4], "the ICRC");
    // The gates are those of any datagram queue pair.
    rig.recv(0, 1024);
    rig.tell(datagram(6, QKEY + 1, 0x33, b"hello"));
    assert_eq!((rig.counter("bad_qkey"), rig.poll().len()), (1, 0));
    // Too long for the buffer: it serves the next one.
    rig.tell(datagram(7, QKEY, 0x33, &[7; 1000]));
    rig.tell(datagram(8, QKEY, 0x33, b"hello"));
    assert_eq!((rig.counter("ud_dropped"), rig.poll().len()), (1, 1));
}

#[test]
fn what_the_local_queue_sends_is_what_stands_in_memory() {
    // proves: puda-3
    let mut rig = ilq();
    let ah = rig.node.ah("10.0.0.9".parse().unwrap());
    let bytes = whole(0x77, b"madam");
    rig.mem.write(0, &bytes);
    post_raw(&mut rig, 25, 5, ah);
    let heard = rig.transmit();
    assert_eq!(rig.done(), [('s', 0, None)]);
    let [one] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(one.head.bth.dest, Qpn::GSI);
    assert_eq!((one.psn(), one.head.bth.pkey), (0x77, Pkey(0x7fff)));
    assert_eq!(one.head.deth.unwrap().qkey.0, QKEY);
    assert_eq!((&one.payload[..], one.head.bth.pad), (&b"madam"[..], 3));
    assert_eq!(one.datagram.target, "10.0.0.9:4791".parse().unwrap());
}

#[test]
fn what_cannot_be_sent_whole_ends_in_error() {
    // proves: puda-3
    for (len, dwords, ae) in [
        (25, 4, AeCode::UDA_L4LEN_INVALID),
        (19, 5, AeCode::UDA_XMIT_DGRAM_TOO_SHORT),
        (4097, 5, AeCode::UDA_XMIT_DGRAM_TOO_LONG),
    ] {
        let mut rig = ilq();
        let ah = rig.node.ah(rig.peer.ip());
        rig.mem.write(0, &whole(0, b"madam"));
        post_raw(&mut rig, len, dwords, ah);
        assert!(rig.transmit().is_empty());
        assert_eq!(rig.done(), [('s', 0, Some(6))], "LOC_LEN");
        assert_eq!(rig.aes(), [ae]);
        assert_eq!(rig.state(), QpState::Sqe);
    }
    // Another opcode is none that a datagram queue sends.
    let mut rig = ilq();
    let ah = rig.node.ah(rig.peer.ip());
    rig.mem.write(0, &[4; 64]);
    post_raw(&mut rig, 64, 5, ah);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.aes(), [AeCode::WQE_UNEXPECTED_OPCODE]);
    // A handle of another domain.
    let mut rig = ilq();
    rig.mem.write(0, &whole(0, b"madam"));
    let other = srdma_core::num::PdId(PD.0 + 1);
    let av = AddressVector::new(rig.peer.ip(), rig.node.ip);
    let (id, pd) = (AhId(7), other);
    rig.node.ok(CqpCmd::CreateAh(CreateAh { id, pd, av }));
    post_raw(&mut rig, 25, 5, id);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.aes(), [AeCode::UDA_XMIT_BAD_PD]);
}

#[test]
fn privileged_queues_have_their_numbers_and_no_others() {
    // proves: puda-6
    let mut node = Node::new("10.0.0.1");
    let cmd = node.prepare(&uda(5));
    node.refused(CqpCmd::CreateQp(cmd));
    node.connected(&uda(1));
    let gsi = node.prepare(&QpSpec {
        kind: HwQpType::UD,
        ..uda(1)
    });
    node.refused(CqpCmd::CreateQp(gsi));
    // The network has no business with the exception queue.
    let mut rig = Rig::on(node, &uda(2));
    rig.recv(0, 1024);
    rig.tell(datagram(5, QKEY, 0x33, b"hello"));
    rig.tell(send_only(5, b"hello"));
    assert!(rig.poll().is_empty());
    assert_eq!(rig.counter("wrong_service"), 2);
}
