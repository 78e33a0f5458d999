//! Host memory: with `host/`, the one place of this crate that touches memory it does not own.
//!
//! ```text
//! HostBuf     owned, zeroed, aligned memory: rings, shadow areas, registered buffers
//! HostRange   a promised range: part of a HostBuf (kept alive), or foreign memory under contract
//! HostWords   a range seen as 64-bit words: ring entries, shadow words (atomics only)
//! Span        a window into a range for one borrow: payload copies, gather entries, atomics
//! ```
//!
//! Registered memory is volatile: a program, a peer or another thread may change it at any time.
//! So no Rust reference to it is ever handed out; words are atomics, payload moves by raw copy.
//! What this module does *not* do: keys and rights (see `mr.rs`), or ring protocols (see `ring/`).

#![allow(
    unsafe_code,
    reason = "memory that others change is only reached by raw pointers"
)]

mod span;
mod words;

pub use super::fault::HostFault;
pub use span::Span;
pub use words::HostWords;

use super::pager::Pager;

use core::fmt;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

/// Alignment of every buffer: a page.
pub const PAGE: usize = 4096;

/// Alignment of a small buffer: a cache line, which is what shadow areas need.
const LINE: usize = 64;

/// Owned, zeroed, aligned memory that both halves of the device can reach.
pub struct HostBuf {
    base: *mut u8,
    len: usize,
    owner: Owner,
}

/// Where the memory goes when nobody uses it any more.
enum Owner {
    /// Back to the allocator that gave it; `base` is the first aligned byte in it.
    Allocator { start: NonNull<u8>, layout: Layout },
    /// Back to whoever gave it.
    Giver(Option<Release>),
}

/// Takes memory back, by its first byte.
type Release = Box<dyn FnOnce(NonNull<u8>) + Send + Sync>;

// SAFETY: why needed: the raw pointer takes the automatic Send away. Why sound: the buffer owns the
// allocation behind it, and all access goes through atomics or raw copies of bounded ranges.
unsafe impl Send for HostBuf {}
// SAFETY: why needed: as above, for Sync. Why sound: no method hands out a reference into the
// buffer; concurrent access is atomics and raw copies, whose tearing the protocols tolerate.
unsafe impl Sync for HostBuf {}

impl HostBuf {
    /// Allocates `len` zeroed bytes (at least one), aligned to a page.
    ///
    /// Large ones cost no memory before they are touched.
    pub fn new(len: usize) -> Result<Arc<Self>, HostFault> {
        Self::allocate(len, PAGE)
    }

    /// Allocates `len` zeroed bytes (at least one), aligned to a cache line: for what would waste
    /// most of a page.
    pub fn small(len: usize) -> Result<Arc<Self>, HostFault> {
        Self::allocate(len, LINE)
    }

    fn allocate(len: usize, align: usize) -> Result<Arc<Self>, HostFault> {
        // The allocator clears over-aligned memory by hand, which touches every page; so the
        // alignment is made here, out of some bytes more.
        let size = len
            .max(1)
            .checked_add(align)
            .ok_or(HostFault::OutOfMemory)?;
        let layout = Layout::from_size_align(size, 16).map_err(|_| HostFault::OutOfMemory)?;
        // SAFETY: why needed: memory outside of Rust's own types. Why sound: the layout has a
        // non-zero size (`max(1)` above).
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(HostFault::OutOfMemory)?;
        let skip = start.as_ptr().align_offset(align);
        assert!(skip < align, "an aligned byte is among the spare ones");
        let base = start.as_ptr().wrapping_add(skip);
        let owner = Owner::Allocator { start, layout };
        Ok(Arc::new(Self { base, len, owner }))
    }

    /// Memory that somebody else gave and takes back through `release`, once nobody uses it.
    ///
    /// # Safety
    ///
    /// `base..base + len` is mapped, readable, writable and zero, and aligned to eight bytes at
    /// least. Until `release` is called nobody else reads, writes or frees it.
    #[must_use]
    pub unsafe fn given(
        base: NonNull<u8>,
        len: usize,
        release: impl FnOnce(NonNull<u8>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        assert!(base.as_ptr().addr().is_multiple_of(8), "words are aligned");
        Arc::new(Self {
            base: base.as_ptr(),
            len,
            owner: Owner::Giver(Some(Box::new(release))),
        })
    }

    /// The address of the first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for a buffer of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole buffer as a window.
    #[inline]
    #[must_use]
    pub const fn span(&self) -> Span<'_> {
        Span::of(self.base, self.len)
    }

    /// The whole buffer as a range that keeps it alive.
    #[must_use]
    pub fn range(self: &Arc<Self>) -> HostRange {
        HostRange {
            base: self.base,
            len: self.len,
            keep: Keep::Buffer(Arc::clone(self)),
        }
    }

    /// The whole buffer as words.
    pub fn words(self: &Arc<Self>) -> HostWords {
        HostWords::of(self.base.cast(), self.len / 8, Some(Arc::clone(self)))
    }
}

impl Drop for HostBuf {
    fn drop(&mut self) {
        match &mut self.owner {
            // SAFETY: why needed: the memory came from `alloc_zeroed`. Why sound: same pointer and
            // layout as there; every range and word view held an `Arc`, so none is left.
            Owner::Allocator { start, layout } => unsafe { dealloc(start.as_ptr(), *layout) },
            Owner::Giver(release) => {
                if let (Some(release), Some(base)) = (release.take(), NonNull::new(self.base)) {
                    release(base);
                }
            }
        }
    }
}

