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
use crate::buffer::Buffer;
use crate::error::Result;
use crate::mr::{Mr, Rereg};
use crate::pd::Pd;
use core::fmt;
use core::ptr::NonNull;
use srdma_core::mem::host::PAGE;
use srdma_core::mem::{Access, HostBuf, HostFault, HostRange, HostWords};
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

impl Pd {
    /// Registers memory that the program owns otherwise: a mapping, a static, a C buffer.
    ///
    /// # Safety
    ///
    /// `base..base + len` must stay mapped, readable, and writable where `access` allows writing,
    /// until the region is deregistered (see below), for use from any thread. While the region is
    /// registered and can be written to, no Rust reference to the memory may be live.
    ///
    /// Dropping the region deregisters it, unless windows are still bound to it: then the memory
    /// must stay for as long as the device is open.
    pub unsafe fn register_foreign(&self, base: *mut u8, len: usize, access: Access) -> Result<Mr> {
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let range = unsafe { HostRange::foreign(base, len) };
        Mr::create(self, range, base.addr() as u64, access)
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
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let range = unsafe { HostRange::foreign(base, len) };
        Mr::create(self, range, va, access)
    }
}

impl Rereg {
    /// As [`Rereg::buffer`], for memory that the program owns otherwise.
    ///
    /// # Safety
    ///
    /// As for [`Pd::register_foreign`].
    #[must_use]
    pub unsafe fn foreign(self, base: *mut u8, len: usize) -> Self {
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let range = unsafe { HostRange::foreign(base, len) };
        self.buffer(&Buffer { range })
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
mod tests {
    use super::*;
    use crate::device::DeviceConfig;
    use srdma_core::qp::attr::QpType;
    use std::alloc::{Layout, alloc, dealloc};
    use std::sync::Mutex;

    /// Hands out dirty memory, and remembers what is out.
    #[derive(Debug, Default)]
    struct Program {
        out: Mutex<Vec<(usize, usize)>>,
        asked: Mutex<usize>,
        answer: Mutex<Option<bool>>,
    }

    // SAFETY: why needed: the promise of the trait. Why sound: memory of the global allocator, of
    // that size and alignment, which only `free` gives back.
    unsafe impl RingAlloc for Program {
        fn alloc(&self, len: usize, align: usize) -> RingBlock {
            *self.asked.lock().unwrap() += 1;
            match *self.answer.lock().unwrap() {
                Some(true) => return RingBlock::Default,
                Some(false) => return RingBlock::Failed,
                None => {}
            }
            let layout = Layout::from_size_align(len, align).unwrap();
            // SAFETY: why needed: memory to hand out. Why sound: rings are never empty.
            let base = NonNull::new(unsafe { alloc(layout) }).unwrap();
            // SAFETY: why needed: to show that what was there does not matter. Why sound: within
            // the block that was just allocated.
            unsafe { base.write_bytes(0xa5, len) };
            self.out.lock().unwrap().push((base.as_ptr().addr(), len));
            RingBlock::At(base)
        }

        fn free(&self, base: NonNull<u8>, len: usize) {
            let mut out = self.out.lock().unwrap();
            let block = (base.as_ptr().addr(), len);
            let at = out.iter().position(|known| *known == block).unwrap();
            out.swap_remove(at);
            let layout = Layout::from_size_align(len, PAGE).unwrap();
            // SAFETY: why needed: what was handed out comes back. Why sound: of the same layout,
            // and found in the list, from which it is gone now.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }

    #[test]
    fn rings_lie_in_the_memory_of_a_program_until_they_are_gone() {
        let program = Arc::new(Program::default());
        let source = || Arc::clone(&program) as Arc<dyn RingAlloc>;
        let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
        let pd = ctx.alloc_pd().unwrap();
        let cq = ctx.create_cq(16).ring_alloc(source()).build().unwrap();
        let srq = pd.create_srq(8).ring_alloc(source()).build().unwrap();
        let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq);
        let qp = qp.srq(&srq).ring_alloc(source()).build().unwrap();
        assert!(cq.poll().next().is_none(), "old content is no completion");
        assert_eq!(program.out.lock().unwrap().len(), 3);
        cq.resize(64).unwrap();
        drop(qp);
        drop(srq);
        assert_eq!(
            program.out.lock().unwrap().len(),
            2,
            "both buffers of the CQ"
        );
        assert!(cq.poll().next().is_none());
        cq.destroy().unwrap();
        drop(cq);
        assert_eq!(program.out.lock().unwrap().len(), 0);
    }

    #[test]
    fn an_allocator_may_refuse_or_pass() {
        let program = Arc::new(Program::default());
        let source = || Arc::clone(&program) as Arc<dyn RingAlloc>;
        let ctx = DeviceConfig::doc_test().unwrap().open().unwrap();
        *program.answer.lock().unwrap() = Some(true);
        ctx.create_cq(16).ring_alloc(source()).build().unwrap();
        *program.answer.lock().unwrap() = Some(false);
        let refused = ctx.create_cq(16).ring_alloc(source()).build();
        assert_eq!(refused.unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(*program.asked.lock().unwrap(), 2);
        assert!(program.out.lock().unwrap().is_empty());
    }
}
