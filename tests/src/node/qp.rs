//! Queue pairs, completion and shared receive queues, as a driver keeps them.
//!
//! Creating and modifying; what is posted and what completes is in `post.rs`.

use super::{CQ, Node, PD};
use srdma_core::hca::board::Doorbell;
use srdma_core::hw::cqe::FlushCode;
use srdma_core::hw::cqp::{CqCmd, ModifySrq, QpCmd, SrqCmd, XrcHome};
use srdma_core::hw::wqe::WqeBuf;
use srdma_core::hw::{CqeInfo, CqpCmd, HwQpState, HwQpType, QpContext, Sge};
use srdma_core::mem::{Access, HostBuf};
use srdma_core::num::{CeqId, CqId, PdId, Pkey, Psn, Qkey, Qpn, SrqId, XrcdId};
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_core::ring::{CqConsumer, CqShadow, RqProducer, SqProducer, SrqShadow};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// What a queue pair is to be; the attributes that a modify takes over are read from here too.
#[derive(Clone, Debug)]
pub struct QpSpec {
    /// Transport.
    pub kind: HwQpType,
    /// Its number; 0 for any.
    pub qpn: u32,
    /// Domain.
    pub pd: PdId,
    /// CQ of the send queue.
    pub send_cq: CqId,
    /// CQ of the receive queue.
    pub recv_cq: CqId,
    /// Quanta of the send queue.
    pub sq_quanta: u32,
    /// Entries of the receive queue.
    pub rq_wqes: u32,
    /// Shared receive queue instead.
    pub srq: Option<SrqId>,
    /// XRC domain of a target.
    pub xrcd: Option<XrcdId>,
    /// The peer.
    pub peer: IpAddr,
    /// Its queue pair.
    pub peer_qpn: u32,
    /// Path MTU in bytes.
    pub mtu: u16,
    /// First PSN to send.
    pub sq_psn: u32,
    /// First PSN to expect.
    pub rq_psn: u32,
    /// ACK timeout code.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding as requester.
    pub ord: u8,
    /// As responder.
    pub ird: u8,
    /// Rights of the peer.
    pub access: Access,
    /// Q_Key.
    pub qkey: u32,
    /// P_Key.
    pub pkey: u16,
    /// Bytes that the peer's socket holds, known of our own kind alone; 0 if it is not.
    pub peer_rx: u32,
}

impl Default for QpSpec {
    fn default() -> Self {
        Self {
            kind: HwQpType::RC,
            qpn: 0,
            pd: PD,
            send_cq: CQ,
            recv_cq: CQ,
            sq_quanta: 1024,
            rq_wqes: 64,
            srq: None,
            xrcd: None,
            peer: IpAddr::from([10, 0, 0, 2]),
            peer_qpn: 0x22,
            mtu: 1024,
            sq_psn: 0x100,
            rq_psn: 0x200,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            ord: 16,
            ird: 16,
            access: Access::REMOTE_WRITE
                .union(Access::REMOTE_READ)
                .union(Access::REMOTE_ATOMIC)
                .union(Access::FLUSH_GLOBAL),
            qkey: 0x1234_5678,
            pkey: 0xffff,
            peer_rx: 0,
        }
    }
}

impl QpSpec {
    /// Connected to a device of our own kind.
    #[must_use]
    pub const fn own_kind(mut self) -> Self {
        self.peer_rx = 1 << 20;
        self
    }
}

/// A completion, as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// The queue pair.
    pub qpn: Qpn,
    /// Of the send queue.
    pub sq: bool,
    /// Number of the request in its queue, from 0.
    pub wr_id: u64,
    /// `None` for success.
    pub status: Option<FlushCode>,
    /// The entry it came from.
    pub cqe: CqeInfo,
}

/// A CQ, driver's side.
#[derive(Debug)]
pub(super) struct CqEnd {
    pub(super) ring: CqConsumer,
}

/// A shared receive queue, driver's side.
#[derive(Debug)]
pub(super) struct SrqEnd {
    ring: RqProducer,
    shadow: SrqShadow,
    next: u64,
}

/// One request that was posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) index: u32,
    pub(super) after: u32,
    pub(super) wr_id: u64,
}

/// A queue pair, driver's side.
#[derive(Debug)]
pub(super) struct QpEnd {
    pub(super) spec: QpSpec,
    pub(super) sq_buf: Arc<HostBuf>,
    rq_buf: Arc<HostBuf>,
    shadow: u64,
    pub(super) sq: SqProducer,
    pub(super) rq: RqProducer,
    pub(super) sends: VecDeque<Posted>,
    pub(super) recvs: VecDeque<Posted>,
    pub(super) next_send: u64,
    pub(super) next_recv: u64,
}

/// Receives have room for thirteen fragments.
pub(super) const RQ_SHIFT: u8 = 3;

