//! The oracle's functions and structures, version 44 on x86-64.        [E810 10.1, 10.2]
//!
//! ```text
//! what we fill in and it reads     #[repr(C)] structures below
//! what it keeps (qp, cq, attrs)    memory of a HostBuf, fields by offset: see `Object`
//! ```
//!
//! The offsets are facts about the compiled code; the tests show that they hold. Its objects live
//! in buffers that the rest of Rust reads as atomic words only, so no reference to memory that the
//! oracle changes is ever made.

pub(crate) use crate::object::{Object, pointer};
use core::ffi::{c_int, c_void};
use srdma_core::mem::Sge;

/// The attributes of an E810, as the oracle wants them.              [E810 1.7, 10.2]
pub(crate) fn e810() -> Object {
    let attrs = Object::new(0x28);
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    attrs.words().store(1, pair(13, 13)); // fragments, READ fragments
    attrs.words().store(2, pair(101, 32_768)); // inline bytes, RQ quanta
    attrs.words().store(3, pair(32_768, 1)); // SQ quanta, smallest CQ
    attrs.words().store(4, pair(1_048_575, 8 | 2 << 16)); // largest CQ; chunk, GEN2
    attrs
}

/// Fields of its QP.
pub(crate) mod qp {
    pub(crate) const BYTES: usize = 512;
    pub(crate) const SQ_HEAD: usize = 0x48;
    pub(crate) const SQ_TAIL: usize = 0x4c;
    pub(crate) const SQ_SIZE: usize = 0x50;
    pub(crate) const RQ_HEAD: usize = 0x54;
    pub(crate) const RQ_TAIL: usize = 0x58;
    pub(crate) const RQ_SIZE: usize = 0x5c;
    pub(crate) const QP_ID: usize = 0x6c;
    pub(crate) const MAX_SQ_FRAGS: usize = 0x7c;
    pub(crate) const SQ_POLARITY: usize = 0xab;
    pub(crate) const RQ_POLARITY: usize = 0xad;
    pub(crate) const RQ_SHIFT: usize = 0xae;
    pub(crate) const RQ_QUANTA: usize = 0xaf;
    /// Flags; see [`DESTROY_PENDING`].
    pub(crate) const FLAGS: usize = 0xb0;
    pub(crate) const DESTROY_PENDING: u64 = 0x40;
}

/// Fields of its CQ.
pub(crate) mod cq {
    pub(crate) const BYTES: usize = 256;
    pub(crate) const HEAD: usize = 0x28;
    pub(crate) const POLARITY: usize = 0x34;
}

/// What a QP is made with.
#[repr(C)]
pub(crate) struct QpInit {
    pub(crate) sq: *mut c_void,
    pub(crate) rq: *mut c_void,
    pub(crate) attrs: *mut c_void,
    pub(crate) doorbell: *mut c_void,
    pub(crate) shadow: *mut c_void,
    pub(crate) sq_track: *mut c_void,
    pub(crate) rq_wr_ids: *mut c_void,
    pub(crate) qp_id: u32,
    pub(crate) caps: u32,
    pub(crate) sq_wrs: u32,
    pub(crate) rq_wrs: u32,
    pub(crate) sq_frags: u32,
    pub(crate) rq_frags: u32,
    pub(crate) inline: u32,
    pub(crate) first_sq_wq: u8,
    pub(crate) kind: u8,
    pub(crate) abi: c_int,
    pub(crate) legacy: bool,
}

/// What a CQ is made with.
#[repr(C)]
pub(crate) struct CqInit {
    pub(crate) arm_doorbell: *mut c_void,
    pub(crate) ack_doorbell: *mut c_void,
    pub(crate) base: *mut c_void,
    pub(crate) shadow: *mut c_void,
    pub(crate) size: u32,
    pub(crate) id: u32,
    pub(crate) wide: bool,
}

/// A fragment.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

impl From<&Sge> for Fragment {
    fn from(sge: &Sge) -> Self {
        Self {
            addr: sge.addr,
            len: sge.len,
            lkey: sge.lkey.value(),
        }
    }
}

/// A send work request; `body` is a union, filled word by word.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PostSq {
    pub(crate) wr_id: u64,
    pub(crate) op: u8,
    pub(crate) l4_len: u8,
    pub(crate) flags: u8,
    pub(crate) imm: u32,
    pub(crate) inv_stag: u32,
    pub(crate) body: [u64; 8],
}

/// Flags of a send work request.
pub(crate) mod post {
    pub(crate) const SIGNALED: u8 = 0x01;
    pub(crate) const READ_FENCE: u8 = 0x02;
    pub(crate) const LOCAL_FENCE: u8 = 0x04;
    pub(crate) const INLINE: u8 = 0x08;
    pub(crate) const IMM: u8 = 0x10;
}

/// A receive work request.
#[repr(C)]
pub(crate) struct PostRq {
    pub(crate) wr_id: u64,
    pub(crate) sges: *const Fragment,
    pub(crate) count: u32,
}

