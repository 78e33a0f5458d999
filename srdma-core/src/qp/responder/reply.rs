//! Responses: what is due, in PSN order, and what can be given again.
//!
//! ```text
//! kept     [ READ | CAS | READ | … ]      the last `depth` answers, replayed for duplicates
//! sending  [ 3 → 4 → … ]                  those whose packets are due
//! nak, ack                                one of each at most; after everything in `sending`
//! ```
//!
//! An acknowledgement never overtakes a READ response that is due before it, and one stands for
//! all requests since the last.                                        [RoCEv2 3.3, 3.8]

use super::ack::Owed;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::mem::Claim;
use crate::num::{Msn, Psn, Rkey};
use crate::qp::flush::Cause;
use crate::qp::gather::push_grant;
use crate::qp::window::packets_of;
use crate::qp::{Emitted, Qp};
use crate::tx::TxArena;
use crate::tx::arena::{MarkKind, Payload};
use crate::wire::{Aeth, Bth, Emit, NakCode, Opcode, Packet, Syndrome, Verb};
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
    first: Psn,
    packets: u32,
    msn: Msn,
    answer: Answer,
    /// Where the present stream of responses began.
    start: Psn,
    /// Where it ends, in packets from the first: a part that is asked for again may end before the
    /// whole. A count, because a message may take half of all PSNs.
    stop: u32,
    /// Message bytes up to there.
    limit: u32,
    /// The next response PSN due.
    next: Psn,
    /// It left whole at least once: the peer may have it, whatever it asked for again.
    left: bool,
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

    fn holds(&self, psn: Psn) -> bool {
        self.index_of(psn) < self.packets
    }

    /// Which packet of the answer has this PSN; none of it if it lies before.
    fn index_of(&self, psn: Psn) -> u32 {
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
    kept: VecDeque<Replay>,
    /// Number of the oldest kept answer.
    base: u64,
    sending: VecDeque<u64>,
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

    fn get_mut(&mut self, number: u64) -> Option<&mut Replay> {
        self.kept
            .get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Something but a plain acknowledgement is due.
    pub(crate) fn is_urgent(&self) -> bool {
        !self.sending.is_empty() || self.nak.is_some()
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
        match packet.info().verb {
            Verb::Send | Verb::Write => {
                self.ack_due(ctx);
                return;
            }
            Verb::ReadRequest => {
                if !self.restart_read(packet) {
                    ctx.counters.replay_missing += 1;
                    return;
                }
            }
            _ => {
                let replies = &mut self.rsp.replies;
                let Some(at) = replies.kept.iter().position(|kept| kept.first == psn) else {
                    ctx.counters.replay_missing += 1;
                    return;
                };
                let number = replies.base + at as u64;
                if matches!(
                    replies.kept.get(at).map(|kept| kept.answer),
                    Some(Answer::Read { .. })
                ) {
                    return;
                }
                if let Some(kept) = replies.get_mut(number) {
                    kept.next = kept.first;
                }
                replies.requeue(number);
            }
        }
        self.make_ready(ctx);
    }

    /// A READ asked for again, from `packet`'s PSN on: inside the range it had, same key.
    fn restart_read(&mut self, packet: &Packet<'_>) -> bool {
        let (psn, mtu) = (packet.psn(), u64::from(self.conn.mtu));
        let Some(reth) = packet.reth() else {
            return false;
        };
        let replies = &mut self.rsp.replies;
        let Some(at) = replies.kept.iter().position(|kept| kept.holds(psn)) else {
            return false;
        };
        let number = replies.base + at as u64;
        let Some(kept) = replies.get_mut(number) else {
            return false;
        };
        let Answer::Read {
            addr, rkey, len, ..
        } = kept.answer
        else {
            return false;
        };
        let skip = u64::try_from(psn.since(kept.first)).unwrap_or(0) * mtu;
        let same = reth.rkey == rkey
            && reth.addr == addr.wrapping_add(skip)
            && u64::from(reth.len) + skip <= u64::from(len).max(skip);
        if !same && len != 0 {
            return false;
        }
        let skip = u32::try_from(skip).unwrap_or(len);
        kept.limit = skip.saturating_add(reth.len).min(len);
        kept.start = psn;
        let part = packets_of(kept.limit - skip.min(kept.limit), self.conn.mtu);
        kept.stop = kept.index_of(psn).saturating_add(part);
        kept.next = psn;
        replies.requeue(number);
        true
    }
}

impl Replies {
    /// The newest PSN up to `psn` that a plain acknowledgement may name: not one of a READ or an
    /// atomic. A duplicate may draw one when the newest request is of that kind and its answer was
    /// lost; Linux rxe would take it for the answer and complete the request without its data.
    fn before_answers(&self, psn: Psn) -> Psn {
        self.kept.iter().rev().fold(psn, |psn, kept| {
            if kept.holds(psn) {
                kept.first.prev()
            } else {
                psn
            }
        })
    }

    /// Sends answer `number` again. Whatever was due after it will be asked for again.
    fn requeue(&mut self, number: u64) {
        while self.sending.back().is_some_and(|last| *last >= number) {
            self.sending.pop_back();
        }
        self.sending.push_back(number);
    }
}

impl Qp {
    /// Sends READ responses, atomic answers and NAKs that are due.
    // rule: roce-115
    pub(crate) fn emit_responses(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Emitted {
        let mut left = QUANTUM_BYTES;
        while let Some(&number) = self.rsp.replies.sending.front() {
            match self.emit_answer(ctx, arena, number) {
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
        let psn = self.rsp.replies.before_answers(self.rsp.epsn.prev());
        if !self.push_aeth(ctx, arena, psn, Syndrome::Ack { credits: 31 }, MARK_ACK) {
            return Emitted::Full;
        }
        self.rsp.replies.ack.settle();
        ctx.counters.sent_acks += 1;
        Emitted::Idle
    }

    fn push_aeth(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        psn: Psn,
        syndrome: Syndrome,
        mark: u64,
    ) -> bool {
        let mut emit = Emit::new(Bth::new(Opcode::RC_ACKNOWLEDGE, self.conn.remote_qpn, psn));
        emit.aeth = Some(Aeth {
            syndrome,
            msn: self.rsp.msn,
        });
        self.push_response(ctx, arena, &mut emit, Payload::None, mark)
    }

    fn push_response(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        emit: &mut Emit,
        payload: Payload<'_>,
        mark: u64,
    ) -> bool {
        emit.bth.opcode = self.in_class(emit.bth.opcode);
        emit.bth.pkey = self.conn.pkey;
        let Some(path) = self.conn.path.and_then(|id| ctx.paths.get(id)) else {
            return true;
        };
        arena.push(
            path,
            (self.id.slot, MarkKind::Response(mark)),
            emit,
            payload,
        )
    }

    /// One packet of answer `number`: its bytes, or `None` when the arena is full.
    // rule: roce-22
    // rule: roce-116
    // rule: roce-117
    fn emit_answer(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena, number: u64) -> Option<u32> {
        let Some(replay) = self.rsp.replies.get_mut(number).copied() else {
            self.rsp.replies.sending.pop_front();
            return Some(0);
        };
        let psn = replay.next;
        let left = replay.stop.saturating_sub(replay.index_of(psn)).max(1);
        let aeth = Some(Aeth {
            syndrome: Syndrome::Ack { credits: 31 },
            msn: replay.msn,
        });
        let mark = number << 24 | u64::from(psn.value());
        let mut emit = Emit::new(Bth::new(
            Opcode::RC_READ_RESP_ONLY,
            self.conn.remote_qpn,
            psn,
        ));
        emit.aeth = aeth;
        let (pushed, bytes) = match replay.answer {
            Answer::Empty => (
                self.push_response(ctx, arena, &mut emit, Payload::None, mark),
                0,
            ),
            Answer::Atomic { original } => {
                emit.bth.opcode = Opcode::RC_ATOMIC_ACK;
                emit.atomic_ack = Some(original);
                (
                    self.push_response(ctx, arena, &mut emit, Payload::None, mark),
                    0,
                )
            }
            Answer::Read { claim, .. } => {
                emit.bth.opcode = read_opcode(psn == replay.start, left == 1);
                if emit.bth.opcode == Opcode::RC_READ_RESP_MIDDLE {
                    emit.aeth = None;
                }
                let at = u64::try_from(psn.since(replay.first)).unwrap_or(0);
                let at = at * u64::from(self.conn.mtu);
                let bytes = u64::from(replay.limit)
                    .saturating_sub(at)
                    .min(u64::from(self.conn.mtu));
                let Some(pushed) = self.push_read(ctx, arena, &mut emit, claim, (at, bytes), mark)
                else {
                    self.revoke_read(ctx, psn);
                    return Some(0);
                };
                (pushed, bytes)
            }
        };
        if !pushed {
            return None;
        }
        if let Some(kept) = self.rsp.replies.get_mut(number) {
            kept.next = psn.add(1);
        }
        if left <= 1 {
            if let Some(kept) = self.rsp.replies.get_mut(number) {
                kept.left = true;
            }
            self.rsp.replies.sending.pop_front();
        }
        Some(u32::try_from(bytes).unwrap_or(0) + 64)
    }

    /// A READ response packet with `(offset, len)` of the answer's memory. `None`: the memory is
    /// not there any more.
    fn push_read(
        &self,
        ctx: &Ctx<'_>,
        arena: &mut TxArena,
        emit: &mut Emit,
        claim: Option<Claim>,
        (at, len): (u64, u64),
        mark: u64,
    ) -> Option<bool> {
        emit.bth.opcode = self.in_class(emit.bth.opcode);
        emit.bth.pkey = self.conn.pkey;
        let mark = (self.id.slot, MarkKind::Response(mark));
        let Some(path) = self.conn.path.and_then(|id| ctx.paths.get(id)) else {
            return Some(true);
        };
        let Some(claim) = claim else {
            return Some(arena.push(path, mark, emit, Payload::None));
        };
        let len = usize::try_from(len).unwrap_or(0);
        let grant = ctx.regions.renew(&claim, at, len).ok()?;
        push_grant(&grant, arena, (path, mark), emit).ok()
    }

    /// The memory of a READ in progress was taken away: the rest of it is refused.
    // rule: roce-118
    fn revoke_read(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        self.rsp.replies.sending.clear();
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
