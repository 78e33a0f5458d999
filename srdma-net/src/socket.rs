//! `RoceSocket`: the two UDP sockets of one local address.
//!
//! ```text
//! door      addr:4791            receives from peers elsewhere; shared with other processes
//! private   addr:0xC000..=FFFF   sends everything; receives from peers on this machine
//! ```
//!
//! | option | why |
//! |---|---|
//! | never connected, PMTUDISC_PROBE | IP ID 0 and DF set, which the ICRC needs   [RoCEv2 7.2, 7.6] |
//! | UDP_GRO | one receive for many packets |
//! | RECVTOS, RECVTTL | ECN and hop limit of a packet; its destination is what we are bound to |
//! | UDP_NO_CHECK6_RX | rxe sends IPv6 without UDP checksum        [RoCEv2 7.7] |
//! | SO_RXQ_OVFL | counts what the kernel dropped for want of room |
//! | SO_REUSEPORT, filter (door) | processes of one user share the port, the first gets everything |
//! | checksum on (no SO_NO_CHECK) | GSO refuses to work without          [RoCEv2 7.7] |
//!
//! The private port never changes, because the ICRC covers it. Sending and receiving: `tx.rs`,
//! `rx.rs`; sharing: `share.rs`.

mod usual;

use crate::error::NetError;
use crate::offload::OffloadConfig;
use crate::share::owner;
use crate::sys::cmsg::SOL_UDP;
use crate::sys::{lock, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use usual::{Marks, Usual};

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
    /// TTL or hop limit of packets that ask for no other; for those that nobody asks for, it may be
    /// more.
    pub hop_limit: u8,
    /// Which offloads may be used.
    pub offload: OffloadConfig,
    /// Nothing is on the wire but what the specification has, and peers are not told how much the
    /// socket holds.
    pub plain_wire: bool,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            rx_buffer: None,
            tx_buffer: None,
            tclass: 0,
            hop_limit: 64,
            offload: OffloadConfig::default(),
            plain_wire: false,
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

/// A socket that receives.
#[derive(Debug)]
pub struct End {
    pub(crate) local: IpAddr,
    pub(crate) port: u16,
    socket: Socket,
    gro: bool,
    buffer: u32,
    drops: AtomicU64,
}

impl End {
    /// The socket, to sleep on or receive from.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Datagrams that the kernel dropped because the receive buffer was full, as far as known: the
    /// kernel tells with the next datagram that it delivers.
    // rule: roce-161
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.drops.load(Ordering::Relaxed)
    }

    /// Takes the kernel's drop counter (modulo 2^32); returns how many are new.
    pub(crate) fn note_drops(&self, counter: u32) -> u64 {
        let known = self.drops.load(Ordering::Relaxed);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the kernel's counter has 32 bits"
        )]
        let fresh = u64::from(counter.wrapping_sub(known as u32));
        self.drops.store(known + fresh, Ordering::Relaxed);
        fresh
    }
}

/// Both sockets of one local address.
#[derive(Debug)]
pub struct RoceSocket {
    config: SocketConfig,
    private: End,
    tx_buffer: u32,
    door: Option<End>,
    usual: Usual,
}

impl RoceSocket {
    /// Opens both sockets of `local`, and has port 4791 alone.
    pub fn open(local: IpAddr, config: &SocketConfig) -> Result<Self, NetError> {
        let mut this = Self::open_private(local, config)?;
        this.open_door(false)?;
        Ok(this)
    }

    /// Opens the private socket of `local`.
    pub(crate) fn open_private(local: IpAddr, config: &SocketConfig) -> Result<Self, NetError> {
        if let IpAddr::V6(v6) = local
            && v6.is_unicast_link_local()
        {
            return Err(NetError::LinkLocal { local });
        }
        let socket = sender(local, config)?;
        let gro = receives(&socket, local, config)?;
        let port = bind_source(&socket, local)?;
        let tx_buffer = grow(&socket, libc::SO_SNDBUF, config.tx_buffer);
        Ok(Self {
            config: *config,
            private: End::new(local, port, socket, gro, config),
            tx_buffer,
            door: None,
            usual: Usual::new((config.tclass, config.hop_limit)),
        })
    }

    /// Opens port 4791; beside other processes of this user if `shared`.
    pub(crate) fn open_door(&mut self, shared: bool) -> Result<(), NetError> {
        self.open_door_on(ROCE_PORT, shared)
    }

    /// As [`open_door`](Self::open_door), on `port`; zero for any (tests).
    fn open_door_on(&mut self, port: u16, shared: bool) -> Result<(), NetError> {
        let local = self.local();
        let socket = udp(local)?;
        let gro = receives(&socket, local, &self.config)?;
        if shared {
            set_all(
                &socket,
                local,
                &[("SO_REUSEPORT", libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)],
            )?;
        }
        // rule: roce-160
        bind_door(&socket, local, port)?;
        if shared {
            // Without it the kernel lets chance decide whom a flow comes to, and each passes on
            // what is not its own: more work, not wrong.
            let _ = sockopt::first_takes_all(socket.as_fd());
        }
        self.door = Some(End::new(local, port, socket, gro, &self.config));
        Ok(())
    }

    /// Is port 4791 free?
    pub(crate) fn try_door(&self) -> Result<(), NetError> {
        bind_door(&udp(self.local())?, self.local(), ROCE_PORT)
    }

