//! The plain acknowledgement: one at most is due, now or in a while.
//!
//! ```text
//! asked for          ─► due now: leaves with what is sent next, or alone
//! not asked for      ─► due 1 ms after the first such message, if no answer left before
//! ```

use crate::time::Instant;

/// How long an acknowledgement waits that nobody asked for: until then the peer's next question
/// mostly comes, and what waits costs a timer a QP, not a packet a message.
pub(crate) const ACK_LATE_NS: u64 = 1_000_000;

/// What is owed to the peer.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    now: bool,
    by: Option<Instant>,
}

impl Owed {
    /// The peer asked.
    pub(super) const fn owe(&mut self) {
        self.now = true;
    }

    /// Something came whole that did not ask.
    // rule: ack-1
    pub(super) const fn owe_late(&mut self, now: Instant) {
        if self.by.is_none() {
            self.by = Some(now.after(ACK_LATE_NS));
        }
    }

    /// It has to leave.
    pub(super) const fn is_due(&self) -> bool {
        self.now
    }

    /// When it falls due.
    pub(crate) const fn by(&self) -> Option<Instant> {
        self.by
    }

    /// True if its time has come; it does not come a second time.
    pub(crate) fn take_late(&mut self, now: Instant) -> bool {
        self.by.take_if(|at| *at <= now).is_some()
    }

    /// All that came is acknowledged.
    pub(super) const fn settle(&mut self) {
        self.now = false;
        self.by = None;
    }
}
