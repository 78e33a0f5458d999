//! Which packets reach a queue pair at all.                             [RoCEv2 3.1]

use srdma_core::hw::HwQpType;
use srdma_core::num::Qpn;
use srdma_core::wire::{FlowTuple, Opcode};
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{Frame, answers, datagram, send_only, sign};
use std::net::SocketAddr;

fn flow(rig: &Rig) -> FlowTuple {
    FlowTuple::to_roce(rig.peer.ip(), rig.peer.port(), rig.node.ip)
}

/// The bytes of a SEND that would be taken, without its ICRC.
fn bare(rig: &Rig, payload: &[u8]) -> Vec<u8> {
    let mut bytes = send_only(RQ_PSN, payload)
        .ack()
        .to(rig.qp)
        .bytes(&flow(rig));
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// The SEND arrives after something was done to it; true if it was taken.
fn taken(rig: &mut Rig, payload: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> bool {
    rig.recv(0, 64);
    let mut bytes = bare(rig, payload);
    change(&mut bytes);
    sign(&flow(rig), &mut bytes);
    rig.node.receive_bytes(rig.peer, bytes);
    let heard = rig.transmit();
    let wcs = rig.poll();
    assert_eq!(heard.is_empty(), wcs.is_empty(), "both or neither");
    !wcs.is_empty()
}

#[test]
fn any_source_port_is_accepted() {
    // proves: roce-2
    for port in [0, 1, 4791, 0xbfff, 0xc000, 0xffff] {
        let mut rig = Rig::rc();
        rig.peer.set_port(port);
        assert!(taken(&mut rig, b"hello", |_| {}), "port {port}");
    }
}

#[test]
fn versions_but_zero_are_dropped() {
    // proves: roce-9
    for version in 1..16 {
        let mut rig = Rig::rc();
        assert!(!taken(&mut rig, b"hello", |bytes| bytes[1] |= version));
        assert_eq!(
            rig.hear(send_only(RQ_PSN, b"x").ack()).len(),
            1,
            "as before"
        );
    }
}

#[test]
fn reserved_bits_are_ignored() {
    // proves: roce-10
    for (byte, bits) in [(8, 0x7f), (4, 0x3f), (4, 0xc0), (1, 0x40)] {
        let mut rig = Rig::rc();
        assert!(taken(&mut rig, b"hello", |bytes| bytes[byte] |= bits));
    }
}

#[test]
fn lengths_and_pads_that_cannot_be_are_dropped() {
    // proves: roce-14, roce-15
    let mut rig = Rig::rc();
    assert!(!taken(&mut rig, b"hello", |bytes| bytes.truncate(bytes.len() - 1)));
    let mut rig = Rig::rc();
    assert!(!taken(&mut rig, b"hello", |bytes| bytes.push(0)));
    let mut rig = Rig::rc();
    assert!(
        !taken(&mut rig, b"", |bytes| bytes[1] |= 0x30),
        "pad without payload"
    );
    // A WRITE_ONLY that ends inside its RETH.
    let mut rig = Rig::rc();
    assert!(!taken(&mut rig, b"12345678", |bytes| bytes[0] = 0x0a));
    for len in 0..20 {
        let mut rig = Rig::rc();
        rig.node.receive_bytes(rig.peer, vec![0; len]);
        assert!(rig.transmit().is_empty());
    }
}

#[test]
fn pad_bytes_are_not_delivered() {
    // proves: roce-13
    for len in 1..9_usize {
        let mut rig = Rig::rc();
        rig.mem.write(0, &[0xee; 64]);
        assert!(taken(&mut rig, &vec![7; len], |_| {}));
        assert_eq!(rig.mem.read(0, len), vec![7; len]);
        assert_eq!(rig.mem.read(len, 8), [0xee; 8], "behind {len} bytes");
    }
}

#[test]
fn opcodes_that_nobody_speaks_are_dropped_in_silence() {
    // proves: roce-16
    let ours = [0xe4, 0xe5, 0xe7, 0xe8, 0xea, 0xeb, 0xee];
    let rc = (0..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]).chain(ours);
    let rc: Vec<u8> = rc.collect();
    for opcode in 0..=255_u8 {
        if rc.contains(&opcode) {
            continue;
        }
        let mut rig = Rig::rc();
        for len in [0, 8, 28, 64] {
            let frame = Frame::new(Opcode(opcode), RQ_PSN, &vec![0; len]);
            let mut bytes = frame.to(rig.qp).ack().bytes(&flow(&rig));
            bytes[0] = opcode;
            bytes.truncate(bytes.len() - 4);
            sign(&flow(&rig), &mut bytes);
            rig.node.receive_bytes(rig.peer, bytes);
            assert!(rig.transmit().is_empty(), "opcode {opcode:#x}");
        }
        rig.recv(0, 64);
        assert!(taken(&mut rig, b"hello", |_| {}), "nothing has changed");
    }
}

#[test]
fn a_bad_icrc_changes_nothing() {
    // proves: roce-38, e810-34
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    let good = send_only(RQ_PSN, b"hello, world")
        .ack()
        .to(rig.qp)
        .bytes(&flow(&rig));
    for at in 0..good.len() * 8 {
        if at / 8 == 4 {
            continue; // F, B and reserved bits are not covered.
        }
        let mut bytes = good.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        let before = rig.counter("icrc_error") + malformed(&rig);
        rig.node.receive_bytes(rig.peer, bytes);
        assert_eq!(
            rig.counter("icrc_error") + malformed(&rig),
            before + 1,
            "once"
        );
        assert!(
            rig.transmit().is_empty() && rig.poll().is_empty(),
            "bit {at}"
        );
    }
    rig.node.receive_bytes(rig.peer, good);
    assert_eq!(rig.done(), [('r', 0, None)]);
}

fn malformed(rig: &Rig) -> u64 {
    let counters = rig.node.hca.counters();
    let kinds = counters
        .iter()
        .filter(|(name, _)| name.starts_with("malformed"));
    kinds.map(|(_, count)| count).sum()
}

#[test]
fn a_foreign_source_is_dropped() {
    // proves: roce-83
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    for ip in ["10.0.0.3", "10.0.0.1", "192.0.2.2"] {
        let foreign = SocketAddr::new(ip.parse().unwrap(), 0xc123);
        rig.node
            .inject(foreign, rig.qp, &send_only(RQ_PSN, b"x").ack());
        rig.node
            .inject(foreign, rig.qp, &send_only(RQ_PSN + 5, b"x").ack());
        assert!(rig.transmit().is_empty());
    }
    assert_eq!(rig.counter("wrong_source"), 6);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN, b"x").ack())),
        [(0x11, RQ_PSN, 0x1f)]
    );
}

