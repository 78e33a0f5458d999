//! How deep a ring must be for what a program asks.                    [E810 1.2, 1.3]
//!
//! ```text
//! (SGEs, inline bytes) ──► shift: a WQE has 1 << shift quanta at most
//! (WRs, shift)         ──► depth in quanta: a power of two, with the reserve
//! ```
//!
//! `None` means that the device cannot have it. Nothing here allocates.

use crate::limits::{MAX_SRQ_QUANTA, MAX_WQ_QUANTA};

/// Quanta an SQ keeps back when depths are computed: one more than it enforces. [E810 1.2]
pub const SQ_DEPTH_RESERVE: u32 = 258;
/// Entries an RQ keeps back.                                          [E810 1.2]
pub const RQ_DEPTH_RESERVE: u32 = 1;
/// Fewest WRs a queue is made for.                                    [E810 1.7]
pub const MIN_WRS: u32 = 8;

/// log2 of the quanta of the largest WQE with these needs.            [E810 1.2]
#[must_use]
pub const fn wqe_shift(sges: u32, inline: u32) -> u8 {
    if sges <= 1 && inline <= 8 {
        0
    } else if sges < 4 && inline <= 39 {
        1
    } else if sges < 8 && inline <= 101 {
        2
    } else {
        3
    }
}

/// Shift of an SQ: room for an immediate beside the SGEs.             [E810 1.2]
#[must_use]
pub const fn sq_shift(max_send_sge: u32, max_inline: u32) -> u8 {
    wqe_shift(max_send_sge + 1, max_inline)
}

/// Shift of an RQ or SRQ.                                             [E810 1.2]
#[must_use]
pub const fn rq_shift(max_recv_sge: u32) -> u8 {
    wqe_shift(max_recv_sge, 0)
}

/// Quanta of an SQ for `wrs` WRs.                                     [E810 1.2]
#[must_use]
pub const fn sq_depth(wrs: u32, shift: u8) -> Option<u32> {
    depth(wrs, shift, SQ_DEPTH_RESERVE, MAX_WQ_QUANTA)
}

/// Quanta of an RQ for `wrs` WRs.                                     [E810 1.2]
#[must_use]
pub const fn rq_depth(wrs: u32, shift: u8) -> Option<u32> {
    depth(wrs, shift, RQ_DEPTH_RESERVE, MAX_WQ_QUANTA)
}

/// Quanta of an SRQ for `wrs` WRs.                                    [E810 1.2]
#[must_use]
pub const fn srq_depth(wrs: u32, shift: u8) -> Option<u32> {
    depth(wrs, shift, RQ_DEPTH_RESERVE, MAX_SRQ_QUANTA)
}

/// WRs that fit an SQ whatever their sizes up to the shift.           [E810 1.2]
#[must_use]
pub const fn max_send_wr(depth: u32, shift: u8) -> u32 {
    depth.saturating_sub(SQ_DEPTH_RESERVE) >> shift
}

/// WRs that fit an RQ or SRQ.                                         [E810 1.2]
#[must_use]
pub const fn max_recv_wr(depth: u32, shift: u8) -> u32 {
    depth.saturating_sub(RQ_DEPTH_RESERVE) >> shift
}

/// Slots of a CQ for `entries` completions, each of which may be extended. [E810 1.7]
// rule: e810-5
#[must_use]
pub const fn cq_slots(entries: u32, wide: bool) -> Option<u32> {
    let slots = entries as u64 + 1;
    let slots = if wide { slots } else { 2 * slots };
    let slots = slots + slots % 2;
    let slots = if slots < 4 { 4 } else { slots };
    if slots > crate::limits::MAX_CQE as u64 {
        None
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "bounded by the line above")]
        Some(slots as u32)
    }
}

const fn depth(wrs: u32, shift: u8, reserve: u32, max: u32) -> Option<u32> {
    let wanted = ((wrs as u64) << shift) + reserve as u64;
    if wanted > max as u64 {
        return None;
    }
    let depth = wanted.next_power_of_two();
    let least = (MIN_WRS << shift) as u64;
    let depth = if depth < least { least } else { depth };
    if depth > max as u64 {
        None
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "bounded by the line above")]
        Some(depth as u32)
    }
}
