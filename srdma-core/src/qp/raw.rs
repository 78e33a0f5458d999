//! Sends of the driver's own datagram queue: the packet stands in memory from its base header on,
//! and the device adds what is below and behind it.
//!
//! ```text
//! memory   [ BTH 12 │ DETH 8 │ payload ]        L4LEN = 5 dwords of headers
//! wire     … UDP ─ [ BTH │ DETH │ payload │ pad │ ICRC ]
//! ```
//!
//! What is sent on the exception queue does not leave: see `hca/puda.rs`.
//!
//! Where to is the address handle's matter; partition, Q_Key, both queue pairs and the PSN are as
//! the driver wrote them.                                              [E810 2.4, 8.4]

use super::Qp;
use super::emit::At;
use super::fetch::sq_index;
use super::flush::Cause;
use super::gather::Part;
use super::requester::Step;
use super::window::SendCtx;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::hw::wqe::{SqOp, WqeFault};
use crate::limits::MAX_DATAGRAM;
use crate::num::{Psn, Qpn};
use crate::tx::TxArena;
use crate::wire::{Bth, Deth, Head, Opcode};

/// Bytes of a BTH.
const BTH: usize = 12;
/// Bytes of headers in memory.
const HEADERS: usize = BTH + Deth::LEN;
/// The same in dwords, as the WQE says it.
const L4_LEN: u8 = 5;

impl Qp {
    /// One packet of a SEND on a privileged queue.
    // rule: puda-3
    pub(super) fn step_raw(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        work: &SendCtx,
        at: At,
    ) -> Step {
        let (bth, deth) = match self.raw_headers(ctx, work.len) {
            Ok(headers) => headers,
            Err(cause) => return self.fail_current(ctx, cause),
        };
        self.req.cmd.ud.dest = bth.dest;
        let (path_id, dest, _) = match self.route(ctx) {
            Ok(Some(route)) => route,
            Ok(None) => return Step::Wait,
            Err(cause) => return self.fail_current(ctx, cause),
        };
        let Some(path) = ctx.paths.get(path_id) else {
            return Step::Stop;
        };
        let mut head = Head::new(&Bth {
            pkey: bth.pkey,
            solicited: bth.solicited,
            ..Bth::new(bth.opcode, dest, bth.psn)
        });
        head.deth(deth);
        let sges = self.req.cmd.sges.as_slice();
        let len = work.len as usize - HEADERS;
        let part = Part::new(self.id.pd, sges, HEADERS as u64, len);
        let mark = (self.id.slot, at.mark(work.first));
        match part.push(ctx.regions, arena, (path, mark), &mut head) {
            Ok(true) => {
                self.advance(ctx, work.first, (1, work.packets), false, at);
                Step::Sent(work.len + 64)
            }
            Ok(false) => Step::Full,
            Err(fault) => self.fail_current(ctx, fault.into()),
        }
    }

    /// Quanta of the send queue.
    pub(crate) const fn sq_size(&self) -> u32 {
        self.sq.size()
    }

    /// The next packet that the driver gives back on the exception queue, copied out: the queue
    /// pair it is for, and its epoch. The WQE is done with that.      [E810 8.5]
    pub(crate) fn fetch_returned(&mut self, ctx: &mut Ctx<'_>) -> Option<(Qpn, u32)> {
        loop {
            let index = sq_index(self.sq.index());
            let parsed = self.sq.read(&mut self.req.cmd)?;
            self.sq.advance(&self.req.cmd);
            self.req.cmd_of = None;
            if self.req.cmd.op == SqOp::NOP {
                continue;
            }
            if let Err(cause) = self.copy_returned(ctx, parsed) {
                self.rq_error(ctx, cause, AeSource::SQ);
                return None;
            }
            let (op, psn) = (self.req.cmd.op, Psn::default());
            if self.req.cmd.signaled && !self.complete_send(ctx, op, index, psn) {
                return None;
            }
            let target = self.req.cmd.ud;
            return Some((target.dest, target.qkey.0));
        }
    }

    fn copy_returned(&self, ctx: &mut Ctx<'_>, parsed: Result<(), WqeFault>) -> Result<(), Cause> {
        let cmd = &self.req.cmd;
        parsed.map_err(|fault| Cause::new(FlushCode::LOC_QP_OP, fault.ae_code()))?;
        if cmd.op != SqOp::SEND || cmd.inline_data().is_some() {
            let ae = AeCode::WQE_UNEXPECTED_OPCODE;
            return Err(Cause::new(FlushCode::LOC_QP_OP, ae));
        }
        let sges = cmd.sges.as_slice();
        let len = usize::try_from(cmd.sges.total_len()).unwrap_or(usize::MAX);
        if len > MAX_DATAGRAM {
            let ae = AeCode::UDA_XMIT_DGRAM_TOO_LONG;
            return Err(Cause::new(FlushCode::LOC_LEN, ae));
        }
        ctx.ieq.scratch.resize(len, 0);
        Part::new(self.id.pd, sges, 0, len)
            .copy(ctx.regions, &mut ctx.ieq.scratch)
            .map_err(Cause::from)
    }

    /// The headers in front of the payload.
    fn raw_headers(&self, ctx: &Ctx<'_>, len: u32) -> Result<(Bth, Deth), Cause> {
        let cmd = &self.req.cmd;
        if cmd.inline_data().is_some() || cmd.imm.is_some() {
            let ae = AeCode::WQE_INVALID_PARAMETER;
            return Err(Cause::new(FlushCode::LOC_QP_OP, ae));
        }
        if cmd.l4_len != L4_LEN {
            return Err(Cause::new(FlushCode::LOC_LEN, AeCode::UDA_L4LEN_INVALID));
        }
        if (len as usize) < HEADERS {
            let ae = AeCode::UDA_XMIT_DGRAM_TOO_SHORT;
            return Err(Cause::new(FlushCode::LOC_LEN, ae));
        }
        let mut bth = [0; BTH];
        let mut deth = [0; Deth::LEN];
        let sges = cmd.sges.as_slice();
        Part::new(self.id.pd, sges, 0, BTH).copy(ctx.regions, &mut bth)?;
        Part::new(self.id.pd, sges, BTH as u64, Deth::LEN).copy(ctx.regions, &mut deth)?;
        let bth = Bth::from_bytes(&bth);
        if bth.opcode != Opcode::UD_SEND_ONLY {
            let ae = AeCode::WQE_UNEXPECTED_OPCODE;
            return Err(Cause::new(FlushCode::LOC_QP_OP, ae));
        }
        Ok((bth, Deth::from_bytes(deth)))
    }
}
