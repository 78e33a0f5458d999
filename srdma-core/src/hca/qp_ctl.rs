//! Commands about queue pairs: create, modify, destroy, flush.
//!
//! A command that is refused changes nothing. Attributes come in a 256-byte context in memory; the
//! mask of the command says which of them count. [E810 6.1, 7.2; RoCEv2 4.1]

use super::{Device, Hca};
use crate::cqp::Refusal;
use crate::hw::cqe::FlushCode;
use crate::hw::cqp::{CqpMinor, FlushWqes, QpCmd};
use crate::hw::qp_ctx::{HwQpState, HwQpType, QP_CTX_BYTES, QpContext};
use crate::limits::{MAX_PSN_WINDOW, MAX_RD_ATOMIC};
use crate::mem::HostFault;
use crate::num::{Psn, Qpn};
use crate::obj::table::{Slot, Table};
use crate::qp::attr::{self, AttrMask, QpState, QpType};
use crate::qp::{Conn, Ident, Qp, Requester, Responder};
use crate::ring::{RqConsumer, SqConsumer};
use crate::time::Instant;
use crate::tx::path::PathKey;
use crate::wire::flow::ROCE_PORT;
use std::net::SocketAddr;

type Outcome = Result<(), Refusal>;

/// Quanta of 32 bytes in a ring become bytes.
const QUANTUM_BYTES: usize = 32;

const fn refuse(minor: CqpMinor) -> Refusal {
    Refusal(minor)
}

const fn bad_memory(_: HostFault) -> Refusal {
    Refusal(CqpMinor::INVALID_COMMAND)
}

/// The verbs state that a command names.
pub(crate) const fn state_of(hw: HwQpState) -> Option<QpState> {
    match hw {
        HwQpState::INVALID => Some(QpState::Reset),
        HwQpState::IDLE => Some(QpState::Init),
        HwQpState::RTR => Some(QpState::Rtr),
        HwQpState::RTS => Some(QpState::Rts),
        HwQpState::SQD => Some(QpState::Sqd),
        HwQpState::SQE => Some(QpState::Sqe),
        HwQpState::ERROR => Some(QpState::Err),
        _ => None,
    }
}

/// The state as the E810 numbers it.
pub(crate) const fn hw_state(state: QpState) -> HwQpState {
    match state {
        QpState::Reset => HwQpState::INVALID,
        QpState::Init => HwQpState::IDLE,
        QpState::Rtr => HwQpState::RTR,
        QpState::Rts => HwQpState::RTS,
        QpState::Sqd => HwQpState::SQD,
        QpState::Sqe => HwQpState::SQE,
        QpState::Err => HwQpState::ERROR,
    }
}

impl Device {
    fn context(&self, addr: u64) -> Result<QpContext, Refusal> {
        let words = self.host.words(addr, QP_CTX_BYTES).map_err(bad_memory)?;
        let mut copy = [0u64; QP_CTX_BYTES / 8];
        for (at, word) in copy.iter_mut().enumerate() {
            *word = words.load(at);
        }
        Ok(QpContext::decode(&copy))
    }

