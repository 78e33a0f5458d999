//! Sending again what is missing alone, to a peer that keeps what came behind a hole.
//!
//! ```text
//!  una = hole      sent                 NAK at the hole: send it again, and go on at `sent`
//!   ▼               ▼                   the acknowledgement that follows jumps over what was kept
//!   x o o o x o o o │ new …             a NAK at the next hole: the same again
//! ```
//!
//! No packet says what a peer does, so it is learned. One that was never seen to lose anything is
//! given the benefit of the doubt; one that misses the very next packet as well keeps nothing, or
//! lost two in a row, and is sent everything from there on, as every peer understands.
//! [RoCEv2 6.3]

use super::Qp;
use super::emit::At;
use super::requester::Step;
use crate::hca::ctx::Ctx;
use crate::num::Psn;
use crate::tx::TxArena;

/// Most packets that are sent again at once: a longer hole is a burst, and is gone back to.
const MAX_CHUNK: u32 = 16;
/// Losses after which a peer that seemed to keep nothing is tried once more.
const TRY_AGAIN: u32 = 16;

/// What the peer does with packets behind a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It keeps them.
    Keeps,
    /// It drops them; and how many losses ago that was learned.
    Drops(u32),
}

/// What is being sent again alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mend {
    pub(crate) habit: Habit,
    /// The next packet to be sent again, and how many.
    next: Option<(Psn, u32)>,
    /// The PSN after what was sent again last: what the peer says next tells of its habit.
    end: Option<Psn>,
    /// Packets that were sent again at once.
    chunk: u32,
    /// The last NAK was answered by going back.
    pub(crate) went_back: bool,
}

impl Mend {
    /// Something is to be sent again.
    pub(crate) const fn is_due(&self) -> bool {
        self.next.is_some()
    }

    /// What follows the acknowledgement of something may tell of the peer.
    pub(crate) const fn is_curious(&self) -> bool {
        self.end.is_some()
    }

    /// Everything from `psn` on will be sent again anyway.
    pub(crate) fn on_rewind(&mut self, psn: Psn) {
        self.went_back = false;
        if self.next.is_some_and(|(next, _)| next.since(psn) >= 0) {
            self.next = None;
        }
        if self.end.is_some_and(|end| end.since(psn) > 0) {
            self.end = None;
        }
    }

    /// Packets up to `end` were sent again.
    pub(crate) const fn advance(&mut self, end: Psn) {
        self.end = Some(end);
        self.next = match self.next {
            Some((_, left)) if left > 1 => Some((end, left - 1)),
            _ => None,
        };
    }

    /// How many packets to send again at a hole; `None` to go back.
    fn chunk_at(&mut self, psn: Psn) -> Option<u32> {
        let goes_on = self.end == Some(psn);
        self.habit = match self.habit {
            Habit::Unknown if goes_on => Habit::Drops(0),
            Habit::Keeps if goes_on && self.chunk >= MAX_CHUNK => Habit::Drops(0),
            Habit::Drops(losses) if losses < TRY_AGAIN => Habit::Drops(losses + 1),
            Habit::Drops(_) => Habit::Unknown,
            known => known,
        };
        self.chunk = if goes_on { self.chunk * 2 } else { 1 };
        (!matches!(self.habit, Habit::Drops(_))).then_some(self.chunk)
    }
}

impl Qp {
    /// Answers a NAK at `psn` by sending again what is missing alone. False: go back.
    // rule: ieq-10
    // rule: roce-143
    pub(super) fn mend(&mut self, ctx: &mut Ctx<'_>, psn: Psn) -> bool {
        let req = &mut self.req;
        if !ctx.ieq.keeps() || req.sent.since(psn) <= 0 {
            return false;
        }
        if req.mend.habit == Habit::Unknown && self.conn.peer_is_ours() {
            req.mend.habit = Habit::Keeps;
        }
        let Some(chunk) = req.mend.chunk_at(psn) else {
            req.mend.end = None;
            return false;
        };
        let most = u32::try_from(req.sent.since(psn)).unwrap_or(1);
        req.mend.next = Some((psn, chunk.min(most)));
        req.mend.end = None;
        req.rtt.on_rewind();
        ctx.counters.ieq_mended += 1;
        self.make_ready(ctx);
        true
    }

    /// Sends again what is due.
    #[cold]
    pub(super) fn emit_missing(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Step {
        let mut bytes = 0;
        while let Some((psn, left)) = self.req.mend.next {
            // What was acknowledged meanwhile is not missing any more.
            let una = self.req.una;
            if psn.since(una) < 0 {
                self.req.mend.next = (left > 1).then(|| (psn.add(1), left - 1));
                continue;
            }
            let Some((number, work)) = self.work_at(psn) else {
                self.req.mend.next = None;
                break;
            };
            if self.req.sent.since(psn) <= 0 || !self.load(number) {
                self.req.mend.next = None;
                break;
            }
            let index = u32::try_from(psn.since(work.first)).unwrap_or(0);
            match self.step_packet(ctx, arena, &work, At::Again(index)) {
                Step::Sent(cost) => bytes += cost,
                Step::Full => return Step::Full,
                Step::Wait | Step::Stop => {
                    self.req.mend.next = None;
                    break;
                }
            }
        }
        Step::Sent(bytes)
    }

    /// What was sent again from `psn` on did not leave.
    pub(super) fn mend_again(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        let req = &mut self.req;
        if psn.since(req.una) >= 0 && req.sent.since(psn) > 0 {
            req.mend.next = Some((psn, req.mend.chunk.max(1)));
            req.mend.end = None;
            self.make_ready(ctx);
        }
    }

    /// Something was acknowledged after packets were sent again alone.
    // rule: ieq-11
    #[cold]
    pub(super) fn judge_mended(&mut self, ctx: &mut Ctx<'_>) {
        let req = &mut self.req;
        let Some(end) = req.mend.end else { return };
        let past = req.una.since(end);
        if past > 0 {
            req.mend.habit = Habit::Keeps;
            req.mend.end = None;
            req.rtt.set_near();
        } else if past == 0 && req.mend.habit == Habit::Unknown && req.sent != end {
            // It has what was sent again and nothing behind it, as far as it tells.
            req.mend.habit = Habit::Drops(0);
            req.mend.end = None;
            ctx.counters.completer_retry_err += 1;
            self.rewind(ctx, end);
        }
    }

    /// An acknowledgement went past all that was sent again: the peer had kept the rest.
    pub(super) fn learn_keeps(&mut self) {
        if self.req.mend.went_back {
            self.req.mend.habit = Habit::Keeps;
            self.req.rtt.set_near();
        }
    }
}
