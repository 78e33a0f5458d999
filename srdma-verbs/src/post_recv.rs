//! Posting receives, to a queue pair or to a shared receive queue.
//!
//! ```text
//! qp.post_recv() · srq.post_recv()     takes the receive queue
//!   .recv(id) .local(sge)              staged when the statement ends
//!   .ring()                            visible together
//! drop instead of ring                 taken back
//! ```

use crate::driver::ids::lock;
use crate::error::{Arg, Error, Reason, Result};
use crate::qp::{QpInner, RqEnd};
use crate::srq::{SrqEnd, SrqInner};
use crate::wc::WrId;
use core::fmt;
use srdma_core::hw::{Sge, SgeList};
use srdma_core::qp::attr::QpState;
use srdma_core::ring::PushFault;
use std::sync::MutexGuard;

const VERB: &str = "post_recv";

/// Receives being posted. Holds the queue until rung or dropped.
#[must_use = "a batch that is dropped posts nothing"]
pub struct RecvBatch<'q> {
    queue: Queue<'q>,
    written: usize,
    error: Option<Reason>,
}

enum Queue<'q> {
    Own(&'q QpInner, MutexGuard<'q, RqEnd>),
    Shared(&'q SrqInner, MutexGuard<'q, SrqEnd>),
    /// The queue pair has no receive queue of its own.
    None,
}

/// One receive under construction. Written to the batch when dropped.
pub struct RecvWr<'b, 'q> {
    batch: &'b mut RecvBatch<'q>,
    id: WrId,
    too_many: bool,
}

impl<'q> RecvBatch<'q> {
    pub(crate) fn own(qp: &'q QpInner) -> Self {
        let queue = match &qp.rq {
            Some(rq) => Queue::Own(qp, lock(rq)),
            None => Queue::None,
        };
        Self {
            queue,
            written: 0,
            error: None,
        }
    }

    pub(crate) fn shared(srq: &'q SrqInner) -> Self {
        Self {
            queue: Queue::Shared(srq, lock(&srq.end)),
            written: 0,
            error: None,
        }
    }

    /// A receive. Without [`RecvWr::local`] it takes messages of no bytes.
    pub fn recv(&mut self, id: WrId) -> RecvWr<'_, 'q> {
        if let Some(sges) = self.sges() {
            sges.clear();
        }
        RecvWr {
            batch: self,
            id,
            too_many: false,
        }
    }

    /// Receives that are written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.written
    }

    /// True if nothing is written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Posts the batch. On an error nothing is posted.
    pub fn ring(mut self) -> Result<()> {
        match self.error.take() {
            None => self.post(),
            Some(reason) => Err(reason.of(VERB)),
        }
    }

    /// Posts what comes before the first receive that could not be written, and says how many that
    /// are: what `ibv_post_recv` does.
    pub fn ring_valid(mut self) -> (usize, Result<()>) {
        let (written, error) = (self.written, self.error.take());
        match (self.post(), error) {
            (Err(error), _) => (0, Err(error)),
            (Ok(()), None) => (written, Ok(())),
            (Ok(()), Some(reason)) => (written, Err(reason.of(VERB))),
        }
    }

    fn post(mut self) -> Result<()> {
        match &mut self.queue {
            Queue::None => Err(Reason::SharedReceives.of(VERB)),
            Queue::Shared(srq, end) => {
                if !srq.is_live() {
                    return Err(Reason::Destroyed.of(VERB));
                }
                end.ring.commit();
                end.shadow.store_head(end.ring.head());
                Ok(())
            }
            Queue::Own(qp, end) => {
                let qp = *qp;
                let state = qp.shared.state();
                if !state.takes_receives() || !qp.is_live() {
                    return Err(Error::new(VERB, Reason::State(state)));
                }
                end.ring.commit();
                if let Some(track) = &qp.shared.rq {
                    track.publish(end.ring.head());
                }
                let written = self.written;
                drop(self);
                // After the head is published: whoever sets the state looks at the head then.
                if qp.shared.state() == QpState::Err && written != 0 {
                    // There is no doorbell for receives; a command flushes them. [E810 6.4]
                    let flushed = qp.driver().flush_receives(qp.shared.qpn);
                    flushed.map_err(|reason| reason.of(VERB))?;
                }
                Ok(())
            }
        }
    }

    fn sges(&mut self) -> Option<&mut SgeList> {
        match &mut self.queue {
            Queue::Own(_, end) => Some(&mut end.sges),
            Queue::Shared(_, end) => Some(&mut end.sges),
            Queue::None => None,
        }
    }

    fn commit(&mut self, id: WrId, too_many: bool) {
        if self.error.is_some() {
            return;
        }
        match self.stage(id, too_many) {
            Ok(()) => self.written += 1,
            Err(reason) => self.error = Some(reason),
        }
    }

    fn stage(&mut self, id: WrId, too_many: bool) -> core::result::Result<(), Reason> {
        let staged = match &mut self.queue {
            Queue::None => return Err(Reason::SharedReceives),
            Queue::Own(qp, end) => {
                check_sges(too_many, end.sges.len(), qp.caps().max_recv_sge)?;
                let Some(track) = &qp.shared.rq else {
                    return Err(Reason::SharedReceives);
                };
                let end = &mut **end;
                end.wqe.recv(&end.sges, None)?;
                let staged = match end.ring.stage(&end.wqe) {
                    Err(PushFault::Full) => {
                        end.ring.release_to(track.tail());
                        end.ring.stage(&end.wqe)
                    }
                    staged => staged,
                };
                staged.map(|index| track.put(index, id))
            }
            Queue::Shared(srq, end) => {
                check_sges(too_many, end.sges.len(), srq.max_sge())?;
                let end = &mut **end;
                end.wqe.recv(&end.sges, Some(id.0))?;
                let staged = match end.ring.stage(&end.wqe) {
                    Err(PushFault::Full) => {
                        end.release(&srq.shared);
                        end.ring.stage(&end.wqe)
                    }
                    staged => staged,
                };
                staged.map(|_| ())
            }
        };
        staged.map_err(|_| Reason::Full)
    }
}

fn check_sges(too_many: bool, sges: usize, limit: u32) -> core::result::Result<(), Reason> {
    let limit = u64::from(limit);
    if too_many || sges as u64 > limit {
        return Err(Reason::Range {
            arg: Arg::RecvSge,
            limit,
        });
    }
    Ok(())
}

impl Drop for RecvBatch<'_> {
    fn drop(&mut self) {
        match &mut self.queue {
            Queue::Own(_, end) => end.ring.rollback(),
            Queue::Shared(_, end) => end.ring.rollback(),
            Queue::None => {}
        }
    }
}

impl RecvWr<'_, '_> {
    /// Memory to put the message into. May be called several times.
    #[inline]
    pub fn local(mut self, sge: Sge) -> Self {
        if let Some(sges) = self.batch.sges() {
            self.too_many |= !sges.push(sge);
        }
        self
    }

    /// Several pieces of memory at once.
    #[inline]
    pub fn locals(mut self, sges: impl IntoIterator<Item = Sge>) -> Self {
        for sge in sges {
            self = self.local(sge);
        }
        self
    }
}

impl Drop for RecvWr<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.batch.commit(self.id, self.too_many);
    }
}

impl fmt::Debug for RecvBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBatch({})", self.written)
    }
}

impl fmt::Debug for RecvWr<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvWr({:?})", self.id)
    }
}
