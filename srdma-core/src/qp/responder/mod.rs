//! The responder: requests in, memory and completions changed, responses out.
//!
//! ```text
//! on_request ─► check_psn ─► check_sequence ─► check_xrc ─► check_rights ─► check_resources
//!            ─► check_length ─► check_target (key → grant) ─► execute ─► response due
//! ```
//!
//! The order is that of the specification, one function a check, each taking what the one before
//! proved. A check that fails says what the peer is told ([`Fault`]); nothing was changed then.
//! [RoCEv2 3]

mod ack;
mod captured;
mod early;
mod execute;
mod line;
mod recv;
mod replay;
mod reply;
mod ud;
mod xrc;

pub(crate) use ack::ACK_LATE_NS;
pub(crate) use recv::Recv;
pub(crate) use reply::Replies;
use xrc::XrcTarget;

use super::Qp;
use super::attr::{QpState, QpType};
use super::flush::Cause;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::mem::{Access, Claim};
use crate::num::{Msn, Psn};
use crate::time::Instant;
use crate::wire::{NakCode, Packet, Position, Syndrome, Verb};

/// How long a fatal NAK is repeated for duplicates of the request it refused.
const FATAL_GRACE_NS: u64 = 5_000_000_000;

/// What the peer asked for and cannot have, or cannot have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not for us, or not now: nothing is said.
    Drop,
    /// No receive WQE: the peer shall wait.
    NotReady,
    /// The request breaks a rule of the transport.
    Invalid(AeCode),
    /// The key, the range or the rights do not allow it.
    Access(AeCode),
    /// It is our receive buffer that is unfit.
    Operational(FlushCode, AeCode),
    /// The message is longer than the receive buffer.
    TooLong,
    /// A completion could not be delivered.
    Overrun,
}

impl Fault {
    /// What is told to the peer, if anything.
    const fn syndrome(self, rnr_timer: u8) -> Option<Syndrome> {
        match self {
            Self::Drop | Self::Overrun => None,
            Self::NotReady => Some(Syndrome::RnrNak { timer: rnr_timer }),
            Self::Invalid(_) | Self::TooLong => Some(Syndrome::Nak(NakCode::INVALID_REQUEST)),
            Self::Access(_) => Some(Syndrome::Nak(NakCode::REMOTE_ACCESS)),
            Self::Operational(..) => Some(Syndrome::Nak(NakCode::REMOTE_OPERATION)),
        }
    }
}

/// The message that requests are in the middle of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// A SEND: bytes placed so far.
    Send { done: u64 },
    /// A WRITE: where, of how much, and how far.
    Write {
        claim: Option<Claim>,
        len: u32,
        done: u64,
    },
}

/// The receiving side of a queue pair.
#[derive(Debug)]
pub(crate) struct Responder {
    /// Expected PSN.
    pub(crate) epsn: Psn,
    /// Messages completed.
    pub(crate) msn: Msn,
    /// Message in progress.
    pub(crate) message: Option<Message>,
    /// PSN of its first packet.
    pub(crate) first: Psn,
    /// Receive WQE taken for it.
    pub(crate) recv: Recv,
    /// XRC target: the shared receive queue that the present message names, and its domain.
    xrc: Option<XrcTarget>,
    /// When the sequence NAK for the present gap was sent.
    nak_sent: Option<Instant>,
    /// An RNR NAK is pending for the expected PSN: no sequence NAKs.
    rnr_pending: bool,
    /// Something is out of the ordinary: a NAK was sent or is due, or packets are held that came
    /// ahead of their turn. One look where all is well.
    unsettled: bool,
    /// The NAK that ended this queue pair, and until when it is repeated.
    fatal: Option<(Psn, Syndrome, Instant)>,
    /// Responses due, and what can be replayed.
    pub(crate) replies: Replies,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            epsn: Psn::default(),
            msn: Msn::default(),
            message: None,
            first: Psn::default(),
            recv: Recv::default(),
            xrc: None,
            nak_sent: None,
            rnr_pending: false,
            unsettled: false,
            fatal: None,
            replies: Replies::default(),
        }
    }

    /// Starts over at `epsn`, able to replay `depth` READs and atomics.
    pub(crate) fn reset(&mut self, epsn: Psn, depth: u8) {
        *self = Self::new();
        self.epsn = epsn;
        self.replies.set_depth(depth);
    }

    /// A response did not leave: take it up again.
    pub(crate) fn on_unsent(&mut self, what: u64) {
        self.replies.on_unsent(what);
    }

    /// The same of one packet that was sent again.
    pub(crate) fn on_unsent_again(&mut self, what: u64, limit: u32) {
        self.replies.on_unsent_again(what, limit);
    }
}

