//! A bad network at the socket's edge, and a bad device: by rules, chance and seed.
//!
//! ```text
//! socket → offer ─► rules: lost? twice? a bit flipped? due later? ─► held ─► poll → device
//! device → offer_out ─► the same ─────────────────────────────────► held ─► poll_out → socket
//!                        └► mishaps of the device, with the packet that brings them
//! ```
//!
//! It acts on real datagrams of real sockets, one by one, since a network loses packets: merged
//! buffers are taken apart where something happens to one of them. The same seed and the same
//! datagrams give the same faults. A device without faults has no injector and pays nothing; one
//! with faults allocates for each datagram that something happens to.

mod hold;
mod judge;
mod parse;
mod rule;

pub use parse::FaultSyntax;
pub use rule::{DeviceFault, Direction, FaultAction, FaultRule, Match};

pub(crate) use judge::dest_of;

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use hold::Hold;
use judge::{Decision, Judge};
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::trace::{self, Kind, PacketNote, PacketPath};
use srdma_core::tx::Run;
use std::net::SocketAddr;

/// Buffers that are kept to copy arrivals into.
const MAX_SPARES: usize = 256;

/// How bad network and device are. Probabilities are per datagram, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultConfig {
    /// A datagram that comes in disappears.
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
    /// What else happens, to which packets, in both directions.
    pub rules: Vec<FaultRule>,
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
            rules: Vec::new(),
        }
    }
}

impl FaultConfig {
    /// Nothing happens to any datagram: no injector is needed.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let odds = [self.loss, self.duplicate, self.reorder, self.corrupt];
        self.delay_ns == 0 && odds.iter().all(|&odds| odds <= 0.0) && self.rules.is_empty()
    }

    /// All of it as rules, the plain probabilities first.
    fn all_rules(&self) -> Vec<FaultRule> {
        let plain = [
            (self.loss, FaultAction::Drop),
            (self.duplicate, FaultAction::Duplicate),
            (
                self.reorder,
                FaultAction::Reorder {
                    ns: self.reorder_ns,
                },
            ),
            (self.corrupt, FaultAction::Corrupt),
        ];
        let plain = plain.into_iter().filter(|(odds, _)| *odds > 0.0);
        let mut rules: Vec<_> = plain
            .map(|(odds, action)| FaultRule::new(action).chance(odds))
            .collect();
        if self.delay_ns > 0 {
            rules.push(FaultRule::new(FaultAction::Delay { ns: self.delay_ns }));
        }
        rules.extend(self.rules.iter().cloned());
        rules
    }
}

/// What was done to datagrams, both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultCounters {
    /// Datagrams that came in or were to leave.
    pub offered: u64,
    /// Datagrams handed on, duplicates among them.
    pub delivered: u64,
    /// Lost by a rule.
    pub lost: u64,
    /// Handed on twice.
    pub duplicated: u64,
    /// Delayed beyond the others.
    pub reordered: u64,
    /// With flipped bits.
    pub corrupted: u64,
    /// Dropped because too many were held.
    pub overflowed: u64,
    /// Mishaps of the device.
    pub device: u64,
}

impl FaultCounters {
    /// Names and values.
    pub(crate) const fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("fault_offered", self.offered),
            ("fault_delivered", self.delivered),
            ("fault_lost", self.lost),
            ("fault_duplicated", self.duplicated),
            ("fault_reordered", self.reordered),
            ("fault_corrupted", self.corrupted),
            ("fault_overflowed", self.overflowed),
            ("fault_device", self.device),
        ]
    }
}

/// A datagram for the device, and what happens to the device with it.
#[derive(Debug)]
pub struct Arrival {
    /// Where it came from.
    pub meta: RxMeta,
    /// Its bytes.
    pub bytes: Bytes,
    /// What was done to it.
    pub note: PacketNote,
    /// Mishaps, just before it is seen.
    pub device: Vec<DeviceFault>,
}

/// A datagram for the socket.
#[derive(Debug)]
pub struct Departure {
    /// Where to: one packet, its gather entries not meant.
    pub run: Run,
    /// The port that it leaves from.
    pub port: u16,
    /// Its bytes.
    pub bytes: Bytes,
    /// What was done to it.
    pub note: PacketNote,
}

