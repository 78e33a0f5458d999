//! All completion queues of the device, and the lists of those that somebody must come back to.
//!
//! ```text
//! owing   got completions that met no arm        look at the arm word when the pass closes
//! timed   moderation holds an event back         when it is due
//! gated   the event before was not taken yet     when the pass closes
//! ```
//!
//! Each CQ is in each list at most once, and the lists have room for all, so nothing allocates.

use super::super::arm::{ArmModel, Kind};
use super::super::notify::{Moderation, Notifier};
use super::super::table::{Slot, Table, TableFault};
use super::{CCQ, Cq, Overrun};
use crate::hca::events::Events;
use crate::hw::CqeInfo;
use crate::hw::cqp::CqpCompletion;
use crate::hw::dialect::{Dialect, mlx5};
use crate::limits::MAX_CQ;
use crate::num::{CeqId, CqId};
use crate::ring::CqProducer;
use crate::sync::{Ordering, fence};
use crate::time::Instant;
use crate::trace;

/// The control queue's completion side.
#[derive(Debug)]
struct Ccq {
    producer: CqProducer,
    notify: Notifier,
    /// Completed since the last event, a bit each by their place modulo 32, where events say so.
    done: Option<u32>,
}

impl Ccq {
    /// An event that was written told of all that completed before.
    fn tell(&mut self) {
        if self.notify.take_event()
            && let Some(done) = &mut self.done
        {
            *done = 0;
        }
    }
}

/// All completion queues of the device.
#[derive(Debug)]
pub struct CqTable {
    table: Table<Cq>,
    ccq: Option<Ccq>,
    model: ArmModel,
    /// CQs whose arm word is looked at when the pass closes; each is here at most once.
    owing: Vec<Slot>,
    /// CQs with an event that moderation holds back; each is here at most once.
    timed: Vec<Slot>,
    /// CQs with an event that waits for the one before; each is here at most once.
    gated: Vec<Slot>,
    cqes: u64,
    /// CQs that overran and whose queue pairs have not been told.
    overran: Vec<Slot>,
    overruns: u64,
}

impl CqTable {
    /// Without CQs.
    #[must_use]
    pub const fn new(model: ArmModel) -> Self {
        Self {
            table: Table::new(MAX_CQ),
            ccq: None,
            model,
            owing: Vec::new(),
            timed: Vec::new(),
            gated: Vec::new(),
            cqes: 0,
            overran: Vec::new(),
            overruns: 0,
        }
    }

    /// The slot of a CQ; the CCQ has none.
    #[must_use]
    pub fn slot(&self, id: CqId) -> Option<Slot> {
        self.table.find(id.0)
    }

