//! Whose the interrupt vectors are: the share of RDMA, and what each of its vectors is for.
//!
//! ```text
//! hardware ─ Demand::divide ─► LAN │ RDMA │ others      what the Ethernet driver decides
//!     RDMA ─ Tracker::alloc ─► indices, lowest first; -2 when there are none left
//!  indices ─ Layout::new ────► vector 0: AEQ (shared: CEQ 0 as well), vector i: a CEQ, CPU by CPU
//! ```
//!
//! The numbers are those of the `ice` driver and of `irdma`.         [E810 4.7; events 5]
//!
//! What this does *not* do: raise or hold back interrupts (`msix.rs`).

use crate::num::{CeqId, MsixVector};
use std::collections::BTreeMap;

/// Vectors for asynchronous events that RDMA asks for beside one for each CPU.
const RDMA_AEQ: u32 = 4;
/// Fewest vectors of a device: one for the driver, one for packets.
const MIN_MSIX: u32 = 2;
const MIN_LAN: u32 = 1;
/// One for asynchronous events, one for completions.
const MIN_RDMA: u32 = 2;
/// The driver's own causes, and the switch.
const OTHER: u32 = 2;
/// Flow director.
const FLOW_DIRECTOR: u32 = 2;

/// Too few vectors to work at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too few interrupt vectors")]
pub struct TooFew;

/// What is to be divided, and among whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "made by whoever asks")]
pub struct Demand {
    /// Vectors that the hardware has.
    pub hardware: u32,
    /// Processors online.
    pub cpus: u32,
    /// Flow director is on.
    pub flow_director: bool,
    /// RDMA is on.
    pub rdma: bool,
}

/// Who gets how many vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Division {
    /// For packets.
    pub lan: u32,
    /// For RDMA; 0 turns it off.
    pub rdma: u32,
    /// For everything else.
    pub other: u32,
}

impl Division {
    /// All together.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.lan + self.rdma + self.other
    }
}

impl Demand {
    /// Divides the hardware's vectors.                                 [events 5.1]
    // rule: event-82
    pub fn divide(self) -> Result<Division, TooFew> {
        let wish = Division {
            lan: self.cpus,
            rdma: if self.rdma { self.cpus + RDMA_AEQ } else { 0 },
            other: OTHER + if self.flow_director { FLOW_DIRECTOR } else { 0 },
        };
        if wish.total() <= self.hardware {
            return Ok(wish);
        }
        self.reduce(wish)
    }

    /// Divides what the system granted of a division's vectors.
    // rule: event-82
    pub fn granted(self, division: Division, granted: u32) -> Result<Division, TooFew> {
        if granted >= division.total() {
            return Ok(division);
        }
        let less = Self {
            hardware: granted,
            rdma: division.rdma != 0,
            ..self
        };
        less.reduce(division)
    }

    fn reduce(self, wish: Division) -> Result<Division, TooFew> {
        if self.hardware < MIN_MSIX {
            return Err(TooFew);
        }
        let left = self.hardware.saturating_sub(wish.other).max(1);
        let (lan, rdma) = if !self.rdma {
            (left, 0)
        } else if left < MIN_LAN + MIN_RDMA {
            (MIN_LAN, 0)
        } else if left < 2 * (RDMA_AEQ + 1) {
            (left - MIN_RDMA, MIN_RDMA)
        } else {
            let rdma = (left - RDMA_AEQ) / 2 + RDMA_AEQ;
            (left - rdma, rdma)
        };
        Ok(Division { lan, rdma, ..wish })
    }
}

/// A vector, as the tracker gives it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IrqMap {
    /// Its index; negative if there is none.
    pub index: i32,
    /// It was made for this, and goes when it is given back.
    pub dynamic: bool,
}

impl IrqMap {
    /// No vector (`-ENOENT`).
    pub const NONE: Self = Self {
        index: -2,
        dynamic: false,
    };
}

/// Which vectors are given out.                                        [events 5.2]
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Vectors that were made in advance.
    fixed: u32,
    /// All, with those that can be made when they are wanted.
    entries: u32,
    /// From here on vectors are those of virtual functions.
    reserved_from: u32,
    used: BTreeMap<u32, bool>,
}

impl Tracker {
    /// `fixed` vectors made in advance; more, up to `hardware`, when they are wanted, if the
    /// system can do that.
    #[must_use]
    pub fn new(hardware: u32, fixed: u32, grows: bool) -> Self {
        Self {
            fixed,
            entries: if grows { hardware.max(fixed) } else { fixed },
            reserved_from: u32::MAX,
            used: BTreeMap::new(),
        }
    }

