//! Building request packets: the step of each kind of work.
//!
//! Positions advance only when a packet stands in the arena. If the batch then does not leave, the
//! queue pair goes back to the first PSN that did not (`Qp::on_unsent`).

use super::Qp;
use super::attr::{QpState, QpType};
use super::flush::Cause;
use super::gather::{Part, Target};
use super::requester::Step;
use super::window::{Kind, Local, ReadReq, SendCtx, read_cost};
use crate::hca::ctx::Ctx;
use crate::hca::peer::{Charge, packet_cost};
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::FlushCode;
use crate::hw::wqe::SqOp;
use crate::mem::{KeyFault, MrTable};
use crate::num::{Psn, Qkey};
use crate::tx::TxArena;
use crate::tx::arena::MarkKind;
use crate::tx::payload::Payload;
use crate::wire::{AtomicEth, Bth, Deth, FAR, Head, ImmDt, Opcode, Reth, Rider, Service};

/// Packets between two acknowledgement requests in a long message: one full run at MTU 4096.
// rule: roce-46
const ACK_EVERY: u32 = 15;

/// Shortest local ACK timeout code that leaves time for an acknowledgement that was not asked for:
/// 16 ms.
const PATIENT_TIMEOUT: u8 = 12;

/// What local work takes of a quantum, so that a queue of it ends a turn like any other.
const LOCAL_COST: u32 = 64;

/// The longest message that takes an acknowledgement along: of longer ones a packet of its own is a
/// small part.
const RIDDEN_MAX: u32 = 1024;

/// Which packet of a WQE is to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The next one of what is being sent.
    Front(u32),
    /// One that was sent, was lost, and is sent again alone. What it holds of any budget it still
    /// holds.
    Again(u32),
    /// A request that is sent again because the peer holds what is behind it; or, of a READ, so
    /// many responses from this one on, which are missing.
    Part(u32, u32),
}

impl At {
    const fn index(self) -> u32 {
        let (Self::Front(index) | Self::Again(index) | Self::Part(index, _)) = self;
        index
    }

    const fn is_front(self) -> bool {
        matches!(self, Self::Front(_))
    }

    pub(super) const fn mark(self, psn: Psn) -> MarkKind {
        match self {
            Self::Front(_) => MarkKind::Request(psn.value()),
            Self::Again(_) => MarkKind::Mended(psn.value()),
            Self::Part(..) => MarkKind::Asked(psn.value()),
        }
    }
}

/// What a packet tells of its place in the message.
// rule: place-1
fn place_of(index: u32) -> u8 {
    u8::try_from(index).map_or(FAR, |index| index.min(FAR))
}

impl Qp {
    pub(super) const fn service(&self) -> Service {
        match self.id.kind {
            QpType::Uc => Service::Uc,
            QpType::Ud | QpType::Gsi => Service::Ud,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
            _ => Service::Rc,
        }
    }

