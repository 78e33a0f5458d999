//! Asynchronous events: what no completion can tell.
//!
//! ```text
//! AEQE ── driver::irq ──► AsyncRecord ── Fifo ──► AsyncEvent (acknowledged when dropped)
//! ```
//!
//! An error that a completion reports is not reported here as well.     [events 2.4]
//! What this does *not* do: decide which queue entries become events (see `driver::irq`).

use crate::context::Context;
use crate::cq::Cq;
use crate::driver::shared::{CqShared, QpShared, SrqShared};
use crate::error::{Reason, Result};
use crate::qp::Qp;
use crate::qp_open::OpenShared;
use crate::srq::Srq;
use core::time::Duration;
use srdma_core::num::{Qpn, SrqId};
use srdma_core::trace;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

crate::wc::verbs_enum! {
    /// What happened, with the numbers of verbs.                      [events 2.1]
    AsyncKind: u32 {
        /// A completion queue overflowed and is of no use any more.
        CqErr = 0,
        /// A queue pair broke down in a way that no completion can tell.
        QpFatal = 1,
        /// The peer sent a request that was invalid.
        QpReqErr = 2,
        /// The peer tried to reach memory that it may not.
        QpAccessErr = 3,
        /// The first packet came before the program said that the connection is up.
        CommEst = 4,
        /// The send queue has drained.
        SqDrained = 5,
        /// The device broke down.
        DeviceFatal = 8,
        /// The port carries packets again: its interface is up.
        PortActive = 9,
        /// The port carries packets no longer: its interface is down.
        PortErr = 10,
        /// A shared receive queue broke down.
        SrqErr = 14,
        /// A shared receive queue has fewer receives than its limit.
        SrqLimitReached = 15,
        /// A failed queue pair will take no more receives from its shared queue.
        QpLastWqeReached = 16,
        /// An address came to the GID table, or went.
        GidChange = 18,
    }
}

/// What an event is about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Element {
    /// A completion queue.
    Cq(Cq),
    /// A queue pair.
    Qp(Qp),
    /// A shared receive queue.
    Srq(Srq),
    /// A port, by its number.
    Port(u8),
    /// The whole device.
    Device,
}

/// Who an event is about, without keeping it alive.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Cq(Arc<CqShared>),
    Qp(Arc<QpShared>),
    /// One handle of an XRC target.
    Opened(Arc<OpenShared>),
    Srq(Arc<SrqShared>),
    Port(u8),
    Device,
}

#[derive(Clone, Debug)]
pub(crate) struct AsyncRecord {
    pub(crate) kind: AsyncKind,
    pub(crate) subject: Subject,
}

impl AsyncRecord {
    pub(crate) fn is_about_cq(&self, cookie: u64) -> bool {
        matches!(&self.subject, Subject::Cq(cq) if cq.cookie == cookie)
    }

    pub(crate) fn is_about_srq(&self, id: SrqId) -> bool {
        matches!(&self.subject, Subject::Srq(srq) if srq.id == id)
    }

    pub(crate) fn is_about_qp(&self, qpn: Qpn) -> bool {
        matches!(&self.subject, Subject::Qp(qp) if qp.qpn == qpn)
    }

    pub(crate) fn is_about_open(&self, handle: &Arc<OpenShared>) -> bool {
        matches!(&self.subject, Subject::Opened(open) if Arc::ptr_eq(open, handle))
    }

    pub(crate) fn is_last_wqe_of(&self, qpn: Qpn) -> bool {
        self.kind == AsyncKind::QpLastWqeReached && self.is_about_qp(qpn)
    }

    // rule: event-44, event-46
    fn accept(self) -> Option<AsyncEvent> {
        let element = match self.subject {
            Subject::Cq(cq) => {
                let alive = cq.upgrade()?;
                cq.owed_async.give();
                Element::Cq(alive)
            }
            Subject::Qp(qp) => {
                let alive = qp.upgrade()?;
                qp.owed.give();
                Element::Qp(alive)
            }
            Subject::Opened(open) => {
                let alive = open.upgrade()?;
                open.owed.give();
                Element::Qp(alive)
            }
            Subject::Srq(srq) => {
                let alive = srq.upgrade()?;
                srq.owed.give();
                Element::Srq(alive)
            }
            Subject::Port(port) => Element::Port(port),
            Subject::Device => Element::Device,
        };
        if trace::on() {
            trace::named(trace::Kind::ASYNC, 0, &format!("{:?}", self.kind));
        }
        Some(AsyncEvent {
            kind: self.kind,
            element,
            deferred: false,
        })
    }
}

/// An asynchronous event. Acknowledged when dropped.
#[derive(Debug)]
pub struct AsyncEvent {
    kind: AsyncKind,
    element: Element,
    deferred: bool,
}

impl AsyncEvent {
    /// What happened.
    #[must_use]
    pub const fn kind(&self) -> AsyncKind {
        self.kind
    }

    /// What it is about.
    #[must_use]
    pub const fn element(&self) -> &Element {
        &self.element
    }

    /// Keeps the acknowledgement owed; give it later with `ack_async_events` of the element.
    #[must_use]
    pub fn defer_ack(mut self) -> (AsyncKind, Element) {
        self.deferred = true;
        (self.kind, self.element.clone())
    }
}

impl Drop for AsyncEvent {
    fn drop(&mut self) {
        if self.deferred {
            return;
        }
        match &self.element {
            Element::Cq(cq) => cq.ack_async_events(1),
            Element::Qp(qp) => qp.ack_async_events(1),
            Element::Srq(srq) => srq.ack_async_events(1),
            // rule: event-45
            Element::Port(_) | Element::Device => {}
        }
    }
}

impl Context {
    /// The next asynchronous event; sleeps until there is one.
    #[must_use]
    pub fn wait_async_event(&self) -> AsyncEvent {
        loop {
            if let Some(event) = self.inner.events.pop_wait(AsyncRecord::accept) {
                return event;
            }
        }
    }

    /// The next asynchronous event, if one comes within `limit`.
    #[must_use]
    pub fn async_event_within(&self, limit: Duration) -> Option<AsyncEvent> {
        self.inner
            .events
            .pop_within(limit, AsyncRecord::accept)
            .flatten()
    }

    /// The next asynchronous event, if one is there; [`Reason::WouldBlock`] if not.
    pub fn try_async_event(&self) -> Result<AsyncEvent> {
        loop {
            match self.inner.events.pop(AsyncRecord::accept) {
                Some(Some(event)) => return Ok(event),
                Some(None) => {}
                None => return Err(Reason::WouldBlock.of("get_async_event")),
            }
        }
    }

    /// A descriptor that is readable while asynchronous events are there; never read from it.
    // rule: event-6
    pub fn async_fd(&self) -> Result<BorrowedFd<'_>> {
        self.inner
            .events
            .fd()
            .map_err(|error| Reason::Io(error).of("async_fd"))
    }
}
