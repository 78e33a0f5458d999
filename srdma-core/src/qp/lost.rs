//! What was lost goes first in a turn: holes before what came or is held out of order, then what
//! NAKs alone tell of (`mend.rs`).
//!
//! ```text
//!   hole   3 4 5 6 7        piece by piece: how many PSNs, and with which packet, if any
//!          └─┬─┘ └┬┘
//!        READ of 3  passed over: the responses of a WRITE are no packets
//! ```
//!
//! What is missing is decided in `ahead.rs` (responses) and `held.rs` (requests).

use super::Qp;
use super::emit::At;
use super::requester::{Requester, Step};
use super::score::Hole;
use super::window::SendCtx;
use crate::hca::ctx::Ctx;
use crate::num::Psn;
use crate::tx::TxArena;

/// What is done about the first PSNs of a hole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// How many PSNs are dealt with by that.
    pub(super) covers: u32,
    /// The responses that one packet asks for; one, if it is no READ. `None`: nothing has to leave.
    pub(super) asks: Option<u32>,
}

/// Decides on packet `index` of a WQE, with so many PSNs left in the hole.
pub(super) type PieceAt = fn(req: &Requester, work: &SendCtx, index: u32, left: u32) -> Piece;

impl Qp {
    /// What was lost: responses, then requests.
    #[cold]
    pub(super) fn emit_lost(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Step {
        if self.req.asks {
            if self.emit_asked(ctx, arena) == Step::Full
                || self.emit_unheld(ctx, arena) == Step::Full
            {
                return Step::Full;
            }
            self.req.asks = false;
            self.plan_asking(ctx);
        }
        if self.req.mend.is_due() {
            return self.emit_missing(ctx, arena);
        }
        Step::Sent(0)
    }

    /// Deals with one hole, and counts the bytes that take part of the turn. `Err`: how the turn
    /// ends before the hole does.
    pub(super) fn emit_hole(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        hole: Hole,
        piece_at: PieceAt,
        bytes: &mut u32,
    ) -> Result<(), Step> {
        let (mut psn, mut left) = (hole.first, hole.len);
        while left > 0 {
            let Some((covers, step)) = self.emit_piece(ctx, arena, (psn, left), piece_at) else {
                break;
            };
            match step {
                Step::Sent(cost) => *bytes += cost,
                Step::Full => return Err(Step::Full),
                Step::Wait | Step::Stop => return Err(Step::Sent(*bytes)),
            }
            psn = psn.add(covers);
            left -= covers;
        }
        Ok(())
    }

    /// Deals with the PSNs from `psn` on, at most `left`. Gives how many; `None` if nothing there
    /// was sent.
    fn emit_piece(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        (psn, left): (Psn, u32),
        piece_at: PieceAt,
    ) -> Option<(u32, Step)> {
        if self.req.sent.since(psn) <= 0 {
            return None;
        }
        let (number, work) = self.work_at(psn)?;
        let index = u32::try_from(psn.since(work.first)).ok()?;
        let piece = piece_at(&self.req, &work, index, left);
        let covers = piece.covers.min(left);
        let Some(asks) = piece.asks else {
            return Some((covers, Step::Sent(0)));
        };
        if !self.load(number) {
            return None;
        }
        let step = self.step_packet(ctx, arena, &work, At::Part(index, asks));
        Some((covers, step))
    }
}
