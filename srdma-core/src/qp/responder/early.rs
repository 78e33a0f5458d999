//! Requests that come ahead of their turn: kept until the hole before them is filled, then served
//! in order; and the NAK that tells the peer of the hole.
//!
//! ```text
//!   ahead ─► admit ─► list ─┐                    ┌─► nothing left: all is well
//!                           ├─ hole filled ─► serve one after the other, acknowledge once
//!                           └─ the wait is over ─► NAK, once; again only if nothing comes of it
//! ```
//!
//! Nothing is carried out ahead of its turn, so a program sees what it sees without loss; but the
//! payload from the middle of a message goes to its place at once where that is known (`line.rs`).
//! [E810 8.6.4, RoCEv2 6.2]

use super::Message;
use super::line::Place;
use crate::hca::ctx::Ctx;
use crate::limits::IEQ_HOLD_NS;
use crate::num::Psn;
use crate::puda::line::Target;
use crate::puda::reorder::{Admission, Held, Part, Reorder, What};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::qp::gather;
use crate::time::{Instant, earliest};
use crate::wire::{NakCode, Packet, Sack, Syndrome};
use core::slice;

/// A sequence NAK is repeated when the hole is still open after this time.
const NAK_REPEAT_NS: u64 = 1_000_000;
/// Repetitions of a NAK come further and further apart, up to so many doublings.
const MAX_BACKOFF: u32 = 6;
/// A peer that has just filled a part of a hole is given this time to go on.
const GOES_ON_NS: u64 = 50_000;

impl Qp {
    /// A request beyond the expected PSN: packets before it are late or lost.
    // rule: roce-86
    // rule: ieq-1
    // rule: ieq-12
    #[cold]
    pub(super) fn on_early(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, ahead: u32) {
        ctx.counters.out_of_seq_request += 1;
        ctx.counters.ieq_total += 1;
        // The peer is told to wait; whatever is behind that will come again.
        if self.rsp.rnr_pending {
            ctx.counters.ieq_dropped += 1;
            return;
        }
        self.rsp.unsettled = true;
        if ctx.ieq.keeps() {
            let admission = self.hold(ctx, packet, ahead);
            let holds = self.early.as_deref().is_some_and(|early| !early.is_empty());
            if admission == Admission::Held || holds {
                self.watch_hole(ctx);
                if self.conn.peer_is_ours() && packet.ack_req() {
                    self.tell_held(ctx);
                }
                return;
            }
        }
        if ctx.ieq.captures() {
            if !self.capture_early(ctx, packet.psn(), ahead) {
                return;
            }
        } else if !ctx.ieq.keeps() {
            ctx.counters.ieq_dropped += 1;
        }
        let repeat = self
            .rsp
            .nak_sent
            .is_none_or(|sent| ctx.now.since(sent) >= NAK_REPEAT_NS);
        if repeat {
            self.tell_hole(ctx);
        }
    }

    /// Takes in a packet that is `ahead` of its turn: its payload goes to its place if that is
    /// known, else all of it is kept.
    fn hold(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, ahead: u32) -> Admission {
        let (psn, at) = (packet.psn(), ctx.now);
        let early = self.early.get_or_insert_default();
        let index = match early.find((psn, ahead), ctx.counters) {
            Ok(index) => index,
            Err(admission) => return admission,
        };
        let room = early.make_room(index, ctx.ieq, ctx.counters);
        let first = room.then(|| {
            let next = self.message_of_next(packet, index);
            next.or_else(|| self.message_of(ctx, packet, index))
        });
        let first = first.flatten();
        let place = first.and_then(|first| {
            let place = self.known_place(ctx, packet, first)?;
            Some((place, first))
        });
        let ack_req = packet.ack_req();
        let part = Part::of(packet);
        let what = match place {
            Some((_, first)) => Some(What::Placed { first, ack_req }),
            None if room => Reorder::keep(packet.bytes(), ctx.ieq),
            None => None,
        };
        let early = self.early.get_or_insert_default();
        let Some(what) = what else {
            return early.refuse(ctx.counters);
        };
        let admission = early.insert(
            index,
            Held {
                psn,
                at,
                part,
                first,
                what,
            },
            ctx.counters,
        );
        // The payload last: what is read back after it would wait until it is in memory.
        if let Some((place, _)) = place {
            if !self.place_early(ctx, packet, place) {
                let early = self.early.get_or_insert_default();
                return early.remove(index, ctx.ieq, ctx.counters);
            }
            ctx.counters.requests_ahead += 1;
        }
        if first.is_some() {
            self.know_more(ctx, index + 1);
        }
        admission
    }

