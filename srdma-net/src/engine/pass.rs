//! One pass over the device: what it takes in, in which order, and what goes out.
//!
//! ```text
//! what is owed, before a control command ─► doorbells ─► receive ─► timers ─► send ─► vectors
//! ```
//!
//! Who runs one, and when, is in `engine.rs`.

use super::MAX_VECTORS;
use super::link::Link;
use super::reply::Reply;
use crate::spin::Steady;
use crate::trace;
use srdma_core::hca::board::{Board, Doorbell};
use srdma_core::hca::{Acks, Hca};
use srdma_core::time::Instant;
use srdma_core::tx::TxArena;

/// Send batches of one pass; more waits for the next, so that receiving is not starved.
const BATCHES_PER_PASS: usize = 8;
/// How soon to try again what a full socket refused.
const BLOCKED_RETRY_NS: u64 = 50_000;
/// How long acknowledgements may wait for a reply to share a send with.
const ACK_WAIT_NS: u64 = 100_000;

/// The device and what it is driven with; behind the lock.
pub(crate) struct Core {
    pub(super) hca: Hca,
    pub(super) link: Link,
    pub(super) arena: TxArena,
    /// Whether acknowledgements wait for a reply of the program.
    pub(super) reply: Reply,
    /// The socket refused the last batch.
    pub(super) blocked: bool,
    /// Whether somebody polls for good.
    pub(super) steady: Steady,
}

/// Who runs a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A thread that has just posted.
    Poster,
    /// A thread that polls and will be back at once.
    Poller,
    /// A program thread that waits for an event.
    Waiter,
    /// A program thread between an event and its next wait: it arms, or polls what it armed.
    Armer,
    /// The background thread, which is back when an acknowledgement has waited long enough.
    Thread,
    /// A control call, or the last call of a program: what is owed is paid first, since there may
    /// be nobody to pay it afterwards.
    Anyone,
}

/// What one pass did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// Vectors that fired, a bit each.
    pub(super) fired: u64,
    /// Something was received or sent.
    pub(super) active: bool,
    /// Something was sent, or more than one buffer received: it took its time.
    pub(super) long: bool,
    /// Acknowledgements wait for a reply of the program.
    pub(super) awaits: bool,
    /// Nothing came, was due or was to be sent: all is as it was before.
    pub(super) idle: bool,
}

impl Passed {
    /// This pass and the `next`.
    pub(super) const fn then(self, next: Self) -> Self {
        Self {
            fired: self.fired | next.fired,
            active: self.active || next.active,
            ..next
        }
    }
}

impl Core {
    /// One pass: everything that has come since the last one goes in, everything due goes out.
    pub(super) fn pass(&mut self, now: Instant, board: &Board, by: By, looking_in: bool) -> Passed {
        // A control command may end a queue pair, whoever runs it.
        if by == By::Anyone || board.has_control() {
            self.reply.give_up();
            if self.hca.settle_acks(now) {
                self.transmit(now, Acks::Send);
            }
        }
        let Self { hca, link, .. } = self;
        // Whoever runs the pass: who posted may have found the device taken.
        let mut posted = by == By::Poster;
        let rang = board.take(|what| {
            posted |= matches!(what, Doorbell::Sq(_));
            hca.ring(now, what);
        });
        if posted {
            self.reply.posted(now);
        }
        let before = hca.news();
        // Who posts leaves what has come to the next look, unless nothing can leave before that:
        // one post may follow the other for a long time.
        let received = if by == By::Poster && !self.blocked {
            0
        } else {
            link.receive(now, hca)
        };
        let timed = hca.poll_timeout().is_some_and(|at| at <= now);
        if timed {
            hca.handle_timeout(now);
        }
        // They wait only where somebody comes by when the wait is over: the background thread if it
        // is this one, or if it looks in from time to time.
        if by == By::Thread || (looking_in && by != By::Anyone) {
            self.reply.messages(hca.news() - before, now);
        }
        let acks = if self.reply.holds(now) {
            Acks::Wait
        } else {
            Acks::Send
        };
        let awaits = acks == Acks::Wait;
        let silent = !(rang || timed) && self.has_nothing_to_send(acks);
        // Most looks of who polls end here.
        if by == By::Poller && received == 0 && silent {
            return Passed {
                awaits,
                idle: true,
                ..Passed::default()
            };
        }
        let sent = !silent && self.transmit(now, acks);
        let mut fired = 0u64;
        while let Some(vector) = self.hca.poll_interrupt(now) {
            fired |= 1 << (vector.0 % MAX_VECTORS);
        }
        Passed {
            fired,
            active: received > 0 || sent,
            long: received > 1 || sent,
            awaits,
            idle: false,
        }
    }

