//! The data path of C: posting lists of work requests, and polling into an array.
//!
//! No allocation, and no copy of a request: its parts go from C's structure into the ring. A list
//! is posted with one doorbell; at the first request that cannot be written it ends, and `bad_wr`
//! names that one.

use crate::ah::Ah;
use crate::cq::Cq;
use crate::ffi;
use crate::handle::{Errno, Outcome, borrow, borrow_raw};
use crate::mw::{self, Mw};
use crate::qp::Qp;
use crate::srq::Srq;
use crate::types::{ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc};
use core::ffi::c_int;
use core::ptr;
use srdma_verbs::{
    AnyOp, AnyWr, Completion, Lkey, Qkey, QpType, Qpn, RecvBatch, Rkey, SendBatch, Sge, SrqId, WrId,
};

/// Opcodes of send requests.
pub(crate) mod op {
    pub(crate) const RDMA_WRITE: u32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_WITH_IMM: u32 = 3;
    pub(crate) const RDMA_READ: u32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const LOCAL_INV: u32 = 7;
    pub(crate) const BIND_MW: u32 = 8;
    pub(crate) const SEND_WITH_INV: u32 = 9;
    pub(crate) const ATOMIC_WRITE: u32 = 15;
}

/// Flags of send requests.
pub(crate) mod flag {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 2;
    pub(crate) const SOLICITED: u32 = 4;
    pub(crate) const INLINE: u32 = 8;
}

/// A scatter/gather entry of C.
#[inline]
pub(crate) const fn sge(sge: &ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        len: sge.length,
        lkey: Lkey(sge.lkey),
    }
}

/// The request of an operation, with the flags of C.
#[inline]
pub(crate) const fn any(id: u64, flags: u32, op: AnyOp) -> AnyWr {
    AnyWr {
        id: WrId(id),
        op,
        signaled: flags & flag::SIGNALED != 0,
        fence: flags & flag::FENCE != 0,
        solicited: flags & flag::SOLICITED != 0,
    }
}

/// The low and the high half of a word of a union.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "halves of a word")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The operation that a request asks for; `None` for a bind, which needs more than values.
#[inline]
fn operation(wr: &ibv_send_wr) -> Outcome<Option<AnyOp>> {
    let [first, second, third, fourth] = wr.wr;
    let key = Rkey(halves(second).0);
    let imm = || Some(u32::from_be(wr.imm_data));
    let atomic_key = Rkey(halves(fourth).0);
    Ok(Some(match wr.opcode {
        op::SEND => AnyOp::Send(None),
        op::SEND_WITH_IMM => AnyOp::Send(imm()),
        op::SEND_WITH_INV => AnyOp::SendInv(Rkey(wr.imm_data)),
        op::RDMA_WRITE => AnyOp::Write(first, key, None),
        op::RDMA_WRITE_WITH_IMM => AnyOp::Write(first, key, imm()),
        op::RDMA_READ => AnyOp::Read(first, key),
        op::ATOMIC_CMP_AND_SWP => AnyOp::CompareSwap {
            addr: first,
            rkey: atomic_key,
            compare: second,
            swap: third,
        },
        op::ATOMIC_FETCH_AND_ADD => AnyOp::FetchAdd(first, atomic_key, second),
        op::LOCAL_INV => AnyOp::LocalInv(Rkey(wr.imm_data)),
        op::ATOMIC_WRITE => {
            let sges = ffi::slice(wr.sg_list, ffi::count(wr.num_sge));
            let bytes = sges.first().filter(|sge| sge.length == 8);
            let bytes = bytes.map(|sge| ffi::bytes(sge.addr, 8));
            let value = bytes.and_then(|bytes| bytes.try_into().ok());
            AnyOp::AtomicWrite(first, key, value.ok_or(Errno::INVAL)?)
        }
        op::BIND_MW => return Ok(None),
        _ => return Err(Errno::UNSUPPORTED),
    }))
}

/// Writes one request to the batch.
#[inline]
fn push(batch: &mut SendBatch<'_>, qp: &Qp, wr: &ibv_send_wr) -> Outcome<()> {
    let Some(op) = operation(wr)? else {
        return push_bind(batch, wr);
    };
    batch.any(&any(wr.wr_id, wr.send_flags, op));
    if qp.verbs.qp_type().is_datagram() {
        let [ah, target, ..] = wr.wr;
        let addr = usize::try_from(ah).unwrap_or(0);
        let ah: &Ah = borrow_raw(ptr::with_exposed_provenance(addr))?;
        let (qpn, qkey) = halves(target);
        batch.any_to(&ah.verbs, Qpn::new(qpn), Qkey(qkey));
    }
    if qp.verbs.qp_type() == QpType::XrcSend && !matches!(op, AnyOp::LocalInv(_)) {
        batch.any_xrc_srqn(SrqId(wr.qp_type));
    }
    let sges = ffi::slice(wr.sg_list, ffi::count(wr.num_sge));
    let payload = matches!(op, AnyOp::Send(_) | AnyOp::SendInv(_) | AnyOp::Write(..));
    if payload && wr.send_flags & flag::INLINE != 0 {
        for sge in sges {
            batch.any_inline(ffi::bytes(sge.addr, sge.length as usize));
        }
    } else if !matches!(op, AnyOp::AtomicWrite(..) | AnyOp::LocalInv(_)) {
        for entry in sges {
            batch.any_local(sge(entry));
        }
    }
    Ok(())
}

