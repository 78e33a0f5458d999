//! Queue pairs: made, connected, modified, destroyed.
//!
//! ```text
//! create_qp ─► QpBuilder ─build─► PreparedQp (Init) ─connect─► Qp (Rts)
//!                 │                   │ endpoint() ⇄ the peer's, by any way
//!                 │                   └─activate_ud──────────► Qp (Rts, datagrams)
//!                 └─build_reset──────────────────────────────► Qp (Reset), then `modify`
//! ```
//!
//! What this does *not* do: post (`post.rs`, `post_recv.rs`), describe (`qp_build.rs`), know the
//! legal transitions (`srdma_core::qp::attr`).

use crate::cq::Cq;
use crate::driver::Driver;
use crate::driver::alloc::RingMem;
use crate::driver::fifo::Owed;
use crate::driver::ids::lock;
use crate::driver::shared::QpShared;
use crate::error::{Reason, Result};
use crate::pd::Pd;
use crate::post::{SendBatch, SqEnd};
use crate::post_recv::RecvBatch;
use crate::qp_attr::QpAttr;
use crate::qp_open::OpenQp;
use crate::srq::Srq;
use crate::xrc::{XrcDomain, Xrcd};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use srdma_core::hw::{CqpCmd, SgeList, WqeBuf};
use srdma_core::num::Qpn;
use srdma_core::obj::port::Gid;
use srdma_core::qp::attr::{QpState, QpType};
use srdma_core::ring::RqProducer;
use srdma_core::trace;
use std::sync::{Arc, Mutex};

/// A queue pair.
#[derive(Clone)]
pub struct Qp {
    pub(crate) inner: Arc<QpInner>,
    /// XRC targets: which of their handles this is.
    pub(crate) open: Option<Arc<OpenQp>>,
}

/// What a queue pair was made for; at least what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct QpCaps {
    /// Sends that can be outstanding.
    pub max_send_wr: u32,
    /// Receives that can be outstanding; 0 with a shared receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Inline bytes of a send.
    pub max_inline: u32,
}

/// Where everything of a queue pair lies in its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) sq_quanta: u32,
    pub(crate) rq_wqes: u32,
    pub(crate) rq_shift: u8,
    pub(crate) rq_at: usize,
    pub(crate) shadow_at: usize,
    pub(crate) ctx_at: usize,
    /// What this half remembers of sends, and of receives.
    pub(crate) sq_track_at: usize,
    pub(crate) rq_track_at: usize,
    pub(crate) len: usize,
}

/// The posting end of a receive queue.
#[derive(Debug)]
pub(crate) struct RqEnd {
    pub(crate) ring: RqProducer,
    pub(crate) wqe: WqeBuf,
    pub(crate) sges: SgeList,
}

impl RqEnd {
    pub(crate) fn new(ring: RqProducer) -> Self {
        Self {
            ring,
            wqe: WqeBuf::new(),
            sges: SgeList::EMPTY,
        }
    }
}

pub(crate) struct QpInner {
    pub(crate) pd: Pd,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) srq: Option<Srq>,
    /// The domain of an XRC target; which handles on it are in use is a matter of `OpenQp`.
    pub(crate) xrcd: Option<Arc<XrcDomain>>,
    /// Slots in the tables of the send and the receive CQ.
    pub(crate) slots: (usize, usize),
    pub(crate) context: u64,
    pub(crate) sq: Mutex<SqEnd>,
    pub(crate) rq: Option<Mutex<RqEnd>>,
    /// Current attributes; its lock orders modify calls.
    pub(crate) control: Mutex<QpAttr>,
    pub(crate) caps: QpCaps,
    pub(crate) layout: Layout,
    pub(crate) mem: RingMem,
    pub(crate) signals_all: bool,
    pub(crate) live: AtomicBool,
}

impl Qp {
    pub(crate) const fn from_inner(inner: Arc<QpInner>) -> Self {
        Self { inner, open: None }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> Qpn {
        self.inner.shared.qpn
    }

    /// The transport service.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.inner.shared.qp_type
    }

    /// What it was made for.
    #[must_use]
    pub fn caps(&self) -> QpCaps {
        self.inner.caps
    }

    /// Every send reports success, signaled or not.
    #[must_use]
    pub fn signals_all(&self) -> bool {
        self.inner.signals_all
    }

    /// The domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// The queue of send completions.
    #[must_use]
    pub fn send_cq(&self) -> &Cq {
        &self.inner.send_cq
    }

    /// The queue of receive completions.
    #[must_use]
    pub fn recv_cq(&self) -> &Cq {
        &self.inner.recv_cq
    }

    /// The XRC domain of a target, as it was made or opened with.
    #[must_use]
    pub fn xrcd(&self) -> Option<&Xrcd> {
        self.open.as_ref().map(|open| open.xrcd())
    }

    /// The shared receive queue, if it has one.
    #[must_use]
    pub fn srq(&self) -> Option<&Srq> {
        self.inner.srq.as_ref()
    }

