//! What a packet carries behind its headers, and how that goes into a batch.
//!
//! ```text
//! ()               nothing
//! &[u8]            bytes of our own (inline data, atomic results)            copied
//! Span, &[Span]    checked windows of registered memory, one or several      up to COPY_MAX
//!                  bytes copied, else gathered in place
//! ```
//!
//! A type each, since almost every packet is of one of them and none has a choice left.

use super::arena::TxArena;
use crate::mem::Span;
use crate::wire::Icrc;

/// Payloads up to this many bytes are copied into the arena instead of gathered.
pub(crate) const COPY_MAX: usize = 512;

/// The payload of one packet.
pub(crate) trait Payload: Copy {
    /// Bytes.
    fn len(self) -> usize;
    /// Gather entries that it may take.
    fn pieces(self) -> usize;
    /// Puts it behind what is in the arena, and into the sum.
    fn put(self, arena: &mut TxArena, icrc: &mut Icrc);
}

impl Payload for () {
    #[inline]
    fn len(self) -> usize {
        0
    }

    #[inline]
    fn pieces(self) -> usize {
        0
    }

    #[inline]
    fn put(self, _arena: &mut TxArena, _icrc: &mut Icrc) {}
}

impl Payload for &[u8] {
    #[inline]
    fn len(self) -> usize {
        self.len()
    }

    #[inline]
    fn pieces(self) -> usize {
        0
    }

    #[inline]
    fn put(self, arena: &mut TxArena, icrc: &mut Icrc) {
        arena.put_bytes(self);
        icrc.bytes(self);
    }
}

impl Payload for Span<'_> {
    #[inline]
    fn len(self) -> usize {
        Span::len(&self)
    }

    #[inline]
    fn pieces(self) -> usize {
        1
    }

    #[inline]
    fn put(self, arena: &mut TxArena, icrc: &mut Icrc) {
        put_spans(&[self], self.len(), arena, icrc);
    }
}

impl Payload for &[Span<'_>] {
    #[inline]
    fn len(self) -> usize {
        self.iter().map(Span::len).sum()
    }

    #[inline]
    fn pieces(self) -> usize {
        self.len()
    }

    #[inline]
    fn put(self, arena: &mut TxArena, icrc: &mut Icrc) {
        put_spans(self, Payload::len(self), arena, icrc);
    }
}

/// The sum is that of the copy: a program may change its memory at any time.
#[inline(always)]
fn put_spans(spans: &[Span<'_>], len: usize, arena: &mut TxArena, icrc: &mut Icrc) {
    if len <= COPY_MAX {
        arena.put_copy(spans, len).crc(icrc.hasher());
    } else {
        for span in spans {
            span.crc(icrc.hasher());
        }
        arena.gather(spans);
    }
}
