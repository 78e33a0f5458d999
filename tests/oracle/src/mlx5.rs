//! A completion queue that the code of mlx5 polls and arms.            [events 4.5, 4.6]
//!
//! Both poll and arm write the record (SET_CI, ARM); arm writes register 0x20 as well.
//!
//! The code comes from `libmlx5.a` of Debian's package libibverbs-dev, rdma-core 44: the part that
//! serves completion queues, which looks queue pairs up by functions of another part. Those are
//! here, and know the one queue pair of a queue, so nothing else of that library is linked.

use crate::object::{Object, pointer};
use crate::queue::{Driver, DriverCq, WRS};
use core::ffi::{c_int, c_void};

/// Fields of its completion queue. The offsets are facts about the compiled code.
mod cq {
    pub(super) const BYTES: usize = 0x400;
    pub(super) const CONTEXT: usize = 0;
    /// Entries less one.
    pub(super) const CQE: usize = 0x1c;
    /// Points to a pointer to the ring.
    pub(super) const BUF: usize = 0x1a0;
    pub(super) const CQN: usize = 0x1c4;
    pub(super) const INDEX: usize = 0x1c8;
    pub(super) const RECORD: usize = 0x1d0;
    pub(super) const ARM_SN: usize = 0x1dc;
    pub(super) const CQE_BYTES: usize = 0x1e0;
}

/// Fields of its context. A queue points into the middle of it.
mod context {
    pub(super) const BYTES: usize = 0x42000;
    /// Our own: the queue pair.
    pub(super) const QP: usize = 0;
    pub(super) const MIDDLE: usize = 0x140;
    pub(super) const REGISTERS: usize = MIDDLE + 0x414c0;
}

/// Fields of its queue pair.
mod qp {
    pub(super) const BYTES: usize = 0x400;
    pub(super) const QPN: usize = 0x4;
    pub(super) const SQ_WR_IDS: usize = 0x2c8;
    pub(super) const SQ_HEADS: usize = 0x2d0;
    pub(super) const SQ_SIZE: usize = 0x2e4;
    pub(super) const SQ_DATA: usize = 0x310;
    pub(super) const RQ_WR_IDS: usize = 0x328;
    pub(super) const RQ_SIZE: usize = 0x344;
}

/// The byte of an entry that says whose it is, as the original's memory is filled at first.
const INVALID: u64 = 0xf0 << 56;

// SAFETY: why needed: the functions are C. Why sound: the declarations are those of their sources;
// each call says why its pointers are valid.
unsafe extern "C" {
    #[link_name = "rdmacore44_0_mlx5_arm_cq"]
    fn arm_cq(cq: *mut c_void, solicited: c_int) -> c_int;
    #[link_name = "rdmacore44_0_mlx5_cq_event"]
    fn cq_event(cq: *mut c_void);
    #[link_name = "rdmacore44_0_mlx5_poll_cq"]
    fn poll_cq(cq: *mut c_void, count: c_int, wc: *mut c_void) -> c_int;
}

/// The queue pair of that number, which the code asks for.
// SAFETY: why needed: the code finds the function by its name. Why sound: nobody else has the name.
#[unsafe(export_name = "rdmacore44_0_mlx5_find_qp")]
extern "C" fn find_qp(context: *const c_void, qpn: u32) -> *mut c_void {
    // SAFETY: why needed: C hands the context over as a pointer. Why sound: it is that of an
    // queue of ours, whose first word is the address of a queue pair that lives as long.
    let addr = unsafe { context.cast::<u64>().read() };
    let qp = pointer(addr);
    // SAFETY: why needed, why sound: as above; the field is within the queue pair.
    let own = unsafe { qp.wrapping_byte_add(qp::QPN).cast::<u32>().read() };
    if own == qpn {
        qp
    } else {
        core::ptr::null_mut()
    }
}

/// There are no shared receive queues.
// SAFETY: why needed, why sound: as of `find_qp`.
#[unsafe(export_name = "rdmacore44_0_mlx5_find_srq")]
const extern "C" fn find_srq(_context: *const c_void, _number: u32) -> *mut c_void {
    core::ptr::null_mut()
}

/// Whether to stop at an error.
// SAFETY: why needed, why sound: as of `find_qp`.
#[unsafe(export_name = "rdmacore44_0_mlx5_freeze_on_error_cqe")]
static FREEZE: c_int = 0;

/// Functions of other parts that the code never calls here.
macro_rules! unused {
    ($($function:ident = $name:literal),+ $(,)?) => {$(
        // SAFETY: why needed, why sound: as of `find_qp`.
        #[unsafe(export_name = $name)]
        extern "C" fn $function() {
            std::process::abort();
        }
    )+};
}

unused! {
    clock_info = "mlx5dv_get_clock_info",
    alloc_buf = "rdmacore44_0_mlx5_alloc_prefered_buf",
    odp_fault = "rdmacore44_0_mlx5_complete_odp_fault",
    copy_srq = "rdmacore44_0_mlx5_copy_to_recv_srq",
    copy_recv = "rdmacore44_0_mlx5_copy_to_recv_wqe",
    copy_send = "rdmacore44_0_mlx5_copy_to_send_wqe",
    find_mkey = "rdmacore44_0_mlx5_find_mkey",
    free_buf = "rdmacore44_0_mlx5_free_actual_buf",
    free_srq_wqe = "rdmacore44_0_mlx5_free_srq_wqe",
    alloc_type = "rdmacore44_0_mlx5_get_alloc_type",
    use_huge = "rdmacore44_0_mlx5_use_huge",
}

const DRIVER: Driver = Driver {
    poll: poll_cq,
    arm: arm_cq,
    event: Some(cq_event),
    bytes: cq::BYTES,
    index: cq::INDEX,
    arm_sn: cq::ARM_SN,
    register: 0x20,
};

impl DriverCq {
    /// A queue of mlx5 of `size` entries, a power of two, for queue pair `qpn`.
    #[must_use]
    pub fn mlx5(cqn: u32, size: u32, qpn: u32) -> Self {
        let mut queue = Self::new(DRIVER, size);
        for entry in 0..size as usize {
            queue.ring.words().store(entry * 8 + 7, INVALID);
        }
        let [context, qp] = [context::BYTES, qp::BYTES].map(Object::new);
        let [heads, data, buf] = [WRS * 4, WRS * 4, 8].map(Object::new);
        qp.set_u32(qp::QPN, qpn);
        qp.set_u64(qp::SQ_WR_IDS, queue.sends.addr());
        qp.set_u64(qp::SQ_HEADS, heads.addr());
        qp.set_u32(qp::SQ_SIZE, WRS as u32);
        qp.set_u64(qp::SQ_DATA, data.addr());
        qp.set_u64(qp::RQ_WR_IDS, queue.recvs.addr());
        qp.set_u32(qp::RQ_SIZE, WRS as u32);
        context.set_u64(context::QP, qp.addr());
        context.set_u64(context::REGISTERS, queue.registers.addr());
        buf.set_u64(0, queue.ring.addr());
        let cq = &queue.cq;
        cq.set_u64(cq::CONTEXT, context.addr() + context::MIDDLE as u64);
        cq.set_u32(cq::CQE, size - 1);
        cq.set_u64(cq::BUF, buf.addr());
        cq.set_u32(cq::CQN, cqn);
        cq.set_u64(cq::RECORD, queue.area.addr());
        cq.set_u32(cq::CQE_BYTES, 64);
        queue.kept.extend([context, qp, heads, data, buf]);
        queue
    }
}
