//! A device and the smallest driver half that can drive it, in one thread, with a manual clock.
//!
//! ```text
//! script ─► Node: cmd (CQP, CCQ) · create, connect, post, poll · aes, ces
//!             │ owns                                     in:  inject(datagram)
//!             └► Hca ◄─ now ─ advance                    out: transmit() ─► Heard …
//! ```
//!
//! Everything goes the way a driver goes: commands through the CQP, work through rings, completions
//! out of CQ memory. What leaves the device is checked before a script sees it: it parses, its ICRC
//! is right for the identification that the wire will carry, and it goes to the RoCE port.
//!
//! What this does not do: more than one thread, sockets, or anything twice the way verbs does it
//! (ids are counted up and never used again).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a harness fails loudly"
)]

mod mem;
mod post;
mod qp;

pub use mem::{ALL, Mem, pattern};
pub use qp::{QpSpec, Wc, required};

use crate::wire_dsl::{Frame, Heard};
use bytes::Bytes;
use qp::{CqEnd, QpEnd, SrqEnd};
use srdma_core::hca::board::Doorbell;
use srdma_core::hca::{Acks, Hca, HcaConfig, LocalAddr};
use srdma_core::hw::cqp::{CqCmd, CqpMinor, CreateAeq, CreateCeq};
use srdma_core::hw::{Aeqe, Ceqe, CqpCmd, CqpCompletion};
use srdma_core::mem::HostBuf;
use srdma_core::num::{CeqId, CqId, MsixVector, PdId, Qpn};
use srdma_core::puda::IeqMode;
use srdma_core::ring::{Consumer, CqConsumer, CqShadow, CqpWqe, Producer};
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::tx::TxArena;
use srdma_core::wire::{Ecn, FlowTuple, ROCE_PORT};
use srdma_net::wire_link::{Datagram, WireLink};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The protection domain that everything is in unless a script says otherwise.
pub const PD: PdId = PdId(3);
/// The completion queue that everything completes to unless a script says otherwise.
pub const CQ: CqId = CqId(1);

const CQP_SIZE: u32 = 64;
const EVENTS: u32 = 512;
const AEQ_VECTOR: MsixVector = MsixVector(0);
const CEQ_VECTOR: MsixVector = MsixVector(1);

/// One device with its driver.
#[derive(Debug)]
pub struct Node {
    /// The device.
    pub hca: Hca,
    /// The time that the device is told.
    pub now: Instant,
    /// Its address.
    pub ip: IpAddr,
    /// Its UDP source port.
    pub port: u16,
    arena: TxArena,
    link: Arc<WireLink>,
    cqp: Producer<CqpWqe>,
    ccq: CqConsumer,
    aeq: Consumer<Aeqe>,
    ceq: Consumer<Ceqe>,
    context: Arc<HostBuf>,
    next_id: u32,
    cqs: BTreeMap<u32, CqEnd>,
    qps: BTreeMap<u32, QpEnd>,
    srqs: BTreeMap<u32, SrqEnd>,
}

impl Node {
    /// A device at `ip` with a CQ ([`CQ`]) of 8192 entries, that keeps no packets out of order: so
    /// most scripts expect it.
    #[must_use]
    pub fn new(ip: &str) -> Self {
        Self::with(ip, classic())
    }

    /// The same, as programs have it: packets out of order are kept.
    #[must_use]
    pub fn keeping(ip: &str) -> Self {
        Self::with(ip, HcaConfig::default())
    }

