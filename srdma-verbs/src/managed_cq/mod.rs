//! Managed completion queues: a closure for each completion, called where the program wants it.
//!
//! ```text
//! register(closure) ─► WrCqe ─ wr_id ─► work request ─► completion ─► closure(cq, completion)
//!
//! context            who calls                 completions a turn   armed
//! Direct             process_direct, there     as asked             never
//! Softirq            one thread a processor    256                  by the turn that finds no more
//! Workqueue          one thread a processor    65536                likewise
//! UnboundWorkqueue   several threads           65536                likewise
//! ```
//!
//! What the kernel offers its own consumers, such as storage over fabrics. A closure may post,
//! destroy its queue pair, register and unregister closures, and wait: no lock is held while it
//! runs, and the device goes on. Two closures of one queue never run at the same time, and they run
//! in the order of the queue. One that panics is counted, and the next is called.
//!
//! | file | what |
//! |---|---|
//! | `callbacks` | closures behind the numbers of work requests |
//! | `run` | a turn: budget, batches, arming |
//! | `gate`, `crew` | turns, lists, threads |
//! | `dim` | adaptive moderation |
//! | `drain` | until a queue pair has nothing outstanding |
//! | `pool` | queues that several users share |
//!
//! [docs/managed-cq.md](../../../docs/managed-cq.md) tells how to use them.

mod callbacks;
mod crew;
mod dim;
mod drain;
mod gate;
mod pool;
mod run;

use crate::context::{Context, ContextInner};
use crate::cq::{Cq, CqOptions};
use crate::driver::ids::lock;
use crate::driver::shared::Handler;
use crate::error::{Reason, Result};
use crate::wc::Completion;
use callbacks::Callbacks;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use crew::{Crew, CrewKey, Polled, Poller, processors};
use dim::Dim;
use run::Counts;
use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

pub(crate) use crew::Crews;

pub use callbacks::WrCqe;
pub use pool::{CqPool, MIN_POOL_CQE, PooledCq};
pub use run::{BUDGET_SOFTIRQ, BUDGET_WORKQUEUE, CqStats, POLL_BATCH, POLL_BATCH_DIRECT};

pub(crate) use pool::PoolInner;

/// Where the closures of a managed queue run.                          [events 3.3]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PollContext {
    /// On a thread of the processor that the vector belongs to, 256 completions a turn: for
    /// closures that are quick.
    Softirq,
    /// On a thread of the processor that the vector belongs to.
    Workqueue,
    /// On any of several threads.
    UnboundWorkqueue,
    /// On the thread that calls [`ManagedCq::process_direct`].
    Direct,
}

impl PollContext {
    /// What a turn may handle; no more matters where the caller says so.
    const fn weight(self) -> usize {
        match self {
            Self::Softirq => BUDGET_SOFTIRQ,
            Self::Workqueue | Self::UnboundWorkqueue => BUDGET_WORKQUEUE,
            Self::Direct => usize::MAX,
        }
    }

    fn crew(self, vector: u16) -> Option<CrewKey> {
        let cpu = usize::from(vector) % processors();
        match self {
            Self::Softirq => Some(CrewKey::Softirq(cpu)),
            Self::Workqueue => Some(CrewKey::Bound(cpu)),
            Self::UnboundWorkqueue => Some(CrewKey::Unbound),
            Self::Direct => None,
        }
    }
}

/// A completion queue that calls a closure for each completion. Clones are handles on the same
/// queue; with the last of them its closures go, and it ends once no queue pair uses it.
#[derive(Clone)]
pub struct ManagedCq {
    inner: Arc<ManagedInner>,
}

pub(crate) struct ManagedInner {
    cq: Cq,
    context: PollContext,
    callbacks: Arc<Callbacks>,
    poller: Arc<Poller>,
    crew: Option<Arc<Crew>>,
    dim: Option<Mutex<Dim>>,
    counts: Counts,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Entries that users of a pool have reserved.
    pub(crate) reserved: AtomicU32,
}

/// What a completion queue knows of its being managed.
pub(crate) struct Managed {
    inner: Weak<ManagedInner>,
    /// Several users share it, so none may change it.
    pub(crate) pooled: bool,
}

/// Describes a managed completion queue before it is made.
#[derive(Debug)]
#[must_use]
pub struct ManagedCqBuilder<'a> {
    ctx: &'a Arc<ContextInner>,
    entries: u32,
    context: PollContext,
    vector: Option<u16>,
    adaptive: bool,
    pub(crate) pooled: bool,
}