/// The attributes that take a queue pair of this type from one state to the next.
#[must_use]
pub fn required(spec: &QpSpec, from: QpState, to: QpState) -> AttrMask {
    use srdma_core::qp::attr::{QpType, transition};
    let kind = match (spec.kind, spec.qpn) {
        (HwQpType::RC, _) => QpType::Rc,
        (HwQpType::UC, _) => QpType::Uc,
        (HwQpType::XRC_SEND, _) => QpType::XrcSend,
        (HwQpType::XRC_RECV, _) => QpType::XrcRecv,
        (_, 1) => QpType::Gsi,
        _ => QpType::Ud,
    };
    transition(kind, from, to).map_or(AttrMask::NONE, |row| row.required)
}

impl Node {
    /// Creates a CQ with `size` slots of 32 bytes, on CEQ 0; its cookie is 0x1000 times its id.
    pub fn create_cq(&mut self, id: CqId, size: u32) {
        let ring = self.ring_memory(size as usize * 32);
        let shadow = self.ring_memory(64);
        self.ok(CqpCmd::CreateCq(CqCmd {
            id,
            ceq: Some(CeqId(0)),
            cookie: 0x1000 * u64::from(id.0),
            size,
            threshold: size / 2,
            addr: ring.addr(),
            shadow_addr: shadow.addr(),
            check_overflow: true,
            wide: false,
            timestamps: false,
        }));
        let shadow = CqShadow::new(shadow.words()).unwrap();
        let ring = CqConsumer::new(ring.words(), size, false, shadow).unwrap();
        self.cqs.insert(id.0, CqEnd { ring });
    }

    /// Creates a shared receive queue of `wqes` entries.
    pub fn create_srq(&mut self, wqes: u32, limit: u32) -> SrqId {
        self.create_srq_of(wqes, limit, PD, None)
    }

    /// Creates a shared receive queue of a domain; with an XRC domain and a CQ one of XRC.
    pub fn create_srq_of(
        &mut self,
        wqes: u32,
        limit: u32,
        pd: PdId,
        xrc: Option<XrcHome>,
    ) -> SrqId {
        let cmd = self.prepare_srq(wqes, limit, pd, xrc);
        self.ok(CqpCmd::CreateSrq(cmd));
        cmd.id
    }

    /// The command that creates a shared receive queue, its ring in memory.
    pub fn prepare_srq(&mut self, wqes: u32, limit: u32, pd: PdId, xrc: Option<XrcHome>) -> SrqCmd {
        let id = SrqId(self.fresh_id());
        let ring = self.ring_memory(wqes as usize * 256);
        let shadow = self.ring_memory(64);
        let cmd = SrqCmd {
            id,
            pd,
            context: 0x5000 + u64::from(id.0),
            wqes,
            shift: RQ_SHIFT,
            addr: ring.addr(),
            shadow_addr: shadow.addr(),
            limit,
            xrc,
        };
        let end = SrqEnd {
            ring: RqProducer::new(ring.words(), wqes, RQ_SHIFT).unwrap(),
            shadow: SrqShadow::new(shadow.words()).unwrap(),
            next: 0,
        };
        self.srqs.insert(id.0, end);
        cmd
    }

    /// Arms a shared queue's limit.
    pub fn arm_srq(&mut self, id: SrqId, limit: u32) {
        self.ok(CqpCmd::ModifySrq(ModifySrq {
            id,
            limit,
            ring: None,
        }));
    }

    /// Posts to a shared queue; the completion's wr_id counts them from 0.
    pub fn post_srq(&mut self, id: SrqId, sges: &[Sge]) {
        let end = self.srqs.get_mut(&id.0).unwrap();
        let mut wqe = WqeBuf::new();
        wqe.recv(sges, Some(end.next)).unwrap();
        end.next += 1;
        end.ring.push(&wqe).unwrap();
        end.shadow.store_head(end.ring.head());
        self.hca.ring(self.now, Doorbell::Srq(id));
    }

    /// Creates a queue pair, in RESET.
    pub fn create(&mut self, spec: &QpSpec) -> Qpn {
        let cmd = self.prepare(spec);
        self.ok(CqpCmd::CreateQp(cmd));
        cmd.qpn
    }

    /// The command that creates a queue pair, its rings and context in memory.
    pub fn prepare(&mut self, spec: &QpSpec) -> QpCmd {
        let mut spec = spec.clone();
        if spec.qpn == 0 {
            spec.qpn = self.fresh_id();
        }
        let qpn = Qpn::new(spec.qpn);
        let sq_buf = self.ring_memory(spec.sq_quanta as usize * 32);
        let rq_buf = self.ring_memory(spec.rq_wqes as usize * 256);
        let shadow = self.ring_memory(64).addr();
        let end = QpEnd {
            sq: SqProducer::new(sq_buf.words(), spec.sq_quanta).unwrap(),
            rq: RqProducer::new(rq_buf.words(), spec.rq_wqes, RQ_SHIFT).unwrap(),
            spec,
            sq_buf,
            rq_buf,
            shadow,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            next_send: 0,
            next_recv: 0,
        };
        self.qps.insert(qpn.value(), end);
        self.qp_cmd(qpn, QpState::Reset, AttrMask::NONE)
    }

