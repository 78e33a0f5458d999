//! Loss: time-outs, sequence NAKs, gaps in responses, receivers that are not ready.
//!
//! All of them go back, unless the peer is known to keep what came behind a hole (`mend.rs`):
//! `sent` moves to the first PSN that is missing, and packets are gathered again from registered
//! memory. Nothing is kept for it.

use super::Qp;
use super::Requester;
use super::flush::Cause;
use super::window::Local;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::AeCode;
use crate::hw::cqe::FlushCode;
use crate::num::Psn;
use crate::time::{Instant, ack_timeout_ns, rnr_timer_ns};

/// A second NAK or gap at one PSN within this time belongs to the first, however near the peer is.
const SAME_LOSS_NS: u64 = 200_000;

/// A loss that was answered by going back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// What is missing.
    psn: Psn,
    /// The answer is under way until then.
    until: Instant,
    /// How often it was answered without effect.
    times: u32,
    /// A retry was paid for it, which covers all answers until then.
    paid_until: Instant,
}

/// What a retry covers where the program set no ACK timeout.
const PAID_NS: u64 = 60_000_000;

/// Each further answer to one loss waits twice as long, up to this many times: before the answer
/// comes what the peer had sent already, which may be as much as our socket holds.
const MAX_DOUBLINGS: u32 = 8;

impl Requester {
    /// Makes the WQE that holds `psn` the one being sent.
    pub(crate) fn seek(&mut self, psn: Psn) {
        let at = self.inflight.iter().position(|work| {
            if work.packets == 0 {
                work.local != Local::Done
            } else {
                work.end_after(psn) > 0
            }
        });
        let Some(at) = at else {
            self.cur = self.end();
            self.cur_packet = 0;
            return;
        };
        self.cur = self.retired + at as u64;
        self.cur_packet = match self.inflight.get(at) {
            Some(work) if work.packets > 0 => u32::try_from(psn.since(work.first)).unwrap_or(0),
            _ => 0,
        };
    }

    /// True if this loss was already answered.
    // rule: roce-53
    fn answered(&self, psn: Psn, now: Instant) -> bool {
        self.gap
            .is_some_and(|gap| gap.psn == psn && now < gap.until)
    }

    /// This loss is answered now. Until the answer can have had an effect, whatever else tells of
    /// the loss tells of the same.
    fn answer(&mut self, psn: Psn, now: Instant, paid_until: Instant) {
        let before = self.gap.filter(|gap| gap.psn == psn);
        let times = before.map_or(0, |gap| (gap.times + 1).min(MAX_DOUBLINGS));
        let ns = self.rtt.round_trip(now).max(SAME_LOSS_NS) << times;
        self.gap = Some(Gap {
            psn,
            until: now.after(ns),
            times,
            paid_until,
        });
    }
}

impl Qp {
    /// Goes back to `psn`: everything from it on counts as not sent.
    pub(crate) fn rewind(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        let mtu = self.conn.mtu;
        self.req.mend.on_rewind(psn);
        self.ask_no_more(psn);
        let sent = self.req.sent;
        if sent.since(psn) <= 0 {
            return;
        }
        for work in &self.req.inflight {
            if work.packets == 0 || work.end_after(psn) <= 0 {
                continue;
            }
            if work.first.since(sent) >= 0 {
                break;
            }
            let from = u32::try_from(psn.since(work.first)).unwrap_or(0);
            let to = u32::try_from(sent.since(work.first))
                .unwrap_or(0)
                .min(work.packets);
            let mut cost = work.cost(from, to, mtu);
            if let Some(held) = &mut self.req.held {
                cost -= held.take_refunded(work, (from, to), mtu);
            }
            if cost > 0 && self.id.kind.is_reliable() {
                ctx.peers.refund(self.conn.peer, cost, ctx.ready);
            }
        }
        while let Some(read) = self.req.reads.back().copied() {
            if read.last.since(psn) < 0 {
                break;
            }
            self.req.reads.pop_back();
            if read.cost > 0 {
                ctx.read_credit.refund(read.cost, ctx.ready);
            }
        }
        self.req.rtt.on_rewind();
        self.req.sent = psn;
        self.req.seek(psn);
        if self.req.una == psn {
            self.req.rto_at = None;
        }
        self.make_ready(ctx);
    }

    /// The peer's NAK: everything before `psn` is acknowledged, `psn` is missing.
    // rule: roce-52
    pub(crate) fn on_sequence_nak(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        if self.req.rnr_until.is_some() || self.req.answered(psn, ctx.now) {
            return;
        }
        let Some(paid_until) = self.pay(ctx, psn) else {
            return;
        };
        self.req.answer(psn, ctx.now, paid_until);
        ctx.counters.completer_retry_err += 1;
        if !self.mend(ctx, psn) {
            self.rewind(ctx, psn);
            self.req.mend.went_back = true;
        }
    }

