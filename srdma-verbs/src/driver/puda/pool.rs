//! Buffers of a privileged queue: one region, cut into equal pieces, last given back first used.
//!
//! ```text
//! free + posted for receive + with who holds them + on their way out = all, at any time
//! ```
//!
//! A buffer is a token that cannot be copied, so that it is in one place. What this does not do:
//! wait. An empty pool says so, and counts it.                         [E810 8.1]

use super::super::Driver;
use super::super::alloc::RingMem;
use crate::error::Reason;
use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::{DeallocStag, RegMr, StagKind};
use srdma_core::mem::{Access, HostRange, Sge};
use srdma_core::num::{Lkey, PdId};

/// A buffer, in one place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Buf(u32);

/// The buffers of one queue.
#[derive(Debug)]
pub(super) struct Pool {
    range: HostRange,
    stag: u32,
    pd: PdId,
    size: u32,
    total: u32,
    free: Vec<Buf>,
    /// Times that there was none.
    pub(super) alloc_fail: u64,
    _mem: RingMem,
}

impl Pool {
    /// `total` buffers of `size` bytes each, registered in `pd`.
    pub(super) fn create(
        driver: &Driver,
        pd: PdId,
        (total, size): (u32, u32),
    ) -> Result<Self, Reason> {
        let mem = RingMem::new(&driver.engine, total as usize * size as usize)?;
        let range = mem.range();
        let index = driver.ids.stag.take().ok_or(Reason::Exhausted)?;
        let stag = index << 8 | super::super::random_key();
        let engine = &driver.engine;
        let pbl = engine.with(|hca| hca.host_mut().insert_region(range.clone()));
        let done = driver.exec(&CqpCmd::RegMr(RegMr {
            stag,
            pd,
            va: range.addr(),
            len: range.len() as u64,
            access: Access::LOCAL_WRITE,
            pbl,
        }));
        engine.with(|hca| hca.host_mut().remove_region(pbl));
        if let Err(reason) = done {
            driver.ids.stag.give(index);
            return Err(reason);
        }
        Ok(Self {
            range,
            stag,
            pd,
            size,
            total,
            free: (0..total).rev().map(Buf).collect(),
            alloc_fail: 0,
            _mem: mem,
        })
    }

    /// Gives the region back. The device uses it no more.
    pub(super) fn destroy(&self, driver: &Driver) {
        let _ = driver.exec(&CqpCmd::DeallocStag(DeallocStag {
            stag: self.stag,
            pd: self.pd,
            kind: StagKind::Mr,
        }));
        driver.ids.stag.give(self.stag >> 8);
    }

    /// A buffer, if there is one.
    // rule: puda-1
    pub(super) fn take(&mut self) -> Option<Buf> {
        let buf = self.free.pop();
        self.alloc_fail += u64::from(buf.is_none());
        buf
    }

    /// Gives a buffer back.
    pub(super) fn put(&mut self, buf: Buf) {
        debug_assert!(self.free.len() < self.total as usize, "more than there are");
        self.free.push(buf);
    }

    /// Buffers that can be taken.
    pub(super) const fn available(&self) -> usize {
        self.free.len()
    }

    /// Buffers there are.
    pub(super) const fn total(&self) -> usize {
        self.total as usize
    }

    /// Bytes of a buffer.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    fn offset(&self, buf: &Buf, at: usize) -> usize {
        buf.0 as usize * self.size as usize + at
    }

    /// Bytes `at..at + len` of a buffer, for a WQE.
    pub(super) fn sge(&self, buf: &Buf, at: usize, len: u32) -> Sge {
        Sge {
            addr: self.range.addr() + self.offset(buf, at) as u64,
            len,
            lkey: Lkey(self.stag),
        }
    }

    /// Puts bytes into a buffer.
    pub(super) fn write(&self, buf: &Buf, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.size as usize, "longer than a buffer");
        // Cut at the end of the region at worst, which the length above excludes.
        let _ = self.range.write(self.offset(buf, 0), bytes);
    }

    /// Fills `bytes` from `at` on.
    pub(super) fn read(&self, buf: &Buf, at: usize, bytes: &mut [u8]) {
        debug_assert!(at + bytes.len() <= self.size as usize, "beyond a buffer");
        let _ = self.range.read(self.offset(buf, at), bytes);
    }
}
