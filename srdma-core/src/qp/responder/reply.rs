//! Responses: what is due, in PSN order, and what can be given again.
//!
//! ```text
//! kept     [ READ | CAS | READ | … ]      the last `depth` answers, replayed for duplicates
//! sending  [ 3 → 4 → … ]                  those whose packets are due
//! again    [ 3: packets 7 to 9 | … ]      parts that are asked for again; before those
//! nak, ack                                one of each at most; after everything in `sending`
//! ```
//!
//! An acknowledgement never overtakes a READ response that is due before it, and one stands for
//! all requests since the last.                                        [RoCEv2 3.3, 3.8]

use super::ack::Owed;
use super::replay::Part;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::mem::Claim;
use crate::num::{Msn, Psn, Rkey};
use crate::qp::flush::Cause;
use crate::qp::gather::push_grant;
use crate::qp::{Emitted, Qp};
use crate::tx::TxArena;
use crate::tx::arena::MarkKind;
use crate::tx::payload::Payload;
use crate::wire::{Aeth, Bth, Head, NakCode, Opcode, Rider, Sack, Syndrome};
use std::collections::VecDeque;

/// Bytes of READ responses that one queue pair may send before the next has its turn.
const QUANTUM_BYTES: u32 = 64 * 1024;

/// What a READ, atomic, or flush is answered with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// Memory, read when its packets are built.
    Read {
        claim: Option<Claim>,
        addr: u64,
        rkey: Rkey,
        len: u32,
    },
    /// The value that stood there.
    Atomic { original: u64 },
    /// An empty READ response.
    Empty,
}

/// One answer that is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay {
    pub(super) first: Psn,
    pub(super) packets: u32,
    msn: Msn,
    pub(super) answer: Answer,
    /// Where the present stream of responses began.
    pub(super) start: Psn,
    /// Where it ends, in packets from the first: a part that is asked for again may end before the
    /// whole. A count, because a message may take half of all PSNs.
    pub(super) stop: u32,
    /// Message bytes up to there.
    pub(super) limit: u32,
    /// The next response PSN due.
    pub(super) next: Psn,
    /// It left whole at least once: the peer may have it, whatever it asked for again.
    pub(super) left: bool,
}

impl Replay {
    pub(crate) const fn new(first: Psn, packets: u32, msn: Msn, answer: Answer) -> Self {
        Self {
            first,
            packets,
            msn,
            answer,
            start: first,
            stop: packets,
            limit: match answer {
                Answer::Read { len, .. } => len,
                _ => 0,
            },
            next: first,
            left: false,
        }
    }

    pub(super) fn holds(&self, psn: Psn) -> bool {
        self.index_of(psn) < self.packets
    }

    /// Which packet of the answer has this PSN; none of it if it lies before.
    pub(super) fn index_of(&self, psn: Psn) -> u32 {
        u32::try_from(psn.since(self.first)).unwrap_or(u32::MAX)
    }
}

/// A single response that is due: AETH with nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nak {
    psn: Psn,
    syndrome: Syndrome,
}

/// Responses due and kept.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(super) kept: VecDeque<Replay>,
    /// Number of the oldest kept answer.
    pub(super) base: u64,
    pub(super) sending: VecDeque<u64>,
    pub(super) again: VecDeque<Part>,
    depth: usize,
    nak: Option<Nak>,
    pub(crate) ack: Owed,
}

/// Marks in a batch: what has to be taken up again if it did not leave.
const MARK_ACK: u64 = 1 << 63;
const MARK_NAK: u64 = 1 << 62;

impl Replies {
    /// Keeps `depth` answers; at least one so that ATOMIC WRITE works at depth 1.
    pub(crate) fn set_depth(&mut self, depth: u8) {
        self.depth = usize::from(depth);
    }

    /// True if one more answer can be kept without dropping one that the peer cannot have.
    ///
    /// An answer that is due again does not count: the first one may have come after the peer
    /// asked again, and then the peer goes on with further requests.
    // rule: roce-93
    pub(super) fn has_room(&self) -> bool {
        let oldest_due = self.sending.front() == Some(&self.base);
        let oldest_left = self.kept.front().is_some_and(|oldest| oldest.left);
        self.kept.len() < self.depth || !oldest_due || oldest_left
    }

    pub(super) fn push(&mut self, replay: Replay) {
        if self.kept.len() >= self.depth {
            self.kept.pop_front();
            if self.sending.front() == Some(&self.base) {
                self.sending.pop_front();
            }
            self.base += 1;
        }
        self.sending.push_back(self.base + self.kept.len() as u64);
        self.kept.push_back(replay);
        // Its response acknowledges everything before it.
        self.ack.settle();
    }

    pub(super) fn nak(&mut self, psn: Psn, syndrome: Syndrome) {
        self.nak = Some(Nak { psn, syndrome });
    }

