//! Scatter and gather lists: a message laid over pieces of memory.
//!
//! ```text
//! message   0 ........ 10 ........ 30 ...... 42
//! entries   [ sge 0: 10 ][ sge 1: 20 ][ sge 2: 12 ]       empty entries count for nothing
//!                  └──── [offset, offset + len) ───┘  ──► pieces (index, addr, len)
//! ```
//!
//! What this does *not* do: check keys, or decide what a short list means; the caller compares
//! total lengths.

use crate::num::Lkey;

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
    match sges {
        [sge] => u64::from(sge.len),
        _ => sges.iter().map(|sge| u64::from(sge.len)).sum(),
    }
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

/// The part under `[offset, offset + len)` if it is one, and of the first entry: the entry, address
/// and bytes. Otherwise [`for_each_piece`] finds it.
#[inline]
#[must_use]
pub fn single(sges: &[Sge], offset: u64, len: usize) -> Option<(&Sge, u64, u32)> {
    let first = sges.first()?;
    let len = u32::try_from(len).ok().filter(|len| *len > 0)?;
    let end = offset.checked_add(u64::from(len))?;
    (end <= u64::from(first.len)).then_some((first, first.addr.wrapping_add(offset), len))
}

/// Calls `f` with each part of the list under `[offset, offset + len)`: entry, address, bytes.
///
/// Ends at the first error.
#[inline]
pub fn for_each_piece<E>(
    sges: &[Sge],
    offset: u64,
    len: usize,
    mut f: impl FnMut(&Sge, u64, u32) -> Result<(), E>,
) -> Result<(), E> {
    let (mut skip, mut left) = (offset, len as u64);
    for sge in sges {
        if left == 0 {
            break;
        }
        let size = u64::from(sge.len);
        let within = skip.min(size);
        let part = left.min(size - within);
        skip -= within;
        left -= part;
        if part != 0 {
            // Not more than the entry has.
            let bytes = u32::try_from(part).unwrap_or(sge.len);
            f(sge, sge.addr.wrapping_add(within), bytes)?;
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

#[cfg(test)]
mod tests;