    fn build_qp(&self, cmd: &QpCmd, ctx: &QpContext) -> Result<Box<Qp>, Refusal> {
        let kind = match (ctx.qp_type, cmd.qpn) {
            (HwQpType::RC, _) => QpType::Rc,
            (HwQpType::UC, _) => QpType::Uc,
            (HwQpType::XRC_SEND, _) => QpType::XrcSend,
            (HwQpType::XRC_RECV, _) => QpType::XrcRecv,
            (HwQpType::UD | HwQpType::UDA, Qpn::GSI) => QpType::Gsi,
            (HwQpType::UDA, Qpn::IEQ) => QpType::Ud,
            (HwQpType::UD, _) => QpType::Ud,
            _ => return Err(refuse(CqpMinor::INVALID_COMMAND)),
        };
        if cmd.qpn.value() == 0 || cmd.qpn == Qpn::MULTICAST {
            return Err(refuse(CqpMinor::INVALID_COMMAND));
        }
        let missing = || refuse(CqpMinor::INVALID_ID);
        let send_cq = self.cqs.slot(ctx.send_cq).ok_or_else(missing)?;
        let recv_cq = self.cqs.slot(ctx.recv_cq).ok_or_else(missing)?;
        let srq = match ctx.srq {
            Some(id) => Some(self.srqs.slot(id).ok_or_else(missing)?),
            None => None,
        };
        self.check_xrc(kind, ctx, srq)?;
        let sq_bytes = ctx.sq_quanta as usize * QUANTUM_BYTES;
        let sq = self.host.words(ctx.sq_addr, sq_bytes).map_err(bad_memory)?;
        let sq =
            SqConsumer::new(sq, ctx.sq_quanta).map_err(|_| refuse(CqpMinor::INVALID_COMMAND))?;
        let rq = if srq.is_some() || kind.is_xrc() {
            None
        } else {
            let bytes = (ctx.rq_wqes as usize * QUANTUM_BYTES) << ctx.rq_shift.min(3);
            let words = self.host.words(ctx.rq_addr, bytes).map_err(bad_memory)?;
            let ring = RqConsumer::new(words, ctx.rq_wqes, ctx.rq_shift);
            Some(ring.map_err(|_| refuse(CqpMinor::INVALID_COMMAND))?)
        };
        Ok(Box::new(Qp {
            id: Ident {
                slot: Slot::NONE,
                qpn: cmd.qpn,
                kind,
                pd: ctx.pd,
                send_cq,
                recv_cq,
                srq,
                xrcd: ctx.xrcd,
                cookie: ctx.completion_context,
                raw: ctx.qp_type == HwQpType::UDA,
            },
            state: QpState::Reset,
            conn: Conn {
                mtu: u32::from(self.port.mtu.bytes()),
                ..Conn::default()
            },
            sq,
            rq,
            req: Requester::new(),
            rsp: Responder::new(),
            timer: super::timer::TimerState::default(),
            queued: false,
            ack_queued: false,
            ack_late_queued: false,
            notify_drained: false,
            established: false,
            early: None,
            captured: None,
        }))
    }

    /// A target has a domain and nobody else has one; receives of XRC queues go to targets only,
    /// by the number in each request.
    // rule: xrc-10
    fn check_xrc(&self, kind: QpType, ctx: &QpContext, srq: Option<Slot>) -> Outcome {
        let basic =
            srq.is_none_or(|slot| self.srqs.get(slot).is_none_or(|srq| srq.xrc().is_none()));
        let fits = ctx.xrcd.is_some() == (kind == QpType::XrcRecv);
        if fits && basic && !(kind.is_xrc() && srq.is_some()) {
            Ok(())
        } else {
            Err(refuse(CqpMinor::INVALID_COMMAND))
        }
    }

