//! What is settled ahead of its turn in a window of PSNs, and the holes before it.
//!
//! ```text
//!   una = hole          hole              high
//!    ▼                   ▼                 ▼
//!    . . o o o o o o o o . o o o o o o o o │ nothing known
//! ```
//!
//! One such score stands for responses that arrived behind a missing one, another for requests
//! that the peer holds. It knows nothing of either. It is idle, and costs nothing, while nothing
//! is out of order.

use crate::limits::MAX_PSN_WINDOW;
use crate::num::Psn;
use crate::time::Instant;
use std::collections::VecDeque;

const WORDS: usize = (MAX_PSN_WINDOW / 64) as usize;
/// Holes that are remembered at a time: what lies behind more of them counts as not come.
const MAX_HOLES: usize = 256;
/// Each repetition waits twice as long for its effect, up to this many times.
const MAX_DOUBLINGS: u32 = 8;

/// PSNs that are missing, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) first: Psn,
    pub(super) len: u32,
    /// Since when it is known.
    pub(super) since: Instant,
    /// It was asked for.
    pub(super) asked: Option<Asked>,
    /// How often it was asked for.
    pub(super) times: u32,
}

/// A hole that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// When.
    at: Instant,
    /// Until when it is not asked for again.
    until: Instant,
    /// The first PSN that had not been sent then: an answer to anything from there on is later
    /// than the one that was asked for.
    sent: Psn,
}

fn earlier(one: Option<Psn>, other: Psn) -> Psn {
    one.filter(|one| one.since(other) < 0).unwrap_or(other)
}

impl Hole {
    fn end(&self) -> Psn {
        self.first.add(self.len)
    }

    fn holds(&self, psn: Psn) -> bool {
        psn.since(self.first) >= 0 && psn.since(self.end()) < 0
    }

    /// When it is to be asked for: after `wait` for the first time.
    fn due(&self, wait: u64) -> Instant {
        self.asked
            .map_or_else(|| self.since.after(wait), |asked| asked.until)
    }
}

/// What was known of a hole, part of which is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) since: Instant,
    pub(super) asked: Option<Instant>,
    pub(super) times: u32,
}

/// How a PSN was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is the next one behind all that is known.
    Next,
    /// There are new holes before it.
    Skipped,
    /// It was missing.
    Filled(Filled),
    /// It was neither settled nor missing.
    Unknown,
}

impl Settled {
    /// What was known of the hole that it was in.
    pub(super) const fn hole(self) -> Option<Filled> {
        match self {
            Self::Filled(filled) => Some(filled),
            _ => None,
        }
    }
}

/// The window.
#[derive(Debug)]
pub(super) struct Score {
    bits: Box<[u64; WORDS]>,
    set: u32,
    /// Behind the last PSN that is settled or known to be missing; of no meaning while idle.
    high: Psn,
    holes: VecDeque<Hole>,
    /// Some of them may have been asked for: the first PSN that had not been sent when one was,
    /// before which no answer says that it is lost again.
    asks: Option<Psn>,
}

impl Default for Score {
    fn default() -> Self {
        Self {
            bits: Box::new([0; WORDS]),
            set: 0,
            high: Psn::default(),
            holes: VecDeque::new(),
            asks: None,
        }
    }
}

impl Score {
    const fn place(psn: Psn) -> (usize, u64) {
        let at = psn.value() % MAX_PSN_WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }

    /// Nothing is out of order.
    pub(super) fn is_idle(&self) -> bool {
        self.set == 0 && self.holes.is_empty()
    }

