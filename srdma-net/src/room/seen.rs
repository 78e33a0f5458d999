//! Receivers on this machine: the kernel shows their sockets to anybody (`sock_diag`).
//!
//! ```text
//! port of a process here ─┬─ some were let go since the last look ─► send
//!                         └─ ask the kernel ─┬─ has room ─► send
//!                                            ╰─ else: later
//! ```
//!
//! A receiver that stands still is waited for, but not for long: what comes after is lost, as on a
//! network.

use super::{Answer, PATIENCE};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// What goes before the next look at a receiver that the kernel does not show.
const UNSEEN: u32 = 64 << 20;
/// Of the memory of a socket, what may be taken when more is sent. The rest is for what the kernel
/// has not delivered yet, and for what other senders do meanwhile.
const FILLED: u32 = 4;
/// Of the memory of a socket, what goes between two looks.
const SHARE: u32 = 8;
/// Receivers that are remembered.
const TARGETS: usize = 1024;

/// What the kernel says of a socket: bytes that it holds, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fill {
    used: u32,
    size: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Target {
    /// May go before the next look.
    rest: u32,
    /// The kernel did not show it at the last look.
    hidden: bool,
    /// It was full at the last look: what it held, and since when nothing was taken from it.
    full: Option<(u32, Instant)>,
}

impl Target {
    /// It is full at `now` and holds `used` bytes: true if it may still make room.
    fn waits(&mut self, used: u32, now: Instant) -> bool {
        let since = match self.full {
            Some((held, since)) if held <= used => since,
            _ => now,
        };
        self.full = Some((used, since));
        now - since < PATIENCE
    }
}

/// Looks at receivers.
#[derive(Debug)]
pub(super) struct Seen {
    kernel: Option<Socket>,
    targets: HashMap<SocketAddr, Target>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self {
            kernel: diag(),
            targets: HashMap::new(),
        }
    }

    /// May something go to `addr` that costs so much? `None`: it cannot be seen.
    pub(super) fn fits(&mut self, addr: SocketAddr, cost: u32) -> Answer {
        if self.targets.len() >= TARGETS && !self.targets.contains_key(&addr) {
            self.targets.clear();
        }
        let target = self.targets.entry(addr).or_default();
        match target.rest.checked_sub(cost) {
            Some(rest) => {
                target.rest = rest;
                (!target.hidden).then_some(true)
            }
            None => self.ask(addr),
        }
    }

    /// Looks at a receiver: may something go to it?
    pub(super) fn ask(&mut self, addr: SocketAddr) -> Answer {
        let target = self.targets.entry(addr).or_default();
        let fill = self.kernel.as_mut().and_then(|kernel| look(kernel, addr));
        target.hidden = fill.is_none();
        let Some(fill) = fill else {
            target.rest = UNSEEN;
            return None;
        };
        if fill.used <= fill.size / FILLED {
            target.full = None;
            // What the kernel has put off does not count yet: it may need this processor.
            std::thread::yield_now();
        } else if target.waits(fill.used, Instant::now()) {
            return Some(false);
        }
        target.rest = fill.size / SHARE;
        Some(true)
    }
}

/// A socket to the kernel's list of sockets.
fn diag() -> Option<Socket> {
    const AF_NETLINK: i32 = libc::AF_NETLINK;
    const SOCK_DIAG: i32 = 4;
    let socket = Socket::new(
        Domain::from(AF_NETLINK),
        Type::DGRAM.nonblocking(),
        Some(Protocol::from(SOCK_DIAG)),
    );
    socket.ok()
}

/// How full the socket is that receives at `addr`; `None` if the kernel does not know one.
/// Costs two system calls that never wait.
fn look(kernel: &mut Socket, addr: SocketAddr) -> Option<Fill> {
    let mut answer = [0; 512];
    kernel.send(&question(addr)).ok()?;
    let len = kernel.read(&mut answer).ok()?;
    fill(answer.get(..len)?)
}