    pub(super) fn get(&self, number: u64) -> Option<&Replay> {
        self.kept
            .get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Replay> {
        self.kept
            .get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Something but a plain acknowledgement is due.
    pub(crate) fn is_urgent(&self) -> bool {
        !self.sending.is_empty() || !self.again.is_empty() || self.nak.is_some()
    }

    /// A response did not leave.
    pub(super) fn on_unsent(&mut self, what: u64) {
        if what & MARK_ACK != 0 {
            self.ack.owe();
        } else if what & MARK_NAK != 0 {
            #[allow(clippy::cast_possible_truncation, reason = "packed by `mark_nak`")]
            let (psn, byte) = (Psn::new(what as u32), (what >> 32) as u8);
            self.nak.get_or_insert_with(|| Nak {
                psn,
                syndrome: Syndrome::from_byte(byte),
            });
        } else {
            let (number, psn) = (
                what >> 24,
                Psn::new(u32::try_from(what & 0xff_ffff).unwrap_or(0)),
            );
            if let Some(replay) = self.get_mut(number) {
                if psn.since(replay.next) < 0 {
                    replay.next = psn;
                }
                if self.sending.front().is_none_or(|front| *front > number) {
                    self.sending.push_front(number);
                }
            }
        }
    }

    /// Takes back a NAK that has not left. Those that end the queue pair are its last word and are
    /// never taken back, since nothing is expected after them.
    pub(super) const fn forget_nak(&mut self) {
        self.nak = None;
    }

    fn mark_nak(nak: Nak) -> u64 {
        MARK_NAK | u64::from(nak.syndrome.to_byte()) << 32 | u64::from(nak.psn.value())
    }
}

impl Qp {
    /// Sends READ responses, atomic answers and NAKs that are due.
    // rule: roce-115
    pub(crate) fn emit_responses(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Emitted {
        let mut left = QUANTUM_BYTES;
        while let Some(due) = self.rsp.replies.due() {
            match self.emit_answer(ctx, arena, due) {
                Some(bytes) if bytes >= left => return Emitted::More,
                Some(bytes) => left -= bytes,
                None => return Emitted::Full,
            }
        }
        if let Some(nak) = self.rsp.replies.nak {
            let mark = Replies::mark_nak(nak);
            if !self.push_aeth(ctx, arena, nak.psn, nak.syndrome, mark) {
                return Emitted::Full;
            }
            self.rsp.replies.nak = None;
            self.rsp.replies.ack.settle();
            ctx.counters.sent_naks += 1;
        }
        Emitted::Idle
    }

    /// Sends the acknowledgement that is due.
    // rule: roce-23
    pub(crate) fn emit_ack(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Emitted {
        if !self.rsp.replies.ack.is_due() || self.rsp.replies.is_urgent() {
            return Emitted::Idle;
        }
        let Rider { aeth, psn } = self.acknowledgement();
        if !self.push_aeth(ctx, arena, psn, aeth.syndrome, MARK_ACK) {
            return Emitted::Full;
        }
        self.rsp.replies.ack.settle();
        ctx.counters.sent_acks += 1;
        Emitted::Idle
    }

    /// What acknowledges all that came.
    fn acknowledgement(&self) -> Rider {
        Rider {
            aeth: Aeth {
                syndrome: Syndrome::ACK,
                msn: self.rsp.msn,
            },
            psn: self.rsp.replies.before_answers(self.rsp.epsn.prev()),
        }
    }

    /// The acknowledgement that is due, if a message of one packet may take it along: in a packet
    /// of its own it says more, or costs no more since it joins the run of others.
    // rule: ride-1
    #[inline]
    pub(crate) fn rider(&self) -> Option<Rider> {
        let replies = &self.rsp.replies;
        if !replies.ack.is_due() || !self.speaks_own() || replies.is_urgent() {
            return None;
        }
        let holds = self.early.as_ref().is_some_and(|early| !early.is_empty());
        let more = self.req.cur + 1 != self.req.end() || self.sq.peek().is_some();
        (!holds && !more).then(|| self.acknowledgement())
    }

    fn push_aeth(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        psn: Psn,
        syndrome: Syndrome,
        mark: u64,
    ) -> bool {
        let mut head = self.response_head(Opcode::RC_ACKNOWLEDGE, psn);
        head.aeth(Aeth {
            syndrome,
            msn: self.rsp.msn,
        });
        let mark = MarkKind::Response(mark);
        // What is held behind a hole is said where the hole is, or where nothing is said of it.
        let says = match syndrome {
            Syndrome::Ack { .. } => psn.add(1) == self.rsp.epsn,
            Syndrome::Nak(NakCode::PSN_SEQUENCE) => psn == self.rsp.epsn,
            _ => false,
        };
        let Some(sack) = self.sack(ctx).filter(|_| says) else {
            return self.push_response(ctx, arena, &mut head, (), mark);
        };
        let mut bytes = [0; Sack::MAX_LEN];
        let len = sack.write(&mut bytes);
        let payload = bytes.get(..len).unwrap_or(&[]);
        self.push_response(ctx, arena, &mut head, payload, mark)
    }

    /// What a response begins with.
    fn response_head(&self, opcode: Opcode, psn: Psn) -> Head {
        let opcode = self.in_class(opcode);
        Head::new(&Bth {
            pkey: self.conn.pkey,
            ..Bth::new(opcode, self.conn.remote_qpn, psn)
        })
    }

    fn push_response<P: Payload>(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        head: &mut Head,
        payload: P,
        mark: MarkKind,
    ) -> bool {
        let Some(path) = self.conn.path.and_then(|id| ctx.paths.get(id)) else {
            return true;
        };
        arena.push(path, (self.id.slot, mark), head, payload)
    }

    /// One packet of an answer: its bytes, or `None` when the arena is full.
    // rule: roce-22
    // rule: roce-116
    // rule: roce-117
    fn emit_answer(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        (part, replay, again): (Part, Replay, bool),
    ) -> Option<u32> {
        let psn = part.next;
        let mark = part.mark(again);
        let aeth = Aeth {
            syndrome: Syndrome::Ack { credits: 31 },
            msn: replay.msn,
        };
        let mut bytes = 0;
        let pushed = match replay.answer {
            Answer::Empty => {
                let mut head = self.response_head(Opcode::RC_READ_RESP_ONLY, psn);
                head.aeth(aeth);
                self.push_response(ctx, arena, &mut head, (), mark)
            }
            Answer::Atomic { original } => {
                let mut head = self.response_head(Opcode::RC_ATOMIC_ACK, psn);
                head.aeth(aeth);
                head.atomic_ack(original);
                self.push_response(ctx, arena, &mut head, (), mark)
            }
            Answer::Read { claim, .. } => {
                let opcode = read_opcode(part.begins, part.left == 1);
                let even = opcode.evened().filter(|_| self.speaks_own());
                let mut head = self.response_head(even.unwrap_or(opcode), psn);
                if even.is_some() || opcode != Opcode::RC_READ_RESP_MIDDLE {
                    head.aeth(aeth);
                }
                let mtu = u64::from(self.conn.mtu);
                let at = u64::from(replay.index_of(psn)) * mtu;
                bytes = u64::from(part.limit).saturating_sub(at).min(mtu);
                let Some(pushed) = self.push_read(ctx, arena, &mut head, claim, (at, bytes), mark)
                else {
                    self.revoke_read(ctx, psn);
                    return Some(0);
                };
                pushed
            }
        };
        if !pushed {
            return None;
        }
        self.rsp.replies.on_pushed(part, again);
        Some(u32::try_from(bytes).unwrap_or(0) + 64)
    }

    /// A READ response packet with `(offset, len)` of the answer's memory. `None`: the memory is
    /// not there any more.
    fn push_read(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        head: &mut Head,
        claim: Option<Claim>,
        (at, len): (u64, u64),
        mark: MarkKind,
    ) -> Option<bool> {
        let mark = (self.id.slot, mark);
        let Some(path) = self.conn.path.and_then(|id| ctx.paths.get(id)) else {
            return Some(true);
        };
        let Some(claim) = claim else {
            return Some(arena.push(path, mark, head, ()));
        };
        let len = usize::try_from(len).unwrap_or(0);
        let grant = ctx.regions.renew(&claim, at, len).ok()?;
        push_grant(&grant, arena, (path, mark), head).ok()
    }

    /// The memory of a READ in progress was taken away: the rest of it is refused.
    // rule: roce-118
    fn revoke_read(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        self.rsp.replies.sending.clear();
        self.rsp.replies.again.clear();
        self.rsp
            .replies
            .nak(psn, Syndrome::Nak(NakCode::REMOTE_ACCESS));
        let cause = Cause::new(FlushCode::REM_ACCESS, AeCode::AMP_INVALID_STAG);
        self.rq_error(ctx, cause, AeSource::OUTBOUND_READ);
    }
}

/// Labels by what is left of the present stream, so that a retry starts with FIRST or ONLY.
const fn read_opcode(first: bool, last: bool) -> Opcode {
    match (first, last) {
        (true, true) => Opcode::RC_READ_RESP_ONLY,
        (true, false) => Opcode::RC_READ_RESP_FIRST,
        (false, true) => Opcode::RC_READ_RESP_LAST,
        (false, false) => Opcode::RC_READ_RESP_MIDDLE,
    }
}
