//! The builder of work requests: one call for each part, everything visible with the last.
//!
//! ```text
//! wr_start ─ wr_send, wr_rdma_write … ─ wr_set_sge … ─ wr_send … ─ wr_complete    or wr_abort
//! ╰──────────── the send queue is held by this thread ───────────────────╯
//! ```
//!
//! The program writes `wr_id` and `wr_flags` into the queue pair before each request. What cannot
//! be written spoils the whole batch, and `wr_complete` says so.

use crate::ah::Ah;
use crate::context::Context;
use crate::ffi;
use crate::handle::{Errno, Outcome, borrow, borrow_raw, pointer};
use crate::mw::{self, Mw};
use crate::pd::Pd;
use crate::post::{any, sge};
use crate::qp::{self, Qp};
use crate::types::{
    Ptr, Slot, ibv_data_buf, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_sge,
};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use srdma_verbs::{AnyOp, Lkey, Qkey, Qpn, Rkey, SendBatch, Sge, SrqId};

/// Bits of `comp_mask` when a queue pair is made.
mod mask {
    pub(super) const PD: u32 = 1;
    pub(super) const XRCD: u32 = 2;
    pub(super) const CREATE_FLAGS: u32 = 4;
    pub(super) const SEND_OPS: u32 = 0x40;
}

/// Operations that a builder may be asked for, by the type of the queue pair.
const OPS_RC: u64 = 0x13ff;
const OPS_UC: u64 = 0x38f;
const OPS_UD: u64 = 0xc;

/// `create_qp_ex` of the extended table.
pub(crate) extern "C" fn create_qp_ex(
    context: Option<&Context>,
    attr: Option<&Cell<ibv_qp_init_attr_ex>>,
) -> *mut Qp {
    pointer((|| {
        let context = borrow(context)?;
        let attr = attr.ok_or(Errno::INVAL)?;
        let mut value = attr.get();
        let known = mask::PD | mask::XRCD | mask::CREATE_FLAGS | mask::SEND_OPS;
        let flagged = value.comp_mask & mask::CREATE_FLAGS != 0 && value.create_flags != 0;
        if value.comp_mask & !known != 0 || flagged {
            return Err(Errno::UNSUPPORTED);
        }
        if value.qp_type == qp::kind::XRC_RECV {
            if value.comp_mask & mask::XRCD == 0 {
                return Err(Errno::INVAL);
            }
            let qp = qp::create_target(context, &mut value)?;
            attr.set(value);
            return Ok(qp);
        }
        if value.comp_mask & mask::PD == 0 {
            return Err(Errno::INVAL);
        }
        let extended = value.comp_mask & mask::SEND_OPS != 0;
        let possible = match value.qp_type {
            2 | qp::kind::XRC_SEND => OPS_RC,
            3 => OPS_UC,
            _ => OPS_UD,
        };
        if extended && value.send_ops_flags & !possible != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let pd: &Pd = borrow_raw(value.pd.cast_const().cast())?;
        let qp = qp::create(pd, &mut value, extended)?;
        attr.set(value);
        Ok(qp)
    })())
}

/// The C part of a queue pair, with nothing but its functions filled in.
pub(crate) fn table() -> ibv_qp_ex {
    let unsupported: Slot = slot!(refuse);
    let null = ptr::null_mut();
    ibv_qp_ex {
        qp_base: ibv_qp {
            context: null,
            qp_context: null,
            pd: null,
            send_cq: null,
            recv_cq: null,
            srq: null,
            handle: 0,
            qp_num: 0,
            state: Cell::new(0),
            qp_type: 0,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        },
        comp_mask: 0,
        wr_id: Cell::new(0),
        wr_flags: Cell::new(0),
        wr_atomic_cmp_swp: slot!(cmp_swp),
        wr_atomic_fetch_add: slot!(fetch_add),
        wr_bind_mw: slot!(bind_mw),
        wr_local_inv: slot!(local_inv),
        wr_rdma_read: slot!(rdma_read),
        wr_rdma_write: slot!(rdma_write),
        wr_rdma_write_imm: slot!(rdma_write_imm),
        wr_send: slot!(send),
        wr_send_imm: slot!(send_imm),
        wr_send_inv: slot!(send_inv),
        wr_send_tso: unsupported,
        wr_set_ud_addr: slot!(set_ud_addr),
        wr_set_xrc_srqn: slot!(set_xrc_srqn),
        wr_set_inline_data: slot!(set_inline_data),
        wr_set_inline_data_list: slot!(set_inline_data_list),
        wr_set_sge: slot!(set_sge),
        wr_set_sge_list: slot!(set_sge_list),
        wr_start: slot!(start),
        wr_complete: slot!(complete),
        wr_abort: slot!(abort),
        wr_atomic_write: slot!(atomic_write),
        wr_flush: unsupported,
    }
}

