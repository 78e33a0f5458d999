//! Datagrams: address handles, the area in front, multicast.            [RoCEv2 1.9, 2.12, 4.6]

use srdma_core::hw::CqpCmd;
use srdma_core::hw::HwQpType;
use srdma_core::hw::cqp::McastCmd;
use srdma_core::num::Qpn;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::{FlowTuple, ROCE_PORT};
use srdma_net::wire_link::Datagram;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::Rig;
use srdma_tests::wire_dsl::{Heard, datagram};
use std::net::{IpAddr, SocketAddr};

const QKEY: u32 = 0x1234_5678;

fn spec() -> QpSpec {
    QpSpec {
        kind: HwQpType::UD,
        ..QpSpec::default()
    }
}

#[test]
fn a_datagram_is_delivered_behind_its_area() {
    // proves: roce-122, roce-123, e810-30, e810-10
    let mut rig = Rig::ud();
    rig.recv(0, 256);
    rig.mem.write(0, &[0xee; 256]);
    rig.tell(datagram(5, QKEY, 0x33, b"hello"));
    let cqe = rig.poll()[0].cqe;
    assert_eq!((cqe.len, cqe.peer, cqe.qpn), (45, 0x33, rig.qp));
    assert!(cqe.stag_or_ipv4, "the header is IPv4");
    assert_eq!(cqe.op, 0x24);
    assert_eq!(rig.mem.read(40, 5), b"hello");
    let area = rig.mem.read(0, 40);
    assert_eq!(area[..20], [0; 20]);
    let header = &area[20..];
    assert_eq!(header[0], 0x45);
    assert_eq!(
        u16::from_be_bytes([header[2], header[3]]),
        28 + 12 + 8 + 8 + 4
    );
    assert_eq!((header[8], header[9]), (64, 17));
    assert_eq!(header[12..16], [10, 0, 0, 2]);
    assert_eq!(header[16..], [10, 0, 0, 1]);
    let sum: u32 = header
        .chunks(2)
        .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
        .sum();
    assert_eq!(
        (sum & 0xffff) + (sum >> 16),
        0xffff,
        "the checksum is right"
    );
}

#[test]
fn an_ipv6_datagram_brings_its_whole_header() {
    // proves: roce-124
    let (us, peer): (IpAddr, IpAddr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let spec = QpSpec { peer, ..spec() };
    let mut rig = Rig::on(Node::new("fd00::1"), &spec);
    rig.recv(0, 256);
    rig.tell(datagram(5, QKEY, 0x33, b"hello"));
    let cqe = rig.poll()[0].cqe;
    assert!(!cqe.stag_or_ipv4, "the header is IPv6");
    let area = rig.mem.read(0, 40);
    assert_eq!(area[0] >> 4, 6);
    assert_eq!(u16::from_be_bytes([area[4], area[5]]), 8 + 12 + 8 + 8 + 4);
    assert_eq!((area[6], area[7]), (17, 64));
    assert_eq!(area[8..24], octets(peer));
    assert_eq!(area[24..40], octets(us));
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
    }
}

#[test]
fn what_finds_no_receive_is_dropped() {
    // proves: roce-121
    let mut rig = Rig::ud();
    assert!(rig.hear(datagram(0, QKEY, 1, b"x")).is_empty());
    rig.recv(0, 44);
    assert!(
        rig.hear(datagram(1, QKEY, 1, b"xxxxx")).is_empty(),
        "too long for it"
    );
    assert!(rig.done().is_empty());
    rig.tell(datagram(900, QKEY, 1, b"xxxx"));
    assert_eq!(
        rig.done(),
        [('r', 0, None)],
        "the receive is there for the next"
    );
    assert_eq!(rig.state(), QpState::Rts);
    assert!(rig.aes().is_empty());
}

#[test]
fn a_datagram_names_target_key_and_source() {
    // proves: roce-79
    let mut rig = Rig::ud();
    let ah = rig.node.ah("10.0.0.9".parse().unwrap());
    rig.node
        .send_ud(rig.qp, ah, 0x99, 0x55, &[rig.mem.sge(0, 4)]);
    rig.node
        .send_ud(rig.qp, ah, 0x99, 0x8000_0000, &[rig.mem.sge(0, 4)]);
    let heard = rig.transmit();
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None)]);
    let deths: Vec<_> = heard.iter().map(|h| h.head.deth.unwrap()).collect();
    assert_eq!((deths[0].qkey.0, deths[0].source), (0x55, rig.qp));
    assert_eq!(deths[1].qkey.0, QKEY, "the queue pair's own");
    for (n, one) in heard.iter().enumerate() {
        assert_eq!(one.head.bth.dest, Qpn::new(0x99));
        assert_eq!(one.psn(), 0x100 + u32::try_from(n).unwrap());
        assert_eq!(one.datagram.target, "10.0.0.9:4791".parse().unwrap());
        assert!(!one.head.bth.ack_req);
    }
}

