//! Completion queues: publishing CQEs, and the events they make.        [E810 3, 4]
//!
//! ```text
//! post ──► CqProducer (ring in memory) ──► Notifier (armed?) ──► Events (CEQ, vector)
//!   │ full
//!   └────► AE 0x0203 once, the CQ stands still, its QPs fail            [E810 3.6]
//!
//! one pass:   arm, ack … (doorbells) ── post … ── settle ── interrupts
//! ```
//!
//! `settle` closes a pass: it looks at the arm words of CQs that got completions nobody had asked
//! for when they were written. Without it an arm that overtakes its doorbell could be lost; see
//! `arm.rs`. It costs one fence a pass, and one load for each such CQ.
//!
//! The CCQ is a CQ like others for arming and acknowledging, with id 0.
//!
//! What this does *not* do: decide when a WQE is complete (the QPs do).

use super::arm::{ArmModel, Armed, Kind};
use super::notify::Notifier;
use crate::hca::events::Events;
use crate::hw::cqe::CqeWords;
use crate::hw::dialect::ArmRequest;
use crate::hw::{CqeInfo, Polarity};
use crate::mem::HostWords;
use crate::num::{CeqId, CqId};
use crate::ring::{CqProducer, RingFault};
use crate::time::Instant;
use crate::trace;

mod table;

pub use table::CqTable;

/// The CQ of the control queue.                                         [E810 1.7]
pub const CCQ: CqId = CqId(0);

/// A completion found no place: the CQ is in error, and so is whoever needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("completion queue overran")]
pub struct Overrun;

/// One completion queue.
#[derive(Debug)]
pub struct Cq {
    id: CqId,
    producer: CqProducer,
    notify: Notifier,
    check_overflow: bool,
    wide: bool,
    timestamps: bool,
    /// Completions without an extension are written as their words.
    plain: bool,
    error: bool,
    /// Work queues that complete here.
    users: u32,
    /// Slots written, up to the newest solicited entry, and up to the last event.
    written: u64,
    solicited: u64,
    covered: u64,
    /// In which lists of the table it is.
    listed: Listed,
}

/// Whom somebody must come back to; see [`CqTable`].
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    owing: bool,
    timed: bool,
    gated: bool,
}

/// What a CQ is created with.
#[derive(Debug)]
pub struct CqSpec {
    /// The id, chosen by the driver half.
    pub id: CqId,
    /// Writes its ring.
    pub producer: CqProducer,
    /// The CEQ that hears of completions.
    pub ceq: Option<CeqId>,
    /// What CEQEs and AEQEs carry.
    pub cookie: u64,
    /// An overrun is an error; else old entries are overwritten.
    pub check_overflow: bool,
    /// 64-byte slots.
    pub wide: bool,
    /// Completions say when they were written.
    pub timestamps: bool,
}

impl Cq {
    /// A CQ that is not armed.
    #[must_use]
    pub fn new(spec: CqSpec) -> Self {
        let dialect = spec.producer.shadow().dialect();
        Self {
            plain: spec.producer.is_plain() && !spec.timestamps,
            id: spec.id,
            producer: spec.producer,
            notify: Notifier::new(dialect, spec.ceq, spec.cookie),
            check_overflow: spec.check_overflow,
            wide: spec.wide,
            timestamps: spec.timestamps,
            error: false,
            users: 0,
            written: 0,
            solicited: 0,
            covered: 0,
            listed: Listed::default(),
        }
    }

    /// The id.
    #[must_use]
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// True after an overrun: entries there can be polled, and nothing else happens.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.error
    }

    /// Work queues that complete here.
    #[must_use]
    pub const fn users(&self) -> u32 {
        self.users
    }

    /// True with 64-byte slots.
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// What the next event waits for.
    #[must_use]
    pub const fn armed(&self) -> Armed {
        self.notify.armed()
    }

    /// Goes on in another buffer; arming carries over.                 [E810 3.8]
    pub fn switch(&mut self, words: HostWords, size: u32) -> Result<(), RingFault> {
        self.producer.switch(words, size)
    }

    /// Writes a completion without an extension as its words, where that is all there is to do;
    /// false if it was not written.
    #[inline]
    fn publish_words(&mut self, words: &CqeWords) -> bool {
        let done = self.producer.push_words(words, None).is_ok();
        self.written += u64::from(done);
        done
    }

    /// Publishes one completion; false if there is no place for it.
    fn publish(&mut self, cqe: &CqeInfo, now: Instant) -> bool {
        if self.timestamps {
            let stamped = CqeInfo {
                timestamp: Some(now.0),
                ..*cqe
            };
            return self.write(&stamped);
        }
        self.write(cqe)
    }

    fn write(&mut self, cqe: &CqeInfo) -> bool {
        let before = self.producer.index();
        let laps = self.producer.laps();
        let mut pushed = self.producer.push(cqe).is_ok();
        if !pushed && !self.check_overflow {
            self.producer.overwrite();
            pushed = self.producer.push(cqe).is_ok();
        }
        let (size, after) = (self.producer.size(), self.producer.index());
        let slots = if after < before {
            after + size - before
        } else {
            after - before
        };
        self.written += u64::from(slots);
        if pushed && trace::on() {
            let [lap, _] = laps;
            let dialect = self.producer.shadow().dialect();
            match dialect.slots() {
                Some(form) => trace::slot(dialect, self.id, before, &form.image(cqe, lap)),
                None => trace_cqe(self.id, before, laps, cqe),
            }
        }
        pushed
    }

    /// Looks at the arm word, and by the model at what is in the ring.
    fn look(&mut self, events: &mut Events, model: ArmModel, now: Instant) {
        let request = self.producer.request(self.id.0);
        let backlog = match &request {
            Some(request) if model == ArmModel::Compare => self.backlog(request),
            _ => Kind::Nothing,
        };
        self.notify.look(events, request, backlog, now);
    }

    /// The strongest completion that the driver has not read and no event covered.
    fn backlog(&mut self, request: &ArmRequest) -> Kind {
        let said = self.producer.written_since(request);
        let unread = said.unwrap_or_else(|| self.producer.unread());
        let visible = u64::from(unread).min(self.written - self.covered);
        match visible {
            0 => Kind::Nothing,
            _ if self.written - self.solicited < visible => Kind::Solicited,
            _ => Kind::Plain,
        }
    }
}

/// Shows who looks on a completion as it stands in memory.
#[cold]
fn trace_cqe(cq: CqId, slot: u32, [lap, ext_lap]: [Polarity; 2], cqe: &CqeInfo) {
    let stamped = |words: CqeWords, lap: Polarity| {
        let [a, b, c, header] = words;
        [a, b, c, lap.stamp(header)]
    };
    let ext = cqe.extended().then(|| stamped(cqe.encode_ext(), ext_lap));
    trace::cqe(cq, slot, &stamped(cqe.encode(), lap), ext.as_ref());
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod dialect_tests;
