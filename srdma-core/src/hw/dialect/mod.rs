//! How a device spells the words of its event engine: as an E810 does, or as other NICs do.
//!
//! ```text
//!            completions      arm                        completion events   other events
//! e810.rs    32 B + ext       word beside the queue      CEQE 8 B            AEQE 16 B
//! mlx5.rs    64 B, owner bit  record and doorbell, sn    EQE 64 B            EQE 64 B
//! hns.rs     64 B, owner bit  doorbell, sn               CEQE 64 B           AEQE 64 B
//! ```
//!
//! A device speaks one dialect, chosen when it is opened, and its driver half the same. Both ends
//! of a ring ask the module of the dialect, so each bit stands in one place. Work requests, control
//! commands and their completions are an E810's in every dialect, and so is the wire.
//!
//! The tables are in `docs/dialects.md`. What differs in *behaviour*, not in words, is
//! [`Dialect::counts_events`], [`Dialect::compares_index`] and [`Arming`].  [events 4]

mod arming;
pub mod e810;
pub mod hns;
pub mod mlx5;
pub mod syndrome;

pub use arming::{ArmRequest, Arming};

use super::{CqeInfo, FlushCode, Polarity};
use crate::num::CqId;
use core::fmt;

/// Whose words a device and its driver half use for completions and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Intel E810.
    #[default]
    E810,
    /// NVIDIA (Mellanox) ConnectX, as the mlx5 driver sees it.
    Mlx5,
    /// HiSilicon, third generation, as the hns driver sees it.
    Hns,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::E810, Self::Mlx5, Self::Hns];

    /// The name that users give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::E810 => "e810",
            Self::Mlx5 => "mlx5",
            Self::Hns => "hns",
        }
    }

    /// The dialect of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Whose words a completion queue uses: those of the driver's own queues are an E810's, as the
    /// queues are that they serve.                                   [E810 1.7]
    #[must_use]
    pub const fn of_queue(self, id: CqId) -> Self {
        if id.0 < FIRST_USER_CQ {
            Self::E810
        } else {
            self
        }
    }

    /// Event queue entries name completion queues and queue pairs by their number. An E810's name
    /// them by what the driver said when it made them.               [events 4.9]
    #[must_use]
    pub const fn names_by_number(self) -> bool {
        !matches!(self, Self::E810)
    }

    /// An arm is for the event after those that were sent already, which its sequence number says;
    /// one that is for an earlier event is ignored. An E810 takes any change for a new arm.
    /// [events 4.5]
    #[must_use]
    pub const fn counts_events(self) -> bool {
        !matches!(self, Self::E810)
    }

    /// The number of the first event, modulo 4.                      [events 4.9]
    #[must_use]
    pub const fn first_event(self) -> u8 {
        match self {
            Self::E810 | Self::Mlx5 => 0,
            Self::Hns => 1,
        }
    }

    /// An arm says how far the driver has read, and what is behind that counts as new.
    /// [events 1.6]
    #[must_use]
    pub const fn compares_index(self) -> bool {
        !matches!(self, Self::E810)
    }

    /// An event queue is acknowledged and its vector enabled by one doorbell that says how far the
    /// queue was read; an E810 has registers for each of these.      [events 4.9]
    #[must_use]
    pub const fn has_eq_doorbell(self) -> bool {
        !matches!(self, Self::E810)
    }

    /// Slots of a completion queue for `entries` completions.         [events 4.6]
    #[must_use]
    pub const fn cq_slots(self, entries: u32) -> Option<u32> {
        match self {
            Self::E810 => crate::ring::depth::cq_slots(entries, false),
            Self::Mlx5 | Self::Hns => {
                let Some(least) = entries.checked_add(1) else {
                    return None;
                };
                match least.checked_next_power_of_two() {
                    Some(slots) if slots <= crate::limits::MAX_CQE => {
                        Some(if slots < 4 { 4 } else { slots })
                    }
                    _ => None,
                }
            }
        }
    }

    /// Bytes of a slot; `wide` is a choice that only an E810 has.
    #[must_use]
    pub const fn cq_slot_bytes(self, wide: bool) -> usize {
        if self.has_wide_slots(wide) { 64 } else { 32 }
    }

    /// True if every completion takes one slot of 64 bytes.
    #[must_use]
    pub const fn has_wide_slots(self, wide: bool) -> bool {
        wide || !matches!(self, Self::E810)
    }

    /// The form of its completions; `None` for an E810, whose slots have two sizes.
    #[inline]
    #[must_use]
    pub const fn slots(self) -> Option<&'static SlotForm> {
        match self {
            Self::E810 => None,
            Self::Mlx5 => Some(&mlx5::cqe::CQE),
            Self::Hns => Some(&hns::cqe::CQE),
        }
    }

    /// Whether a completion queue can have so many slots: counters of other NICs have one bit that
    /// tells laps apart.
    #[must_use]
    pub const fn cq_size_fits(self, size: u32) -> bool {
        match self {
            Self::E810 => true,
            Self::Mlx5 | Self::Hns => size.is_power_of_two(),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The control queue has number 0, queues of the driver's own those up to this. [E810 1.7]
const FIRST_USER_CQ: u32 = 3;

/// Words of the longest event queue entry.
pub const ENTRY_WORDS: usize = 8;
/// An event queue entry; short ones use the first words.
pub type EntryWords = [u64; ENTRY_WORDS];
/// Words of a 64-byte completion.
pub const SLOT_WORDS: usize = 8;
/// A 64-byte completion, in the order of memory.
pub type SlotWords = [u64; SLOT_WORDS];

/// The bit by which an entry says that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidBit {
    /// The bit within its word.
    pub bit: u32,
    /// Its value on the first lap.
    pub first: bool,
}

impl ValidBit {
    /// Bit 63, set on the first lap: an E810's.                      [E810 1.5]
    pub const E810: Self = Self {
        bit: 63,
        first: true,
    };

    const fn at(self, lap: Polarity) -> u64 {
        ((lap.bit() != 0) as u64 ^ !self.first as u64) << self.bit
    }

    /// `word` with the bit as it is on this lap.
    #[inline]
    #[must_use]
    pub const fn stamp(self, word: u64, lap: Polarity) -> u64 {
        word & !(1 << self.bit) | self.at(lap)
    }

    /// True if `word` is of this lap.
    #[inline]
    #[must_use]
    pub const fn matches(self, word: u64, lap: Polarity) -> bool {
        word & (1 << self.bit) == self.at(lap)
    }
}

/// The form of an event queue's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Words of an entry.
    pub words: usize,
    /// The word that is written last.
    pub header: usize,
    /// The bit in it that tells laps apart.
    pub valid: ValidBit,
    /// What the header of an entry holds that was never written.
    pub fresh: u64,
}

