//! A window into host memory: how payload is copied, fed to a checksum, gathered, and changed as
//! one word.
//!
//! What it does *not* do: check keys and rights, or find the memory (a range lends it out).

use super::HostRange;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A bounded window into host memory, for the length of one borrow.
///
/// `'a` is the borrow of whatever keeps the memory registered, so the memory cannot be released
/// while a span exists.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    base: *mut u8,
    len: usize,
    _life: PhantomData<&'a HostRange>,
}

impl<'a> Span<'a> {
    /// The window of `len` bytes at `base`: the caller's range holds them for `'a`.
    #[inline]
    pub(super) const fn of(base: *mut u8, len: usize) -> Self {
        Self {
            base,
            len,
            _life: PhantomData,
        }
    }

    /// A window of no bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self::of(core::ptr::null_mut(), 0)
    }

    /// Length in bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for a window of no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    #[inline]
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// The part of `len` bytes at `offset`; `None` if it is not inside.
    #[inline]
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
    #[inline]
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
    #[inline]
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
    #[inline]
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
    #[inline]
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
    #[inline]
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
