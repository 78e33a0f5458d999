//! Errors and flushing: how a queue pair stops, and what its queues still complete with.
//!
//! ```text
//! cause ─► QP to ERR (RC) or SQE (UC, UD local error) ─► AEQE
//!       ─► one flush CQE a queue, WQEIDX = the failing WQE, MINERR = the cause
//! ```
//!
//! The driver half turns the one flush CQE into a completion for each outstanding WQE: the first
//! with the cause, the others flushed. [E810 3.5, 6.4]

use super::Qp;
use super::attr::QpState;
use super::fetch::sq_index;
use crate::hca::ctx::Ctx;
use crate::hca::qp_ctl::hw_state;
use crate::hw::aeqe::{AeCode, AeSource, Aeqe};
use crate::hw::cqe::{CqeInfo, FlushCode};
use crate::mem::KeyFault;

/// Why work failed: the flush code of its completion, and the asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// MINERR of the flush CQE.
    pub(crate) flush: FlushCode,
    /// Code of the AEQE.
    pub(crate) ae: AeCode,
}

impl Cause {
    pub(crate) const fn new(flush: FlushCode, ae: AeCode) -> Self {
        Self { flush, ae }
    }

    /// The peer's response does not fit the request: a flush code of its own, since the E810's list
    /// has none for it.
    pub(crate) const fn bad_response(self) -> Self {
        Self {
            flush: FlushCode::BAD_RESP,
            ae: self.ae,
        }
    }
}

impl From<KeyFault> for Cause {
    /// Memory of our own, named by a work request, cannot be used.
    fn from(fault: KeyFault) -> Self {
        Self::new(FlushCode::PROT, AeCode(fault.ae_code()))
    }
}

impl Qp {
    /// Completes the failed WQE in error if everything before it is complete.
    pub(crate) fn report_failed(&mut self, ctx: &mut Ctx<'_>) {
        self.retire(ctx);
    }

    /// The oldest WQE in flight failed for `cause`.
    // rule: roce-82
    // rule: roce-133
    // rule: e810-32
    pub(crate) fn sq_error(&mut self, ctx: &mut Ctx<'_>, cause: Cause) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        let index = self.req.inflight.front().map_or(0, |work| work.index);
        if self.id.kind.is_reliable() {
            self.state = QpState::Err;
            self.raise(ctx, cause.ae, AeSource::SQ, index);
            self.flush_sq(ctx, cause.flush);
            self.flush_rq(ctx, FlushCode::GENERAL);
        } else {
            self.state = QpState::Sqe;
            self.raise(ctx, cause.ae, AeSource::SQ, index);
            self.flush_sq(ctx, cause.flush);
        }
    }

    /// The responder failed for `cause`: both queues stop.
    pub(crate) fn rq_error(&mut self, ctx: &mut Ctx<'_>, cause: Cause, source: AeSource) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        self.state = QpState::Err;
        if cause.ae.0 != 0 {
            self.raise(ctx, cause.ae, source, 0);
        }
        self.flush_rq(ctx, cause.flush);
        self.flush_sq(ctx, FlushCode::GENERAL);
    }

    /// A completion could not be delivered: the queue pair is lost.
    // rule: roce-140, event-40, event-41
    pub(crate) fn cq_overrun(&mut self, ctx: &mut Ctx<'_>) {
        if self.state == QpState::Err || self.state == QpState::Reset {
            return;
        }
        self.state = QpState::Err;
        self.raise(ctx, AeCode::LOCAL_QP_CATASTROPHIC, AeSource::NONE, 0);
        self.flush_rq(ctx, FlushCode::GENERAL);
        self.flush_sq(ctx, FlushCode::GENERAL);
    }

    /// The device fails, and takes the queue pair along.
    pub(crate) fn fail_with_device(&mut self, ctx: &mut Ctx<'_>) {
        if self.state != QpState::Err && self.state != QpState::Reset {
            self.cq_overrun(ctx);
        }
    }

    /// Moved to ERR by a command.
    pub(crate) fn enter_error(&mut self, ctx: &mut Ctx<'_>) {
        if self.state == QpState::Err {
            return;
        }
        self.state = QpState::Err;
        self.flush_rq(ctx, FlushCode::GENERAL);
        self.flush_sq(ctx, FlushCode::GENERAL);
    }

    pub(crate) fn raise(&self, ctx: &mut Ctx<'_>, code: AeCode, source: AeSource, index: u16) {
        ctx.events.raise_ae(&Aeqe {
            code,
            source,
            id: self.id.qpn.value(),
            context: self.id.cookie,
            wqe_index: index,
            state: hw_state(self.state),
            overflow: false,
        });
    }

    /// Gives up everything in flight, and lets one flush CQE stand for all WQEs of the send queue.
    /// True if there was any.
    // rule: e810-8
    pub(crate) fn flush_sq(&mut self, ctx: &mut Ctx<'_>, code: FlushCode) -> bool {
        let first = self.req.inflight.front().map(|work| work.index);
        self.drop_in_flight(ctx);
        let index = first.or_else(|| self.sq.peek().map(|_| sq_index(self.sq.index())));
        self.skip_sends();
        let Some(index) = index else { return false };
        let cqe = CqeInfo::flush(true, self.id.qpn, self.id.cookie, index, code);
        let _ = ctx.cqs.post(ctx.events, self.id.send_cq, &cqe, ctx.now);
        true
    }

    /// Passes over everything posted; bounded by the ring, whatever the program does meanwhile.
    fn skip_sends(&mut self) {
        for _ in 0..self.sq.size() {
            if self.sq.read(&mut self.req.cmd).is_none() {
                break;
            }
            self.sq.advance(&self.req.cmd);
        }
        self.req.cmd_of = None;
    }

    /// Forgets what is in flight and gives back what it holds of the budgets.
    pub(crate) fn drop_in_flight(&mut self, ctx: &mut Ctx<'_>) {
        self.discard_early(ctx);
        let una = self.req.una;
        self.rewind(ctx, una);
        self.req.inflight.clear();
        self.req.reads.clear();
        self.req.retired = self.req.cur.max(self.req.retired);
        self.req.cur = self.req.retired;
        self.req.cur_packet = 0;
        self.req.cmd_of = None;
        self.req.read_of = None;
        self.req.rto_at = None;
        self.req.rnr_until = None;
        self.req.ahead = None;
        self.req.held = None;
        self.req.ask_at = None;
        self.req.asks = false;
        self.req.rtt.stop();
        self.req.next = self.req.sent;
        self.req.top = self.req.sent;
        self.req.stopped = false;
    }

    /// New send WQEs on a queue pair in error complete as flushed.
    // rule: roce-80
    pub(crate) fn ring_in_error(&mut self, ctx: &mut Ctx<'_>) {
        self.flush_sq(ctx, FlushCode::GENERAL);
    }

    /// The send queue has drained in SQD.
    // rule: event-52
    pub(crate) fn check_drained(&mut self, ctx: &mut Ctx<'_>) {
        let front = self.req.inflight.front();
        let drained = front.is_none_or(|work| !self.has_begun(work));
        if self.state == QpState::Sqd && self.notify_drained && drained {
            self.notify_drained = false;
            self.raise(ctx, AeCode::QP_SUSPEND_COMPLETE, AeSource::NONE, 0);
        }
    }
}
