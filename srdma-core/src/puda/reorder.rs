//! Packets of one queue pair that came ahead of their turn, in the order of their PSNs.
//!
//! ```text
//! epsn ─ hole ─ [ psn · psn · psn ] ─ hole ─ [ psn ]
//!               └ head: how long it has been here is how long the hole is known
//! ```
//!
//! What it does not do: serve packets or answer them (`qp/responder/early.rs` does).
//! [E810 8.6.4]

use super::ieq::{Ieq, ReorderStats};
use super::line::Line;
use super::pool::Kept;
use crate::hca::counters::Counters;
use crate::limits::{IEQ_HELD_PER_QP, IEQ_LOW_WATER, IEQ_WINDOW};
use crate::num::Psn;
use crate::time::{Instant, earliest};
use crate::wire::{Packet, Position, Sack, Verb};
use std::collections::VecDeque;

/// The first hole is waited for so long.
const FIRST_WAIT_NS: u64 = 5_000;
/// A wait that has shrunk below this is none.
const LEAST_WAIT_NS: u64 = 1_000;
/// Between a NAK and its repetition lie at least so much …
const LEAST_REPEAT_NS: u64 = 400_000;
/// … and at first this.
const MOST_REPEAT_NS: u64 = 1_000_000;

/// Holes that are remembered after they were filled.
const TOLD: usize = 16;

/// A packet that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) psn: Psn,
    pub(crate) at: Instant,
    /// What it is, if it is a part of a SEND or WRITE.
    pub(crate) part: Option<Part>,
    /// First packet of the message that it is surely of, if any.
    pub(crate) first: Option<Psn>,
    pub(crate) what: What,
}

/// A part of a SEND or WRITE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) write: bool,
    pub(crate) position: Position,
    /// How many packets of its message come before it, as the peer [told](Packet::place).
    pub(crate) place: u8,
}

impl Part {
    pub(crate) const fn of(packet: &Packet<'_>) -> Option<Self> {
        let info = packet.info();
        let write = match info.verb {
            Verb::Send => false,
            Verb::Write => true,
            _ => return None,
        };
        Some(Self {
            write,
            position: info.position,
            place: packet.place(),
        })
    }
}

/// What is held of a packet.
#[derive(Debug)]
pub(crate) enum What {
    /// All of it.
    Whole(Kept),
    /// It is from the middle of a message, and its payload is in its place already.
    Placed { first: Psn, ack_req: bool },
}

/// What became of a packet that came ahead of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is held.
    Held,
    /// It was held already.
    Copy,
    /// There is no room for it: it is as good as lost.
    Refused,
}

/// How long a hole is waited for before the peer is told. It learns: a packet that came late makes
/// it longer, one that was really lost makes it shorter.              [RoCEv2 6.2]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    wait_ns: u64,
    /// The last holes that were told of, and how old each was when it was filled: if another copy
    /// of its packet comes, the first was only late.
    told: [Option<(Psn, u64)>; TOLD],
    /// The oldest of them.
    oldest: usize,
    /// How long the peer usually takes to send what it was told is missing.
    mends_in: Option<u64>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            wait_ns: FIRST_WAIT_NS,
            told: [None; TOLD],
            oldest: 0,
            mends_in: None,
        }
    }
}

impl Patience {
    /// The wait, at most `most`.
    // rule: roce-145
    pub(crate) const fn wait_ns(&self, most: u64) -> u64 {
        if self.wait_ns < most {
            self.wait_ns
        } else {
            most
        }
    }

    /// How long a NAK may go without effect.
    pub(crate) fn repeat_ns(&self) -> u64 {
        let usual = self
            .mends_in
            .map_or(MOST_REPEAT_NS, |ns| ns.saturating_mul(4));
        usual.clamp(LEAST_REPEAT_NS, MOST_REPEAT_NS)
    }

    /// The hole at `psn` was filled `age` after it was seen. `told`: whether the peer was told of
    /// it, and how long ago it was told of this very packet.
    pub(crate) fn filled(&mut self, psn: Psn, age: u64, told: (bool, Option<u64>)) {
        if let Some(took) = told.1 {
            self.mends_in = Some(self.mends_in.map_or(took, |usual| (3 * usual + took) / 4));
        }
        if !told.0 {
            self.wait_ns = self.wait_ns.max(age.saturating_mul(2));
            return;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % TOLD;
        let forgotten = self
            .told
            .get_mut(at)
            .and_then(|old| old.replace((psn, age)));
        if forgotten.is_some() {
            // No copy came of it: it was lost.
            self.wait_ns = self.wait_ns / 4 * 3;
            if self.wait_ns < LEAST_WAIT_NS {
                self.wait_ns = 0;
            }
        }
    }

    /// A copy of `psn` came: if the peer was told that it is missing, it was only late.
    pub(crate) fn copy_of(&mut self, psn: Psn, most: u64) {
        for told in &mut self.told {
            if let Some((_, age)) = told.take_if(|(missing, _)| *missing == psn) {
                self.wait_ns = self.wait_ns.max(age.saturating_mul(2)).min(most);
            }
        }
    }
}

/// The list of one queue pair, made when its first packet comes out of order.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    list: VecDeque<Held>,
    /// Messages that begin in the list.
    pub(crate) line: Line,
    pub(crate) patience: Patience,
    /// When the queue pair has to look at the hole again.
    pub(crate) deadline: Option<Instant>,
    /// The peer is not told of the present hole before this.
    pub(crate) not_before: Instant,
    /// The expected packet came; what is held may follow it.
    pub(crate) moved: bool,
    /// Times that the peer was told of the present hole.
    pub(crate) told: u32,
    /// A peer of our kind was told of everything that is missing before this.
    told_to: Option<Psn>,
    /// There is a hole that it was not told of, and is not to be before this.
    news: Option<Instant>,
    stats: ReorderStats,
}

