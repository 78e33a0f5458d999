//! A device without sockets whose program is the oracle: memory, control queue, one queue pair.
//!
//! ```text
//! Node ── WireLink ──► join(a, b) ──► WireLink ── Node       lossless, in memory, manual clock
//! ```

use srdma_core::hca::board::Doorbell;
use srdma_core::hca::{Acks, Hca, HcaConfig, LocalAddr};
use srdma_core::hw::cqp::{CqCmd, CqpCmd, CreateAeq, CreateCeq, QpCmd, RegMr};
use srdma_core::hw::{HwQpState, HwQpType, QpContext};
use srdma_core::mem::{Access, HostBuf, Sge};
use srdma_core::num::{CeqId, CqId, Lkey, MsixVector, PdId, Pkey, Psn, Qpn, Rkey};
use srdma_core::qp::attr::AttrMask;
use srdma_core::ring::{CqpWqe, Producer};
use srdma_core::time::Instant;
use srdma_core::tx::TxArena;
use srdma_net::wire_link::{LINK_CAPACITY, WireLink};
use srdma_oracle::{Caps, OracleCq, OracleQp};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

const CQ: CqId = CqId(3);
const CEQ: CeqId = CeqId(0);
const PD: PdId = PdId(7);
const RIGHTS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::MW_BIND);

pub(crate) struct Node {
    pub(crate) hca: Hca,
    pub(crate) qp: OracleQp,
    pub(crate) cq: OracleCq,
    pub(crate) mem: Arc<HostBuf>,
    pub(crate) stag: u32,
    ip: IpAddr,
    arena: TxArena,
    link: Arc<WireLink>,
    cqp: Producer<CqpWqe>,
    context: Arc<HostBuf>,
    now: Instant,
}

