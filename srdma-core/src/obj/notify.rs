//! From a completion to a CEQE: arming, acknowledging and moderating one CQ.  [E810 3.11, 4]
//!
//! ```text
//! published ─meets the arm─► held ─┬─ last CEQE taken, and moderation is over ──► CEQE, vector
//!                                  └─ else: waits for that, for more, or for time
//! ```
//!
//! A CQ has at most one CEQE that the driver has not taken. CQ_ACK says that it was taken, and so
//! does enabling the vector after its queues were drained.
//!
//! Moderation delays an event until `count` completions met the arm or `period_ns` passed since the
//! first of them; solicited completions and errors do not wait. It never cancels an event.
//!
//! What this does *not* do: write CQEs (see `cq.rs`), or moderate vectors (see `hca/msix.rs`).

use super::arm::{ArmState, Armed, Kind};
use crate::hca::events::Events;
use crate::hw::Dialect;
use crate::hw::dialect::ArmRequest;
use crate::num::CeqId;
use crate::time::Instant;

/// How long an event may be put off.                                    [events 1.9]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moderation {
    /// Completions that make the event due.
    pub count: u16,
    /// Time that makes it due; 0 is no moderation.
    pub period_ns: u32,
}

/// The event side of a CQ or of the CCQ.
#[derive(Debug)]
pub(crate) struct Notifier {
    arm: ArmState,
    ceq: Option<CeqId>,
    cookie: u64,
    /// Position of the last CEQE, which the driver may not have taken.
    ceqe: Option<u64>,
    moderation: Moderation,
    /// Completions that met the arm since it was set.
    met: u32,
    /// One of them does not wait.
    urgent: bool,
    due: Option<Instant>,
    /// A CEQE was written since the last `take_event`.
    wrote: bool,
}

impl Notifier {
    /// `cookie`: what CEQEs carry.
    pub(crate) fn new(dialect: Dialect, ceq: Option<CeqId>, cookie: u64) -> Self {
        Self {
            arm: ArmState::new(dialect),
            ceq,
            cookie,
            ceqe: None,
            moderation: Moderation::default(),
            met: 0,
            urgent: false,
            due: None,
            wrote: false,
        }
    }

    pub(crate) const fn ceq(&self) -> Option<CeqId> {
        self.ceq
    }

    pub(crate) const fn cookie(&self) -> u64 {
        self.cookie
    }

    /// What the next CEQE carries.
    pub(crate) const fn set_cookie(&mut self, cookie: u64) {
        self.cookie = cookie;
    }

    pub(crate) const fn armed(&self) -> Armed {
        self.arm.armed()
    }

    /// The CEQE that the driver has not taken.
    pub(crate) fn untaken(&self, events: &Events) -> Option<u64> {
        self.ceqe
            .filter(|position| *position >= events.taken(self.ceq.unwrap_or_default()))
    }

    /// True if an event waits for the one before to be taken.
    pub(crate) const fn is_gated(&self) -> bool {
        self.arm.is_held() && self.due.is_none()
    }

    /// True once after a CEQE was written: what it covers is told.
    pub(crate) const fn take_event(&mut self) -> bool {
        core::mem::replace(&mut self.wrote, false)
    }

    pub(crate) const fn moderate(&mut self, moderation: Moderation) {
        self.moderation = moderation;
    }

    /// When an event that moderation holds back becomes due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if a look at the arm word is owed for what was published.
    #[inline]
    pub(crate) fn owes_look(&self) -> bool {
        self.ceq.is_some() && self.arm.owes_look()
    }

    /// A completion was published. True if it met the arm: the caller then calls
    /// [`meet`](Self::meet).
    #[inline]
    pub(crate) fn published(&mut self, kind: Kind) -> bool {
        self.arm.published(kind)
    }

    /// Takes the last request. Between the last completion and its load was a full fence.
    pub(crate) fn look(
        &mut self,
        events: &mut Events,
        request: Option<ArmRequest>,
        backlog: Kind,
        now: Instant,
    ) {
        let met = self.arm.look(request, backlog);
        if met != Kind::Nothing {
            self.meet(events, met, now);
        }
    }

    /// The driver took the CEQE.                                       [E810 4.2]
    // rule: e810-29
    pub(crate) fn acked(&mut self, events: &mut Events, now: Instant) {
        if let (Some(position), Some(ceq)) = (self.ceqe.take(), self.ceq) {
            events.ack_ce(ceq, position);
        }
        self.attempt(events, now);
    }

    /// Writes the CEQE if an event is held and nothing holds it back any more.
    // rule: e810-21, event-37
    pub(crate) fn attempt(&mut self, events: &mut Events, now: Instant) {
        if !self.arm.is_held() {
            return;
        }
        let Some(ceq) = self.ceq else {
            self.arm.fire();
            return;
        };
        if !self.urgent && self.is_moderated(now) {
            let period = u64::from(self.moderation.period_ns);
            self.due.get_or_insert_with(|| now.after(period));
            return;
        }
        // Moderation is over for this event, also if it still has to wait for the one before.
        (self.urgent, self.due) = (true, None);
        // A queue of events that is full holds this one back; an E810's never is.
        if self.untaken(events).is_some() || !events.has_room(ceq) {
            return;
        }
        self.arm.fire();
        (self.met, self.urgent, self.wrote) = (0, false, true);
        self.ceqe = events.raise_ce(ceq, self.cookie);
    }

    fn is_moderated(&self, now: Instant) -> bool {
        let Moderation { count, period_ns } = self.moderation;
        period_ns > 0
            && (count == 0 || self.met < u32::from(count))
            && self.due.is_none_or(|due| due > now)
    }

    /// A completion met the arm.
    pub(crate) fn meet(&mut self, events: &mut Events, kind: Kind, now: Instant) {
        self.met = self.met.saturating_add(1);
        self.urgent |= kind == Kind::Solicited;
        self.attempt(events, now);
    }
}
