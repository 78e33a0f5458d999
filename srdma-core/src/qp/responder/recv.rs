//! Receive WQEs: taken from the receive queue or the shared one, filled, completed.

use super::Fault;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::{CqeInfo, FlushCode, rq_op};
use crate::hw::rwqe::RqCmd;
use crate::num::Rkey;
use crate::obj::srq::Taken;
use crate::obj::table::Slot;
use crate::qp::Qp;
use crate::qp::attr::QpType;
use crate::qp::gather::Part;
use crate::trace;
use crate::wire::Packet;

/// The receive WQE in use.
#[derive(Debug, Default)]
pub(crate) struct Recv {
    /// One is taken.
    pub(crate) taken: bool,
    /// Its scatter list, and its wr_id if it came from a shared queue.
    pub(crate) cmd: RqCmd,
    /// Its index in the receive queue, in quanta.
    pub(crate) index: u16,
    /// Bytes that it can hold.
    pub(crate) room: u64,
    /// A test wants the next message to find none.
    pub(crate) refuse_next: bool,
}

/// What a receive completion says besides its WQE.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecvDone {
    pub(crate) len: u32,
    pub(crate) invalidated: Option<Rkey>,
}

impl Qp {
    /// The shared queue that receives come from, if one is known.
    #[inline]
    fn receives(&self) -> Option<Slot> {
        self.id.srq.or_else(|| self.rsp.xrc.map(|xrc| xrc.srq))
    }

    /// Takes the next receive WQE.
    pub(crate) fn take_recv(&mut self, ctx: &mut Ctx<'_>) -> Result<(), Fault> {
        let srq = self.receives();
        let recv = &mut self.rsp.recv;
        if core::mem::take(&mut recv.refuse_next) {
            return Err(Fault::NotReady);
        }
        let parsed = match srq {
            Some(slot) => match ctx.srqs.take(ctx.events, slot, &mut recv.cmd) {
                Taken::Empty => None,
                Taken::Entry { wqe_index } => {
                    recv.index = wqe_index;
                    Some(Ok(()))
                }
                Taken::Faulty { wqe_index, fault } => {
                    recv.index = wqe_index;
                    Some(Err(fault))
                }
            },
            None => self.rq.as_mut().and_then(|rq| {
                let parsed = rq.read(&mut recv.cmd)?;
                if trace::on() {
                    let (words, used) = rq.raw();
                    let words = words.get(..used).unwrap_or_default();
                    trace::wqe(trace::Kind::RQE, self.id.qpn.value(), rq.index(), words);
                }
                recv.index = rq.wqe_index();
                rq.advance();
                Some(parsed)
            }),
        };
        match parsed {
            None => Err(Fault::NotReady),
            Some(Err(_)) => {
                recv.taken = true;
                Err(Fault::Operational(
                    FlushCode::LOC_QP_OP,
                    AeCode::WQE_INVALID_PARAMETER,
                ))
            }
            Some(Ok(())) => {
                recv.taken = true;
                recv.room = recv.cmd.sges.total_len();
                Ok(())
            }
        }
    }

    /// Places payload at `offset` of the receive WQE's memory.
    // rule: roce-109
    // rule: roce-110
    #[inline]
    pub(crate) fn place_recv(&self, ctx: &Ctx<'_>, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let recv = &self.rsp.recv;
        if offset + bytes.len() as u64 > recv.room {
            return Err(Fault::TooLong);
        }
        let sges = recv.cmd.sges.as_slice();
        Part::new(self.domain(), sges, offset, bytes.len())
            .place(ctx.regions, bytes)
            .map_err(|fault| Fault::Operational(FlushCode::PROT, AeCode(fault.ae_code())))?;
        Ok(())
    }

