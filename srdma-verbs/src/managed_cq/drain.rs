//! Draining: a queue pair goes into error, and the call returns when everything posted before has
//! called its closure.                                                  [events 3.8]
//!
//! ```text
//! modify to ERR ─► post a marker ─► flushed in order ─► the marker's closure ─► all before it are done
//! ```
//!
//! The marker of the send queue is a NOP, so it does nothing on any transport if the queue pair is
//! reset under it.

use super::ManagedCq;
use crate::cq::Cq;
use crate::driver::ids::lock;
use crate::error::{Reason, Result};
use crate::qp::Qp;
use crate::qp_attr::QpAttr;
use crate::wc::WrId;
use core::time::Duration;
use srdma_core::qp::attr::QpState;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// How often a drain looks whether queue and queue pair are still there, and whether a full queue
/// has room; and how often it polls a queue that only it polls.
const LOOK: Duration = Duration::from_millis(1);

/// Wakes the one who drains.
#[derive(Default)]
struct Mark {
    done: Mutex<bool>,
    news: Condvar,
}

impl Mark {
    fn set(&self) {
        *lock(&self.done) = true;
        self.news.notify_all();
    }

    fn wait(&self, limit: Duration) -> bool {
        let done = lock(&self.done);
        let (done, _) = self
            .news
            .wait_timeout_while(done, limit, |done| !*done)
            .unwrap_or_else(PoisonError::into_inner);
        *done
    }
}

/// One of the queues of a queue pair.
#[derive(Clone, Copy)]
enum Side {
    Send,
    Recv,
}

impl Qp {
    /// Puts the queue pair into error, and waits until the closure of every send that was posted
    /// before has run.
    ///
    /// Its send queue has to be managed ([`crate::ManagedCq`]), with room for one more completion.
    /// Nobody posts meanwhile. [`Reason::Busy`] from a closure of that queue, which would wait for
    /// itself.
    // rule: mcq-11
    pub fn drain_send(&self) -> Result<()> {
        self.drain_side(Side::Send)
            .map_err(|reason| reason.of("drain_send"))
    }

    /// As [`drain_send`](Self::drain_send), for receives of its own queue.
    pub fn drain_recv(&self) -> Result<()> {
        self.drain_side(Side::Recv)
            .map_err(|reason| reason.of("drain_recv"))
    }

    /// Drains the sends, and the receives unless they come from a shared queue.
    pub fn drain(&self) -> Result<()> {
        self.drain_send()?;
        if self.srq().is_some() || self.inner.rq.is_none() {
            return Ok(());
        }
        self.drain_recv()
    }

    fn drain_side(&self, side: Side) -> core::result::Result<(), Reason> {
        let cq = match side {
            Side::Send => self.send_cq(),
            Side::Recv => self.recv_cq(),
        };
        let managed = managed(cq)?;
        if managed.inner.poller.gate.is_mine() {
            return Err(Reason::Busy);
        }
        self.modify(&QpAttr::to(QpState::Err))
            .map_err(crate::Error::into_reason)?;
        let mark = Arc::new(Mark::default());
        let cqe = managed
            .register({
                let mark = Arc::clone(&mark);
                move |_, _| mark.set()
            })
            .map_err(crate::Error::into_reason)?;
        while !self.post_mark(side, cqe.wr_id())? {
            // Full: what is there is being flushed, and its closures make room.
            self.look(&managed, &mark)?;
        }
        while !self.look(&managed, &mark)? {}
        Ok(())
    }

    /// False: the queue is full.
    fn post_mark(&self, side: Side, id: WrId) -> core::result::Result<bool, Reason> {
        let posted = match side {
            Side::Send => {
                let mut batch = self.post_send();
                let _ = batch.nop(id).signaled();
                batch.ring()
            }
            Side::Recv => {
                let mut batch = self.post_recv();
                let _ = batch.recv(id);
                batch.ring()
            }
        };
        match posted.map_err(crate::Error::into_reason) {
            Ok(()) => Ok(true),
            Err(Reason::Full) => Ok(false),
            Err(reason) => Err(reason),
        }
    }

    /// True once the marker is done.
    fn look(&self, managed: &ManagedCq, mark: &Mark) -> core::result::Result<bool, Reason> {
        match &managed.inner.crew {
            None => {
                managed.inner.direct(usize::MAX);
            }
            // A closure of another queue drains: the thread that it holds up is its own.
            Some(crew) if crew.is_mine() => crew.serve(&managed.inner.poller),
            Some(_) => {}
        }
        if mark.wait(LOOK) {
            return Ok(true);
        }
        if self.inner.is_live() && managed.cq().is_live() {
            Ok(false)
        } else {
            Err(Reason::Destroyed)
        }
    }
}

fn managed(cq: &Cq) -> core::result::Result<ManagedCq, Reason> {
    let managed = cq.inner.managed.get().ok_or(Reason::Unsupported)?;
    managed.upgrade().ok_or(Reason::Destroyed)
}
