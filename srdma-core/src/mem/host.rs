//! Host memory: the one place of this crate that touches memory it does not own.
//!
//! ```text
//! HostBuf     owned, zeroed, page-aligned memory: rings, shadow areas, registered buffers
//! HostRange   a promised range: part of a HostBuf (kept alive), or foreign memory under contract
//! HostWords   a range seen as 64-bit words: ring entries, shadow words (atomics only)
//! ```
//!
//! Registered memory is volatile: a program, a peer or another thread may change it at any time.
//! So no Rust reference to it is ever handed out; words are atomics, payload moves by raw copy.
//! What this module does *not* do: keys and rights (see `mr.rs`), or ring protocols (see `ring/`).

#![allow(
    unsafe_code,
    reason = "memory that others change is only reached by raw pointers"
)]

pub use super::fault::HostFault;
use core::fmt;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Alignment of every buffer: a page.
pub const PAGE: usize = 4096;

/// Owned, zeroed, page-aligned memory that both halves of the device can reach.
pub struct HostBuf {
    base: *mut u8,
    /// What was allocated; `base` is the first page in it.
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

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
        // The allocator clears over-aligned memory by hand, which touches every page; so the
        // alignment is made here, out of one page more.
        let size = len.max(1).checked_add(PAGE).ok_or(HostFault::OutOfMemory)?;
        let layout = Layout::from_size_align(size, 16).map_err(|_| HostFault::OutOfMemory)?;
        // SAFETY: why needed: memory outside of Rust's own types. Why sound: the layout has a
        // non-zero size (`max(1)` above).
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(HostFault::OutOfMemory)?;
        let skip = start.as_ptr().align_offset(PAGE);
        assert!(skip < PAGE, "a page starts within the spare page");
        let base = start.as_ptr().wrapping_add(skip);
        Ok(Arc::new(Self {
            base,
            start,
            layout,
            len,
        }))
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

    /// The whole buffer as a range that keeps it alive.
    #[must_use]
    pub fn range(self: &Arc<Self>) -> HostRange {
        HostRange {
            base: self.base,
            len: self.len,
            keep: Some(Arc::clone(self)),
        }
    }

    /// The whole buffer as words.
    pub fn words(self: &Arc<Self>) -> HostWords {
        HostWords {
            base: self.base.cast(),
            words: self.len / 8,
            _keep: Some(Arc::clone(self)),
        }
    }
}

impl Drop for HostBuf {
    fn drop(&mut self) {
        // SAFETY: why needed: the memory came from `alloc_zeroed`. Why sound: same pointer and
        // layout as in `new`; every range and word view held an `Arc`, so none is left.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// A promised range of memory: it stays readable and writable while this value lives.
#[derive(Clone)]
pub struct HostRange {
    base: *mut u8,
    len: usize,
    keep: Option<Arc<HostBuf>>,
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
            keep: None,
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
            keep: None,
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
        if !self.addr().is_multiple_of(8) {
            return Err(HostFault::Misaligned);
        }
        #[allow(clippy::cast_ptr_alignment, reason = "checked just above")]
        Ok(HostWords {
            base: self.base.cast(),
            words: self.len / 8,
            _keep: self.keep.clone(),
        })
    }

    /// Copies `bytes` into the range at `offset`.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), HostFault> {
        let span = self.span(offset, bytes.len())?;
        span.copy_in(0, bytes);
        Ok(())
    }

    /// Copies out of the range at `offset`, filling `bytes`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), HostFault> {
        let span = self.span(offset, bytes.len())?;
        span.copy_out(0, bytes);
        Ok(())
    }

    /// The whole range as a window.
    #[must_use]
    pub const fn whole(&self) -> Span<'_> {
        Span {
            base: self.base,
            len: self.len,
            _life: core::marker::PhantomData,
        }
    }

    /// A bounded window for one use, without the reference count.
    pub fn span(&self, offset: usize, len: usize) -> Result<Span<'_>, HostFault> {
        self.check(offset, len)?;
        Ok(Span {
            base: self.base.wrapping_add(offset),
            len,
            _life: core::marker::PhantomData,
        })
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), HostFault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(HostFault::OutOfRange),
        }
    }
}

