//! `RoceSocket` against the real kernel.

use super::*;
use crate::rx::RxRing;
use crate::testing::{address, config, drain, open};
use std::net::{Ipv4Addr, Ipv6Addr};

#[test]
fn a_taken_port_is_explained() {
    // proves: roce-160
    let first = open(&SocketConfig::default());
    let error = RoceSocket::open(first.local(), &SocketConfig::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, NetError::PortInUse { .. }), "{text}");
    for word in [
        "4791",
        "rdma_rxe",
        "another process or user",
        &first.local().to_string(),
    ] {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[test]
fn a_foreign_address_is_explained() {
    let foreign = IpAddr::from(Ipv4Addr::new(203, 0, 113, 77));
    let error = RoceSocket::open(foreign, &SocketConfig::default()).unwrap_err();
    assert!(matches!(error, NetError::NoSuchAddress { .. }));
    assert!(error.to_string().contains("203.0.113.77"));
    let link = IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    let error = RoceSocket::open(link, &SocketConfig::default()).unwrap_err();
    assert!(matches!(error, NetError::LinkLocal { .. }));
}

#[test]
fn buffers_are_what_was_configured_or_more_than_the_default() {
    let small = SocketConfig {
        rx_buffer: Some(212_992),
        ..SocketConfig::default()
    };
    assert_eq!(open(&small).buffers().rx, 212_992);
    let buffers = open(&SocketConfig::default()).buffers();
    let most = rmem_max().unwrap();
    assert_eq!(buffers.rx, (BUFFER_GOAL / 2).min(most) * 2);
    assert!(buffers.tx >= 4608);
}

#[test]
fn the_source_port_is_an_entropy_port() {
    let socket = open(&SocketConfig::default());
    assert!(socket.tx_port() >= SOURCE_FIRST);
    let bound = socket
        .private
        .socket
        .local_addr()
        .unwrap()
        .as_socket()
        .unwrap();
    assert_eq!(bound, SocketAddr::new(socket.local(), socket.tx_port()));
    // proves: roce-32
    assert!(socket.ends().all(|end| end.socket.peer_addr().is_err()));
}

#[test]
fn what_is_sent_has_a_checksum() {
    // proves: roce-157
    let socket = open(&SocketConfig::default());
    let off = sockopt::get_int(socket.tx_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK).unwrap();
    assert_eq!(off, 0, "segmented sends need checksums");
}

#[test]
fn the_sending_socket_keeps_nothing() {
    let local = address();
    let (socket, port) = open_tx(local, &SocketConfig::default()).unwrap();
    let other = std::net::UdpSocket::bind(SocketAddr::new(address(), 0)).unwrap();
    other
        .send_to(b"unwanted", SocketAddr::new(local, port))
        .unwrap();
    let mut bytes = [core::mem::MaybeUninit::uninit(); 16];
    let error = socket.recv(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn drops_are_counted_across_the_wrap_of_the_kernels_counter() {
    let socket = open(&SocketConfig::default());
    let end = socket.ends().next().unwrap();
    assert_eq!(end.note_drops(u32::MAX - 1), u64::from(u32::MAX) - 1);
    assert_eq!(end.note_drops(3), 5);
    assert_eq!(end.drops(), u64::from(u32::MAX) + 4);
}

/// Sends one datagram with a UDP checksum, and one without.
fn send_with_and_without(local: IpAddr, level: libc::c_int, off: libc::c_int) {
    let open = || {
        let mut socket = RoceSocket::open_private(local, &config(true, true))?;
        socket.open_door_on(0, false)?;
        Ok::<_, NetError>(socket)
    };
    let socket = match open() {
        Ok(socket) => socket,
        Err(error) if local.is_ipv6() => {
            return eprintln!("not checked, this machine has no IPv6: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let door = socket.door.as_ref().unwrap();
    let target = door.socket.local_addr().unwrap();
    let sender = udp(local).unwrap();
    let mut ring = RxRing::new(1);
    for (text, without) in [(&b"checksum"[..], 0), (&b"no checksum"[..], 1)] {
        sockopt::set_int(sender.as_fd(), level, off, without).unwrap();
        sender.send_to(text, &target).unwrap();
        let got = drain(&mut ring, &socket);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].1, text);
        assert_eq!(got[0].0.local, local);
        assert_eq!(got[0].0.hop_limit, 64);
    }
}

#[test]
fn ipv4_is_received_with_and_without_checksum() {
    // proves: roce-6, roce-7
    send_with_and_without(address(), libc::SOL_SOCKET, libc::SO_NO_CHECK);
}

#[test]
fn ipv6_is_received_with_and_without_checksum() {
    // proves: roce-6, roce-7, roce-156
    let local = IpAddr::from(Ipv6Addr::LOCALHOST);
    send_with_and_without(local, SOL_UDP, libc::UDP_NO_CHECK6_TX);
}
