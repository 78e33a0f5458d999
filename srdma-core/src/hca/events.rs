//! Event queues and vectors: how a completion or a mishap reaches the driver.
//!
//! ```text
//! CQ ───────────CEQE──► CEQ k ──► its vector ──┐
//! QP, CQ, SRQ ──AEQE──► AEQ ────► its vector ──┴─► poll_interrupt    [E810 4, 5]
//! ```
//!
//! Which vector serves a queue is said when the queue is created; queues may share one.
//!
//! A CEQ has room for every CQ on it, because a CQ has at most one CEQE that was not taken; entries
//! of CQs that are gone count until the driver has passed them. The driver takes entries in order:
//! CQ_ACK of one says so of all before it, and enabling the vector of all before it fired.
//!
//! In dialects whose event queues have doorbells, one of these says how far a queue was read and
//! enables its vector. Their CEQs may have less room than there are CQs: an event that finds none
//! waits with its CQ until the driver has read on.
//!
//! The AEQ is refilled by count: what finds no room waits here, and what finds no room here either
//! is lost, which the next entry says. Not so the end of a queue pair: it happens once, and is told
//! when there is room again, however late.                              [E810 5.2]
//!
//! What this does *not* do: decide which completion makes an event (see `obj/cq.rs`), or write to
//! an eventfd.

mod queue;

use self::queue::{Aeq, CeRing, Ceq};
use super::msix::IrqSet;
use crate::hw::dialect::{Dialect, EqName, mlx5};
use crate::hw::doorbell::DynCtl;
use crate::hw::{AeCode, AeSource, Aeqe, HwQpState};
use crate::limits::MAX_CEQS;
use crate::mem::HostWords;
use crate::num::{CeqId, CqId, MsixVector, Qpn};
use crate::ring::{Producer, RingFault};
use crate::time::Instant;
use crate::trace;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Asynchronous events that wait for room in the AEQ; the last place is kept for CQ errors.
pub const AE_BACKLOG: usize = 256;

/// Why an event queue or its use is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventFault {
    /// No such queue, or the id is out of range.
    #[error("no such event queue")]
    NotFound,
    /// The device has no such vector.
    #[error("no such interrupt vector")]
    NoVector,
    /// The queue exists.
    #[error("event queue exists")]
    Exists,
    /// CQs use it.
    #[error("event queue is in use")]
    InUse,
    /// The memory does not hold the queue.
    #[error(transparent)]
    Ring(#[from] RingFault),
    /// No room for the events of another CQ.
    #[error("event queue has no room for another completion queue")]
    Full,
}

/// What the event side counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventStats {
    /// Completion events written.
    pub ceqes: u64,
    /// Asynchronous events written.
    pub aeqes: u64,
    /// Asynchronous events that found no room.
    pub aeqes_lost: u64,
}

/// Event queues and vectors of one device.
#[derive(Debug)]
pub struct Events {
    dialect: Dialect,
    ceqs: Vec<Option<Ceq>>,
    /// The queue for completed commands (mlx5).
    commands: Option<Ceq>,
    aeq: Option<Aeq>,
    backlog: VecDeque<Aeqe>,
    /// Queue pairs that ended while there was no room, by number: their first such event.
    ended: BTreeMap<u32, Aeqe>,
    lost: bool,
    irq: IrqSet,
    stats: EventStats,
}

impl Events {
    /// Without queues, with `vectors` vectors that are all disabled.
    #[must_use]
    pub fn new(vectors: u16) -> Self {
        Self::speaking(Dialect::E810, vectors)
    }

