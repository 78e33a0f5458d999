//! The life of a completion queue: its ring in memory, its number, its end.
//!
//! ```text
//! create ─► CREATE_CQ ─► live ─ resize: MODIFY_CQ, old buffers are read first ─► DESTROY_CQ
//! ```
//!
//! After the device destroyed a queue, its entries in event queues and its undelivered events are
//! taken out, so that nobody hears of it again.                     [events 1.7]

use crate::context::ContextInner;
use crate::cq::{Cq, CqInner, CqOptions, CqState, MAX_CQE};
use crate::driver::alloc::RingMem;
use crate::driver::engine::Doorbell;
use crate::driver::fifo::Owed;
use crate::driver::ids::lock;
use crate::driver::reap::Reaper;
use crate::driver::shared::CqShared;
use crate::error::{Arg, Reason};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use srdma_core::hw::cqp::CqCmd;
use srdma_core::hw::dialect::Arming;
use srdma_core::hw::shadow::SHADOW_WORDS;
use srdma_core::hw::{CqpCmd, Dialect};
use srdma_core::mem::HostFault;
use srdma_core::num::{CeqId, CqId};
use srdma_core::ring::{CqConsumer, CqShadow};
use std::sync::{Arc, Mutex, OnceLock};

impl Cq {
    pub(crate) fn create(
        ctx: &Arc<ContextInner>,
        entries: u32,
        options: CqOptions,
    ) -> Result<Self, Reason> {
        let driver = &ctx.driver;
        let dialect = driver.dialect;
        let slots = slots_for(dialect, entries)?;
        let slot = dialect.cq_slot_bytes(false);
        let comp_vector = options.comp_vector;
        // rule: event-26
        if comp_vector >= driver.comp_vectors() {
            let limit = u64::from(driver.comp_vectors()).saturating_sub(1);
            return Err(Reason::Range {
                arg: Arg::CompVector,
                limit,
            });
        }
        let mem = RingMem::of(&options.source, &driver.engine, slots as usize * slot)?;
        let shadow = RingMem::small(&driver.engine, 8 * SHADOW_WORDS)?;
        let ring = consumer(dialect, &mem, slots, &shadow)?;
        let id = driver.ids.cq.take().ok_or(Reason::Exhausted)?;
        let channel = options.channel.map(|channel| channel.inner);
        let shared = Arc::new(CqShared {
            id: CqId(id),
            cookie: driver.cookie(CqId(id)),
            channel,
            handler: options.handler,
            ctx: Arc::downgrade(ctx),
            told: AtomicU8::new(0),
            owed: Owed::default(),
            owed_async: Owed::default(),
            me: OnceLock::new(),
        });
        let inner = Arc::new(CqInner {
            ctx: Arc::clone(ctx),
            shared,
            state: Mutex::new(CqState {
                reaper: Reaper::new(ring),
                arm: Arming::new(dialect),
                mem,
            }),
            shadow,
            source: options.source,
            users: AtomicUsize::new(0),
            entries: AtomicU32::new(entries),
            comp_vector,
            timestamps: options.timestamps,
            ignore_overrun: options.ignore_overrun,
            live: AtomicBool::new(false),
            managed: OnceLock::new(),
        });
        let cmd = inner.command(&lock(&inner.state).mem, slots);
        driver.irq.add_cq(&inner.shared);
        if let Err(reason) = driver.exec(&CqpCmd::CreateCq(cmd)) {
            driver.irq.remove_cq(inner.shared.cookie);
            driver.ids.cq.give(id);
            return Err(reason);
        }
        let _ = inner.shared.me.set(Arc::downgrade(&inner));
        if let Some(channel) = &inner.shared.channel {
            // Room for an event of each queue, so that handlers do not allocate.
            let cqs = channel.cqs.fetch_add(1, Ordering::AcqRel) + 1;
            channel.fifo.reserve(2 * cqs);
        }
        inner.live.store(true, Ordering::Release);
        Ok(Self::from_inner(inner))
    }
}

