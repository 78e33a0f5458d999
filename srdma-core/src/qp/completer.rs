//! The completer: what acknowledgements and responses do to the work in flight.
//!
//! `una` is the truth: everything before it is done. An ACK moves it, but never past a READ or
//! atomic, whose own response must come; a response moves it packet by packet. A WQE completes when
//! `una` reaches its end, in the order of the send queue. What comes ahead is in `ahead.rs`.

use super::Qp;
use super::flush::Cause;
use super::gather::Part;
use super::window::{Kind, Local, SendCtx};
use crate::hca::counters::Counters;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::{CqeInfo, FlushCode};
use crate::hw::wqe::SqOp;
use crate::num::Psn;
use crate::time::Instant;
use crate::wire::{NakCode, Packet, Rider, Syndrome, Verb};

/// A READ or atomic response is missing before the acknowledged PSN.
pub(super) struct Gap;

impl Qp {
    /// A response arrived: ACK, NAK, READ response or atomic acknowledgement.
    // rule: roce-51
    pub(crate) fn on_response(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let psn = packet.psn();
        if !self.awaits_answer(psn) {
            self.on_stale_response(ctx, packet, psn);
            return;
        }
        match packet.info().verb {
            Verb::Ack => self.on_ack(ctx, packet, psn),
            Verb::ReadResponse | Verb::AtomicAck => self.on_data(ctx, packet, psn),
            _ => {}
        }
        self.after_progress(ctx);
    }

    /// An acknowledgement came along with a request. It may say nothing new, as when the request is
    /// one that is sent again.
    // rule: ride-1
    pub(crate) fn on_rider(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let Some(Rider { aeth, psn }) = packet.rider() else {
            return;
        };
        let positive = matches!(aeth.syndrome, Syndrome::Ack { .. });
        if positive && self.awaits_answer(psn) {
            self.on_positive(ctx, psn);
            self.after_progress(ctx);
        }
    }

    /// Something was sent with this PSN that is not done.
    const fn awaits_answer(&self, psn: Psn) -> bool {
        psn.since(self.req.una) >= 0 && psn.since(self.req.top) < 0
    }

    /// Everything up to `psn` is acknowledged.
    // rule: roce-48
    fn on_positive(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        ctx.counters.rcvd_acks += 1;
        if self.ack_through(ctx, psn.add(1)).is_err() {
            self.on_missing(ctx, psn.add(1));
        }
    }

    /// What follows every step forward: completions, and a chance to send.
    pub(super) fn after_progress(&mut self, ctx: &mut Ctx<'_>) {
        if self.req.mend.is_curious() {
            self.judge_mended(ctx);
        }
        self.retire(ctx);
        if self.may_send() {
            self.make_ready(ctx);
        }
    }

    /// Requests wait for their turn, or for what has just made progress.
    fn may_send(&self) -> bool {
        let req = &self.req;
        req.cur != req.end() || req.asks || req.mend.is_due() || self.sq.peek().is_some()
    }

