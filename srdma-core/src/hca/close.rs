//! A peer that closes while work is outstanding: the owner gets a moment to stop the queue pair.
//!
//! ```text
//! bad close ─► AE BAD_LLP_CLOSE, 100 ms ─┬─ owner moves it to ERR or RESET ─► nothing more
//!                                        └─ time is over ─► AE RESET_SENT, ERR, flushed
//! ```
//!
//! On an E810 it is the driver that keeps this time.                  [E810 5.4, 8.6.7]

use super::Hca;
use crate::hw::FlushCode;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::num::Qpn;
use crate::obj::table::Slot;
use crate::qp::attr::QpState;
use crate::qp::flush::Cause;
use crate::time::Instant;
use std::collections::VecDeque;

/// How long the owner has.
pub const CLOSE_NS: u64 = 100_000_000;

/// Queue pairs whose time runs, each once, the first to be over in front.
#[derive(Debug, Default)]
pub(crate) struct Closing(VecDeque<(Instant, Slot)>);

impl Closing {
    /// Starts the time of a queue pair; false if it runs already.
    fn start(&mut self, slot: Slot, now: Instant) -> bool {
        if self.0.iter().any(|(_, other)| *other == slot) {
            return false;
        }
        self.0.push_back((now.after(CLOSE_NS), slot));
        true
    }

    /// The owner has stopped it.
    pub(crate) fn cancel(&mut self, slot: Slot) {
        if !self.0.is_empty() {
            self.0.retain(|(_, other)| *other != slot);
        }
    }

    /// When the next one is over.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.front().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<Slot> {
        self.0
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, slot)| slot)
    }
}

impl Hca {
    /// The peer of a queue pair has closed while work is outstanding; false if there is no such
    /// queue pair. Told once while the time runs.
    // rule: irq-3
    pub fn bad_close(&mut self, now: Instant, qpn: Qpn) -> bool {
        let Some(slot) = self.qps.find(qpn.value()) else {
            return false;
        };
        let Some(qp) = self.qps.get_mut(slot) else {
            return false;
        };
        let stopped = matches!(qp.state, QpState::Err | QpState::Reset);
        if !stopped && self.dev.closing.start(slot, now) {
            let code = AeCode::RDMAP_ROE_BAD_LLP_CLOSE;
            qp.raise(&mut self.dev.ctx(now), code, AeSource::NONE, 0);
        }
        true
    }

    /// Ends the queue pairs whose time is over.
    pub(super) fn end_closing(&mut self, now: Instant) {
        while let Some(slot) = self.dev.closing.pop(now) {
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            let cause = Cause::new(FlushCode::GENERAL, AeCode::RESET_SENT);
            qp.rq_error(&mut self.dev.ctx(now), cause, AeSource::NONE);
            qp.set_timer(&mut self.timers);
        }
    }
}