impl CqInner {
    fn command(&self, mem: &RingMem, slots: u32) -> CqCmd {
        // Without a channel or handler nobody wants to hear of completions.
        let ceq = self.shared.is_heard().then_some(CeqId(self.comp_vector));
        CqCmd {
            id: self.shared.id,
            ceq,
            cookie: self.shared.cookie,
            size: slots,
            threshold: (slots / 2).min(0x3_ffff),
            addr: mem.addr(0),
            shadow_addr: self.shadow.addr(0),
            check_overflow: !self.ignore_overrun,
            wide: false,
            timestamps: self.timestamps,
        }
    }

    /// Makes the device see an arm before this returns: a completion that comes later raises the
    /// event, one that came earlier is there for the next poll.
    pub(crate) fn ring_arm(&self) {
        let engine = &self.ctx.driver.engine;
        engine.ring(Doorbell::Cq(self.shared.id));
        if !engine.drive_arming() {
            engine.with(|_| ());
        }
        // Who waits on the channel itself serves the device there.
        if self
            .shared
            .channel
            .as_ref()
            .is_some_and(|channel| channel.sleeps_elsewhere())
        {
            engine.hand_over();
        }
    }

    /// Several users share it, so none may change it.
    pub(crate) fn is_pooled(&self) -> bool {
        self.managed.get().is_some_and(|managed| managed.pooled)
    }

    pub(crate) fn resize(&self, entries: u32) -> Result<(), Reason> {
        if !self.live.load(Ordering::Acquire) {
            return Err(Reason::Destroyed);
        }
        let driver = &self.ctx.driver;
        let dialect = driver.dialect;
        let slots = slots_for(dialect, entries)?;
        let len = slots as usize * dialect.cq_slot_bytes(false);
        let mem = RingMem::of(&self.source, &driver.engine, len)?;
        let words = mem.words(0, len)?;
        let mut state = lock(&self.state);
        if entries < state.reaper.ring.pending() {
            return Err(Reason::Range {
                arg: Arg::Cqe,
                limit: u64::from(MAX_CQE),
            });
        }
        driver.exec(&CqpCmd::ModifyCq(self.command(&mem, slots)))?;
        state
            .reaper
            .ring
            .resize(words, slots)
            .map_err(|_| HostFault::OutOfRange)?;
        // Old buffers are kept alive by the reading end until they are read.
        state.mem = mem;
        self.entries.store(entries, Ordering::Release);
        Ok(())
    }

    // rule: event-30
    pub(crate) fn end(&self) -> Result<(), Reason> {
        if !self.live.swap(false, Ordering::AcqRel) {
            return Err(Reason::Destroyed);
        }
        let driver = &self.ctx.driver;
        if let Err(reason) = driver.exec(&CqpCmd::DestroyCq(self.shared.id)) {
            self.live.store(true, Ordering::Release);
            return Err(reason);
        }
        driver.irq.remove_cq(self.shared.cookie);
        let cookie = self.shared.cookie;
        if let Some(channel) = &self.shared.channel {
            channel.fifo.purge(|record| record.cookie == cookie);
            channel.cqs.fetch_sub(1, Ordering::AcqRel);
        }
        self.ctx.events.purge(|record| record.is_about_cq(cookie));
        driver.ids.cq.give(self.shared.id.value());
        Ok(())
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        // Already destroyed, or refused by a device that is gone: nothing is left to do.
        let _ = self.end();
    }
}

fn slots_for(dialect: Dialect, entries: u32) -> Result<u32, Reason> {
    let range = Reason::Range {
        arg: Arg::Cqe,
        limit: u64::from(MAX_CQE),
    };
    if entries == 0 || entries > MAX_CQE {
        return Err(range);
    }
    dialect.cq_slots(entries).ok_or(range)
}

fn consumer(
    dialect: Dialect,
    mem: &RingMem,
    slots: u32,
    shadow: &RingMem,
) -> Result<CqConsumer, Reason> {
    let words = mem.words(0, slots as usize * dialect.cq_slot_bytes(false))?;
    let shadow = shadow.words(0, 8 * SHADOW_WORDS)?;
    let ring = CqShadow::speaking(dialect, shadow)
        .and_then(|shadow| CqConsumer::new(words, slots, false, shadow));
    // Sizes were chosen above; a fault would be one of memory.
    ring.map_err(|_| Reason::Host(HostFault::OutOfRange))
}
