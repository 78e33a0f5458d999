//! From queue entries to completions: the poll algorithm.               [E810 3.5]
//!
//! ```text
//! entry of a healthy queue   one completion, and all earlier unsignaled requests with it
//! flush entry                one completion for every request still outstanding: the first with
//!                            the cause, the others flushed; the entry stays ("parked") meanwhile
//! context 0                  of a queue pair that is gone: skipped
//! ```
//!
//! What this does *not* do: drive the device when nothing is there (see `cq.rs`).

use super::shared::{QpShared, qpn_of, slot_of};
use super::track::RqTrack;
use crate::wc::{Completion, WcOpcode, WcStatus, WrId};
use srdma_core::hw::cqe::{FlushCode, Major, rq_op_is_write_imm};
use srdma_core::hw::{AeCode, CqeInfo, SqOp};
use srdma_core::num::{Qpn, Rkey};
use srdma_core::ring::{CqConsumer, Next};
use std::sync::Arc;

/// The reading end of a completion queue, and the queue pairs that report to it.
#[derive(Debug)]
pub(crate) struct Reaper {
    pub(crate) ring: CqConsumer,
    qps: Vec<Option<Arc<QpShared>>>,
    /// Slots that are free, so that taking one costs the same with many queue pairs as with few.
    free: Vec<usize>,
}

/// What an entry gave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaped {
    /// A completion, and the entry is done.
    One,
    /// A completion, and the entry has more.
    Parked,
    /// Nothing.
    Skip,
}

impl Reaper {
    pub(crate) const fn new(ring: CqConsumer) -> Self {
        Self {
            ring,
            qps: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Lets a queue pair report here, and says in which slot.
    pub(crate) fn add(&mut self, qp: &Arc<QpShared>) -> usize {
        let slot = self.free.pop().unwrap_or(self.qps.len());
        match self.qps.get_mut(slot) {
            Some(place) => *place = Some(Arc::clone(qp)),
            None => self.qps.push(Some(Arc::clone(qp))),
        }
        slot
    }

    /// The queue pair is gone from the device and its entries are void: its slot is free.
    pub(crate) fn remove(&mut self, slot: usize) {
        if let Some(place) = self.qps.get_mut(slot)
            && place.take().is_some()
        {
            self.free.push(slot);
        }
    }

    /// Makes the entries of a queue pair void.                        [E810 3.7]
    pub(crate) fn clean(&mut self, context: u64, srq: bool) {
        let receives = self.ring.clean(context);
        if srq
            && let Some(Some(qp)) = self.qps.get(slot_of(context, false))
            && let Some(srq) = &qp.srq
        {
            // The shared queue gets the places of receives back that nobody will report.
            srq.complete(receives);
        }
    }

    /// True if an entry waits. Cost: a load if there is none.
    pub(crate) fn has_next(&mut self) -> bool {
        self.ring.is_ready()
    }

    /// Writes the next completion to `place`; false if there is none, at the cost of one load.
    pub(crate) fn next_into(&mut self, place: &mut Completion) -> bool {
        loop {
            let reaped = match self.ring.peek_words() {
                Next::Nothing => return false,
                Next::Plain(words) => {
                    // What the words do not say, the compiler knows from here on, as long as it
                    // sees all that is done with the entry.
                    let info = CqeInfo::decode(&words, None);
                    if let Some(qp) = owner(&self.qps, &info)
                        && reap_done(qp, &info, place)
                    {
                        self.ring.advance(false);
                        return true;
                    }
                    self.reap(&CqeInfo::decode(&words, None), place)
                }
                Next::Other => match self.ring.peek() {
                    None => return false,
                    Some(info) => self.reap(&info, place),
                },
            };
            if reaped != Reaped::Skip {
                return true;
            }
        }
    }

    /// What an entry stands for; moves past it unless there is more to it.
    #[inline(never)]
    // rule: e810-9
    fn reap(&mut self, info: &CqeInfo, place: &mut Completion) -> Reaped {
        let reaped = match owner(&self.qps, info) {
            None => Reaped::Skip,
            Some(qp) if reap_done(qp, info, place) => Reaped::One,
            Some(qp) => reap_seldom(qp, &mut self.ring, info, place),
        };
        if reaped != Reaped::Parked {
            self.ring.advance(info.extended());
        }
        reaped
    }
}

/// The queue pair that an entry is of; none if it is gone.
#[inline]
fn owner<'a>(qps: &'a [Option<Arc<QpShared>>], info: &CqeInfo) -> Option<&'a QpShared> {
    let qp = qps.get(slot_of(info.context, info.sq))?.as_deref()?;
    (info.context != 0 && qp.qpn == qpn_of(info.context)).then_some(qp)
}

