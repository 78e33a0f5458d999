//! `BareSocket`: a plain UDP socket with the kernel's offloads and nothing else on top.
//!
//! ```text
//! send   bytes ──UDP_SEGMENT──► datagrams of equal length     one system call
//! receive   datagrams ──UDP_GRO──► one buffer                 one system call
//! ```
//!
//! It is what the device is measured against (`srdma-cli perf limit`): the same kernel features,
//! without packets, queues or memory keys. Unconnected and non-blocking or blocking as asked, as
//! the sockets of the device are. It sets neither DF nor TOS, and does not read control messages:
//! whoever measures knows the length of the datagrams.

use crate::error::NetError;
use crate::socket::grow;
use crate::sys::cmsg::SOL_UDP;
use crate::sys::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// How a bare socket is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BareConfig {
    /// Cut what is sent into datagrams of this length.
    pub segment: Option<u16>,
    /// Merge what is received.
    pub gro: bool,
    /// Calls sleep, at most for this long; `None` for calls that never wait.
    pub blocking: Option<Duration>,
    /// Receive buffer in bytes of the kernel's accounting; `None` for as much as it allows.
    pub rx_buffer: Option<u32>,
}

/// A plain UDP socket.
#[derive(Debug)]
pub struct BareSocket {
    socket: UdpSocket,
    local: SocketAddr,
    rx_buffer: u32,
}

impl BareSocket {
    /// Opens a socket on `local`, on a port of the kernel's choice.
    pub fn open(local: IpAddr, config: &BareConfig) -> Result<Self, NetError> {
        let io = |what| move |source| NetError::from_io(local, what, source);
        let domain = Domain::for_address(SocketAddr::new(local, 0));
        let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(Protocol::UDP))
            .map_err(io("open a UDP socket"))?;
        let option = |option, name, value| {
            let set = sockopt::set_int(socket.as_fd(), SOL_UDP, name, value);
            set.map_err(|source| NetError::Option {
                local,
                option,
                source,
            })
        };
        if let Some(length) = config.segment {
            option("UDP_SEGMENT", libc::UDP_SEGMENT, length.into())?;
        }
        if config.gro {
            option("UDP_GRO", libc::UDP_GRO, 1)?;
        }
        let rx_buffer = grow(&socket, libc::SO_RCVBUF, config.rx_buffer);
        socket
            .bind(&SocketAddr::new(local, 0).into())
            .map_err(io("bind a UDP port"))?;
        let socket = UdpSocket::from(socket);
        let mode = match config.blocking {
            Some(limit) => socket.set_read_timeout(Some(limit)),
            None => socket.set_nonblocking(true),
        };
        mode.map_err(io("set up a UDP socket"))?;
        let local = socket.local_addr().map_err(io("ask for the UDP port"))?;
        Ok(Self {
            socket,
            local,
            rx_buffer,
        })
    }

    /// Where others reach it.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer that the kernel granted, in bytes of its accounting.
    #[must_use]
    pub const fn rx_buffer(&self) -> u32 {
        self.rx_buffer
    }

    /// Sends `bytes`: one datagram, or several of the configured length. One system call.
    ///
    /// `false`: there was no room, and nothing left.
    pub fn send(&self, bytes: &[u8], target: SocketAddr) -> io::Result<bool> {
        match self.socket.send_to(bytes, target) {
            Ok(_) => Ok(true),
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Receives one datagram, or several of one sender. One system call.
    ///
    /// `None`: nothing is there, or came in time.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(bytes) {
            Ok(got) => Ok(Some(got)),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until something can be received, at most for `limit` (in whole milliseconds).
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        match sockopt::wait_readable(self.socket.as_fd(), limit) {
            Err(error) if !is_nothing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Errors that say "not at the moment".
fn is_nothing(error: &io::Error) -> bool {
    let quiet = [
        io::ErrorKind::WouldBlock,
        io::ErrorKind::TimedOut,
        io::ErrorKind::Interrupted,
    ];
    quiet.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn segments_join_again_and_silence_is_none() {
        let wait = Some(Duration::from_secs(20));
        let receiver = BareConfig {
            gro: true,
            blocking: wait,
            ..BareConfig::default()
        };
        let receiver = BareSocket::open(Ipv4Addr::LOCALHOST.into(), &receiver).unwrap();
        let sender = BareConfig {
            segment: Some(100),
            ..BareConfig::default()
        };
        let sender = BareSocket::open(Ipv4Addr::new(127, 0, 0, 2).into(), &sender).unwrap();
        assert!(sender.send(&[7; 250], receiver.local()).unwrap());
        let mut bytes = [0; 512];
        let mut total = 0;
        while total < 250 {
            let (len, from) = receiver.receive(&mut bytes).unwrap().unwrap();
            assert_eq!(from, sender.local());
            assert!(bytes[..len].iter().all(|&byte| byte == 7));
            total += len;
        }
        assert_eq!(total, 250);
        assert_eq!(sender.receive(&mut bytes).unwrap(), None);
        sender.wait(Duration::from_millis(1)).unwrap();
    }
}
