//! Grants and claims: proof that a part of a region may be used, now or again later.
//!
//! ```text
//! Grant<'a>   borrowed from the MrTable: no region can go away while one exists
//! Claim       plain numbers: region slot, window slot, offset, length; `MrTable::renew` makes a
//!             grant of it again, if region and window are still the same ones
//! ```
//!
//! What this does *not* do: check keys; only `mr.rs` makes grants.

use super::host::Span;
use crate::obj::table::Slot;
use crate::tx::Seg;
use core::sync::atomic::Ordering;

/// What a use of registered memory was checked for, to store across packets. No pointers.
///
/// The default claims nothing and cannot be renewed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Claim {
    /// The region.
    pub(super) region: Slot,
    /// The window it was reached through, or none.
    pub(super) window: Slot,
    /// First byte, counted from the start of the region.
    pub(super) offset: u64,
    /// How many bytes.
    pub(super) len: u64,
}

impl Claim {
    /// How many bytes are claimed.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True for no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A checked part of a region for one use. The only way to touch registered memory.
#[derive(Copy, Clone, Debug)]
pub struct Grant<'a> {
    span: Span<'a>,
    region: Slot,
    window: Slot,
    offset: u64,
}

impl<'a> Grant<'a> {
    /// Only the checks of the table make grants.
    pub(super) const fn new(span: Span<'a>, region: Slot, window: Slot, offset: u64) -> Self {
        Self {
            span,
            region,
            window,
            offset,
        }
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.span.len()
    }

    /// True for no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// The memory itself, bounded: for gather lists and checksums.
    #[inline]
    #[must_use]
    pub const fn span(&self) -> Span<'a> {
        self.span
    }

    /// The memory as an entry of a gather list.
    #[inline]
    #[must_use]
    pub fn seg(&self) -> Seg<'a> {
        self.span.seg()
    }

    /// Puts payload in at `offset`, the end of it last.
    ///
    /// A program that polls the last byte or word sees it only after all bytes before, of this
    /// packet and of those placed earlier; a later release store (of a CQE) publishes everything.
    /// Cost: one copy.                                              [RoCEv2 4.4]
    ///
    /// # Panics
    ///
    /// If the bytes do not fit: lengths are checked before.
    #[inline]
    pub fn place(&self, offset: usize, bytes: &[u8]) {
        self.span.copy_in_ordered(offset, bytes);
    }

    /// Takes payload out from `offset`, filling `bytes`.
    ///
    /// # Panics
    ///
    /// If the bytes leave the grant: lengths are checked before.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        self.span.copy_out(offset, bytes);
    }

    /// The part of `len` bytes at `offset`; `None` if it is not inside.
    #[inline]
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Self> {
        let span = self.span.slice(offset, len)?;
        Some(Self {
            span,
            offset: self.offset + offset as u64,
            ..*self
        })
    }

    /// What was checked, to store across packets.
    #[inline]
    #[must_use]
    pub const fn claim(&self) -> Claim {
        let len = self.span.len() as u64;
        Claim {
            region: self.region,
            window: self.window,
            offset: self.offset,
            len,
        }
    }

    /// Compare and swap of the first eight bytes, in host order: the value before.
    ///
    /// `None` if the memory is shorter or not aligned to eight. One atomic step against every
    /// other RDMA atomic and against the program's own atomics.     [IBTA 9.4.5]
    #[must_use]
    pub fn compare_swap(&self, expected: u64, new: u64) -> Option<u64> {
        // rule: roce-112
        let word = self.span.atomic()?;
        match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) | Err(before) => Some(before),
        }
    }

    /// Adds to the first eight bytes, in host order, modulo 2^64: the value before.
    ///
    /// `None` if the memory is shorter or not aligned to eight.
    #[must_use]
    pub fn fetch_add(&self, addend: u64) -> Option<u64> {
        // rule: roce-112
        Some(self.span.atomic()?.fetch_add(addend, Ordering::SeqCst))
    }

    /// Writes eight bytes in one step, in the order given; `None` if short or not aligned.
    #[must_use]
    pub fn atomic_write(&self, bytes: [u8; 8]) -> Option<()> {
        self.span
            .atomic()?
            .store(u64::from_ne_bytes(bytes), Ordering::SeqCst);
        Some(())
    }
}

#[cfg(test)]
mod tests;