    /// Completes the receive WQE with the message that `packet` ended.
    // rule: roce-17
    // rule: roce-119
    pub(crate) fn complete_recv(
        &mut self,
        ctx: &mut Ctx<'_>,
        packet: &Packet<'_>,
        done: RecvDone,
    ) -> Result<(), Fault> {
        let (id, index) = (&self.id, self.rsp.recv.index);
        let cqe = || CqeInfo {
            op: rq_op(packet.opcode().known().0),
            qpn: id.qpn,
            context: id.cookie,
            wqe_index: index,
            len: done.len,
            psn: packet.psn(),
            peer: done.invalidated.map_or(0, Rkey::value),
            // rule: e810-10
            stag_or_ipv4: done.invalidated.is_some(),
            solicited: packet.solicited(),
            imm: packet.imm().map(|imm| u32::from_be_bytes(imm.0)),
            ..CqeInfo::default()
        };
        if self.receives().is_some() {
            let cqe = cqe();
            return self.post_recv_cqe(ctx, cqe);
        }
        self.rsp.recv.taken = false;
        let (cqs, events) = (&mut *ctx.cqs, &mut *ctx.events);
        cqs.post_with(events, self.id.recv_cq, ctx.now, cqe)
            .map_err(|_| Fault::Overrun)
    }

    /// Posts a receive completion; the WQE is then free.
    #[inline(never)]
    pub(crate) fn post_recv_cqe(
        &mut self,
        ctx: &mut Ctx<'_>,
        mut cqe: CqeInfo,
    ) -> Result<(), Fault> {
        self.rsp.recv.taken = false;
        let mut cq = self.id.recv_cq;
        if let Some(srq) = self.receives() {
            cqe.srq_wr_id = Some(self.rsp.recv.cmd.wr_id);
            cqe.srqn = ctx.srqs.number(srq);
            if self.rsp.xrc.is_some() {
                // rule: xrc-5
                let Some((home, context)) = ctx.srqs.xrc_home(srq) else {
                    // The queue is gone, and with it whoever waits for its receives.
                    return Ok(());
                };
                (cq, cqe.context) = (home, context);
            }
        }
        ctx.cqs
            .post(ctx.events, cq, &cqe, ctx.now)
            .map_err(|_| Fault::Overrun)
    }

    /// One flush CQE stands for everything in the receive queue. With a shared queue only a WQE
    /// already taken is flushed, and the driver learns that no more will be.
    // rule: roce-142, event-50
    // rule: xrc-8
    pub(crate) fn flush_rq(&mut self, ctx: &mut Ctx<'_>, code: FlushCode) -> bool {
        let taken = self.rsp.recv.taken;
        if self.id.srq.is_some() {
            if taken {
                let cqe = CqeInfo::flush(false, self.id.qpn, self.id.cookie, 0, code);
                let _ = self.post_recv_cqe(ctx, cqe);
            }
            self.raise(
                ctx,
                AeCode::LAST_WQE_REACHED,
                crate::hw::aeqe::AeSource::NONE,
                0,
            );
            return taken;
        }
        if self.id.kind == QpType::XrcRecv {
            // The queues of the domain serve other targets too, so no event says that this one has
            // stopped.
            if taken {
                let cqe = CqeInfo::flush(false, self.id.qpn, self.id.cookie, 0, code);
                let _ = self.post_recv_cqe(ctx, cqe);
            }
            return taken;
        }
        self.rsp.recv.taken = false;
        let Some(rq) = self.rq.as_mut() else {
            return false;
        };
        let waiting = rq.peek().map(|_| rq.wqe_index());
        for _ in 0..rq.size() {
            if rq.peek().is_none() {
                break;
            }
            rq.advance();
        }
        let index = if taken {
            Some(self.rsp.recv.index)
        } else {
            waiting
        };
        let Some(index) = index else { return false };
        let cqe = CqeInfo::flush(false, self.id.qpn, self.id.cookie, index, code);
        let _ = ctx.cqs.post(ctx.events, self.id.recv_cq, &cqe, ctx.now);
        true
    }
}