/// A bounded window into host memory, for the length of one borrow.
///
/// `'a` is the borrow of whatever keeps the memory registered, so the memory cannot be released
/// while a span exists.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    base: *mut u8,
    len: usize,
    _life: core::marker::PhantomData<&'a HostRange>,
}

impl<'a> Span<'a> {
    /// A window of no bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            base: core::ptr::null_mut(),
            len: 0,
            _life: core::marker::PhantomData,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for a window of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// The part of `len` bytes at `offset`; `None` if it is not inside.
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Self> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Some(Self {
                base: self.base.wrapping_add(offset),
                len,
                _life: self._life,
            }),
            _ => None,
        }
    }

    /// Copies `bytes` in at `offset`, in increasing address order per word.
    ///
    /// # Panics
    ///
    /// If the bytes do not fit: the caller checked lengths, so this is our own bug.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset
                .checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        // SAFETY: why needed: the target may change under us, so it can be no `&mut [u8]`. Why
        // sound: asserted to lie inside the window, which `'a` keeps registered; source and target
        // do not overlap, because a `&[u8]` never aliases registered memory (module contract).
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base.wrapping_add(offset),
                bytes.len(),
            );
        }
    }

    /// Copies `bytes` in at `offset` so that nobody sees the end before the rest.
    ///
    /// The bytes of the last 64-bit word are stored after all others, each naturally aligned
    /// part of them in one piece: a program that polls a flag or counter at the end of a WRITE
    /// never reads half of it, nor anything that comes before it too early.
    ///
    /// # Panics
    ///
    /// If the bytes do not fit: the caller checked lengths, so this is our own bug.
    #[inline]
    pub fn copy_in_ordered(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset
                .checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        let end = self.base.wrapping_add(offset + bytes.len());
        let over = end.addr() % 8;
        let tail = bytes.len().min(if over == 0 { 8 } else { over });
        let (body, mut tail) = bytes.split_at(bytes.len() - tail);
        self.copy_in(offset, body);
        let mut at = self.base.wrapping_add(offset + body.len());
        while !tail.is_empty() {
            let (stored, rest) = store_aligned(at, tail);
            at = at.wrapping_add(stored);
            tail = rest;
        }
    }

    /// Copies out from `offset`, filling `bytes`.
    ///
    /// # Panics
    ///
    /// If the bytes leave the window: the caller checked lengths, so this is our own bug.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset
                .checked_add(bytes.len())
                .is_some_and(|end| end <= self.len)
        );
        // SAFETY: why needed: the source may change under us, so it can be no `&[u8]`. Why sound:
        // asserted to lie inside the window; the target is an exclusive borrow elsewhere.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.base.wrapping_add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    /// Copies the whole of `source` in at `offset`: program memory into the header arena.
    ///
    /// # Panics
    ///
    /// If the bytes do not fit: the caller checked lengths, so this is our own bug.
    pub fn copy_span(&self, offset: usize, source: Span<'_>) {
        assert!(
            offset
                .checked_add(source.len)
                .is_some_and(|end| end <= self.len)
        );
        // SAFETY: why needed: both sides may change under us, so neither can be a slice. Why sound:
        // both windows are kept mapped by their lifetimes, the target holds the bytes (asserted),
        // and `copy` allows overlap.
        unsafe {
            core::ptr::copy(
                source.base.cast_const(),
                self.base.wrapping_add(offset),
                source.len,
            );
        }
    }

    /// Feeds the window to a CRC, in place.
    ///
    /// A program that changes the bytes meanwhile gets a CRC that fits neither version, and the
    /// peer drops the packet: that harms only the program itself.
    pub fn crc(&self, hasher: &mut crc32fast::Hasher) {
        if self.len == 0 {
            return;
        }
        // SAFETY: why needed: the CRC library takes a slice. Why sound: the bytes are mapped
        // (window contract); the slice lives for this call only, is only read, and no value read
        // from it is used for anything but a checksum.
        let bytes = unsafe { core::slice::from_raw_parts(self.base, self.len) };
        hasher.update(bytes);
    }

    /// The window as an entry of a gather list.
    #[must_use]
    pub fn seg(&self) -> crate::tx::Seg<'a> {
        crate::tx::Seg::from_raw(self.base.cast_const(), self.len)
    }

    /// The window's eight bytes as one atomic word; `None` if it is shorter or not aligned.
    #[must_use]
    pub fn atomic(&self) -> Option<&'a AtomicU64> {
        if self.len < 8 || !self.addr().is_multiple_of(8) {
            return None;
        }
        // SAFETY: why needed: RDMA atomics act on the program's own 64-bit word. Why sound: mapped
        // for `'a`, eight bytes long and aligned (checked above); an atomic may be shared.
        Some(unsafe { AtomicU64::from_ptr(self.base.cast::<u64>()) })
    }
}

