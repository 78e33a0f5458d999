//! One queue pair: what connects the work queues in memory with the packets of the wire.
//!
//! ```text
//!            ┌ Requester ── SQ ring ─► packets out     (requester.rs, fetch.rs, emit.rs)
//!     Qp ────┤ Completer ── responses in ─► CQEs       (completer.rs, ahead.rs, held.rs,
//!            │                                         score.rs, retry.rs, mend.rs, rtt.rs)
//!            └ Responder ── requests in ─► memory, CQEs, responses out   (responder/)
//! ```
//!
//! A queue pair never sees the device; it gets a `Ctx` with everything but the other queue pairs.

mod ahead;
pub mod attr;
mod completer;
mod emit;
mod fetch;
pub(crate) mod flush;
mod gather;
mod held;
mod lost;
mod mend;
mod raw;
mod requester;
mod responder;
mod retry;
mod route;
mod rtt;
mod score;
mod window;

pub(crate) use requester::{Emitted, Requester};
pub(crate) use responder::Responder;

use crate::hca::ctx::{Ctx, Turn};
use crate::hca::ports::Lookup;
use crate::hca::timer::{TimerState, Timers};
use crate::limits::IEQ_HOLD_NS;
use crate::mem::Access;
use crate::num::{PdId, Pkey, Psn, Qkey, Qpn, XrcdId};
use crate::obj::ah::AddressVector;
use crate::obj::table::Slot;
use crate::puda::ieq::Captured;
use crate::puda::reorder::Reorder;
use crate::ring::{RqConsumer, SqConsumer};
use crate::time::{Instant, ack_timeout_ns, earliest};
use crate::tx::TxArena;
use crate::tx::arena::{Mark, MarkKind};
use crate::wire::Opcode;
use attr::{QpState, QpType};

/// What a queue pair knows of its connection; set by modify.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    /// Interned path to the peer; none for datagrams.
    pub(crate) path: Option<u32>,
    /// Datagrams: whose path `path` is.
    pub(crate) datagram_av: Option<AddressVector>,
    /// Datagrams: the block of destinations that `path` leads to, and until when it is known to.
    pub(crate) datagram_block: u16,
    pub(crate) datagram_until: Instant,
    /// The path's peer.
    pub(crate) peer: u32,
    /// What the peer's socket holds, as it told.
    pub(crate) peer_rx: u32,
    /// The peer's address, to check where packets come from.
    pub(crate) remote_ip: Option<std::net::IpAddr>,
    /// Our own address of the connection.
    pub(crate) local_ip: Option<std::net::IpAddr>,
    /// The peer's queue pair.
    pub(crate) remote_qpn: Qpn,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// Partition key sent and matched.
    pub(crate) pkey: Pkey,
    /// Queue key of a datagram QP.
    pub(crate) qkey: Qkey,
    /// Remote operations that are allowed.
    pub(crate) access: Access,
    /// RNR timer code that our RNR NAKs carry.
    pub(crate) min_rnr_timer: u8,
    /// Local ACK timeout code.
    pub(crate) timeout: u8,
    /// Retries after time-out or sequence NAK.
    pub(crate) retry_cnt: u8,
    /// Retries after RNR NAK; 7 never ends.
    pub(crate) rnr_retry: u8,
    /// READ and atomic requests that we may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// READ and atomic requests that we can replay for the peer.
    pub(crate) max_dest_rd_atomic: u8,
}

impl Conn {
    /// The peer is a device of our kind: only that tells how much its socket holds. It understands
    /// what is said of packets that are held, and keeps what comes ahead of its turn.
    pub(crate) const fn peer_is_ours(&self) -> bool {
        self.peer_rx != 0
    }

    /// When an answer to what is sent now is given up.
    pub(crate) fn answer_by(&self, now: Instant) -> Option<Instant> {
        ack_timeout_ns(self.timeout).map(|ns| now.after(ns))
    }
}

impl Default for Conn {
    fn default() -> Self {
        Self {
            path: None,
            datagram_av: None,
            datagram_block: 0,
            datagram_until: Instant(0),
            peer: 0,
            peer_rx: 0,
            remote_ip: None,
            local_ip: None,
            remote_qpn: Qpn::default(),
            mtu: 1024,
            pkey: Pkey::DEFAULT,
            qkey: Qkey(0),
            access: Access::LOCAL_READ,
            min_rnr_timer: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        }
    }
}

/// What never changes in a queue pair's life, and is needed everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Ident {
    /// Its place in the device's table.
    pub(crate) slot: Slot,
    /// Its number on the wire.
    pub(crate) qpn: Qpn,
    /// Its transport service.
    pub(crate) kind: QpType,
    /// Its protection domain.
    pub(crate) pd: PdId,
    /// Where its send completions go.
    pub(crate) send_cq: Slot,
    /// Where its receive completions go.
    pub(crate) recv_cq: Slot,
    /// Its shared receive queue.
    pub(crate) srq: Option<Slot>,
    /// XRC target: its domain.
    pub(crate) xrcd: Option<XrcdId>,
    /// What the driver wants to see in CQEs and AEQEs.
    pub(crate) cookie: u64,
    /// A privileged queue of the driver's: packets stand in memory whole, from the base header on.
    /// [E810 8]
    pub(crate) raw: bool,
}

