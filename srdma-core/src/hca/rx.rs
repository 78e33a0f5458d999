//! Receiving: from a buffer of datagrams to the queue pairs they are for.
//!
//! ```text
//! buffer ─ stride ─► parse ─► ICRC ─► QPN ─► service, addresses, P_Key, Q_Key ─► queue pair
//! ```
//!
//! Nothing past the ICRC is reached by a damaged packet, and each check that fails is a named
//! counter and nothing else.                                           [RoCEv2 3.1, E810 8.6.1]

use super::Hca;
use super::id_guard::IdGuard;
use crate::hw::ieq::IeqClass;
use crate::num::Qpn;
use crate::obj::table::Slot;
use crate::qp::attr::{QpState, QpType};
use crate::rx::RxMeta;
use crate::time::Instant;
use crate::trace::{self, PacketNote, PacketPath};
use crate::wire::icrc::{self, IcrcCheck, IcrcFlow};
use crate::wire::{Ecn, FlowTuple, Packet, Service};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Flows whose ICRC prefix is kept: a direct-mapped cache, so that its size is fixed.
const FLOWS: usize = 64;

/// What is kept of a flow that was received.
#[derive(Clone, Debug)]
struct Flow {
    source: SocketAddr,
    local: SocketAddr,
    icrc: IcrcFlow,
}

/// The flows seen last.
#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Option<Flow>>,
    /// By address pair, since a sender's identifications are shared by its ports.
    guards: Vec<Option<(IpAddr, IpAddr, IdGuard)>>,
}

impl Flows {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..FLOWS).map(|_| None).collect(),
            guards: (0..FLOWS).map(|_| None).collect(),
        }
    }

    /// What is known of the identifications that `meta`'s sender uses.
    fn guard(&mut self, meta: &RxMeta) -> Option<&mut IdGuard> {
        let (source, local) = (meta.source.ip(), meta.local);
        let slot = self.guards.get_mut(hash(source, local, 0) % FLOWS)?;
        if slot
            .as_ref()
            .is_none_or(|(a, b, _)| (*a, *b) != (source, local))
        {
            *slot = Some((source, local, IdGuard::default()));
        }
        slot.as_mut().map(|(_, _, guard)| guard)
    }

    /// The entry of the flow that `meta` belongs to, made if it is not there.
    fn find(&mut self, meta: &RxMeta) -> Option<&mut Flow> {
        let local = SocketAddr::new(meta.local, meta.port);
        let ports = meta.source.port() ^ meta.port;
        let slot = self
            .slots
            .get_mut(hash(meta.source.ip(), meta.local, ports) % FLOWS)?;
        let same = slot
            .as_ref()
            .is_some_and(|flow| flow.source == meta.source && flow.local == local);
        if !same {
            let tuple = FlowTuple {
                source: meta.source.ip(),
                target: meta.local,
                source_port: meta.source.port(),
                target_port: meta.port,
            };
            *slot = Some(Flow {
                source: meta.source,
                local,
                icrc: IcrcFlow::new(&tuple),
            });
        }
        slot.as_mut()
    }
}

fn hash(source: IpAddr, local: IpAddr, port: u16) -> usize {
    let last = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            u32::from_be_bytes([a, b, c, d])
        }
    };
    let mixed = last(source)
        .wrapping_mul(31)
        .wrapping_add(last(local))
        .wrapping_mul(31)
        .wrapping_add(u32::from(port))
        .wrapping_mul(0x9e37_79b1);
    (mixed >> 20) as usize
}

/// The queue pair of the last packet, to save the lookup for the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastQp {
    qpn: Qpn,
    slot: Slot,
}

impl Hca {
    /// Packets are out of order: what is received would better be lent than copied.
    #[must_use]
    pub const fn wants_slabs(&self) -> bool {
        self.dev.ieq.pool.out() != 0
    }

    /// What is received from here on lies in `slab`: what has to wait for its turn may stay there,
    /// and the device holds a share until it is served. `None`: it has to be copied.
    pub fn lend(&mut self, slab: Option<&Arc<[u8]>>) {
        self.dev.ieq.pool.lend(slab.map(Arc::clone));
    }

