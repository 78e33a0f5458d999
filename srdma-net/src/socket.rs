//! `RoceSocket`: the two UDP sockets of one local address.
//!
//! ```text
//! RX   addr:4791            receives from everybody; GRO, destination, TOS, TTL, drop counter
//! TX   addr:0xC000..=FFFF   sends to everybody's 4791; drops what it receives
//! ```
//!
//! | option | why |
//! |---|---|
//! | never connected, PMTUDISC_PROBE | IP ID 0 and DF set, which the ICRC needs   [RoCEv2 7.2, 7.6] |
//! | UDP_GRO | one receive for many packets |
//! | PKTINFO, RECVTOS, RECVTTL | destination, ECN and hop limit of a packet |
//! | UDP_NO_CHECK6_RX | rxe sends IPv6 without UDP checksum        [RoCEv2 7.7] |
//! | SO_RXQ_OVFL | counts what the kernel dropped for want of room |
//! | checksum on (no SO_NO_CHECK) | GSO refuses to work without          [RoCEv2 7.7] |
//!
//! The TX port never changes, because the ICRC covers it. Sending and receiving: `tx.rs`, `rx.rs`.

use crate::error::NetError;
use crate::offload::OffloadConfig;
use crate::sys::cmsg::SOL_UDP;
use crate::sys::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The UDP port of RoCEv2, for every receiver.                       [RoCEv2 1.1]
pub const ROCE_PORT: u16 = 4791;
/// First port to send from.
const SOURCE_FIRST: u16 = 0xc000;
/// How many source ports to try before giving up.
const SOURCE_TRIES: u16 = 256;
/// Largest socket buffer that is asked for if nothing is configured.
const BUFFER_GOAL: u32 = 64 << 20;

/// How sockets are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Receive buffer in bytes as the kernel accounts them (what `SO_RCVBUF` reads back); `None`
    /// for as much as the kernel allows.
    pub rx_buffer: Option<u32>,
    /// Send buffer, likewise.
    pub tx_buffer: Option<u32>,
    /// TOS or traffic class of packets that ask for no other.
    pub tclass: u8,
    /// TTL or hop limit of packets that ask for no other.
    pub hop_limit: u8,
    /// Which offloads may be used.
    pub offload: OffloadConfig,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            rx_buffer: None,
            tx_buffer: None,
            tclass: 0,
            hop_limit: 64,
            offload: OffloadConfig::default(),
        }
    }
}

/// Socket buffers as the kernel granted them, in bytes of its own accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Receive buffer.
    pub rx: u32,
    /// Send buffer.
    pub tx: u32,
}

/// Both sockets of one local address.
#[derive(Debug)]
pub struct RoceSocket {
    pub(crate) local: IpAddr,
    tx_port: u16,
    config: SocketConfig,
    buffers: Buffers,
    gro: bool,
    rx: Socket,
    tx: Socket,
    rx_drops: AtomicU64,
}

impl RoceSocket {
    /// Opens both sockets of `local`.
    pub fn open(local: IpAddr, config: &SocketConfig) -> Result<Self, NetError> {
        Self::open_on(local, ROCE_PORT, config)
    }

    /// As [`open`](Self::open), with the RX socket on `port`; zero for any (tests).
    fn open_on(local: IpAddr, port: u16, config: &SocketConfig) -> Result<Self, NetError> {
        if let IpAddr::V6(v6) = local
            && v6.is_unicast_link_local()
        {
            return Err(NetError::LinkLocal { local });
        }
        let (rx, gro) = open_rx(local, port, config)?;
        let (tx, tx_port) = open_tx(local, config)?;
        let buffers = Buffers {
            rx: grow(&rx, libc::SO_RCVBUF, config.rx_buffer),
            tx: grow(&tx, libc::SO_SNDBUF, config.tx_buffer),
        };
        let config = *config;
        let rx_drops = AtomicU64::new(0);
        Ok(Self {
            local,
            tx_port,
            config,
            buffers,
            gro,
            rx,
            tx,
            rx_drops,
        })
    }

    /// The address that both sockets are bound to.
    #[must_use]
    pub const fn local(&self) -> IpAddr {
        self.local
    }

    /// The port that all packets of this address are sent from; the ICRC covers it.
    #[must_use]
    pub const fn tx_port(&self) -> u16 {
        self.tx_port
    }

    /// The buffers that the kernel granted.
    #[must_use]
    pub const fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// What the socket was opened with.
    #[must_use]
    pub const fn config(&self) -> &SocketConfig {
        &self.config
    }

    /// The kernel merges received datagrams.
    #[must_use]
    pub const fn gro(&self) -> bool {
        self.gro
    }

    /// Datagrams that the kernel dropped because the receive buffer was full, as far as known: the
    /// kernel tells with the next datagram that it delivers.
    // rule: roce-161
    #[must_use]
    pub fn rx_drops(&self) -> u64 {
        self.rx_drops.load(Ordering::Relaxed)
    }

    /// The receiving socket, to sleep on or receive from.
    #[must_use]
    pub fn rx_fd(&self) -> BorrowedFd<'_> {
        self.rx.as_fd()
    }

    /// The sending socket, to sleep on while it is blocked.
    #[must_use]
    pub fn tx_fd(&self) -> BorrowedFd<'_> {
        self.tx.as_fd()
    }

    /// Takes the kernel's drop counter (modulo 2^32); returns how many are new.
    pub(crate) fn note_drops(&self, counter: u32) -> u64 {
        let known = self.rx_drops.load(Ordering::Relaxed);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the kernel's counter has 32 bits"
        )]
        let fresh = u64::from(counter.wrapping_sub(known as u32));
        self.rx_drops.store(known + fresh, Ordering::Relaxed);
        fresh
    }
}