    /// A device at `ip` with other settings; its address is filled in.
    #[must_use]
    pub fn with(ip: &str, mut config: HcaConfig) -> Self {
        let ip: IpAddr = ip.parse().expect("an address");
        let port = 0xc000 + u16::from(last_byte(ip));
        config.addrs = vec![LocalAddr {
            ip,
            source_port: port,
        }];
        let mut hca = Hca::new(config);
        let ring = |hca: &mut Hca, bytes: usize| {
            let buf = HostBuf::new(bytes).expect("memory");
            hca.host_mut().insert_ring(buf.clone());
            buf
        };
        let cqp = ring(&mut hca, CQP_SIZE as usize * 64);
        let ccq = ring(&mut hca, 128 * 32);
        let shadow = ring(&mut hca, 64);
        let aeq = ring(&mut hca, EVENTS as usize * 16);
        let ceq = ring(&mut hca, EVENTS as usize * 8);
        let context = ring(&mut hca, 256);
        hca.attach_cqp(cqp.addr(), CQP_SIZE).expect("a CQP");
        let mut node = Self {
            hca,
            now: Instant(1_000_000),
            ip,
            port,
            arena: TxArena::new().expect("memory"),
            link: WireLink::new(&[SocketAddr::new(ip, port)], 1 << 20, false),
            cqp: Producer::new(cqp.words(), CQP_SIZE, CQP_SIZE).expect("a ring"),
            ccq: CqConsumer::new(
                ccq.words(),
                128,
                false,
                CqShadow::new(shadow.words()).expect("an area"),
            )
            .expect("a ring"),
            aeq: Consumer::new(aeq.words(), EVENTS).expect("a ring"),
            ceq: Consumer::new(ceq.words(), EVENTS).expect("a ring"),
            context,
            next_id: 0x10,
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
        };
        node.ok(CqpCmd::CreateCq(CqCmd {
            id: CqId(0),
            ceq: None,
            cookie: 0,
            size: 128,
            threshold: 16,
            addr: ccq.addr(),
            shadow_addr: shadow.addr(),
            check_overflow: true,
            wide: false,
            timestamps: false,
        }));
        node.ok(CqpCmd::CreateAeq(CreateAeq {
            entries: EVENTS,
            addr: aeq.addr(),
            vector: AEQ_VECTOR,
        }));
        node.ok(CqpCmd::CreateCeq(CreateCeq {
            id: CeqId(0),
            entries: EVENTS,
            addr: ceq.addr(),
            vector: CEQ_VECTOR,
        }));
        node.hca.enable_vector(AEQ_VECTOR);
        node.hca.enable_vector(CEQ_VECTOR);
        node.create_cq(CQ, 8192);
        node
    }

    /// An id that nothing has.
    pub const fn fresh_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Memory that commands may name.
    pub fn ring_memory(&mut self, bytes: usize) -> Arc<HostBuf> {
        let buf = HostBuf::new(bytes).expect("memory");
        self.hca.host_mut().insert_ring(buf.clone());
        buf
    }

    /// Executes a command and gives its completion.
    pub fn cmd(&mut self, cmd: CqpCmd) -> CqpCompletion {
        self.raw_cmd(cmd.encode())
    }

    /// The same with words of any kind.
    pub fn raw_cmd(&mut self, words: [u64; 8]) -> CqpCompletion {
        self.cqp.try_push(CqpWqe(words)).expect("room");
        self.hca.ring(self.now, Doorbell::Cqp);
        let done = self.ccq.peek_control().expect("every command completes");
        self.ccq.advance(false);
        self.cqp.release(1);
        done
    }

    /// Executes a command that must succeed.
    #[track_caller]
    pub fn ok(&mut self, cmd: CqpCmd) -> CqpCompletion {
        let done = self.cmd(cmd);
        assert!(done.is_ok(), "{cmd:?}: {:?}", done.minor);
        done
    }

    /// Executes a command that must be refused.
    #[track_caller]
    pub fn refused(&mut self, cmd: CqpCmd) -> CqpMinor {
        let done = self.cmd(cmd);
        assert!(!done.is_ok(), "{cmd:?} was carried out");
        done.minor
    }

    /// Asynchronous events since the last look, acknowledged.
    pub fn aes(&mut self) -> Vec<Aeqe> {
        let events: Vec<Aeqe> = std::iter::from_fn(|| self.aeq.pop()).collect();
        let entries = u32::try_from(events.len()).unwrap();
        self.hca.ring(self.now, Doorbell::AeqAck { entries });
        events
    }