impl Qp {
    /// A request for a connected queue pair, already known to come from its peer.
    pub(crate) fn on_request(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        if self.state == QpState::Err {
            self.repeat_fatal(ctx, packet);
            return;
        }
        if !self.can_receive() {
            ctx.counters.bad_state += 1;
            return;
        }
        self.note_established(ctx);
        match self.serve(ctx, packet) {
            Ok(()) if self.rsp.unsettled => self.catch_up_early(ctx),
            Ok(()) => {}
            Err(fault) if self.id.kind.is_reliable() => {
                self.refuse(ctx, packet, fault);
                self.discard_early(ctx);
            }
            Err(fault) => self.abandon_message(ctx, packet, fault),
        }
    }

    #[inline]
    fn serve(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        if !self.check_psn(ctx, packet)? {
            return Ok(());
        }
        self.check_sequence(packet)?;
        self.check_xrc(ctx, packet)?;
        self.check_rights(packet)?;
        self.check_resources(ctx, packet)?;
        self.check_length(packet)?;
        self.execute(ctx, packet)
    }

    /// True if the packet is the expected one; false if it was dealt with as a duplicate.
    // rule: roce-86
    // rule: roce-87
    // rule: roce-106
    fn check_psn(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<bool, Fault> {
        let distance = packet.psn().since(self.rsp.epsn);
        if distance == 0 {
            if self.rsp.unsettled {
                self.settle(ctx, packet.psn());
            }
            return Ok(true);
        }
        if !self.id.kind.is_reliable() {
            return self.resync(ctx, packet);
        }
        if distance < 0 {
            ctx.counters.duplicate_request += 1;
            self.on_duplicate(ctx, packet);
        } else {
            self.on_early(ctx, packet, distance.unsigned_abs());
        }
        Ok(false)
    }

    /// UC: packets were lost. A new message may start; the rest of a broken one is dropped.
    // rule: roce-126
    fn resync(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<bool, Fault> {
        ctx.counters.out_of_seq_request += 1;
        self.rsp.message = None;
        if !packet.info().position.starts() {
            return Err(Fault::Drop);
        }
        self.rsp.epsn = packet.psn();
        Ok(true)
    }

    /// FIRST after LAST, MIDDLE after FIRST, and of the same operation.  [RoCEv2 3.4]
    // rule: roce-94
    // rule: roce-95
    fn check_sequence(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        let info = packet.info();
        let fits = match (self.rsp.message, info.verb) {
            (None, Verb::Send | Verb::Write) => info.position.starts(),
            (None, _) => true,
            (Some(Message::Send { .. }), Verb::Send)
            | (Some(Message::Write { .. }), Verb::Write) => !info.position.starts(),
            (Some(_), _) => false,
        };
        if fits {
            return Ok(());
        }
        if self.id.kind == QpType::Uc && info.position.starts() {
            // UC: the broken message is dropped and this one is taken.
            self.rsp.message = None;
            return Ok(());
        }
        Err(Fault::Invalid(AeCode::RDMAP_ROE_UNEXPECTED_OPCODE))
    }

    /// Does this queue pair allow the operation at all?
    // rule: roce-101
    // rule: roce-102
    fn check_rights(&self, packet: &Packet<'_>) -> Result<(), Fault> {
        let need = match packet.info().verb {
            Verb::Send => return Ok(()),
            Verb::Write | Verb::AtomicWrite => Access::REMOTE_WRITE,
            Verb::ReadRequest => Access::REMOTE_READ,
            Verb::CompareSwap | Verb::FetchAdd => Access::REMOTE_ATOMIC,
            Verb::Flush => execute::flush_rights(packet)?,
            _ => return Err(Fault::Drop),
        };
        if !self.conn.access.contains(need) {
            return Err(Fault::Invalid(AeCode::RDMAP_ROE_UNEXPECTED_OPCODE));
        }
        if answers_with_data(packet.info().verb) && self.conn.max_dest_rd_atomic == 0 {
            return Err(Fault::Invalid(AeCode::IB_RREQ_AND_Q1_FULL));
        }
        Ok(())
    }

    /// Is there a receive WQE for a message that needs one, and room to replay?
    // rule: roce-105
    // rule: roce-107
    // rule: roce-120
    // rule: e810-27
    fn check_resources(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let info = packet.info();
        if answers_with_data(info.verb) && !self.rsp.replies.has_room() {
            return Err(Fault::Invalid(AeCode::IB_RREQ_AND_Q1_FULL));
        }
        if info.takes_rwqe && !self.rsp.recv.taken {
            return self.take_recv(ctx);
        }
        Ok(())
    }

    /// FIRST and MIDDLE are full, LAST is not empty, nothing is longer than the MTU.
    // rule: roce-96
    // rule: roce-97
    // rule: roce-98
    #[allow(
        clippy::inline_always,
        reason = "called once; as a call it costs a tenth of the other checks"
    )]
    #[inline(always)]
    fn check_length(&self, packet: &Packet<'_>) -> Result<(), Fault> {
        let len = packet.payload().len();
        let mtu = self.conn.mtu as usize;
        let verb = packet.info().verb;
        let good = match (verb, packet.info().position) {
            (Verb::Send | Verb::Write, Position::First | Position::Middle) => len == mtu,
            (Verb::Send | Verb::Write, Position::Last) => len > 0 && len <= mtu,
            (Verb::Send | Verb::Write, Position::Only) => len <= mtu,
            (Verb::AtomicWrite, _) => len == 8,
            _ => len == 0,
        };
        if good {
            Ok(())
        } else {
            Err(Fault::Invalid(AeCode::RDMAP_ROE_UNEXPECTED_OPCODE))
        }
    }

