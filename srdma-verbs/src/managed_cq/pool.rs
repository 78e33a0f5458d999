//! The pool: completion queues that several users share, found by vector and room. [events 3.5]
//!
//! ```text
//! get(entries, hint, context) ─► first queue of the context with that vector and so much room
//!                                 none ─► one more queue for every vector, then look again
//! drop ─► the room is free again; the queue stays until the pool goes
//! ```

use super::{ManagedCq, ManagedCqBuilder, PollContext, useful_vectors};
use crate::context::ContextInner;
use crate::cq::MAX_CQE;
use crate::driver::ids::lock;
use crate::error::{Arg, Reason, Result};
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// Entries that a queue of a pool has at least.
pub const MIN_POOL_CQE: u32 = 4096;

/// Completion queues that several users share. Clones are handles on the same pool.
#[derive(Clone)]
pub struct CqPool {
    inner: Arc<PoolInner>,
}

pub(crate) struct PoolInner {
    ctx: Arc<ContextInner>,
    /// One list for each context that can be shared.
    lists: [Mutex<VecDeque<ManagedCq>>; 3],
    next: AtomicUsize,
    adaptive: AtomicBool,
}

/// Room for a number of completions in a queue of a pool. Dropping it gives the room back; before
/// that, its queue pairs have to be gone.
pub struct PooledCq {
    cq: ManagedCq,
    entries: u32,
    _pool: CqPool,
}

impl CqPool {
    pub(crate) fn create(ctx: &Arc<ContextInner>) -> Self {
        Self {
            inner: Arc::new(PoolInner {
                ctx: Arc::clone(ctx),
                lists: Default::default(),
                next: AtomicUsize::new(0),
                adaptive: AtomicBool::new(false),
            }),
        }
    }

    pub(crate) const fn from_inner(inner: Arc<PoolInner>) -> Self {
        Self { inner }
    }

    pub(crate) fn downgrade(&self) -> Weak<PoolInner> {
        Arc::downgrade(&self.inner)
    }

    /// Queues that the pool makes from here on have adaptive moderation, or have not.
    pub fn set_adaptive(&self, adaptive: bool) {
        self.inner.adaptive.store(adaptive, Ordering::Relaxed);
    }

    /// Room for `entries` completions in a queue of `context`.
    ///
    /// A queue whose vector is `hint`, modulo the vectors that are worth using: no more than there
    /// are processors. Without a hint the vectors take turns. [`Reason::Range`] for
    /// [`PollContext::Direct`], which cannot be shared.
    // rule: mcq-15
    pub fn get(&self, entries: u32, hint: Option<u32>, context: PollContext) -> Result<PooledCq> {
        self.find(entries, hint, context)
            .map_err(|reason| reason.of("cq_pool_get"))
    }

    /// Queues in the pool.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.inner.lists.iter().map(|list| lock(list).len()).sum()
    }

    fn list(&self, context: PollContext) -> Option<&Mutex<VecDeque<ManagedCq>>> {
        let [softirq, bound, unbound] = &self.inner.lists;
        match context {
            PollContext::Softirq => Some(softirq),
            PollContext::Workqueue => Some(bound),
            PollContext::UnboundWorkqueue => Some(unbound),
            PollContext::Direct => None,
        }
    }

    fn find(
        &self,
        entries: u32,
        hint: Option<u32>,
        context: PollContext,
    ) -> core::result::Result<PooledCq, Reason> {
        let limit = u64::from(MAX_CQE);
        let list = self.list(context).ok_or(Reason::Range {
            arg: Arg::PollContext,
            limit: 2,
        })?;
        if entries == 0 || entries > MAX_CQE {
            return Err(Reason::Range {
                arg: Arg::Cqe,
                limit,
            });
        }
        let vectors = useful_vectors(&self.inner.ctx);
        let turn = match hint {
            Some(hint) => hint as usize,
            None => self
                .inner
                .next
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_add(1),
        };
        let vector = u16::try_from(turn % usize::from(vectors)).unwrap_or(0);
        // The lock is held while queues are made, so that two users do not both make some. No
        // handler or callback of ours takes it.
        let mut list = lock(list);
        let cq = match reserve(&list, vector, entries) {
            Some(cq) => cq,
            None => {
                self.grow(&mut list, entries, vectors, context)?;
                reserve(&list, vector, entries).ok_or(Reason::Exhausted)?
            }
        };
        drop(list);
        Ok(PooledCq {
            cq,
            entries,
            _pool: self.clone(),
        })
    }

    /// One more queue for every vector; none if one of them cannot be had.
    // rule: mcq-16
    fn grow(
        &self,
        list: &mut VecDeque<ManagedCq>,
        entries: u32,
        vectors: u16,
        context: PollContext,
    ) -> core::result::Result<(), Reason> {
        let entries = entries.clamp(MIN_POOL_CQE, MAX_CQE);
        let mut fresh = Vec::new();
        for vector in 0..vectors {
            let mut builder = ManagedCqBuilder::new(&self.inner.ctx, entries)
                .poll_context(context)
                .comp_vector(vector)
                .adaptive(self.inner.adaptive.load(Ordering::Relaxed));
            builder.pooled = true;
            fresh.push(builder.create()?);
        }
        for cq in fresh.into_iter().rev() {
            list.push_front(cq);
        }
        Ok(())
    }
}

/// The first queue with that vector and so much room; the room is taken.
fn reserve(list: &VecDeque<ManagedCq>, vector: u16, entries: u32) -> Option<ManagedCq> {
    // All changes but those of `put` happen under the list's lock, and `put` only makes room.
    let cq = list.iter().find(|cq| {
        let taken = cq.inner.reserved.load(Ordering::Acquire);
        cq.comp_vector() == vector
            && taken
                .checked_add(entries)
                .is_some_and(|sum| sum <= cq.cq().entries())
    })?;
    cq.inner.reserved.fetch_add(entries, Ordering::AcqRel);
    Some(cq.clone())
}

impl PooledCq {
    /// Completions that there is room for.
    #[must_use]
    pub const fn entries(&self) -> u32 {
        self.entries
    }
}

impl Deref for PooledCq {
    type Target = ManagedCq;

    fn deref(&self) -> &ManagedCq {
        &self.cq
    }
}

impl Drop for PooledCq {
    fn drop(&mut self) {
        self.cq
            .inner
            .reserved
            .fetch_sub(self.entries, Ordering::AcqRel);
    }
}

impl fmt::Debug for PooledCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledCq({:?}, {} entries)", self.cq, self.entries)
    }
}

impl fmt::Debug for CqPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CqPool({} queues)", self.queues())
    }
}

impl fmt::Debug for PoolInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolInner")
    }
}
