//! Ring memory, and the places where memory of others enters: the only `unsafe` of this crate.
//!
//! ```text
//! RingMem    zeroed pages that both halves use; known to the device while the value lives
//! RingAlloc  a program's own allocator for them, under its promise
//! foreign    memory of the program, under its promise        Pd::register_foreign, Rereg::foreign
//! slices     registered memory as a slice, under its promise Mr::as_slice, Mr::as_mut_slice
//! ```
//!
//! Reading and writing ring memory needs nothing unsafe: `HostWords` does that in the core.

use super::engine::Engine;
use crate::error::{Reason, Result};
use crate::mr::{Mr, Rereg};
use crate::pd::Pd;
use core::fmt;
use core::ptr::NonNull;
use srdma_core::mem::host::PAGE;
use srdma_core::mem::{Access, HostBuf, HostFault, HostRange, HostWords};
use srdma_net::ProcessMemory;
use std::sync::Arc;

/// Memory of rings and shadow areas. The device forgets its address when this is dropped; rings
/// that it has open keep it alive.
pub(crate) struct RingMem {
    buf: Arc<HostBuf>,
    engine: Engine,
}

/// What an allocator of a program does with a request for ring memory.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "what an allocator can say")]
pub enum RingBlock {
    /// It leaves the matter to this crate.
    Default,
    /// There is none: the object cannot be made.
    Failed,
    /// Here it is; its content does not matter.
    At(NonNull<u8>),
}

/// Gives the memory of rings, in place of this crate: the allocators of a parent domain.
///
/// What is asked for is the ring of a completion queue, or the rings of a queue pair or shared
/// receive queue with what the driver half remembers of them.
///
/// # Safety
///
/// Memory that `alloc` gives is mapped, readable and writable for `len` bytes, aligned to `align`,
/// and left alone by everybody until `free` is called with it.
pub unsafe trait RingAlloc: Send + Sync + fmt::Debug {
    /// Memory of `len` bytes, aligned to `align` (a power of two).
    fn alloc(&self, len: usize, align: usize) -> RingBlock;
    /// Takes memory back, once the object that had it is destroyed and its last handle is gone.
    fn free(&self, base: NonNull<u8>, len: usize);
}

/// Who gives the memory of rings; nobody but this crate if `None`.
pub(crate) type RingSource = Option<Arc<dyn RingAlloc>>;

impl RingMem {
    /// `len` zeroed bytes, page-aligned. They cost no memory before they are touched.
    pub(crate) fn new(engine: &Engine, len: usize) -> core::result::Result<Self, HostFault> {
        Ok(Self::announce(engine, pages(len)?))
    }

    /// `len` zeroed bytes, aligned to 64: a shadow area.
    pub(crate) fn small(engine: &Engine, len: usize) -> core::result::Result<Self, HostFault> {
        Ok(Self::announce(engine, HostBuf::small(len)?))
    }

    /// `len` zeroed bytes, page-aligned, from a program's allocator if there is one.
    pub(crate) fn of(
        source: &RingSource,
        engine: &Engine,
        len: usize,
    ) -> core::result::Result<Self, HostFault> {
        let Some(source) = source else {
            return Self::new(engine, len);
        };
        let base = match source.alloc(len, PAGE) {
            RingBlock::Default => return Self::new(engine, len),
            RingBlock::Failed => return Err(HostFault::OutOfMemory),
            RingBlock::At(base) => base,
        };
        if !base.as_ptr().addr().is_multiple_of(PAGE) {
            source.free(base, len);
            return Err(HostFault::Misaligned);
        }
        // SAFETY: why needed: memory of a program's allocator is as it was left. Why sound: mapped,
        // writable, of that length and nobody else's (promise of `RingAlloc`).
        unsafe { base.write_bytes(0, len) };
        let owner = Arc::clone(source);
        // SAFETY: why needed: the device keeps rings as buffers of its own. Why sound: zero (just
        // above), and the rest is what `RingAlloc` promises until `free`.
        let buf = unsafe { HostBuf::given(base, len, move |base| owner.free(base, len)) };
        Ok(Self::announce(engine, buf))
    }

    fn announce(engine: &Engine, buf: Arc<HostBuf>) -> Self {
        engine.with(|hca| hca.host_mut().insert_ring(Arc::clone(&buf)));
        Self {
            buf,
            engine: engine.clone(),
        }
    }

    /// The address of byte `offset`.
    pub(crate) fn addr(&self, offset: usize) -> u64 {
        self.buf.addr() + offset as u64
    }

    /// All of it, for a region.
    pub(crate) fn range(&self) -> HostRange {
        self.buf.range()
    }

    /// `len` bytes from `offset` on as words; both multiples of eight.
    pub(crate) fn words(
        &self,
        offset: usize,
        len: usize,
    ) -> core::result::Result<HostWords, HostFault> {
        self.buf.words().slice(offset / 8, len / 8)
    }
}

impl Drop for RingMem {
    fn drop(&mut self) {
        let addr = self.buf.addr();
        self.engine.with(|hca| hca.host_mut().remove_ring(addr));
    }
}

impl fmt::Debug for RingMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.buf.fmt(f)
    }
}

