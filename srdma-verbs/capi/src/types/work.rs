//! Work requests and completions.
//!
//! Unions of a work request are words here, and `post.rs` takes them apart: which member is meant
//! depends on the opcode, and words can be read whatever the program wrote last.

use super::Ptr;
use core::ffi::c_int;

c_struct! {
    #[derive(Clone, Copy)]
    ibv_sge: 16 { addr: u64 = 0, length: u32 = 8, lkey: u32 = 12, }

    ibv_send_wr: 128 {
        wr_id: u64 = 0,
        next: *mut ibv_send_wr = 8,
        sg_list: *const ibv_sge = 16,
        num_sge: c_int = 24,
        opcode: u32 = 28,
        send_flags: u32 = 32,
        imm_data: u32 = 36,
        wr: [u64; 4] = 40,
        qp_type: u32 = 72,
        bind_mw: send_bind = 80,
    }

    ibv_recv_wr: 32 {
        wr_id: u64 = 0,
        next: *mut ibv_recv_wr = 8,
        sg_list: *const ibv_sge = 16,
        num_sge: c_int = 24,
    }

    #[derive(Clone, Copy)]
    ibv_wc: 48 {
        wr_id: u64 = 0,
        status: u32 = 8,
        opcode: u32 = 12,
        vendor_err: u32 = 16,
        byte_len: u32 = 20,
        imm_data: u32 = 24,
        qp_num: u32 = 28,
        src_qp: u32 = 32,
        wc_flags: u32 = 36,
        pkey_index: u16 = 40,
        slid: u16 = 42,
        sl: u8 = 44,
        dlid_path_bits: u8 = 45,
    }

    ibv_data_buf: 16 { addr: Ptr = 0, length: usize = 8, }

    ibv_mw_bind_info: 32 {
        mr: Ptr = 0,
        addr: u64 = 8,
        length: u64 = 16,
        mw_access_flags: u32 = 24,
    }

    ibv_mw_bind: 48 { wr_id: u64 = 0, send_flags: u32 = 8, bind_info: ibv_mw_bind_info = 16, }

    ibv_grh: 40 {
        version_tclass_flow: [u8; 4] = 0,
        paylen: [u8; 2] = 4,
        next_hdr: u8 = 6,
        hop_limit: u8 = 7,
        sgid: [u8; 16] = 8,
        dgid: [u8; 16] = 24,
    }
}

/// The last member of a send request. C gives it no name of its own.
#[repr(C)]
pub(crate) struct send_bind {
    pub(crate) mw: Ptr,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}
