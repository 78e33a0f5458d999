//! Shared receive queues: receives that several queue pairs take from.
//!
//! ```text
//! post_recv ─► ring ─► taken by whichever queue pair has a message ─► completion in its CQ
//!                └─ fewer than the limit left: one event, then the limit is off   [events 2.4]
//! ```

use crate::cq::Cq;
use crate::driver::alloc::{RingAlloc, RingMem, RingSource};
use crate::driver::ids::lock;
use crate::driver::shared::SrqShared;
use crate::error::{Arg, Reason, Result};
use crate::pd::Pd;
use crate::post_recv::RecvBatch;
use crate::xrc::{NO_SENDS, XrcSrq, Xrcd};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use srdma_core::hw::cqp::{ModifySrq, SrqCmd, SrqRing, XrcHome};
use srdma_core::hw::shadow::SHADOW_WORDS;
use srdma_core::hw::{CqpCmd, SgeList, WqeBuf};
use srdma_core::limits::{MAX_SGE, MAX_SRQ_QUANTA};
use srdma_core::mem::{HostFault, HostWords};
use srdma_core::num::SrqId;
use srdma_core::ring::depth::{max_recv_wr, rq_shift, srq_depth};
use srdma_core::ring::{RqConsumer, RqProducer, SrqShadow};
use srdma_core::trace;
use std::sync::{Arc, Mutex};

/// A shared receive queue.
#[derive(Clone)]
pub struct Srq {
    inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pd: Pd,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) end: Mutex<SrqEnd>,
    max_sge: u32,
    max_wr: AtomicU32,
    limit: AtomicU32,
    source: RingSource,
    users: AtomicUsize,
    xrc: Option<XrcSrq>,
    live: AtomicBool,
}

/// The posting end.
#[derive(Debug)]
pub(crate) struct SrqEnd {
    pub(crate) ring: RqProducer,
    pub(crate) shadow: SrqShadow,
    pub(crate) wqe: WqeBuf,
    pub(crate) sges: SgeList,
    /// From the count of completed entries to the ring's tail.
    base: u32,
    mem: RingMem,
}

impl SrqEnd {
    /// Takes the places of completed entries back.
    pub(crate) fn release(&mut self, shared: &SrqShared) {
        self.ring.release_to(shared.tail().wrapping_add(self.base));
    }
}

/// Sizes and limit of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SrqAttr {
    /// Receives that can be posted.
    pub max_wr: u32,
    /// Scatter entries of one receive.
    pub max_sge: u32,
    /// The limit that is armed; 0 for none.
    pub limit: u32,
}

/// Describes a shared receive queue before it is made.
#[derive(Debug, Clone)]
#[must_use]
pub struct SrqBuilder<'a> {
    pd: &'a Pd,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    source: RingSource,
    xrcd: Option<Xrcd>,
    cq: Option<Cq>,
}

impl Pd {
    /// Starts to describe a shared receive queue for at least `max_wr` receives.
    pub const fn create_srq(&self, max_wr: u32) -> SrqBuilder<'_> {
        SrqBuilder {
            pd: self,
            max_wr,
            max_sge: 1,
            limit: 0,
            source: None,
            xrcd: None,
            cq: None,
        }
    }
}

