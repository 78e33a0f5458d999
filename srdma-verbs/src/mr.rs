//! Regions: memory under a key, owned or promised, reached by volatile copies.
//!
//! ```text
//! Buffer ── Pd::register ──► Mr { lkey, rkey, addr, len }
//!                             │ read, write, load, store     copies and atomics, never slices
//!                             │ sge(range)                   for work requests
//!                             ▼ drop, dereg                  key is dead, memory given back
//! ```
//!
//! What this does *not* do: check ranges of scatter/gather entries. The device does, and answers
//! with a completion.

use crate::buffer::{Buffer, IntoBuffer};
use crate::dm::DmUse;
use crate::driver::Driver;
use crate::driver::alloc::program_range;
use crate::error::{Reason, Result};
use crate::pd::Pd;
use core::ops::{Bound, RangeBounds};
use core::sync::atomic::Ordering;
use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::{DeallocStag, RegMr, StagKind};
use srdma_core::mem::{Access, HostRange, Nowhere, Sge};
use srdma_core::num::{Lkey, Rkey};
use std::sync::Arc;

/// Bytes that a region can have: what an address can count.
pub const MAX_MR_BYTES: u64 = 1 << 63;

/// A registered region.
#[derive(Debug)]
pub struct Mr {
    pub(crate) pd: Pd,
    pub(crate) range: HostRange,
    stag: u32,
    va: u64,
    access: Access,
    /// The device knows the key.
    live: bool,
    /// The index is ours.
    held: bool,
    /// What it is a part of, if that is device memory.
    pub(crate) dm: Option<DmUse>,
}

/// What [`Mr::rereg`] changes; what is not set stays.
#[derive(Debug, Default, Clone)]
pub struct Rereg {
    pd: Option<Pd>,
    access: Option<Access>,
    pub(crate) memory: Option<(HostRange, u64)>,
    keep_key: bool,
}

impl Rereg {
    /// Changes nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the region to another domain of the same device.
    #[must_use]
    pub fn pd(mut self, pd: &Pd) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// Changes the rights.
    #[must_use]
    pub const fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Lets the region keep its keys, for peers that cannot be told of others.
    #[must_use]
    pub const fn keep_key(mut self) -> Self {
        self.keep_key = true;
        self
    }

    /// Changes the memory; the address is the new buffer's.
    #[must_use]
    pub fn buffer(mut self, buffer: &Buffer) -> Self {
        self.memory = Some((buffer.range.clone(), buffer.range.addr()));
        self
    }
}

