//! Peers that share an address: the device asks for the port of each, and uses it.
//!
//! Every packet that is heard had the right ICRC for the port that it went to.

use srdma_core::hca::HcaConfig;
use srdma_core::hca::ports::{Home, Lookup};
use srdma_core::hw::HwQpType;
use srdma_core::time::ack_timeout_ns;
use srdma_core::wire::ROCE_PORT;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Heard, NEIGHBOUR, ack};

const QKEY: u32 = 0x1234_5678;
/// What an answer for datagrams holds for.
const VALID_NS: u64 = 100_000_000;

/// A rig on a device that shares its address.
fn rig(spec: &QpSpec) -> Rig {
    let mut config = HcaConfig::default();
    config.shared = true;
    Rig::on(Node::with("10.0.0.1", config), spec)
}

fn answer(rig: &mut Rig, lookup: Lookup, port: Option<u16>) {
    assert_eq!(rig.node.hca.poll_lookup(), Some(lookup));
    let home = port.map(Home::from);
    rig.node.hca.handle_lookup(rig.node.now, lookup, home);
    assert_eq!(rig.node.hca.poll_lookup(), None);
}

/// PSNs and ports.
fn went(heard: &[Heard]) -> Vec<(u32, u16)> {
    heard
        .iter()
        .map(|one| (one.psn(), one.datagram.target.port()))
        .collect()
}

#[test]
fn a_connection_goes_where_its_peer_is_and_asks_again_after_a_timeout() {
    // proves: roce-1
    let spec = QpSpec {
        peer_qpn: 0x12_3456,
        ..QpSpec::default()
    };
    let mut rig = rig(&spec);
    let timeout = ack_timeout_ns(spec.timeout).unwrap() * 4;
    let asked = rig.node.hca.poll_lookup().unwrap();
    assert_eq!((asked.addr, asked.block), (spec.peer, 0x123));
    answer(&mut rig, asked, Some(NEIGHBOUR));
    rig.send(0, 100);
    rig.send(0, 100);
    let port = |port| [(SQ_PSN, port), (SQ_PSN + 1, port)];
    assert_eq!(went(&rig.transmit()), port(NEIGHBOUR));
    // Silence: where is it now? Nobody can tell, so it stays.
    rig.node.advance(timeout);
    answer(&mut rig, asked, None);
    assert_eq!(went(&rig.transmit()), port(NEIGHBOUR));
    // It is gone, so others at the address may know.
    rig.node.advance(timeout);
    answer(&mut rig, asked, Some(ROCE_PORT));
    assert_eq!(went(&rig.transmit()), port(ROCE_PORT));
    rig.tell(ack(SQ_PSN + 1));
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None)]);
    rig.node.advance(timeout);
    assert_eq!(rig.node.hca.poll_lookup(), None, "nothing is outstanding");
}

#[test]
fn what_was_in_flight_is_sent_again_to_the_new_port() {
    let mut rig = rig(&QpSpec::default());
    let lookup = rig.node.hca.poll_lookup().unwrap();
    // Not answered yet: everybody reads 4791.
    for _ in 0..3 {
        rig.send(0, 50_000);
    }
    let first = rig.transmit();
    assert!(
        first
            .iter()
            .all(|one| one.datagram.target.port() == ROCE_PORT)
    );
    answer(&mut rig, lookup, Some(NEIGHBOUR));
    let again = rig.transmit();
    assert_eq!(again[0].psn(), SQ_PSN);
    assert!(
        again
            .iter()
            .all(|one| one.datagram.target.port() == NEIGHBOUR)
    );
    // Acknowledgements of either count, and the budget is the new socket's: all of it leaves.
    let mut last = again.last().unwrap().psn();
    for _ in 0..40 {
        rig.tell(ack(last));
        let Some(next) = rig.transmit().last().map(Heard::psn) else {
            break;
        };
        last = next;
    }
    assert_eq!(rig.done().len(), 3);
}

#[test]
fn a_datagram_waits_until_the_port_is_known() {
    let spec = QpSpec {
        kind: HwQpType::UD,
        ..QpSpec::default()
    };
    let mut rig = rig(&spec);
    assert_eq!(rig.node.hca.poll_lookup(), None, "it has no peer");
    let ah = rig.node.ah("10.0.0.1".parse().unwrap());
    let send = |rig: &mut Rig, dest: u32| {
        let sge = rig.mem.sge(0, 4);
        rig.node.send_ud(rig.qp, ah, dest, QKEY, &[sge]);
        went(&rig.transmit())
    };
    assert!(send(&mut rig, 0x5001).is_empty());
    let five = rig.node.hca.poll_lookup().unwrap();
    assert_eq!(five.block, 5);
    answer(&mut rig, five, Some(NEIGHBOUR));
    assert_eq!(went(&rig.transmit()), [(SQ_PSN, NEIGHBOUR)]);
    // Another number of the block is known, one of another block is not.
    assert_eq!(send(&mut rig, 0x5002), [(SQ_PSN + 1, NEIGHBOUR)]);
    assert!(send(&mut rig, 0x6001).is_empty());
    let six = rig.node.hca.poll_lookup().unwrap();
    answer(&mut rig, six, Some(ROCE_PORT));
    assert_eq!(went(&rig.transmit()), [(SQ_PSN + 2, ROCE_PORT)]);
    assert_eq!(send(&mut rig, 0x5003), [(SQ_PSN + 3, NEIGHBOUR)]);
    assert_eq!(rig.done().len(), 4);
    rig.node.advance(VALID_NS);
    assert!(
        send(&mut rig, 0x5001).is_empty(),
        "what is old is asked again"
    );
    answer(&mut rig, five, None);
    assert_eq!(went(&rig.transmit()), [(SQ_PSN + 4, NEIGHBOUR)]);
}

#[test]
fn who_is_destroyed_meanwhile_is_not_missed() {
    let mut rig = rig(&QpSpec::default());
    let lookup = rig.node.hca.poll_lookup().unwrap();
    let cmd = srdma_core::hw::CqpCmd::DestroyQp(rig.qp);
    rig.node.ok(cmd);
    answer(&mut rig, lookup, Some(NEIGHBOUR));
    assert!(rig.transmit().is_empty());
}

#[test]
fn a_device_that_shares_nothing_asks_nothing() {
    let mut rig = Rig::rc();
    rig.send(0, 100);
    assert_eq!(rig.node.hca.poll_lookup(), None);
    assert_eq!(went(&rig.transmit()), [(SQ_PSN, ROCE_PORT)]);
}
