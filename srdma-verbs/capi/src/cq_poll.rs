//! Polling one completion after the other, with a function for each field.
//!
//! ```text
//! start_poll ─► status, wr_id set ─ read_* ─ next_poll ─► … ─► ENOENT ─ end_poll
//! ╰──────────── the queue is held by this thread ────────────────────╯
//! ```
//!
//! If `start_poll` finds nothing the queue is free at once, and `end_poll` is not called.

use crate::context;
use crate::cq::Cq;
use crate::ffi;
use crate::handle::borrow;
use crate::post::imm_or_key;
use crate::types::{Ptr, Slot, ibv_cq_ex, ibv_poll_cq_attr};
use core::cell::Cell;
use core::ffi::c_int;
use core::ptr;
use srdma_verbs::{Completion, Poll, Qpn};

/// The C part of a queue, with nothing but its functions filled in.
pub(crate) fn table() -> ibv_cq_ex {
    let zero: Slot = slot!(read_zero);
    ibv_cq_ex {
        context: ptr::null_mut(),
        channel: ptr::null_mut(),
        cq_context: ptr::null_mut(),
        handle: 0,
        cqe: Cell::new(0),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
        comp_mask: 0,
        status: Cell::new(0),
        wr_id: Cell::new(0),
        start_poll: slot!(start_poll),
        next_poll: slot!(next_poll),
        end_poll: slot!(end_poll),
        read_opcode: slot!(read_opcode),
        read_vendor_err: slot!(read_vendor_err),
        read_byte_len: slot!(read_byte_len),
        read_imm_data: slot!(read_imm_data),
        read_qp_num: slot!(read_qp_num),
        read_src_qp: slot!(read_src_qp),
        read_wc_flags: slot!(read_wc_flags),
        // Local identifiers, service levels and VLANs have no meaning here.
        read_slid: zero,
        read_sl: zero,
        read_dlid_path_bits: zero,
        read_completion_ts: slot!(read_completion_ts),
        read_cvlan: zero,
        read_flow_tag: zero,
        read_tm_info: slot!(read_tm_info),
        read_completion_wallclock_ns: slot!(read_completion_wallclock_ns),
    }
}

/// Takes the next completion; false if there is none.
fn advance(cq: &Cq, poll: &mut Poll<'static>) -> bool {
    let Some(done) = poll.next() else {
        return false;
    };
    cq.c.status.set(done.status().value());
    cq.c.wr_id.set(done.wr_id().0);
    cq.current.set(done.to_completion());
    true
}

extern "C" fn start_poll(cq: Option<&Cq>, attr: Option<&ibv_poll_cq_attr>) -> c_int {
    let Ok(cq) = borrow(cq) else {
        return libc::EINVAL;
    };
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    let mut poll = ffi::kept(&cq.verbs).poll();
    if !advance(cq, &mut poll) {
        return libc::ENOENT;
    }
    cq.poll.set(Some(poll));
    0
}

extern "C" fn next_poll(cq: Option<&Cq>) -> c_int {
    let Ok(cq) = borrow(cq) else {
        return libc::EINVAL;
    };
    let Some(mut poll) = cq.poll.take() else {
        return libc::EINVAL;
    };
    let found = advance(cq, &mut poll);
    cq.poll.set(Some(poll));
    if found { 0 } else { libc::ENOENT }
}

extern "C" fn end_poll(cq: Option<&Cq>) {
    if let Ok(cq) = borrow(cq) {
        drop(cq.poll.take());
    }
}

fn read<R: Default>(cq: Option<&Cq>, field: impl FnOnce(&Completion) -> R) -> R {
    borrow(cq).map_or_else(|_| R::default(), |cq| field(&cq.current.get()))
}

extern "C" fn read_zero(_cq: Option<&Cq>) -> u64 {
    0
}

extern "C" fn read_opcode(cq: Option<&Cq>) -> u32 {
    read(cq, |done| done.opcode().value())
}

extern "C" fn read_vendor_err(cq: Option<&Cq>) -> u32 {
    read(cq, Completion::vendor_err)
}

extern "C" fn read_byte_len(cq: Option<&Cq>) -> u32 {
    read(cq, Completion::byte_len)
}

extern "C" fn read_imm_data(cq: Option<&Cq>) -> u32 {
    read(cq, imm_or_key)
}

extern "C" fn read_qp_num(cq: Option<&Cq>) -> u32 {
    read(cq, |done| done.qp_num().value())
}

extern "C" fn read_src_qp(cq: Option<&Cq>) -> u32 {
    read(cq, |done| done.src_qp().map_or(0, Qpn::value))
}

extern "C" fn read_wc_flags(cq: Option<&Cq>) -> u32 {
    read(cq, |done| done.flags().0)
}

extern "C" fn read_completion_ts(cq: Option<&Cq>) -> u64 {
    read(cq, |done| done.timestamp().unwrap_or(0))
}

extern "C" fn read_completion_wallclock_ns(cq: Option<&Cq>) -> u64 {
    let Ok(cq) = borrow(cq) else { return 0 };
    let time = cq.current.get().timestamp();
    let context = context::of(cq.c.context);
    context.map_or(0, |context| context.verbs.wallclock(time.unwrap_or(0)))
}

extern "C" fn read_tm_info(_cq: Option<&Cq>, _info: Ptr) {}