/// The kernel's limit for receive buffers that a program may ask for; a socket gets twice as much.
#[must_use]
pub fn rmem_max() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/rmem_max")
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn open_rx(local: IpAddr, port: u16, config: &SocketConfig) -> Result<(Socket, bool), NetError> {
    let socket = udp(local)?;
    let options: &[Opt] = if local.is_ipv6() {
        &[
            (
                "IPV6_RECVPKTINFO",
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVPKTINFO,
                1,
            ),
            (
                "IPV6_RECVTCLASS",
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                1,
            ),
            (
                "IPV6_RECVHOPLIMIT",
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVHOPLIMIT,
                1,
            ),
            // rule: roce-6, roce-156
            ("UDP_NO_CHECK6_RX", SOL_UDP, libc::UDP_NO_CHECK6_RX, 1),
        ]
    } else {
        &[
            ("IP_PKTINFO", libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            ("IP_RECVTOS", libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            ("IP_RECVTTL", libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        ]
    };
    set_all(&socket, local, options)?;
    set_all(
        &socket,
        local,
        &[("SO_RXQ_OVFL", libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)],
    )?;
    // A kernel without GRO for sockets delivers datagrams one by one: slower, not wrong.
    let gro =
        config.offload.gro && sockopt::set_int(socket.as_fd(), SOL_UDP, libc::UDP_GRO, 1).is_ok();
    // rule: roce-160
    socket
        .bind(&SocketAddr::new(local, port).into())
        .map_err(|e| NetError::from_io(local, "bind UDP port 4791", e))?;
    Ok((socket, gro))
}

/// A sending socket, bound to a free port of the range.
pub(crate) fn open_tx(local: IpAddr, config: &SocketConfig) -> Result<(Socket, u16), NetError> {
    let socket = udp(local)?;
    let (tclass, hops) = (i32::from(config.tclass), i32::from(config.hop_limit));
    let options: &[Opt] = if local.is_ipv6() {
        &[
            ("IPV6_TCLASS", libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tclass),
            (
                "IPV6_UNICAST_HOPS",
                libc::IPPROTO_IPV6,
                libc::IPV6_UNICAST_HOPS,
                hops,
            ),
        ]
    } else {
        &[
            ("IP_TOS", libc::IPPROTO_IP, libc::IP_TOS, tclass),
            ("IP_TTL", libc::IPPROTO_IP, libc::IP_TTL, hops),
        ]
    };
    set_all(&socket, local, options)?;
    sockopt::drop_everything(socket.as_fd()).map_err(|source| NetError::Option {
        local,
        option: "SO_ATTACH_FILTER",
        source,
    })?;
    // rule: roce-32
    let random = fastrand::u16(..);
    for step in 0..SOURCE_TRIES {
        let port = SOURCE_FIRST | random.wrapping_add(step * 67);
        match socket.bind(&SocketAddr::new(local, port).into()) {
            Ok(()) => return Ok((socket, port)),
            Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {}
            Err(e) => return Err(NetError::from_io(local, "bind a source port", e)),
        }
    }
    Err(NetError::NoSourcePort { local })
}

/// Label, level, name, value.
type Opt = (&'static str, libc::c_int, libc::c_int, libc::c_int);

/// A non-blocking UDP socket that sets DF and ID 0. Checksums stay on, in both directions.
// rule: roce-4, roce-7
fn udp(local: IpAddr) -> Result<Socket, NetError> {
    let domain = if local.is_ipv6() {
        Domain::IPV6
    } else {
        Domain::IPV4
    };
    let socket = Socket::new(
        domain,
        Type::DGRAM.nonblocking().cloexec(),
        Some(Protocol::UDP),
    )
    .map_err(|e| NetError::from_io(local, "open a UDP socket", e))?;
    let options: &[Opt] = if local.is_ipv6() {
        &[
            ("IPV6_V6ONLY", libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
            (
                "IPV6_MTU_DISCOVER",
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            ),
        ]
    } else {
        &[(
            "IP_MTU_DISCOVER",
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        )]
    };
    set_all(&socket, local, options)?;
    Ok(socket)
}

fn set_all(socket: &Socket, local: IpAddr, options: &[Opt]) -> Result<(), NetError> {
    for &(option, level, name, value) in options {
        sockopt::set_int(socket.as_fd(), level, name, value).map_err(|source| {
            NetError::Option {
                local,
                option,
                source,
            }
        })?;
    }
    Ok(())
}

/// Asks for a buffer of `wanted` bytes, and returns what was granted.
///
/// The kernel doubles what it is asked for, to pay for its bookkeeping, and silently cuts it to
/// its limit; so half is asked for, and the result read back.
pub(crate) fn grow(socket: &Socket, name: libc::c_int, wanted: Option<u32>) -> u32 {
    let ask = wanted.unwrap_or(BUFFER_GOAL) / 2;
    let ask = libc::c_int::try_from(ask).unwrap_or(libc::c_int::MAX / 2);
    // A refusal leaves the default, which is read back.
    let _ = sockopt::set_int(socket.as_fd(), libc::SOL_SOCKET, name, ask);
    let got = sockopt::get_int(socket.as_fd(), libc::SOL_SOCKET, name).unwrap_or(0);
    u32::try_from(got).unwrap_or(0)
}

#[cfg(test)]
mod tests;
