//! Changing a queue pair: attributes into the 256-byte context, a command, and starting over.
//!
//! ```text
//! QpAttr ─ table, values ─► context in memory ─ MODIFY_QP ─► taken over here as well
//! Reset: rings zeroed, tracking emptied, completions in the queues made void
//! ```
//!
//! A call that fails changes nothing. What this does *not* do: know the table of transitions
//! (`srdma_core::qp::attr`).

use crate::driver::alloc::RingMem;
use crate::driver::ids::lock;
use crate::error::Reason;
use crate::path::Path;
use crate::qp::{Layout, QpInner};
use crate::qp_attr::QpAttr;
use crate::srq::Srq;
use srdma_core::hw::cqp::QpCmd;
use srdma_core::hw::{CqpCmd, HwQpState, HwQpType, QpContext};
use srdma_core::obj::port::Gid;
use srdma_core::qp::attr::{self, AttrMask, QpState, QpType};
use srdma_core::ring::{RqProducer, SqProducer};

impl QpInner {
    pub(crate) fn modify(&self, change: &QpAttr) -> Result<(), Reason> {
        let mut current = lock(&self.control);
        if !self.is_live() {
            return Err(Reason::Destroyed);
        }
        self.driver().hear();
        let real = self.shared.state();
        let from = if change.mask.contains(AttrMask::CUR_STATE) {
            change.cur_state
        } else {
            real
        };
        let to = if change.mask.contains(AttrMask::STATE) {
            change.state
        } else {
            from
        };
        attr::check(self.shared.qp_type, from, to, change.mask)?;
        change.check_values(self.driver().max_mtu)?;
        if from != real {
            return Err(Reason::State(real));
        }
        if matches!(to, QpState::Reset | QpState::Err) {
            // Acknowledgements may wait for the next pass: the peer gets those that are due.
            self.driver().engine.with(|_| ());
        }
        if to == QpState::Reset {
            return self.reset(&mut current);
        }
        let mut next = *current;
        next.merge(change);
        let ctx = self.context_of(&next, change.mask.contains(AttrMask::AV))?;
        self.write_context(&ctx)?;
        self.driver()
            .exec(&CqpCmd::ModifyQp(self.command(to, change.mask)))?;
        *current = next;
        self.shared.advance_state(real, to);
        if to == QpState::Err && self.shared.rq.as_ref().is_some_and(|rq| rq.used() != 0) {
            // A receive that was posted after the device stopped and before the state was known
            // here; flushed once, if the device has flushed it already.
            self.driver().flush_receives(self.shared.qpn)?;
        }
        Ok(())
    }

    /// Back to the beginning: nothing is posted, no completion of this queue pair is left.
    fn reset(&self, current: &mut QpAttr) -> Result<(), Reason> {
        // Nobody posts meanwhile.
        let mut sq = lock(&self.sq);
        let mut rq = self.rq.as_ref().map(lock);
        let stopped = self.stop_receiving()?;
        let cmd = self.command(QpState::Reset, AttrMask::STATE);
        self.driver().exec(&CqpCmd::ModifyQp(cmd))?;
        // Events from before the reset still find the old state.
        self.driver().drain_aeq();
        if stopped {
            let qpn = self.shared.qpn;
            self.pd
                .ctx()
                .events
                .purge(|record| record.is_last_wqe_of(qpn));
        }
        self.shared.set_state(QpState::Reset);
        self.clean_completions();
        clear(&self.mem, &self.layout)?;
        let (new_sq, new_rq) = rings(&self.mem, &self.layout, rq.is_some())?;
        sq.ring = new_sq;
        self.shared.sq.reset();
        if let (Some(rq), Some(ring)) = (rq.as_mut(), new_rq) {
            rq.ring = ring;
        }
        if let Some(track) = &self.shared.rq {
            track.reset();
        }
        *current = QpAttr::new();
        Ok(())
    }

    /// Takes a queue pair with a shared receive queue, or an XRC target, through the error state: a
    /// receive that it holds for a message in progress is flushed, and its place in the shared
    /// queue is free again. True if that was necessary.
    pub(crate) fn stop_receiving(&self) -> Result<bool, Reason> {
        let receives = matches!(
            self.shared.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        );
        if (self.srq.is_none() && self.xrcd.is_none()) || !receives {
            return Ok(false);
        }
        let cmd = self.command(QpState::Err, AttrMask::STATE);
        self.driver().exec(&CqpCmd::ModifyQp(cmd))?;
        Ok(true)
    }

    /// Makes unread completions void. Those of a shared receive queue are counted, so the queue
    /// that may hold some comes first.
    pub(crate) fn clean_completions(&self) {
        let srq = self.srq.is_some();
        self.recv_cq.state().reaper.clean(self.context, srq);
        if self.send_cq != self.recv_cq {
            self.send_cq.state().reaper.clean(self.context, false);
        }
    }

