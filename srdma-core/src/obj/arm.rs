//! When a completion becomes an event: the arm state of one CQ.        [E810 3.9-3.11]
//!
//! ```text
//!           CQE            success     success receive      any
//! armed                    no SE       SE                   error
//! nothing                  -           -                    -
//! solicited                -           event                event
//! any                      event       event                event
//!
//! arm      a new sequence in the shadow, or the number of the next event (other dialects);
//!          strength only grows until the event
//! event    one for each arm; it may be held back (see `notify.rs`), and nothing is forgotten
//! ```
//!
//! The doorbell of an arm is a hint. What counts is the arm word in memory, and the device looks at
//! it twice: when the doorbell comes, and once after the completions of a pass were published
//! (`look`, behind a full fence). The driver writes the word and, behind a full fence, polls once
//! more. So one of the two sees the other, however late the doorbell is; without the second look a
//! completion published between the driver's poll and the doorbell would wake nobody.
//!
//! What this does *not* do: touch memory, write CEQEs, or keep time (see `cq.rs`).

use crate::hw::Dialect;
use crate::hw::dialect::ArmRequest;

/// What an arm does about completions that are in the ring already.     [events 1.6]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ArmModel {
    /// Nothing: the consumer polls once more after it armed.
    #[default]
    Strict,
    /// An event at once, if one of them was not covered by an event.
    Compare,
    /// Nothing, but the device counts such arms as missed: see `Counters::arms_missed`.
    Report,
}

impl ArmModel {
    /// The model of this name: `strict`, `compare` or `report`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Strict, Self::Compare, Self::Report]
            .into_iter()
            .find(|model| model.name() == name)
    }

    /// What [`named`](Self::named) takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Compare => "compare",
            Self::Report => "report",
        }
    }
}

/// What the next event waits for; the order is the strength.            [events 1.5 R6]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Armed {
    /// No event.
    #[default]
    Nothing,
    /// A solicited completion or an error.
    Solicited,
    /// Any completion.
    Any,
}

/// The strongest kind among some completions; the order is how easily they make an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Kind {
    #[default]
    Nothing,
    Plain,
    /// A solicited receive, or any error.                     [events 1.5 R3]
    Solicited,
}

impl Armed {
    /// The truth table.
    // rule: roce-119, event-8, event-10, event-11, event-12, event-13, event-14
    #[inline]
    pub(crate) const fn wants(self, kind: Kind) -> bool {
        match self {
            Self::Nothing => false,
            Self::Solicited => matches!(kind, Kind::Solicited),
            Self::Any => !matches!(kind, Kind::Nothing),
        }
    }
}

/// Arm state of one CQ.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArmState {
    /// What the last arm carried (an E810), or the number of the next event (others).
    seq: u64,
    /// The second of these.
    counts: bool,
    armed: Armed,
    /// Completions published since the last look.
    fresh: Kind,
    /// A completion met the arm, and the event was not taken.
    held: bool,
}

impl ArmState {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            seq: dialect.first_event().into(),
            counts: dialect.counts_events(),
            ..Self::default()
        }
    }

    pub(crate) const fn armed(&self) -> Armed {
        self.armed
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// A completion was published; true if it meets the arm.
    #[inline]
    pub(crate) fn published(&mut self, kind: Kind) -> bool {
        if self.armed.wants(kind) {
            self.held = true;
            return true;
        }
        self.fresh = self.fresh.max(kind);
        false
    }

    /// True if a look is owed: completions were published that met no arm.
    #[inline]
    pub(crate) fn owes_look(&self) -> bool {
        self.fresh != Kind::Nothing
    }

    /// Takes the last request, loaded behind a full fence. `backlog`: the strongest completion in
    /// the ring that the model counts besides the fresh ones. Gives the one that meets the arm.
    ///
    /// An E810's request whose sequence has not changed is the old arm and changes nothing; they
    /// are compared for inequality, because the sequence wraps. In other dialects a request is for
    /// the event of its number: that of an event that was sent is old.
    // rule: e810-17, event-15, event-16, event-17, event-21
    // rule: event-74
    pub(crate) fn look(&mut self, request: Option<ArmRequest>, backlog: Kind) -> Kind {
        let fresh = core::mem::take(&mut self.fresh).max(backlog);
        // rule: e810-20
        let Some(request) = request.filter(|new| (new.seq == self.seq) == self.counts) else {
            return Kind::Nothing;
        };
        self.seq = request.seq;
        let asked = match (request.next, request.solicited) {
            (true, _) => Armed::Any,
            // rule: e810-18
            (false, true) => Armed::Solicited,
            (false, false) => Armed::Nothing,
        };
        self.armed = self.armed.max(asked);
        if !self.armed.wants(fresh) {
            return Kind::Nothing;
        }
        self.held = true;
        fresh
    }

    /// Takes the event that is held: at most one for each arm.
    // rule: event-9
    pub(crate) fn fire(&mut self) -> bool {
        if !self.held {
            return false;
        }
        let seq = if self.counts {
            (self.seq + 1) & 3
        } else {
            self.seq
        };
        let counts = self.counts;
        *self = Self {
            seq,
            counts,
            ..Self::default()
        };
        true
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