/// Writes the bind of a type 2 window to the batch.
fn push_bind(batch: &mut SendBatch<'_>, wr: &ibv_send_wr) -> Outcome<()> {
    let bind = &wr.bind_mw;
    let mw: &Mw = borrow_raw(bind.mw.cast_const().cast())?;
    mw::with_info(&bind.bind_info, |info| {
        let wr = any(wr.wr_id, wr.send_flags, AnyOp::Nop);
        batch.any_bind(&wr, &mw.verbs, info, Rkey(bind.rkey));
        Ok(())
    })?;
    mw.set_rkey(bind.rkey);
    Ok(())
}

/// `post_send` of the context's table.
pub(crate) extern "C" fn post_send(
    qp: Option<&Qp>,
    first: *mut ibv_send_wr,
    bad: Option<&mut *mut ibv_send_wr>,
) -> c_int {
    let Ok(qp) = borrow(qp) else {
        return libc::EINVAL;
    };
    let mut batch = qp.verbs.post_send();
    let (mut next, mut refused) = (first, Ok(()));
    while let Some(wr) = ffi::object(next) {
        refused = push(&mut batch, qp, wr);
        if refused.is_err() {
            batch.any_refuse();
            break;
        }
        next = wr.next;
    }
    let (written, posted) = batch.ring_valid();
    let Err(error) = posted else { return 0 };
    if let Some(bad) = bad {
        *bad = nth(first, written, |wr| wr.next);
    }
    refused.err().unwrap_or_else(|| error.into()).0
}

/// The element of a list that comes after `count` others.
fn nth<T: 'static>(first: *mut T, count: usize, next: impl Fn(&T) -> *mut T) -> *mut T {
    let mut at = first;
    for _ in 0..count {
        let Some(element) = ffi::object(at) else {
            break;
        };
        at = next(element);
    }
    at
}

/// Posts a list of receives.
#[inline]
fn post_receives(
    mut batch: RecvBatch<'_>,
    first: *mut ibv_recv_wr,
    bad: Option<&mut *mut ibv_recv_wr>,
) -> c_int {
    let mut next = first;
    while let Some(wr) = ffi::object(next) {
        let sges = ffi::slice(wr.sg_list, ffi::count(wr.num_sge));
        drop(batch.recv(WrId(wr.wr_id)).locals(sges.iter().map(sge)));
        next = wr.next;
    }
    let (written, posted) = batch.ring_valid();
    let Err(error) = posted else { return 0 };
    if let Some(bad) = bad {
        *bad = nth(first, written, |wr| wr.next);
    }
    error.errno()
}

/// `post_recv` of the context's table.
pub(crate) extern "C" fn post_recv(
    qp: Option<&Qp>,
    first: *mut ibv_recv_wr,
    bad: Option<&mut *mut ibv_recv_wr>,
) -> c_int {
    let Ok(qp) = borrow(qp) else {
        return libc::EINVAL;
    };
    post_receives(qp.verbs.post_recv(), first, bad)
}

/// `post_srq_recv` of the context's table.
pub(crate) extern "C" fn post_srq_recv(
    srq: Option<&Srq>,
    first: *mut ibv_recv_wr,
    bad: Option<&mut *mut ibv_recv_wr>,
) -> c_int {
    let Ok(srq) = borrow(srq) else {
        return libc::EINVAL;
    };
    post_receives(srq.verbs.post_recv(), first, bad)
}

/// The field of a completion that is an immediate in network order, or a key.
#[inline]
pub(crate) fn imm_or_key(done: &Completion) -> u32 {
    match (done.imm(), done.invalidated()) {
        (Some(imm), _) => imm.to_be(),
        (None, Some(key)) => key.value(),
        (None, None) => 0,
    }
}

/// `poll_cq` of the context's table: how many completions there were, negative for no queue.
pub(crate) extern "C" fn poll_cq(cq: Option<&Cq>, max: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(cq) = borrow(cq) else {
        return -libc::EINVAL;
    };
    let mut poll = cq.verbs.poll();
    let mut count = 0;
    for place in ffi::out(wc, ffi::count(max)) {
        let Some(done) = poll.next() else { break };
        place.write(ibv_wc {
            wr_id: done.wr_id().0,
            status: done.status().value(),
            opcode: done.opcode().value(),
            vendor_err: done.vendor_err(),
            byte_len: done.byte_len(),
            imm_data: imm_or_key(&done),
            qp_num: done.qp_num().value(),
            src_qp: done.src_qp().map_or(0, Qpn::value),
            wc_flags: done.flags().0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        });
        count += 1;
    }
    count
}