    /// One received buffer: one datagram, or several of `meta.stride` bytes each.
    // rule: roce-2
    // rule: roce-159
    pub fn handle_datagram(&mut self, now: Instant, meta: &RxMeta, bytes: &[u8]) {
        if meta.stride == 0 {
            return;
        }
        for (index, segment) in bytes.chunks(meta.stride).enumerate() {
            let hint = u16::try_from(index).unwrap_or(0);
            let hint = hint.wrapping_add(meta.first);
            if trace::on() {
                self.trace_segment(now, meta, segment, hint);
            } else {
                self.handle_segment(now, meta, segment, hint);
            }
        }
    }

    /// As `handle_segment`, for who looks on: the packet, what follows from it, and the drop if it
    /// was dropped.
    #[cold]
    fn trace_segment(&mut self, now: Instant, meta: &RxMeta, bytes: &[u8], hint: u16) {
        let mut note = PacketNote::NONE;
        let mut ip_id = hint;
        if Packet::parse(bytes).is_err() {
            note = note.with_malformed(true);
        } else if let Some(flow) = self.flows.find(meta) {
            match icrc::verify(&flow.icrc, bytes, hint) {
                IcrcCheck::Good { ip_id: id } | IcrcCheck::DfClear { ip_id: id } => ip_id = id,
                IcrcCheck::Bad => note = note.with_bad_icrc(true),
            }
        }
        let path = PacketPath {
            source: meta.source,
            target: SocketAddr::new(meta.local, meta.port),
            tclass: meta.tclass,
            hop_limit: meta.hop_limit,
            ip_id,
            note,
        };
        trace::packet(trace::Kind::IN, None, &path, bytes);
        let before = self.dev.counters.clone();
        self.handle_segment(now, meta, bytes, hint);
        if let Some(cause) = self.dev.counters.drop_since(&before) {
            trace::named(trace::Kind::DROPPED, 0, cause);
        }
        if let Some(bucket) = self.dev.counters.exception_since(&before) {
            trace::named(trace::Kind::EXCEPTION, 0, bucket);
        }
    }

