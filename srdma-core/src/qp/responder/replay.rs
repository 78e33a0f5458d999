//! Duplicates: what was served before is acknowledged or answered again, and never done again.
//!
//! ```text
//!   READ of 9 packets     0 1 2 x 4 5 x 7 8     the peer asks for 3 and for 6
//!   again                 [ 3 ] [ 6 ]           before what is due otherwise
//!   … or for 3 to 8       in place of the first stream, if that is not through yet
//! ```
//!
//! A part of a READ is read again from memory. [RoCEv2 3.3]

use super::reply::{Answer, Replay, Replies};
use crate::hca::ctx::Ctx;
use crate::num::Psn;
use crate::qp::Qp;
use crate::qp::window::packets_of;
use crate::tx::arena::MarkKind;
use crate::wire::{Packet, Verb};

/// Parts that may be due again at a time: who asks for more asks again.
const MAX_AGAIN: usize = 64;

/// Packets of one answer that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Which answer.
    pub(super) number: u64,
    /// The PSN of the next packet.
    pub(super) next: Psn,
    /// It is the first of its stream, and labelled so.
    pub(super) begins: bool,
    /// Packets left, that one among them.
    pub(super) left: u32,
    /// Message bytes up to where the stream ends.
    pub(super) limit: u32,
}

/// Of a mark: the packet began its stream.
const BEGINS: u64 = 1 << 61;

impl Part {
    /// What a batch has to say of its next packet if it did not leave.
    pub(super) fn mark(&self, again: bool) -> MarkKind {
        let what = self.number << 24 | u64::from(self.next.value());
        if !again {
            return MarkKind::Response(what);
        }
        MarkKind::Repeated(if self.begins { BEGINS | what } else { what }, self.limit)
    }
}

impl Replies {
    /// The newest PSN up to `psn` that a plain acknowledgement may name: not one of a READ or an
    /// atomic. A duplicate may draw one when the newest request is of that kind and its answer was
    /// lost; Linux rxe would take it for the answer and complete the request without its data.
    pub(super) fn before_answers(&self, psn: Psn) -> Psn {
        self.kept.iter().rev().fold(psn, |psn, kept| {
            if kept.holds(psn) {
                kept.first.prev()
            } else {
                psn
            }
        })
    }

    /// The packet that is due next, its answer, and whether it is sent again. What is due of an
    /// answer that is not kept any more is forgotten.
    pub(super) fn due(&mut self) -> Option<(Part, Replay, bool)> {
        while let Some(part) = self.again.front().copied() {
            if let Some(kept) = self.get(part.number) {
                return Some((part, *kept, true));
            }
            self.again.pop_front();
        }
        while let Some(number) = self.sending.front().copied() {
            if let Some(kept) = self.get(number) {
                let part = Part {
                    number,
                    next: kept.next,
                    begins: kept.next == kept.start,
                    left: kept.stop.saturating_sub(kept.index_of(kept.next)).max(1),
                    limit: kept.limit,
                };
                return Some((part, *kept, false));
            }
            self.sending.pop_front();
        }
        None
    }

    /// The next packet of `part` stands in a batch.
    pub(super) fn on_pushed(&mut self, part: Part, again: bool) {
        let last = part.left <= 1;
        if again {
            match self.again.front_mut() {
                Some(front) if !last => {
                    front.next = part.next.add(1);
                    front.begins = false;
                    front.left -= 1;
                }
                _ => drop(self.again.pop_front()),
            }
            return;
        }
        if let Some(kept) = self.get_mut(part.number) {
            kept.next = part.next.add(1);
            kept.left |= last;
        }
        if last {
            self.sending.pop_front();
        }
    }

    /// One packet that was sent again did not leave. Those behind it have said so before.
    pub(super) fn on_unsent_again(&mut self, what: u64, limit: u32) {
        #[allow(clippy::cast_possible_truncation, reason = "a PSN takes the low bits")]
        let next = Psn::new(what as u32);
        let (number, begins) = ((what & !BEGINS) >> 24, what & BEGINS != 0);
        if let Some(front) = self.again.front_mut()
            && front.number == number
            && front.next == next.add(1)
            && !front.begins
        {
            (front.next, front.begins) = (next, begins);
            front.left += 1;
            return;
        }
        self.again.push_front(Part {
            number,
            next,
            begins,
            left: 1,
            limit,
        });
    }

