//! Shared receive queues: one ring of receives for many queue pairs.    [E810 2.6]
//!
//! ```text
//! take ──► next entry of the ring, by its valid bit (no doorbell)
//!   └────► fewer left than the limit: AE 0x0209 once, then the limit is 0    [events 2.4]
//! ```
//!
//! How many are left is what the driver's head in the shadow area says. A taken entry is gone from
//! the ring: whoever took it completes it.
//!
//! What this does *not* do: check local keys, or write CQEs (the responder does).

use super::table::{Slot, Table, TableFault};
use crate::hca::events::Events;
use crate::hw::{AeCode, AeSource, Aeqe, HwQpState, RqCmd, WqeBuf, WqeFault};
use crate::limits::MAX_SRQ;
use crate::mem::HostWords;
use crate::num::{PdId, SrqId, XrcdId};
use crate::ring::{RingFault, RqConsumer, RqProducer, SrqShadow};
use crate::trace;

/// One shared receive queue.
#[derive(Debug)]
pub struct Srq {
    id: SrqId,
    pd: PdId,
    context: u64,
    ring: RqConsumer,
    shadow: SrqShadow,
    entries: u32,
    /// Tell when fewer entries are left; 0 is never.
    limit: u32,
    error: bool,
    users: u32,
    xrc: Option<XrcUse>,
}

/// Where the receives of an XRC shared receive queue belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcUse {
    /// Targets of this domain may take from the queue.
    pub xrcd: XrcdId,
    /// Every receive completes here.
    pub cq: Slot,
}

/// What an SRQ is created with.
#[derive(Debug)]
pub struct SrqSpec {
    /// The id, chosen by the driver half.
    pub id: SrqId,
    /// The domain of its receives.
    pub pd: PdId,
    /// What events carry.
    pub context: u64,
    /// Reads the ring.
    pub ring: RqConsumer,
    /// Where the driver says how far it has filled.
    pub shadow: SrqShadow,
    /// Entries of the ring.
    pub entries: u32,
    /// Tell when fewer entries are left; 0 is never.
    pub limit: u32,
    /// Set for an XRC queue.
    pub xrc: Option<XrcUse>,
}

/// What taking an entry gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the responder handles every case")]
pub enum Taken {
    /// There is none: RNR for a reliable connection, else a drop.
    Empty,
    /// The command holds it; a completion names it by this first quantum.
    Entry {
        /// First quantum of the entry.
        wqe_index: u16,
    },
    /// The entry makes no sense; it is consumed, and whoever asked fails.
    Faulty {
        /// First quantum of the entry.
        wqe_index: u16,
        /// What is wrong with it.
        fault: WqeFault,
    },
}

impl Srq {
    /// A queue without users.
    #[must_use]
    pub fn new(spec: SrqSpec) -> Self {
        Self {
            id: spec.id,
            pd: spec.pd,
            context: spec.context,
            ring: spec.ring,
            shadow: spec.shadow,
            entries: spec.entries,
            limit: spec.limit,
            error: false,
            users: 0,
            xrc: spec.xrc,
        }
    }

    /// Domain and completion queue of an XRC queue; `None` for a basic one.
    #[must_use]
    pub const fn xrc(&self) -> Option<XrcUse> {
        self.xrc
    }

    /// What completions of an XRC queue and events carry.
    #[must_use]
    pub const fn context(&self) -> u64 {
        self.context
    }

    /// The domain of its receives.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// The armed limit; 0 if none is.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Queue pairs that take from here.
    #[must_use]
    pub const fn users(&self) -> u32 {
        self.users
    }