    /// Takes over the attributes that `mask` names.
    fn apply(&mut self, qp: &mut Qp, mask: AttrMask, ctx: &QpContext, now: Instant) -> Outcome {
        if mask.contains(AttrMask::AV) {
            // What is in flight was charged to the peer of the path so far.
            let una = qp.req.una;
            qp.rewind(&mut self.ctx(now), una);
            self.connect(qp, ctx)?;
        }
        if mask.contains(AttrMask::RQ_PSN) {
            qp.discard_early(&mut self.ctx(now));
        }
        let conn = &mut qp.conn;
        if mask.contains(AttrMask::PATH_MTU) {
            conn.mtu = u32::from(ctx.path_mtu);
        }
        if mask.contains(AttrMask::DEST_QPN) {
            conn.remote_qpn = ctx.dest_qpn;
        }
        if mask.contains(AttrMask::PKEY_INDEX) {
            conn.pkey = ctx.pkey;
        }
        if mask.contains(AttrMask::QKEY) {
            conn.qkey = ctx.qkey;
        }
        if mask.contains(AttrMask::ACCESS_FLAGS) {
            conn.access = ctx.access;
        }
        if mask.contains(AttrMask::MIN_RNR_TIMER) {
            conn.min_rnr_timer = ctx.min_rnr_timer;
        }
        if mask.contains(AttrMask::TIMEOUT) {
            conn.timeout = ctx.timeout;
        }
        if mask.contains(AttrMask::RETRY_CNT) {
            conn.retry_cnt = ctx.retry_cnt;
            qp.req.retries_left = conn.retry_cnt;
        }
        if mask.contains(AttrMask::RNR_RETRY) {
            conn.rnr_retry = ctx.rnr_retry;
            qp.req.rnr_left = conn.rnr_retry;
        }
        if mask.contains(AttrMask::MAX_QP_RD_ATOMIC) {
            conn.max_rd_atomic = ctx.max_rd_atomic;
        }
        if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
            conn.max_dest_rd_atomic = ctx.max_dest_rd_atomic;
            qp.rsp.replies.set_depth(conn.max_dest_rd_atomic);
        }
        if mask.contains(AttrMask::SQ_PSN) {
            qp.req.start_at(ctx.sq_psn);
        }
        if mask.contains(AttrMask::RQ_PSN) {
            qp.rsp.reset(ctx.rq_psn, conn.max_dest_rd_atomic);
        }
        qp.req.read_chunk = read_chunk(self.read_credit.limit(), conn.mtu, conn.max_rd_atomic);
        if mask.contains(AttrMask::AV) || mask.contains(AttrMask::DEST_QPN) {
            qp.ask_port(&mut self.ctx(now));
        }
        Ok(())
    }

    /// Finds the local address of the GID and interns the path.
    fn connect(&mut self, qp: &mut Qp, ctx: &QpContext) -> Outcome {
        let entry = *self
            .port
            .gids
            .get(ctx.gid_index)
            .ok_or(refuse(CqpMinor::INVALID_COMMAND))?;
        if entry.addr.is_ipv4() != ctx.dest_ip.is_ipv4() {
            return Err(refuse(CqpMinor::INVALID_COMMAND));
        }
        let key = PathKey {
            target: SocketAddr::new(ctx.dest_ip, ROCE_PORT),
            local: entry.addr,
            // rule: roce-3
            source_port: entry.tx_port,
            tclass: ctx.traffic_class,
            hop_limit: if ctx.hop_limit == 0 {
                64
            } else {
                ctx.hop_limit
            },
        };
        qp.conn.peer_rx = self.heard(ctx.peer_rx);
        self.lead(qp, key);
        Ok(())
    }

    /// Forgets everything but what the queue pair was created with.
    // rule: roce-131
    fn reset(&mut self, qp: &mut Qp, now: Instant) {
        let mut ctx = self.ctx(now);
        qp.drop_in_flight(&mut ctx);
        // Type 2 windows belong to this life of the queue pair.
        ctx.regions.free_windows_of(qp.id.qpn);
        self.disconnect(qp);
        qp.conn = Conn {
            mtu: u32::from(self.port.mtu.bytes()),
            ..Conn::default()
        };
        qp.req = Requester::new();
        qp.rsp = Responder::new();
        qp.sq.reset();
        if let Some(rq) = qp.rq.as_mut() {
            rq.reset();
        }
        qp.established = false;
        qp.notify_drained = false;
        qp.state = QpState::Reset;
    }
}

/// Packets of one READ request: so much that several overlap, or, where only one may be
/// outstanding, most of what our socket can take.
fn read_chunk(limit: u32, mtu: u32, depth: u8) -> u32 {
    let share = if depth > 1 { limit / 4 } else { limit / 10 * 9 };
    let packets = share / (mtu + super::peer::PACKET_OVERHEAD);
    packets.clamp(1, MAX_PSN_WINDOW / 4)
}