    // rule: roce-38
    // rule: roce-39
    fn handle_segment(&mut self, now: Instant, meta: &RxMeta, bytes: &[u8], hint: u16) {
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(kind) => {
                self.dev.counters.malformed(kind);
                self.tap(now, meta, IeqClass::MALFORMED, bytes);
                return;
            }
        };
        let Some(flow) = self.flows.find(meta) else {
            return;
        };
        let ip_id = match icrc::verify(&flow.icrc, bytes, hint) {
            IcrcCheck::Good { ip_id } => ip_id,
            IcrcCheck::DfClear { ip_id } => {
                self.dev.counters.icrc_df_clear += 1;
                ip_id
            }
            IcrcCheck::Bad => {
                self.dev.counters.icrc_error += 1;
                self.tap(now, meta, IeqClass::ICRC, bytes);
                self.blame(now, meta, &packet);
                return;
            }
        };
        if !self.believes(meta, ip_id, hint, now) {
            return;
        }
        self.dev.counters.rcvd_pkts += 1;
        self.dev.counters.rcvd_bytes += bytes.len() as u64;
        if meta.ecn == Ecn::Ce {
            self.dev.counters.rcvd_ecn_marked += 1;
        }
        self.route(now, meta, &packet, ip_id);
    }

    /// Does the identification make sense for its sender? IPv6 has none.
    fn believes(&mut self, meta: &RxMeta, ip_id: u16, hint: u16, now: Instant) -> bool {
        if meta.local.is_ipv6() {
            return true;
        }
        let Some(guard) = self.flows.guard(meta) else {
            return true;
        };
        if ip_id == hint {
            guard.expected();
            return true;
        }
        let believed = guard.believes(ip_id, now);
        if !believed {
            self.dev.counters.icrc_id_jump += 1;
        }
        believed
    }

    /// Finds the queue pair and checks that the packet may reach it.
    // rule: roce-16
    // rule: roce-85
    fn route(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>, ip_id: u16) {
        match packet.info().service {
            Service::Rc | Service::Uc | Service::Xrc => self.route_connected(now, meta, packet),
            Service::Ud if packet.dest() == Qpn::MULTICAST => {
                self.route_multicast(now, meta, packet, ip_id);
            }
            Service::Ud => {
                let Some(slot) = self.find_qp(packet.dest()) else {
                    self.dev.counters.unknown_qpn += 1;
                    self.tap(now, meta, IeqClass::BAD_QPN, packet.bytes());
                    return;
                };
                self.deliver_datagram(now, meta, packet, ip_id, slot);
            }
            // rule: roce-153
            Service::Cnp => self.dev.counters.rcvd_cnps += 1,
            _ => self.dev.counters.unsupported_opcode += 1,
        }
    }

    fn find_qp(&mut self, qpn: Qpn) -> Option<Slot> {
        if let Some(last) = self.last_qp
            && last.qpn == qpn
            && self.qps.get(last.slot).is_some()
        {
            return Some(last.slot);
        }
        let slot = self.qps.find(qpn.value())?;
        self.last_qp = Some(LastQp { qpn, slot });
        Some(slot)
    }

    // rule: roce-83
    // rule: roce-84
    fn route_connected(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>) {
        let Some(slot) = self.find_qp(packet.dest()) else {
            self.dev.counters.unknown_qpn += 1;
            self.tap(now, meta, IeqClass::BAD_QPN, packet.bytes());
            return;
        };
        let Some(qp) = self.qps.get_mut(slot) else {
            return;
        };
        let wanted = match qp.id.kind {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            // An initiator hears answers only, a target requests only.
            // rule: xrc-1
            QpType::XrcSend if packet.info().is_response => Service::Xrc,
            QpType::XrcRecv if !packet.info().is_response => Service::Xrc,
            _ => Service::Ud,
        };
        if packet.info().service != wanted {
            self.dev.counters.wrong_service += 1;
            return;
        }
        if qp.conn.remote_ip != Some(meta.source.ip()) || qp.conn.local_ip != Some(meta.local) {
            self.dev.counters.wrong_source += 1;
            return;
        }
        if !qp.conn.pkey.matches(packet.pkey()) {
            self.dev.counters.bad_pkey += 1;
            return;
        }
        self.dev.ieq.absolve(packet.dest());
        let mut ctx = self.dev.ctx(now);
        if !packet.info().is_response {
            qp.on_request(&mut ctx, packet);
        } else if matches!(qp.state, QpState::Rts | QpState::Sqd) {
            qp.on_response(&mut ctx, packet);
        } else {
            ctx.counters.bad_state += 1;
        }
        qp.set_timer(&mut self.timers);
        self.capture(now, meta, packet);
    }

    // rule: roce-125
    fn route_multicast(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>, ip_id: u16) {
        let members = self.dev.mcast.members(meta.local).len();
        if members == 0 {
            self.dev.counters.mcast_dropped += 1;
            return;
        }
        for at in 0..members {
            let member = self.dev.mcast.members(meta.local).get(at).copied();
            if let Some(slot) = member.and_then(|qpn| self.find_qp(qpn)) {
                self.deliver_datagram(now, meta, packet, ip_id, slot);
            }
        }
    }

    fn deliver_datagram(
        &mut self,
        now: Instant,
        meta: &RxMeta,
        packet: &Packet<'_>,
        ip_id: u16,
        slot: Slot,
    ) {
        let Some(qp) = self.qps.get_mut(slot) else {
            return;
        };
        // Nobody on the network has business with the exception queue.
        // rule: puda-6
        if !matches!(qp.id.kind, QpType::Ud | QpType::Gsi) || qp.id.is_ieq() {
            self.dev.counters.wrong_service += 1;
            return;
        }
        if !qp.conn.pkey.matches(packet.pkey()) {
            self.dev.counters.bad_pkey += 1;
            return;
        }
        if packet.deth().map(|deth| deth.qkey) != Some(qp.conn.qkey) {
            self.dev.counters.bad_qkey += 1;
            return;
        }
        let mut ctx = self.dev.ctx(now);
        qp.on_datagram(&mut ctx, packet, meta, ip_id);
        qp.set_timer(&mut self.timers);
    }
}
