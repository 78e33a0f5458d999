//! The plain acknowledgement: one at most is due, now or in a while.
//!
//! ```text
//! asked for          ─► due now: leaves with what is sent next, or alone
//! not asked for      ─► due 1 ms after the first such message, if no answer left before
//!
//! between our own kind, with a message of one packet ─► in that packet
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
    /// The last one went along with a request.
    rode: bool,
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
    pub(crate) const fn is_due(&self) -> bool {
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
        *self = Self {
            now: false,
            by: None,
            rode: false,
        };
    }

    /// All that came is acknowledged in a request that stands in the batch.
    pub(crate) const fn ride(&mut self) {
        self.settle();
        self.rode = true;
    }

    /// A request did not leave. True if the acknowledgement has to be sent all the same.
    pub(crate) const fn on_request_unsent(&mut self) -> bool {
        self.now |= self.rode;
        self.rode = false;
        self.now
    }
}
