//! Completion queues: poll, arm, resize.
//!
//! ```text
//! poll    entry there ─► completion         nothing ─► run a pass of the device, look once more
//! arm     asks for one event on the channel; what is there already gives none
//! ```
//!
//! The thread that polls runs the device if nobody else does, so a completion is read by the thread
//! that received its packet. What entries mean: `driver::reap`.

use crate::channel::CompChannel;
use crate::context::{Context, ContextInner};
use crate::driver::alloc::{RingAlloc, RingMem, RingSource};
use crate::driver::ids::lock;
use crate::driver::reap::Reaper;
use crate::driver::shared::{CqShared, Handler};
use crate::error::{Arg, Reason, Result};
use crate::managed_cq::Managed;
use crate::wc::{Completion, Wc};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;
use srdma_core::hw::dialect::Arming;
use srdma_core::num::CqId;
use srdma_core::obj::notify::Moderation;
use srdma_core::trace::{self, Kind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Entries that a completion queue can have. Each may take two slots, and their memory comes when
/// they are written first.
pub const MAX_CQE: u32 = 4 << 20;
const _: () = assert!(2 * MAX_CQE + 2 <= srdma_core::limits::MAX_CQE);

/// A completion queue.
#[derive(Clone)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) ctx: Arc<ContextInner>,
    pub(crate) shared: Arc<CqShared>,
    pub(crate) state: Mutex<CqState>,
    pub(crate) shadow: RingMem,
    pub(crate) source: RingSource,
    pub(crate) users: AtomicUsize,
    pub(crate) entries: AtomicU32,
    pub(crate) comp_vector: u16,
    pub(crate) timestamps: bool,
    pub(crate) ignore_overrun: bool,
    pub(crate) live: AtomicBool,
    /// Callbacks serve it.
    pub(crate) managed: OnceLock<Managed>,
}

/// What the lock of a completion queue guards.
pub(crate) struct CqState {
    pub(crate) reaper: Reaper,
    pub(crate) arm: Arming,
    pub(crate) mem: RingMem,
}

/// Describes a completion queue before it is made.
#[derive(Debug)]
#[must_use]
pub struct CqBuilder<'a> {
    ctx: &'a Context,
    entries: u32,
    channel: Option<CompChannel>,
    comp_vector: u16,
    source: RingSource,
    timestamps: bool,
    ignore_overrun: bool,
}

/// What a completion queue is made with, beside its size.
#[derive(Debug, Default)]
pub(crate) struct CqOptions {
    pub(crate) channel: Option<CompChannel>,
    pub(crate) handler: Option<Handler>,
    pub(crate) comp_vector: u16,
    pub(crate) source: RingSource,
    pub(crate) timestamps: bool,
    pub(crate) ignore_overrun: bool,
}

impl<'a> CqBuilder<'a> {
    pub(crate) const fn new(ctx: &'a Context, entries: u32) -> Self {
        Self {
            ctx,
            entries,
            channel: None,
            comp_vector: 0,
            source: None,
            timestamps: false,
            ignore_overrun: false,
        }
    }

    /// Its events go to `channel`.
    pub fn on_channel(mut self, channel: &CompChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Its events come through this completion vector.
    pub const fn comp_vector(mut self, vector: u16) -> Self {
        self.comp_vector = vector;
        self
    }

    /// The memory of its ring comes from `alloc`, also after a resize.
    pub fn ring_alloc(mut self, alloc: Arc<dyn RingAlloc>) -> Self {
        self.source = Some(alloc);
        self
    }

    /// Completions say when they came: [`Completion::timestamp`].
    pub const fn timestamps(mut self) -> Self {
        self.timestamps = true;
        self
    }

    /// Completions that find no room overwrite old ones, for a program that knows that none will.
    pub const fn ignore_overrun(mut self) -> Self {
        self.ignore_overrun = true;
        self
    }

    /// Makes it.
    pub fn build(self) -> Result<Cq> {
        let options = CqOptions {
            channel: self.channel,
            handler: None,
            comp_vector: self.comp_vector,
            source: self.source,
            timestamps: self.timestamps,
            ignore_overrun: self.ignore_overrun,
        };
        Cq::create(&self.ctx.inner, self.entries, options).map_err(|reason| reason.of("create_cq"))
    }
}

impl Cq {
    pub(crate) const fn from_inner(inner: Arc<CqInner>) -> Self {
        Self { inner }
    }

    /// The number of the queue.
    #[must_use]
    pub fn id(&self) -> CqId {
        self.inner.shared.id
    }

    /// Entries that it was made for, or resized to.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.inner.entries.load(Ordering::Acquire)
    }