    /// Places a payload; false if it does not fit or may not go there. The end of a message still
    /// comes last, so who polls its last byte sees all of it.
    // rule: ieq-17
    fn place_early(&self, ctx: &Ctx<'_>, packet: &Packet<'_>, place: Place) -> bool {
        let bytes = packet.payload();
        match place {
            Place::Taken(at) => self.place_recv(ctx, at, bytes).is_ok(),
            Place::Known(Target::Claimed(claim), at) => {
                let grant = ctx.regions.renew(&claim, at, bytes.len());
                grant.is_ok_and(|grant| grant.place(0, bytes).is_ok())
            }
            Place::Known(Target::Received(sge), at) => {
                let part = gather::Part::new(self.domain(), slice::from_ref(&sge), at, bytes.len());
                part.place(ctx.regions, bytes).is_ok()
            }
        }
    }

    /// The turn of packets has come whose payload is in its place: all that follow each other.
    /// False: there are none of the message in progress.
    fn serve_placed(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let Some(Message::Send { done } | Message::Write { done, .. }) = &mut self.rsp.message
        else {
            return false;
        };
        let Some(early) = self.early.as_mut() else {
            return false;
        };
        let (epsn, first) = (self.rsp.epsn, self.rsp.first);
        let (count, ack_req) = early.take_placed(epsn, first, ctx.counters);
        *done += u64::from(count) * u64::from(self.conn.mtu);
        self.rsp.epsn = epsn.add(count);
        if ack_req {
            self.ack_due(ctx);
        }
        count > 0
    }

    /// The peer asked, and would learn nothing from the hole alone.
    // rule: sack-1
    fn tell_held(&mut self, ctx: &mut Ctx<'_>) {
        if self.rsp.nak_sent.is_some() {
            self.tell_hole(ctx);
        } else {
            self.ack_due(ctx);
        }
    }

    /// What is said of packets that are held, if any are and the peer understands it.
    pub(super) fn sack(&self, ctx: &Ctx<'_>) -> Option<Sack> {
        let early = self.early.as_deref().filter(|early| !early.is_empty())?;
        let wait = early.patience.wait_ns(ctx.ieq.gap_max_ns);
        let sack = || early.sack(self.rsp.epsn, ctx.now, wait).0;
        self.conn.peer_is_ours().then(sack)
    }

    pub(super) fn tell_hole(&mut self, ctx: &mut Ctx<'_>) {
        self.rsp.nak_sent = Some(ctx.now);
        self.nak(ctx, self.rsp.epsn, Syndrome::Nak(NakCode::PSN_SEQUENCE));
    }

    /// Tells the peer of the hole if it is time, and decides when to look again.
    // rule: ieq-5
    // rule: roce-147
    fn watch_hole(&mut self, ctx: &mut Ctx<'_>) {
        let Some(early) = self.early.as_mut() else {
            return;
        };
        let Some(since) = early.hole_since() else {
            return;
        };
        let due = match self.rsp.nak_sent {
            None if early.is_full() => ctx.now,
            None => {
                let wait = early.patience.wait_ns(ctx.ieq.gap_max_ns);
                since.after(wait).max(early.not_before)
            }
            Some(sent) => sent.after(early.patience.repeat_ns() << early.told.min(MAX_BACKOFF)),
        };
        let told = due <= ctx.now;
        let next = if told {
            early.told += 1;
            let wait = early.patience.repeat_ns() << early.told.min(MAX_BACKOFF);
            ctx.now.after(wait)
        } else {
            due
        };
        early.deadline = Some(next.min(since.after(IEQ_HOLD_NS)));
        let mut tell = told;
        if self.conn.peer_is_ours() && (told || self.rsp.nak_sent.is_some()) {
            let wait = early.patience.wait_ns(ctx.ieq.gap_max_ns);
            let (new, later) = early.has_news(self.rsp.epsn, ctx.now, wait);
            tell |= new;
            early.deadline = earliest([early.deadline, later]);
        }
        if tell {
            self.tell_hole(ctx);
        }
    }