impl Node {
    /// The `number`th device: one region of `bytes` bytes, one CQ (of 64-byte slots if `wide`),
    /// one queue pair in RESET.
    pub(crate) fn new(number: u8, bytes: usize, (cq_size, wide): (u32, bool), caps: Caps) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, number));
        let source_port = 0xc000 + u16::from(number);
        let mut config = HcaConfig::default();
        config.addrs = vec![LocalAddr { ip, source_port }];
        let mut hca = Hca::new(config);
        let ring = HostBuf::new(64 * 64).unwrap();
        hca.host_mut().insert_ring(Arc::clone(&ring));
        hca.attach_cqp(ring.addr(), 64).unwrap();
        let qp = OracleQp::new(0x100 + u32::from(number), caps);
        let mut cq = OracleCq::new(CQ.0, cq_size, wide);
        cq.attach(&qp);
        let context = HostBuf::new(256).unwrap();
        for buf in [cq.ring(), cq.shadow_buf(), qp.rings(), &context] {
            hca.host_mut().insert_ring(Arc::clone(buf));
        }
        let mut node = Self {
            hca,
            qp,
            cq,
            mem: HostBuf::new(bytes).unwrap(),
            stag: u32::from(number) << 12 | 0x5a,
            ip,
            arena: TxArena::new().unwrap(),
            link: WireLink::new(&[SocketAddr::new(ip, source_port)], LINK_CAPACITY, true),
            cqp: Producer::new(ring.words(), 64, 64).unwrap(),
            context,
            now: Instant(1),
        };
        node.create_objects();
        node
    }

    fn create_objects(&mut self) {
        let rings = HostBuf::new(2 * 4096).unwrap();
        self.hca.host_mut().insert_ring(Arc::clone(&rings));
        let vector = MsixVector(1);
        self.command(&CqpCmd::CreateAeq(CreateAeq {
            entries: 64,
            addr: rings.addr(),
            vector: MsixVector(0),
        }));
        self.command(&CqpCmd::CreateCeq(CreateCeq {
            id: CEQ,
            entries: 64,
            addr: rings.addr() + 4096,
            vector,
        }));
        self.hca.enable_vector(vector);
        let pbl = self.hca.host_mut().insert_region(self.mem.range());
        self.command(&CqpCmd::RegMr(RegMr {
            stag: self.stag,
            pd: PD,
            va: self.mem.addr(),
            len: self.mem.len() as u64,
            access: RIGHTS,
            pbl,
        }));
        let (size, addr) = (self.cq.size(), self.cq.ring().addr());
        self.command(&CqpCmd::CreateCq(CqCmd {
            id: CQ,
            ceq: Some(CEQ),
            cookie: 0x2000,
            size,
            threshold: size / 2,
            addr,
            shadow_addr: self.cq.shadow_buf().addr(),
            check_overflow: true,
            wide: self.cq.is_wide(),
            timestamps: false,
        }));
        let attrs = self.attributes(self);
        self.qp_command(true, HwQpState::INVALID, AttrMask::NONE, &attrs);
    }

    fn attributes(&self, peer: &Self) -> QpContext {
        QpContext {
            qp_type: HwQpType::RC,
            sq_addr: self.qp.sq_addr(),
            sq_quanta: self.qp.sq_quanta(),
            rq_addr: self.qp.rq_addr(),
            rq_wqes: self.qp.rq_wqes(),
            rq_shift: self.qp.rq_shift(),
            send_cq: CQ,
            recv_cq: CQ,
            pd: PD,
            completion_context: self.qp.context(),
            dest_qpn: Qpn::new(peer.qp.qpn()),
            dest_ip: peer.ip,
            local_ip: self.ip,
            path_mtu: 1024,
            pkey: Pkey(0xffff),
            // Both wrap soon.
            sq_psn: Psn::new(0x00ff_ff00 + self.qp.qpn()),
            rq_psn: Psn::new(0x00ff_ff00 + peer.qp.qpn()),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 8,
            max_dest_rd_atomic: 8,
            access: RIGHTS,
            hop_limit: 64,
            ..QpContext::default()
        }
    }

    fn qp_command(&mut self, create: bool, state: HwQpState, mask: AttrMask, attrs: &QpContext) {
        let words = self.context.words();
        for (at, word) in attrs.encode().into_iter().enumerate() {
            words.store(at, word);
        }
        let cmd = QpCmd {
            qpn: Qpn::new(self.qp.qpn()),
            qp_type: HwQpType::RC,
            next_state: state,
            mask,
            ctx_addr: self.context.addr(),
            shadow_addr: self.qp.shadow_addr(),
        };
        self.command(&if create {
            CqpCmd::CreateQp(cmd)
        } else {
            CqpCmd::ModifyQp(cmd)
        });
    }

    /// Executes one control command, which must succeed.
    pub(crate) fn command(&mut self, cmd: &CqpCmd) {
        self.cqp.try_push(CqpWqe(cmd.encode())).unwrap();
        self.hca.ring(self.now, Doorbell::Cqp);
        self.cqp.release(1);
        assert_eq!(self.hca.counters().cqp_errors, 0, "{cmd:?}");
    }

    /// RESET to RTS, towards the peer.
    pub(crate) fn connect(&mut self, peer: &Self) {
        let attrs = self.attributes(peer);
        let init = AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        let rtr = AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        let rts = AttrMask::SQ_PSN
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::MAX_QP_RD_ATOMIC;
        self.qp_command(false, HwQpState::IDLE, init, &attrs);
        self.qp_command(false, HwQpState::RTR, rtr, &attrs);
        self.qp_command(false, HwQpState::RTS, rts, &attrs);
    }

    /// To ERR: everything outstanding is flushed.
    pub(crate) fn fail(&mut self) {
        let attrs = self.attributes(self);
        self.qp_command(false, HwQpState::ERROR, AttrMask::NONE, &attrs);
    }

    pub(crate) const fn pd() -> PdId {
        PD
    }

    /// The region's key for a peer.
    pub(crate) const fn rkey(&self) -> Rkey {
        Rkey(self.stag)
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        assert!(at + len <= self.mem.len());
        Sge {
            addr: self.mem.addr() + at as u64,
            len: u32::try_from(len).unwrap(),
            lkey: Lkey(self.stag),
        }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        self.mem.range().write(at, bytes).unwrap();
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mem.range().read(at, &mut bytes).unwrap();
        bytes
    }

    /// Hands the oracle's doorbells to the device.
    pub(crate) fn doorbells(&mut self) {
        let rung = self.qp.take_doorbell();
        if rung != 0 {
            self.hca.ring(self.now, Doorbell::Sq(Qpn::new(rung)));
        }
        let armed = self.cq.take_doorbell();
        if armed != 0 {
            self.hca.ring(self.now, Doorbell::Cq(CqId(armed)));
        }
    }

    /// The event was taken.
    pub(crate) fn acknowledge(&mut self) {
        self.hca.ring(self.now, Doorbell::CqAck(CQ));
        self.hca.ring(self.now, Doorbell::Irq(MsixVector(1)));
    }

    /// Receives, sends, raises; true if anything moved.
    fn pass(&mut self, now: Instant, peer: &WireLink) -> bool {
        self.now = now;
        self.doorbells();
        let mut moved = false;
        while let Some((meta, bytes)) = self.link.receive() {
            self.hca.handle_datagram(now, &meta, &bytes);
            moved = true;
        }
        if self.hca.poll_timeout().is_some_and(|at| at <= now) {
            self.hca.handle_timeout(now);
        }
        while let Some(batch) = self.hca.poll_transmit(now, &mut self.arena, Acks::Send) {
            let (token, sent) = (batch.token, self.link.send(&batch));
            self.hca
                .handle_transmitted(now, &self.arena, token, sent.runs);
            moved = true;
            if sent.blocked {
                break;
            }
        }
        while self.hca.poll_interrupt(now).is_some() {}
        while let Some(datagram) = self.link.take() {
            peer.deliver(datagram);
        }
        moved
    }
}

/// Lets both devices work until nothing moves. If nothing moved at all, time goes on to the next
/// deadline.
pub(crate) fn join(a: &mut Node, b: &mut Node) {
    let mut idle = true;
    loop {
        let now = a.now.after(1000);
        let (to_a, to_b) = (Arc::clone(&a.link), Arc::clone(&b.link));
        let moved = a.pass(now, &to_b) | b.pass(now, &to_a);
        if !moved {
            break;
        }
        idle = false;
    }
    if idle {
        let deadlines = [a.hca.poll_timeout(), b.hca.poll_timeout()];
        if let Some(at) = deadlines.into_iter().flatten().min() {
            a.now = a.now.max(at);
        }
    }
}