    fn has_nothing_to_send(&self, acks: Acks) -> bool {
        let owes = acks == Acks::Send && self.hca.owes_acks();
        let asks = self.hca.poll_lookup().is_some();
        !(owes || asks || self.blocked || self.hca.has_work()) && self.link.faults.is_off()
    }

    fn transmit(&mut self, now: Instant, acks: Acks) -> bool {
        let mut any = false;
        self.link.depart(now);
        self.blocked = self.link.is_held();
        for _ in 0..BATCHES_PER_PASS {
            self.link.carrier.answer(now, &mut self.hca);
            self.arena.limits.unreliable = if self.blocked { 0 } else { self.link.room() };
            let Some(batch) = self.hca.poll_transmit(now, &mut self.arena, acks) else {
                // A datagram may wait for an answer that only its turn asked for.
                if self.link.carrier.answer(now, &mut self.hca) {
                    continue;
                }
                break;
            };
            let token = batch.token;
            let sent = if trace::on() {
                trace::send(&mut self.link, now, &batch)
            } else {
                self.link.send(now, &batch)
            };
            any |= sent.runs > 0;
            self.hca
                .handle_transmitted(now, &self.arena, token, sent.runs);
            self.link.learn_limits(&mut self.arena.limits);
            if sent.blocked {
                self.blocked = true;
                break;
            }
        }
        any
    }

    /// When somebody has to run a pass at the latest.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let mut at = self.hca.poll_timeout();
        let mut earlier = |other: Instant| at = Some(at.map_or(other, |at| at.min(other)));
        if self.blocked {
            earlier(now.after(BLOCKED_RETRY_NS));
        } else if self.hca.has_work() || self.hca.poll_lookup().is_some() {
            earlier(now);
        }
        if self.hca.owes_acks() {
            earlier(self.reply.until().unwrap_or_else(|| now.after(ACK_WAIT_NS)));
        }
        if let Some(due) = self.link.deadline() {
            earlier(due);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineConfig, Transport, link};
    use crate::testing::address;
    use crate::wire_link::{Datagram, WireLink};
    use bytes::Bytes;
    use srdma_core::num::Qpn;
    use std::net::SocketAddr;

    /// A device on a wire that leads nowhere, and its address.
    fn core() -> (Core, std::sync::Arc<WireLink>, SocketAddr) {
        let here = SocketAddr::new(address(), 4791);
        let wire = WireLink::new(&[here], 8, false);
        let (link, hca) = link::open(EngineConfig {
            transport: Transport::Wire(std::sync::Arc::clone(&wire)),
            ..EngineConfig::default()
        })
        .unwrap();
        let core = Core {
            hca,
            link,
            arena: TxArena::new().unwrap(),
            reply: Reply::default(),
            blocked: false,
            steady: Steady::default(),
        };
        (core, wire, here)
    }

    #[test]
    fn who_posts_looks_for_news_only_while_nothing_can_leave() {
        let (mut core, wire, here) = core();
        let board = Board::new();
        wire.deliver(Datagram {
            source: SocketAddr::new(address(), 4791),
            target: here,
            tclass: 0,
            hop_limit: 64,
            ip_id: 0,
            bytes: Bytes::from_static(&[0; 64]),
        });
        let mut looks = |by, blocked| {
            core.blocked = blocked;
            core.pass(Instant(1), &board, by, false).active
        };
        assert!(!looks(By::Poster, false));
        assert!(looks(By::Poster, true), "an answer may make room");
    }

    #[test]
    fn whoever_takes_a_post_up_the_program_has_answered() {
        let (mut core, ..) = core();
        let board = Board::new();
        for by in [By::Thread, By::Poller, By::Poster] {
            core.reply.posted(Instant(1));
            core.reply.messages(1, Instant(1));
            core.pass(Instant(2), &board, By::Thread, false);
            assert!(core.reply.until().is_some(), "nothing was posted yet");
            board.mark(Doorbell::Sq(Qpn::new(0x30)));
            core.pass(Instant(3), &board, by, false);
            assert_eq!(core.reply.until(), None, "{by:?}");
        }
    }
}