/// A completion.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PollInfo {
    pub(crate) wr_id: u64,
    pub(crate) qp: u64,
    pub(crate) bytes: u32,
    pub(crate) psn: u32,
    pub(crate) qp_id: u32,
    pub(crate) ud_source: u32,
    pub(crate) imm: u32,
    pub(crate) inv_stag: u32,
    pub(crate) status: c_int,
    pub(crate) major: u16,
    pub(crate) minor: u16,
    pub(crate) vlan: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) op: u8,
    pub(crate) queue: u8,
    pub(crate) flags: u8,
    pub(crate) spare: [u64; 4],
}

/// Flags of a completion.
pub(crate) mod poll {
    pub(crate) const STAG: u8 = 0x01;
    pub(crate) const ERROR: u8 = 0x04;
    pub(crate) const SOLICITED: u8 = 0x08;
    pub(crate) const IPV4: u8 = 0x10;
    pub(crate) const VLAN: u8 = 0x20;
    pub(crate) const MAC: u8 = 0x40;
    pub(crate) const IMM: u8 = 0x80;
}

const _: () = {
    assert!(core::mem::offset_of!(QpInit, qp_id) == 0x38);
    assert!(core::mem::offset_of!(QpInit, legacy) == 0x5c);
    assert!(core::mem::offset_of!(CqInit, wide) == 0x28);
    assert!(core::mem::offset_of!(PostSq, body) == 0x18);
    assert!(core::mem::offset_of!(PollInfo, mac) == 0x32);
    assert!(core::mem::offset_of!(PollInfo, flags) == 0x3a);
};

// SAFETY: why needed: the oracle is compiled C. Why sound: names, argument types and structures are
// those of the version that the build script found [E810 10.1, 10.2]; the code keeps to the memory
// that it is handed.
unsafe extern "C" {
    #[link_name = "rdmacore44_0_irdma_uk_qp_init"]
    pub(crate) fn qp_init(qp: *mut c_void, info: *mut QpInit) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_cq_init"]
    pub(crate) fn cq_init(cq: *mut c_void, info: *mut CqInit) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_send"]
    pub(crate) fn send(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_inline_send"]
    pub(crate) fn inline_send(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_rdma_write"]
    pub(crate) fn rdma_write(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_inline_rdma_write"]
    pub(crate) fn inline_rdma_write(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_rdma_read"]
    pub(crate) fn rdma_read(
        qp: *mut c_void,
        info: *mut PostSq,
        invalidate: bool,
        ring: bool,
    ) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_stag_local_invalidate"]
    pub(crate) fn local_invalidate(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_mw_bind"]
    pub(crate) fn mw_bind(qp: *mut c_void, info: *mut PostSq, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_nop"]
    pub(crate) fn nop(qp: *mut c_void, wr_id: u64, signaled: bool, ring: bool) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_qp_post_wr"]
    pub(crate) fn ring_doorbell(qp: *mut c_void);
    #[link_name = "rdmacore44_0_irdma_uk_post_receive"]
    pub(crate) fn post_receive(qp: *mut c_void, info: *mut PostRq) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_cq_poll_cmpl"]
    pub(crate) fn poll_cq(cq: *mut c_void, info: *mut PollInfo) -> c_int;
    #[link_name = "rdmacore44_0_irdma_uk_cq_request_notification"]
    pub(crate) fn request_notification(cq: *mut c_void, solicited: c_int);
    #[link_name = "rdmacore44_0_irdma_uk_cq_resize"]
    pub(crate) fn cq_resize(cq: *mut c_void, base: *mut c_void, size: c_int);
    #[link_name = "rdmacore44_0_irdma_uk_cq_set_resized_cnt"]
    pub(crate) fn cq_set_resized_count(cq: *mut c_void, count: u16);
    #[link_name = "rdmacore44_0_irdma_uk_clean_cq"]
    pub(crate) fn clean_cq(qp: *mut c_void, cq: *mut c_void);
    #[link_name = "rdmacore44_0_irdma_get_wqe_shift"]
    pub(crate) fn get_wqe_shift(attrs: *mut c_void, sges: u32, inline: u32, shift: *mut u8);
    #[link_name = "rdmacore44_0_irdma_get_sqdepth"]
    pub(crate) fn get_sq_depth(attrs: *mut c_void, wrs: u32, shift: u8, depth: *mut u32) -> c_int;
    #[link_name = "rdmacore44_0_irdma_get_rqdepth"]
    pub(crate) fn get_rq_depth(attrs: *mut c_void, wrs: u32, shift: u8, depth: *mut u32) -> c_int;
    #[link_name = "rdmacore44_0_irdma_fragcnt_to_quanta_sq"]
    pub(crate) fn fragment_quanta(fragments: u32, quanta: *mut u16) -> c_int;
    #[link_name = "rdmacore44_0_irdma_fragcnt_to_wqesize_rq"]
    pub(crate) fn fragment_wqe_bytes(fragments: u32, bytes: *mut u16) -> c_int;
}