    /// `psn`, somewhere in the window from `una` on, is settled.
    pub(super) fn has(&self, psn: Psn, una: Psn) -> bool {
        let (word, bit) = Self::place(psn);
        let ahead = psn.since(una);
        (0..MAX_PSN_WINDOW.cast_signed()).contains(&ahead)
            && self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    #[cfg(test)]
    fn holes(&self) -> impl Iterator<Item = &Hole> {
        self.holes.iter()
    }

    /// Nothing before `psn` is missing any more; said before anything else is.
    pub(super) fn begin(&mut self, psn: Psn) {
        if self.is_idle() || psn.since(self.high) > 0 {
            self.high = psn;
        }
        self.trim(psn);
    }

    /// Everything before `to` is settled or missing, in a window from `una` on.
    pub(super) fn reach(&mut self, to: Psn, una: Psn, now: Instant) {
        let mut from = self.high;
        if to.since(from) <= 0 {
            return;
        }
        // What was only insisted on lies behind, and is found missing now with the rest.
        while self
            .holes
            .pop_back_if(|hole| hole.first.since(from) >= 0)
            .is_some()
        {}
        while to.since(from) > 0 {
            if self.has(from, una) {
                from = from.add(1);
                continue;
            }
            let mut len = 1;
            while to.since(from.add(len)) > 0 && !self.has(from.add(len), una) {
                len += 1;
            }
            self.insert(from, len, now);
            from = from.add(len);
        }
        self.high = to;
    }

    fn insert(&mut self, first: Psn, len: u32, since: Instant) {
        if self.holes.len() >= MAX_HOLES {
            return;
        }
        if self.holes.is_empty() {
            self.asks = None;
        }
        let behind = self
            .holes
            .iter()
            .rev()
            .take_while(|hole| hole.first.since(first) > 0);
        let at = self.holes.len() - behind.count();
        self.holes.insert(
            at,
            Hole {
                first,
                len,
                since,
                asked: None,
                times: 0,
            },
        );
    }

    /// `psn` is settled; everything before it that is not is missing. `Err`: it was settled, or
    /// lies outside.
    pub(super) fn settle(&mut self, psn: Psn, una: Psn, now: Instant) -> Result<Settled, ()> {
        let ahead = psn.since(una);
        if !(0..MAX_PSN_WINDOW.cast_signed()).contains(&ahead) || self.has(psn, una) {
            return Err(());
        }
        let skipped = psn.since(self.high);
        self.reach(psn, una, now);
        // Something may have been insisted on that lies behind all that is known.
        let insisted = self.holes.back().is_some_and(|hole| hole.holds(psn));
        let settled = if skipped < 0 || insisted {
            self.fill(psn).map_or(Settled::Unknown, Settled::Filled)
        } else if skipped == 0 {
            Settled::Next
        } else {
            Settled::Skipped
        };
        self.mark(psn);
        if skipped >= 0 {
            self.high = psn.add(1);
        }
        Ok(settled)
    }

    /// `psn`, in a window from `una` on, is the next one behind all that is known, and not settled.
    #[inline]
    pub(super) fn is_next(&self, psn: Psn, una: Psn) -> bool {
        let insisted = || self.holes.back().is_some_and(|hole| hole.holds(psn));
        let within = psn.since(una) < MAX_PSN_WINDOW.cast_signed();
        psn == self.high && self.set != 0 && within && !insisted() && !self.has(psn, una)
    }

    /// The next one is settled.
    #[inline]
    pub(super) fn settle_next(&mut self, psn: Psn) {
        debug_assert_eq!(psn, self.high, "the next one");
        self.mark(psn);
        self.high = psn.add(1);
    }

    fn mark(&mut self, psn: Psn) {
        let (word, bit) = Self::place(psn);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= bit;
            self.set += 1;
        }
    }

    /// An answer to `psn` says nothing of what was asked for.
    #[inline]
    pub(super) fn outlives_nothing(&self, psn: Psn) -> bool {
        self.asks.is_none_or(|sent| psn.since(sent) < 0)
    }

    /// Takes `psn` out of its hole.
    pub(super) fn fill(&mut self, psn: Psn) -> Option<Filled> {
        let at = self.holes.iter().position(|hole| hole.holds(psn))?;
        let hole = self.holes.get_mut(at)?;
        let whole = *hole;
        let before = u32::try_from(psn.since(whole.first)).unwrap_or(0);
        let behind = Hole {
            first: psn.add(1),
            len: whole.len - before - 1,
            ..whole
        };
        match (before, behind.len) {
            (0, 0) => drop(self.holes.remove(at)),
            (0, _) => *hole = behind,
            (_, 0) => hole.len = before,
            _ => {
                hole.len = before;
                self.holes.insert(at + 1, behind);
            }
        }
        Some(Filled {
            since: whole.since,
            asked: whole.asked.map(|asked| asked.at),
            times: whole.times,
        })
    }

    /// The first PSN from `una` on that is not settled: what is before it is forgotten.
    pub(super) fn advance(&mut self, mut una: Psn) -> Psn {
        while self.set > 0 {
            let at = una.value() % MAX_PSN_WINDOW;
            let Some(word) = self.bits.get_mut((at / 64) as usize) else {
                break;
            };
            let run = (*word >> (at % 64)).trailing_ones();
            if run == 0 {
                break;
            }
            *word &= !(u64::MAX >> (64 - run) << (at % 64));
            self.set -= run;
            una = una.add(run);
        }
        self.trim(una);
        una
    }

