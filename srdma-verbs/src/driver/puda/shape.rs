//! What a privileged queue is made of, and the commands that make it.
//!
//! ```text
//! one piece of memory   [ SQ │ RQ │ CQ │ CQ shadow │ QP shadow │ context ]
//! CREATE_CQ, CREATE_QP, then up to RTS; what was made before a failure is taken back
//! ```
//!
//! [E810 8.1]

use super::super::Driver;
use super::super::alloc::RingMem;
use super::PudaKind;
use crate::error::Reason;
use srdma_core::hw::cqp::{CqCmd, QpCmd};
use srdma_core::hw::{CqpCmd, HwQpState, HwQpType, QpContext};
use srdma_core::num::{CeqId, Pkey, Qkey};
use srdma_core::qp::attr::{AttrMask, QpState, QpType, transition};

/// What a queue is made as.                                           [E810 8.1]
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kind: PudaKind,
    pub(super) qp_type: QpType,
    pub(super) qkey: Qkey,
    pub(super) sq_quanta: u32,
    pub(super) rq_wqes: u32,
    /// Buffers and bytes of each.
    pub(super) bufs: (u32, u32),
}

impl Shape {
    /// Every receive may take two slots, every send one.
    pub(super) const fn cq_size(&self) -> u32 {
        2 * self.rq_wqes + self.sq_quanta
    }
}

/// Where everything lies in the queue's memory.
pub(super) struct Places {
    pub(super) rq: usize,
    pub(super) cq: usize,
    pub(super) cq_shadow: usize,
    pub(super) shadow: usize,
    pub(super) ctx: usize,
    pub(super) len: usize,
}

impl Places {
    pub(super) const fn of(shape: &Shape) -> Self {
        let rq = shape.sq_quanta as usize * 32;
        let cq = rq + shape.rq_wqes as usize * 32;
        let cq_shadow = (cq + shape.cq_size() as usize * 32).next_multiple_of(256);
        Self {
            rq,
            cq,
            cq_shadow,
            shadow: cq_shadow + 128,
            ctx: cq_shadow + 256,
            len: cq_shadow + 512,
        }
    }
}

/// Makes completion queue and queue pair.
pub(super) fn make(
    driver: &Driver,
    shape: &Shape,
    mem: &RingMem,
    places: &Places,
) -> Result<(), Reason> {
    let size = shape.cq_size();
    driver.exec(&CqpCmd::CreateCq(CqCmd {
        id: shape.kind.cq(),
        ceq: Some(CeqId(0)),
        cookie: shape.kind.cookie_in(driver.dialect),
        size,
        threshold: size / 4,
        addr: mem.addr(places.cq),
        shadow_addr: mem.addr(places.cq_shadow),
        check_overflow: true,
        wide: false,
        timestamps: false,
    }))?;
    let made = make_qp(driver, shape, mem, places);
    if made.is_err() {
        let _ = driver.exec(&CqpCmd::DestroyCq(shape.kind.cq()));
    }
    made
}

fn make_qp(driver: &Driver, shape: &Shape, mem: &RingMem, places: &Places) -> Result<(), Reason> {
    let context = QpContext {
        qp_type: HwQpType::UDA,
        sq_addr: mem.addr(0),
        sq_quanta: shape.sq_quanta,
        rq_addr: mem.addr(places.rq),
        rq_wqes: shape.rq_wqes,
        rq_shift: 0,
        send_cq: shape.kind.cq(),
        recv_cq: shape.kind.cq(),
        pd: shape.kind.pd(),
        completion_context: shape.kind.cookie(),
        path_mtu: driver.max_mtu.bytes(),
        pkey: Pkey::DEFAULT,
        qkey: shape.qkey,
        hop_limit: 64,
        ..QpContext::default()
    };
    let words = mem.words(places.ctx, 256)?;
    for (at, word) in context.encode().into_iter().enumerate() {
        words.store(at, word);
    }
    let cmd = |next_state, mask: AttrMask| QpCmd {
        qpn: shape.kind.qpn(),
        qp_type: HwQpType::UDA,
        next_state,
        mask: mask.with(AttrMask::STATE),
        ctx_addr: mem.addr(places.ctx),
        shadow_addr: mem.addr(places.shadow),
    };
    driver.exec(&CqpCmd::CreateQp(cmd(HwQpState::INVALID, AttrMask::NONE)))?;
    let ladder = [
        (QpState::Reset, QpState::Init, HwQpState::IDLE),
        (QpState::Init, QpState::Rtr, HwQpState::RTR),
        (QpState::Rtr, QpState::Rts, HwQpState::RTS),
    ];
    for (from, to, hw) in ladder {
        let mask = transition(shape.qp_type, from, to).map_or(AttrMask::NONE, |row| row.required);
        if let Err(reason) = driver.exec(&CqpCmd::ModifyQp(cmd(hw, mask))) {
            let _ = driver.exec(&CqpCmd::DestroyQp(shape.kind.qpn()));
            return Err(reason);
        }
    }
    Ok(())
}
