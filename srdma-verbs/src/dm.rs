//! Device memory: a buffer of the device, reached by copies and by regions over parts of it.
//!
//! ```text
//! Context::alloc_dm ─► Dm ─ read, write ─ Pd::register_dm ─► Mr, which counts its addresses from 0
//! ```
//!
//! A device in software has no memory apart, so it lies in the process, and is given out up to
//! [`MAX_DM_BYTES`] a device.

use crate::context::{Context, ContextInner};
use crate::driver::ids::lock;
use crate::error::{Arg, Reason, Result};
use crate::mr::Mr;
use crate::pd::Pd;
use core::sync::atomic::{AtomicUsize, Ordering};
use srdma_core::mem::{Access, HostBuf, HostRange};
use std::sync::Arc;

/// Bytes of device memory that a device gives out.
pub const MAX_DM_BYTES: u64 = 16 << 20;
/// Offsets and lengths of copies are multiples of this.
const UNIT: u64 = 4;
/// Logarithm of the strictest alignment that can be asked for: a page.
const MAX_LOG_ALIGN: u32 = 12;

/// Device memory.
#[derive(Clone, Debug)]
pub struct Dm {
    inner: Arc<DmInner>,
}

#[derive(Debug)]
pub(crate) struct DmInner {
    ctx: Arc<ContextInner>,
    range: HostRange,
    users: AtomicUsize,
}

/// A region's hold on device memory.
#[derive(Debug)]
pub(crate) struct DmUse(Arc<DmInner>);

impl Drop for DmUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for DmInner {
    fn drop(&mut self) {
        *lock(&self.ctx.driver.dm_used) -= self.range.len() as u64;
    }
}

impl Context {
    /// Device memory of `len` bytes, zeroed, aligned to 2^`log_align`. ENOMEM if the device has not
    /// as much left.
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<Dm> {
        self.create_dm(len, log_align)
            .map_err(|reason| reason.of("alloc_dm"))
    }

    fn create_dm(&self, len: usize, log_align: u32) -> core::result::Result<Dm, Reason> {
        if log_align > MAX_LOG_ALIGN || len == 0 {
            return Err(Reason::Range {
                arg: Arg::Length,
                limit: MAX_DM_BYTES,
            });
        }
        let mut used = lock(&self.inner.driver.dm_used);
        let after = *used + len as u64;
        if after > MAX_DM_BYTES {
            return Err(Reason::Exhausted);
        }
        let range = HostBuf::new(len)?.range();
        *used = after;
        Ok(Dm {
            inner: Arc::new(DmInner {
                ctx: Arc::clone(&self.inner),
                range,
                users: AtomicUsize::new(0),
            }),
        })
    }
}

impl Dm {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.range.len()
    }

    /// True for no bytes, which no device memory has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` into the memory at `offset`; both multiples of four.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.place(offset, bytes.len())
            .and_then(|offset| Ok(self.inner.range.write(offset, bytes)?))
            .map_err(|reason| reason.of("memcpy_to_dm"))
    }

    /// Fills `bytes` from the memory at `offset`; both multiples of four.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.place(offset, bytes.len())
            .and_then(|offset| Ok(self.inner.range.read(offset, bytes)?))
            .map_err(|reason| reason.of("memcpy_from_dm"))
    }

    fn place(&self, offset: u64, len: usize) -> core::result::Result<usize, Reason> {
        let out = Reason::Range {
            arg: Arg::Address,
            limit: self.len() as u64,
        };
        if !offset.is_multiple_of(UNIT) || !(len as u64).is_multiple_of(UNIT) {
            return Err(out);
        }
        usize::try_from(offset).map_err(|_| out)
    }

    /// True while regions of the memory exist.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.inner.users.load(Ordering::Acquire) != 0
    }

    /// Gives the memory back; [`Reason::Busy`] while regions of it exist, and nothing happens.
    pub fn free(self) -> Result<()> {
        if self.inner.users.load(Ordering::Acquire) != 0 {
            return Err(Reason::Busy.of("free_dm"));
        }
        Ok(())
    }
}

impl Pd {
    /// Registers `len` bytes of device memory from `offset` on. Peers and work requests count from
    /// 0, and `access` must say so with [`Access::ZERO_BASED`].
    pub fn register_dm(&self, dm: &Dm, offset: u64, len: usize, access: Access) -> Result<Mr> {
        const VERB: &str = "register_dm";
        if !Arc::ptr_eq(&dm.inner.ctx.driver, self.driver()) {
            return Err(Reason::Foreign.of(VERB));
        }
        let out = || {
            Reason::Range {
                arg: Arg::Length,
                limit: dm.len() as u64,
            }
            .of(VERB)
        };
        let offset = usize::try_from(offset).map_err(|_| out())?;
        let range = dm.inner.range.slice(offset, len).map_err(|_| out())?;
        if !access.contains(Access::ZERO_BASED) {
            return Err(Reason::NotZeroBased.of(VERB));
        }
        let mut mr = Mr::create(self, range, 0, access)?;
        dm.inner.users.fetch_add(1, Ordering::AcqRel);
        mr.dm = Some(DmUse(Arc::clone(&dm.inner)));
        Ok(mr)
    }
}