/// A send, or a receive of the queue pair's own queue, that succeeded; false if it is neither.
#[allow(
    clippy::inline_always,
    reason = "its callers differ in what the compiler knows of the entry"
)]
#[inline(always)]
fn reap_done(qp: &QpShared, info: &CqeInfo, place: &mut Completion) -> bool {
    match (info.error, info.sq, info.srq_wr_id, &qp.rq) {
        (None, true, ..) => send_done(qp, info, place),
        (None, false, None, Some(rq)) => {
            let slot = rq.slot_of(info.wqe_index);
            let wr_id = rq.at(slot);
            rq.complete_to(slot + 1);
            received(qp, info, wr_id, place);
        }
        _ => return false,
    }
    true
}

/// An entry of a failed or flushed request, or of a shared receive queue.
#[inline(never)]
fn reap_seldom(
    qp: &QpShared,
    ring: &mut CqConsumer,
    info: &CqeInfo,
    place: &mut Completion,
) -> Reaped {
    let flushed = matches!(info.error, Some((Major::FLUSH | Major::SRQ_FLUSH, _)));
    match (info.sq, info.srq_wr_id, &qp.rq) {
        (true, ..) if !flushed => {
            send_done(qp, info, place);
            Reaped::One
        }
        (true, ..) => match send_flushed(qp, info, place) {
            Some(more) => park(ring, more),
            None => Reaped::Skip,
        },
        (false, Some(wr_id), _) => {
            if let Some(srq) = &qp.srq {
                srq.complete(1);
            }
            received(qp, info, WrId(wr_id), place);
            Reaped::One
        }
        (false, None, Some(rq)) => {
            let Some((wr_id, more)) = take_failed_receive(rq) else {
                return Reaped::Skip;
            };
            received(qp, info, wr_id, place);
            park(ring, more.filter(|_| flushed))
        }
        (false, None, None) => Reaped::Skip,
    }
}

/// Keeps a flush entry while its queue has more: the rest starts at `more`, and is flushed.
fn park(ring: &mut CqConsumer, more: Option<u16>) -> Reaped {
    let Some(index) = more else {
        return Reaped::One;
    };
    ring.park(index, FlushCode::GENERAL);
    Reaped::Parked
}

/// A send that completed for itself.
#[allow(clippy::inline_always, reason = "as `reap_done`")]
#[inline(always)]
fn send_done(qp: &QpShared, info: &CqeInfo, place: &mut Completion) {
    let status = status_of(info);
    let record = qp.sq.at(u32::from(info.wqe_index));
    qp.sq.complete_to(u32::from(info.wqe_index) + record.quanta);
    *place = Completion {
        wr_id: record.wr_id,
        status,
        opcode: send_opcode(SqOp(info.op)),
        byte_len: if status == WcStatus::Success {
            record.len
        } else {
            0
        },
        vendor_err: vendor_err(info),
        qp_num: info.qpn,
        timestamp: info.timestamp,
        ..Completion::EMPTY
    };
}

/// The next send that a flush entry stands for, and where the rest starts.
fn send_flushed(qp: &QpShared, info: &CqeInfo, place: &mut Completion) -> Option<Option<u16>> {
    qp.sq.flush_from(u32::from(info.wqe_index));
    let (index, record) = qp.sq.next_flushed()?;
    qp.sq.complete_to(index + record.quanta);
    *place = Completion {
        wr_id: record.wr_id,
        status: status_of(info),
        opcode: send_opcode(record.op.unwrap_or(SqOp::NOP)),
        vendor_err: vendor_err(info),
        qp_num: info.qpn,
        timestamp: info.timestamp,
        ..Completion::EMPTY
    };
    let more = qp
        .sq
        .next_flushed()
        .and_then(|(index, _)| u16::try_from(index).ok());
    Some(more)
}

