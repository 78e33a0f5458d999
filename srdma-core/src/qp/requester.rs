//! The requester: fetches WQEs, decides what may start, and keeps what is in flight.
//!
//! This file holds its state and the gates a WQE passes before its packets are built (fences, READ
//! depth, window). Building packets is in `emit.rs`, fetching in `fetch.rs`, acknowledgement in
//! `completer.rs`, loss in `retry.rs`.

use super::Qp;
use super::ahead::Ahead;
use super::attr::QpState;
use super::emit::At;
use super::held::Held;
use super::mend::Mend;
use super::retry::Gap;
use super::rtt::Rtt;
use super::window::{Kind, Local, ReadReq, SendCtx};
use crate::hca::ctx::Ctx;
use crate::hw::wqe::SqCmd;
use crate::limits::MAX_PSN_WINDOW;
use crate::num::Psn;
use crate::time::{Instant, earliest};
use crate::tx::TxArena;
use std::collections::VecDeque;

/// Bytes that one queue pair may send before the next has its turn: about one full run.
const QUANTUM_BYTES: u32 = 64 * 1024;

/// How a turn of a queue pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emitted {
    /// Nothing more to send now.
    Idle,
    /// Its quantum is used up; there is more.
    More,
    /// The arena is full: the batch has to leave first.
    Full,
}

/// Why the WQE at the head of sending cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It can.
    Open,
    /// It waits for an acknowledgement or response, which will make the QP ready again.
    Wait,
}

/// The sending side of a queue pair.
#[derive(Debug)]
pub(crate) struct Requester {
    /// WQEs that were fetched and are not complete.
    pub(crate) inflight: VecDeque<SendCtx>,
    /// Number of WQEs completed so far: the absolute number of `inflight`'s front.
    pub(crate) retired: u64,
    /// Absolute number of the WQE being sent.
    pub(crate) cur: u64,
    /// Packets of it that were sent (response packets asked for, of a READ).
    pub(crate) cur_packet: u32,
    /// The WQE being sent, parsed; and which one it is.
    pub(crate) cmd: SqCmd,
    pub(crate) cmd_of: Option<u64>,
    /// The READ or atomic whose responses arrive, parsed; and which one it is. Many queue pairs
    /// never have one.
    pub(crate) read: Option<Box<SqCmd>>,
    pub(crate) read_of: Option<u64>,
    pub(crate) una: Psn,
    pub(crate) sent: Psn,
    pub(crate) top: Psn,
    pub(crate) next: Psn,
    /// READ and atomic requests outstanding.
    pub(crate) reads: VecDeque<ReadReq>,
    /// Packets of one READ request.
    pub(crate) read_chunk: u32,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// No sending before this time.
    pub(crate) rnr_until: Option<Instant>,
    /// Packets sent since the last one that asked to be acknowledged.
    pub(crate) unasked: u32,
    /// The retransmission timer.
    pub(crate) rto_at: Option<Instant>,
    /// Round-trip estimate and probes.
    pub(crate) rtt: Rtt,
    /// The peer has carried out everything before it, though answers may be missing.
    pub(crate) acked: Psn,
    /// Responses that are there ahead of their turn.
    pub(crate) ahead: Option<Box<Ahead>>,
    /// Requests that the peer holds.
    pub(crate) held: Option<Box<Held>>,
    /// When what is missing is asked for or sent again next; and that it is time.
    pub(crate) ask_at: Option<Instant>,
    pub(crate) asks: bool,
    /// A gap at this PSN was answered by going back; not again until `una` moves.
    pub(crate) gap: Option<Gap>,
    /// What is sent again alone.
    pub(crate) mend: Mend,
    /// It stands in a list of those who wait for room.
    pub(crate) waiting: bool,
    /// Fetching stopped: a WQE failed locally, or the queue is in error.
    pub(crate) stopped: bool,
}

impl Requester {
    pub(crate) fn new() -> Self {
        let zero = Psn::default();
        Self {
            inflight: VecDeque::new(),
            retired: 0,
            cur: 0,
            cur_packet: 0,
            cmd: SqCmd::default(),
            cmd_of: None,
            read: None,
            read_of: None,
            una: zero,
            sent: zero,
            top: zero,
            next: zero,
            reads: VecDeque::new(),
            read_chunk: 1,
            retries_left: 0,
            rnr_left: 0,
            rnr_until: None,
            unasked: 0,
            rto_at: None,
            rtt: Rtt::default(),
            acked: zero,
            ahead: None,
            held: None,
            ask_at: None,
            asks: false,
            gap: None,
            mend: Mend::default(),
            waiting: false,
            stopped: false,
        }
    }

    /// The absolute number after the last fetched WQE.
    pub(crate) fn end(&self) -> u64 {
        self.retired + self.inflight.len() as u64
    }

    /// The record of WQE `number`.
    pub(crate) fn ctx_of(&self, number: u64) -> Option<&SendCtx> {
        self.inflight
            .get(usize::try_from(number.checked_sub(self.retired)?).ok()?)
    }