    /// Tells the peer what it cannot have; a fatal refusal ends the queue pair.
    // rule: roce-127
    fn refuse(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, fault: Fault) {
        let psn = packet.psn();
        if let Some(syndrome) = fault.syndrome(self.conn.min_rnr_timer) {
            self.nak(ctx, psn, syndrome);
            if fault == Fault::NotReady {
                ctx.counters.send_rnr_err += 1;
                self.rsp.rnr_pending = true;
                self.rsp.unsettled = true;
                return;
            }
            self.rsp.fatal = Some((psn, syndrome, ctx.now.after(FATAL_GRACE_NS)));
        }
        // What breaks the order of messages, or is not enabled, is the receive side's. [E810 5.6]
        let order = matches!(
            fault,
            Fault::Invalid(AeCode::RDMAP_ROE_UNEXPECTED_OPCODE | AeCode::XRC_DOMAIN_VIOLATION)
        );
        let source = if order || packet.info().verb == Verb::Send {
            AeSource::RQ
        } else {
            AeSource::INBOUND
        };
        // Only a receive WQE that was already taken completes with the cause.   [RoCEv2 3.9]
        let taken = self.rsp.recv.taken;
        let told = |code: FlushCode| if taken { code } else { FlushCode::GENERAL };
        match fault {
            Fault::Drop | Fault::NotReady => {}
            Fault::Overrun => self.cq_overrun(ctx),
            Fault::Invalid(ae) => {
                self.rq_error(ctx, Cause::new(told(FlushCode::REM_INV_REQ), ae), source);
            }
            Fault::Access(ae) => {
                self.rq_error(ctx, Cause::new(told(FlushCode::REM_ACCESS), ae), source);
            }
            Fault::Operational(code, ae) => self.rq_error(ctx, Cause::new(code, ae), source),
            Fault::TooLong => {
                let ae = AeCode::DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER;
                self.rq_error(ctx, Cause::new(FlushCode::LOC_LEN, ae), source);
            }
        }
    }

    /// UC: the message is dropped; its receive WQE serves the next one.
    fn abandon_message(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, fault: Fault) {
        self.rsp.message = None;
        self.rsp.epsn = packet.psn().add(1);
        match fault {
            Fault::Overrun => self.cq_overrun(ctx),
            Fault::Operational(code, ae) => {
                self.rq_error(ctx, Cause::new(code, ae), AeSource::RQ);
            }
            _ => ctx.counters.uc_dropped += 1,
        }
    }

    /// In ERR: a duplicate of the request that was refused gets the refusal again.
    // rule: roce-128
    fn repeat_fatal(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        match self.rsp.fatal {
            Some((psn, syndrome, until)) if psn == packet.psn() && ctx.now < until => {
                self.nak(ctx, psn, syndrome);
            }
            _ => ctx.counters.bad_state += 1,
        }
    }

    fn nak(&mut self, ctx: &mut Ctx<'_>, psn: Psn, syndrome: Syndrome) {
        self.rsp.replies.nak(psn, syndrome);
        self.rsp.unsettled = true;
        self.make_ready(ctx);
    }

    /// The first request on a queue pair that is not yet in RTS.
    // rule: event-51
    fn note_established(&mut self, ctx: &mut Ctx<'_>) {
        if self.state == QpState::Rtr && !self.established {
            self.established = true;
            self.raise(ctx, AeCode::LLP_CONNECTION_ESTABLISHED, AeSource::NONE, 0);
        }
    }
}

/// Requests that are answered with data of their own, and kept for replay.
const fn answers_with_data(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::ReadRequest | Verb::CompareSwap | Verb::FetchAdd | Verb::AtomicWrite | Verb::Flush
    )
}
