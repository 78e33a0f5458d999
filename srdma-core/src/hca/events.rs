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
//! The AEQ is refilled by count: what finds no room waits here, and what finds no room here either
//! is lost, which the next entry says. Not so the end of a queue pair: it happens once, and is told
//! when there is room again, however late.                              [E810 5.2]
//!
//! What this does *not* do: decide which completion makes an event (see `obj/cq.rs`), or write to
//! an eventfd.

use super::msix::IrqSet;
use crate::hw::doorbell::DynCtl;
use crate::hw::{AeCode, AeSource, Aeqe, Ceqe, HwQpState};
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

/// One completion event queue.
#[derive(Debug)]
struct Ceq {
    producer: Producer<Ceqe>,
    size: u32,
    vector: MsixVector,
    /// CQs that may write here, the CCQ included.
    cqs: u32,
    /// Entries written so far, how many of them the driver took, and how many there were when the
    /// vector fired last.
    written: u64,
    taken: u64,
    written_at_fire: u64,
    /// Entries of CQs that are gone, not taken yet.
    stale: VecDeque<u64>,
}

impl Ceq {
    /// The driver took the first `taken` entries.
    fn take(&mut self, taken: u64) {
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
}

/// The asynchronous event queue and its credits.                       [E810 5.2]
#[derive(Debug)]
struct Aeq {
    producer: Producer<Aeqe>,
    vector: MsixVector,
    size: u32,
}

impl Aeq {
    fn has_unread(&self) -> bool {
        self.producer.free() < self.size
    }
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
    ceqs: Vec<Option<Ceq>>,
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
        Self {
            ceqs: Vec::new(),
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
        let index = usize::from(id.0);
        if index >= MAX_CEQS {
            return Err(EventFault::NotFound);
        }
        if usize::from(vector.0) >= self.irq.count() {
            return Err(EventFault::NoVector);
        }
        if self.ceqs.len() <= index {
            self.ceqs.resize_with(index + 1, || None);
        }
        let place = self.ceqs.get_mut(index).ok_or(EventFault::NotFound)?;
        if place.is_some() {
            return Err(EventFault::Exists);
        }
        let producer = Producer::new(words, size, size)?;
        let cqs = u32::from(id == CeqId(0));
        *place = Some(Ceq {
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
        let place = self
            .ceqs
            .get_mut(usize::from(id.0))
            .ok_or(EventFault::NotFound)?;
        let ceq = place.as_ref().ok_or(EventFault::NotFound)?;
        if ceq.cqs > u32::from(id == CeqId(0)) {
            return Err(EventFault::InUse);
        }
        *place = None;
        Ok(())
    }

    /// Reserves room for the events of one more CQ.
    pub fn attach_cq(&mut self, id: CeqId) -> Result<(), EventFault> {
        let ceq = self.ceq_mut(id).ok_or(EventFault::NotFound)?;
        let stale = u32::try_from(ceq.stale.len()).unwrap_or(u32::MAX);
        if ceq.cqs.saturating_add(stale) >= ceq.size {
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
    pub fn retire_ccq(&mut self, untaken: Option<u64>) {
        self.detach_cq(CeqId(0), untaken);
        if let Some(ceq) = self.ceq_mut(CeqId(0)) {
            ceq.cqs += 1;
        }
    }

    /// Writes a CEQE, marks the vector, and says which entry it was. `None`: no such CEQ.
    pub fn raise_ce(&mut self, id: CeqId, cookie: u64) -> Option<u64> {
        let ceq = self.ceqs.get_mut(usize::from(id.0))?.as_mut()?;
        // Room for every CQ was reserved, so a full ring would be our own bug.
        let lap = ceq.producer.polarity();
        let index = ceq.producer.try_push(Ceqe { cookie }).ok()?;
        trace::ceqe(id, index, lap.stamp(Ceqe { cookie }.encode()));
        let position = ceq.written;
        ceq.written += 1;
        self.stats.ceqes += 1;
        self.irq.mark(ceq.vector);
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
        let ceq = self.ceqs.get(usize::from(id.0)).and_then(Option::as_ref);
        ceq.map_or(u64::MAX, |ceq| ceq.taken)
    }

    fn ceq_mut(&mut self, id: CeqId) -> Option<&mut Ceq> {
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
        let producer = Producer::new(words, size, size)?;
        self.aeq = Some(Aeq {
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
            let lap = aeq.producer.polarity();
            let Ok(index) = aeq.producer.try_push(*event) else {
                return;
            };
            let [context, word] = event.encode();
            trace::aeqe(index, [context, lap.stamp(word)]);
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
        let mut has_work = self
            .aeq
            .as_ref()
            .is_some_and(|aeq| aeq.vector == vector && aeq.has_unread());
        for ceq in self
            .ceqs
            .iter_mut()
            .flatten()
            .filter(|ceq| ceq.vector == vector)
        {
            ceq.take(ceq.written_at_fire);
            has_work |= ceq.taken < ceq.written;
        }
        self.irq.enable(vector, has_work);
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
        for ceq in self
            .ceqs
            .iter_mut()
            .flatten()
            .filter(|ceq| ceq.vector == vector)
        {
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
