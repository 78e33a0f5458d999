//! How deep the oracle makes rings.                                    [E810 1.2, 1.3]
//!
//! What this does *not* do: say what is right. The tests compare it with `ring::depth`.

use crate::Refused;
use crate::ffi;

/// log2 of the quanta of the largest WQE with these needs.
#[must_use]
pub fn wqe_shift(sges: u32, inline: u32) -> u8 {
    let attrs = ffi::e810();
    let mut shift = 0;
    // SAFETY: why needed: a call into C. Why sound: both pointers are of live memory of the types
    // that it expects.
    unsafe { ffi::get_wqe_shift(attrs.ptr(), sges, inline, &raw mut shift) };
    shift
}

/// Quanta of an SQ for `wrs` WRs of `1 << shift` quanta.
pub fn sq_depth(wrs: u32, shift: u8) -> Result<u32, Refused> {
    let attrs = ffi::e810();
    let mut depth = 0;
    // SAFETY: why needed: a call into C. Why sound: as in `wqe_shift`.
    let code = unsafe { ffi::get_sq_depth(attrs.ptr(), wrs, shift, &raw mut depth) };
    Refused::check(code).map(|()| depth)
}

/// Quanta of an RQ for `wrs` WRs of `1 << shift` quanta.
pub fn rq_depth(wrs: u32, shift: u8) -> Result<u32, Refused> {
    let attrs = ffi::e810();
    let mut depth = 0;
    // SAFETY: why needed: a call into C. Why sound: as in `wqe_shift`.
    let code = unsafe { ffi::get_rq_depth(attrs.ptr(), wrs, shift, &raw mut depth) };
    Refused::check(code).map(|()| depth)
}

/// SQ quanta for a number of fragments, an immediate counted as one.
pub fn fragment_quanta(fragments: u32) -> Result<u16, Refused> {
    let mut quanta = 0;
    // SAFETY: why needed: a call into C. Why sound: the pointer is of a live number of its type.
    let code = unsafe { ffi::fragment_quanta(fragments, &raw mut quanta) };
    Refused::check(code).map(|()| quanta)
}

/// Bytes of an RQ WQE for a number of fragments.
pub fn rq_wqe_bytes(fragments: u32) -> Result<u16, Refused> {
    let mut bytes = 0;
    // SAFETY: why needed: a call into C. Why sound: the pointer is of a live number of its type.
    let code = unsafe { ffi::fragment_wqe_bytes(fragments, &raw mut bytes) };
    Refused::check(code).map(|()| bytes)
}