impl SrqBuilder<'_> {
    /// Scatter entries of one receive, at least.
    pub const fn max_sge(mut self, sges: u32) -> Self {
        self.max_sge = sges;
        self
    }

    /// Tells once when fewer receives are left.
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// The memory of its ring comes from `alloc`.
    pub fn ring_alloc(mut self, alloc: Arc<dyn RingAlloc>) -> Self {
        self.source = Some(alloc);
        self
    }

    /// Makes it a queue for the XRC targets of a domain. Needs [`SrqBuilder::cq`].
    pub fn xrcd(mut self, xrcd: &Xrcd) -> Self {
        self.xrcd = Some(xrcd.clone());
        self
    }

    /// Where receives of an XRC queue complete, whatever target they came through.
    pub fn cq(mut self, cq: &Cq) -> Self {
        self.cq = Some(cq.clone());
        self
    }

    /// Makes it.
    pub fn build(self) -> Result<Srq> {
        self.create().map_err(|reason| reason.of("create_srq"))
    }

    /// What it will hold, its quanta, and the stride of its entries.
    fn sizes(&self) -> core::result::Result<(SrqAttr, u32, u8), Reason> {
        let limit = MAX_SGE as u64;
        if u64::from(self.max_sge) > limit {
            return Err(Reason::Range {
                arg: Arg::RecvSge,
                limit,
            });
        }
        let shift = rq_shift(self.max_sge);
        let limit = u64::from(MAX_SRQ_QUANTA >> shift) - 1;
        let too_long = Reason::Range {
            arg: Arg::RecvWr,
            limit,
        };
        let quanta = match srq_depth(self.max_wr, shift) {
            Some(quanta) if self.max_wr != 0 => quanta,
            _ => return Err(too_long),
        };
        let attr = SrqAttr {
            max_wr: max_recv_wr(quanta, shift),
            max_sge: self.max_sge.max(1),
            limit: self.limit,
        };
        check_limit(self.limit, &attr)?;
        Ok((attr, quanta, shift))
    }

    fn create(self) -> core::result::Result<Srq, Reason> {
        let (attr, quanta, shift) = self.sizes()?;
        let driver = self.pd.driver();
        let wqes = quanta >> shift;
        let len = quanta as usize * 32;
        let records_at = len + 8 * SHADOW_WORDS;
        let mem = RingMem::of(&self.source, &driver.engine, records_at + NO_SENDS)?;
        let bad = |_| Reason::Host(HostFault::OutOfRange);
        let ring = RqProducer::new(mem.words(0, len)?, wqes, shift).map_err(bad)?;
        let shadow = SrqShadow::new(mem.words(len, 8 * SHADOW_WORDS)?).map_err(bad)?;
        let id = driver.ids.srq.take().ok_or(Reason::Exhausted)?;
        let shared = Arc::new(SrqShared::new(SrqId(id), Arc::downgrade(self.pd.ctx())));
        let xrc = match self.join(&shared, mem.words(records_at, NO_SENDS)?) {
            Ok(xrc) => xrc,
            Err(reason) => {
                driver.ids.srq.give(id);
                return Err(reason);
            }
        };
        let cmd = SrqCmd {
            id: SrqId(id),
            pd: self.pd.id(),
            context: xrc
                .as_ref()
                .map_or_else(|| u64::from(id), |xrc| xrc.context),
            wqes,
            shift,
            addr: mem.addr(0),
            shadow_addr: mem.addr(len),
            limit: self.limit,
            xrc: xrc.as_ref().map(|xrc| XrcHome {
                xrcd: xrc.xrcd.id(),
                cq: xrc.cq.id(),
            }),
        };
        if let Err(reason) = driver.exec(&CqpCmd::CreateSrq(cmd)) {
            if let Some(xrc) = &xrc {
                xrc.leave();
            }
            driver.ids.srq.give(id);
            return Err(reason);
        }
        if let Some(xrc) = &xrc {
            xrc.cq.add_user();
        }
        let end = SrqEnd {
            ring,
            shadow,
            wqe: WqeBuf::new(),
            sges: SgeList::EMPTY,
            base: 0,
            mem,
        };
        let inner = Arc::new(SrqInner {
            pd: self.pd.clone(),
            shared,
            end: Mutex::new(end),
            max_sge: attr.max_sge,
            max_wr: AtomicU32::new(attr.max_wr),
            limit: AtomicU32::new(self.limit),
            source: self.source.clone(),
            users: AtomicUsize::new(0),
            xrc,
            live: AtomicBool::new(true),
        });
        let _ = inner.shared.me.set(Arc::downgrade(&inner));
        driver.irq.add_srq(&inner.shared);
        Ok(Srq { inner })
    }
}

impl SrqBuilder<'_> {
    /// What makes it a queue of XRC, if it is to be one.
    fn join(
        &self,
        shared: &Arc<SrqShared>,
        records: HostWords,
    ) -> core::result::Result<Option<XrcSrq>, Reason> {
        match (&self.xrcd, &self.cq) {
            (None, None) => Ok(None),
            (Some(xrcd), Some(cq)) => XrcSrq::join((xrcd, cq), self.pd, shared, records).map(Some),
            _ => Err(Reason::Xrc),
        }
    }
}