    /// As [`new`](Self::new), in a dialect.
    #[must_use]
    pub fn speaking(dialect: Dialect, vectors: u16) -> Self {
        Self {
            dialect,
            ceqs: Vec::new(),
            commands: None,
            aeq: None,
            backlog: VecDeque::with_capacity(AE_BACKLOG),
            ended: BTreeMap::new(),
            lost: false,
            irq: IrqSet::new(vectors),
            stats: EventStats::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> EventStats {
        self.stats
    }

    /// Whose words the entries are in.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The vectors.
    #[must_use]
    pub const fn irq(&self) -> &IrqSet {
        &self.irq
    }

    // ---- CEQ ---------------------------------------------------------------------------

    /// Puts a CEQ in place. CEQ 0 keeps an entry for the CCQ, which exists before it.
    pub fn create_ceq(
        &mut self,
        id: CeqId,
        vector: MsixVector,
        words: HostWords,
        size: u32,
    ) -> Result<(), EventFault> {
        if usize::from(id.0) >= MAX_CEQS {
            return Err(EventFault::NotFound);
        }
        if usize::from(vector.0) >= self.irq.count() {
            return Err(EventFault::NoVector);
        }
        let dialect = self.dialect;
        let (name, producer) = if self.is_for_commands(id) {
            let ring = Producer::speaking(dialect, words, size, size)?;
            (EqName::Commands, CeRing::Commands(ring))
        } else {
            let ring = Producer::speaking(dialect, words, size, size)?;
            (EqName::Completions(id.0), CeRing::Completions(ring))
        };
        let place = self.place(id).ok_or(EventFault::NotFound)?;
        if place.is_some() {
            return Err(EventFault::Exists);
        }
        let cqs = u32::from(id == CeqId(0));
        *place = Some(Ceq {
            name,
            producer,
            size,
            vector,
            cqs,
            written: 0,
            taken: 0,
            written_at_fire: 0,
            stale: VecDeque::new(),
        });
        Ok(())
    }

    /// Takes a CEQ away; refused while CQs are on it.
    pub fn destroy_ceq(&mut self, id: CeqId) -> Result<(), EventFault> {
        let place = self.place(id).ok_or(EventFault::NotFound)?;
        let ceq = place.as_ref().ok_or(EventFault::NotFound)?;
        if ceq.cqs > u32::from(id == CeqId(0)) {
            return Err(EventFault::InUse);
        }
        *place = None;
        Ok(())
    }

    /// Reserves room for the events of one more CQ.
    pub fn attach_cq(&mut self, id: CeqId) -> Result<(), EventFault> {
        let reserves = !self.dialect.has_eq_doorbell();
        let ceq = self.ceq_mut(id).ok_or(EventFault::NotFound)?;
        let stale = u32::try_from(ceq.stale.len()).unwrap_or(u32::MAX);
        if reserves && ceq.cqs.saturating_add(stale) >= ceq.size {
            return Err(EventFault::Full);
        }
        ceq.cqs += 1;
        Ok(())
    }

    /// A CQ is gone. `untaken`: its CEQE that the driver has not taken, which keeps its room.
    pub fn detach_cq(&mut self, id: CeqId, untaken: Option<u64>) {
        let Some(ceq) = self.ceq_mut(id) else { return };
        ceq.cqs = ceq.cqs.saturating_sub(1);
        if let Some(position) = untaken {
            let place = ceq.stale.partition_point(|other| *other < position);
            ceq.stale.insert(place, position);
        }
    }

    /// The CCQ is gone; the entry kept for it stays kept.
    pub fn retire_ccq(&mut self, ceq: CeqId, untaken: Option<u64>) {
        self.detach_cq(ceq, untaken);
        if ceq == CeqId(0)
            && let Some(ceq) = self.ceq_mut(ceq)
        {
            ceq.cqs += 1;
        }
    }

    /// Writes a CEQE, marks the vector, and says which entry it was. `None`: no such CEQ.
    pub fn raise_ce(&mut self, id: CeqId, cookie: u64) -> Option<u64> {
        let dialect = self.dialect;
        let ceq = self.place(id)?.as_mut()?;
        let image = trace::on().then(|| ceq.producer.image(cookie));
        // Room for every CQ was reserved, or looked for: a full ring would be our own bug.
        let index = ceq.producer.push(cookie)?;
        if let Some((words, count)) = image {
            trace::ceqe(dialect, id, index, words.get(..count).unwrap_or_default());
        }
        let position = ceq.written;
        ceq.written += 1;
        let vector = ceq.vector;
        self.stats.ceqes += 1;
        self.irq.mark(vector);
        Some(position)
    }

    /// The driver took the CEQE at `position`, and so everything before it.
    pub fn ack_ce(&mut self, id: CeqId, position: u64) {
        if let Some(ceq) = self.ceq_mut(id) {
            ceq.take(position.saturating_add(1));
        }
    }

    /// How many entries of a CEQ the driver took: those at smaller positions.
    #[must_use]
    pub fn taken(&self, id: CeqId) -> u64 {
        let ceq = if self.is_for_commands(id) {
            self.commands.as_ref()
        } else {
            self.ceqs.get(usize::from(id.0)).and_then(Option::as_ref)
        };
        ceq.map_or(u64::MAX, |ceq| ceq.taken)
    }

    /// Whether an event can be written now; where there is no queue it is as good as written.
    pub fn has_room(&mut self, id: CeqId) -> bool {
        let Some(ceq) = self.ceq_mut(id) else {
            return true;
        };
        if ceq.producer.free() == 0 {
            ceq.look_at_doorbell();
        }
        ceq.producer.free() > 0
    }

    fn is_for_commands(&self, id: CeqId) -> bool {
        self.dialect == Dialect::Mlx5 && id == mlx5::COMMANDS
    }

    /// Where the queue is, or will be.
    fn place(&mut self, id: CeqId) -> Option<&mut Option<Ceq>> {
        if self.is_for_commands(id) {
            return Some(&mut self.commands);
        }
        let index = usize::from(id.0);
        if index >= MAX_CEQS {
            return None;
        }
        if self.ceqs.len() <= index {
            self.ceqs.resize_with(index + 1, || None);
        }
        self.ceqs.get_mut(index)
    }

    fn ceq_mut(&mut self, id: CeqId) -> Option<&mut Ceq> {
        if self.is_for_commands(id) {
            return self.commands.as_mut();
        }
        self.ceqs.get_mut(usize::from(id.0))?.as_mut()
    }

    // ---- AEQ ---------------------------------------------------------------------------

    /// Puts the AEQ in place, with all its entries as credits.
    pub fn create_aeq(
        &mut self,
        vector: MsixVector,
        words: HostWords,
        size: u32,
    ) -> Result<(), EventFault> {
        if self.aeq.is_some() {
            return Err(EventFault::Exists);
        }
        if usize::from(vector.0) >= self.irq.count() {
            return Err(EventFault::NoVector);
        }
        let producer = Producer::speaking(self.dialect, words, size, size)?;
        self.aeq = Some(Aeq {
            taken: 0,
            producer,
            vector,
            size,
        });
        Ok(())
    }

    /// Takes the AEQ away; what waits for it is lost.
    pub fn destroy_aeq(&mut self) -> Result<(), EventFault> {
        self.aeq.take().ok_or(EventFault::NotFound)?;
        self.backlog.clear();
        self.ended.clear();
        self.lost = false;
        Ok(())
    }

    /// Reports an asynchronous event. Never fails: without room it waits, or is lost and that is
    /// told later.
    // rule: e810-24
    pub fn raise_ae(&mut self, event: &Aeqe) {
        if self.aeq.is_none() {
            self.stats.aeqes_lost += 1;
            return;
        }
        let room = AE_BACKLOG - usize::from(!event.is_cq());
        if self.backlog.len() >= room {
            // rule: irq-4
            let ends = event.state == HwQpState::ERROR && event.is_qp();
            if ends && let Entry::Vacant(place) = self.ended.entry(event.id) {
                place.insert(*event);
                return;
            }
            self.stats.aeqes_lost += 1;
            self.lost = true;
            return;
        }
        let overflow = core::mem::take(&mut self.lost);
        self.backlog.push_back(Aeqe { overflow, ..*event });
        self.drain_backlog();
    }

    /// A CQ is in error: overrun, or memory that went away.             [E810 3.6]
    pub fn raise_cq_error(&mut self, cq: CqId, cookie: u64) {
        self.raise_ae(&Aeqe {
            code: AeCode::CQ_OPERATION_ERROR,
            source: AeSource::CQ,
            id: cq.0,
            context: cookie,
            state: HwQpState::INVALID,
            wqe_index: 0,
            overflow: false,
        });
    }

    /// A CQ is gone: what waits to be told of it is not told of a later one with its number.
    pub fn forget_cq(&mut self, cq: CqId) {
        self.backlog
            .retain(|event| !(event.is_cq() && event.id == cq.0));
    }

    /// The driver took `entries` AEQEs: as many may be written again. More than there were is cut.
    pub fn ack_aeq(&mut self, entries: u32) {
        if let Some(aeq) = &mut self.aeq {
            aeq.producer.release(entries);
        }
        self.drain_backlog();
    }

    /// A queue pair is gone: what was not written yet is not told any more.
    pub fn forget_qp(&mut self, qpn: Qpn) {
        self.ended.remove(&qpn.value());
        self.backlog
            .retain(|event| !event.is_qp() || event.id != qpn.value());
    }

    fn drain_backlog(&mut self) {
        let Some(aeq) = &mut self.aeq else { return };
        loop {
            if self.backlog.is_empty() {
                let ended = self.ended.pop_first();
                self.backlog.extend(ended.map(|(_, event)| event));
            }
            let Some(event) = self.backlog.front() else {
                return;
            };
            let image = trace::on().then(|| aeq.producer.image(*event));
            let Ok(index) = aeq.producer.try_push(*event) else {
                return;
            };
            if let Some((words, count)) = image {
                let words = words.get(..count).unwrap_or_default();
                trace::aeqe(self.dialect, index, words);
            }
            self.backlog.pop_front();
            self.stats.aeqes += 1;
            self.irq.mark(aeq.vector);
        }
    }

    // ---- vectors -----------------------------------------------------------------------

    /// A write to a vector's control register.                        [E810 4.5]
    ///
    /// The interval counts unless its index says that there is none. Enabled with what is pending
    /// cleared, the vector fires if there is something new; without, also for what was pending.
    // rule: irq-2
    pub fn control_vector(&mut self, vector: MsixVector, control: DynCtl) {
        if control.itr_index() != DynCtl::NO_ITR {
            self.set_moderation(vector, u32::from(control.interval()) * 2_000);
        }
        if !control.enable() {
            self.irq.disable(vector);
            return;
        }
        let pending = !control.clear_pending() && self.irq.is_pending(vector);
        self.enable_vector(vector);
        if pending {
            self.irq.mark(vector);
        }
    }

    /// The driver drained the queues of a vector: it may fire again, at once if entries are left.
    /// What was there when it fired last has been taken. Acknowledgements rung before this are
    /// taken before anything else is posted; the board sees to that.
    pub fn enable_vector(&mut self, vector: MsixVector) {
        let rings = self.dialect.has_eq_doorbell();
        if rings {
            self.look_at_aeq(vector);
        }
        let mut has_work = self
            .aeq
            .as_ref()
            .is_some_and(|aeq| aeq.vector == vector && aeq.has_unread());
        let ceqs = self.ceqs.iter_mut().chain([&mut self.commands]).flatten();
        for ceq in ceqs.filter(|ceq| ceq.vector == vector) {
            if rings {
                ceq.look_at_doorbell();
            } else {
                ceq.take(ceq.written_at_fire);
            }
            has_work |= ceq.taken < ceq.written;
        }
        self.irq.enable(vector, has_work);
    }

    /// Takes what the last doorbell of the AEQ says, if this is its vector.
    fn look_at_aeq(&mut self, vector: MsixVector) {
        let Some(aeq) = self.aeq.as_mut().filter(|aeq| aeq.vector == vector) else {
            return;
        };
        let more = aeq.producer.doorbell(EqName::Async, aeq.taken);
        aeq.taken += u64::from(more);
        aeq.producer.release(more);
        self.drain_backlog();
    }

    /// No interrupts from this vector until it is enabled.
    pub fn disable_vector(&mut self, vector: MsixVector) {
        self.irq.disable(vector);
    }

    /// Moderation of a CEQ vector; the AEQ's is never held back.        [E810 4.6]
    pub fn set_moderation(&mut self, vector: MsixVector, itr_ns: u32) -> bool {
        let of_aeq = self.aeq.as_ref().is_some_and(|aeq| aeq.vector == vector);
        !of_aeq && self.irq.set_itr(vector, itr_ns)
    }

    /// The next vector to raise; each marked one comes up once.
    pub fn poll_interrupt(&mut self, now: Instant) -> Option<MsixVector> {
        let vector = self.irq.poll(now)?;
        trace::interrupt(vector);
        let ceqs = self.ceqs.iter_mut().chain([&mut self.commands]).flatten();
        for ceq in ceqs.filter(|ceq| ceq.vector == vector) {
            ceq.written_at_fire = ceq.written;
        }
        Some(vector)
    }

    /// When a held-back vector may fire.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.irq.next_deadline()
    }
}

#[cfg(test)]
mod tests;