/// Vectors of queues for which any will do.
static ROTATE: AtomicUsize = AtomicUsize::new(0);

/// Vectors that are worth using: no more than processors.
pub(crate) fn useful_vectors(ctx: &ContextInner) -> u16 {
    let processors = u16::try_from(processors()).unwrap_or(u16::MAX);
    ctx.driver.comp_vectors().min(processors).max(1)
}

impl<'a> ManagedCqBuilder<'a> {
    pub(crate) const fn new(ctx: &'a Arc<ContextInner>, entries: u32) -> Self {
        Self {
            ctx,
            entries,
            context: PollContext::Workqueue,
            vector: None,
            adaptive: false,
            pooled: false,
        }
    }

    /// Where its closures run; [`PollContext::Workqueue`] if nothing is said.
    pub const fn poll_context(mut self, context: PollContext) -> Self {
        self.context = context;
        self
    }

    /// Its events come through this completion vector; if nothing is said, vectors take turns.
    pub const fn comp_vector(mut self, vector: u16) -> Self {
        self.vector = Some(vector);
        self
    }

    /// How long its events wait follows how its completions come.     [events 3.7]
    pub const fn adaptive(mut self, adaptive: bool) -> Self {
        self.adaptive = adaptive;
        self
    }

    /// Makes it.
    pub fn build(self) -> Result<ManagedCq> {
        self.create()
            .map_err(|reason| reason.of("create_managed_cq"))
    }

    // rule: mcq-1
    fn create(self) -> core::result::Result<ManagedCq, Reason> {
        let driver = &self.ctx.driver;
        let vector = self.vector.unwrap_or_else(|| {
            let turn = ROTATE.fetch_add(1, Ordering::Relaxed);
            let vector = turn % usize::from(useful_vectors(self.ctx));
            u16::try_from(vector).unwrap_or(0)
        });
        let crew = match self.context.crew(vector) {
            Some(key) => Some(driver.crews.join(key, &driver.engine)?),
            None => None,
        };
        let poller = Poller::new(self.context.weight());
        let options = CqOptions {
            handler: crew.as_ref().map(|crew| {
                let (poller, list) = (Arc::clone(&poller), Arc::clone(&crew.list));
                Handler(Box::new(move || poller.schedule(&list)))
            }),
            comp_vector: vector,
            ..CqOptions::default()
        };
        let cq = Cq::create(self.ctx, self.entries, options)?;
        if let Some(crew) = &crew {
            crew.list.enroll();
        }
        let adaptive = self.adaptive && crew.is_some();
        let inner = Arc::new(ManagedInner {
            cq,
            context: self.context,
            callbacks: Arc::default(),
            poller,
            crew,
            dim: adaptive.then(|| Mutex::new(Dim::new())),
            counts: Counts::default(),
            panic: Mutex::default(),
            reserved: AtomicU32::new(0),
        });
        let managed = Managed {
            inner: Arc::downgrade(&inner),
            pooled: self.pooled,
        };
        let _ = inner.cq.inner.managed.set(managed);
        let target: Weak<dyn Polled> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Polled>));
        inner.poller.aim(target);
        if inner.crew.is_some() {
            // Nothing can have completed yet.
            let _ = inner.arm();
        }
        Ok(ManagedCq::from_inner(inner))
    }
}

impl ManagedCq {
    const fn from_inner(inner: Arc<ManagedInner>) -> Self {
        Self { inner }
    }

    /// The completion queue, for queue pairs to report to. Whoever polls it takes completions away
    /// from their closures.
    #[must_use]
    pub fn cq(&self) -> &Cq {
        &self.inner.cq
    }

    /// Where its closures run.
    #[must_use]
    pub fn poll_context(&self) -> PollContext {
        self.inner.context
    }

    /// Its completion vector.
    #[must_use]
    pub fn comp_vector(&self) -> u16 {
        self.inner.cq.inner.comp_vector
    }