    /// The state. Whoever has seen a completion of a failure finds the queue pair failed, unless
    /// more than four thousand events wait to be handled.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.inner.driver().hear();
        self.inner.shared.state()
    }

    /// Starts a batch of sends. Holds the send queue until the batch is rung or dropped.
    pub fn post_send(&self) -> SendBatch<'_> {
        SendBatch::new(&self.inner)
    }

    /// Starts a batch of receives. Holds the receive queue until the batch is rung or dropped.
    pub fn post_recv(&self) -> RecvBatch<'_> {
        RecvBatch::own(&self.inner)
    }

    /// Changes attributes and state. If it fails, nothing has changed; the error names attributes
    /// that were missing or too many.
    pub fn modify(&self, attr: &QpAttr) -> Result<()> {
        const VERB: &str = "modify_qp";
        if self.open.as_ref().is_some_and(|open| !open.is_live()) {
            return Err(Reason::Destroyed.of(VERB));
        }
        self.inner.modify(attr).map_err(|reason| reason.of(VERB))
    }

    /// The attributes as they are set, and the state.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        let mut attr = *lock(&self.inner.control);
        attr.state = self.state();
        attr.cur_state = attr.state;
        attr
    }

    /// Lets a datagram queue pair hear a multicast group.
    pub fn attach_mcast(&self, group: Gid) -> Result<()> {
        const VERB: &str = "attach_mcast";
        self.check_mcast(group).map_err(|reason| reason.of(VERB))?;
        let driver = self.inner.driver();
        driver
            .attach_mcast(group.addr(), self.qp_num())
            .map_err(|reason| reason.of(VERB))
    }

    /// Leaves a multicast group.
    pub fn detach_mcast(&self, group: Gid) -> Result<()> {
        const VERB: &str = "detach_mcast";
        self.check_mcast(group).map_err(|reason| reason.of(VERB))?;
        let driver = self.inner.driver();
        driver
            .detach_mcast(group.addr(), self.qp_num())
            .map_err(|reason| reason.of(VERB))
    }

    fn check_mcast(&self, group: Gid) -> core::result::Result<(), Reason> {
        if self.qp_type() != QpType::Ud {
            return Err(Reason::QpType(self.qp_type()));
        }
        if group.addr().is_multicast() {
            Ok(())
        } else {
            Err(Reason::Endpoint)
        }
    }

    /// Acknowledges `count` asynchronous events.
    pub fn ack_async_events(&self, count: u32) {
        trace::object(trace::Kind::ASYNC_ACK, self.qp_num().value(), count.into());
        self.owed().ack(count);
    }

    fn owed(&self) -> &Owed {
        match &self.open {
            Some(open) => &open.shared.owed,
            None => &self.inner.shared.owed,
        }
    }

    /// Destroys the queue pair: [`Reason::Busy`] while it is in a multicast group, and nothing
    /// happens. What is posted never completes. Waits until every event that was fetched is
    /// acknowledged. Other handles are dead afterwards, but those that were opened separately
    /// ([`Xrcd::open_qp`]): an XRC target ends with the last of them.
    pub fn destroy(&self) -> Result<()> {
        if self.inner.driver().in_mcast(self.qp_num()) {
            return Err(Reason::Busy.of("destroy_qp"));
        }
        match &self.open {
            Some(open) => open.close(),
            None => self.inner.end(),
        }
        .map_err(|reason| reason.of("destroy_qp"))?;
        self.owed().wait();
        Ok(())
    }
}

impl QpInner {
    pub(crate) fn driver(&self) -> &Driver {
        self.pd.driver()
    }

    pub(crate) const fn caps(&self) -> &QpCaps {
        &self.caps
    }

    pub(crate) const fn signals_all(&self) -> bool {
        self.signals_all
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) -> core::result::Result<(), Reason> {
        if !self.live.swap(false, Ordering::AcqRel) {
            return Err(Reason::Destroyed);
        }
        let driver = self.driver();
        // Acknowledgements may wait for the next pass: the peer gets those that are due.
        driver.engine.with(|_| ());
        // A queue pair that the device has given up already has nothing to stop.
        let _ = self.stop_receiving();
        if let Err(reason) = driver.exec(&CqpCmd::DestroyQp(self.shared.qpn)) {
            self.live.store(true, Ordering::Release);
            return Err(reason);
        }
        driver.irq.remove_qp(&self.shared);
        let qpn = self.shared.qpn;
        if let Some(xrcd) = &self.xrcd {
            xrcd.remove_target(qpn);
        }
        // rule: event-47
        self.pd.ctx().events.purge(|record| record.is_about_qp(qpn));
        self.forget_slots();
        self.send_cq.remove_user();
        self.recv_cq.remove_user();
        if let Some(srq) = &self.srq {
            srq.remove_user();
        }
        self.give_number();
        Ok(())
    }

    /// The number is free again.
    pub(crate) fn give_number(&self) {
        if self.shared.qp_type == QpType::Gsi {
            self.driver().program_leaves_gsi();
        } else {
            self.driver().ids.qp.give(self.shared.qpn.value());
        }
    }

    /// The device writes no more completions of this queue pair.       [E810 3.7]
    pub(crate) fn forget_slots(&self) {
        let (send, recv) = self.slots;
        self.clean_completions();
        self.send_cq.state().reaper.remove(send);
        if self.send_cq != self.recv_cq {
            self.recv_cq.state().reaper.remove(recv);
        }
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if self.is_live() {
            self.driver().leave_all_mcast(self.shared.qpn);
            // Refused only by a device that is gone.
            let _ = self.end();
        }
    }
}

impl fmt::Debug for QpInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Qp({} {} {})",
            self.shared.qp_type,
            self.shared.qpn,
            self.shared.state()
        )
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Qp {
    fn eq(&self, other: &Self) -> bool {
        let handle = |qp: &Self| qp.open.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.inner, &other.inner) && handle(self) == handle(other)
    }
}

impl Eq for Qp {}
