//! Grants and claims: proof that a part of a region may be used, now or again later.
//!
//! ```text
//! Grant<'a>   borrowed from the MrTable: no region can go away while one exists
//! Claim       plain numbers: region slot, window slot, offset, length; `MrTable::renew` makes a
//!             grant of it again, if region and window are still the same ones
//! ```
//!
//! What this does *not* do: check keys; only `mr.rs` makes grants.

use super::fault::KeyFault;
use super::host::Span;
use super::pager::{AtomicStep, Pager};
use crate::obj::table::Slot;

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
    /// Only an address and a length, if `pager` must be asked.
    span: Span<'a>,
    pager: Option<&'a dyn Pager>,
    region: Slot,
    window: Slot,
    offset: u64,
}

impl<'a> Grant<'a> {
    /// Only the checks of the table make grants.
    #[inline]
    pub(super) const fn new(
        (span, pager): (Span<'a>, Option<&'a dyn Pager>),
        region: Slot,
        window: Slot,
        offset: u64,
    ) -> Self {
        Self {
            span,
            pager,
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

    /// Where it begins in the host's memory, to compare.
    pub(crate) fn addr(&self) -> u64 {
        self.span.addr()
    }

    /// The memory itself, bounded: for gather lists and checksums. `None` where memory may be
    /// absent: such bytes have to be copied out.
    #[inline]
    #[must_use]
    pub const fn span(&self) -> Option<Span<'a>> {
        match self.pager {
            None => Some(self.span),
            Some(_) => None,
        }
    }

    /// Makes memory that may be absent ready for use.
    pub fn prefetch(&self, write: bool) -> Result<(), KeyFault> {
        let ready = self
            .pager
            .is_none_or(|pager| pager.prefetch(self.span.addr(), self.span.len() as u64, write));
        if ready { Ok(()) } else { Err(KeyFault::Absent) }
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
    pub fn place(&self, offset: usize, bytes: &[u8]) -> Result<(), KeyFault> {
        match self.pager {
            None => {
                self.span.copy_in_ordered(offset, bytes);
                Ok(())
            }
            Some(pager) => self.place_paged(pager, offset, bytes),
        }
    }

    /// As `place`, where memory may be absent: the last word in a step of its own.
    #[cold]
    fn place_paged(&self, pager: &dyn Pager, offset: usize, bytes: &[u8]) -> Result<(), KeyFault> {
        let part = self.slice(offset, bytes.len()).ok_or(KeyFault::Bounds)?;
        let addr = part.span.addr();
        let end = addr.wrapping_add(bytes.len() as u64);
        let over = usize::try_from(end % 8).unwrap_or(0);
        let tail = bytes.len().min(if over == 0 { 8 } else { over });
        let (body, tail) = bytes.split_at(bytes.len() - tail);
        let after = addr.wrapping_add(body.len() as u64);
        if (body.is_empty() || pager.write(addr, body)) && pager.write(after, tail) {
            Ok(())
        } else {
            Err(KeyFault::Absent)
        }
    }

    /// Takes payload out from `offset`, filling `bytes`.
    ///
    /// # Panics
    ///
    /// If the bytes leave the grant: lengths are checked before.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), KeyFault> {
        let Some(pager) = self.pager else {
            self.span.copy_out(offset, bytes);
            return Ok(());
        };
        let part = self.slice(offset, bytes.len()).ok_or(KeyFault::Bounds)?;
        if pager.read(part.span.addr(), bytes) {
            Ok(())
        } else {
            Err(KeyFault::Absent)
        }
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

    /// One atomic step on the first eight bytes, in host order: the value before. `Ok(None)` if the
    /// memory is shorter or not aligned to eight.
    ///
    /// One step against every other RDMA atomic and against the program's own atomics.
    /// [IBTA 9.4.5]
    pub fn atomic(&self, step: AtomicStep) -> Result<Option<u64>, KeyFault> {
        // rule: roce-112
        if let Some(pager) = self.pager {
            if self.len() < 8 || !self.span.addr().is_multiple_of(8) {
                return Ok(None);
            }
            let before = pager.atomic(self.span.addr(), step);
            return before.map(Some).ok_or(KeyFault::Absent);
        }
        Ok(self.span.atomic().map(|word| step.run(word)))
    }
}

#[cfg(test)]
mod tests;