    /// The CQ of a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Cq> {
        self.table.get(slot)
    }

    /// The CQ of a slot, to change it.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Cq> {
        self.table.get_mut(slot)
    }

    /// Completions written, and CQs that overran.
    #[must_use]
    pub const fn stats(&self) -> (u64, u64) {
        (self.cqes, self.overruns)
    }

    // ---- life --------------------------------------------------------------------------

    /// Enters a CQ. The caller has attached it to its CEQ.
    pub fn insert(&mut self, cq: Cq) -> Result<Slot, TableFault> {
        let slot = self.table.insert(cq.id.0, cq)?;
        // So that the data path never allocates: each CQ can be in every list.
        let count = self.table.len();
        for list in self.lists() {
            list.reserve(count.saturating_sub(list.len()));
        }
        Ok(slot)
    }

    /// The lists of CQs that somebody must come back to; each CQ is in each at most once.
    const fn lists(&mut self) -> [&mut Vec<Slot>; 4] {
        [
            &mut self.owing,
            &mut self.timed,
            &mut self.gated,
            &mut self.overran,
        ]
    }

    /// Takes a CQ without users out, and off its CEQ. From here on no CEQE names it.
    // rule: e810-22
    pub fn remove(&mut self, events: &mut Events, slot: Slot) -> Option<Cq> {
        let number = self.table.number_of(slot)?;
        let cq = self.table.remove(number)?;
        for list in self.lists() {
            list.retain(|other| *other != slot);
        }
        if let Some(ceq) = cq.notify.ceq() {
            let untaken = cq.notify.untaken(events);
            events.detach_cq(ceq, untaken);
        }
        events.forget_cq(cq.id);
        Some(cq)
    }

    /// One more work queue completes here; false if there is no such CQ.
    pub fn add_user(&mut self, slot: Slot) -> bool {
        let Some(cq) = self.table.get_mut(slot) else {
            return false;
        };
        cq.users = cq.users.saturating_add(1);
        true
    }

    /// A work queue completes here no longer.
    pub fn remove_user(&mut self, slot: Slot) {
        if let Some(cq) = self.table.get_mut(slot) {
            assert!(
                cq.users > 0,
                "a completion queue loses no more users than it had"
            );
            cq.users -= 1;
        }
    }

    /// Sets how long events may be put off; false if there is no such CQ.
    pub fn moderate(&mut self, id: CqId, moderation: Moderation) -> bool {
        let Some(cq) = self.table.by_number_mut(id.0) else {
            return false;
        };
        cq.notify.moderate(moderation);
        true
    }

    // ---- completions -------------------------------------------------------------------

    /// Publishes one completion, basic or extended, and raises the event if the CQ is armed for it.
    ///
    /// On `Overrun` the completion is lost; the first one raises AE 0x0203. The caller moves its QP
    /// to error.
    pub fn post(
        &mut self,
        events: &mut Events,
        slot: Slot,
        cqe: &CqeInfo,
        now: Instant,
    ) -> Result<(), Overrun> {
        let cq = self.table.get_mut(slot).ok_or(Overrun)?;
        if cq.error {
            return Err(Overrun);
        }
        if !cq.publish(cqe, now) {
            // rule: e810-25
            // rule: roce-140, event-39, event-42
            self.overflow(events, slot);
            return Err(Overrun);
        }
        self.published(events, slot, cqe.solicited || cqe.error.is_some(), now);
        Ok(())
    }

    /// As [`post`](Self::post), of a completion that `make` describes: where its fields are known
    /// to the compiler, an entry without extension is written as a few shifts.
    #[allow(
        clippy::inline_always,
        reason = "it is there for what the compiler knows of `make`"
    )]
    #[inline(always)]
    pub(crate) fn post_with(
        &mut self,
        events: &mut Events,
        slot: Slot,
        now: Instant,
        make: impl Fn() -> CqeInfo,
    ) -> Result<(), Overrun> {
        let cqe = make();
        if let Some(cq) = self.table.get_mut(slot)
            && cq.plain
            && !cq.error
            && !cqe.extended()
            && !trace::on()
            && cq.publish_words(&cqe.encode())
        {
            self.published(events, slot, cqe.solicited || cqe.error.is_some(), now);
            return Ok(());
        }
        self.post(events, slot, &make(), now)
    }

    /// What follows a completion: is an event due, or a look at the arm word?
    #[inline]
    fn published(&mut self, events: &mut Events, slot: Slot, solicited: bool, now: Instant) {
        self.cqes += 1;
        let Some(cq) = self.table.get_mut(slot) else {
            return;
        };
        let kind = if solicited {
            cq.solicited = cq.written;
            Kind::Solicited
        } else {
            Kind::Plain
        };
        if cq.notify.published(kind) {
            self.meet(events, slot, kind, now);
        } else if cq.notify.owes_look() && !cq.listed.owing {
            cq.listed.owing = true;
            self.owing.push(slot);
        }
    }

    /// A completion met the arm of its CQ.
    #[inline(never)]
    fn meet(&mut self, events: &mut Events, slot: Slot, kind: Kind, now: Instant) {
        if let Some(cq) = self.table.get_mut(slot) {
            cq.notify.meet(events, kind, now);
            self.follow(slot);
        }
    }

    /// Puts a CQ into the state after an overrun; false if it is there already, or gone.
    pub fn overflow(&mut self, events: &mut Events, slot: Slot) -> bool {
        let Some(cq) = self.table.get_mut(slot) else {
            return false;
        };
        if cq.error {
            return false;
        }
        cq.error = true;
        self.overruns += 1;
        self.overran.push(slot);
        events.raise_cq_error(cq.id, cq.notify.cookie());
        true
    }

    /// A CQ that overran since the last call: every queue pair that completes there is lost.
    pub fn take_overrun(&mut self) -> Option<Slot> {
        self.overran.pop()
    }

    /// Closes a pass: before interrupts are polled, after the doorbells of the pass.
    // rule: e810-26, event-19, event-22
    pub fn settle(&mut self, events: &mut Events, now: Instant) {
        let ccq_owes = self.ccq.as_ref().is_some_and(|ccq| ccq.notify.owes_look());
        if !self.owing.is_empty() || ccq_owes {
            fence(Ordering::SeqCst);
            self.look_ccq(events, now);
            while let Some(slot) = self.owing.pop() {
                let Some(cq) = self.table.get_mut(slot) else {
                    continue;
                };
                cq.listed.owing = false;
                cq.look(events, self.model, now);
                self.follow(slot);
            }
        }
        if let Some(ccq) = &mut self.ccq {
            ccq.notify.attempt(events, now);
            ccq.tell();
        }
        let mut index = 0;
        while let Some(slot) = self.gated.get(index).copied() {
            let Some(cq) = self.table.get_mut(slot) else {
                break;
            };
            cq.notify.attempt(events, now);
            if cq.notify.is_gated() {
                index += 1;
                continue;
            }
            cq.listed.gated = false;
            self.gated.swap_remove(index);
            self.follow(slot);
        }
    }

    /// Keeps the lists of CQs that somebody must come back to.
    fn follow(&mut self, slot: Slot) {
        let Some(cq) = self.table.get_mut(slot) else {
            return;
        };
        if cq.notify.take_event() {
            cq.covered = cq.written;
        }
        if cq.notify.owes_look() && !cq.listed.owing {
            cq.listed.owing = true;
            self.owing.push(slot);
        }
        if cq.notify.due().is_some() && !cq.listed.timed {
            cq.listed.timed = true;
            self.timed.push(slot);
        }
        if cq.notify.is_gated() && !cq.listed.gated {
            cq.listed.gated = true;
            self.gated.push(slot);
        }
    }

    // ---- doorbells ---------------------------------------------------------------------

    /// The doorbell of an arm: a hint to look at the arm word. True if the model reports missed
    /// completions and the ring holds some.
    pub fn arm(&mut self, events: &mut Events, id: CqId, now: Instant) -> bool {
        fence(Ordering::SeqCst);
        if id == CCQ {
            self.look_ccq(events, now);
            return false;
        }
        let Some(slot) = self.slot(id) else {
            return false;
        };
        let Some(cq) = self.table.get_mut(slot) else {
            return false;
        };
        cq.look(events, self.model, now);
        let missed = self.model == ArmModel::Report && cq.producer.unread() > 0;
        self.follow(slot);
        missed
    }

    /// The driver took the CEQE of this CQ (CQ_ACK); an event that waited for that fires.
    pub fn ack(&mut self, events: &mut Events, id: CqId, now: Instant) {
        if id == CCQ {
            if let Some(ccq) = &mut self.ccq {
                ccq.notify.acked(events, now);
                ccq.tell();
            }
            return;
        }
        let Some(slot) = self.slot(id) else { return };
        if let Some(cq) = self.table.get_mut(slot) {
            cq.notify.acked(events, now);
            self.follow(slot);
        }
    }

    // ---- time --------------------------------------------------------------------------

    /// When the next event that moderation holds back becomes due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timed
            .iter()
            .filter_map(|slot| self.table.get(*slot)?.notify.due())
            .min()
    }

    /// Raises the events that have become due.
    pub fn handle_timeout(&mut self, events: &mut Events, now: Instant) {
        let mut index = 0;
        while let Some(slot) = self.timed.get(index).copied() {
            let Some(cq) = self.table.get_mut(slot) else {
                break;
            };
            cq.notify.attempt(events, now);
            if cq.notify.due().is_some() {
                index += 1;
                continue;
            }
            cq.listed.timed = false;
            self.timed.swap_remove(index);
            self.follow(slot);
        }
    }

    // ---- CCQ ---------------------------------------------------------------------------

    fn look_ccq(&mut self, events: &mut Events, now: Instant) {
        if let Some(ccq) = &mut self.ccq {
            let request = ccq.producer.request(CCQ.0);
            ccq.notify.look(events, request, Kind::Nothing, now);
            ccq.tell();
        }
    }

    /// Puts the CCQ in place; false if there is one. Its ring is an E810's in every dialect; where
    /// its events go is not.
    pub fn create_ccq(&mut self, dialect: Dialect, producer: CqProducer, cookie: u64) -> bool {
        if self.ccq.is_some() {
            return false;
        }
        let (ceq, done) = match dialect {
            Dialect::Mlx5 => (mlx5::COMMANDS, Some(0)),
            Dialect::E810 | Dialect::Hns => (CeqId(0), None),
        };
        let notify = Notifier::new(Dialect::E810, Some(ceq), cookie);
        self.ccq = Some(Ccq {
            producer,
            notify,
            done,
        });
        true
    }

    /// Takes the CCQ away; false if there is none.
    pub fn destroy_ccq(&mut self, events: &mut Events) -> bool {
        let Some(ccq) = self.ccq.take() else {
            return false;
        };
        let untaken = ccq.notify.untaken(events);
        events.retire_ccq(ccq.notify.ceq().unwrap_or_default(), untaken);
        true
    }

    /// True if a control command can complete: the CCQ has room, or is not there yet.
    pub fn ccq_has_room(&mut self) -> bool {
        self.ccq.as_mut().is_none_or(|ccq| ccq.producer.free() > 0)
    }

    /// Completes a control command; false if there is no CCQ, or no room in it.
    pub fn post_ccq(
        &mut self,
        events: &mut Events,
        completion: &CqpCompletion,
        now: Instant,
    ) -> bool {
        let Some(ccq) = &mut self.ccq else {
            return false;
        };
        let (slot, [lap, _]) = (ccq.producer.index(), ccq.producer.laps());
        if ccq.producer.push_control(completion).is_err() {
            return false;
        }
        if trace::on() {
            let [a, b, c, header] = completion.encode();
            trace::cqe(CCQ, slot, &[a, b, c, lap.stamp(header)], None);
        }
        if let Some(done) = &mut ccq.done {
            *done |= 1 << (completion.wqe_index % 32);
            ccq.notify.set_cookie((*done).into());
        }
        if ccq.notify.published(Kind::Plain) {
            ccq.notify.meet(events, Kind::Plain, now);
        }
        ccq.tell();
        true
    }
}
