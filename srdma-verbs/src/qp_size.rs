//! How large the queues of a queue pair become, and where its parts lie in its memory.
//!
//! ```text
//! SQ │ RQ │ shadow │ context │ records of sends │ records of receives
//! ```

use crate::driver::alloc::RingMem;
use crate::driver::track::{RqTrack, SQ_RECORD_WORDS, SqTrack};
use crate::error::{Arg, Reason};
use crate::qp::{Layout, QpCaps};
use srdma_core::hw::qp_ctx::QP_CTX_BYTES;
use srdma_core::hw::shadow::SHADOW_WORDS;
use srdma_core::limits::{MAX_INLINE, MAX_SGE, MAX_WQ_QUANTA};
use srdma_core::mem::HostFault;
use srdma_core::mem::host::PAGE;
use srdma_core::ring::depth;

/// Largest number of scatter/gather entries.
#[allow(clippy::cast_possible_truncation, reason = "13")]
const SGES: u32 = MAX_SGE as u32;
/// Largest number of inline bytes.
#[allow(clippy::cast_possible_truncation, reason = "101")]
const INLINE: u32 = MAX_INLINE as u32;

/// Sizes of both queues for what was asked, and what they come to.     [E810 1.2, 1.7]
pub(crate) fn size(asked: QpCaps, srq: bool) -> Result<(QpCaps, Layout), Reason> {
    let range = |arg, limit: u32| Reason::Range {
        arg,
        limit: u64::from(limit),
    };
    let sges = SGES;
    if asked.max_send_sge > sges {
        return Err(range(Arg::SendSge, sges));
    }
    if asked.max_recv_sge > sges && !srq {
        return Err(range(Arg::RecvSge, sges));
    }
    if asked.max_inline > INLINE {
        return Err(range(Arg::Inline, INLINE));
    }
    let sq_shift = depth::sq_shift(asked.max_send_sge, asked.max_inline);
    let sends = (MAX_WQ_QUANTA - depth::SQ_DEPTH_RESERVE) >> sq_shift;
    let sq_quanta = depth::sq_depth(asked.max_send_wr, sq_shift);
    let sq_quanta = sq_quanta.ok_or_else(|| range(Arg::SendWr, sends))?;
    let rq_shift = depth::rq_shift(asked.max_recv_sge.min(sges));
    let receives = (MAX_WQ_QUANTA - depth::RQ_DEPTH_RESERVE) >> rq_shift;
    let rq_quanta = if srq {
        Some(0)
    } else {
        depth::rq_depth(asked.max_recv_wr, rq_shift)
    };
    let rq_quanta = rq_quanta.ok_or_else(|| range(Arg::RecvWr, receives))?;
    let rq_at = (sq_quanta as usize * 32).next_multiple_of(PAGE);
    let shadow_at = rq_at + (rq_quanta as usize * 32).next_multiple_of(PAGE);
    let ctx_at = shadow_at + (8 * SHADOW_WORDS).next_multiple_of(128);
    let sq_track_at = ctx_at + QP_CTX_BYTES;
    let rq_track_at = sq_track_at + sq_quanta as usize * 8 * SQ_RECORD_WORDS;
    let rq_wqes = rq_quanta >> rq_shift;
    let layout = Layout {
        sq_quanta,
        rq_wqes,
        rq_shift,
        rq_at,
        shadow_at,
        ctx_at,
        sq_track_at,
        rq_track_at,
        // A queue pair with a shared receive queue has a word as well, which nobody uses.
        len: rq_track_at + 8 * rq_wqes.max(1) as usize,
    };
    let caps = QpCaps {
        max_send_wr: depth::max_send_wr(sq_quanta, sq_shift),
        max_recv_wr: depth::max_recv_wr(rq_quanta, rq_shift),
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_sge: if srq { 0 } else { asked.max_recv_sge.max(1) },
        max_inline: asked.max_inline,
    };
    Ok((caps, layout))
}

/// Where what is posted is remembered.
pub(crate) fn tracks(mem: &RingMem, layout: &Layout) -> Result<(SqTrack, RqTrack), HostFault> {
    let sq_len = layout.sq_quanta as usize * 8 * SQ_RECORD_WORDS;
    let rq_len = 8 * layout.rq_wqes.max(1) as usize;
    Ok((
        SqTrack::new(mem.words(layout.sq_track_at, sq_len)?),
        RqTrack::new(mem.words(layout.rq_track_at, rq_len)?, layout.rq_shift),
    ))
}
