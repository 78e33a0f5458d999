//! The bridge beside the sockets, and where there is none.

use super::*;
use crate::bridge::Bridge;
use crate::testing::{Script, address, config};

/// A device on the bridge.
pub(in crate::engine) fn on_the_bridge(here: IpAddr) -> EngineConfig {
    EngineConfig {
        addrs: vec![here],
        bridge: true,
        background: false,
        ..EngineConfig::default()
    }
}

/// Somebody else on the bridge.
pub(in crate::engine) struct Peer {
    bridge: Bridge,
    sockets: Vec<RoceSocket>,
}

impl Peer {
    pub(in crate::engine) fn new() -> Self {
        let (sockets, share) = share::open(&[address()], &config(true, true)).unwrap();
        Self {
            bridge: Bridge::open(&share.unwrap(), &sockets).unwrap(),
            sockets,
        }
    }

    /// Records of a packet each, filled with what they are told.
    pub(in crate::engine) fn cross(&mut self, to: SocketAddr, fills: impl Iterator<Item = u8>) {
        let mut script = Script::new();
        for fill in fills {
            let from = self.sockets[0].local();
            script.run(from, to.ip(), fill, &[40]).target = to;
        }
        script.lend(|batch| {
            assert_eq!(self.bridge.lets_pass(&self.sockets, batch, 0), 0);
            let crossed = self.bridge.outbox.send(&self.sockets, batch, 0);
            assert_eq!(crossed.runs, batch.runs.len());
        });
    }

    fn by_socket(&self, to: SocketAddr, fill: u8) {
        self.sockets[0].send_parts(&[&[fill; 40], &[]], to).unwrap();
    }

    fn take(&mut self) -> usize {
        let inbox = &mut self.bridge.inbox;
        inbox.notice();
        inbox.greet();
        inbox.take(|_, _, _| ())
    }
}

/// A device, and where it receives.
fn device() -> (Link, Hca, SocketAddr) {
    let here = address();
    let (link, hca) = open(on_the_bridge(here)).unwrap();
    let port = link.carrier.local(0).unwrap().source_port;
    (link, hca, SocketAddr::new(here, port))
}

#[test]
fn what_a_new_sender_sent_before_comes_first() {
    // proves: bridge-1
    // More than a pass takes out of sockets, too.
    for before in [0, 1, 100, 500, 4000] {
        let (mut link, mut hca, here) = device();
        let mut peer = Peer::new();
        for _ in 0..before {
            peer.by_socket(here, 1);
        }
        peer.cross(here, [2, 3, 4].into_iter());
        let (mut got, mut total) = (Vec::new(), 0);
        for pass in 0..100 {
            total += link
                .carrier
                .receive(Instant(pass), &mut hca, |_, meta, bytes| {
                    got.extend(bytes.chunks(meta.stride).map(|packet| packet[0]));
                });
        }
        assert!(got.is_sorted(), "{before}: {got:?}");
        assert_eq!(got.len(), before + 3);
        assert!(total >= 3, "what came counts");
    }
}

#[test]
fn records_count_as_received() {
    let (mut link, mut hca, here) = device();
    let mut peer = Peer::new();
    for _ in 0..2 {
        peer.cross(here, 0..5);
        assert_eq!(link.carrier.receive(Instant(1), &mut hca, |_, _, _| ()), 5);
    }
}

#[test]
fn a_full_lane_holds_the_device_up_until_there_is_room() {
    // proves: bridge-3
    let (mut link, mut hca, here) = device();
    let mut peer = Peer::new();
    let at = SocketAddr::new(peer.sockets[0].local(), peer.sockets[0].tx_port());
    let mut script = Script::new();
    for _ in 0..200 {
        script.run(here.ip(), at.ip(), 1, &[4112; 15]).target = at;
    }
    let sent = script.lend(|batch| link.send(Instant(1), batch));
    assert!(
        sent.blocked && sent.runs > 10 && sent.runs < 200,
        "{sent:?}"
    );
    assert!(link.is_held());
    assert!(peer.take() > 0);
    assert!(!link.is_held());
    assert_eq!(link.carrier.receive(Instant(2), &mut hca, |_, _, _| ()), 0);
}

#[test]
fn sockets_are_looked_at_while_packets_cross() {
    let (mut link, mut hca, here) = device();
    let mut peer = Peer::new();
    let mut by_socket = 0;
    for pass in 1..20_000u64 {
        peer.cross(here, std::iter::once(2));
        if pass % 5000 == 0 {
            peer.by_socket(here, 1);
        }
        link.carrier
            .receive(Instant(pass * 1000), &mut hca, |_, _, bytes| {
                by_socket += usize::from(bytes[0] == 1);
            });
    }
    assert_eq!(by_socket, 3);
    let counters = link.counters();
    let calls = counters.iter().find(|(name, _)| *name == "socket_rx_calls");
    assert!(calls.unwrap().1 < 4000, "seldom: {counters:?}");
}

#[test]
fn a_plain_wire_has_no_bridge() {
    // proves: wire-1
    for plain in [false, true] {
        let mut config = on_the_bridge(address());
        config.hca.plain_wire = plain;
        let (link, _) = open(config).unwrap();
        assert_eq!(link.carrier.yard().is_none(), plain);
    }
}