#[test]
fn partition_and_queue_keys_must_match() {
    // proves: roce-84
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    for pkey in [0x1234, 0xfffe, 0x0000] {
        assert!(
            rig.hear(send_only(RQ_PSN, b"x").ack().pkey(pkey))
                .is_empty()
        );
    }
    assert_eq!(rig.counter("bad_pkey"), 3);
    // A limited member may speak to a full one.
    assert_eq!(
        rig.hear(send_only(RQ_PSN, b"x").ack().pkey(0x7fff)).len(),
        1
    );

    let mut rig = Rig::ud();
    rig.recv(0, 256);
    rig.tell(datagram(0, 0x1234_5679, 0x33, b"x"));
    assert!(rig.poll().is_empty());
    assert_eq!(rig.counter("bad_qkey"), 1);
    rig.tell(datagram(0, 0x1234_5678, 0x33, b"x"));
    assert_eq!(rig.done(), [('r', 0, None)]);
}

#[test]
fn numbers_zero_and_one_are_special() {
    // proves: roce-85
    let gsi = QpSpec {
        kind: HwQpType::UD,
        qpn: 1,
        qkey: 0x8001_0000,
        ..QpSpec::default()
    };
    let mut rig = Rig::with(&gsi);
    assert_eq!(rig.qp, Qpn::GSI);
    rig.recv(0, 512);
    rig.qp = Qpn::new(0);
    rig.tell(datagram(0, 0x8001_0000, 1, &[0; 256]));
    assert!(rig.poll().is_empty(), "nobody is queue pair 0");
    assert_eq!(rig.counter("unknown_qpn"), 1);
    rig.qp = Qpn::GSI;
    rig.tell(datagram(0, 0x8001_0000, 1, &[0; 256]));
    let wcs = rig.poll();
    assert_eq!(wcs[0].cqe.len, 296);
    assert_eq!(wcs[0].cqe.peer, 1);
}

#[test]
fn an_opcode_of_another_service_is_dropped() {
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    assert!(
        rig.hear(srdma_tests::wire_dsl::uc(send_only(RQ_PSN, b"x").ack()))
            .is_empty()
    );
    assert!(rig.hear(datagram(RQ_PSN, 0x1234_5678, 1, b"x")).is_empty());
    assert_eq!(rig.counter("wrong_service"), 2);
    let mut rig = Rig::ud();
    rig.recv(0, 64);
    assert!(rig.hear(send_only(RQ_PSN, b"x").ack()).is_empty());
    assert!(rig.poll().is_empty());
}

#[test]
fn a_notification_of_congestion_for_nobody_is_dropped() {
    // proves: roce-153
    let mut rig = Rig::rc();
    rig.qp = Qpn::new(0x00ab_cdef);
    let mut frame = Frame::new(Opcode::CNP, 0, &[]);
    frame.head.bth.becn = true;
    assert!(rig.hear(frame).is_empty());
}

#[test]
fn packets_in_states_that_do_not_receive_are_dropped() {
    // proves: roce-128
    use srdma_core::qp::attr::{AttrMask, QpState};
    for state in [QpState::Reset, QpState::Init] {
        let mut node = Node::new("10.0.0.1");
        let qp = node.create(&QpSpec::default());
        if state == QpState::Init {
            node.climb(qp, QpState::Init);
        }
        let peer = "10.0.0.2:49443".parse().unwrap();
        node.inject(peer, qp, &send_only(RQ_PSN, b"x").ack());
        assert!(node.transmit().is_empty(), "{state}");
    }
    let mut rig = Rig::rc();
    assert!(rig.node.modify(rig.qp, QpState::Err, AttrMask::NONE));
    rig.recv(0, 64);
    assert!(rig.hear(send_only(RQ_PSN, b"x").ack()).is_empty());
    assert!(rig.node.modify(rig.qp, QpState::Reset, AttrMask::NONE));
    assert!(rig.hear(send_only(RQ_PSN, b"x").ack()).is_empty());
}
