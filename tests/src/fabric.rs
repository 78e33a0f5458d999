//! A network in memory: devices on wires, faults from a seed, time that only moves when told.
//!
//! ```text
//! device A ─ outbox ─► [ loss · duplicate · corrupt · delay · reorder ] ─ inbox ─► device B
//! ```
//!
//! The same seed gives the same network, packet for packet. What it does not do: run the devices;
//! [`Fabric::step`] moves packets and time, and its caller drives the engines.

use bytes::BytesMut;
use fastrand::Rng;
use srdma_core::time::Instant;
use srdma_net::clock::ManualClock;
use srdma_net::wire_link::{Datagram, WireLink};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How bad the network is. Probabilities are per packet, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FabricConfig {
    /// A packet disappears.
    pub loss: f64,
    /// A packet arrives twice.
    pub duplicate: f64,
    /// A packet is held back by up to `reorder_ns`.
    pub reorder: f64,
    /// One bit of a packet flips.
    pub corrupt: f64,
    /// Time on the wire.
    pub delay_ns: u64,
    /// Longest hold of a reordered packet.
    pub reorder_ns: u64,
    /// The same seed gives the same network.
    pub seed: u64,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay_ns: 2_000,
            reorder_ns: 50_000,
            seed: 0,
        }
    }
}

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Packets taken from outboxes.
    pub sent: u64,
    /// Packets that disappeared.
    pub lost: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
}

#[derive(Debug)]
struct InFlight {
    at: Instant,
    order: u64,
    datagram: Datagram,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The network.
#[derive(Debug)]
pub struct Fabric {
    config: FabricConfig,
    clock: ManualClock,
    rng: Rng,
    links: Vec<Arc<WireLink>>,
    by_addr: HashMap<IpAddr, usize>,
    flying: BinaryHeap<Reverse<InFlight>>,
    order: u64,
    counters: FabricCounters,
}

impl Fabric {
    /// A network without devices.
    #[must_use]
    pub fn new(config: FabricConfig, clock: &ManualClock) -> Self {
        Self {
            config,
            clock: clock.clone(),
            rng: Rng::with_seed(config.seed),
            links: Vec::new(),
            by_addr: HashMap::new(),
            flying: BinaryHeap::new(),
            order: 0,
            counters: FabricCounters::default(),
        }
    }

    /// A wire for a device with these addresses.
    pub fn attach(&mut self, addresses: &[SocketAddr]) -> Arc<WireLink> {
        let link = WireLink::new(addresses, 4096, false);
        for addr in addresses {
            self.by_addr.insert(addr.ip(), self.links.len());
        }
        self.links.push(Arc::clone(&link));
        link
    }

    /// Changes the network, seed aside, from here on.
    pub fn set(&mut self, config: FabricConfig) {
        self.config = config;
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> FabricCounters {
        self.counters
    }

    /// Takes what devices have sent, and hands over what has arrived by now. True if anything was
    /// handed over.
    pub fn step(&mut self) -> bool {
        self.collect();
        self.deliver()
    }

    /// Moves time to the next arrival, or to `limit` if that is earlier. False: nothing is on the
    /// way and there is no limit.
    pub fn advance(&mut self, limit: Option<Instant>) -> bool {
        let arrival = self.flying.peek().map(|Reverse(next)| next.at);
        let Some(at) = [arrival, limit].into_iter().flatten().min() else {
            return false;
        };
        self.clock.advance_to(at.max(self.clock.now()));
        true
    }

    fn collect(&mut self) {
        let now = self.clock.now();
        for index in 0..self.links.len() {
            let Some(link) = self.links.get(index).map(Arc::clone) else {
                continue;
            };
            while let Some(datagram) = link.take() {
                self.counters.sent += 1;
                self.launch(now, datagram);
            }
        }
    }

    fn chance(&mut self, odds: f64) -> bool {
        odds > 0.0 && self.rng.f64() < odds
    }

    #[allow(clippy::indexing_slicing, reason = "a bit of the bytes that are there")]
    fn launch(&mut self, now: Instant, mut datagram: Datagram) {
        if self.chance(self.config.loss) {
            self.counters.lost += 1;
            return;
        }
        if self.chance(self.config.corrupt) && !datagram.bytes.is_empty() {
            self.counters.corrupted += 1;
            let mut bytes = BytesMut::from(&datagram.bytes[..]);
            let bit = self.rng.usize(0..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            datagram.bytes = bytes.freeze();
        }
        let copies = if self.chance(self.config.duplicate) {
            self.counters.duplicated += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut at = now.after(self.config.delay_ns);
            if self.chance(self.config.reorder) {
                self.counters.reordered += 1;
                at = at.after(self.rng.u64(0..self.config.reorder_ns.max(1)));
            }
            self.order += 1;
            let order = self.order;
            let datagram = datagram.clone();
            self.flying.push(Reverse(InFlight {
                at,
                order,
                datagram,
            }));
        }
    }

    fn deliver(&mut self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        while self
            .flying
            .peek()
            .is_some_and(|Reverse(next)| next.at <= now)
        {
            let Some(Reverse(next)) = self.flying.pop() else {
                break;
            };
            let link = self
                .by_addr
                .get(&next.datagram.target.ip())
                .and_then(|&index| self.links.get(index));
            if let Some(link) = link {
                link.deliver(next.datagram);
                any = true;
            }
        }
        any
    }
}
