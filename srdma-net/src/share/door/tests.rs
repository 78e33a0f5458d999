//! Packets through the door, with real sockets.

use super::*;
use crate::rx::RxRing;
use crate::share;
use crate::testing::{address, config};
use srdma_core::wire::flow::Ecn;
use std::net::UdpSocket;
use std::sync::Arc;

const NOW: Instant = Instant(1_000_000_000);

struct Device {
    socket: RoceSocket,
    share: Arc<Share>,
    door: Door,
    ring: RxRing,
}

impl Device {
    fn new(addr: IpAddr) -> Self {
        let (mut sockets, share) = share::open(&[addr], &config(true, true)).unwrap();
        Self {
            socket: sockets.remove(0),
            share: share.unwrap(),
            door: Door::default(),
            ring: RxRing::new(4),
        }
    }

    /// A packet of `len` bytes for `block`, filled with `fill`.
    fn packet(block: u16, len: usize, fill: u8) -> Vec<u8> {
        let mut packet = vec![fill; len];
        packet[0] = 4;
        let qpn = u32::from(block) << 12 | 5;
        packet[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        packet
    }

    /// What came to the private port, taken out of what it came in.
    fn taken(&mut self) -> Vec<(RxMeta, Vec<u8>)> {
        let mut all = Vec::new();
        let end = self.socket.ends().next().unwrap();
        while self.ring.receive(end) > 0 {
            for buffer in self.ring.datagrams() {
                self.door.unpack(&self.share, buffer, |meta, bytes| {
                    all.push((*meta, bytes.to_vec()));
                });
            }
        }
        all
    }
}

fn meta(source: SocketAddr, local: IpAddr, stride: usize) -> RxMeta {
    RxMeta {
        source,
        local,
        port: ROCE_PORT,
        ecn: Ecn::Ce,
        tclass: 0xbb,
        hop_limit: 17,
        stride,
        first: 0,
    }
}

#[test]
fn packets_reach_the_process_they_are_for_as_they_came() {
    let here = address();
    let (mut a, mut b, mut c) = (Device::new(here), Device::new(here), Device::new(here));
    let blocks = [a.share.name(), b.share.name(), c.share.name()];
    // A merged buffer: ours, b's, b's, nobody's, c's, multicast's, and a short one of b's.
    let order = [
        blocks[0], blocks[1], blocks[1], 77, blocks[2], 4095, blocks[1],
    ];
    let mut bytes = Vec::new();
    for (fill, block) in (0u8..).zip(order) {
        let len = if fill == 6 { 60 } else { 500 };
        bytes.extend(Device::packet(block, len, fill));
    }
    let came = meta("192.0.2.7:50123".parse().unwrap(), here, 500);
    let mut kept = Vec::new();
    let place = (0, &a.socket);
    a.door
        .sort(&a.share, place, NOW, (&came, &bytes), |meta, bytes| {
            kept.push((meta.first, bytes.len()));
        });
    assert_eq!(kept, [(0, 500), (3, 500), (5, 500)]);
    let at_b = b.taken();
    assert_eq!(at_b.len(), 2);
    assert_eq!(
        at_b[0],
        (RxMeta { first: 1, ..came }, bytes[500..1500].to_vec())
    );
    assert_eq!(
        at_b[1],
        (RxMeta { first: 6, ..came }, bytes[3000..].to_vec())
    );
    let at_c = c.taken();
    assert_eq!(
        at_c,
        [(RxMeta { first: 4, ..came }, bytes[2000..2500].to_vec())]
    );
    assert_eq!((a.door.counters.passed, a.door.counters.lost), (4, 0));
    assert_eq!((b.door.counters.taken, c.door.counters.taken), (3, 1));
}

#[test]
fn more_than_a_datagram_holds_is_passed_on_in_pieces() {
    let here = address();
    let (mut a, mut b) = (Device::new(here), Device::new(here));
    let bytes: Vec<u8> = (0..15)
        .flat_map(|fill| Device::packet(b.share.name(), 4368, fill))
        .collect();
    assert!(bytes.len() > ROOM);
    let came = meta("192.0.2.7:50123".parse().unwrap(), here, 4368);
    let place = (0, &a.socket);
    a.door.sort(&a.share, place, NOW, (&came, &bytes), |_, _| {
        panic!("not ours")
    });
    let got = b.taken();
    let firsts: Vec<u16> = got.iter().map(|(meta, _)| meta.first).collect();
    assert_eq!(firsts, [0, 14]);
    let all: Vec<u8> = got.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(all == bytes);
}

#[test]
fn only_a_process_of_the_address_is_believed() {
    let here = address();
    let (a, mut b) = (Device::new(here), Device::new(here));
    let packet = Device::packet(b.share.name(), 100, 1);
    let came = meta("192.0.2.7:50123".parse().unwrap(), here, 100);
    let header = encode(&came, a.share.name());
    let target = SocketAddr::new(here, b.socket.tx_port());
    let whole = [&header[..], &packet].concat();
    // From another port of the address, from another address, with another's name.
    for from in [here, address()] {
        let stranger = UdpSocket::bind((from, 0)).unwrap();
        stranger.send_to(&whole, target).unwrap();
    }
    let lie = encode(&came, b.share.name());
    a.socket.send_parts(&[&lie, &packet], target).unwrap();
    assert!(b.taken().is_empty());
    assert_eq!(b.door.counters.refused, 3);
    a.socket.send_parts(&[&header, &packet], target).unwrap();
    assert_eq!(b.taken(), [(came, packet)]);
}

#[test]
fn headers_go_there_and_back_and_garbage_does_not() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let ends = [("192.0.2.7:50123", "127.0.0.1"), ("[fd00::7]:4791", "::1")];
    for (source, local) in ends.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())) {
        let came = RxMeta {
            first: 9,
            ..meta(source, local, 4368)
        };
        let mut bytes = encode(&came, 3000).to_vec();
        assert!(decode(&bytes, local).is_none(), "nothing in it");
        bytes.extend([7; 20]);
        assert_eq!(decode(&bytes, local), Some((came, 3000, &[7; 20][..])));
        for _ in 0..20_000 {
            let mut bad = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bad.len());
                bad[at] = random.u8(..);
            }
            bad.truncate(random.usize(..=bytes.len()));
            if let Some((meta, _, packets)) = decode(&bad, local) {
                assert!(meta.stride > 0 && !packets.is_empty());
                assert_eq!(meta.source.is_ipv4(), meta.local.is_ipv4());
            }
        }
    }
}