impl Reorder {
    /// Counters, gauges among them.
    pub(crate) fn stats(&self) -> ReorderStats {
        ReorderStats {
            list_len: self.list.len() as u64,
            ..self.stats
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= IEQ_HELD_PER_QP
    }

    /// When the packet behind the hole came: so long the hole is known.
    pub(crate) fn hole_since(&self) -> Option<Instant> {
        self.list.front().map(|held| held.at)
    }

    /// Where in the list a packet belongs that is `ahead` of its turn, or why it is not taken in.
    // rule: roce-155
    // rule: ieq-2, ieq-3
    pub(crate) fn find(
        &mut self,
        (psn, ahead): (Psn, u32),
        counters: &mut Counters,
    ) -> Result<usize, Admission> {
        self.stats.total_ieq_bufs += 1;
        if ahead > IEQ_WINDOW {
            self.stats.bad_seq_num += 1;
            counters.ieq_bad_seq_num += 1;
            return Err(Admission::Refused);
        }
        // Mostly it belongs at the end.
        let mut at = self.list.len();
        while let Some(before) = at.checked_sub(1).and_then(|n| self.list.get(n)) {
            let distance = psn.since(before.psn);
            if distance == 0 {
                self.stats.dup_held += 1;
                counters.ieq_dup_held += 1;
                return Err(Admission::Copy);
            }
            if distance > 0 {
                break;
            }
            at -= 1;
        }
        Ok(at)
    }

    /// The packet at place `at`.
    pub(crate) fn at(&self, at: usize) -> Option<&Held> {
        self.list.get(at)
    }

    pub(crate) fn at_mut(&mut self, at: usize) -> Option<&mut Held> {
        self.list.get_mut(at)
    }

    /// The packet before place `at`.
    pub(crate) fn before(&self, at: usize) -> Option<&Held> {
        at.checked_sub(1).and_then(|before| self.list.get(before))
    }

    /// The payload of `psn` is in its place.
    pub(crate) fn is_placed(&self, psn: Psn) -> bool {
        let held = self
            .list
            .binary_search_by_key(&0, |held| held.psn.since(psn))
            .ok()
            .and_then(|at| self.list.get(at));
        held.is_some_and(|held| matches!(held.what, What::Placed { .. }))
    }

    /// Makes room at `at`, which [`find`](Self::find) gave: false if there is none. The nearest are
    /// needed first, so a full list gives up its last for one before it.
    // rule: ieq-4
    pub(crate) fn make_room(&mut self, at: usize, ieq: &mut Ieq, counters: &mut Counters) -> bool {
        if self.is_full() && at < self.list.len() {
            self.drop_last(ieq, counters);
        }
        !self.is_full()
    }

    /// Copies a packet, or shares the slab that it lies in; `None` if all buffers are taken.
    // rule: ieq-4
    pub(crate) fn keep(bytes: &[u8], ieq: &mut Ieq) -> Option<What> {
        let room = ieq.pool.available() > IEQ_LOW_WATER;
        let kept = room.then(|| ieq.pool.keep(bytes)).flatten();
        kept.map(What::Whole)
    }

    /// There is no room for a packet.
    pub(crate) fn refuse(&mut self, counters: &mut Counters) -> Admission {
        self.stats.no_rx_bufs += 1;
        counters.ieq_no_rx_bufs += 1;
        Admission::Refused
    }

    /// Takes a packet in at `at`, where there is room.
    pub(crate) fn insert(&mut self, at: usize, held: Held, counters: &mut Counters) -> Admission {
        if self.list.is_empty() {
            self.stats.pmode_count += 1;
        }
        let follows = self
            .list
            .back()
            .is_none_or(|last| held.psn == last.psn.add(1));
        if at == self.list.len() && !follows {
            self.news = Some(Instant(0));
        }
        self.list.insert(at, held);
        self.stats.out_of_order += 1;
        counters.ieq_out_of_order += 1;
        self.stats.list_max = self.stats.list_max.max(self.list.len() as u64);
        Admission::Held
    }

    /// A packet that was just taken in cannot be held after all.
    pub(crate) fn remove(
        &mut self,
        at: usize,
        ieq: &mut Ieq,
        counters: &mut Counters,
    ) -> Admission {
        if let Some(held) = self.list.remove(at) {
            self.give_up(held, ieq, counters);
        }
        Admission::Refused
    }

    fn drop_last(&mut self, ieq: &mut Ieq, counters: &mut Counters) {
        if let Some(held) = self.list.pop_back() {
            self.line.cut(held.psn);
            self.give_up(held, ieq, counters);
        }
    }

    fn give_up(&mut self, held: Held, ieq: &mut Ieq, counters: &mut Counters) {
        self.stats.discarded += 1;
        counters.ieq_discarded += 1;
        if let What::Whole(buf) = held.what {
            ieq.pool.put(buf);
        }
    }

    /// The packet with `epsn`, if it is held. Those before it have been served otherwise and go.
    pub(crate) fn take(
        &mut self,
        epsn: Psn,
        ieq: &mut Ieq,
        counters: &mut Counters,
    ) -> Option<What> {
        self.line.take_upto(epsn);
        loop {
            let distance = self.list.front()?.psn.since(epsn);
            if distance > 0 {
                return None;
            }
            let held = self.list.pop_front()?;
            if distance == 0 {
                self.stats.fpdu_processed += 1;
                counters.ieq_reinjected += 1;
                return Some(held.what);
            }
            self.give_up(held, ieq, counters);
        }
    }

    /// Takes the packets from `epsn` on that are in their place and of the message that began with
    /// `first`, up to one that is not: how many, and whether one asks for an acknowledgement.
    pub(crate) fn take_placed(
        &mut self,
        epsn: Psn,
        first: Psn,
        counters: &mut Counters,
    ) -> (u32, bool) {
        let (mut count, mut asks) = (0, false);
        for held in &self.list {
            match held.what {
                What::Placed { first: of, ack_req }
                    if of == first && held.psn == epsn.add(count) =>
                {
                    asks |= ack_req;
                    count += 1;
                }
                _ => break,
            }
        }
        self.list.drain(..count as usize);
        self.stats.fpdu_processed += u64::from(count);
        counters.ieq_reinjected += u64::from(count);
        (count, asks)
    }

    /// What a peer of our kind is told: what is held behind the expected `epsn`, and up to where
    /// holes are older than `wait`; and when the next one will be.
    pub(crate) fn sack(&self, epsn: Psn, now: Instant, wait: u64) -> (Sack, Option<Instant>) {
        let mut sack = Sack::default();
        let Some(last) = self.list.back() else {
            return (sack, None);
        };
        let place = |psn: Psn| u32::try_from(psn.since(epsn)).unwrap_or(0);
        sack.lost = place(last.psn.add(1));
        let (mut known, mut next) = (last.at, None);
        let before = self.list.iter().rev().skip(1).map(|held| held.psn);
        for (held, before) in self.list.iter().rev().zip(before.chain([epsn.prev()])) {
            sack.hold(place(held.psn));
            // A hole is known since the first packet behind it came.
            known = known.min(held.at);
            let due = known.after(wait);
            if held.psn != before.add(1) && due > now {
                sack.lost = place(before.add(1));
                next = earliest([next, Some(due)]);
            }
        }
        (sack, next)
    }

    /// The peer is to be told of something new, now or, as it gives, later.
    pub(crate) fn has_news(
        &mut self,
        epsn: Psn,
        now: Instant,
        wait: u64,
    ) -> (bool, Option<Instant>) {
        if self.news.is_none_or(|at| now < at) {
            return (false, self.news);
        }
        let (sack, next) = self.sack(epsn, now, wait);
        self.news = next;
        let upto = epsn.add(sack.lost);
        let new = self.told_to.is_none_or(|told| upto.since(told) > 0);
        if new {
            self.told_to = Some(upto);
        }
        (new, next)
    }

    /// The peer was told that `psn` is missing, together with others.
    pub(crate) fn was_told(&self, psn: Psn) -> bool {
        self.told_to.is_some_and(|told| told.since(psn) > 0)
    }

    /// Nothing is held any more.
    pub(crate) fn rest(&mut self) {
        self.line.clear();
        self.told_to = None;
        self.news = None;
    }

    /// Gives up everything.
    // rule: ieq-8
    pub(crate) fn discard(&mut self, ieq: &mut Ieq, counters: &mut Counters) {
        while let Some(held) = self.list.pop_front() {
            self.give_up(held, ieq, counters);
        }
        self.deadline = None;
        self.moved = false;
        self.rest();
    }
}

#[cfg(test)]
mod tests;
