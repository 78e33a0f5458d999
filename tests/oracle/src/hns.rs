//! A completion queue that the code of hns polls and arms.             [events 4.8]
//!
//! Poll alone writes the record (the index), and arm alone register 0x230.
//!
//! The code comes from `libhns-rdmav34.a` of Debian's package libibverbs-dev, rdma-core 44: the
//! part for the second generation of hardware and later. Its functions have no names outside, but
//! its table of operations has one. What it calls of other parts is here, and does nothing.

use crate::object::Object;
use crate::queue::{Arm, Driver, DriverCq, Poll, WRS};
use core::ffi::c_void;

/// Fields of its table of operations. The offsets are facts about the compiled code.
mod ops {
    pub(super) const POLL: usize = 0x1b0;
    pub(super) const ARM: usize = 0x230;
}

/// Fields of its completion queue.
mod cq {
    pub(super) const BYTES: usize = 0x400;
    pub(super) const CONTEXT: usize = 0;
    /// Entries less one.
    pub(super) const CQE: usize = 0x1c;
    pub(super) const RING: usize = 0x120;
    pub(super) const LOCK: usize = 0x130;
    pub(super) const CQN: usize = 0x134;
    pub(super) const DEPTH: usize = 0x138;
    pub(super) const INDEX: usize = 0x13c;
    pub(super) const RECORD: usize = 0x140;
    pub(super) const ARM_SN: usize = 0x150;
    /// Bit 0: there is a record.
    pub(super) const FLAGS: usize = 0x158;
    pub(super) const CQE_BYTES: usize = 0x160;
}

/// Fields of its context: where registers are, and the table of queue pairs.
mod context {
    pub(super) const BYTES: usize = 0x2000;
    pub(super) const REGISTERS: usize = 0x148;
    pub(super) const TABLE: usize = 0x158;
    pub(super) const TABLE_USERS: usize = 0x160;
    /// How far to shift a number for its part of the table, and what is left within.
    pub(super) const SHIFT: usize = 0x1180;
    pub(super) const MASK: usize = 0x1184;
}

/// Fields of its queue pair.
mod qp {
    pub(super) const BYTES: usize = 0x400;
    pub(super) const QPN: usize = 0x34;
    pub(super) const TYPE: usize = 0x3c;
    /// Completions of sends say which they are.
    pub(super) const SQ_SIGNAL_BITS: usize = 0x188;
    pub(super) const SQ_WR_IDS: usize = 0x190;
    pub(super) const SQ_LOCK: usize = 0x198;
    pub(super) const SQ_SIZE: usize = 0x19c;
    pub(super) const RQ_WR_IDS: usize = 0x1c8;
    pub(super) const RQ_LOCK: usize = 0x1d0;
    pub(super) const RQ_SIZE: usize = 0x1d4;
}

/// `IBV_QPT_UD`: its receives say what those of all others do, and whom they are from.
const UD: u32 = 4;
/// A spin lock of pthreads on x86-64 that nobody holds.
const UNLOCKED: u32 = 1;

// SAFETY: why needed: the table is C's. Why sound: only its address is taken here, and what is read
// of it says why it is there.
unsafe extern "C" {
    #[link_name = "rdmacore44_0_hns_roce_u_hw_v2"]
    static OPERATIONS: u8;
}

/// An entry of the table, as an address that is not 0.
fn operation(offset: usize) -> *const c_void {
    let table = &raw const OPERATIONS;
    // SAFETY: why needed: the table has no type here. Why sound: it is longer than the offset,
    // which is that of a pointer, and constant.
    let entry = unsafe { table.wrapping_add(offset).cast::<*const c_void>().read() };
    assert!(
        !entry.is_null(),
        "the version was checked when it was linked"
    );
    entry
}

/// Functions of other parts: what the code gets for an answer, 0 or null.
macro_rules! elsewhere {
    ($($function:ident = $name:literal),+ $(,)?) => {$(
        // SAFETY: why needed: the code finds the function by its name. Why sound: nobody else has
        // the name; the answer is right for an integer and for a pointer.
        #[unsafe(export_name = $name)]
        const extern "C" fn $function() -> u64 {
            0
        }
    )+};
}

elsewhere! {
    log = "rdmacore44_0___verbs_log",
    find_srq = "rdmacore44_0_hns_roce_find_srq",
    free_qp_buf = "rdmacore44_0_hns_roce_free_qp_buf",
    init_qp = "rdmacore44_0_hns_roce_init_qp_indices",
    destroy_qp = "rdmacore44_0_ibv_cmd_destroy_qp",
    modify_qp = "rdmacore44_0_ibv_cmd_modify_qp",
}

fn driver() -> Driver {
    let (poll, arm) = (operation(ops::POLL), operation(ops::ARM));
    Driver {
        // SAFETY: why needed: C has only an address for it. Why sound: the offset is that of this
        // operation.
        poll: unsafe { core::mem::transmute::<*const c_void, Poll>(poll) },
        // SAFETY: why needed, why sound: as above.
        arm: unsafe { core::mem::transmute::<*const c_void, Arm>(arm) },
        event: None,
        bytes: cq::BYTES,
        index: cq::INDEX,
        arm_sn: cq::ARM_SN,
        register: 0x230,
    }
}

impl DriverCq {
    /// A queue of hns of `size` entries, a power of two, for queue pair `qpn`, the one that its
    /// table of queue pairs has for every number.
    #[must_use]
    pub fn hns(cqn: u32, size: u32, qpn: u32) -> Self {
        let mut queue = Self::new(driver(), size);
        let [context, qp, table] = [context::BYTES, qp::BYTES, 8].map(Object::new);
        qp.set_u32(qp::QPN, qpn);
        qp.set_u32(qp::TYPE, UD);
        qp.set_u32(qp::SQ_SIGNAL_BITS, 1);
        qp.set_u64(qp::SQ_WR_IDS, queue.sends.addr());
        qp.set_u32(qp::SQ_SIZE, WRS as u32);
        qp.set_u64(qp::RQ_WR_IDS, queue.recvs.addr());
        qp.set_u32(qp::RQ_SIZE, WRS as u32);
        for lock in [qp::SQ_LOCK, qp::RQ_LOCK] {
            qp.set_u32(lock, UNLOCKED);
        }
        table.set_u64(0, qp.addr());
        context.set_u64(context::REGISTERS, queue.registers.addr());
        context.set_u64(context::TABLE, table.addr());
        context.set_u32(context::TABLE_USERS, 1);
        context.set_u32(context::SHIFT, 24);
        context.set_u32(context::MASK, 0);
        let cq = &queue.cq;
        cq.set_u64(cq::CONTEXT, context.addr());
        cq.set_u32(cq::CQE, size - 1);
        cq.set_u64(cq::RING, queue.ring.addr());
        cq.set_u32(cq::LOCK, UNLOCKED);
        cq.set_u32(cq::CQN, cqn);
        cq.set_u32(cq::DEPTH, size);
        cq.set_u64(cq::RECORD, queue.area.addr());
        cq.set_u32(cq::ARM_SN, 1);
        cq.set_u32(cq::FLAGS, 1);
        cq.set_u32(cq::CQE_BYTES, 64);
        queue.kept.extend([context, qp, table]);
        queue
    }
}
