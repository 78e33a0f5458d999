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
use srdma_core::ring::CqConsumer;
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
enum Reaped {
    /// A completion, and the entry is done.
    One(Completion),
    /// A completion, and the entry has more.
    Parked(Completion),
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

    /// The next completion. Cost: one load if there is none.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            let info = self.ring.peek()?;
            let stamped = |completion| Completion {
                timestamp: info.timestamp,
                ..completion
            };
            match self.reap(&info) {
                Reaped::One(completion) => {
                    self.ring.advance(info.extended());
                    return Some(stamped(completion));
                }
                Reaped::Parked(completion) => return Some(stamped(completion)),
                Reaped::Skip => self.ring.advance(info.extended()),
            }
        }
    }

    #[inline]
    // rule: e810-9
    fn reap(&mut self, info: &CqeInfo) -> Reaped {
        let qp = match self.qps.get(slot_of(info.context, info.sq)) {
            Some(Some(qp)) if info.context != 0 && qp.qpn == qpn_of(info.context) => qp,
            _ => return Reaped::Skip,
        };
        let status = status_of(info);
        let flushed = matches!(info.error, Some((Major::FLUSH | Major::SRQ_FLUSH, _)));
        match (info.sq, info.srq_wr_id, flushed) {
            (true, _, false) => Reaped::One(send_done(qp, info, status)),
            (true, _, true) => {
                let Some((completion, more)) = send_flushed(qp, info, status) else {
                    return Reaped::Skip;
                };
                self.park(completion, more)
            }
            (false, Some(wr_id), _) => {
                if let Some(srq) = &qp.srq {
                    srq.complete(1);
                }
                Reaped::One(received(qp, info, status, WrId(wr_id)))
            }
            (false, None, _) => {
                let Some(rq) = &qp.rq else {
                    return Reaped::Skip;
                };
                let failed = info.error.is_some();
                let Some((wr_id, more)) = take_receive(rq, info, failed) else {
                    return Reaped::Skip;
                };
                let completion = received(qp, info, status, wr_id);
                self.park(completion, more.filter(|_| flushed))
            }
        }
    }

    /// Keeps a flush entry while its queue has more: the rest starts at `more`, and is flushed.
    fn park(&mut self, completion: Completion, more: Option<u16>) -> Reaped {
        let Some(index) = more else {
            return Reaped::One(completion);
        };
        self.ring.park(index, FlushCode::GENERAL);
        Reaped::Parked(completion)
    }
}

/// A send that completed for itself.
#[inline]
fn send_done(qp: &QpShared, info: &CqeInfo, status: WcStatus) -> Completion {
    let record = qp.sq.at(u32::from(info.wqe_index));
    qp.sq.complete_to(u32::from(info.wqe_index) + record.quanta);
    Completion {
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
        ..Completion::EMPTY
    }
}

/// The next send that a flush entry stands for, and where the rest starts.
fn send_flushed(
    qp: &QpShared,
    info: &CqeInfo,
    status: WcStatus,
) -> Option<(Completion, Option<u16>)> {
    qp.sq.flush_from(u32::from(info.wqe_index));
    let (index, record) = qp.sq.next_flushed()?;
    qp.sq.complete_to(index + record.quanta);
    let completion = Completion {
        wr_id: record.wr_id,
        status,
        opcode: send_opcode(record.op.unwrap_or(SqOp::NOP)),
        vendor_err: vendor_err(info),
        qp_num: info.qpn,
        ..Completion::EMPTY
    };
    let more = qp
        .sq
        .next_flushed()
        .and_then(|(index, _)| u16::try_from(index).ok());
    Some((completion, more))
}

/// The receive that an entry names (or, if it failed, the oldest one), and where the rest starts.
#[inline]
fn take_receive(rq: &RqTrack, info: &CqeInfo, failed: bool) -> Option<(WrId, Option<u16>)> {
    let slot = if failed {
        if rq.used() == 0 {
            return None;
        }
        rq.tail()
    } else {
        rq.slot_of(info.wqe_index)
    };
    let wr_id = rq.at(slot);
    rq.complete_to(slot + 1);
    let more = failed && rq.used() != 0;
    Some((wr_id, more.then(|| rq.wqe_index(rq.tail()))))
}

#[inline]
fn received(qp: &QpShared, info: &CqeInfo, status: WcStatus, wr_id: WrId) -> Completion {
    let datagram = qp.qp_type.is_datagram();
    let opcode = if rq_op_is_write_imm(info.op) && !datagram {
        WcOpcode::RecvRdmaWithImm
    } else {
        WcOpcode::Recv
    };
    Completion {
        wr_id,
        status,
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
        timestamp: None,
    }
}

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
