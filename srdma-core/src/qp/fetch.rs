//! Fetching WQEs: from ring words to a record in flight, with everything checked that can be
//! checked before the first packet.

use super::Qp;
use super::attr::{QpState, QpType};
use super::flush::Cause;
use super::window::{Kind, Local, SendCtx, packets_of};
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::FlushCode;
use crate::hw::wqe::SqOp;
use crate::limits::MAX_MSG_BYTES;
use crate::mem::Sge;
use crate::trace;
use crate::wire::MessageForm;

/// READ and atomic records that may be in flight before fetching pauses; bounds memory a QP.
const MAX_INFLIGHT: usize = 32_768;

/// A ring index as CQEs carry it: 15 bits, and rings have at most 32,768 quanta.
// rule: e810-6
#[allow(clippy::cast_possible_truncation, reason = "masked to 15 bits")]
pub(crate) const fn sq_index(index: u32) -> u16 {
    (index & 0x7fff) as u16
}

/// From the first address of a list of entries to behind the last.
fn span_of(sges: &[Sge]) -> (u64, u64) {
    let used = sges.iter().filter(|sge| sge.len > 0);
    let first = used.clone().map(|sge| sge.addr).min();
    let last = used
        .map(|sge| sge.addr.saturating_add(u64::from(sge.len)))
        .max();
    (first.unwrap_or(0), last.unwrap_or(0))
}

impl Qp {
    /// Fetches the next WQE into the in-flight list. False: there is none, or none may start.
    pub(crate) fn fetch(&mut self) -> bool {
        // rule: roce-81
        if self.state != QpState::Rts || self.req.stopped || self.req.inflight.len() >= MAX_INFLIGHT
        {
            return false;
        }
        // What is sent on the exception queue goes nowhere: the device takes it back.
        if self.id.is_ieq() {
            return false;
        }
        let number = self.req.end();
        let index = sq_index(self.sq.index());
        let Some(parsed) = self.sq.read(&mut self.req.cmd) else {
            return false;
        };
        if trace::on() {
            self.trace_wqe();
        }
        self.sq.advance(&self.req.cmd);
        self.req.cmd_of = Some(number);
        let admitted = match parsed {
            Ok(()) => self.admit(),
            Err(fault) => Err(Cause::new(FlushCode::LOC_QP_OP, fault.ae_code())),
        };
        let (kind, len, local) = match admitted {
            Ok((kind, len)) => (kind, len, Local::Pending),
            Err(cause) => {
                self.req.stopped = true;
                (Kind::Local, 0, Local::Failed(cause))
            }
        };
        let packets = match kind {
            Kind::Local => 0,
            Kind::Atomic | Kind::AtomicWrite => 1,
            Kind::Acked | Kind::Read => packets_of(len, self.conn.mtu),
        };
        let cmd = &self.req.cmd;
        let span = if kind.needs_response() {
            span_of(cmd.sges.as_slice())
        } else {
            (0, 0)
        };
        let first = self.req.next;
        self.req.next = first.add(packets);
        self.req.inflight.push_back(SendCtx {
            index,
            op: cmd.op,
            kind,
            form: self.form(),
            signaled: cmd.signaled,
            local,
            first,
            packets,
            len,
            span,
            flat: cmd.sges.as_slice().len() == 1,
        });
        true
    }

    /// What decides the opcodes of the packets, should it be a SEND or WRITE.
    #[inline]
    const fn form(&self) -> MessageForm {
        let cmd = &self.req.cmd;
        let (imm, inv) = (cmd.imm.is_some(), cmd.inv_key.is_some());
        MessageForm::new(self.service(), cmd.op.is_write(), imm, inv)
    }

    #[cold]
    fn trace_wqe(&self) {
        let index = self.sq.index();
        let (words, used) = self.sq.raw(index);
        let words = words.get(..used).unwrap_or_default();
        trace::wqe(trace::Kind::WQE, self.id.qpn.value(), index, words);
    }

    /// Parses WQE `number` again if it is not the one parsed last: after going back, the ring still
    /// holds it, since its slot is free only once its completion was seen.
    #[inline]
    pub(crate) fn load(&mut self, number: u64) -> bool {
        self.req.cmd_of == Some(number) || self.load_again(number)
    }

    fn load_again(&mut self, number: u64) -> bool {
        let Some(work) = self.req.ctx_of(number) else {
            return false;
        };
        if matches!(work.local, Local::Failed(_)) {
            return true;
        }
        let index = work.index;
        self.req.cmd_of = None;
        if self
            .sq
            .read_at(u32::from(index), &mut self.req.cmd)
            .is_err()
        {
            // The program overwrote a WQE that it had posted; only its own QP suffers.
            let cause = Cause::new(FlushCode::LOC_QP_OP, AeCode::WQE_INVALID_PARAMETER);
            if let Some(work) = self.req.ctx_of_mut(number) {
                work.local = Local::Failed(cause);
            }
            self.req.stopped = true;
            return true;
        }
        self.req.cmd_of = Some(number);
        true
    }

    /// Is the operation one that this QP can do, and is its length legal?
    // rule: roce-79
    fn admit(&self) -> Result<(Kind, u32), Cause> {
        let cmd = &self.req.cmd;
        let illegal = Err(Cause::new(
            FlushCode::LOC_QP_OP,
            AeCode::WQE_UNEXPECTED_OPCODE,
        ));
        let datagram = self.id.kind.is_datagram();
        let reliable = self.id.kind.is_reliable();
        // An XRC target has nothing to send.
        // rule: xrc-6
        if self.id.kind == QpType::XrcRecv {
            return illegal;
        }
        let kind = match cmd.op {
            // rule: e810-15
            SqOp::NOP => return Ok((Kind::Local, 0)),
            SqOp::SEND | SqOp::SEND_SOL => Kind::Acked,
            SqOp::SEND_INV | SqOp::SEND_SOL_INV if reliable => Kind::Acked,
            SqOp::WRITE | SqOp::WRITE_SOL if !datagram => Kind::Acked,
            SqOp::READ if reliable => Kind::Read,
            SqOp::FETCH_ADD | SqOp::COMPARE_SWAP if reliable => Kind::Atomic,
            SqOp::ATOMIC_WRITE if reliable => Kind::AtomicWrite,
            SqOp::BIND_MW | SqOp::LOCAL_INVALIDATE if !datagram => return Ok((Kind::Local, 0)),
            _ => return illegal,
        };
        // XRC names a shared receive queue of the peer, and nobody else does.
        if cmd.xrc_srq.is_some() != (self.id.kind == QpType::XrcSend) {
            return illegal;
        }
        let len = cmd.payload_len();
        if len > MAX_MSG_BYTES {
            return Err(Cause::new(
                FlushCode::LOC_LEN,
                AeCode::WQE_INVALID_PARAMETER,
            ));
        }
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        match kind {
            Kind::Atomic => {
                if !cmd.remote_addr.is_multiple_of(8) {
                    return Err(Cause::new(FlushCode::LOC_QP_OP, AeCode::ATOMIC_ALIGNMENT));
                }
                Ok((kind, 8))
            }
            Kind::AtomicWrite if len != 8 => Err(Cause::new(
                FlushCode::LOC_LEN,
                AeCode::WQE_INVALID_PARAMETER,
            )),
            _ if datagram && len > self.conn.mtu => {
                // rule: roce-78
                Err(Cause::new(
                    FlushCode::LOC_LEN,
                    AeCode::UDA_XMIT_DGRAM_TOO_LONG,
                ))
            }
            _ => Ok((kind, len)),
        }
    }
}
