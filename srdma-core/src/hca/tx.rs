//! Transmitting: turns of the ready queue pairs fill the arena, and what did not leave is taken up
//! again.

use super::Hca;
use super::ctx::{Room, Turn};
use crate::obj::table::Slot;
use crate::qp::Emitted;
use crate::time::Instant;
use crate::tx::arena::MarkKind;
use crate::tx::{TxArena, TxBatch, TxToken};

/// Pieces of memory that one packet may be gathered from.
const MAX_PIECES: usize = crate::limits::MAX_SGE + 1;

/// What to do with acknowledgements that nothing else would leave with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a yes or no with names")]
pub enum Acks {
    /// Send them.
    Send,
    /// Let them wait for the next pass: a program has just been handed a completion, and its answer
    /// may take them along.
    Wait,
}

impl Hca {
    /// Fills the arena and lends it out. `None`: nothing to send now.
    pub fn poll_transmit<'a>(
        &'a mut self,
        now: Instant,
        arena: &'a mut TxArena,
        acks: Acks,
    ) -> Option<TxBatch<'a>> {
        arena.reset();
        if self.dev.ready.is_empty() && (acks != Acks::Send || self.dev.acks.is_empty()) {
            return None;
        }
        let limit = u64::from(arena.limits.unreliable);
        let mut unreliable = 0;
        while arena.has_room(MAX_PIECES) {
            let Some(turn) = self.dev.ready.pop_front() else {
                break;
            };
            let limited = limit != u64::from(u32::MAX) && self.is_unreliable(turn);
            if limited && unreliable >= limit {
                self.dev.held.push_back(turn);
                continue;
            }
            let before = if limited { arena.bytes() } else { 0 };
            let full = self.take_turn(now, turn, arena);
            if limited {
                unreliable += arena.bytes() - before;
            }
            if full {
                break;
            }
        }
        self.dev.ready.append(&mut self.dev.held);
        if acks == Acks::Send {
            self.send_acks(now, arena);
        }
        self.dev.counters.sent_pkts += u64::from(arena.packets());
        self.dev.counters.sent_bytes += arena.bytes();
        self.dev.counters.sent_batches += u64::from(!arena.is_empty());
        arena.batch()
    }

    fn is_unreliable(&self, turn: Turn) -> bool {
        let qp = self.qps.get(turn.qp);
        qp.is_some_and(|qp| !qp.id.kind.is_reliable())
    }

    /// One queue pair's turn. True if the arena is full.
    fn take_turn(&mut self, now: Instant, turn: Turn, arena: &mut TxArena) -> bool {
        let Some(qp) = self.qps.get_mut(turn.qp) else {
            self.pass_on(turn);
            return false;
        };
        if turn.waited.is_some() {
            qp.req.waiting = false;
        } else {
            qp.queued = false;
        }
        let mut ctx = self.dev.ctx(now);
        let emitted = qp.emit(&mut ctx, arena);
        let full = emitted == Emitted::Full;
        if emitted != Emitted::Idle && !qp.queued {
            qp.queued = true;
            let again = Turn {
                qp: turn.qp,
                waited: None,
            };
            if full {
                ctx.ready.push_front(again);
            } else {
                ctx.ready.push_back(again);
            }
        }
        qp.set_timer(&mut self.timers);
        // What it owed has gone along, mostly.
        if qp.ack_queued && !qp.rsp.replies.ack.is_due() && self.dev.acks.front() == Some(&turn.qp)
        {
            qp.ack_queued = false;
            self.dev.acks.pop_front();
        }
        self.pass_on(turn);
        full
    }

    /// After the turn of one that waited for room, the next one may try.
    #[inline]
    fn pass_on(&mut self, turn: Turn) {
        let dev = &mut self.dev;
        match turn.waited {
            None => {}
            Some(Room::Peer(id)) => dev.peers.pass_on(id, &mut dev.ready),
            Some(Room::Reads) => dev.read_credit.pass_on(&mut dev.ready),
        }
    }

    fn send_acks(&mut self, now: Instant, arena: &mut TxArena) {
        while arena.has_room(1) {
            let Some(slot) = self.dev.acks.pop_front() else {
                return;
            };
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            qp.ack_queued = false;
            let mut ctx = self.dev.ctx(now);
            if qp.emit_ack(&mut ctx, arena) == Emitted::Full {
                qp.make_ready_for_ack(&mut ctx);
                return;
            }
        }
    }

    /// True if acknowledgements were left for later.
    #[must_use]
    pub fn owes_acks(&self) -> bool {
        !self.dev.acks.is_empty()
    }

    /// The first `runs_sent` runs of the batch left; the rest did not.
    ///
    /// # Panics
    ///
    /// If the token is not that of the arena's last batch: batches are answered one by one.
    pub fn handle_transmitted(
        &mut self,
        now: Instant,
        arena: &TxArena,
        token: TxToken,
        runs_sent: usize,
    ) {
        assert_eq!(token, arena.token(), "batches are answered one by one");
        let mut last: Option<Slot> = None;
        for mark in arena.marks().iter().rev() {
            let Some(qp) = self.qps.get_mut(mark.qp) else {
                continue;
            };
            let mut ctx = self.dev.ctx(now);
            if (mark.run as usize) >= runs_sent {
                qp.on_unsent(mark, &mut ctx);
                if matches!(mark.kind, MarkKind::Response(_) | MarkKind::Repeated(..)) {
                    qp.make_ready(&mut ctx);
                    qp.make_ready_for_ack(&mut ctx);
                }
                qp.set_timer(&mut self.timers);
            } else if last != Some(mark.qp) {
                last = Some(mark.qp);
                qp.on_sent(&mut ctx);
            }
        }
    }
}