impl Mr {
    /// Registers `range` in `pd`. `va` is the address that peers and work requests know it by.
    pub(crate) fn create(pd: &Pd, range: HostRange, va: u64, access: Access) -> Result<Self> {
        const VERB: &str = "register";
        let driver = pd.driver();
        let index = driver
            .ids
            .stag
            .take()
            .ok_or_else(|| Reason::Exhausted.of(VERB))?;
        let stag = index << 8 | crate::driver::random_key();
        let va = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            va
        };
        match register(driver, pd, &range, stag, va, access) {
            Ok(()) => Ok(Self {
                pd: pd.clone(),
                range,
                stag,
                va,
                access,
                live: true,
                held: true,
                dm: None,
            }),
            Err(reason) => {
                driver.ids.stag.give(index);
                Err(reason.of(VERB))
            }
        }
    }

    /// The local key.
    #[must_use]
    pub const fn lkey(&self) -> Lkey {
        Lkey(self.stag)
    }

    /// The remote key. It opens what the rights of the region allow.
    #[must_use]
    pub const fn rkey(&self) -> Rkey {
        Rkey(self.stag)
    }

    /// The address of the first byte, as peers and work requests name it.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.va
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.range.len()
    }

    /// True for a region of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The rights.
    #[must_use]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The domain.
    #[must_use]
    pub const fn pd(&self) -> &Pd {
        &self.pd
    }

    /// A scatter/gather entry for the bytes `range` of this region.
    ///
    /// A range that leaves the region gives an entry that the device refuses with
    /// [`crate::WcStatus::LocProtErr`].
    #[must_use]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len(),
        };
        Sge {
            addr: self.va.wrapping_add(start as u64),
            len: u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX),
            lkey: self.lkey(),
        }
    }

    /// Copies `bytes` into the region at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.range
            .write(offset, bytes)
            .map_err(|fault| Reason::Host(fault).of("mr write"))
    }

    /// Fills `bytes` from the region at `offset`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.range
            .read(offset, bytes)
            .map_err(|fault| Reason::Host(fault).of("mr read"))
    }

    /// A copy of `len` bytes at `offset`.
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.min(self.len())];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Loads the aligned 64-bit word at `offset`, in one piece, in the host's byte order.
    pub fn load(&self, offset: usize, order: Ordering) -> Result<u64> {
        self.word("mr load", offset, |word| word.load(order))
    }

    /// Stores the aligned 64-bit word at `offset`, in one piece, in the host's byte order.
    pub fn store(&self, offset: usize, value: u64, order: Ordering) -> Result<()> {
        self.word("mr store", offset, |word| word.store(value, order))
    }

    fn word<R>(
        &self,
        verb: &'static str,
        offset: usize,
        f: impl FnOnce(&core::sync::atomic::AtomicU64) -> R,
    ) -> Result<R> {
        let span = self
            .range
            .span(offset, 8)
            .map_err(|fault| Reason::Host(fault).of(verb))?;
        let misaligned = || Reason::Host(srdma_core::mem::HostFault::Misaligned).of(verb);
        Ok(f(span.atomic().ok_or_else(misaligned)?))
    }

    /// Changes domain, rights or memory. The key byte changes, so earlier keys are dead, unless
    /// [`Rereg::keep_key`] says otherwise.
    ///
    /// This is a deregistration and a registration under the same index. If the second is refused,
    /// the region is gone, and every later use of it fails.
    pub fn rereg(&mut self, change: Rereg) -> Result<()> {
        const VERB: &str = "rereg_mr";
        let pd = change.pd.unwrap_or_else(|| self.pd.clone());
        if !pd.same_device(&self.pd) {
            return Err(Reason::Foreign.of(VERB));
        }
        let access = change.access.unwrap_or(self.access);
        let moved = change.memory.is_some();
        let (range, va) = match change.memory {
            Some((promised, va)) => (program_range(&promised, access), va),
            // What is asked for at every use is asked for from here on as well.
            None if self.range.is_paged() => (Ok(self.range.clone()), self.va),
            None => (program_range(&self.range, access), self.va),
        };
        let range = range.map_err(|reason| reason.of(VERB))?;
        self.release().map_err(|reason| reason.of(VERB))?;
        let va = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            va
        };
        let next = u32::from(!change.keep_key);
        let stag = (self.stag & !0xff) | (self.stag.wrapping_add(next) & 0xff);
        register(pd.driver(), &pd, &range, stag, va, access).map_err(|reason| reason.of(VERB))?;
        (self.pd, self.range, self.stag, self.va, self.access) = (pd, range, stag, va, access);
        self.live = true;
        if moved {
            self.dm = None;
        }
        Ok(())
    }

    /// False after a [`Self::rereg`] that took the region away.
    #[must_use]
    pub const fn is_registered(&self) -> bool {
        self.live
    }

    /// Deregisters. Fails while windows are bound to the region, and then it stays registered
    /// (for good: the handle is gone).
    pub fn dereg(mut self) -> Result<()> {
        self.end().map_err(|reason| reason.of("dereg_mr"))
    }

    /// As [`Self::dereg`], but a region that windows are bound to is still there afterwards.
    pub fn try_dereg(&mut self) -> Result<()> {
        self.end().map_err(|reason| reason.of("dereg_mr"))
    }

    fn end(&mut self) -> core::result::Result<(), Reason> {
        if self.live {
            self.release()?;
        }
        if core::mem::take(&mut self.held) {
            self.pd.driver().ids.stag.give(self.stag >> 8);
        }
        Ok(())
    }

    /// Takes the key away from the device.
    fn release(&mut self) -> core::result::Result<(), Reason> {
        if !self.live {
            return Err(Reason::Destroyed);
        }
        let stag = DeallocStag {
            stag: self.stag,
            pd: self.pd.id(),
            kind: StagKind::Mr,
        };
        self.pd.driver().exec(&CqpCmd::DeallocStag(stag))?;
        self.live = false;
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // Refused while windows are bound: the device keeps the memory alive then.
        let _ = self.end();
    }
}

/// Makes the device know the memory under a key.
fn register(
    driver: &Driver,
    pd: &Pd,
    range: &HostRange,
    stag: u32,
    va: u64,
    access: Access,
) -> core::result::Result<(), Reason> {
    access.check()?;
    let len = range.len() as u64;
    let pbl = driver
        .engine
        .with(|hca| hca.host_mut().insert_region(range.clone()));
    let cmd = RegMr {
        stag,
        pd: pd.id(),
        va,
        len,
        access,
        pbl,
    };
    let done = driver.exec(&CqpCmd::RegMr(cmd));
    // The device holds the memory by itself from here on, or not at all.
    driver.engine.with(|hca| hca.host_mut().remove_region(pbl));
    done.map(|_| ())
}

impl Pd {
    /// Registers memory: a [`Buffer`], or bytes to be copied into one.
    ///
    /// ```
    /// # use srdma_verbs::Access;
    /// # fn main() -> srdma_verbs::Result<()> {
    /// # let ctx = srdma_verbs::DeviceConfig::doc_test()?.open()?;
    /// let pd = ctx.alloc_pd()?;
    /// let mr = pd.register(vec![7; 100], Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// assert_eq!(mr.to_vec(98, 2)?, [7, 7]);
    /// # Ok(()) }
    /// ```
    pub fn register(&self, memory: impl IntoBuffer, access: Access) -> Result<Mr> {
        let range = memory.into_buffer()?.range;
        let va = range.addr();
        Mr::create(self, range, va, access)
    }

    /// A region of the largest length that is nowhere: what is sent from it is zeros, what is
    /// received into it is forgotten. For parts of messages that nobody wants; local use only.
    pub fn alloc_null_mr(&self) -> Result<Mr> {
        let range = HostRange::paged(0, usize::MAX, Arc::new(Nowhere::default()));
        Mr::create(self, range, 0, Access::LOCAL_WRITE)
    }

    /// As [`Self::register`], but peers and work requests know the first byte as `va`.
    pub fn register_at(&self, memory: impl IntoBuffer, va: u64, access: Access) -> Result<Mr> {
        Mr::create(self, memory.into_buffer()?.range, va, access)
    }
}
