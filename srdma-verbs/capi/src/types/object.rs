//! What programs hold between calls.

use super::{Ptr, Slot};
use core::cell::Cell;
use core::ffi::c_int;

c_struct! {
    ibv_pd: 16 { context: Ptr = 0, handle: u32 = 8, }

    ibv_td: 8 { context: Ptr = 0, }

    ibv_xrcd: 8 { context: Ptr = 0, }

    ibv_dm: 32 {
        context: Ptr = 0,
        memcpy_to_dm: Slot = 8,
        memcpy_from_dm: Slot = 16,
        comp_mask: u32 = 24,
        handle: u32 = 28,
    }

    ibv_mr: 48 {
        context: Ptr = 0,
        pd: Cell<Ptr> = 8,
        addr: Cell<Ptr> = 16,
        length: Cell<usize> = 24,
        handle: u32 = 32,
        lkey: Cell<u32> = 36,
        rkey: Cell<u32> = 40,
    }

    ibv_mw: 32 {
        context: Ptr = 0,
        pd: Ptr = 8,
        rkey: Cell<u32> = 16,
        handle: u32 = 20,
        type_: u32 = 24,
    }

    ibv_ah: 24 { context: Ptr = 0, pd: Ptr = 8, handle: u32 = 16, }

    ibv_comp_channel: 16 { context: Ptr = 0, fd: c_int = 8, refcnt: Cell<c_int> = 12, }

    ibv_cq_ex: 288 {
        context: Ptr = 0,
        channel: Ptr = 8,
        cq_context: Ptr = 16,
        handle: u32 = 24,
        cqe: Cell<c_int> = 28,
        mutex: libc::pthread_mutex_t = 32,
        cond: libc::pthread_cond_t = 72,
        comp_events_completed: u32 = 120,
        async_events_completed: u32 = 124,
        comp_mask: u32 = 128,
        status: Cell<u32> = 132,
        wr_id: Cell<u64> = 136,
        start_poll: Slot = 144,
        next_poll: Slot = 152,
        end_poll: Slot = 160,
        read_opcode: Slot = 168,
        read_vendor_err: Slot = 176,
        read_byte_len: Slot = 184,
        read_imm_data: Slot = 192,
        read_qp_num: Slot = 200,
        read_src_qp: Slot = 208,
        read_wc_flags: Slot = 216,
        read_slid: Slot = 224,
        read_sl: Slot = 232,
        read_dlid_path_bits: Slot = 240,
        read_completion_ts: Slot = 248,
        read_cvlan: Slot = 256,
        read_flow_tag: Slot = 264,
        read_tm_info: Slot = 272,
        read_completion_wallclock_ns: Slot = 280,
    }

    ibv_srq: 128 {
        context: Ptr = 0,
        srq_context: Ptr = 8,
        pd: Ptr = 16,
        handle: u32 = 24,
        mutex: libc::pthread_mutex_t = 32,
        cond: libc::pthread_cond_t = 72,
        events_completed: u32 = 120,
    }

    ibv_qp: 160 {
        context: Ptr = 0,
        qp_context: Ptr = 8,
        pd: Ptr = 16,
        send_cq: Ptr = 24,
        recv_cq: Ptr = 32,
        srq: Ptr = 40,
        handle: u32 = 48,
        qp_num: u32 = 52,
        state: Cell<u32> = 56,
        qp_type: u32 = 60,
        mutex: libc::pthread_mutex_t = 64,
        cond: libc::pthread_cond_t = 104,
        events_completed: u32 = 152,
    }
}

/// A queue pair with its builder of work requests. `wr_flush` came after rdma-core 44, which is why
/// this one is not in the table that a C compiler checks.
#[repr(C)]
#[allow(dead_code, reason = "programs jump through fields that we only write")]
pub(crate) struct ibv_qp_ex {
    pub(crate) qp_base: ibv_qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: Cell<u64>,
    pub(crate) wr_flags: Cell<u32>,
    pub(crate) wr_atomic_cmp_swp: Slot,
    pub(crate) wr_atomic_fetch_add: Slot,
    pub(crate) wr_bind_mw: Slot,
    pub(crate) wr_local_inv: Slot,
    pub(crate) wr_rdma_read: Slot,
    pub(crate) wr_rdma_write: Slot,
    pub(crate) wr_rdma_write_imm: Slot,
    pub(crate) wr_send: Slot,
    pub(crate) wr_send_imm: Slot,
    pub(crate) wr_send_inv: Slot,
    pub(crate) wr_send_tso: Slot,
    pub(crate) wr_set_ud_addr: Slot,
    pub(crate) wr_set_xrc_srqn: Slot,
    pub(crate) wr_set_inline_data: Slot,
    pub(crate) wr_set_inline_data_list: Slot,
    pub(crate) wr_set_sge: Slot,
    pub(crate) wr_set_sge_list: Slot,
    pub(crate) wr_start: Slot,
    pub(crate) wr_complete: Slot,
    pub(crate) wr_abort: Slot,
    pub(crate) wr_atomic_write: Slot,
    pub(crate) wr_flush: Slot,
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ibv_qp_ex>() == 360);
    assert!(offset_of!(ibv_qp_ex, wr_id) == 168);
    assert!(offset_of!(ibv_qp_ex, wr_flags) == 176);
    assert!(offset_of!(ibv_qp_ex, wr_atomic_cmp_swp) == 184);
    assert!(offset_of!(ibv_qp_ex, wr_send_tso) == 264);
    assert!(offset_of!(ibv_qp_ex, wr_atomic_write) == 344);
};