    /// One packet of a SEND or WRITE.
    // rule: roce-45
    pub(crate) fn step_message(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        work: &SendCtx,
        at: At,
    ) -> Step {
        if self.id.raw {
            return self.step_raw(ctx, arena, work, at);
        }
        let index = at.index();
        let (first, last) = (index == 0, index + 1 == work.packets);
        let mtu = self.conn.mtu;
        let offset = u64::from(index) * u64::from(mtu);
        let rest = u64::from(work.len).saturating_sub(offset);
        let len = u32::try_from(rest).map_or(mtu, |rest| rest.min(mtu));
        let psn = work.first.add(index);
        let (path_id, dest, remote) = match self.route(ctx) {
            Ok(Some(route)) => route,
            Ok(None) => return Step::Wait,
            Err(cause) => return self.fail_current(ctx, cause),
        };
        let Some(mut opcode) = Opcode::of_message(work.form, first, last) else {
            let cause = Cause::new(FlushCode::LOC_QP_OP, AeCode::WQE_UNEXPECTED_OPCODE);
            return self.fail_current(ctx, cause);
        };
        let Some(path) = ctx.paths.get(path_id) else {
            return Step::Stop;
        };
        let reliable = self.id.kind.is_reliable();
        let charged = reliable && at.is_front();
        let mut ask = (last && self.wants_answer(psn, work.signaled))
            || !at.is_front()
            || (!first && index.is_multiple_of(ACK_EVERY));
        if charged {
            let (cost, next) = (packet_cost(len), packet_cost(mtu));
            match ctx.peers.charge(path.peer, cost, next) {
                Charge::Refused => return self.wait_for_room(ctx, path_id),
                Charge::Last => ask = true,
                Charge::Taken => {}
            }
        }
        let asks = reliable && ask;
        let evened = opcode.evened().filter(|_| len == mtu && self.speaks_own());
        opcode = evened.unwrap_or(opcode);
        let alone = arena.is_empty() && ctx.ready.is_empty();
        let rider = self.take_along(&mut opcode, alone, (at, len));
        // A WRITE tells its length, and thereby what is of it.
        let tells = reliable && self.conn.peer_is_ours() && !self.req.cmd.op.is_write();
        let mut head = Head::new(&Bth {
            pkey: self.conn.pkey,
            ack_req: asks,
            solicited: last && self.req.cmd.solicited,
            place: if tells { place_of(index) } else { 0 },
            ..Bth::new(opcode, dest, psn)
        });
        self.message_headers(&mut head, work, (offset, last), (remote, evened.is_some()));
        if let Some(rider) = rider {
            head.rider(rider);
        }
        let mark = (self.id.slot, at.mark(psn));
        let part = (offset, len as usize);
        let pushed = self.push_message(ctx.regions, arena, (path, mark), &mut head, part);
        if charged && !matches!(pushed, Ok(true)) {
            ctx.peers.refund(path.peer, packet_cost(len), ctx.ready);
        }
        match pushed {
            Ok(true) => {
                if rider.is_some() {
                    self.rsp.replies.ack.ride();
                    ctx.counters.sent_acks += 1;
                }
                self.advance(ctx, psn, (1, work.packets), asks, at);
                Step::Sent(len + 64)
            }
            Ok(false) => Step::Full,
            // rule: e810-34
            Err(fault) => self.fail_current(ctx, fault.into()),
        }
    }

    /// The acknowledgement that a message of `len` bytes takes along, and its opcode then.
    #[inline]
    fn take_along(&self, opcode: &mut Opcode, alone: bool, (at, len): (At, u32)) -> Option<Rider> {
        let with = opcode.with_rider()?;
        // Interfaces carry a full payload with the headers that everybody knows.
        let fits = len <= RIDDEN_MAX && len as usize + Rider::LEN <= self.conn.mtu as usize;
        if !alone || !at.is_front() || !fits {
            return None;
        }
        let rider = self.rider()?;
        *opcode = with;
        Some(rider)
    }

    /// The peer's socket can hold no more: somebody's acknowledgement will make room.
    #[cold]
    fn wait_for_room(&mut self, ctx: &mut Ctx<'_>, path: u32) -> Step {
        if let Some(path) = ctx.paths.get(path)
            && !self.req.waiting
        {
            self.req.waiting = true;
            ctx.peers.wait(path.peer, self.id.slot);
        }
        Step::Wait
    }

