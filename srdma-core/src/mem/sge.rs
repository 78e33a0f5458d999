//! Scatter and gather lists: a message laid over pieces of memory.
//!
//! ```text
//! message   0 ........ 10 ........ 30 ...... 42
//! entries   [ sge 0: 10 ][ sge 1: 20 ][ sge 2: 12 ]       empty entries count for nothing
//!                  └──── [offset, offset + len) ───┘  ──► pieces (index, addr, len)
//! ```
//!
//! [`SgeClaims`] checks each entry's key once and keeps a claim of it, so that packets of the same
//! message only compare generations. What this does *not* do: decide what a short list means; the
//! caller compares total lengths.

use super::access::Access;
use super::fault::KeyFault;
use super::grant::{Claim, Grant};
use super::mr::MrTable;
use crate::num::{Lkey, PdId};

/// Entries of the longest list: thirteen, and one for a result that an operation adds.
pub const MAX_LIST: usize = crate::limits::MAX_SGE + 1;

/// One entry of a scatter or gather list.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// Address as the region counts it.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// A part of one entry.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which entry of the list.
    pub index: usize,
    /// Where the part starts inside of the entry.
    pub within: u32,
    /// Address of the part.
    pub addr: u64,
    /// Bytes, never 0.
    pub len: u32,
}

/// Bytes of all entries together.
#[inline]
#[must_use]
pub fn total_len(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len)).sum()
}

/// Which entry holds byte `offset` of the message, and where in it.
///
/// `None` at or beyond the end.
#[must_use]
pub fn locate(sges: &[Sge], offset: u64) -> Option<(usize, u32)> {
    pieces(sges, offset, 1)
        .next()
        .map(|piece| (piece.index, piece.within))
}

/// The parts of the list under `[offset, offset + len)` of the message, in order.
///
/// A list that ends before gives fewer bytes.
pub fn pieces(sges: &[Sge], offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<'_> {
    cut(sges.iter().map(|sge| sge.len), offset, len).map(|(index, within, len)| {
        let base = sges.get(index).map_or(0, |sge| sge.addr);
        Piece {
            index,
            within,
            addr: base.wrapping_add(u64::from(within)),
            len,
        }
    })
}

/// Calls `f` with each part of the list under `[offset, offset + len)`: entry, address, bytes.
///
/// Ends at the first error.
pub fn for_each_piece<E>(
    sges: &[Sge],
    offset: u64,
    len: usize,
    mut f: impl FnMut(&Sge, u64, u32) -> Result<(), E>,
) -> Result<(), E> {
    for piece in pieces(sges, offset, len) {
        if let Some(sge) = sges.get(piece.index) {
            f(sge, piece.addr, piece.len)?;
        }
    }
    Ok(())
}

/// Walks lengths: (entry, start in it, bytes) for each part of `[offset, offset + len)`.
fn cut(
    lens: impl Iterator<Item = u32>,
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (usize, u32, u32)> {
    let mut skip = offset;
    let mut left = len;
    lens.enumerate()
        .map_while(move |(index, entry)| {
            if left == 0 {
                return None;
            }
            let within = u32::try_from(skip).map_or(entry, |skip| skip.min(entry));
            skip -= u64::from(within);
            let part = u32::try_from(left).map_or(entry - within, |left| left.min(entry - within));
            left -= part as usize;
            Some((index, within, part))
        })
        .filter(|(_, _, part)| *part != 0)
}

/// A list whose keys were checked: one claim for each entry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SgeClaims {
    claims: [Claim; MAX_LIST],
    count: usize,
}

impl SgeClaims {
    /// Checks the keys of a list for one use: `LOCAL_READ` to gather, `LOCAL_WRITE` to scatter.
    ///
    /// Empty entries are not looked at. A list longer than the device takes is a bounds fault.
    pub fn check(
        regions: &MrTable,
        pd: PdId,
        sges: &[Sge],
        need: Access,
    ) -> Result<Self, KeyFault> {
        let mut list = Self::default();
        for sge in sges.iter().filter(|sge| sge.len != 0) {
            let place = list.claims.get_mut(list.count).ok_or(KeyFault::Bounds)?;
            *place = regions
                .check_local(sge.lkey, pd, need, sge.addr, sge.len)?
                .claim();
            list.count += 1;
        }
        Ok(list)
    }

    /// The claims, one for each entry that was not empty.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Claim] {
        self.claims.get(..self.count).unwrap_or(&[])
    }

    /// Bytes of all entries together.
    #[inline]
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.as_slice().iter().map(|claim| claim.len).sum()
    }

    /// Calls `f` with a grant for each part under `[offset, offset + len)` of the message.
    ///
    /// Ends at the first fault: of a region that is gone, or of `f`. The caller knows that the
    /// list is long enough.
    pub fn gather<'a, E: From<KeyFault>>(
        &self,
        regions: &'a MrTable,
        offset: u64,
        len: usize,
        mut f: impl FnMut(Grant<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut skip = offset;
        let mut left = len as u64;
        for claim in self.as_slice() {
            let within = skip.min(claim.len);
            skip -= within;
            let part = left.min(claim.len - within);
            left -= part;
            if part != 0 {
                let part = usize::try_from(part).map_err(|_| KeyFault::Bounds)?;
                f(regions.renew(claim, within, part)?)?;
            }
        }
        Ok(())
    }

    /// Places payload at `offset` of the message.
    ///
    /// A list too short is a bounds fault, found before anything is placed. Cost: one copy.
    pub fn scatter(&self, regions: &MrTable, offset: u64, bytes: &[u8]) -> Result<(), KeyFault> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(KeyFault::Bounds)?;
        if end > self.total_len() {
            return Err(KeyFault::Bounds);
        }
        let mut rest = bytes;
        self.gather(regions, offset, bytes.len(), |grant| {
            let (part, more) = rest.split_at_checked(grant.len()).ok_or(KeyFault::Bounds)?;
            rest = more;
            grant.place(0, part)
        })
    }
}

#[cfg(test)]
mod tests;