    /// What is asked of a queue pair, to be changed before the next modify.
    pub fn spec_mut(&mut self, qpn: Qpn) -> &mut QpSpec {
        &mut self.qps.get_mut(&qpn.value()).unwrap().spec
    }

    /// A QP command, its context written to memory.
    pub fn qp_cmd(&mut self, qpn: Qpn, to: QpState, mask: AttrMask) -> QpCmd {
        let end = self.qps.get(&qpn.value()).unwrap();
        let spec = &end.spec;
        let context = QpContext {
            qp_type: spec.kind,
            sq_addr: end.sq_buf.addr(),
            sq_quanta: spec.sq_quanta,
            rq_addr: if spec.srq.is_some() {
                0
            } else {
                end.rq_buf.addr()
            },
            rq_wqes: spec.rq_wqes,
            rq_shift: RQ_SHIFT,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
            pd: spec.pd,
            srq: spec.srq,
            xrcd: spec.xrcd,
            completion_context: 0x7000_0000 + u64::from(qpn.value()),
            dest_qpn: Qpn::new(spec.peer_qpn),
            dest_ip: spec.peer,
            local_ip: self.ip,
            path_mtu: spec.mtu,
            peer_rx: spec.peer_rx,
            pkey: Pkey(spec.pkey),
            qkey: Qkey(spec.qkey),
            sq_psn: Psn::new(spec.sq_psn),
            rq_psn: Psn::new(spec.rq_psn),
            timeout: spec.timeout,
            retry_cnt: spec.retry_cnt,
            rnr_retry: spec.rnr_retry,
            min_rnr_timer: spec.min_rnr_timer,
            max_rd_atomic: spec.ord,
            max_dest_rd_atomic: spec.ird,
            access: spec.access,
            hop_limit: 64,
            ..QpContext::default()
        };
        let words = self.context.words();
        for (at, word) in context.encode().into_iter().enumerate() {
            words.store(at, word);
        }
        QpCmd {
            qpn,
            qp_type: spec.kind,
            next_state: match to {
                QpState::Reset => HwQpState::INVALID,
                QpState::Init => HwQpState::IDLE,
                QpState::Rtr => HwQpState::RTR,
                QpState::Rts => HwQpState::RTS,
                QpState::Sqd => HwQpState::SQD,
                QpState::Sqe => HwQpState::SQE,
                QpState::Err => HwQpState::ERROR,
            },
            mask: mask.with(AttrMask::STATE),
            ctx_addr: self.context.addr(),
            shadow_addr: end.shadow,
        }
    }

    /// Modifies a queue pair; true if the device did it.
    pub fn modify(&mut self, qpn: Qpn, to: QpState, mask: AttrMask) -> bool {
        let cmd = self.qp_cmd(qpn, to, mask);
        let done = self.cmd(CqpCmd::ModifyQp(cmd)).is_ok();
        if done && to == QpState::Reset {
            self.forget(qpn);
        }
        done
    }

    /// A queue pair that was reset has empty queues.
    fn forget(&mut self, qpn: Qpn) {
        let end = self.qps.get_mut(&qpn.value()).unwrap();
        for buf in [&end.sq_buf, &end.rq_buf] {
            let words = buf.words();
            (0..words.len()).for_each(|at| words.store(at, 0));
        }
        end.sq = SqProducer::new(end.sq_buf.words(), end.spec.sq_quanta).unwrap();
        end.rq = RqProducer::new(end.rq_buf.words(), end.spec.rq_wqes, RQ_SHIFT).unwrap();
        end.sends.clear();
        end.recvs.clear();
    }

    /// Takes a queue pair from RESET to RTS.
    #[track_caller]
    pub fn connect(&mut self, qpn: Qpn) {
        self.climb(qpn, QpState::Rts);
    }

    /// Takes a queue pair from RESET up to `to`.
    #[track_caller]
    pub fn climb(&mut self, qpn: Qpn, to: QpState) {
        let spec = self.spec_mut(qpn).clone();
        let ladder = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for step in ladder.windows(2) {
            let &[from, next] = step else { continue };
            let mask = required(&spec, from, next);
            assert!(self.modify(qpn, next, mask), "{qpn:?} to {next}");
            if next == to {
                return;
            }
        }
    }

    /// Creates a queue pair and takes it to RTS.
    #[track_caller]
    pub fn connected(&mut self, spec: &QpSpec) -> Qpn {
        let qpn = self.create(spec);
        self.connect(qpn);
        qpn
    }

    /// The state of a queue pair.
    #[must_use]
    #[track_caller]
    pub fn state(&self, qpn: Qpn) -> QpState {
        self.hca.qp_state(qpn).unwrap()
    }
}