    /// The packet with `len` bytes of the message from `offset` on; false if the arena is full.
    #[inline]
    fn push_message(
        &self,
        regions: &MrTable,
        arena: &mut TxArena,
        (path, mark): Target<'_>,
        head: &mut Head,
        (offset, len): (u64, usize),
    ) -> Result<bool, KeyFault> {
        let cmd = &self.req.cmd;
        let Some(bytes) = cmd.inline_data() else {
            let part = Part::new(self.id.pd, cmd.sges.as_slice(), offset, len);
            return part.push(regions, arena, (path, mark), head);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = bytes.get(from..from.saturating_add(len)).unwrap_or(&[]);
        Ok(arena.push(path, mark, head, part))
    }

    /// True if the last packet of a message asks to be acknowledged. Nobody waits for one that is
    /// not signaled, and our own kind acknowledges it unasked in a while; others may never do so.
    fn wants_answer(&self, psn: Psn, signaled: bool) -> bool {
        let req = &self.req;
        let patient = matches!(self.conn.timeout, 0 | PATIENT_TIMEOUT..);
        signaled
            || !self.conn.peer_is_ours()
            || !patient
            || self.state != QpState::Rts
            || req.unasked >= ACK_EVERY
            || psn.since(req.top) < 0
            || !req.rtt.is_measured()
    }

    #[inline]
    fn message_headers(
        &self,
        head: &mut Head,
        work: &SendCtx,
        (offset, last): (u64, bool),
        (qkey, even): (Option<Qkey>, bool),
    ) {
        let cmd = &self.req.cmd;
        // rule: xrc-7
        if let Some(srq) = cmd.xrc_srq {
            head.xrceth(srq.value());
        }
        if let Some(qkey) = qkey {
            head.deth(Deth {
                qkey,
                source: self.id.qpn,
            });
        }
        if (offset == 0 || even) && cmd.op.is_write() {
            // What begins here, of the message.
            let gone = u32::try_from(offset).unwrap_or(u32::MAX);
            head.reth(Reth {
                addr: cmd.remote_addr.wrapping_add(offset),
                rkey: cmd.rkey,
                len: work.len.saturating_sub(gone),
            });
        }
        if last {
            // rule: e810-1
            // The WQE holds the immediate in host order; the wire has it as the program gave it.
            if let Some(imm) = cmd.imm {
                head.imm(ImmDt(imm.to_be_bytes()));
            }
            if let Some(key) = cmd.inv_key {
                head.ieth(key);
            }
        }
    }

    /// One READ request: a piece of the message that our own socket can take.
    // rule: roce-43
    // rule: roce-73
    pub(crate) fn step_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        work: &SendCtx,
        at: At,
    ) -> Step {
        let index = at.index();
        let mtu = self.conn.mtu;
        let packets = match at {
            At::Part(_, packets) => packets,
            _ => self.req.chunk_left(index).min(work.packets - index),
        };
        let offset = u64::from(index) * u64::from(mtu);
        let len = u64::from(work.len)
            .saturating_sub(offset)
            .min(u64::from(packets) * u64::from(mtu));
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let cost = read_cost(len, packets);
        if at.is_front() && !ctx.read_credit.charge(cost) {
            if !self.req.waiting {
                self.req.waiting = true;
                ctx.read_credit.wait(self.id.slot);
            }
            return Step::Wait;
        }
        let psn = work.first.add(index);
        let mut head = self.request_head(Opcode::RC_READ_REQUEST, psn);
        let cmd = &self.req.cmd;
        head.reth(Reth {
            addr: cmd.remote_addr.wrapping_add(offset),
            rkey: cmd.rkey,
            len,
        });
        if !self.push_request(ctx, arena, &mut head, at.mark(psn), ()) {
            if at.is_front() {
                ctx.read_credit.refund(cost, ctx.ready);
            }
            return Step::Full;
        }
        if at.is_front() {
            let last = psn.add(packets - 1);
            self.req.reads.push_back(ReadReq { last, cost });
        }
        self.advance(ctx, psn, (packets, work.packets), true, at);
        Step::Sent(64)
    }

    /// One atomic request.
    pub(crate) fn step_atomic(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        work: &SendCtx,
        at: At,
    ) -> Step {
        let cmd = &self.req.cmd;
        let psn = work.first;
        let rkey = cmd.rkey;
        let opcode = match cmd.op {
            SqOp::COMPARE_SWAP => Opcode::RC_COMPARE_SWAP,
            SqOp::FETCH_ADD => Opcode::RC_FETCH_ADD,
            _ => Opcode::RC_ATOMIC_WRITE,
        };
        let mut head = self.request_head(opcode, psn);
        let pushed = if work.kind == Kind::AtomicWrite {
            head.reth(Reth {
                addr: cmd.remote_addr,
                rkey,
                len: 8,
            });
            let operand = cmd.inline_data().and_then(|bytes| bytes.first_chunk());
            let operand: &[u8; 8] = operand.unwrap_or(&[0; 8]);
            self.push_request(ctx, arena, &mut head, at.mark(psn), operand.as_slice())
        } else {
            head.atomic(AtomicEth {
                addr: cmd.remote_addr,
                rkey,
                swap_add: cmd.atomic.swap_or_add,
                compare: cmd.atomic.compare,
            });
            self.push_request(ctx, arena, &mut head, at.mark(psn), ())
        };
        if !pushed {
            return Step::Full;
        }
        if at.is_front() {
            self.req.reads.push_back(ReadReq { last: psn, cost: 0 });
        }
        self.advance(ctx, psn, (1, 1), true, at);
        Step::Sent(64)
    }