impl Hca {
    pub(crate) fn create_qp(&mut self, cmd: &QpCmd) -> Outcome {
        let ctx = self.dev.context(cmd.ctx_addr)?;
        if self.qps.find(cmd.qpn.value()).is_some() {
            return Err(refuse(CqpMinor::INVALID_ID));
        }
        let qp = self.dev.build_qp(cmd, &ctx)?;
        self.dev.control().hold_pd(ctx.pd)?;
        let inserted = insert(&mut self.qps, qp);
        let slot = inserted.inspect_err(|_| self.dev.control().release_pd(ctx.pd))?;
        if let Some(qp) = self.qps.get_mut(slot) {
            qp.id.slot = slot;
            if qp.id.is_ieq() {
                self.dev.ieq.queue = Some(slot);
            }
        }
        let (send_cq, recv_cq, srq) = self
            .qps
            .get(slot)
            .map_or((Slot::NONE, Slot::NONE, None), |qp| {
                (qp.id.send_cq, qp.id.recv_cq, qp.id.srq)
            });
        self.dev.cqs.add_user(send_cq);
        self.dev.cqs.add_user(recv_cq);
        if let Some(srq) = srq {
            self.dev.srqs.add_user(srq);
        }
        Ok(())
    }

    // rule: roce-129
    // rule: roce-130
    pub(crate) fn modify_qp(&mut self, cmd: &QpCmd, now: Instant) -> Outcome {
        let slot = self
            .qps
            .find(cmd.qpn.value())
            .ok_or(refuse(CqpMinor::INVALID_ID))?;
        let Some(qp) = self.qps.get_mut(slot) else {
            return Err(refuse(CqpMinor::INVALID_ID));
        };
        let to = state_of(cmd.next_state).ok_or(refuse(CqpMinor::INVALID_COMMAND))?;
        let from = qp.state;
        attr::check(qp.id.kind, from, to, cmd.mask)
            .map_err(|_| refuse(CqpMinor::INVALID_COMMAND))?;
        let device = &mut self.dev;
        if matches!(to, QpState::Reset | QpState::Err) {
            device.closing.cancel(slot);
        }
        if to == QpState::Reset {
            device.reset(qp, now);
            return Ok(());
        }
        if to != QpState::Err {
            let ctx = device.context(cmd.ctx_addr)?;
            check_values(device, cmd.mask, &ctx)?;
            device.apply(qp, cmd.mask, &ctx, now)?;
        }
        let mut ctx = device.ctx(now);
        match to {
            QpState::Err => qp.enter_error(&mut ctx),
            QpState::Rts => {
                qp.state = QpState::Rts;
                qp.make_ready(&mut ctx);
            }
            QpState::Sqd => {
                qp.state = QpState::Sqd;
                qp.notify_drained = cmd.mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY)
                    || (from == QpState::Sqd && qp.notify_drained);
                qp.check_drained(&mut ctx);
            }
            other => qp.state = other,
        }
        if to == QpState::Rtr && from != QpState::Rtr {
            qp.established = false;
        }
        qp.set_timer(&mut self.timers);
        Ok(())
    }

    // rule: roce-141, event-48
    pub(crate) fn destroy_qp(&mut self, qpn: Qpn, now: Instant) -> Outcome {
        if self.dev.mcast.is_attached(qpn) {
            return Err(refuse(CqpMinor::IN_USE));
        }
        let mut qp = self
            .qps
            .remove(qpn.value())
            .ok_or(refuse(CqpMinor::INVALID_ID))?;
        self.dev.reset(&mut qp, now);
        if qp.id.is_ieq() {
            self.dev.ieq.queue = None;
        }
        self.dev.events.forget_qp(qpn);
        self.dev.control().release_pd(qp.id.pd);
        self.dev.cqs.remove_user(qp.id.send_cq);
        self.dev.cqs.remove_user(qp.id.recv_cq);
        if let Some(srq) = qp.id.srq {
            self.dev.srqs.remove_user(srq);
        }
        Ok(())
    }

    /// FLUSH_WQES: what was posted since the last flush, or with codes of the caller's.
    pub(crate) fn flush_qp(&mut self, cmd: &FlushWqes, now: Instant) -> Result<CqpMinor, Refusal> {
        let qp = self
            .qps
            .by_number_mut(cmd.qpn.value())
            .ok_or(refuse(CqpMinor::INVALID_ID))?;
        if !matches!(qp.state, QpState::Err | QpState::Sqe) {
            return Err(refuse(CqpMinor::INVALID_STATE));
        }
        let code = |code: FlushCode| {
            if cmd.user_codes {
                code
            } else {
                FlushCode::GENERAL
            }
        };
        let mut ctx = self.dev.ctx(now);
        let sq = cmd.sq.is_some_and(|c| qp.flush_sq(&mut ctx, code(c)));
        let rq = cmd.rq.is_some_and(|c| qp.flush_rq(&mut ctx, code(c)));
        if let Some((ae, source)) = cmd.ae {
            qp.raise(&mut ctx, ae, source, 0);
        }
        Ok(super::control::flushed(sq, rq))
    }

    /// SUSPEND_QP: the send queue drains, and an event says when it has.
    pub(crate) fn suspend_qp(&mut self, qpn: Qpn, now: Instant) -> Outcome {
        let qp = self
            .qps
            .by_number_mut(qpn.value())
            .ok_or(refuse(CqpMinor::INVALID_ID))?;
        if qp.state != QpState::Rts {
            return Err(refuse(CqpMinor::INVALID_STATE));
        }
        qp.state = QpState::Sqd;
        qp.notify_drained = true;
        qp.check_drained(&mut self.dev.ctx(now));
        Ok(())
    }

    /// RESUME_QP: the send queue goes on.
    pub(crate) fn resume_qp(&mut self, qpn: Qpn, now: Instant) -> Outcome {
        let qp = self
            .qps
            .by_number_mut(qpn.value())
            .ok_or(refuse(CqpMinor::INVALID_ID))?;
        if qp.state != QpState::Sqd {
            return Err(refuse(CqpMinor::INVALID_STATE));
        }
        qp.state = QpState::Rts;
        qp.make_ready(&mut self.dev.ctx(now));
        Ok(())
    }
}

