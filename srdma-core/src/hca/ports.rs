//! Lookups: which UDP port packets for a queue pair go to.
//!
//! Processes on one address share the numbers of queue pairs in blocks, and each has a port of its
//! own. Who has which block is not known here; the device asks whoever drives it, and uses the port
//! of RoCE where nobody knows better.
//!
//! ```text
//! queue pair ─ ask ─► poll_lookup ─► driver of the device ─► handle_lookup ─► its path
//! ```
//!
//! A connected queue pair asks when it is connected and when a time-out suggests that the answer
//! has changed. A datagram waits for the answer, which holds for a while.

use crate::num::Qpn;
use crate::obj::table::Slot;
use crate::time::Instant;
use crate::wire::flow::ROCE_PORT;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Numbers of one block: the low bits of a queue pair number.
pub const BLOCK_BITS: u32 = 12;
/// Blocks of all 24-bit numbers.
pub const BLOCKS: u16 = 1 << (24 - BLOCK_BITS);
/// How long an answer holds for datagrams: nothing else tells that it is wrong.
const VALID_NS: u64 = 100_000_000;
/// Answers that are kept; what is forgotten is asked again.
const KEPT: usize = 4096;

/// A question: who has this block on this address?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Lookup {
    /// The address.
    pub addr: IpAddr,
    /// The block.
    pub block: u16,
}

impl Lookup {
    /// The question that `qpn` at `addr` depends on.
    #[must_use]
    pub const fn of(addr: IpAddr, qpn: Qpn) -> Self {
        Self {
            addr,
            block: block_of(qpn),
        }
    }
}

/// The block that `qpn` is in.
#[must_use]
pub const fn block_of(qpn: Qpn) -> u16 {
    #[allow(clippy::cast_possible_truncation, reason = "24 bits less 12")]
    let block = (qpn.value() >> BLOCK_BITS) as u16;
    block
}

/// An answer: where a block's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "all that a registry says")]
pub struct Home {
    /// The UDP port.
    pub port: u16,
    /// What the socket there holds, in bytes as the kernel counts them; 0: not known.
    pub rx_bytes: u32,
}

impl From<u16> for Home {
    /// A socket of the usual size at `port`.
    fn from(port: u16) -> Self {
        Self { port, rx_bytes: 0 }
    }
}

/// An answer, and until when it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) until: Instant,
}

/// What is known and what was asked.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Addresses are shared; otherwise all are reached at the port of RoCE.
    shared: bool,
    known: HashMap<Lookup, Port>,
    asked: VecDeque<(Lookup, Slot)>,
}

impl Ports {
    pub(crate) fn new(shared: bool) -> Self {
        Self {
            shared,
            known: HashMap::new(),
            asked: VecDeque::new(),
        }
    }

    /// `qp` wants to know.
    pub(crate) fn ask(&mut self, lookup: Lookup, qp: Slot) {
        if self.shared {
            self.asked.push_back((lookup, qp));
        }
    }

    /// The port for a datagram sent at `now`; `None` if it has to be asked for.
    pub(crate) fn find(&self, lookup: Lookup, now: Instant) -> Option<Port> {
        if !self.shared || lookup.addr.is_multicast() {
            return Some(Port {
                number: ROCE_PORT,
                until: Instant(u64::MAX),
            });
        }
        let port = self.known.get(&lookup)?;
        (now < port.until).then_some(*port)
    }

    pub(crate) fn next(&self) -> Option<Lookup> {
        self.asked.front().map(|(lookup, _)| *lookup)
    }

    /// Takes an answer.
    pub(crate) fn learn(&mut self, lookup: Lookup, number: Option<u16>, now: Instant) {
        let before = self.known.get(&lookup).map(|port| port.number);
        let number = number.or(before).unwrap_or(ROCE_PORT);
        if self.known.len() >= KEPT && !self.known.contains_key(&lookup) {
            self.known.clear();
        }
        let until = now.after(VALID_NS);
        self.known.insert(lookup, Port { number, until });
    }

    /// The next queue pair that waits for the answer to `lookup`.
    pub(crate) fn take(&mut self, lookup: Lookup) -> Option<Slot> {
        self.asked
            .pop_front_if(|(asked, _)| *asked == lookup)
            .map(|(_, qp)| qp)
    }
}

impl super::Hca {
    /// A port that has to be looked up before what depends on it is sent. Answered with
    /// [`handle_lookup`](Self::handle_lookup), else it is asked again.
    #[must_use]
    pub fn poll_lookup(&self) -> Option<Lookup> {
        self.dev.ports.next()
    }

    /// The block is reached at `home`; `None` if that cannot be found out: then what was known
    /// before still counts.
    pub fn handle_lookup(&mut self, now: Instant, lookup: Lookup, home: Option<Home>) {
        self.dev
            .ports
            .learn(lookup, home.map(|home| home.port), now);
        while let Some(slot) = self.dev.ports.take(lookup) {
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            match home {
                Some(home) if qp.id.kind.is_connected() => self.dev.redirect(qp, home, now),
                _ => qp.make_ready(&mut self.dev.ctx(now)),
            }
            qp.set_timer(&mut self.timers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_for_a_while_and_are_bounded() {
        let mut ports = Ports::new(true);
        let lookup = |n: u32| Lookup::of(IpAddr::from(n.to_be_bytes()), Qpn::new(0x12_3456));
        let now = Instant(5);
        assert_eq!(lookup(1).block, 0x123);
        assert!(ports.find(lookup(1), now).is_none());
        ports.learn(lookup(1), Some(50_000), now);
        assert_eq!(ports.find(lookup(1), now).unwrap().number, 50_000);
        let later = now.after(VALID_NS);
        assert!(ports.find(lookup(1), later).is_none());
        ports.learn(lookup(1), None, later);
        assert_eq!(
            ports.find(lookup(1), later).unwrap().number,
            50_000,
            "as before"
        );
        ports.learn(lookup(2), None, later);
        assert_eq!(ports.find(lookup(2), later).unwrap().number, ROCE_PORT);
        for n in 0..10_000 {
            ports.learn(lookup(n), Some(50_000), now);
            assert!(ports.known.len() <= KEPT);
        }
        let group = Lookup::of(IpAddr::from([224, 0, 0, 1]), Qpn::MULTICAST);
        assert_eq!(ports.find(group, now).unwrap().number, ROCE_PORT);
    }

    #[test]
    fn who_does_not_share_never_asks() {
        let mut ports = Ports::new(false);
        let lookup = Lookup::of(IpAddr::from([127, 0, 0, 1]), Qpn::new(7));
        ports.ask(lookup, Slot::NONE);
        assert!(ports.next().is_none());
        let known = ports.find(lookup, Instant(0)).unwrap();
        assert_eq!((known.number, known.until), (ROCE_PORT, Instant(u64::MAX)));
    }
}