    /// The address that both sockets are bound to.
    #[must_use]
    pub const fn local(&self) -> IpAddr {
        self.private.local
    }

    /// The port that all packets of this address are sent from; the ICRC covers it.
    #[must_use]
    pub const fn tx_port(&self) -> u16 {
        self.private.port
    }

    /// The buffers that the kernel granted; the smaller one of both receiving sockets.
    #[must_use]
    pub fn buffers(&self) -> Buffers {
        let rx = self.ends().map(|end| end.buffer).min();
        Buffers {
            rx: rx.unwrap_or(0),
            tx: self.tx_buffer,
        }
    }

    /// What the socket was opened with.
    #[must_use]
    pub const fn config(&self) -> &SocketConfig {
        &self.config
    }

    /// Bytes that it holds, as peers are told; 0 if they are told nothing.
    pub(crate) fn told_rx(&self) -> u32 {
        if self.config().plain_wire {
            0
        } else {
            self.buffers().rx
        }
    }

    /// The kernel merges received datagrams.
    #[must_use]
    pub const fn gro(&self) -> bool {
        self.private.gro
    }

    /// The sockets that receive: the private one, then the door.
    pub fn ends(&self) -> impl Iterator<Item = &End> {
        [Some(&self.private), self.door.as_ref()]
            .into_iter()
            .flatten()
    }

    pub(crate) const fn private(&self) -> &End {
        &self.private
    }

    pub(crate) const fn door(&self) -> Option<&End> {
        self.door.as_ref()
    }

    /// The sending socket, to sleep on while it is blocked.
    #[must_use]
    pub fn tx_fd(&self) -> BorrowedFd<'_> {
        self.private.fd()
    }

    /// The one of `sockets` that is on `local`.
    pub(crate) fn on(sockets: &[Self], local: IpAddr) -> Option<&Self> {
        sockets.iter().find(|socket| socket.local() == local)
    }

    /// A message that is sent asks for these marks; what the socket has of its own.
    pub(crate) fn usual_marks(&self, asked: Marks) -> Marks {
        self.usual.asked(asked)
    }

    /// Gives the socket the marks that its messages ask for, if that is worth it.
    pub(crate) fn adapt(&self) {
        self.usual.adapt(self.tx_fd(), self.local().is_ipv6());
    }

    /// Sends one datagram, whose bytes lie in several places.
    pub(crate) fn send_parts(&self, parts: &[&[u8]; 2], target: SocketAddr) -> io::Result<()> {
        let parts = parts.map(IoSlice::new);
        let socket = &self.private.socket;
        socket.send_to_vectored(&parts, &target.into()).map(drop)
    }
}

impl End {
    fn new(local: IpAddr, port: u16, socket: Socket, gro: bool, config: &SocketConfig) -> Self {
        Self {
            local,
            port,
            gro,
            buffer: grow(&socket, libc::SO_RCVBUF, config.rx_buffer),
            socket,
            drops: AtomicU64::new(0),
        }
    }
}

/// Binds port 4791, or says whose it is.
fn bind_door(socket: &Socket, local: IpAddr, port: u16) -> Result<(), NetError> {
    let Err(error) = socket.bind(&SocketAddr::new(local, port).into()) else {
        return Ok(());
    };
    if error.raw_os_error() == Some(libc::EADDRINUSE)
        && let Some(user) = owner::of_port(local, port)
        && user != lock::user()
    {
        let user = owner::name(user);
        return Err(NetError::OtherUser { local, user });
    }
    Err(NetError::from_io(local, "bind UDP port 4791", error))
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

/// Sets what a receiving socket needs. True if the kernel merges datagrams.
fn receives(socket: &Socket, local: IpAddr, config: &SocketConfig) -> Result<bool, NetError> {
    let options: &[Opt] = if local.is_ipv6() {
        &[
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
            ("IP_RECVTOS", libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            ("IP_RECVTTL", libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        ]
    };
    set_all(socket, local, options)?;
    set_all(
        socket,
        local,
        &[("SO_RXQ_OVFL", libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)],
    )?;
    // A kernel without GRO for sockets delivers datagrams one by one: slower, not wrong.
    Ok(config.offload.gro && sockopt::set_int(socket.as_fd(), SOL_UDP, libc::UDP_GRO, 1).is_ok())
}

/// A socket that only sends, bound to a free port of the range.
pub(crate) fn open_tx(local: IpAddr, config: &SocketConfig) -> Result<(Socket, u16), NetError> {
    let socket = sender(local, config)?;
    sockopt::drop_everything(socket.as_fd()).map_err(|source| NetError::Option {
        local,
        option: "SO_ATTACH_FILTER",
        source,
    })?;
    let port = bind_source(&socket, local)?;
    Ok((socket, port))
}

/// A socket that packets are sent from, not bound yet.
fn sender(local: IpAddr, config: &SocketConfig) -> Result<Socket, NetError> {
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
    Ok(socket)
}

/// Binds a free port of the range.
fn bind_source(socket: &Socket, local: IpAddr) -> Result<u16, NetError> {
    // rule: roce-32
    let random = fastrand::u16(..);
    for step in 0..SOURCE_TRIES {
        let port = SOURCE_FIRST | random.wrapping_add(step * 67);
        match socket.bind(&SocketAddr::new(local, port).into()) {
            Ok(()) => return Ok(port),
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