fn insert(qps: &mut Table<Box<Qp>>, qp: Box<Qp>) -> Result<Slot, Refusal> {
    if qps.len() >= crate::limits::MAX_QP as usize {
        return Err(refuse(CqpMinor::INVALID_MEMORY));
    }
    qps.insert(qp.id.qpn.value(), qp)
        .map_err(|_| refuse(CqpMinor::INVALID_ID))
}

/// Attributes whose values are out of range refuse the whole command.
fn check_values(device: &Device, mask: AttrMask, ctx: &QpContext) -> Outcome {
    let mtu_ok =
        ctx.path_mtu.is_power_of_two() && (256..=device.port.mtu.bytes()).contains(&ctx.path_mtu);
    let given = |attr: AttrMask, value: u8, most: u8| mask.contains(attr) && value > most;
    if (mask.contains(AttrMask::PATH_MTU) && !mtu_ok)
        || given(AttrMask::TIMEOUT, ctx.timeout, 31)
        || given(AttrMask::RETRY_CNT, ctx.retry_cnt, 7)
        || given(AttrMask::RNR_RETRY, ctx.rnr_retry, 7)
        || given(AttrMask::MIN_RNR_TIMER, ctx.min_rnr_timer, 31)
        || given(AttrMask::MAX_QP_RD_ATOMIC, ctx.max_rd_atomic, MAX_RD_ATOMIC)
        || given(
            AttrMask::MAX_DEST_RD_ATOMIC,
            ctx.max_dest_rd_atomic,
            MAX_RD_ATOMIC,
        )
    {
        return Err(refuse(CqpMinor::INVALID_COMMAND));
    }
    if mask.contains(AttrMask::AV) {
        let entry = device
            .port
            .gids
            .get(ctx.gid_index)
            .ok_or(refuse(CqpMinor::INVALID_COMMAND))?;
        if entry.addr.is_ipv4() != ctx.dest_ip.is_ipv4() || ctx.dest_ip.is_unspecified() {
            return Err(refuse(CqpMinor::INVALID_COMMAND));
        }
    }
    Ok(())
}

impl Requester {
    /// The first PSN to send.
    // rule: roce-44
    pub(crate) fn start_at(&mut self, psn: Psn) {
        self.una = psn;
        self.acked = psn;
        self.sent = psn;
        self.top = psn;
        self.next = psn;
    }
}
