//! Event queues as the device holds them: what was written, and what the driver took.
//!
//! Which entry goes where, and which vector fires: `hca::events`.

use crate::hw::dialect::{EntryWords, EqName};
use crate::hw::{Aeqe, Ceqe};
use crate::num::MsixVector;
use crate::ring::{CommandsDone, Producer};
use std::collections::VecDeque;

/// The ring of a completion event queue, or of one for commands (mlx5).
#[derive(Debug)]
pub(super) enum CeRing {
    Completions(Producer<Ceqe>),
    Commands(Producer<CommandsDone>),
}

impl CeRing {
    pub(super) const fn free(&self) -> u32 {
        match self {
            Self::Completions(ring) => ring.free(),
            Self::Commands(ring) => ring.free(),
        }
    }

    /// The entry as it would stand in memory, and how many words it has.
    pub(super) fn image(&self, cookie: u64) -> (EntryWords, usize) {
        match self {
            Self::Completions(ring) => ring.image(Ceqe { cookie }),
            Self::Commands(ring) => ring.image(CommandsDone(low(cookie))),
        }
    }

    pub(super) fn push(&mut self, cookie: u64) -> Option<u32> {
        match self {
            Self::Completions(ring) => ring.try_push(Ceqe { cookie }).ok(),
            Self::Commands(ring) => ring.try_push(CommandsDone(low(cookie))).ok(),
        }
    }

    pub(super) const fn release(&mut self, entries: u32) {
        match self {
            Self::Completions(ring) => ring.release(entries),
            Self::Commands(ring) => ring.release(entries),
        }
    }

    pub(super) fn doorbell(&self, name: EqName, taken: u64) -> u32 {
        match self {
            Self::Completions(ring) => ring.doorbell(name, taken),
            Self::Commands(ring) => ring.doorbell(name, taken),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "32 commands have a bit")]
const fn low(cookie: u64) -> u32 {
    cookie as u32
}

/// One completion event queue.
#[derive(Debug)]
pub(super) struct Ceq {
    pub(super) name: EqName,
    pub(super) producer: CeRing,
    pub(super) size: u32,
    pub(super) vector: MsixVector,
    /// CQs that may write here, the CCQ included.
    pub(super) cqs: u32,
    /// Entries written so far, how many of them the driver took, and how many there were when the
    /// vector fired last.
    pub(super) written: u64,
    pub(super) taken: u64,
    pub(super) written_at_fire: u64,
    /// Entries of CQs that are gone, not taken yet.
    pub(super) stale: VecDeque<u64>,
}

impl Ceq {
    /// The driver took the first `taken` entries.
    pub(super) fn take(&mut self, taken: u64) {
        let more = taken.min(self.written).saturating_sub(self.taken);
        self.taken += more;
        self.producer
            .release(u32::try_from(more).unwrap_or(u32::MAX));
        while self
            .stale
            .front()
            .is_some_and(|position| *position < self.taken)
        {
            self.stale.pop_front();
        }
    }

    /// Takes what the driver's last doorbell says.
    pub(super) fn look_at_doorbell(&mut self) {
        let more = self.producer.doorbell(self.name, self.taken);
        self.take(self.taken + u64::from(more));
    }
}

/// The asynchronous event queue and its credits.                       [E810 5.2]
#[derive(Debug)]
pub(super) struct Aeq {
    pub(super) producer: Producer<Aeqe>,
    pub(super) vector: MsixVector,
    pub(super) size: u32,
    /// Entries that the driver took, as its doorbells say.
    pub(super) taken: u64,
}

impl Aeq {
    pub(super) fn has_unread(&self) -> bool {
        self.producer.free() < self.size
    }
}
