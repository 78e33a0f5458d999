//! Payload of a packet: windows of registered memory in place, or a copy where it may be absent;
//! and the way back, from a packet into the entries of a list.
//!
//! What this does *not* do: say what a fault means; a request fails with it, an answer is refused.

use crate::limits::MAX_SGE;
use crate::mem::sge::{for_each_piece, single};
use crate::mem::{Access, Grant, KeyFault, MrTable, Sge, Span};
use crate::num::PdId;
use crate::obj::table::Slot;
use crate::tx::TxArena;
use crate::tx::arena::MarkKind;
use crate::tx::path::Path;
use crate::wire::Head;

/// Windows of up to 14 pieces of memory, on the stack.
struct Pieces<'a> {
    spans: [Span<'a>; MAX_SGE + 1],
    count: usize,
    /// Some piece is not simply there.
    paged: bool,
}

/// Where the packet goes, and what is told once it left.
pub(crate) type Target<'a> = (&'a Path, (Slot, MarkKind));

/// A part of a message that lies over scatter/gather entries.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pd: PdId,
    sges: &'a [Sge],
    offset: u64,
    len: usize,
}

impl<'s> Part<'s> {
    /// `[offset, offset + len)` of the message that `sges` describe.
    pub(crate) const fn new(pd: PdId, sges: &'s [Sge], offset: u64, len: usize) -> Self {
        Self {
            pd,
            sges,
            offset,
            len,
        }
    }

    // rule: roce-69
    fn gather<'a>(&self, regions: &'a MrTable) -> Result<Pieces<'a>, KeyFault> {
        let mut pieces = Pieces {
            spans: [Span::empty(); MAX_SGE + 1],
            count: 0,
            paged: false,
        };
        for_each_piece(self.sges, self.offset, self.len, |sge, addr, len| {
            let span = regions.check_gather(sge.lkey, self.pd, addr, len)?;
            match (span, pieces.spans.get_mut(pieces.count)) {
                (Some(span), Some(slot)) => {
                    *slot = span;
                    pieces.count += 1;
                }
                (None, _) => pieces.paged = true,
                (Some(_), None) => {}
            }
            Ok(())
        })?;
        Ok(pieces)
    }

    /// Copies the bytes out.
    pub(crate) fn copy(&self, regions: &MrTable, bytes: &mut [u8]) -> Result<(), KeyFault> {
        let mut rest = bytes;
        for_each_piece(self.sges, self.offset, self.len, |sge, addr, len| {
            let grant = regions.check_local(sge.lkey, self.pd, Access::LOCAL_READ, addr, len)?;
            let (part, more) = core::mem::take(&mut rest)
                .split_at_mut_checked(len as usize)
                .ok_or(KeyFault::Bounds)?;
            rest = more;
            grant.copy_out(0, part)
        })
    }

    /// Places `bytes` there. Returns how many found an entry: the rest lies behind the last one.
    #[inline]
    pub(crate) fn place(&self, regions: &MrTable, bytes: &[u8]) -> Result<usize, KeyFault> {
        // Most messages lie in one piece.
        if let Some(piece) = single(self.sges, self.offset, bytes.len()) {
            self.place_piece(regions, piece, bytes)?;
            return Ok(bytes.len());
        }
        self.place_pieces(regions, bytes)
    }

    #[inline(never)]
    fn place_pieces(&self, regions: &MrTable, bytes: &[u8]) -> Result<usize, KeyFault> {
        let mut from = 0usize;
        for_each_piece(self.sges, self.offset, self.len, |sge, addr, len| {
            let to = from + len as usize;
            let part = bytes.get(from..to).unwrap_or(&[]);
            self.place_piece(regions, (sge, addr, len), part)?;
            from = to;
            Ok(())
        })?;
        Ok(from)
    }

    /// Places the part of one entry.
    #[inline]
    fn place_piece(
        &self,
        regions: &MrTable,
        (sge, addr, len): (&Sge, u64, u32),
        bytes: &[u8],
    ) -> Result<(), KeyFault> {
        let grant = regions.check_local(sge.lkey, self.pd, Access::LOCAL_WRITE, addr, len)?;
        grant.place(0, bytes)
    }

    /// Builds the packet; false if it has to wait for the arena.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        regions: &MrTable,
        arena: &mut TxArena,
        (path, mark): Target<'_>,
        head: &mut Head,
    ) -> Result<bool, KeyFault> {
        // Most messages lie in one piece.
        if let Some((sge, addr, len)) = single(self.sges, self.offset, self.len)
            && let Some(span) = regions.check_gather(sge.lkey, self.pd, addr, len)?
        {
            return Ok(arena.push(path, mark, head, span));
        }
        self.push_pieces(regions, arena, (path, mark), head)
    }

    fn push_pieces(
        &self,
        regions: &MrTable,
        arena: &mut TxArena,
        (path, mark): Target<'_>,
        head: &mut Head,
    ) -> Result<bool, KeyFault> {
        let pieces = self.gather(regions)?;
        if pieces.paged {
            return with_copy(arena, self.len, (path, mark), head, |bytes| {
                self.copy(regions, bytes)
            });
        }
        let spans = pieces.spans.get(..pieces.count).unwrap_or(&[]);
        Ok(arena.push(path, mark, head, spans))
    }
}

/// Builds a packet of the whole of a grant; false if it has to wait for the arena.
#[inline]
pub(crate) fn push_grant(
    grant: &Grant<'_>,
    arena: &mut TxArena,
    (path, mark): Target<'_>,
    head: &mut Head,
) -> Result<bool, KeyFault> {
    match grant.span() {
        Some(span) => Ok(arena.push(path, mark, head, span)),
        None => with_copy(arena, grant.len(), (path, mark), head, |bytes| {
            grant.copy_out(0, bytes)
        }),
    }
}

/// Builds a packet of `len` bytes that `fill` copies out of memory that may be absent.
#[cold]
fn with_copy(
    arena: &mut TxArena,
    len: usize,
    (path, mark): Target<'_>,
    head: &mut Head,
    fill: impl FnOnce(&mut [u8]) -> Result<(), KeyFault>,
) -> Result<bool, KeyFault> {
    let mut copy = core::mem::take(&mut arena.copy);
    copy.resize(len, 0);
    let done = fill(&mut copy).map(|()| arena.push(path, mark, head, copy.as_slice()));
    arena.copy = copy;
    done
}