/// A promised range of memory: it stays readable and writable while this value lives.
#[derive(Clone)]
pub struct HostRange {
    base: *mut u8,
    len: usize,
    keep: Keep,
}

/// What makes the promise of a range true.
#[derive(Clone)]
enum Keep {
    /// Whoever made it.
    Promise,
    /// The buffer that it is part of.
    Buffer(Arc<HostBuf>),
    /// Nothing: every use asks, and the pointer is only an address.
    Asked(Arc<dyn Pager>),
}

// SAFETY: why needed: raw pointer. Why sound: the memory is either kept alive by `keep` or promised
// by the contract of `foreign`, which names use from any thread.
unsafe impl Send for HostRange {}
// SAFETY: why needed: raw pointer. Why sound: as for Send; access is by raw copies and atomics.
unsafe impl Sync for HostRange {}

impl HostRange {
    /// An empty range.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            base: core::ptr::null_mut(),
            len: 0,
            keep: Keep::Promise,
        }
    }

    /// Memory that somebody else owns.
    ///
    /// # Safety
    ///
    /// `base..base + len` must stay mapped, readable, and writable where the region's rights allow
    /// writing, until this value and all its clones are gone, for use from any thread. No Rust
    /// reference to it may be live while the device can write to it.
    #[must_use]
    pub const unsafe fn foreign(base: *mut u8, len: usize) -> Self {
        Self {
            base,
            len,
            keep: Keep::Promise,
        }
    }

    /// Addresses that `pager` is asked about at every use: they may hold memory or not.
    #[must_use]
    pub fn paged(addr: u64, len: usize, pager: Arc<dyn Pager>) -> Self {
        let addr = usize::try_from(addr).unwrap_or(usize::MAX);
        Self {
            base: core::ptr::without_provenance_mut(addr),
            len,
            keep: Keep::Asked(pager),
        }
    }

    /// Who is asked about the memory, if it is not simply there.
    #[inline]
    fn pager(&self) -> Option<&dyn Pager> {
        match &self.keep {
            Keep::Asked(pager) => Some(&**pager),
            Keep::Promise | Keep::Buffer(_) => None,
        }
    }

    /// True for a part of a buffer, which the range keeps alive.
    #[must_use]
    pub const fn is_owned(&self) -> bool {
        matches!(self.keep, Keep::Buffer(_))
    }

    /// True if the memory may be absent, and is asked for at every use.
    #[must_use]
    pub const fn is_paged(&self) -> bool {
        matches!(self.keep, Keep::Asked(_))
    }

    /// An error where the memory is not simply there.
    #[inline]
    fn direct(&self) -> Result<(), HostFault> {
        match self.pager() {
            Some(_) => Err(HostFault::Absent),
            None => Ok(()),
        }
    }

    /// The address of the first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for a range of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes at `offset`, or why it is not inside.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self, HostFault> {
        self.check(offset, len)?;
        Ok(Self {
            base: self.base.wrapping_add(offset),
            len,
            keep: self.keep.clone(),
        })
    }

    /// The whole range as 64-bit words; its address must be a multiple of eight.
    pub fn words(&self) -> Result<HostWords, HostFault> {
        self.direct()?;
        if !self.addr().is_multiple_of(8) {
            return Err(HostFault::Misaligned);
        }
        #[allow(clippy::cast_ptr_alignment, reason = "checked just above")]
        let base = self.base.cast();
        let keep = match &self.keep {
            Keep::Buffer(buf) => Some(Arc::clone(buf)),
            Keep::Promise | Keep::Asked(_) => None,
        };
        Ok(HostWords::of(base, self.len / 8, keep))
    }

    /// Copies `bytes` into the range at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), HostFault> {
        match self.window(offset, bytes.len())? {
            (span, None) => span.copy_in(0, bytes),
            (span, Some(pager)) if pager.write(span.addr(), bytes) => {}
            _ => return Err(HostFault::Absent),
        }
        Ok(())
    }

    /// Copies out of the range at `offset`, filling `bytes`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), HostFault> {
        match self.window(offset, bytes.len())? {
            (span, None) => span.copy_out(0, bytes),
            (span, Some(pager)) if pager.read(span.addr(), bytes) => {}
            _ => return Err(HostFault::Absent),
        }
        Ok(())
    }

    /// The whole range as a window; empty where memory may be absent.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> Span<'_> {
        self.span(0, self.len).unwrap_or(Span::empty())
    }

    /// A bounded window for one use, without the reference count; an error where memory may be
    /// absent.
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Result<Span<'_>, HostFault> {
        self.direct()?;
        self.check(offset, len)?;
        Ok(Span::of(self.base.wrapping_add(offset), len))
    }

    /// A bounded window, and who must be asked about it, if somebody must: then the window is only
    /// an address and a length.
    #[inline]
    pub(super) fn window(
        &self,
        offset: usize,
        len: usize,
    ) -> Result<(Span<'_>, Option<&dyn Pager>), HostFault> {
        self.check(offset, len)?;
        Ok((Span::of(self.base.wrapping_add(offset), len), self.pager()))
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result<(), HostFault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(HostFault::OutOfRange),
        }
    }
}

macro_rules! debug_as_range {
    ($($type:ty, $name:literal, $unit:literal;)*) => { $(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($name, "({:#x}, {} ", $unit, ")"), self.addr(), self.len())
            }
        }
    )* };
}

debug_as_range! {
    HostBuf, "HostBuf", "bytes";
    HostRange, "HostRange", "bytes";
    Span<'_>, "Span", "bytes";
    HostWords, "HostWords", "words";
}