    /// A response or acknowledgement skipped one that is still due: it was lost.
    pub(crate) fn on_gap(&mut self, ctx: &mut Ctx<'_>) {
        let una = self.req.una;
        if self.req.rnr_until.is_some() || self.req.answered(una, ctx.now) {
            return;
        }
        let Some(paid_until) = self.pay(ctx, una) else {
            return;
        };
        self.req.answer(una, ctx.now, paid_until);
        ctx.counters.implied_nak += 1;
        self.rewind(ctx, una);
    }

    /// The receiver has no receive WQE: wait, then send again.
    // rule: roce-56
    // rule: roce-57
    // rule: roce-58
    pub(crate) fn on_rnr(&mut self, ctx: &mut Ctx<'_>, timer: u8) {
        if self.req.rnr_until.is_some_and(|until| until > ctx.now) {
            return;
        }
        if self.conn.rnr_retry < 7 {
            if self.req.rnr_left == 0 {
                ctx.counters.retry_rnr_exceeded_err += 1;
                self.sq_error(
                    ctx,
                    Cause::new(FlushCode::RNR_RETRY_EXC, AeCode::LLP_TOO_MANY_RNRS),
                );
                return;
            }
            self.req.rnr_left -= 1;
        }
        let una = self.req.una;
        self.rewind(ctx, una);
        self.req.rto_at = None;
        self.req.rnr_until = Some(ctx.now.after(rnr_timer_ns(timer)));
    }

    /// The QP's deadline has passed.
    // rule: roce-148
    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx<'_>) {
        if self.req.rnr_until.is_some_and(|until| until <= ctx.now) {
            self.req.rnr_until = None;
            self.make_ready(ctx);
        }
        let hole = self.early.as_ref().and_then(|early| early.deadline);
        if hole.is_some_and(|at| at <= ctx.now) {
            self.on_hole_timer(ctx);
        }
        if self.rsp.replies.ack.take_late(ctx.now) && self.can_receive() {
            self.ack_due(ctx);
        }
        self.expire_captured(ctx);
        if self.req.ask_at.is_some_and(|at| at <= ctx.now) {
            self.ask_now(ctx);
        }
        if self.req.rtt.probe_at.is_some_and(|at| at <= ctx.now) {
            self.probe(ctx);
        }
        if self.req.rto_at.is_some_and(|at| at <= ctx.now) {
            self.req.rto_at = None;
            if self.req.in_flight() && self.take_retry(ctx) {
                ctx.counters.ack_timeouts += 1;
                let una = self.req.una;
                self.req.gap = None;
                self.rewind(ctx, una);
                self.ask_port(ctx);
            }
        }
    }

    /// A retry for the loss of `psn`, unless it is paid for already: until when it is then. A peer
    /// that has no processor for a while draws several answers to one loss, and is not given up
    /// sooner than one that says nothing.
    fn pay(&mut self, ctx: &mut Ctx<'_>, psn: Psn) -> Option<Instant> {
        let paid = self.req.gap.filter(|gap| gap.psn == psn);
        if let Some(gap) = paid.filter(|gap| ctx.now < gap.paid_until) {
            return Some(gap.paid_until);
        }
        let ns = ack_timeout_ns(self.conn.timeout).unwrap_or(PAID_NS);
        self.take_retry(ctx).then(|| ctx.now.after(ns))
    }

    /// Uses up one retry; without any left the oldest WQE fails.
    // rule: roce-59
    fn take_retry(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if self.req.retries_left == 0 {
            ctx.counters.retry_exceeded_err += 1;
            self.sq_error(
                ctx,
                Cause::new(FlushCode::RETRY_EXC, AeCode::LLP_TOO_MANY_RETRIES),
            );
            return false;
        }
        self.req.retries_left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_to_one_loss_waits_twice_as_long_as_the_last() {
        let mut req = Requester::new();
        let (psn, mut now) = (Psn::new(5), Instant(0));
        for times in 0..12 {
            req.answer(psn, now, now);
            let wait = SAME_LOSS_NS << times.min(MAX_DOUBLINGS);
            assert!(req.answered(psn, now.after(wait - 1)), "{times}");
            assert!(!req.answered(psn, now.after(wait)), "{times}");
            now = now.after(wait);
        }
        assert!(!req.answered(psn.add(1), now), "another loss");
        req.answer(psn.add(1), now, now);
        assert!(!req.answered(psn.add(1), now.after(SAME_LOSS_NS)));
    }
}