    /// Registers a closure; work requests that carry its [`WrCqe::wr_id`] call it.
    ///
    /// A closure that owns a handle on this queue, or on a queue pair that reports to it, keeps
    /// both alive until it is unregistered or the queue is destroyed.
    ///
    /// ```
    /// # fn main() -> srdma_verbs::Result<()> {
    /// # let ctx = srdma_verbs::DeviceConfig::doc_test()?.open()?;
    /// # let pd = ctx.alloc_pd()?;
    /// use srdma_verbs::{PollContext, QpType};
    /// let cq = ctx.create_managed_cq(64).poll_context(PollContext::Softirq).build()?;
    /// let qp = pd.create_qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq()).build()?;
    /// # let peer = pd.create_qp(QpType::Rc).send_cq(cq.cq()).recv_cq(cq.cq()).build()?;
    /// # let (here, there) = (qp.endpoint(), peer.endpoint());
    /// # let (qp, _peer) = (qp.connect(&there)?, peer.connect(&here)?);
    /// let (tell, done) = std::sync::mpsc::channel();
    /// let sent = cq.register(move |_, wc| tell.send(wc.status()).unwrap_or_default())?;
    /// let mut batch = qp.post_send();
    /// batch.nop(sent.wr_id()).signaled();
    /// batch.ring()?;
    /// assert_eq!(done.recv(), Ok(srdma_verbs::WcStatus::Success));
    /// // Nothing is outstanding afterwards, and every closure has run.
    /// qp.drain()?;
    /// # Ok(()) }
    /// ```
    // rule: mcq-3
    pub fn register(
        &self,
        done: impl Fn(&Self, &Completion) + Send + Sync + 'static,
    ) -> Result<WrCqe> {
        let callbacks = &self.inner.callbacks;
        callbacks
            .add(Arc::new(done))
            .ok_or_else(|| Reason::Exhausted.of("register"))
    }

    /// Handles at most `budget` completions on this thread, all that are there if `None`, and says
    /// how many there were. [`PollContext::Direct`] only.
    ///
    /// None while another thread, or a closure that calls this, is inside.
    pub fn process_direct(&self, budget: Option<usize>) -> Result<usize> {
        if self.inner.context != PollContext::Direct {
            return Err(Reason::Unsupported.of("process_direct"));
        }
        Ok(self.inner.direct(budget.unwrap_or(usize::MAX)))
    }

    /// Puts events off until `count` completions wait for one, or `period` has passed since the
    /// first of them; see [`Cq::moderate_events`]. Not for queues of a pool.
    pub fn moderate_events(&self, count: u16, period: Duration) -> Result<()> {
        self.inner.cq.moderate_events(count, period)
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> CqStats {
        self.inner.counts.read()
    }

    /// The first panic of a closure that nobody has asked for yet, to be resumed or shown.
    #[must_use]
    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.inner.take_panic()
    }

    /// Destroys the queue: waits for the turn that is running, and no closure runs afterwards.
    /// All closures are let go.
    ///
    /// [`Reason::Busy`] while queue pairs use it, and from its own closures;
    /// [`Reason::Unsupported`] of a queue of a pool. Then nothing happens.
    // rule: mcq-7
    pub fn destroy(&self) -> Result<()> {
        const VERB: &str = "destroy_managed_cq";
        let inner = &self.inner;
        if inner.cq.inner.is_pooled() {
            return Err(Reason::Unsupported.of(VERB));
        }
        if inner.cq.has_users() || !inner.poller.gate.close() {
            return Err(Reason::Busy.of(VERB));
        }
        if let Err(error) = inner.cq.destroy_unmanaged() {
            inner.poller.gate.open();
            if let Some(crew) = &inner.crew {
                // What came meanwhile was not listed.
                inner.poller.schedule(&crew.list);
                crew.nudge();
            }
            return Err(error.into_reason().of(VERB));
        }
        inner.callbacks.clear();
        Ok(())
    }
}

impl Drop for ManagedInner {
    fn drop(&mut self) {
        // No turn runs: it would have a handle.
        if let Some(crew) = &self.crew {
            crew.list.discharge();
        }
    }
}

impl PartialEq for ManagedCq {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for ManagedCq {}

impl fmt::Debug for ManagedCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManagedCq({} {:?})", self.cq().id(), self.inner.context)
    }
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Managed")
    }
}

impl Context {
    /// Starts to describe a managed completion queue of at least `entries` entries.
    pub const fn create_managed_cq(&self, entries: u32) -> ManagedCqBuilder<'_> {
        ManagedCqBuilder::new(&self.inner, entries)
    }

    /// The pool of completion queues of this context; the same for everybody while somebody has it.
    #[must_use]
    pub fn cq_pool(&self) -> CqPool {
        let mut pool = lock(&self.inner.pool);
        match pool.upgrade() {
            Some(inner) => CqPool::from_inner(inner),
            None => {
                let fresh = CqPool::create(&self.inner);
                *pool = fresh.downgrade();
                fresh
            }
        }
    }
}