    /// The same, left unacknowledged.
    pub fn peek_aes(&mut self) -> Vec<Aeqe> {
        std::iter::from_fn(|| self.aeq.pop()).collect()
    }

    /// Cookies of the completion events since the last look, not acknowledged.
    pub fn ces(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.ceq.pop())
            .map(|event| event.cookie)
            .collect()
    }

    /// Vectors that fire.
    pub fn interrupts(&mut self) -> Vec<u16> {
        std::iter::from_fn(|| self.hca.poll_interrupt(self.now))
            .map(|vector| vector.0)
            .collect()
    }

    /// Everything that the device has to send now. All of it leaves.
    pub fn transmit(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(batch) = self.transmit_some(usize::MAX, Acks::Send) {
            heard.extend(batch);
            assert!(heard.len() < 200_000, "the device sends without end");
        }
        heard
    }

    /// Whether packets that nobody acknowledges have to stay.
    pub fn hold_unreliable(&mut self, hold: bool) {
        self.arena.limits.unreliable = if hold { 0 } else { u32::MAX };
    }

    /// One batch, of which only the first `runs` runs leave; `None` if there is nothing to send.
    pub fn transmit_some(&mut self, runs: usize, acks: Acks) -> Option<Vec<Heard>> {
        let batch = self.hca.poll_transmit(self.now, &mut self.arena, acks)?;
        let token = batch.token;
        let packets: Vec<usize> = batch.runs.iter().map(|r| usize::from(r.packets)).collect();
        let sent = self.link.send(&batch);
        assert_eq!(sent.runs, packets.len(), "the wire takes everything");
        let left = runs.min(packets.len());
        self.hca
            .handle_transmitted(self.now, &self.arena, token, left);
        let all: Vec<Datagram> = std::iter::from_fn(|| self.link.take()).collect();
        let gone: usize = packets.iter().take(left).sum();
        Some(all.into_iter().take(gone).map(Heard::new).collect())
    }

    /// A datagram arrives.
    pub fn receive(&mut self, datagram: &Datagram) {
        let meta = RxMeta {
            source: datagram.source,
            local: datagram.target.ip(),
            port: datagram.target.port(),
            ecn: Ecn::from_traffic_class(datagram.tclass),
            tclass: datagram.tclass,
            hop_limit: datagram.hop_limit,
            stride: datagram.bytes.len(),
            first: 0,
        };
        self.hca.handle_datagram(self.now, &meta, &datagram.bytes);
    }

    /// A packet of the peer at `from` arrives for queue pair `qpn`.
    pub fn inject(&mut self, from: SocketAddr, qpn: Qpn, frame: &Frame) {
        let flow = FlowTuple::to_roce(from.ip(), from.port(), self.ip);
        let bytes = frame.clone().to(qpn).bytes(&flow);
        self.receive_bytes(from, bytes);
    }

    /// Bytes of any kind arrive from `from`.
    pub fn receive_bytes(&mut self, from: SocketAddr, bytes: Vec<u8>) {
        self.receive(&Datagram {
            source: from,
            target: SocketAddr::new(self.ip, ROCE_PORT),
            tclass: 0,
            hop_limit: 64,
            ip_id: 0,
            bytes: Bytes::from(bytes),
        });
    }

    /// Time passes; the device is called if it wanted to be by then.
    pub fn advance(&mut self, ns: u64) {
        let end = self.now.after(ns);
        while let Some(at) = self.hca.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.hca.handle_timeout(self.now);
            if self.hca.has_work() || self.hca.poll_timeout().is_some_and(|next| next <= at) {
                break;
            }
        }
        self.now = end;
        if self.hca.poll_timeout().is_some_and(|at| at <= end) {
            self.hca.handle_timeout(end);
        }
    }
}

fn classic() -> HcaConfig {
    let mut config = HcaConfig::default();
    config.ieq = IeqMode::Off;
    config
}

const fn last_byte(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    }
}
