//! The bytes that gather entries name, copied out: for the in-memory wire, for captures, and to see
//! whom packets are for.

use bytes::BytesMut;
use srdma_core::tx::Seg;

/// Appends the bytes of `segs` to `out`.
///
/// A program may change registered memory during the copy; then the ICRC does not fit and the
/// receiver drops the packet, as with a NIC.
pub(crate) fn append(out: &mut BytesMut, segs: &[Seg<'_>]) {
    let total: usize = segs.iter().map(Seg::len).sum();
    let mut at = out.len();
    out.resize(at + total, 0);
    for seg in segs {
        let Some(room) = out.get_mut(at..at + seg.len()) else {
            return;
        };
        at += copy(seg, room);
    }
}

/// The first bytes that `segs` name; zeros where there are none.
pub(crate) fn first<const N: usize>(segs: &[Seg<'_>]) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    for seg in segs {
        at += copy(seg, out.get_mut(at..).unwrap_or_default());
    }
    out
}

/// Copies as much of `seg` as there is room for, and says how much that is.
fn copy(seg: &Seg<'_>, room: &mut [u8]) -> usize {
    let len = seg.len().min(room.len());
    if len > 0 {
        // SAFETY: why needed: registered memory may change under us, so it is never a slice. Why
        // sound: a `Seg<'_>` is made only by the core from a checked range that lives for its
        // lifetime; the target is an exclusive borrow in our own buffer; no more is read than the
        // one has, and no more is written than the other.
        unsafe { core::ptr::copy_nonoverlapping(seg.base(), room.as_mut_ptr(), len) };
    }
    len
}
