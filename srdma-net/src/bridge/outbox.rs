//! The sending end: lanes in the yards of others.

use super::yard::{HEADER, LANES, LaneWords, RING, Ring, USED_AT, Yard, room_of};
use crate::room::PATIENCE;
use crate::share::Share;
use crate::socket::{ROCE_PORT, RoceSocket};
use crate::sys::lock::{self, Mode};
use crate::tx::segs;
use srdma_core::tx::{Run, TxBatch};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

/// Runs to a target without a yard before the next look for one, at most: they double.
const SKIPS: u32 = 1 << 12;
/// Records to a yard before the next look whether its owner lives.
pub(super) const LOOKS: u64 = 1 << 12;
/// How often a receiver is knocked at that has no room for that.
const KNOCKS: usize = 3;
/// Targets that are remembered, with a yard or without.
const TARGETS: usize = 1024;
/// Yards that are open at a time; further targets are reached by socket.
pub(super) const YARDS: usize = if cfg!(test) { 16 } else { 128 };

/// What has gone over the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutboxCounters {
    /// Runs of packets.
    pub(super) runs: u64,
    /// Packets in them.
    pub(super) packets: u64,
    /// Times that a lane was full.
    pub(super) full: u64,
    /// Runs that were lost, to receivers that took nothing for long.
    pub(super) lost: u64,
    /// Receivers that were woken.
    pub(super) knocks: u64,
}

/// What became of the first runs of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossed {
    /// So many crossed.
    pub(crate) runs: usize,
    /// The next one found no room.
    pub(crate) full: bool,
}

/// A target, and the address that we send to it from.
type Key = (SocketAddr, IpAddr);

#[derive(Debug)]
enum Way {
    /// There is no yard. So many runs go before the next look, and as many twice after that.
    None {
        left: u32,
        skips: u32,
    },
    Lane(Box<Lane>),
}

/// A lane of ours.
#[derive(Debug)]
struct Lane {
    yard: Yard,
    ring: Ring,
    index: usize,
    source: SocketAddr,
    target: SocketAddr,
    /// Which of its senders we are; zero until we have put something in.
    turn: u64,
    /// Whoever made it: a child after a fork does not give it back.
    process: u32,
    /// How many runs go by socket before the next look, if we are refused.
    skips: u32,
    /// Bytes put in, and taken out when we last looked.
    end: u64,
    start: u64,
    records: u64,
    /// Since when it is full and nothing is taken.
    full: Option<Instant>,
    /// How often we have asked since then whether the owner lives.
    asked: u8,
    /// Nothing was taken for so long that what comes is lost until something is.
    stands: bool,
}

/// What the attempt to put a run into a lane came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    Lost,
    Full,
    /// The owner is gone, or hears us no more, or the lane makes no sense.
    Gone,
}

/// The lanes of a device.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    ways: HashMap<Key, Way>,
    /// What a full lane waits for.
    held: Option<(Key, u64)>,
    counters: OutboxCounters,
}

impl Outbox {
    pub(super) const fn counters(&self) -> &OutboxCounters {
        &self.counters
    }

    /// Yards that are open.
    pub(super) fn yards(&self) -> usize {
        let lanes = self.ways.values().filter(|way| matches!(way, Way::Lane(_)));
        lanes.count()
    }

    /// Whether a run goes over the bridge; looks for the receiver's yard if need be.
    pub(super) fn leads(&mut self, share: &Share, sockets: &[RoceSocket], run: &Run) -> bool {
        if run.target.port() == ROCE_PORT {
            return false;
        }
        let key = (run.target, run.local);
        match self.ways.get_mut(&key) {
            Some(Way::Lane(_)) => return true,
            Some(Way::None { left, .. }) if *left > 0 => {
                *left -= 1;
                return false;
            }
            _ => {}
        }
        self.look_for(share, sockets, key)
    }

