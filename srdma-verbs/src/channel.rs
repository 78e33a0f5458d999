//! Completion channels: sleep until one of several completion queues has something.
//!
//! ```text
//! cq.arm(false) ─► completion ─► one event ─► channel ─► wait() / try_get() / fd readable
//!                                              │
//!                                              ▼ CompEvent: acknowledged when dropped
//! poll until empty, arm again, poll once more                      [events 1.5, 1.6]
//! ```
//!
//! An arm gives at most one event. What is in the queue already when it is armed gives none: look
//! once more after arming, before you sleep.

use crate::cq::Cq;
use crate::driver::Driver;
use crate::driver::fifo::Fifo;
use crate::driver::shared::CqShared;
use crate::error::{Reason, Result};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

/// Where the events of completion queues arrive.
#[derive(Clone, Debug)]
pub struct CompChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

#[derive(Debug)]
pub(crate) struct ChannelInner {
    pub(crate) fifo: Fifo<Arc<CqShared>>,
    pub(crate) cqs: AtomicUsize,
    driver: Weak<Driver>,
}

impl ChannelInner {
    /// Serves the device until there is a record, if nobody else does: a packet then wakes the
    /// program itself, and not a thread that wakes the program.
    fn park(&self, limit: Option<Duration>) {
        if self.fifo.is_empty()
            && let Some(driver) = self.driver.upgrade()
        {
            driver.engine.park(limit, || !self.fifo.is_empty());
        }
    }

    /// The program sleeps on the descriptor, where it cannot serve the device.
    pub(crate) fn sleeps_elsewhere(&self) -> bool {
        self.fifo.has_fd()
    }
}

/// "This completion queue has something new." Acknowledged when dropped.
#[derive(Debug)]
pub struct CompEvent {
    cq: Cq,
    deferred: bool,
}

impl CompChannel {
    pub(crate) fn create(driver: &Arc<Driver>) -> Self {
        Self {
            inner: Arc::new(ChannelInner {
                fifo: Fifo::default(),
                cqs: AtomicUsize::new(0),
                driver: Arc::downgrade(driver),
            }),
        }
    }

    /// The next event; sleeps until there is one.
    // rule: event-1, event-20, event-23, event-24
    #[must_use]
    pub fn wait(&self) -> CompEvent {
        loop {
            self.inner.park(None);
            if let Some(event) = self.inner.fifo.pop_wait(accept) {
                return event.fetched();
            }
        }
    }

    /// The next event, if one comes within `limit`.
    #[must_use]
    pub fn wait_for(&self, limit: Duration) -> Option<CompEvent> {
        let start = std::time::Instant::now();
        self.inner.park(Some(limit));
        self.inner
            .fifo
            .pop_within(limit.saturating_sub(start.elapsed()), accept)
            .flatten()
            .map(CompEvent::fetched)
    }

    /// The next event, if one is there; [`Reason::WouldBlock`] if not.
    // rule: event-2
    pub fn try_get(&self) -> Result<CompEvent> {
        loop {
            match self.inner.fifo.pop(accept) {
                Some(Some(event)) => return Ok(event.fetched()),
                Some(None) => {}
                None => return Err(Reason::WouldBlock.of("get_cq_event")),
            }
        }
    }

    /// A descriptor that is readable while events are there; for `poll` and its kin, never read
    /// from.
    // rule: event-5
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.inner
            .fifo
            .fd()
            .map_err(|error| Reason::Io(error).of("comp_channel fd"))
    }

    /// Closes the channel; [`Reason::Busy`] while completion queues use it, and nothing happens.
    // rule: event-34
    pub fn destroy(self) -> Result<()> {
        if self.inner.cqs.load(Ordering::Acquire) != 0 {
            return Err(Reason::Busy.of("destroy_comp_channel"));
        }
        Ok(())
    }
}

/// Gives a record to the program: from here on the queue waits for an acknowledgement. `None` if
/// the completion queue is gone.
#[allow(
    clippy::needless_pass_by_value,
    reason = "the queue hands its record over"
)]
fn accept(record: Arc<CqShared>) -> Option<CompEvent> {
    let cq = record.upgrade()?;
    record.owed.give();
    Some(CompEvent {
        cq,
        deferred: false,
    })
}

impl CompEvent {
    /// What the E810's library does when the program fetched an event; not under the queue's lock,
    /// since it takes that of the completion queue.                   [E810 3.10]
    fn fetched(self) -> Self {
        self.cq.on_event_fetched();
        self
    }

    /// The completion queue.
    #[must_use]
    pub const fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Keeps the acknowledgement owed; give it later with [`Cq::ack_events`].
    #[must_use]
    pub fn defer_ack(mut self) -> Cq {
        self.deferred = true;
        self.cq.clone()
    }
}

impl Drop for CompEvent {
    fn drop(&mut self) {
        if !self.deferred {
            self.cq.ack_events(1);
        }
    }
}