impl Shape {
    /// An E810's entry of `words` words, with the valid bit in word `header`.
    #[must_use]
    pub const fn e810(words: usize, header: usize) -> Self {
        Self {
            words,
            header,
            valid: ValidBit::E810,
            fresh: 0,
        }
    }
}

/// The form of completions in 64-byte slots: all that their queues ask a dialect.
#[derive(Clone, Copy, Debug)]
pub struct SlotForm {
    /// The word that is written last.
    pub header: usize,
    /// The bit in it that tells laps apart.
    pub valid: ValidBit,
    /// Whether a header is of this lap, and of an entry.
    pub is_ready: fn(u64, Polarity) -> bool,
    /// The words of a completion, its valid bit clear.
    pub encode: fn(&CqeInfo) -> SlotWords,
    /// What they stand for.
    pub decode: fn(&SlotWords) -> CqeInfo,
    /// Takes an entry away from its queue pair.
    pub void: fn(&mut SlotWords),
    /// The entry of a flush for what is left of it: from a WQE on, with its code.
    pub rewritten: fn(&SlotWords, u16, FlushCode) -> SlotWords,
}

impl SlotForm {
    /// A slot as it stands in memory on lap `lap`.
    #[inline]
    #[must_use]
    pub fn image(&self, cqe: &CqeInfo, lap: Polarity) -> SlotWords {
        let mut words = (self.encode)(cqe);
        if let Some(header) = words.get_mut(self.header) {
            *header = self.valid.stamp(*header, lap);
        }
        words
    }
}

/// Which event queue a doorbell is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EqName {
    /// Completed commands (mlx5).
    Commands,
    /// Everything but completions and commands.
    Async,
    /// Requests for memory (mlx5).
    Pages,
    /// Completions of a vector.
    Completions(u16),
}

/// Words behind an event queue's ring that hold the last doorbell of each of its registers.
pub const EQ_DOORBELL_WORDS: usize = 8;
/// The register that acknowledges and enables.
pub const EQ_ARM: usize = 0;
/// The register that only acknowledges (mlx5).
pub const EQ_UPDATE: usize = 1;

impl Dialect {
    /// Bytes that an event queue of `entries` entries of form `shape` takes, with its doorbells.
    #[must_use]
    pub const fn eq_bytes(self, shape: Shape, entries: usize) -> usize {
        let doorbells = if self.has_eq_doorbell() {
            EQ_DOORBELL_WORDS
        } else {
            0
        };
        8 * (entries * shape.words + doorbells)
    }

    /// A doorbell: the queue was read up to `count` entries, and may fire if `arm`. Gives the word
    /// and which register it goes to; nothing in a dialect without such doorbells.
    #[must_use]
    pub fn eq_doorbell(self, eq: EqName, size: u32, count: u64, arm: bool) -> Option<(usize, u64)> {
        match self {
            Self::E810 => None,
            Self::Mlx5 => Some((
                if arm { EQ_ARM } else { EQ_UPDATE },
                mlx5::eq_doorbell(eq, count),
            )),
            Self::Hns => Some((EQ_ARM, hns::eq_doorbell(eq, size, count, arm))),
        }
    }

    /// How many entries a doorbell acknowledges beyond the first `taken`; `None` if it is not one
    /// of this queue.
    #[must_use]
    pub fn eq_progress(
        self,
        eq: EqName,
        size: u32,
        register: usize,
        (taken, word): (u64, u64),
    ) -> Option<u32> {
        match self {
            Self::E810 => None,
            Self::Mlx5 => mlx5::eq_progress(eq, taken, word),
            Self::Hns if register == EQ_ARM => hns::eq_progress(eq, size, taken, word),
            Self::Hns => None,
        }
    }
}

#[cfg(test)]
mod tests;