/// Does to datagrams what [`FaultConfig`] says.
#[derive(Debug)]
pub struct FaultInjector {
    judge: Judge,
    arrivals: Hold<Arrival>,
    departures: Hold<Departure>,
    counters: FaultCounters,
    /// What arrivals were copied into before, empty.
    spares: Vec<BytesMut>,
}

impl FaultInjector {
    /// An injector; `None` if it would do nothing.
    #[must_use]
    pub fn new(config: &FaultConfig) -> Option<Self> {
        (!config.is_off()).then(|| Self {
            judge: Judge::new(config.all_rules(), Rng::with_seed(config.seed)),
            arrivals: Hold::default(),
            departures: Hold::default(),
            counters: FaultCounters::default(),
            spares: Vec::new(),
        })
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &FaultCounters {
        &self.counters
    }

    /// There are rules about what leaves: packets are sent one by one.
    #[must_use]
    pub fn acts_on_departures(&self) -> bool {
        self.judge.has(Direction::Out)
    }

    /// Takes a received buffer.
    pub fn offer(&mut self, now: Instant, meta: &RxMeta, bytes: &[u8]) {
        for (meta, bytes) in datagrams(meta, bytes) {
            let decision = self.decide(Direction::In, bytes);
            self.carry_out(now, meta, bytes, &decision);
        }
    }

    /// Takes a received buffer, and hands on at once, in place and still merged, what nothing
    /// happens to, unless something that is due comes first. The rest is there to be polled.
    pub fn sift(
        &mut self,
        now: Instant,
        meta: &RxMeta,
        buffer: &[u8],
        mut deliver: impl FnMut(&RxMeta, &[u8]),
    ) {
        // Where the datagrams begin that are to be handed on together, and what the first is.
        let mut run: Option<(usize, RxMeta)> = None;
        let mut at = 0usize;
        let mut hand_on = |run: &mut Option<(usize, RxMeta)>, end: usize| {
            if let Some((start, first)) = run.take() {
                let stride = meta.stride.min(end - start);
                deliver(
                    &RxMeta { stride, ..first },
                    buffer.get(start..end).unwrap_or(&[]),
                );
            }
        };
        let stride = meta.stride.max(1);
        let mut index = 0;
        while at < buffer.len() {
            // What nothing happens to is not looked at one by one.
            let rest = (buffer.len() - at).div_ceil(stride) as u64;
            let clear = if self.arrivals.is_due(now) {
                0
            } else {
                self.judge.pass_over(Direction::In, rest)
            };
            if clear > 0 {
                let count = usize::try_from(clear).unwrap_or(0);
                run.get_or_insert_with(|| (at, alone(meta, index, stride)));
                self.counters.offered += clear;
                self.counters.delivered += clear;
                at = buffer.len().min(at + count * stride);
                index += count;
                continue;
            }
            let end = buffer.len().min(at + stride);
            let bytes = buffer.get(at..end).unwrap_or_default();
            let one = alone(meta, index, bytes.len());
            let decision = self.decide(Direction::In, bytes);
            if !decision.is_prompt() || self.arrivals.is_due(now) {
                hand_on(&mut run, at);
                self.carry_out(now, one, bytes, &decision);
            } else {
                self.counters.delivered += 1;
                run.get_or_insert((at, one));
                if decision.twice {
                    self.counters.delivered += 1;
                    hand_on(&mut run, end);
                    trace::note(Decision::copy_note());
                    hand_on(&mut Some((at, one)), end);
                }
            }
            (at, index) = (end, index + 1);
        }
        hand_on(&mut run, at);
    }

    fn carry_out(&mut self, now: Instant, meta: RxMeta, bytes: &[u8], decision: &Decision) {
        if decision.dropped {
            let path = PacketPath {
                source: meta.source,
                target: SocketAddr::new(meta.local, meta.port),
                tclass: meta.tclass,
                hop_limit: meta.hop_limit,
                ip_id: meta.first,
                note: decision.note,
            };
            if trace::on() {
                trace::packet(Kind::FAULT_IN, None, &path, bytes);
            }
        }
        // What becomes of a packet that is lost has no bearing on what the device does with it.
        let device = decision.device.clone();
        let make = |bytes, note, device| Arrival {
            meta,
            bytes,
            note,
            device,
        };
        if decision.dropped {
            if !device.is_empty() {
                let at = now.after(decision.delay_ns);
                self.arrivals
                    .put(at, make(Bytes::new(), decision.note, device));
            }
            return;
        }
        let mut copy = self.spares.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        for (bytes, note, delay_ns, first) in decision.copies(copy.freeze()) {
            let device = if first { device.clone() } else { Vec::new() };
            let held = self
                .arrivals
                .put(now.after(delay_ns), make(bytes, note, device));
            self.counters.overflowed += u64::from(!held);
        }
    }

    /// The next datagram that is due at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Arrival> {
        let arrival = self.arrivals.take(now)?;
        self.counters.delivered += u64::from(!arrival.bytes.is_empty());
        Some(arrival)
    }