impl Srq {
    pub(crate) const fn from_inner(inner: Arc<SrqInner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &SrqInner {
        &self.inner
    }

    /// The number of the queue; initiators of XRC name it in their requests.
    #[must_use]
    pub fn id(&self) -> SrqId {
        self.inner.shared.id
    }

    /// The XRC domain, if it is a queue of one.
    #[must_use]
    pub fn xrcd(&self) -> Option<&Xrcd> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.xrcd)
    }

    /// Where receives of an XRC queue complete; those of others complete where their queue pairs
    /// say.
    #[must_use]
    pub fn cq(&self) -> Option<&Cq> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.cq)
    }

    /// The domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// Starts a batch of receives.
    pub fn post_recv(&self) -> RecvBatch<'_> {
        RecvBatch::shared(&self.inner)
    }

    /// Arms the limit: one event when fewer than `limit` receives are left. 0 takes it back.
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        const VERB: &str = "modify_srq";
        check_limit(limit, &self.query()).map_err(|reason| reason.of(VERB))?;
        let cmd = CqpCmd::ModifySrq(ModifySrq {
            id: self.id(),
            limit,
            ring: None,
        });
        self.inner
            .pd
            .driver()
            .exec(&cmd)
            .map_err(|reason| reason.of(VERB))?;
        self.inner.limit.store(limit, Ordering::Release);
        Ok(())
    }

    /// Makes room for at least `max_wr` receives; those that are posted stay. Refused if they do
    /// not fit, or the limit does not.
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        self.inner
            .resize(self.id(), max_wr)
            .map_err(|reason| reason.of("modify_srq"))
    }

    /// Sizes, and the limit that was armed last.
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.inner.max_wr.load(Ordering::Acquire),
            max_sge: self.inner.max_sge,
            limit: self.inner.limit.load(Ordering::Acquire),
        }
    }

    /// Acknowledges `count` asynchronous events.
    pub fn ack_async_events(&self, count: u32) {
        trace::object(
            trace::Kind::ASYNC_ACK,
            self.inner.shared.id.value(),
            count.into(),
        );
        self.inner.shared.owed.ack(count);
    }

    /// Destroys the queue: [`Reason::Busy`] while queue pairs use it, and nothing happens. Waits
    /// until every event that was fetched is acknowledged. Other handles are dead afterwards.
    pub fn destroy(&self) -> Result<()> {
        if self.inner.users.load(Ordering::Acquire) != 0 {
            return Err(Reason::Busy.of("destroy_srq"));
        }
        self.inner
            .finish()
            .map_err(|reason| reason.of("destroy_srq"))?;
        self.inner.shared.owed.wait();
        Ok(())
    }

    pub(crate) fn is_live(&self) -> bool {
        self.inner.is_live()
    }

    pub(crate) fn add_user(&self) {
        self.inner.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_user(&self) {
        self.inner.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SrqInner {
    fn resize(&self, id: SrqId, max_wr: u32) -> core::result::Result<(), Reason> {
        let shift = rq_shift(self.max_sge);
        let too_long = Reason::Range {
            arg: Arg::RecvWr,
            limit: u64::from(MAX_SRQ_QUANTA >> shift) - 1,
        };
        let quanta = match srq_depth(max_wr, shift) {
            Some(quanta) if max_wr != 0 => quanta,
            _ => return Err(too_long),
        };
        let (wqes, len) = (quanta >> shift, quanta as usize * 32);
        let engine = &self.pd.driver().engine;
        let mem = RingMem::of(&self.source, engine, len + 8 * SHADOW_WORDS)?;
        let bad = |_| Reason::Host(HostFault::OutOfRange);
        // Nobody posts meanwhile.
        let mut end = lock(&self.end);
        let done = self.shared.tail();
        let tail = done.wrapping_add(end.base);
        end.ring.release_to(tail);
        let used = end.ring.used();
        if used >= wqes || self.limit.load(Ordering::Acquire) >= wqes {
            return Err(too_long);
        }
        let ring = SrqRing {
            wqes,
            addr: mem.addr(0),
            shadow_addr: mem.addr(len),
        };
        let (limit, ring) = (0, Some(ring));
        let driver = self.pd.driver();
        driver.exec(&CqpCmd::ModifySrq(ModifySrq { id, limit, ring }))?;
        // What the device found untaken stands at the start of the new ring, and stays there.
        let words = mem.words(0, len)?;
        let mut moved = RqConsumer::new(words.clone(), wqes, shift).map_err(bad)?;
        while moved.index() < wqes - 1 && moved.peek().is_some() {
            moved.advance();
        }
        let filled = moved.index();
        end.ring = RqProducer::resumed(words, wqes, shift, (filled, used)).map_err(bad)?;
        end.shadow = SrqShadow::new(mem.words(len, 8 * SHADOW_WORDS)?).map_err(bad)?;
        end.base = end.ring.tail().wrapping_sub(done);
        end.mem = mem;
        self.max_wr
            .store(max_recv_wr(quanta, shift), Ordering::Release);
        Ok(())
    }

    pub(crate) const fn max_sge(&self) -> u32 {
        self.max_sge
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    fn finish(&self) -> core::result::Result<(), Reason> {
        if !self.live.swap(false, Ordering::AcqRel) {
            return Err(Reason::Destroyed);
        }
        let driver = self.pd.driver();
        if let Err(reason) = driver.exec(&CqpCmd::DestroySrq(self.shared.id)) {
            self.live.store(true, Ordering::Release);
            return Err(reason);
        }
        driver.irq.remove_srq(&self.shared);
        if let Some(xrc) = &self.xrc {
            xrc.leave();
            xrc.cq.remove_user();
        }
        let id = self.shared.id;
        self.pd.ctx().events.purge(|record| record.is_about_srq(id));
        driver.ids.srq.give(id.value());
        Ok(())
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // Already destroyed, or refused by a device that is gone: nothing is left to do.
        let _ = self.finish();
    }
}

impl fmt::Debug for SrqInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Srq({})", self.shared.id)
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

fn check_limit(limit: u32, attr: &SrqAttr) -> core::result::Result<(), Reason> {
    if limit > attr.max_wr {
        return Err(Reason::Range {
            arg: Arg::SrqLimit,
            limit: u64::from(attr.max_wr),
        });
    }
    Ok(())
}