    /// `psn` is not settled any more; false if it never was.
    pub(super) fn clear(&mut self, psn: Psn) -> bool {
        if self.set == 0 {
            return false;
        }
        let (word, bit) = Self::place(psn);
        match self.bits.get_mut(word) {
            Some(bits) if *bits & bit != 0 => {
                *bits &= !bit;
                self.set -= 1;
                true
            }
            _ => false,
        }
    }

    /// No hole begins before `una`.
    pub(super) fn trim(&mut self, una: Psn) {
        while let Some(hole) = self.holes.front_mut() {
            let past = una.since(hole.first);
            if past <= 0 {
                break;
            }
            if una.since(hole.end()) >= 0 {
                self.holes.pop_front();
            } else {
                hole.len -= past.unsigned_abs();
                hole.first = una;
            }
        }
    }

    /// Everything from `psn` on will be sent or asked for again anyway.
    pub(super) fn forget_holes(&mut self, psn: Psn) {
        while let Some(hole) = self.holes.back_mut() {
            let keep = psn.since(hole.first);
            if psn.since(hole.end()) >= 0 {
                break;
            }
            if keep > 0 {
                hole.len = keep.unsigned_abs();
                break;
            }
            self.holes.pop_back();
        }
        if self.high.since(psn) > 0 {
            self.high = psn;
        }
    }

    /// An answer to something from `psn` on has come: what was asked for before that was sent is
    /// lost again. False: nothing is.
    pub(super) fn outlived(&mut self, psn: Psn, now: Instant) -> bool {
        if self.outlives_nothing(psn) {
            return false;
        }
        let mut any = false;
        self.asks = None;
        for hole in &mut self.holes {
            if hole.asked.is_some_and(|asked| psn.since(asked.sent) >= 0) {
                (hole.asked, hole.since, any) = (None, now, true);
            }
            if let Some(asked) = hole.asked {
                self.asks = Some(earlier(self.asks, asked.sent));
            }
        }
        any
    }

    /// The hole that `psn` lies in is to be asked for at once; it is made if there is none.
    pub(super) fn insist(&mut self, psn: Psn, len: u32, una: Psn) {
        if let Some(hole) = self.holes.iter_mut().find(|hole| hole.holds(psn)) {
            (hole.asked, hole.since) = (None, Instant(0));
        } else if !self.has(psn, una) {
            self.insert(psn, len, Instant(0));
        }
    }

    /// The first hole, from the `skip`th on, whose time has come.
    pub(super) fn due(&self, now: Instant, wait: u64, skip: usize) -> Option<(usize, Hole)> {
        let due = |hole: &Hole| hole.due(wait) <= now;
        let mut holes = self.holes.iter().enumerate().skip(skip);
        holes
            .find(|(_, hole)| due(hole))
            .map(|(at, hole)| (at, *hole))
    }

    /// When the first of the holes is due that `which` begins with.
    pub(super) fn next_due(&self, wait: u64, which: impl Fn(&Hole) -> bool) -> Option<Instant> {
        let holes = self.holes.iter().take_while(|hole| which(hole));
        holes.map(|hole| hole.due(wait)).min()
    }

    /// `psn` is missing, and was asked for a while ago.
    pub(super) fn is_asked(&self, psn: Psn, now: Instant) -> bool {
        let asked = |hole: &Hole| hole.asked.is_some_and(|asked| now < asked.until);
        self.holes.iter().any(|hole| hole.holds(psn) && asked(hole))
    }

    /// Where the first hole begins.
    pub(super) fn first_hole(&self) -> Option<Psn> {
        self.holes.front().map(|hole| hole.first)
    }

    /// The hole at `at` is asked for now. The answer may take `ns`, and twice as long each time.
    pub(super) fn asked(&mut self, at: usize, now: Instant, ns: u64, sent: Psn) {
        if let Some(hole) = self.holes.get_mut(at) {
            let until = now.after(ns << hole.times.min(MAX_DOUBLINGS));
            hole.asked = Some(Asked {
                at: now,
                until,
                sent,
            });
            hole.times += 1;
            self.asks = Some(earlier(self.asks, sent));
        }
    }

    /// What was asked for from `psn` on did not leave.
    pub(super) fn unask(&mut self, psn: Psn) {
        for hole in &mut self.holes {
            if hole.end().since(psn) > 0 {
                (hole.asked, hole.since) = (None, Instant(0));
            }
        }
    }
}

#[cfg(test)]
mod tests;