    #[cold]
    fn look_for(&mut self, share: &Share, sockets: &[RoceSocket], key: Key) -> bool {
        // Peers come and go.
        if !self.ways.contains_key(&key) {
            self.ways.retain(|_, way| match way {
                Way::None { .. } => true,
                Way::Lane(lane) => lane.yard.is_open() && lane.yard.lives(),
            });
        }
        if self.ways.len() >= TARGETS && !self.ways.contains_key(&key) {
            self.ways.retain(|_, way| matches!(way, Way::Lane(_)));
        }
        let (target, local) = key;
        let source = RoceSocket::on(sockets, local);
        let skips = match self.ways.get(&key) {
            Some(Way::None { skips, .. }) => skips.saturating_mul(2).min(SKIPS),
            _ => 1,
        };
        let lane = source.filter(|_| self.yards() < YARDS).and_then(|socket| {
            let source = SocketAddr::new(local, socket.tx_port());
            Lane::take(share, source, target, skips)
        });
        let found = lane.is_some();
        let way = lane.map_or(Way::None { left: skips, skips }, |lane| {
            Way::Lane(Box::new(lane))
        });
        self.ways.insert(key, way);
        found
    }

    /// Puts the runs of `batch` from `first` on that go to the same receiver into its lane.
    // rule: bridge-1
    pub(crate) fn send(
        &mut self,
        sockets: &[RoceSocket],
        batch: &TxBatch<'_>,
        first: usize,
    ) -> Crossed {
        let mut crossed = Crossed {
            runs: 0,
            full: false,
        };
        let runs = batch.runs.get(first..).unwrap_or_default();
        let Some(key) = runs.first().map(|run| (run.target, run.local)) else {
            return crossed;
        };
        let Some(Way::Lane(lane)) = self.ways.get_mut(&key) else {
            return crossed;
        };
        let (mut put, mut gone) = (false, false);
        for run in runs {
            if (run.target, run.local) != key {
                break;
            }
            match lane.put(batch, run) {
                Put::Done => {
                    put = true;
                    self.counters.runs += 1;
                    self.counters.packets += u64::from(run.packets);
                }
                Put::Lost => self.counters.lost += 1,
                Put::Full => {
                    self.counters.full += 1;
                    self.held = Some((key, room_of(len_of(run))));
                    crossed.full = true;
                    break;
                }
                Put::Gone => {
                    gone = true;
                    break;
                }
            }
            crossed.runs += 1;
        }
        if put && lane.yard.ring() {
            self.counters.knocks += 1;
            let socket = RoceSocket::on(sockets, key.1);
            let mut knocks = socket.into_iter().cycle().take(KNOCKS);
            let heard = knocks.any(|socket| socket.send_parts(&[&[], &[]], key.0).is_ok());
            // Whoever cannot be woken is not on the bridge.
            gone |= !heard;
        }
        if gone {
            let skips = lane.skips;
            self.ways.insert(key, Way::None { left: skips, skips });
        }
        crossed
    }

    /// True while the lane that held the last batch up has no room.
    pub(crate) fn is_held(&mut self) -> bool {
        let Some((key, room)) = self.held else {
            return false;
        };
        let held = match self.ways.get_mut(&key) {
            Some(Way::Lane(lane)) => !lane.has_room(room) && !lane.loses_patience(),
            _ => false,
        };
        if !held {
            self.held = None;
        }
        held
    }
}

impl Lane {
    /// A lane to `target`; `None` if it has no yard, or no lane to spare.
    // rule: bridge-2
    fn take(share: &Share, source: SocketAddr, target: SocketAddr, skips: u32) -> Option<Self> {
        let yard = Yard::attach(&share.bridge_link(target), target).ok()?;
        let index = (0..LANES).find(|index| claim(&yard, *index))?;
        let end = yard.lane(index).end().load(Ordering::Relaxed);
        Some(Self {
            ring: yard.map_ring(index).ok()?,
            yard,
            index,
            source,
            target,
            turn: 0,
            process: std::process::id(),
            skips,
            end,
            start: end,
            records: 0,
            full: None,
            asked: 0,
            stands: false,
        })
    }

    /// Makes ourselves known, behind what left by socket so far.
    fn announce(&mut self) {
        let words = self.yard.lane(self.index);
        // One that has died here has left an odd one.
        let before = words.turn().load(Ordering::Relaxed) & !1;
        words.turn().store(before | 1, Ordering::Relaxed);
        // Pairs with that in `greet`: nobody takes half of ours for half of another's.
        fence(Ordering::Release);
        self.yard.set_addr(words.source(), self.source);
        self.yard.set_addr(words.target(), self.target);
        self.turn = before.wrapping_add(2);
        words.turn().store(self.turn, Ordering::Release);
        let used = self.yard.word(USED_AT);
        used.fetch_or(1 << self.index, Ordering::Release);
    }