    /// Takes the bytes of an arrival back, to hold others in.
    pub fn recycle(&mut self, bytes: Bytes) {
        if self.spares.len() < MAX_SPARES
            && let Ok(mut spare) = bytes.try_into_mut()
        {
            spare.clear();
            self.spares.push(spare);
        }
    }

    /// Takes a packet that is to leave; false if there is no room.
    pub fn offer_out(&mut self, now: Instant, run: &Run, port: u16, bytes: &Bytes) -> bool {
        if self.departures.is_full() {
            return false;
        }
        let decision = self.decide(Direction::Out, bytes);
        if decision.dropped {
            let path = PacketPath {
                source: SocketAddr::new(run.local, port),
                target: run.target,
                tclass: run.tclass,
                hop_limit: run.hop_limit,
                ip_id: 0,
                note: decision.note,
            };
            if trace::on() {
                trace::packet(Kind::FAULT_OUT, None, &path, bytes);
            }
            return true;
        }
        for (bytes, note, delay_ns, _) in decision.copies(bytes.clone()) {
            let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            let run = Run {
                segment_len: len,
                packets: 1,
                bytes: u32::from(len),
                segs: 0..1,
                ..run.clone()
            };
            let departure = Departure {
                run,
                port,
                bytes,
                note,
            };
            self.departures.put(now.after(delay_ns), departure);
        }
        true
    }

    /// The next packet that leaves at `now`.
    pub fn poll_out(&mut self, now: Instant) -> Option<Departure> {
        let departure = self.departures.take(now)?;
        self.counters.delivered += 1;
        Some(departure)
    }

    /// The socket had no room for `departure`: it is the next again.
    pub fn put_back(&mut self, departure: Departure) {
        self.counters.delivered -= 1;
        self.departures.put_back(departure);
    }

    /// When the next datagram is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let dues = [self.arrivals.next_due(), self.departures.next_due()];
        dues.into_iter().flatten().min()
    }

    fn decide(&mut self, direction: Direction, bytes: &[u8]) -> Decision {
        let decision = self.judge.decide(direction, bytes);
        let counters = &mut self.counters;
        counters.offered += 1;
        counters.device += decision.device.len() as u64;
        if decision.dropped {
            counters.lost += 1;
        } else {
            counters.duplicated += u64::from(decision.twice);
            counters.reordered += u64::from(decision.note.reordered());
            counters.corrupted += u64::from(decision.flipped.is_some());
        }
        decision
    }
}

/// The datagrams of a buffer, each with what the device is told of it alone.
fn datagrams<'a>(
    meta: &'a RxMeta,
    buffer: &'a [u8],
) -> impl Iterator<Item = (RxMeta, &'a [u8])> + use<'a> {
    let each = buffer.chunks(meta.stride.max(1)).enumerate();
    each.map(|(index, bytes)| (alone(meta, index, bytes.len()), bytes))
}

/// What the device is told of datagram `index` of a buffer, and of what is merged behind it.
fn alone(meta: &RxMeta, index: usize, stride: usize) -> RxMeta {
    let index = u16::try_from(index).unwrap_or(0);
    RxMeta {
        stride,
        first: meta.first.wrapping_add(index),
        ..*meta
    }
}

#[cfg(test)]
mod tests;