    /// The list asked to be looked at.
    // rule: ieq-7
    pub(crate) fn on_hole_timer(&mut self, ctx: &mut Ctx<'_>) {
        let since = self.early.as_ref().and_then(|early| early.hole_since());
        if since.is_some_and(|since| ctx.now.since(since) >= IEQ_HOLD_NS) {
            self.discard_early(ctx);
        } else {
            self.watch_hole(ctx);
        }
    }

    /// The expected packet is here: what was said and noted of its absence is settled.
    // rule: roce-106
    #[cold]
    pub(super) fn settle(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        self.rsp.rnr_pending = false;
        self.rsp.unsettled = false;
        // A NAK that has not left would only have the packet sent again.
        self.rsp.replies.forget_nak();
        let told = self.rsp.nak_sent.take();
        self.note_moved(ctx);
        if let Some(early) = self.early.as_mut()
            && let Some(since) = early.hole_since()
        {
            self.rsp.unsettled = true;
            let (age, told) = (
                ctx.now.since(since),
                told.map(|at: Instant| ctx.now.since(at)),
            );
            early.moved = true;
            let was_told = early.told > 0 || early.was_told(psn);
            early.patience.filled(psn, age, (was_told, told));
        }
    }

    /// Serves what is held and whose turn has come.
    // rule: ieq-6
    #[cold]
    pub(super) fn catch_up_early(&mut self, ctx: &mut Ctx<'_>) {
        let moved = |early: &mut Box<Reorder>| std::mem::take(&mut early.moved);
        if !self.early.as_mut().is_some_and(moved) {
            return;
        }
        self.rsp.unsettled = false;
        let mut served = self.serve_placed(ctx);
        while let Some(what) = self
            .early
            .as_mut()
            .and_then(|early| early.take(self.rsp.epsn, ctx.ieq, ctx.counters))
        {
            served = true;
            let good = match what {
                // The peer ended the message that it was taken for, so it does not count.
                What::Placed { .. } => false,
                What::Whole(buf) => {
                    let good = self.serve_kept(ctx, &buf);
                    ctx.ieq.pool.put(buf);
                    good
                }
            };
            if !good || self.state == QpState::Err {
                self.discard_early(ctx);
                return;
            }
            self.serve_placed(ctx);
        }
        if served {
            // rule: ieq-9
            self.ack_due(ctx);
        }
        let Some(early) = self.early.as_mut() else {
            return;
        };
        early.deadline = None;
        early.not_before = Instant(0);
        if served {
            early.told = 0;
        } else {
            early.not_before = ctx.now.after(GOES_ON_NS);
        }
        if early.is_empty() {
            early.rest();
        } else {
            self.rsp.unsettled = true;
            self.know_more(ctx, 0);
            self.watch_hole(ctx);
        }
    }

    /// Serves a packet that was kept; false if it was refused.
    fn serve_kept(&mut self, ctx: &mut Ctx<'_>, bytes: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(bytes) else {
            return true;
        };
        let outcome = self.serve(ctx, &packet);
        if let Err(fault) = outcome {
            self.refuse(ctx, &packet, fault);
        }
        outcome.is_ok()
    }

    /// Gives up what is held: the queue pair ends, starts over, or refuses what comes before it.
    // rule: ieq-8, e810-35
    pub(crate) fn discard_early(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(early) = self.early.as_mut() {
            early.discard(ctx.ieq, ctx.counters);
        }
        self.forget_captured(ctx);
    }
}