    /// Puts the packets of a run in.
    fn put(&mut self, batch: &TxBatch<'_>, run: &Run) -> Put {
        if self.turn == 0 {
            self.announce();
        }
        let len = len_of(run);
        let room = room_of(len);
        self.records = self.records.wrapping_add(1);
        let looks = self.records.is_multiple_of(LOOKS);
        if !self.yard.is_open() || self.is_refused() || (looks && !self.yard.lives()) {
            return Put::Gone;
        }
        if self.end.wrapping_sub(self.start).wrapping_add(room) > RING as u64 {
            match self.look() {
                None => return Put::Gone,
                Some(filled) if filled + room <= RING as u64 => {}
                Some(_) => return self.stand(),
            }
        }
        let stride = if run.packets > 1 {
            u32::from(run.segment_len)
        } else {
            run.bytes
        };
        let [l0, l1, l2, l3] = run.bytes.to_le_bytes();
        let [s0, s1, ..] = stride.to_le_bytes();
        let header = u64::from_le_bytes([l0, l1, l2, l3, s0, s1, run.tclass, run.hop_limit]);
        self.ring.header(self.end).store(header, Ordering::Relaxed);
        let mut at = self.end.wrapping_add(HEADER as u64);
        for seg in segs(batch, run) {
            for (part, to) in Ring::parts(at, seg.len()) {
                self.ring.map().put(to, seg, part.start, part.len());
            }
            at = at.wrapping_add(seg.len() as u64);
        }
        self.end = self.end.wrapping_add(room);
        let words = self.yard.lane(self.index);
        words.end().store(self.end, Ordering::Release);
        Put::Done
    }

    /// There is no room for a run.
    fn stand(&mut self) -> Put {
        let stands = self.loses_patience();
        // Asked when it is found full, and when patience is lost.
        let asks = 1 + u8::from(stands);
        if self.asked < asks {
            self.asked = asks;
            if !self.yard.lives() {
                return Put::Gone;
            }
        }
        if stands { Put::Lost } else { Put::Full }
    }

    fn is_refused(&self) -> bool {
        let words = self.yard.lane(self.index);
        words.refused().load(Ordering::Relaxed) == self.turn
    }

    /// Bytes that lie in the lane; `None` if that makes no sense.
    fn look(&mut self) -> Option<u64> {
        let before = self.start;
        let filled = filled(self.end, &self.yard.lane(self.index))?;
        self.start = self.end.wrapping_sub(filled);
        if self.start != before {
            self.full = None;
            self.asked = 0;
            self.stands = false;
        }
        Some(filled)
    }

    fn has_room(&mut self, room: u64) -> bool {
        let filled = self.look();
        filled.is_none_or(|filled| filled + room <= RING as u64)
    }

    /// It is full; true if nothing was taken for so long that there is no use in waiting.
    // rule: bridge-3
    fn loses_patience(&mut self) -> bool {
        if !self.stands {
            let now = Instant::now();
            let since = *self.full.get_or_insert(now);
            self.stands = now - since >= PATIENCE;
        }
        self.stands
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A child after a fork has the file open, too, so closing it is not enough.
        if self.process == std::process::id() {
            let _ = lock::unlock(self.yard.fd(), byte_of(self.index), 1);
        }
    }
}

/// The byte of the file whose lock says who has a lane.
fn byte_of(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// Takes the lane if nobody has it, and nothing lies in it.
fn claim(yard: &Yard, index: usize) -> bool {
    let byte = byte_of(index);
    if !lock::try_lock(yard.fd(), byte, 1, Mode::Alone).unwrap_or(false) {
        return false;
    }
    let words = yard.lane(index);
    let turn = words.turn().load(Ordering::Acquire);
    if turn != 0 && words.refused().load(Ordering::Acquire) == turn {
        // Nobody reads what the last one left.
        let start = words.start().load(Ordering::Acquire);
        words.end().store(start, Ordering::Release);
    }
    let end = words.end().load(Ordering::Relaxed);
    let empty = filled(end, &words) == Some(0);
    if !empty {
        let _ = lock::unlock(yard.fd(), byte, 1);
    }
    empty
}

/// Bytes of a lane up to `end` that were not taken out; `None` if there cannot be so many.
fn filled(end: u64, words: &LaneWords<'_>) -> Option<u64> {
    let filled = end.wrapping_sub(words.start().load(Ordering::Acquire));
    (filled <= RING as u64).then_some(filled)
}

fn len_of(run: &Run) -> usize {
    usize::try_from(run.bytes).unwrap_or(usize::MAX)
}