    /// Vectors from `index` on belong to virtual functions.
    pub const fn reserve_from(&mut self, index: u32) {
        self.reserved_from = index;
    }

    /// The lowest free vector; with `dynamic_only`, the lowest that is made when it is wanted.
    // rule: event-79
    pub fn alloc(&mut self, dynamic_only: bool) -> IrqMap {
        let from = if dynamic_only { self.fixed } else { 0 };
        let end = self.entries.min(self.reserved_from);
        let free = (from..end).find(|index| !self.used.contains_key(index));
        let Some((index, number)) = free.and_then(|at| Some((at, i32::try_from(at).ok()?))) else {
            return IrqMap::NONE;
        };
        let dynamic = index >= self.fixed;
        self.used.insert(index, dynamic);
        IrqMap {
            index: number,
            dynamic,
        }
    }

    /// Gives a vector back; false if it was not out.
    pub fn free(&mut self, map: IrqMap) -> bool {
        let index = u32::try_from(map.index).ok();
        index.is_some_and(|index| self.used.remove(&index).is_some())
    }

    /// The highest vector that is or may be in use.
    #[must_use]
    pub fn max_used(&self) -> u32 {
        let highest = self.used.last_key_value().map_or(0, |(index, _)| *index);
        highest.max(self.fixed.saturating_sub(1))
    }

    /// As many vectors for RDMA as there are, up to `wanted`.          [events 5.3]
    // rule: event-79
    pub fn for_rdma(&mut self, wanted: u32) -> Vec<IrqMap> {
        let maps = core::iter::repeat_with(|| self.alloc(false)).take(wanted as usize);
        maps.take_while(|map| map.index >= 0).collect()
    }
}

/// What one vector of RDMA is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VectorUse {
    /// The vector.
    pub vector: MsixVector,
    /// It serves the asynchronous event queue.
    pub aeq: bool,
    /// The completion event queue that it serves.
    pub ceq: Option<CeqId>,
    /// The processor that it is meant for.
    pub cpu: u32,
}

/// What the vectors of RDMA are for.                                   [E810 4.7; events 5.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    vectors: u16,
    shared: bool,
}

impl Layout {
    /// For so many vectors that RDMA got, on so many processors. No more than one for each
    /// processor and one for asynchronous events are used; with no more than there are processors,
    /// vector 0 serves asynchronous events and the first completion event queue.
    // rule: event-80, event-81
    pub fn new(granted: u32, cpus: u32) -> Result<Self, TooFew> {
        if granted < MIN_RDMA {
            return Err(TooFew);
        }
        let shared = granted <= cpus;
        let used = granted.min(cpus.saturating_add(1));
        let vectors = u16::try_from(used).unwrap_or(u16::MAX);
        Ok(Self { vectors, shared })
    }

    /// No more than `most` vectors.
    #[must_use]
    pub fn at_most(self, most: u16) -> Self {
        Self {
            vectors: self.vectors.min(most),
            ..self
        }
    }

    /// Vectors in use.
    #[must_use]
    pub const fn vectors(self) -> u16 {
        self.vectors
    }

    /// Vector 0 serves asynchronous events and the first completion event queue.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.shared
    }

    /// Completion event queues, and so completion vectors of verbs.
    #[must_use]
    pub const fn ceqs(self) -> u16 {
        if self.shared {
            self.vectors
        } else {
            self.vectors.saturating_sub(1)
        }
    }

    /// The vector of a completion event queue.
    #[must_use]
    pub const fn vector_of(self, ceq: CeqId) -> MsixVector {
        MsixVector(if self.shared { ceq.0 } else { ceq.0 + 1 })
    }

    /// What a vector is for.
    #[must_use]
    pub fn use_of(self, vector: MsixVector) -> Option<VectorUse> {
        let index = vector.0;
        let ceq = if self.shared {
            Some(index)
        } else {
            index.checked_sub(1)
        };
        (index < self.vectors).then_some(VectorUse {
            vector,
            aeq: index == 0,
            ceq: ceq.map(CeqId),
            cpu: ceq.unwrap_or(0).into(),
        })
    }

    /// All vectors.
    pub fn uses(self) -> impl Iterator<Item = VectorUse> {
        (0..self.vectors).filter_map(move |index| self.use_of(MsixVector(index)))
    }
}

#[cfg(test)]
mod tests;