    /// What requests with an answer of their own begin with.
    fn request_head(&self, opcode: Opcode, psn: Psn) -> Head {
        let opcode = self.in_class(opcode);
        let mut head = Head::new(&Bth {
            pkey: self.conn.pkey,
            ack_req: true,
            ..Bth::new(opcode, self.conn.remote_qpn, psn)
        });
        if let Some(srq) = self.req.cmd.xrc_srq {
            head.xrceth(srq.value());
        }
        head
    }

    fn push_request<P: Payload>(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        head: &mut Head,
        mark: MarkKind,
        payload: P,
    ) -> bool {
        let Some(path) = self.conn.path.and_then(|id| ctx.paths.get(id)) else {
            return false;
        };
        arena.push(path, (self.id.slot, mark), head, payload)
    }

    /// `span` PSNs from `psn` on, of so many of their WQE, stand in the arena; the last of them
    /// asks for an acknowledgement or not.
    // rule: roce-44
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        ctx: &mut Ctx<'_>,
        psn: Psn,
        span: (u32, u32),
        asks: bool,
        at: At,
    ) {
        let (packets, of) = span;
        match at {
            At::Front(_) => self.advance_sent(ctx, psn, packets, of, asks),
            At::Again(_) => {
                ctx.counters.retransmitted_pkts += 1;
                self.req.mend.advance(psn.add(packets));
            }
            At::Part(..) => ctx.counters.retransmitted_pkts += 1,
        }
    }

    #[inline(always)]
    fn advance_sent(&mut self, ctx: &mut Ctx<'_>, psn: Psn, packets: u32, of: u32, asks: bool) {
        let req = &mut self.req;
        debug_assert_eq!(psn, req.sent, "packets leave in PSN order");
        req.sent = psn.add(packets);
        let fresh = req.sent.since(req.top) > 0;
        if fresh {
            req.top = req.sent;
        } else {
            ctx.counters.retransmitted_pkts += 1;
        }
        req.cur_packet += packets;
        if req.cur_packet >= of {
            req.cur += 1;
            req.cur_packet = 0;
        }
        req.unasked = if asks { 0 } else { req.unasked + packets };
        if !self.id.kind.is_reliable() {
            return;
        }
        if req.rto_at.is_none() {
            req.rto_at = self.conn.answer_by(ctx.now);
        }
        if fresh {
            req.rtt.on_sent(req.sent.prev(), asks, ctx.now);
        }
    }

    /// Work without packets: bind, invalidate, NOP. Done in order, once.
    pub(crate) fn step_local(&mut self, ctx: &mut Ctx<'_>, work: &SendCtx) -> Step {
        let number = self.req.cur;
        if work.local == Local::Pending {
            let done = self.run_local(ctx, work.op);
            if let Some(record) = self.req.ctx_of_mut(number) {
                record.local = done.map_or_else(Local::Failed, |()| Local::Done);
            }
            if done.is_err() {
                self.req.stopped = true;
                self.report_failed(ctx);
                return Step::Stop;
            }
        }
        self.req.cur += 1;
        self.req.cur_packet = 0;
        self.retire(ctx);
        Step::Sent(LOCAL_COST)
    }

    fn run_local(&self, ctx: &mut Ctx<'_>, op: SqOp) -> Result<(), Cause> {
        let cmd = &self.req.cmd;
        match op {
            SqOp::BIND_MW => ctx
                .regions
                .bind(&cmd.bind, self.id.pd, self.id.qpn)
                .map_err(|fault| Cause::new(FlushCode::MW_BIND, AeCode(fault.ae_code()))),
            SqOp::LOCAL_INVALIDATE => ctx
                .regions
                .local_invalidate(cmd.local_stag, self.id.pd, self.id.qpn)
                .map_err(|fault| Cause::new(FlushCode::LOC_QP_OP, AeCode(fault.ae_code()))),
            _ => Ok(()),
        }
    }

    /// The WQE being sent cannot be sent: it completes in error once all before it are complete.
    pub(crate) fn fail_current(&mut self, ctx: &mut Ctx<'_>, cause: Cause) -> Step {
        let number = self.req.cur;
        if let Some(record) = self.req.ctx_of_mut(number) {
            record.local = Local::Failed(cause);
        }
        self.req.stopped = true;
        self.report_failed(ctx);
        Step::Stop
    }
}