    fn on_ack(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        let Some(aeth) = packet.aeth() else { return };
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                self.on_positive(ctx, psn);
                self.on_sack(ctx, packet, psn.add(1));
            }
            Syndrome::RnrNak { timer } => {
                ctx.counters.rcvd_rnr_err += 1;
                if self.ack_through(ctx, psn).is_err() && !ctx.ieq.keeps() {
                    self.on_gap(ctx);
                } else {
                    self.retire(ctx);
                    self.on_rnr(ctx, timer);
                }
            }
            Syndrome::Nak(NakCode::PSN_SEQUENCE) => {
                ctx.counters.rcvd_seq_err += 1;
                // rule: roce-50
                let missing = self.ack_through(ctx, psn).is_err();
                if missing {
                    self.on_missing(ctx, psn);
                }
                if !missing || ctx.ieq.keeps() {
                    self.retire(ctx);
                    if !self.on_sack(ctx, packet, psn) {
                        self.on_sequence_nak(ctx, psn);
                    }
                }
            }
            Syndrome::Nak(code) => {
                ctx.counters.rcvd_naks += 1;
                // A READ that is still unanswered before the refused request can never complete;
                // then it is the one that fails.
                let _ = self.ack_through(ctx, psn);
                self.retire(ctx);
                // rule: roce-54
                // rule: roce-55
                self.sq_error(ctx, nak_cause(code));
            }
            Syndrome::Reserved(_) => {}
        }
    }

    /// A packet with data for a READ or atomic.
    // rule: roce-49
    // rule: roce-71
    // rule: roce-72
    // rule: roce-74
    fn on_data(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        if self.ack_through(ctx, psn).is_err() || self.req.una != psn {
            if ctx.ieq.keeps() {
                self.on_ahead(ctx, packet, psn);
            } else {
                // rule: roce-70
                self.on_gap(ctx);
            }
            return;
        }
        self.retire(ctx);
        let Some((number, work)) = self.work_at(psn) else {
            return;
        };
        if let Err(cause) = self.store(ctx, packet, (number, &work), psn) {
            self.sq_error(ctx, cause);
            return;
        }
        self.req.una = psn.add(1);
        if self.req.ahead.is_some() {
            self.join_ahead(ctx);
        }
        let una = self.req.una;
        while let Some(read) = self.req.reads.front().copied() {
            if una.since(read.last) <= 0 {
                break;
            }
            self.req.reads.pop_front();
            if read.cost > 0 {
                ctx.read_credit.refund(read.cost, ctx.ready);
            }
        }
        self.on_progress(ctx);
        self.catch_up();
    }

    /// Places the data of a response to `work` if it is what was asked for.
    pub(super) fn store(
        &mut self,
        ctx: &Ctx<'_>,
        packet: &Packet<'_>,
        (number, work): (u64, &SendCtx),
        psn: Psn,
    ) -> Result<(), Cause> {
        let over = self.is_overwritten((number, work), psn);
        self.store_unless(over, ctx, packet, (number, work), psn)
    }

    /// As `store`; nothing is placed if what a later request asked for is there already.
    pub(super) fn store_unless(
        &mut self,
        over: bool,
        ctx: &Ctx<'_>,
        packet: &Packet<'_>,
        (number, work): (u64, &SendCtx),
        psn: Psn,
    ) -> Result<(), Cause> {
        let bad = Cause::new(FlushCode::REM_OP, AeCode::ROCE_RSP_LENGTH_ERROR).bad_response();
        // An answer with data is positive: a refusal is a packet of its own.
        if packet
            .aeth()
            .is_some_and(|aeth| !matches!(aeth.syndrome, Syndrome::Ack { .. }))
        {
            return Err(bad);
        }
        match (work.kind, packet.info().verb) {
            (Kind::Read, Verb::ReadResponse) => {
                let mtu = u64::from(self.conn.mtu);
                let offset = u64::try_from(psn.since(work.first)).unwrap_or(0) * mtu;
                let rest = u64::from(work.len).saturating_sub(offset);
                if packet.payload().len() as u64 != rest.min(mtu) {
                    // rule: roce-76
                    return Err(bad);
                }
                if over {
                    return Ok(());
                }
                self.scatter(ctx, number, offset, packet.payload())
            }
            (Kind::Atomic, Verb::AtomicAck) => {
                // rule: roce-75
                if over {
                    return Ok(());
                }
                let value = packet.atomic_ack().unwrap_or(0);
                self.scatter(ctx, number, 0, &value.to_ne_bytes())
            }
            (Kind::AtomicWrite, Verb::ReadResponse) if packet.payload().is_empty() => Ok(()),
            _ => Err(bad),
        }
    }

    /// The WQE that `psn` belongs to, and its number.
    pub(super) fn work_at(&self, psn: Psn) -> Option<(u64, SendCtx)> {
        let mut inflight = self.req.inflight.iter();
        let at = inflight.position(|w| w.packets > 0 && w.end_after(psn) > 0)?;
        let work = *self.req.inflight.get(at)?;
        Some((self.req.retired + at as u64, work))
    }

    /// Places response bytes at `offset` of the local buffers of WQE `number`.
    fn scatter(
        &mut self,
        ctx: &Ctx<'_>,
        number: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Cause> {
        if self.req.read_of != Some(number) {
            let index = self.req.ctx_of(number).map_or(0, |work| work.index);
            self.req.read_of = None;
            let read = self.req.read.get_or_insert_default();
            if self.sq.read_at(u32::from(index), read).is_err() {
                return Err(Cause::new(
                    FlushCode::LOC_QP_OP,
                    AeCode::WQE_INVALID_PARAMETER,
                ));
            }
            self.req.read_of = Some(number);
        }
        let read = self.req.read.as_deref();
        let sges = read.map_or(&[][..], |read| read.sges.as_slice());
        let placed = Part::new(self.id.pd, sges, offset, bytes.len()).place(ctx.regions, bytes)?;
        if placed < bytes.len() {
            return Err(Cause::new(
                FlushCode::LOC_LEN,
                AeCode::WQE_INVALID_FRAG_DATA,
            ));
        }
        Ok(())
    }

    /// Everything before `target` is acknowledged, up to the first READ or atomic without response.
    // rule: roce-47
    pub(super) fn ack_through(&mut self, ctx: &mut Ctx<'_>, target: Psn) -> Result<(), Gap> {
        if target.since(self.req.acked) > 0 {
            self.req.acked = target;
            // The peer goes on, though a response may be missing before: each further loss is one
            // of its own, and the retries are there for each.
            self.req.retries_left = self.conn.retry_cnt;
        }
        let mtu = self.conn.mtu;
        let start = self.req.una;
        let (mut una, mut refund) = (start, 0u32);
        let mut result = Ok(());
        let mut left = target.since(una);
        for work in &self.req.inflight {
            if left <= 0 {
                break;
            }
            // Packets of the message that were acknowledged before, and that are from here on.
            let from = i64::from(una.since(work.first));
            let packets = i64::from(work.packets);
            if from >= packets {
                continue;
            }
            if work.kind.needs_response() {
                result = Err(Gap);
                break;
            }
            let to = (from + i64::from(left)).min(packets);
            // What was given up by going back was refunded then.
            let charged = to.min(i64::from(self.req.sent.since(work.first)));
            let [from, to, charged] = [from, to, charged].map(|n| u32::try_from(n).unwrap_or(0));
            let mut cost = work.cost(from, charged, mtu);
            if let Some(held) = &mut self.req.held {
                cost -= held.take_refunded(work, (from, to), mtu);
            }
            refund = refund.saturating_add(cost);
            una = work.first.add(to);
            left = target.since(una);
        }
        self.req.una = una;
        if refund > 0 {
            ctx.peers.refund(self.conn.peer, refund, ctx.ready);
        }
        if una != start {
            self.on_progress(ctx);
            self.catch_up();
        }
        result
    }

    /// An unreliable service is done with a message when it left.
    pub(crate) fn ack_all_sent(&mut self, ctx: &mut Ctx<'_>) {
        self.req.una = self.req.sent;
        self.retire(ctx);
    }

    /// Progress reloads the retry counters and restarts the timer.
    // rule: roce-61, roce-144
    fn on_progress(&mut self, ctx: &Ctx<'_>) {
        let req = &mut self.req;
        req.rnr_left = self.conn.rnr_retry;
        req.gap = None;
        if let Some(held) = req.held.as_mut() {
            held.pass(req.una);
        }
        let waits = req.in_flight();
        self.reload(waits, ctx.now);
    }

    /// Something new of the peer is here, in its turn or ahead of it: the retries are there again,
    /// and the timer, if more is waited for, runs from now.
    pub(super) fn reload(&mut self, waits: bool, now: Instant) {
        let req = &mut self.req;
        req.retries_left = self.conn.retry_cnt;
        req.rtt.on_progress(req.una, waits, now);
        req.rto_at = self.conn.answer_by(now).filter(|_| waits);
    }

    /// If acknowledgement overtook what is being sent again, skip it.
    fn catch_up(&mut self) {
        if self.req.una.since(self.req.sent) > 0 {
            self.learn_keeps();
            self.req.sent = self.req.una;
            self.req.seek(self.req.una);
        }
    }

    /// Completes what is done at the front, in order.
    // rule: roce-66
    // rule: roce-67
    // rule: e810-31
    pub(crate) fn retire(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(work) = self.req.inflight.front() {
            match work.local {
                Local::Failed(cause) => {
                    self.sq_error(ctx, cause);
                    return;
                }
                Local::Pending if work.packets == 0 => break,
                _ if work.packets > 0 && work.end_after(self.req.una) > 0 => break,
                _ => {}
            }
            // The few fields that are needed yet, and not the whole record.
            let (op, index, first, signaled) = (work.op, work.index, work.first, work.signaled);
            self.req.inflight.pop_front();
            self.req.retired += 1;
            if self.req.cur < self.req.retired {
                self.req.cur = self.req.retired;
                self.req.cur_packet = 0;
            }
            count_done(ctx.counters, op);
            if signaled && !self.complete_send(ctx, op, index, first) {
                return;
            }
        }
        self.check_drained(ctx);
    }

    /// Posts the completion of a WQE of the send queue. False: its queue overran, which ends the
    /// queue pair.
    pub(super) fn complete_send(
        &mut self,
        ctx: &mut Ctx<'_>,
        op: SqOp,
        wqe_index: u16,
        psn: Psn,
    ) -> bool {
        let id = &self.id;
        let cqe = || CqeInfo {
            sq: true,
            op: op.0,
            qpn: id.qpn,
            context: id.cookie,
            wqe_index,
            psn,
            ..CqeInfo::default()
        };
        let (cqs, events) = (&mut *ctx.cqs, &mut *ctx.events);
        let posted = cqs.post_with(events, id.send_cq, ctx.now, cqe);
        if posted.is_err() {
            self.cq_overrun(ctx);
        }
        posted.is_ok()
    }
}

/// Counts a request that is complete.
const fn count_done(counters: &mut Counters, op: SqOp) {
    match op {
        SqOp::SEND | SqOp::SEND_SOL | SqOp::SEND_INV | SqOp::SEND_SOL_INV => {
            counters.rdma_sends += 1;
        }
        SqOp::WRITE | SqOp::WRITE_SOL => counters.rdma_writes += 1,
        SqOp::READ => counters.rdma_reads += 1,
        SqOp::FETCH_ADD | SqOp::COMPARE_SWAP | SqOp::ATOMIC_WRITE => counters.rdma_atomics += 1,
        _ => {}
    }
}

/// The status that a fatal NAK stands for.                            [RoCEv2 1.4]
const fn nak_cause(code: NakCode) -> Cause {
    match code {
        NakCode::INVALID_REQUEST => Cause::new(FlushCode::REM_INV_REQ, AeCode::IB_INVALID_REQUEST),
        NakCode::REMOTE_ACCESS => Cause::new(FlushCode::REM_ACCESS, AeCode::IB_REMOTE_ACCESS_ERROR),
        _ => Cause::new(FlushCode::REM_OP, AeCode::IB_REMOTE_OP_ERROR),
    }
}