    /// Entries left, as the driver's head has it.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.ring.available(self.shadow.head())
    }

    /// Takes the next entry into `cmd`. Also looks at the limit, and does so if there is none: an
    /// empty queue must tell.
    // rule: e810-27
    // rule: roce-120, event-49
    pub fn take(&mut self, events: &mut Events, cmd: &mut RqCmd) -> Taken {
        let taken = if self.error {
            Taken::Empty
        } else {
            let wqe_index = self.ring.wqe_index();
            match self.ring.read(cmd) {
                None => Taken::Empty,
                Some(Ok(())) => Taken::Entry { wqe_index },
                Some(Err(fault)) => Taken::Faulty { wqe_index, fault },
            }
        };
        if taken != Taken::Empty {
            if trace::on() {
                let (words, used) = self.ring.raw();
                let words = words.get(..used).unwrap_or_default();
                trace::wqe(trace::Kind::SRQE, self.id.0, self.ring.index(), words);
            }
            self.ring.advance();
        }
        if self.limit > 0 && self.remaining() < self.limit {
            self.limit = 0;
            events.raise_ae(&self.event(AeCode::SRQ_LIMIT));
        }
        taken
    }

    /// Arms the limit event, or disarms it with 0; false if no such limit can be reached.
    pub const fn set_limit(&mut self, limit: u32) -> bool {
        let possible = limit < self.entries;
        if possible {
            self.limit = limit;
        }
        possible
    }

    /// Stride of an entry: 32 << shift bytes.
    #[must_use]
    pub const fn shift(&self) -> u8 {
        self.ring.shift()
    }

    /// Goes on in another (zeroed) ring, with the entries that nobody has taken at its start;
    /// false, and nothing has changed, if they have no room there or make no sense.
    pub fn move_to(
        &mut self,
        words: HostWords,
        wqes: u32,
        shadow: SrqShadow,
    ) -> Result<bool, RingFault> {
        let shift = self.shift();
        let mut to = RqProducer::new(words.clone(), wqes, shift)?;
        let (mut from, mut cmd, mut wqe) = (self.ring.clone(), RqCmd::default(), WqeBuf::new());
        for _ in 0..from.size() {
            match from.read(&mut cmd) {
                None => break,
                Some(Err(_)) => return Ok(false),
                Some(Ok(())) => {}
            }
            let built = wqe.recv(&cmd.sges, Some(cmd.wr_id));
            if built.is_err() || to.push(&wqe).is_err() {
                return Ok(false);
            }
            from.advance();
        }
        shadow.store_head(to.head());
        self.ring = RqConsumer::new(words, wqes, shift)?;
        (self.shadow, self.entries) = (shadow, wqes);
        Ok(true)
    }

    /// The queue is unusable: nothing is taken any more, and that is told once.
    pub fn fail(&mut self, events: &mut Events) {
        if !self.error {
            self.error = true;
            events.raise_ae(&self.event(AeCode::SRQ_CATASTROPHIC_ERROR));
        }
    }

    const fn event(&self, code: AeCode) -> Aeqe {
        Aeqe {
            code,
            source: AeSource::NONE,
            id: self.id.0,
            context: self.context,
            state: HwQpState::INVALID,
            wqe_index: self.ring.wqe_index(),
            overflow: false,
        }
    }
}

/// All shared receive queues of the device.
#[derive(Debug)]
pub struct SrqTable {
    table: Table<Srq>,
}

impl Default for SrqTable {
    fn default() -> Self {
        Self::new()
    }
}

impl SrqTable {
    /// Without queues.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: Table::new(MAX_SRQ),
        }
    }

    /// Enters a queue.
    pub fn insert(&mut self, srq: Srq) -> Result<Slot, TableFault> {
        self.table.insert(srq.id.0, srq)
    }

    /// The slot of a queue.
    #[must_use]
    pub fn slot(&self, id: SrqId) -> Option<Slot> {
        self.table.find(id.0)
    }

    /// The queue of a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Srq> {
        self.table.get(slot)
    }

    /// The queue of a slot, to change it.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Srq> {
        self.table.get_mut(slot)
    }

    /// Takes the next entry of a queue into `cmd`; `Empty` if the queue is gone.
    pub fn take(&mut self, events: &mut Events, slot: Slot, cmd: &mut RqCmd) -> Taken {
        self.table
            .get_mut(slot)
            .map_or(Taken::Empty, |srq| srq.take(events, cmd))
    }

    /// The number of the queue of a slot; 0 if it is gone.
    #[must_use]
    pub fn number(&self, slot: Slot) -> u32 {
        self.table.number_of(slot).unwrap_or(0)
    }

    /// Where receives of an XRC queue complete, and with which context.
    #[must_use]
    pub fn xrc_home(&self, slot: Slot) -> Option<(Slot, u64)> {
        let srq = self.table.get(slot)?;
        srq.xrc.map(|home| (home.cq, srq.context))
    }

    /// One more queue pair takes from here; false if there is no such queue.
    pub fn add_user(&mut self, slot: Slot) -> bool {
        let Some(srq) = self.table.get_mut(slot) else {
            return false;
        };
        srq.users = srq.users.saturating_add(1);
        true
    }

    /// A queue pair takes from here no longer.
    pub fn remove_user(&mut self, slot: Slot) {
        if let Some(srq) = self.table.get_mut(slot) {
            assert!(
                srq.users > 0,
                "a shared queue loses no more users than it had"
            );
            srq.users -= 1;
        }
    }

    /// Takes a queue out.
    pub fn remove(&mut self, id: SrqId) -> Option<Srq> {
        self.table.remove(id.0)
    }
}

#[cfg(test)]
mod tests;