impl Ident {
    /// The exception queue: what is sent there comes back to this device.
    pub(crate) fn is_ieq(&self) -> bool {
        self.raw && self.qpn == Qpn::IEQ
    }
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) id: Ident,
    pub(crate) state: QpState,
    pub(crate) conn: Conn,
    pub(crate) sq: SqConsumer,
    /// `None` with a shared receive queue.
    pub(crate) rq: Option<RqConsumer>,
    pub(crate) req: Requester,
    pub(crate) rsp: Responder,
    pub(crate) timer: TimerState,
    /// It stands in the device's ready list.
    pub(crate) queued: bool,
    /// It stands in the list of those that owe an acknowledgement.
    pub(crate) ack_queued: bool,
    /// It stands in the list of those that may owe one that was not asked for.
    pub(crate) ack_late_queued: bool,
    /// A modify to SQD asked to be told when the send queue has drained.
    pub(crate) notify_drained: bool,
    /// COMM_EST was raised since the last move to RTR.
    pub(crate) established: bool,
    /// Packets that came ahead of their turn; made when the first one does.
    pub(crate) early: Option<Box<Reorder>>,
    /// Packets of this queue pair are in the driver's hands.
    pub(crate) captured: Option<Captured>,
}

impl Qp {
    /// True if responses may leave and arrive.
    pub(crate) const fn can_receive(&self) -> bool {
        matches!(
            self.state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// When this queue pair wants to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let early = self.early.as_ref().and_then(|early| early.deadline);
        let held = self
            .captured
            .map(|captured| captured.since.after(IEQ_HOLD_NS));
        earliest([self.req.deadline(), self.rsp.replies.ack.by(), early, held])
    }

    /// Lets the device call when this queue pair wants to be called.
    #[inline]
    pub(crate) fn set_timer(&mut self, timers: &mut Timers) {
        let deadline = self.deadline();
        timers.set(self.id.slot, &mut self.timer, deadline);
    }

    /// The peer knows the opcodes of our own.
    #[inline]
    pub(crate) const fn speaks_own(&self) -> bool {
        matches!(self.id.kind, QpType::Rc) && self.conn.peer_is_ours()
    }

    /// An opcode of RC in the class of this queue pair.
    #[inline]
    pub(crate) const fn in_class(&self, rc: Opcode) -> Opcode {
        if self.id.kind.is_xrc() {
            rc.in_xrc()
        } else {
            rc
        }
    }

    /// Sends what is due: responses with data first, then requests, then the plain ACK. An ACK that
    /// would leave alone stays in the device's list, which knows whether it may wait.
    pub(crate) fn emit(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Emitted {
        let packets = arena.packets();
        match self.emit_responses(ctx, arena) {
            Emitted::Idle => {}
            full => return full,
        }
        if matches!(self.state, QpState::Rts | QpState::Sqd) {
            match self.emit_requests(ctx, arena) {
                Emitted::Idle => {}
                full => return full,
            }
        }
        if arena.packets() == packets {
            return Emitted::Idle;
        }
        // Last, because it is the shortest packet and so can close a run of requests.
        self.emit_ack(ctx, arena)
    }

    /// The part of a batch that `mark` stands for did not leave: take it up again later.
    pub(crate) fn on_unsent(&mut self, mark: &Mark, ctx: &mut Ctx<'_>) {
        match mark.kind {
            MarkKind::Request(psn) => {
                self.rewind(ctx, Psn::new(psn));
                if self.rsp.replies.ack.on_request_unsent() {
                    self.make_ready_for_ack(ctx);
                }
            }
            MarkKind::Mended(psn) => self.mend_again(ctx, Psn::new(psn)),
            MarkKind::Response(what) => self.rsp.on_unsent(what),
            MarkKind::Repeated(what, limit) => self.rsp.on_unsent_again(what, limit),
            MarkKind::Asked(psn) => self.ask_later(ctx, Psn::new(psn)),
        }
    }

    /// A batch left. Unreliable services complete what they have sent.
    // rule: roce-77
    pub(crate) fn on_sent(&mut self, ctx: &mut Ctx<'_>) {
        if !self.id.kind.is_reliable() {
            self.ack_all_sent(ctx);
        }
    }

    /// Only an acknowledgement is due: it may wait for the next pass and share a send with data.
    pub(crate) fn make_ready_for_ack(&mut self, ctx: &mut Ctx<'_>) {
        if !self.ack_queued {
            self.ack_queued = true;
            ctx.acks.push_back(self.id.slot);
        }
    }

    /// Asks which process has the peer's number now.
    pub(crate) fn ask_port(&self, ctx: &mut Ctx<'_>) {
        if let Some(addr) = self.conn.remote_ip {
            let lookup = Lookup::of(addr, self.conn.remote_qpn);
            ctx.ports.ask(lookup, self.id.slot);
        }
    }

    /// Puts the QP into the ready list, once.
    pub(crate) fn make_ready(&mut self, ctx: &mut Ctx<'_>) {
        if !self.queued {
            self.queued = true;
            ctx.ready.push_back(Turn {
                qp: self.id.slot,
                waited: None,
            });
        }
    }
}