/// Does something with the batch that is being built; nothing if there is none.
#[inline]
fn with_batch(qp: Option<&Qp>, part: impl FnOnce(&Qp, &mut SendBatch<'static>)) {
    let Ok(qp) = borrow(qp) else { return };
    let Some(mut batch) = qp.batch.take() else {
        return;
    };
    part(qp, &mut batch);
    qp.batch.set(Some(batch));
}

/// Starts a request.
#[inline]
fn begin(qp: Option<&Qp>, op: AnyOp) {
    with_batch(qp, |qp, batch| {
        batch.any(&any(qp.c.wr_id.get(), qp.c.wr_flags.get(), op));
    });
}

extern "C" fn refuse(qp: Option<&Qp>) {
    with_batch(qp, |_, batch| batch.any_refuse());
}

extern "C" fn start(qp: Option<&Qp>) {
    if let Ok(qp) = borrow(qp) {
        let batch = ffi::kept(&qp.verbs).post_send();
        qp.batch.set(Some(batch));
    }
}

extern "C" fn complete(qp: Option<&Qp>) -> c_int {
    let batch = borrow(qp).map(|qp| qp.batch.take());
    match batch {
        Ok(Some(batch)) => batch.ring().map_or_else(|error| error.errno(), |()| 0),
        _ => libc::EINVAL,
    }
}

extern "C" fn abort(qp: Option<&Qp>) {
    if let Ok(qp) = borrow(qp) {
        drop(qp.batch.take());
    }
}

extern "C" fn send(qp: Option<&Qp>) {
    begin(qp, AnyOp::Send(None));
}

extern "C" fn send_imm(qp: Option<&Qp>, imm: u32) {
    begin(qp, AnyOp::Send(Some(u32::from_be(imm))));
}

extern "C" fn send_inv(qp: Option<&Qp>, rkey: u32) {
    begin(qp, AnyOp::SendInv(Rkey(rkey)));
}

extern "C" fn rdma_write(qp: Option<&Qp>, rkey: u32, addr: u64) {
    begin(qp, AnyOp::Write(addr, Rkey(rkey), None));
}

extern "C" fn rdma_write_imm(qp: Option<&Qp>, rkey: u32, addr: u64, imm: u32) {
    begin(qp, AnyOp::Write(addr, Rkey(rkey), Some(u32::from_be(imm))));
}

extern "C" fn rdma_read(qp: Option<&Qp>, rkey: u32, addr: u64) {
    begin(qp, AnyOp::Read(addr, Rkey(rkey)));
}

extern "C" fn cmp_swp(qp: Option<&Qp>, rkey: u32, addr: u64, compare: u64, swap: u64) {
    let rkey = Rkey(rkey);
    begin(
        qp,
        AnyOp::CompareSwap {
            addr,
            rkey,
            compare,
            swap,
        },
    );
}

extern "C" fn fetch_add(qp: Option<&Qp>, rkey: u32, addr: u64, add: u64) {
    begin(qp, AnyOp::FetchAdd(addr, Rkey(rkey), add));
}

extern "C" fn atomic_write(qp: Option<&Qp>, rkey: u32, addr: u64, value: Option<&[u8; 8]>) {
    match value {
        Some(value) => begin(qp, AnyOp::AtomicWrite(addr, Rkey(rkey), *value)),
        None => refuse(qp),
    }
}

extern "C" fn local_inv(qp: Option<&Qp>, rkey: u32) {
    begin(qp, AnyOp::LocalInv(Rkey(rkey)));
}

extern "C" fn bind_mw(
    qp: Option<&Qp>,
    mw: Option<&Mw>,
    rkey: u32,
    info: Option<&ibv_mw_bind_info>,
) {
    with_batch(qp, |qp, batch| {
        let wr = any(qp.c.wr_id.get(), qp.c.wr_flags.get(), AnyOp::Nop);
        let bound: Outcome<()> = (|| {
            let mw = borrow(mw)?;
            mw::with_info(info.ok_or(Errno::INVAL)?, |info| {
                batch.any_bind(&wr, &mw.verbs, info, Rkey(rkey));
                Ok(())
            })?;
            mw.set_rkey(rkey);
            Ok(())
        })();
        if bound.is_err() {
            batch.any_refuse();
        }
    });
}

extern "C" fn set_ud_addr(qp: Option<&Qp>, ah: Option<&Ah>, qpn: u32, qkey: u32) {
    with_batch(qp, |_, batch| match borrow(ah) {
        Ok(ah) => {
            batch.any_to(&ah.verbs, Qpn::new(qpn), Qkey(qkey));
        }
        Err(_) => batch.any_refuse(),
    });
}

extern "C" fn set_xrc_srqn(qp: Option<&Qp>, number: u32) {
    with_batch(qp, |_, batch| {
        batch.any_xrc_srqn(SrqId(number));
    });
}

extern "C" fn set_inline_data(qp: Option<&Qp>, addr: Ptr, len: usize) {
    with_batch(qp, |_, batch| {
        batch.any_inline(ffi::slice(addr.cast_const().cast(), len));
    });
}

extern "C" fn set_inline_data_list(qp: Option<&Qp>, count: usize, list: *const ibv_data_buf) {
    with_batch(qp, |_, batch| {
        for part in ffi::slice(list, count) {
            batch.any_inline(ffi::slice(part.addr.cast_const().cast(), part.length));
        }
    });
}

extern "C" fn set_sge(qp: Option<&Qp>, lkey: u32, addr: u64, len: u32) {
    with_batch(qp, |_, batch| {
        batch.any_local(Sge {
            addr,
            len,
            lkey: Lkey(lkey),
        });
    });
}

extern "C" fn set_sge_list(qp: Option<&Qp>, count: usize, list: *const ibv_sge) {
    with_batch(qp, |_, batch| {
        for entry in ffi::slice(list, count) {
            batch.any_local(sge(entry));
        }
    });
}
