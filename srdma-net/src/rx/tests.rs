//! Receiving from the real kernel.

use super::*;
use crate::socket::SocketConfig;
use crate::testing::{Script, config, door, drain, open};
use crate::tx::Sender;

#[test]
fn meta_names_sender_destination_ecn_and_hops() {
    let (a, b) = (
        open(&SocketConfig::default()),
        open(&SocketConfig::default()),
    );
    let mut script = Script::new();
    for (k, tclass) in (0u8..).zip([0u8, 1, 2, 3, 0xb8 | 2]) {
        let run = script.run(a.local(), b.local(), k, &[100]);
        (run.tclass, run.hop_limit) = (tclass, 9);
    }
    let sockets = [a];
    assert_eq!(
        script
            .lend(|batch| Sender::new(true).send(&sockets, batch))
            .runs,
        5
    );
    let got = drain(&mut RxRing::new(2), &b);
    let [a] = sockets;
    let seen: Vec<_> = got
        .iter()
        .map(|(meta, _)| (meta.ecn, meta.tclass))
        .collect();
    let want = [
        (Ecn::NotEct, 0),
        (Ecn::Ect1, 1),
        (Ecn::Ect0, 2),
        (Ecn::Ce, 3),
        (Ecn::Ect0, 0xba),
    ];
    assert_eq!(seen, want);
    for (meta, bytes) in &got {
        assert_eq!(
            (meta.source.ip(), meta.source.port()),
            (a.local(), a.tx_port())
        );
        assert_eq!((meta.local, meta.hop_limit), (b.local(), 9));
        assert_eq!((meta.stride, bytes.len()), (100, 100));
    }
}

#[test]
fn overflow_of_the_receive_buffer_is_counted() {
    // proves: roce-161
    let small = SocketConfig {
        rx_buffer: Some(8192),
        ..SocketConfig::default()
    };
    let (a, b) = (open(&SocketConfig::default()), open(&small));
    let mut script = Script::new();
    for k in 0..200 {
        script.run(a.local(), b.local(), k, &[1000]);
    }
    let sockets = [a];
    let mut sender = Sender::new(true);
    assert_eq!(script.lend(|batch| sender.send(&sockets, batch)).runs, 200);
    let mut ring = RxRing::new(16);
    let first = drain(&mut ring, &b).len() as u64;
    assert!(first < 200, "a buffer of 8 KiB cannot hold 200 packets");
    script.runs.truncate(1);
    script.lend(|batch| sender.send(&sockets, batch));
    assert_eq!(drain(&mut ring, &b).len(), 1);
    assert_eq!(first + door(&b).drops(), 200);
    assert_eq!(ring.counters().dropped_full, door(&b).drops());
}

#[test]
fn an_empty_socket_fills_nothing() {
    let socket = open(&config(true, true));
    let mut ring = RxRing::new(4);
    assert_eq!(ring.receive(door(&socket)), 0);
    assert_eq!(ring.datagrams().count(), 0);
    assert_eq!(ring.counters().errors, 0);
}

#[test]
fn empty_datagrams_only_wake() {
    let socket = open(&config(true, true));
    let other = std::net::UdpSocket::bind((crate::testing::address(), 0)).unwrap();
    other
        .send_to(&[], (socket.local(), crate::socket::ROCE_PORT))
        .unwrap();
    let mut ring = RxRing::new(4);
    assert_eq!(ring.receive(door(&socket)), 1);
    assert_eq!(ring.datagrams().count(), 0);
    let counters = ring.counters();
    assert_eq!((counters.empty, counters.dropped_truncated), (1, 0));
}