/// Stores the longest of 8, 4, 2 or 1 bytes that `bytes` has and `at` is aligned to, as one
/// release store; gives back how many, and the rest. `bytes` is not empty and fits at `at`.
#[inline]
fn store_aligned(at: *mut u8, bytes: &[u8]) -> (usize, &[u8]) {
    macro_rules! step {
        ($atomic:ty, $int:ty) => {
            if at.addr().is_multiple_of(size_of::<$int>())
                && let Some((first, rest)) = bytes.split_first_chunk()
            {
                #[allow(clippy::cast_ptr_alignment, reason = "checked just above")]
                // SAFETY: why needed: an atomic store into memory that others read. Why sound: the
                // only caller asserted that the bytes fit there; the alignment is checked above.
                let word = unsafe { <$atomic>::from_ptr(at.cast()) };
                word.store(<$int>::from_ne_bytes(*first), Ordering::Release);
                return (size_of::<$int>(), rest);
            }
        };
    }
    step!(AtomicU64, u64);
    step!(AtomicU32, u32);
    step!(AtomicU16, u16);
    step!(AtomicU8, u8);
    (bytes.len(), &[])
}

/// Host memory seen as 64-bit words: ring entries and shadow areas.
///
/// Words hold little-endian values whatever the host's order. Every index is checked.
#[derive(Clone)]
pub struct HostWords {
    base: *mut u64,
    words: usize,
    _keep: Option<Arc<HostBuf>>,
}

// SAFETY: why needed: raw pointer. Why sound: kept alive by `_keep` or the contract of the range it
// came from; only atomic access.
unsafe impl Send for HostWords {}
// SAFETY: why needed: raw pointer. Why sound: all access is atomic.
unsafe impl Sync for HostWords {}

impl HostWords {
    /// Number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.words
    }

    /// True without words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// The address of word 0.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// The `count` words from `first` on, or that they are not inside.
    pub fn slice(&self, first: usize, count: usize) -> Result<Self, HostFault> {
        match first.checked_add(count) {
            Some(end) if end <= self.words => Ok(Self {
                base: self.base.wrapping_add(first),
                words: count,
                _keep: self._keep.clone(),
            }),
            _ => Err(HostFault::OutOfRange),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "ring index inside the ring");
        // SAFETY: why needed: ring words are shared with the other half. Why sound: inside the
        // range (asserted), aligned to eight bytes (constructors), alive while `self` is.
        unsafe { AtomicU64::from_ptr(self.base.wrapping_add(index)) }
    }

    /// Plain load of word `index`.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        u64::from_le(self.word(index).load(Ordering::Relaxed))
    }

    /// Load of word `index` that later loads may not overtake.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        u64::from_le(self.word(index).load(Ordering::Acquire))
    }

    /// Plain store of word `index`.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        self.word(index).store(value.to_le(), Ordering::Relaxed);
    }

    /// Store of word `index` that earlier stores may not be delayed past: publishes an entry.
    #[inline]
    pub fn store_release(&self, index: usize, value: u64) {
        self.word(index).store(value.to_le(), Ordering::Release);
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