    pub(crate) fn ctx_of_mut(&mut self, number: u64) -> Option<&mut SendCtx> {
        self.inflight
            .get_mut(usize::try_from(number.checked_sub(self.retired)?).ok()?)
    }

    /// Where the peer is, as far as is known.
    pub(crate) fn acked_or_una(&self) -> Psn {
        if self.acked.since(self.una) > 0 {
            self.acked
        } else {
            self.una
        }
    }

    /// Packets from packet `index` of a READ to the end of the request that they are asked with.
    pub(crate) fn chunk_left(&self, index: u32) -> u32 {
        let chunk = self.read_chunk.max(1);
        chunk - index % chunk
    }

    /// Something was sent that is neither acknowledged nor given up.
    pub(crate) fn in_flight(&self) -> bool {
        self.una != self.sent
    }

    /// When this side wants to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        earliest([self.rto_at, self.rnr_until, self.rtt.probe_at, self.ask_at])
    }
}

impl Qp {
    /// Sends requests up to one quantum.
    pub(crate) fn emit_requests(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Emitted {
        // rule: roce-62
        if self.req.rnr_until.is_some_and(|until| until > ctx.now) {
            return Emitted::Idle;
        }
        let mut left = QUANTUM_BYTES;
        if self.req.asks || self.req.mend.is_due() {
            match self.emit_lost(ctx, arena) {
                Step::Sent(bytes) => left = left.saturating_sub(bytes).max(1),
                Step::Full => return Emitted::Full,
                Step::Wait | Step::Stop => {}
            }
        }
        loop {
            if self.req.cur == self.req.end() && !self.fetch() {
                return Emitted::Idle;
            }
            match self.step(ctx, arena) {
                Step::Sent(bytes) => {
                    if bytes >= left {
                        return Emitted::More;
                    }
                    left -= bytes;
                }
                Step::Wait => return Emitted::Idle,
                Step::Full => return Emitted::Full,
                Step::Stop => return Emitted::Idle,
            }
        }
    }

    /// One packet, one READ request, or one piece of local work of the WQE being sent.
    fn step(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Step {
        let number = self.req.cur;
        if !self.load(number) {
            return Step::Stop;
        }
        let Some(&work) = self.req.ctx_of(number) else {
            return Step::Stop;
        };
        if matches!(work.local, Local::Failed(_)) {
            self.report_failed(ctx);
            return Step::Stop;
        }
        if self.gate(&work) == Gate::Wait {
            return Step::Wait;
        }
        let at = At::Front(self.req.cur_packet);
        self.step_packet(ctx, arena, &work, at)
    }

    /// The packet of `work` at `at`; its command is loaded.
    pub(crate) fn step_packet(
        &mut self,
        ctx: &mut Ctx<'_>,
        arena: &mut TxArena,
        work: &SendCtx,
        at: At,
    ) -> Step {
        match work.kind {
            Kind::Local => self.step_local(ctx, work),
            Kind::Read => self.step_read(ctx, arena, work, at),
            Kind::Atomic | Kind::AtomicWrite => self.step_atomic(ctx, arena, work, at),
            Kind::Acked => self.step_message(ctx, arena, work, at),
        }
    }

    /// True if a packet of it was ever sent, or its local work was done.
    pub(crate) const fn has_begun(&self, work: &SendCtx) -> bool {
        match work.local {
            Local::Done | Local::Failed(_) => true,
            Local::Pending => work.packets > 0 && work.first.since(self.req.top) < 0,
        }
    }

    /// Draining, fences, READ depth, window.                  [E810 2.5, RoCEv2 2.9, 2.10, 2.13]
    // rule: roce-63
    // rule: roce-64
    // rule: roce-65
    fn gate(&self, work: &SendCtx) -> Gate {
        let req = &self.req;
        // rule: roce-81
        if self.state == QpState::Sqd && !self.has_begun(work) {
            return Gate::Wait;
        }
        let starts = req.cur_packet == 0;
        if starts && req.cmd.read_fence && !req.reads.is_empty() {
            return Gate::Wait;
        }
        let waits_for_all =
            req.cmd.local_fence || work.op == crate::hw::wqe::SqOp::LOCAL_INVALIDATE;
        if starts && waits_for_all && req.cur != req.retired && work.local != Local::Done {
            return Gate::Wait;
        }
        if work.kind.needs_response() && req.reads.len() >= usize::from(self.conn.max_rd_atomic) {
            return Gate::Wait;
        }
        if req.sent.since(req.una) >= MAX_PSN_WINDOW.cast_signed() {
            return Gate::Wait;
        }
        if req.held.is_some() && self.is_held_up() {
            return Gate::Wait;
        }
        Gate::Open
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It took this many bytes of the quantum.
    Sent(u32),
    /// The WQE has to wait for something that will make the QP ready again.
    Wait,
    /// The arena is full.
    Full,
    /// The queue pair cannot send any more.
    Stop,
}