    /// Packets `from` on of answer `number` are due again, `packets` of them, together with a part
    /// that they go on. False: there is no room to remember it.
    fn repeat(&mut self, number: u64, from: Psn, packets: u32, limit: u32) -> bool {
        for part in &mut self.again {
            let ahead = u32::try_from(from.since(part.next));
            if part.number == number && ahead.is_ok_and(|ahead| ahead <= part.left) {
                let ahead = ahead.unwrap_or(0);
                part.left = part.left.max(ahead.saturating_add(packets));
                part.limit = part.limit.max(limit);
                return true;
            }
        }
        if self.again.len() >= MAX_AGAIN {
            return false;
        }
        self.again.push_back(Part {
            number,
            next: from,
            begins: true,
            left: packets,
            limit,
        });
        true
    }

    /// The stream of answer `number` that is under way ends no later than `stop` and has yet to
    /// send something from `from` on: what was asked for again takes its place.
    fn replaces(&self, number: u64, kept: &Replay, from: u32, stop: u32) -> bool {
        let next = kept.index_of(kept.next);
        self.sending.contains(&number) && from <= next && next < kept.stop && kept.stop <= stop
    }
}

/// Packets `from..stop` have yet to leave for the first time.
fn is_due(replies: &Replies, number: u64, kept: &Replay, from: u32, stop: u32) -> bool {
    let next = kept.index_of(kept.next);
    replies.sending.contains(&number) && from >= next && stop <= kept.stop
}

impl Qp {
    /// A request that was already served: acknowledge again, or answer again; never do it again.
    // rule: roce-88
    // rule: roce-89
    // rule: roce-90
    // rule: roce-91
    // rule: roce-92
    // rule: roce-149
    pub(super) fn on_duplicate(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
        let psn = packet.psn();
        if let Some(early) = self.early.as_mut() {
            early.patience.copy_of(psn, ctx.ieq.gap_max_ns);
        }
        let found = match packet.info().verb {
            Verb::Send | Verb::Write => {
                self.ack_due(ctx);
                return;
            }
            Verb::ReadRequest => self.restart_read(packet),
            _ => self.restart_single(psn),
        };
        if !found {
            ctx.counters.replay_missing += 1;
            return;
        }
        self.make_ready(ctx);
    }

    /// An answer of one packet is asked for again.
    fn restart_single(&mut self, psn: Psn) -> bool {
        let replies = &mut self.rsp.replies;
        let Some(at) = replies.kept.iter().position(|kept| kept.first == psn) else {
            return false;
        };
        let number = replies.base + at as u64;
        let is_read = |kept: &Replay| matches!(kept.answer, Answer::Read { .. });
        if replies.kept.get(at).is_some_and(is_read) {
            return false;
        }
        // What is due anyway is not due twice.
        replies.sending.contains(&number) || replies.repeat(number, psn, 1, 0)
    }

    /// A READ asked for again, from `packet`'s PSN on: inside the range it had, same key.
    fn restart_read(&mut self, packet: &Packet<'_>) -> bool {
        let (psn, mtu) = (packet.psn(), self.conn.mtu);
        let Some(reth) = packet.reth() else {
            return false;
        };
        let replies = &mut self.rsp.replies;
        let Some(at) = replies.kept.iter().position(|kept| kept.holds(psn)) else {
            return false;
        };
        let number = replies.base + at as u64;
        let Some(kept) = replies.get(number).copied() else {
            return false;
        };
        let Answer::Read {
            addr, rkey, len, ..
        } = kept.answer
        else {
            return false;
        };
        let from = kept.index_of(psn);
        let skip = u64::from(from) * u64::from(mtu);
        let same = reth.rkey == rkey
            && reth.addr == addr.wrapping_add(skip)
            && u64::from(reth.len) + skip <= u64::from(len).max(skip);
        if !same && len != 0 {
            return false;
        }
        let skip = u32::try_from(skip).unwrap_or(len);
        let limit = skip.saturating_add(reth.len).min(len);
        let packets = packets_of(limit - skip.min(limit), mtu);
        let stop = from.saturating_add(packets);
        if !replies.replaces(number, &kept, from, stop) {
            if is_due(replies, number, &kept, from, stop) {
                return true;
            }
            return replies.repeat(number, psn, packets, limit);
        }
        if let Some(kept) = replies.get_mut(number) {
            (kept.start, kept.next) = (psn, psn);
            (kept.stop, kept.limit) = (stop, limit);
        }
        true
    }
}