    /// The words that the device reads: everything that `attr` says, and what never changes.
    pub(crate) fn context_of(&self, attr: &QpAttr, with_path: bool) -> Result<QpContext, Reason> {
        let mut ctx = self.base_context();
        if with_path {
            let av = self.driver().address_vector(&attr.path)?;
            (ctx.dest_ip, ctx.local_ip) = (av.target, av.local);
        }
        ctx.gid_index = attr.path.gid_index;
        ctx.traffic_class = attr.path.traffic_class;
        ctx.hop_limit = attr.path.hop_limit;
        ctx.flow_label = attr.path.flow_label;
        ctx.path_mtu = attr.path_mtu.bytes();
        ctx.peer_rx = attr.peer_rx;
        ctx.dest_qpn = attr.dest_qp;
        ctx.pkey_index = attr.pkey_index;
        ctx.pkey = srdma_core::num::Pkey::DEFAULT;
        ctx.qkey = attr.qkey;
        (ctx.sq_psn, ctx.rq_psn) = (attr.sq_psn, attr.rq_psn);
        (ctx.timeout, ctx.retry_cnt) = (attr.timeout, attr.retry_cnt);
        (ctx.rnr_retry, ctx.min_rnr_timer) = (attr.rnr_retry, attr.min_rnr_timer);
        ctx.max_rd_atomic = attr.max_rd_atomic;
        ctx.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        ctx.access = attr.access;
        Ok(ctx)
    }

    fn base_context(&self) -> QpContext {
        let own_rq = self.rq.is_some();
        QpContext {
            qp_type: hw_type(self.shared.qp_type),
            sq_addr: self.mem.addr(0),
            sq_quanta: self.layout.sq_quanta,
            rq_addr: if own_rq {
                self.mem.addr(self.layout.rq_at)
            } else {
                0
            },
            rq_wqes: if own_rq { self.layout.rq_wqes } else { 0 },
            rq_shift: self.layout.rq_shift,
            send_cq: self.send_cq.id(),
            recv_cq: self.recv_cq.id(),
            pd: self.pd.id(),
            srq: self.srq.as_ref().map(Srq::id),
            xrcd: self.xrcd.as_ref().map(|xrcd| xrcd.id()),
            completion_context: self.context,
            ..QpContext::default()
        }
    }

    pub(crate) fn write_context(&self, ctx: &QpContext) -> Result<(), Reason> {
        let words = ctx.encode();
        let memory = self.mem.words(self.layout.ctx_at, 8 * words.len())?;
        for (at, word) in words.into_iter().enumerate() {
            memory.store(at, word);
        }
        Ok(())
    }

    pub(crate) fn command(&self, next: QpState, mask: AttrMask) -> QpCmd {
        QpCmd {
            qpn: self.shared.qpn,
            qp_type: hw_type(self.shared.qp_type),
            next_state: hw_state(next),
            mask,
            ctx_addr: self.mem.addr(self.layout.ctx_at),
            shadow_addr: self.mem.addr(self.layout.shadow_at),
        }
    }
}

/// Zeroes both rings, for those that start again in them.
fn clear(mem: &RingMem, layout: &Layout) -> Result<(), Reason> {
    let rq_len = (layout.rq_wqes as usize * 32) << layout.rq_shift;
    for (at, len) in [(0, layout.sq_quanta as usize * 32), (layout.rq_at, rq_len)] {
        let words = mem.words(at, len)?;
        for word in 0..words.len() {
            words.store(word, 0);
        }
    }
    Ok(())
}

/// Fresh rings over the queue pair's memory, which is zero.
pub(crate) fn rings(
    mem: &RingMem,
    layout: &Layout,
    own_rq: bool,
) -> Result<(SqProducer, Option<RqProducer>), Reason> {
    let bad = |_| Reason::Host(srdma_core::mem::HostFault::OutOfRange);
    let words = mem.words(0, layout.sq_quanta as usize * 32)?;
    let sq = SqProducer::new(words, layout.sq_quanta).map_err(bad)?;
    let rq = if own_rq {
        let words = mem.words(
            layout.rq_at,
            (layout.rq_wqes as usize * 32) << layout.rq_shift,
        )?;
        Some(RqProducer::new(words, layout.rq_wqes, layout.rq_shift).map_err(bad)?)
    } else {
        None
    };
    Ok((sq, rq))
}

const fn hw_type(qp_type: QpType) -> HwQpType {
    match qp_type {
        QpType::Rc => HwQpType::RC,
        QpType::Uc => HwQpType::UC,
        QpType::XrcSend => HwQpType::XRC_SEND,
        QpType::XrcRecv => HwQpType::XRC_RECV,
        // The GSI QP is a datagram queue pair with number 1.
        _ => HwQpType::UD,
    }
}

const fn hw_state(state: QpState) -> HwQpState {
    match state {
        QpState::Reset => HwQpState::INVALID,
        QpState::Init => HwQpState::IDLE,
        QpState::Rtr => HwQpState::RTR,
        QpState::Rts => HwQpState::RTS,
        QpState::Sqd => HwQpState::SQD,
        QpState::Sqe => HwQpState::SQE,
        QpState::Err => HwQpState::ERROR,
    }
}

/// The path to `dest` as a builder's options say.
pub(crate) const fn path_to(dest: Gid, options: &crate::qp_build::ConnOptions) -> Path {
    Path::new(dest, options.gid_index)
        .hop_limit(options.hop_limit)
        .traffic_class(options.traffic_class)
}