/// Zeroed pages straight from the system, which gives each when it is touched first. An allocator
/// would clear what it had given out before, so that every queue cost its full size.
fn pages(len: usize) -> core::result::Result<Arc<HostBuf>, HostFault> {
    let len = len
        .max(1)
        .checked_next_multiple_of(PAGE)
        .ok_or(HostFault::OutOfMemory)?;
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: why needed: memory straight from the system. Why sound: a new private mapping at an
    // address of the system's choice touches nothing that exists.
    let base = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(HostFault::OutOfMemory);
    }
    let base = NonNull::new(base.cast::<u8>()).ok_or(HostFault::OutOfMemory)?;
    // SAFETY: why needed: huge pages would make small queues side by side cost 2 MiB at the first
    // touch. Why sound: advice about the mapping just made changes no content; it may be refused.
    unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
    let unmap = move |base: NonNull<u8>| {
        // SAFETY: why needed: the mapping goes back. Why sound: it is the one made above, whole,
        // and the buffer calls this once, when no view of it is left.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    };
    // SAFETY: why needed: the device keeps rings as buffers of its own. Why sound: the mapping is
    // zero, readable, writable, page-aligned, and known to nobody else.
    Ok(unsafe { HostBuf::given(base, len, unmap) })
}

/// The range of a program's memory, for a region with these rights: simply there, or asked for at
/// every use if on demand.
pub(crate) fn program_range(
    promised: &HostRange,
    access: Access,
) -> core::result::Result<HostRange, Reason> {
    access.check()?;
    if promised.is_owned() {
        return Ok(promised.clone());
    }
    let (addr, len) = (promised.addr(), promised.len());
    if access.contains(Access::ON_DEMAND) {
        if !ProcessMemory::is_available() {
            return Err(Reason::Unsupported);
        }
        // SAFETY: why needed: memory that may be absent is asked for by address. Why sound: the
        // maker of the range promised that the device may change it at any time.
        let memory = unsafe { ProcessMemory::new() };
        return Ok(HostRange::paged(addr, len, Arc::new(memory)));
    }
    let writes = Access::LOCAL_WRITE | Access::MW_BIND;
    srdma_net::check_range(addr, len as u64, access.intersects(writes))?;
    Ok(promised.clone())
}

impl Pd {
    /// Registers memory that the program owns otherwise: a mapping, a static, a C buffer.
    ///
    /// Refused with EFAULT if some of it is not mapped, or not for writing where `access` allows
    /// that. With [`Access::ON_DEMAND`] nothing needs to be mapped before it is used, nor stay so:
    /// a use that finds nothing ends as a protection error of its work request. Every use costs a
    /// system call then. The null pointer and `usize::MAX` bytes on demand are the whole address
    /// space: an implicit region.
    ///
    /// # Safety
    ///
    /// `base..base + len` must stay mapped, readable, and writable where `access` allows writing
    /// (unless on demand), until the region is deregistered (see below), for use from any thread.
    /// While the region is registered and can be written to, no Rust reference to memory that work
    /// requests or peers write to through it may be live.
    ///
    /// Dropping the region deregisters it, unless windows are still bound to it: then the memory
    /// must stay for as long as the device is open.
    pub unsafe fn register_foreign(&self, base: *mut u8, len: usize, access: Access) -> Result<Mr> {
        // SAFETY: why needed: the other function is unsafe too. Why sound: the same promise.
        unsafe { self.register_foreign_at(base, len, base.addr() as u64, access) }
    }

    /// As [`Self::register_foreign`], but peers and work requests know the first byte as `va`.
    ///
    /// # Safety
    ///
    /// As for [`Self::register_foreign`].
    pub unsafe fn register_foreign_at(
        &self,
        base: *mut u8,
        len: usize,
        va: u64,
        access: Access,
    ) -> Result<Mr> {
        base.expose_provenance();
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let promised = unsafe { HostRange::foreign(base, len) };
        let range = program_range(&promised, access).map_err(|reason| reason.of("register"))?;
        Mr::create(self, range, va, access)
    }
}

impl Rereg {
    /// As [`Rereg::buffer`], for memory that the program owns otherwise.
    ///
    /// # Safety
    ///
    /// As for [`Pd::register_foreign`], once [`Mr::rereg`] was called with it.
    #[must_use]
    pub unsafe fn foreign(mut self, base: *mut u8, len: usize) -> Self {
        let va = base.expose_provenance() as u64;
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        self.memory = Some((unsafe { HostRange::foreign(base, len) }, va));
        self
    }
}

impl Mr {
    /// The region as a slice, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody may write to the region while the slice lives: no peer, no receive or READ in
    /// progress, no other handle to the same memory.
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[u8] {
        let Ok(span) = self.range.span(0, self.range.len()) else {
            return &[];
        };
        if span.is_empty() {
            return &[];
        }
        // SAFETY: why needed: a view of memory that is shared with the device. Why sound: mapped
        // and of that length (the range's promise), alive while `self` is, and the caller promises
        // that nobody writes meanwhile.
        unsafe { core::slice::from_raw_parts(span.seg().base(), span.len()) }
    }

    /// The region as a mutable slice, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody else may read or write the region while the slice lives: no peer, no work request in
    /// progress, no other handle to the same memory.
    #[must_use]
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        let Ok(span) = self.range.span(0, self.range.len()) else {
            return &mut [];
        };
        if span.is_empty() {
            return &mut [];
        }
        // SAFETY: why needed: a view of memory that is shared with the device. Why sound: mapped,
        // writable and of that length (the range's promise), alive while `self` is, and the caller
        // promises that it is the only user.
        unsafe { core::slice::from_raw_parts_mut(span.seg().base().cast_mut(), span.len()) }
    }
}

#[cfg(test)]
mod tests;
