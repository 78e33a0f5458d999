//! Sharing between devices of one process, which the kernel cannot tell from several processes.

use super::*;
use crate::sys::lock;
use crate::testing::{address, config};
use srdma_core::num::Qpn;
use std::net::UdpSocket;

type Opened = (Vec<RoceSocket>, Option<Arc<Share>>);

fn opened(addrs: &[IpAddr]) -> (Vec<RoceSocket>, Arc<Share>) {
    let (sockets, share): Opened = open(addrs, &config(true, true)).unwrap();
    (sockets, share.unwrap())
}

fn lookup(addr: IpAddr, block: u16) -> Lookup {
    Lookup::of(addr, Qpn::new(u32::from(block) << BLOCK_BITS | 0x123))
}

fn port(who: &Share, lookup: Lookup) -> Option<u16> {
    who.resolve(lookup).map(|home| home.port)
}

#[test]
fn each_finds_the_others() {
    let (here, there) = (address(), address());
    let (a_sockets, a) = opened(&[here]);
    let (b_sockets, b) = opened(&[there, here]);
    let (_, c) = opened(&[there]);
    let (a_port, b_port) = (a_sockets[0].tx_port(), b_sockets[1].tx_port());
    assert_ne!(a.name(), b.name());
    for who in [&a, &b, &c] {
        assert_eq!(port(who, lookup(here, a.name())), Some(a_port));
        assert_eq!(port(who, lookup(here, b.name())), Some(b_port));
        assert_eq!(
            port(who, lookup(there, b.name())),
            Some(b_sockets[0].tx_port())
        );
        assert_eq!(
            port(who, lookup(here, 0)),
            Some(ROCE_PORT),
            "QP1 is at the door"
        );
        assert_eq!(
            port(who, lookup(address(), a.name())),
            Some(ROCE_PORT),
            "nobody is there"
        );
    }
    let home = a.resolve(lookup(here, b.name())).unwrap();
    let granted = b_sockets[1].buffers().rx;
    assert!(home.rx_bytes > 0 && home.rx_bytes.abs_diff(granted) < 4096);
    assert_eq!(a.neighbour(here, b.name()), Some(b_port));
    assert_eq!(a.neighbour(here, a.name()), None);
    assert_eq!((check(here).unwrap(), check(address()).unwrap()), (2, 0));
    let gone = a.name();
    drop((a, a_sockets));
    assert_eq!(port(&b, lookup(here, gone)), Some(ROCE_PORT));
}

#[test]
fn blocks_are_taken_as_they_are_needed_and_given_back() {
    let here = address();
    let (_a_sockets, a) = opened(&[here]);
    let mut seen: HashSet<u16> = [a.name()].into();
    for _ in 0..300 {
        let numbers = a.claim().unwrap().unwrap();
        assert_eq!(numbers.end() - numbers.start(), (1 << BLOCK_BITS) - 1);
        let block = u16::try_from(numbers.start() >> BLOCK_BITS).unwrap();
        assert!(a.has(block) && !RESERVED.contains(&block) && seen.insert(block));
    }
    let (_b_sockets, b) = opened(&[here]);
    assert!(!seen.contains(&b.name()));
    assert_eq!(taken(here).unwrap().len(), 302);
    drop(a);
    let left = taken(here).unwrap();
    assert_eq!(
        left,
        [(b.name(), port(&b, lookup(here, b.name())).unwrap())]
    );
    for block in seen {
        assert_eq!(port(&b, lookup(here, block)), Some(ROCE_PORT));
    }
}

#[test]
fn all_blocks_can_be_had_and_no_more() {
    let here = address();
    let (_a_sockets, a) = opened(&[here]);
    let mut count = 1;
    while a.claim().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, BLOCKS - 2);
    let error = open(&[here], &config(true, true)).unwrap_err();
    assert!(matches!(error, NetError::NoBlock), "{error}");
}

#[test]
fn a_port_that_is_not_shared_is_refused() {
    let here = address();
    let foreign = UdpSocket::bind((here, ROCE_PORT)).unwrap();
    let error = open(&[here], &config(true, true)).unwrap_err();
    assert!(matches!(error, NetError::PortInUse { .. }), "{error}");
    drop(foreign);
    // Nor do we let somebody in whom the registry does not know.
    let (sockets, share) = opened(&[here]);
    let path = registry_path(here).unwrap().unwrap();
    let hidden = path.with_extension("hidden");
    std::fs::rename(&path, &hidden).unwrap();
    let error = open(&[here], &config(true, true)).unwrap_err();
    assert!(matches!(error, NetError::PortInUse { .. }), "{error}");
    std::fs::rename(&hidden, &path).unwrap();
    drop((sockets, share));
    assert!(!path.exists());
}

#[test]
fn the_first_has_the_door_and_the_last_takes_it_over() {
    let here = address();
    let mut devices: Vec<_> = (0..3).map(|_| opened(&[here])).collect();
    let hits = |devices: &[(Vec<RoceSocket>, Arc<Share>)]| {
        for _ in 0..8 {
            let peer = UdpSocket::bind((address(), 0)).unwrap();
            peer.send_to(b"to the door", (here, ROCE_PORT)).unwrap();
        }
        let mut ring = crate::rx::RxRing::new(16);
        devices
            .iter()
            .map(|(sockets, _)| {
                let looks =
                    std::iter::repeat_with(|| ring.receive(crate::testing::door(&sockets[0])));
                looks.take_while(|&got| got != 0).sum::<usize>()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(hits(&devices), [8, 0, 0]);
    devices.remove(0);
    assert_eq!(hits(&devices), [0, 8]);
    devices.remove(1);
    assert_eq!(hits(&devices), [8]);
    assert!(lock::user() != u32::MAX);
}

#[test]
fn on_a_plain_wire_nobody_is_told_how_much_a_socket_holds() {
    // proves: wire-1
    let here = address();
    let mut settings = config(true, true);
    let (_, a) = opened(&[here]);
    settings.plain_wire = true;
    let (_b_sockets, b) = open(&[here], &settings).unwrap();
    let b = b.unwrap();
    let home = a.resolve(lookup(here, b.name())).unwrap();
    assert_eq!(home.rx_bytes, 0);
    assert!(b.resolve(lookup(here, a.name())).unwrap().rx_bytes > 0);
}