const HEADER: usize = 16;
/// The body of the question, and that of the answer before its attributes.
const QUESTION: usize = 56;
const ANSWER: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SKMEMINFO: u16 = 7;

/// `nlmsghdr`, `inet_diag_req_v2`: the UDP socket that would receive what is sent to `addr`.
fn question(addr: SocketAddr) -> [u8; HEADER + QUESTION] {
    const REQUEST: u16 = 1;
    const FAMILY: usize = HEADER;
    const PORTS: usize = HEADER + 8;
    const ADDRS: usize = HEADER + 12;
    const COOKIE: usize = HEADER + 48;
    let mut bytes = [0; HEADER + QUESTION];
    let len = u32::try_from(bytes.len()).unwrap_or(0);
    let mut put = |at: usize, part: &[u8]| {
        if let Some(to) = bytes.get_mut(at..at + part.len()) {
            to.copy_from_slice(part);
        }
    };
    put(0, &len.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let small = |number: i32| u8::try_from(number).unwrap_or(0);
    put(FAMILY, &[small(family), small(libc::IPPROTO_UDP)]);
    put(FAMILY + 2, &[1 << (SKMEMINFO - 1)]);
    put(FAMILY + 4, &u32::MAX.to_ne_bytes());
    // The sender's side comes first, and the receiver's second.
    for side in 0..2 {
        put(PORTS + 2 * side, &addr.port().to_be_bytes());
        match addr.ip() {
            IpAddr::V4(v4) => put(ADDRS + 16 * side, &v4.octets()),
            IpAddr::V6(v6) => put(ADDRS + 16 * side, &v6.octets()),
        }
    }
    put(COOKIE, &[0xff; 8]);
    bytes
}

/// `nlmsghdr`, `inet_diag_msg`, attributes: the memory of the socket.
fn fill(answer: &[u8]) -> Option<Fill> {
    let half = |at: usize| Some(u16::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    if half(4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut at = HEADER + ANSWER;
    loop {
        let (len, kind) = (usize::from(half(at)?), half(at + 2)?);
        if kind == SKMEMINFO {
            let (used, size) = (word(at + 4)?, word(at + 8)?);
            return Some(Fill { used, size });
        }
        at += len.max(4).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_kernel_tells_how_full_a_socket_is() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(at) else {
                println!("skip: no address {at}");
                continue;
            };
            let addr = socket.local_addr().unwrap();
            let Some(mut kernel) = diag() else {
                println!("skip: no sock_diag");
                return;
            };
            let Some(before) = look(&mut kernel, addr) else {
                println!("skip: no sock_diag for UDP");
                return;
            };
            assert_eq!(before.used, 0);
            assert!(before.size > 0);
            let sender = UdpSocket::bind(at).unwrap();
            sender.send_to(&[0; 4000], addr).unwrap();
            let after = look(&mut kernel, addr).unwrap();
            assert!(after.used >= 4000, "{after:?}");
            assert_eq!(after.size, before.size);
            drop(socket);
            assert_eq!(look(&mut kernel, addr), None, "nobody is there any more");
        }
    }

    #[test]
    fn patience_counts_while_the_receiver_takes_nothing() {
        let start = Instant::now();
        let mut target = Target::default();
        assert!(target.waits(5000, start));
        assert!(target.waits(6000, start + PATIENCE / 2), "more has come");
        assert!(!target.waits(6000, start + PATIENCE), "it stands still");
        assert!(
            target.waits(5999, start + PATIENCE),
            "it has taken something"
        );
        assert!(target.waits(5999, start + PATIENCE * 3 / 2));
        assert!(!target.waits(5999, start + PATIENCE * 2));
    }

    #[test]
    fn garbage_is_no_answer() {
        for seed in 0..1000u64 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut bytes: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
            let _ = fill(&bytes);
            if let Some(kind) = bytes.get_mut(4..6) {
                kind.copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            let _ = fill(&bytes);
        }
    }
}
