//! A bad network at the socket's edge: seeded loss, duplication, reordering, corruption, delay.
//!
//! ```text
//! socket → offer(buffer) → taken apart → lost?  twice?  a bit flipped?  due later? → held
//!                                                                     poll(now) ◄─── in order of
//!                                                                                    due time
//! ```
//!
//! It stands behind the receiving socket, so it acts on real datagrams of real sockets. The other
//! direction is the other side's. Merged buffers are taken apart, since a network loses packets.
//! A device without faults has no injector and pays nothing; one with faults allocates per buffer.

use bytes::{Bytes, BytesMut};
use core::cmp::Reverse;
use fastrand::Rng;
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use std::collections::BinaryHeap;

/// Datagrams held at most; more are dropped.
const MAX_HELD: usize = 8192;

/// How bad the network is. Probabilities are per datagram, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// A datagram disappears.
    pub loss: f64,
    /// A datagram arrives twice.
    pub duplicate: f64,
    /// A datagram arrives later than those behind it.
    pub reorder: f64,
    /// One to three bits of a datagram flip.
    pub corrupt: f64,
    /// Delay of every datagram.
    pub delay_ns: u64,
    /// Longest extra delay of a reordered datagram.
    pub reorder_ns: u64,
    /// The same seed gives the same faults for the same datagrams.
    pub seed: u64,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay_ns: 0,
            reorder_ns: 100_000,
            seed: 0,
        }
    }
}

impl FaultConfig {
    /// Nothing happens to any datagram: no injector is needed.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let odds = [self.loss, self.duplicate, self.reorder, self.corrupt];
        self.delay_ns == 0 && odds.iter().all(|&odds| odds <= 0.0)
    }
}

/// What was done to datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Datagrams that came in.
    pub offered: u64,
    /// Datagrams handed on, duplicates among them.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Handed on twice.
    pub duplicated: u64,
    /// Delayed beyond the others.
    pub reordered: u64,
    /// With flipped bits.
    pub corrupted: u64,
    /// Dropped because too many were held.
    pub overflowed: u64,
}

/// Does to received datagrams what [`FaultConfig`] says.
#[derive(Debug)]
pub struct FaultInjector {
    config: FaultConfig,
    random: Rng,
    held: BinaryHeap<Reverse<Held>>,
    next_order: u64,
    counters: FaultCounters,
}

#[derive(Debug)]
struct Held {
    due: Instant,
    order: u64,
    meta: RxMeta,
    bytes: Bytes,
}

impl FaultInjector {
    /// An injector; `None` if it would do nothing.
    #[must_use]
    pub fn new(config: &FaultConfig) -> Option<Self> {
        (!config.is_off()).then(|| Self {
            config: *config,
            random: Rng::with_seed(config.seed),
            held: BinaryHeap::new(),
            next_order: 0,
            counters: FaultCounters::default(),
        })
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// Takes a received buffer.
    pub fn offer(&mut self, now: Instant, meta: &RxMeta, bytes: &[u8]) {
        let whole = Bytes::copy_from_slice(bytes);
        let stride = meta.stride.max(1);
        for start in (0..bytes.len()).step_by(stride) {
            let datagram = &whole.slice(start..bytes.len().min(start.saturating_add(stride)));
            self.offer_one(now, meta, datagram);
        }
    }

    /// The next datagram that is due at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<(RxMeta, Bytes)> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        self.counters.delivered += 1;
        Some((held.meta, held.bytes))
    }

    /// When the next datagram is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    fn offer_one(&mut self, now: Instant, meta: &RxMeta, bytes: &Bytes) {
        self.counters.offered += 1;
        if self.chance(self.config.loss) {
            self.counters.lost += 1;
            return;
        }
        let copies = if self.chance(self.config.duplicate) {
            self.counters.duplicated += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut due = now.after(self.config.delay_ns);
            if self.chance(self.config.reorder) {
                self.counters.reordered += 1;
                due = due.after(self.random.u64(1..=self.config.reorder_ns.max(1)));
            }
            let bytes = if self.chance(self.config.corrupt) {
                self.counters.corrupted += 1;
                self.flip_bits(bytes)
            } else {
                bytes.clone()
            };
            self.hold(due, meta, bytes);
        }
    }

    fn hold(&mut self, due: Instant, meta: &RxMeta, bytes: Bytes) {
        if self.held.len() >= MAX_HELD {
            self.counters.overflowed += 1;
            return;
        }
        let meta = RxMeta {
            stride: bytes.len(),
            ..*meta
        };
        let order = self.next_order;
        self.next_order += 1;
        self.held.push(Reverse(Held {
            due,
            order,
            meta,
            bytes,
        }));
    }

    fn chance(&mut self, odds: f64) -> bool {
        odds > 0.0 && self.random.f64() < odds
    }

    fn flip_bits(&mut self, bytes: &Bytes) -> Bytes {
        let mut copy = BytesMut::from(&bytes[..]);
        for _ in 0..self.random.u8(1..=3) {
            let at = self.random.usize(..copy.len().max(1));
            if let Some(byte) = copy.get_mut(at) {
                *byte ^= 1 << self.random.u8(..8);
            }
        }
        copy.freeze()
    }
}

impl Held {
    const fn key(&self) -> (u64, u64) {
        (self.due.0, self.order)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests;