#[test]
fn a_datagram_longer_than_the_mtu_does_not_leave() {
    // proves: roce-78
    let mut rig = Rig::ud();
    let ah = rig.node.ah(rig.peer.ip());
    rig.node
        .send_ud(rig.qp, ah, 0x22, QKEY, &[rig.mem.sge(0, 4096)]);
    assert_eq!(rig.transmit().len(), 1, "the MTU of the port counts");
    assert_eq!(rig.done(), [('s', 0, None)]);
    rig.node
        .send_ud(rig.qp, ah, 0x22, QKEY, &[rig.mem.sge(0, 4097)]);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 1, Some(6))], "LOC_LEN");
    let event = rig.node.aes()[0];
    assert_eq!((event.code.0, event.source.0), (0x132, 5));
}

#[test]
fn a_handle_that_is_not_there_is_a_fault() {
    let mut rig = Rig::ud();
    let ah = srdma_core::num::AhId(77);
    rig.node
        .send_ud(rig.qp, ah, 0x22, QKEY, &[rig.mem.sge(0, 4)]);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.done(), [('s', 0, Some(4))]);
    assert_eq!(rig.node.aes()[0].code.0, 0x406);
}

#[test]
fn a_group_reaches_its_members() {
    // proves: roce-125
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let mut node = Node::new("10.0.0.1");
    let mem = node.mem(4096);
    let members: Vec<Qpn> = (0..4).map(|_| node.connected(&spec())).collect();
    node.spec_mut(members[3]).qkey = 0x77;
    let stranger = node.connected(&QpSpec {
        qkey: 0x77,
        ..spec()
    });
    for (n, qp) in members.iter().chain([&stranger]).enumerate() {
        node.recv(*qp, &[mem.sge(256 * n as u64, 256)]);
    }
    for qp in members[..2].iter().chain([&stranger]) {
        node.ok(CqpCmd::McastCreate(McastCmd { qpn: *qp, group }));
    }
    let source: SocketAddr = "10.0.0.2:49443".parse().unwrap();
    let tell = |node: &mut Node| {
        let flow = FlowTuple::to_roce(source.ip(), source.port(), group);
        let bytes = datagram(0, QKEY, 0x33, b"all")
            .to(Qpn::MULTICAST)
            .bytes(&flow);
        node.receive(&Datagram {
            source,
            target: SocketAddr::new(group, ROCE_PORT),
            tclass: 0,
            hop_limit: 1,
            ip_id: 0,
            bytes: bytes.into(),
        });
        let mut took: Vec<Qpn> = node.poll().iter().map(|wc| wc.qpn).collect();
        took.sort_unstable_by_key(|qpn| qpn.value());
        took
    };
    assert_eq!(
        tell(&mut node),
        members[..2],
        "attached, and of the right Q_Key"
    );
    for qp in &members[..2] {
        node.recv(*qp, &[mem.sge(0, 256)]);
    }
    node.ok(CqpCmd::McastDestroy(McastCmd {
        qpn: members[0],
        group,
    }));
    assert_eq!(tell(&mut node), [members[1]]);
    // proves: roce-141, event-48
    node.refused(CqpCmd::DestroyQp(members[1]));
    node.ok(CqpCmd::McastDestroy(McastCmd {
        qpn: members[1],
        group,
    }));
    node.ok(CqpCmd::DestroyQp(members[1]));
    assert!(tell(&mut node).is_empty());
}

#[test]
fn two_devices_talk_in_datagrams() {
    let (mut a, mut b) = (Node::new("10.0.0.1"), Node::new("10.0.0.2"));
    let (qa, qb) = (a.connected(&spec()), b.connected(&spec()));
    let (ma, mb) = (a.mem(4096), b.mem(4096));
    let data = ma.fill(0, 1000, 1);
    b.recv(qb, &[mb.sge(0, 2048)]);
    let ah = a.ah(b.ip);
    a.send_ud(qa, ah, qb.value(), QKEY, &[ma.sge(0, 1000)]);
    let sent: Vec<Heard> = a.transmit();
    for one in sent {
        b.receive(&one.datagram);
    }
    let cqe = b.poll()[0].cqe;
    assert_eq!((cqe.len, cqe.peer), (1040, qa.value()));
    assert_eq!(mb.read(40, 1000), data);
}