/// The oldest receive, which is the one that failed, and where the rest starts.
fn take_failed_receive(rq: &RqTrack) -> Option<(WrId, Option<u16>)> {
    if rq.used() == 0 {
        return None;
    }
    let slot = rq.tail();
    let wr_id = rq.at(slot);
    rq.complete_to(slot + 1);
    Some((wr_id, (rq.used() != 0).then(|| rq.wqe_index(rq.tail()))))
}

#[allow(clippy::inline_always, reason = "as `reap_done`")]
#[inline(always)]
fn received(qp: &QpShared, info: &CqeInfo, wr_id: WrId, place: &mut Completion) {
    let datagram = qp.qp_type.is_datagram();
    let opcode = if rq_op_is_write_imm(info.op) && !datagram {
        WcOpcode::RecvRdmaWithImm
    } else {
        WcOpcode::Recv
    };
    *place = Completion {
        wr_id,
        status: status_of(info),
        opcode,
        byte_len: info.len,
        vendor_err: vendor_err(info),
        imm: info.imm,
        invalidated: (!datagram && info.stag_or_ipv4).then_some(Rkey(info.peer)),
        src_qp: datagram.then_some(Qpn::new(info.peer)),
        qp_num: info.qpn,
        solicited: info.solicited,
        grh: datagram,
        ipv4: datagram && info.stag_or_ipv4,
        timestamp: info.timestamp,
    };
}

#[inline]
fn vendor_err(info: &CqeInfo) -> u32 {
    info.error.map_or(0, |(major, minor)| {
        u32::from(major.0) << 16 | u32::from(minor)
    })
}

/// The status that the error codes of an entry mean.                  [E810 3.4]
#[inline]
// rule: event-43
fn status_of(info: &CqeInfo) -> WcStatus {
    match info.error {
        None => WcStatus::Success,
        Some((Major::FLUSH, minor)) => flush_status(FlushCode(minor)),
        Some((Major::SRQ_FLUSH, code)) => flush_status(AeCode(code).flush_code()),
        Some((major, _)) if info.sq && major.0 >> 12 == 0xe => WcStatus::Success,
        Some(_) => WcStatus::GeneralErr,
    }
}

fn flush_status(code: FlushCode) -> WcStatus {
    match code {
        FlushCode::GENERAL => WcStatus::WrFlushErr,
        FlushCode::PROT => WcStatus::LocProtErr,
        FlushCode::REM_ACCESS => WcStatus::RemAccessErr,
        FlushCode::LOC_QP_OP => WcStatus::LocQpOpErr,
        FlushCode::REM_OP => WcStatus::RemOpErr,
        FlushCode::LOC_LEN => WcStatus::LocLenErr,
        FlushCode::RETRY_EXC => WcStatus::RetryExcErr,
        FlushCode::MW_BIND => WcStatus::MwBindErr,
        FlushCode::REM_INV_REQ => WcStatus::RemInvReqErr,
        FlushCode::RNR_RETRY_EXC => WcStatus::RnrRetryExcErr,
        FlushCode::BAD_RESP => WcStatus::BadRespErr,
        FlushCode::INVALID | FlushCode::FATAL => WcStatus::FatalErr,
        _ => WcStatus::GeneralErr,
    }
}

/// The opcode of a send completion.                                   [E810 3.3]
#[inline]
const fn send_opcode(op: SqOp) -> WcOpcode {
    match op {
        SqOp::WRITE | SqOp::WRITE_SOL => WcOpcode::RdmaWrite,
        SqOp::READ | SqOp::READ_LOC_INV => WcOpcode::RdmaRead,
        SqOp::BIND_MW => WcOpcode::BindMw,
        SqOp::LOCAL_INVALIDATE => WcOpcode::LocalInv,
        SqOp::FETCH_ADD => WcOpcode::FetchAdd,
        SqOp::COMPARE_SWAP => WcOpcode::CompSwap,
        SqOp::ATOMIC_WRITE => WcOpcode::AtomicWrite,
        SqOp::NOP => WcOpcode::Nop,
        _ => WcOpcode::Send,
    }
}

#[cfg(test)]
mod tests;
