//! Requests that the peer holds behind a hole, as a peer of our kind tells: what is missing before
//! them is sent again, and what is held takes no room of its socket any more.
//!
//! ```text
//!   una = hole          hole          told            sent
//!    ▼                   ▼             ▼               ▼
//!    x o o o o o o o o o x o o o o o o . o o . o o . . │ new …
//!    again               again           late or lost: the peer will say
//! ```
//!
//! To any other peer, `mend.rs` does what can be done with NAKs alone. [RoCEv2 6.3, 6.5]

use super::Qp;
use super::lost::Piece;
use super::requester::{Requester, Step};
use super::score::Score;
use super::window::{Kind, SendCtx};
use crate::hca::ctx::Ctx;
use crate::limits::IEQ_HELD_PER_QP;
use crate::num::Psn;
use crate::time::Instant;
use crate::tx::TxArena;
use crate::wire::{Packet, Sack};

/// What the peer holds; made when it first tells.
#[derive(Debug, Default)]
pub(crate) struct Held {
    score: Score,
    /// What it does not hold before this is lost.
    lost: Psn,
}

impl Held {
    /// What the packets `from..to` of `work` cost at the peer's socket and was given back when the
    /// peer said that it holds them. They count as any other from here on.
    pub(super) fn take_refunded(
        &mut self,
        work: &SendCtx,
        (from, to): (u32, u32),
        mtu: u32,
    ) -> u32 {
        let mut cost = 0;
        if self.score.is_idle() {
            return cost;
        }
        for index in from..to {
            if self.score.clear(work.first.add(index)) {
                cost += work.cost(index, index + 1, mtu);
            }
        }
        cost
    }

    /// Everything before `psn` is acknowledged.
    pub(super) fn pass(&mut self, psn: Psn) {
        self.score.trim(psn);
    }

    /// Everything from `psn` on is sent again anyway.
    pub(super) fn forget(&mut self, psn: Psn) {
        self.score.forget_holes(psn);
        if self.lost.since(psn) > 0 {
            self.lost = psn;
        }
    }
}

impl Qp {
    /// What an acknowledgement of our kind says of packets behind the expected one, `epsn`. False:
    /// it says nothing.
    // rule: sack-1
    pub(super) fn on_sack(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, epsn: Psn) -> bool {
        if packet.payload().is_empty() || !self.conn.peer_is_ours() || !ctx.ieq.keeps() {
            return false;
        }
        let Some(sack) = Sack::read(packet.payload()) else {
            return false;
        };
        let (una, sent, now) = (self.req.una, self.req.sent, ctx.now);
        // An older one than we have, or from before we went back.
        if epsn.since(self.req.acked) < 0 || epsn.since(sent) >= 0 {
            return true;
        }
        let mtu = self.conn.mtu;
        let held = self.req.held.get_or_insert_default();
        held.score.begin(epsn);
        let (mut cost, mut last, mut news) = (0, None, false);
        let mut works = self.req.inflight.iter().peekable();
        for psn in sack.held().map(|place| epsn.add(place)) {
            if psn.since(sent) >= 0 {
                break;
            }
            while works
                .next_if(|work| work.packets == 0 || work.end_after(psn) <= 0)
                .is_some()
            {}
            let Some(work) = works.peek() else { break };
            last = Some(psn);
            if work.kind != Kind::Acked {
                // It is held, but its answer has yet to come.
                held.score.reach(psn.add(1), una, now);
                held.score.fill(psn);
            } else if held.score.settle(psn, una, now).is_ok() {
                let index = u32::try_from(psn.since(work.first)).unwrap_or(0);
                cost += work.cost(index, index + 1, mtu);
                news = true;
            }
        }
        if let Some(last) = last {
            let lost = epsn.add(sack.lost);
            held.lost = if lost.since(last) > 0 { last } else { lost };
            held.score.outlived(last, now);
        }
        if cost > 0 {
            ctx.peers.refund(self.conn.peer, cost, ctx.ready);
        }
        if news {
            self.reload(true, now);
        }
        self.req.rtt.set_near();
        self.plan_asking(ctx);
        true
    }

    /// When something is to be sent again because the peer holds what is behind it.
    pub(super) fn next_resend(&mut self) -> Option<Instant> {
        let from = self.req.acked_or_una();
        let held = self.req.held.as_deref_mut()?;
        held.score.trim(from);
        let lost = held.lost;
        held.score.next_due(0, |hole| lost.since(hole.first) > 0)
    }

    /// Sends again what is lost.
    // rule: ieq-10
    #[cold]
    pub(super) fn emit_unheld(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Step {
        let (mut at, mut bytes) = (0, 0);
        while let Some((index, hole)) = self.req.held.as_deref().and_then(|held| {
            let due = held.score.due(ctx.now, 0, at);
            due.filter(|(_, hole)| held.lost.since(hole.first) > 0)
        }) {
            if let Err(end) = self.emit_hole(ctx, arena, hole, missing_request, &mut bytes) {
                return end;
            }
            ctx.counters.ieq_mended += 1;
            let (sent, ns) = (self.req.sent, self.answer_ns(ctx.now));
            if let Some(held) = self.req.held.as_mut() {
                held.score.asked(index, ctx.now, ns, sent);
            }
            at = index + 1;
        }
        Step::Sent(bytes)
    }

    /// What was sent again from `psn` on did not leave.
    pub(super) fn resend_later(&mut self, psn: Psn) {
        if let Some(held) = self.req.held.as_mut() {
            held.score.unask(psn);
        }
    }

    /// So much is behind a hole that the peer could hold no more.
    pub(super) fn is_held_up(&self) -> bool {
        let ahead = self.req.sent.since(self.req.acked_or_una());
        let most = i32::try_from(IEQ_HELD_PER_QP).unwrap_or(i32::MAX);
        let held = self.req.held.as_deref();
        ahead >= most && held.is_some_and(|held| !held.score.is_idle())
    }
}

/// A READ is sent again where one began: the PSNs of its other responses are no packets of ours.
fn missing_request(req: &Requester, work: &SendCtx, index: u32, _left: u32) -> Piece {
    if work.kind != Kind::Read {
        return Piece {
            covers: 1,
            asks: Some(1),
        };
    }
    let rest = req.chunk_left(index).min(work.packets - index);
    let begins = req.chunk_left(index) == req.chunk_left(0);
    Piece {
        covers: rest,
        asks: begins.then_some(rest),
    }
}