    /// Starts to poll. Holds the queue until the result is dropped.
    ///
    /// ```
    /// # fn main() -> srdma_verbs::Result<()> {
    /// # let ctx = srdma_verbs::DeviceConfig::doc_test()?.open()?;
    /// let cq = ctx.create_cq(16).build()?;
    /// let mut done = cq.poll();
    /// while let Some(wc) = done.next() {
    ///     println!("{:?} {}", wc.wr_id(), wc.status());
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn poll(&self) -> Poll<'_> {
        Poll {
            state: lock(&self.inner.state),
            cq: &self.inner,
            driven: false,
            took: 0,
            done: Completion::EMPTY,
        }
    }

    /// Fills `completions` from the front, and says how many there were.
    pub fn poll_into(&self, completions: &mut [Completion]) -> usize {
        let mut poll = self.poll();
        let mut count = 0;
        for place in completions {
            if !poll.next_into(place) {
                break;
            }
            count += 1;
        }
        count
    }

    /// Asks for one event on the channel at the next completion; with `solicited_only`, at the next
    /// one whose sender asked for it or that failed.
    ///
    /// Completions that are in the queue already give no event: poll once more afterwards. A weaker
    /// request never takes a stronger one back.                       [events 1.5]
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        if !self.inner.live.load(Ordering::Acquire) {
            return Err(Reason::Destroyed.of("arm"));
        }
        if !self.inner.shared.is_heard() {
            // There is nobody to tell.
            // rule: event-25
            return Ok(());
        }
        let mut state = lock(&self.inner.state);
        state
            .arm
            .told(self.inner.shared.told.swap(0, Ordering::AcqRel));
        let ring = state.arm.ask(solicited_only);
        if ring {
            self.write_arm(&state, solicited_only);
        }
        drop(state);
        if ring {
            self.inner.ring_arm();
        }
        Ok(())
    }

    fn write_arm(&self, state: &CqState, solicited_only: bool) {
        let id = self.inner.shared.id;
        let ring = &state.reaper.ring;
        ring.ask(id.value(), &state.arm, solicited_only);
        if trace::on() {
            let shadow = ring.shadow();
            self.inner.ctx.driver.engine.enter_trace();
            trace::arm(shadow.dialect(), id, shadow.arm_bits());
        }
    }

    /// The program fetched an event.                      [E810 3.10; events 4.5]
    pub(crate) fn on_event_fetched(&self) {
        self.record(Kind::EVENT, 0);
        let mut state = lock(&self.inner.state);
        let again = if self.inner.shared.handler.is_some() {
            // It was counted when the handler was told.
            state.arm.noticed()
        } else {
            state.arm.fetched()
        };
        if again {
            self.write_arm(&state, false);
        }
        drop(state);
        if again {
            self.inner.ring_arm();
        }
    }

    /// Acknowledges `count` completion events. Dropping a [`crate::CompEvent`] does it for one.
    pub fn ack_events(&self, count: u32) {
        self.record(Kind::ACK, count);
        self.inner.shared.owed.ack(count);
    }

    /// Shows who looks on what the program does with events.
    #[inline]
    fn record(&self, kind: Kind, count: u32) {
        if trace::on() {
            self.inner.ctx.driver.engine.enter_trace();
            trace::object(kind, self.inner.shared.id.value(), count.into());
        }
    }

    /// Acknowledges `count` asynchronous events.
    pub fn ack_async_events(&self, count: u32) {
        self.record(Kind::ASYNC_ACK, count);
        self.inner.shared.owed_async.ack(count);
    }

    /// Entries that wait to be polled, after a pass of the device. One that stands for a flushed
    /// queue counts once.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.inner.ctx.driver.engine.with(|_| ());
        lock(&self.inner.state).reaper.ring.pending()
    }

    /// Makes room for `entries` completions. Those in the queue stay, and are polled first; fewer
    /// than there are is refused.
    pub fn resize(&self, entries: u32) -> Result<()> {
        if self.inner.is_pooled() {
            return Err(Reason::Unsupported.of("resize_cq"));
        }
        self.inner
            .resize(entries)
            .map_err(|reason| reason.of("resize_cq"))
    }

    /// Events of the completion vector come no closer together than `period`; zero for at once.
    /// All queues of the vector share this. The first event after a quiet time is never delayed.
    pub fn moderate(&self, period: Duration) -> Result<()> {
        const LIMIT: u64 = 8160;
        let range = || {
            Reason::Range {
                arg: Arg::Moderation,
                limit: LIMIT,
            }
            .of("modify_cq")
        };
        let nanos = u32::try_from(period.as_nanos()).map_err(|_| range())?;
        if u64::from(nanos) > LIMIT * 1000 {
            return Err(range());
        }
        let driver = &self.inner.ctx.driver;
        let vector = driver.msix_of(self.inner.comp_vector);
        driver.moderate(vector, nanos);
        Ok(())
    }

    /// Puts events of this queue off until `count` completions wait for one (0 for any number), or
    /// `period` has passed since the first of them; a period of zero for not at all. Solicited
    /// completions and errors do not wait.                            [events 1.9]
    // rule: event-38
    pub fn moderate_events(&self, count: u16, period: Duration) -> Result<()> {
        if self.inner.is_pooled() {
            return Err(Reason::Unsupported.of("modify_cq"));
        }
        self.set_moderation(count, period)
    }

    pub(crate) fn set_moderation(&self, count: u16, period: Duration) -> Result<()> {
        const VERB: &str = "modify_cq";
        let range = Reason::Range {
            arg: Arg::Moderation,
            limit: u64::from(u32::MAX) / 1000,
        };
        let Ok(period_ns) = u32::try_from(period.as_nanos()) else {
            return Err(range.of(VERB));
        };
        let (id, moderation) = (self.id(), Moderation { count, period_ns });
        let engine = &self.inner.ctx.driver.engine;
        if self.is_live() && engine.with(|hca| hca.moderate_cq(id, moderation)) {
            Ok(())
        } else {
            Err(Reason::Destroyed.of(VERB))
        }
    }

    /// Destroys the queue: [`Reason::Busy`] while queue pairs use it, and nothing happens. Waits
    /// until every event that was fetched is acknowledged. Other handles are dead afterwards.
    ///
    /// [`Reason::Unsupported`] of a queue that callbacks serve: see [`crate::ManagedCq::destroy`].
    pub fn destroy(&self) -> Result<()> {
        // rule: mcq-17
        if self.inner.managed.get().is_some() {
            return Err(Reason::Unsupported.of("destroy_cq"));
        }
        self.destroy_unmanaged()
    }

    // rule: event-27
    pub(crate) fn has_users(&self) -> bool {
        self.inner.users.load(Ordering::Acquire) != 0
    }

    pub(crate) fn destroy_unmanaged(&self) -> Result<()> {
        if self.has_users() {
            return Err(Reason::Busy.of("destroy_cq"));
        }
        self.inner.end().map_err(|reason| reason.of("destroy_cq"))?;
        self.inner.shared.owed.wait();
        self.inner.shared.owed_async.wait();
        Ok(())
    }

    pub(crate) fn ctx(&self) -> &Arc<ContextInner> {
        &self.inner.ctx
    }

    pub(crate) fn is_live(&self) -> bool {
        self.inner.live.load(Ordering::Acquire)
    }

    /// What the lock guards; not to be held while events are handled.
    pub(crate) fn state(&self) -> MutexGuard<'_, CqState> {
        lock(&self.inner.state)
    }

    pub(crate) fn add_user(&self) {
        self.inner.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_user(&self) {
        self.inner.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for CqInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cq({})", self.shared.id)
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Cq {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Cq {}

/// A completion queue being polled.
#[must_use = "polling finds nothing unless `next` is called"]
pub struct Poll<'a> {
    state: MutexGuard<'a, CqState>,
    cq: &'a CqInner,
    driven: bool,
    /// Completions so far.
    took: u32,
    /// What was found last, and is lent.
    done: Completion,
}

impl Poll<'_> {
    /// The next completion, lent until the next call.
    ///
    /// Cost: one load if there is none; the first time, also a pass of the device, unless another
    /// thread runs it.
    #[allow(clippy::should_implement_trait, reason = "lends, unlike an iterator")]
    #[inline]
    pub fn next(&mut self) -> Option<Wc<'_>> {
        if self.state.reaper.next_into(&mut self.done)
            || self.drive() && self.state.reaper.next_into(&mut self.done)
        {
            self.took += 1;
            return Some(Wc::new(&mut self.done));
        }
        None
    }

    /// Writes the next completion to `place`; false if there is none.
    #[inline]
    fn next_into(&mut self, place: &mut Completion) -> bool {
        let took = self.state.reaper.next_into(place)
            || self.drive() && self.state.reaper.next_into(place);
        self.took += u32::from(took);
        took
    }

    /// Runs a pass of the device, the first time: false if there was one already.
    fn drive(&mut self) -> bool {
        if self.driven {
            return false;
        }
        self.driven = true;
        // Who polls an armed queue is about to sleep on it.
        if self.state.arm.is_armed() {
            self.cq.ctx.driver.engine.drive_arming();
        } else {
            self.cq.ctx.driver.engine.drive_polling();
        }
        true
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        // Without one, there was a pass.
        if self.took != 0 {
            self.cq.ctx.driver.engine.took(self.took);
        }
    }
}

impl fmt::Debug for Poll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poll({:?})", self.cq)
    }
}
