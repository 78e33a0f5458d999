//! Receiving: from a buffer of datagrams to the queue pairs they are for.
//!
//! ```text
//! buffer ─ stride ─► parse ─► ICRC ─► QPN ─► service, addresses, P_Key, Q_Key ─► queue pair
//! ```
//!
//! Nothing past the ICRC is reached by a damaged packet, and each check that fails is a named
//! counter and nothing else. What the packets of a buffer have in common is found once for all of
//! them: flow, sender, and for packets of one queue pair in a row its addresses and its timer.
//! [RoCEv2 3.1, E810 8.6.1]

use super::Hca;
use super::counters::Counters;
use super::ctx::Ctx;
use super::id_guard::IdGuard;
use super::timer::Timers;
use crate::hw::ieq::IeqClass;
use crate::num::Qpn;
use crate::obj::table::{Slot, Table};
use crate::qp::Qp;
use crate::qp::attr::{QpState, QpType};
use crate::rx::RxMeta;
use crate::time::Instant;
use crate::trace::{self, PacketNote, PacketPath};
use crate::wire::icrc::{self, IcrcCheck, IcrcFlow};
use crate::wire::{Ecn, FlowTuple, Malformed, Packet, Service};
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

    /// The place of what is known of the identifications that `meta`'s sender uses.
    fn sender(&mut self, meta: &RxMeta) -> usize {
        let (source, local) = (meta.source.ip(), meta.local);
        let at = hash(source, local, 0) % FLOWS;
        if let Some(slot) = self.guards.get_mut(at)
            && slot
                .as_ref()
                .is_none_or(|(a, b, _)| (*a, *b) != (source, local))
        {
            *slot = Some((source, local, IdGuard::default()));
        }
        at
    }

    /// What is known there.
    #[inline]
    fn guard(&mut self, at: usize) -> Option<&mut IdGuard> {
        let (_, _, guard) = self.guards.get_mut(at)?.as_mut()?;
        Some(guard)
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

/// What the packets of one buffer have in common.
struct Arrival<'a> {
    now: Instant,
    meta: &'a RxMeta,
    icrc: IcrcFlow,
    /// Place of what is known of the sender's identifications.
    sender: usize,
}

/// The packets of a buffer that were not looked at yet.
struct Segments<'b> {
    chunks: core::slice::Chunks<'b, u8>,
    /// The identification that a sender like us gave the next one.
    hint: u16,
}

impl<'b> Segments<'b> {
    #[inline]
    fn next(&mut self) -> Option<(&'b [u8], u16)> {
        let hint = self.hint;
        self.hint = hint.wrapping_add(1);
        Some((self.chunks.next()?, hint))
    }
}

/// What comes between the packets of a buffer and takes more of the device than a queue pair gets.
#[derive(Clone, Copy)]
enum Aside<'b> {
    /// No packet.
    Malformed(Malformed, &'b [u8]),
    /// Not as it was sent.
    Damaged(Packet<'b>),
    /// Intact, and not for a connected queue pair.
    Connectionless(Packet<'b>, u16),
    /// For a queue pair that is not there.
    Stray(Packet<'b>),
    /// Of a queue pair whose packets the driver holds.
    Captured(Packet<'b>),
}

/// A packet after the checks that need no queue pair.
enum Admitted<'b> {
    /// It goes on, with its identification.
    Yes(Packet<'b>, u16),
    /// It is not believed.
    No,
    /// It is a matter of its own.
    Aside(Aside<'b>),
}

impl Arrival<'_> {
    /// Structure, ICRC, identification; counts what passes.
    // rule: roce-38
    // rule: roce-39
    #[inline]
    fn admit<'b>(
        &self,
        guard: Option<&mut IdGuard>,
        counters: &mut Counters,
        (bytes, hint): (&'b [u8], u16),
    ) -> Admitted<'b> {
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(kind) => return Admitted::Aside(Aside::Malformed(kind, bytes)),
        };
        let ip_id = match icrc::verify(&self.icrc, bytes, hint) {
            IcrcCheck::Good { ip_id } => ip_id,
            IcrcCheck::DfClear { ip_id } => {
                counters.icrc_df_clear += 1;
                ip_id
            }
            IcrcCheck::Bad => return Admitted::Aside(Aside::Damaged(packet)),
        };
        // IPv6 has no identification.
        if let Some(guard) = guard.filter(|_| self.meta.local.is_ipv4()) {
            if ip_id == hint {
                guard.expected();
            } else if !guard.believes(ip_id, self.now) {
                counters.icrc_id_jump += 1;
                return Admitted::No;
            }
        }
        counters.rcvd_pkts += 1;
        counters.rcvd_bytes += bytes.len() as u64;
        if self.meta.ecn == Ecn::Ce {
            counters.rcvd_ecn_marked += 1;
        }
        Admitted::Yes(packet, ip_id)
    }

    /// The packet comes from where the peer of a connected queue pair is.
    // rule: roce-84
    #[inline]
    fn is_from_peer(&self, qp: &Qp) -> bool {
        let conn = &qp.conn;
        conn.remote_ip == Some(self.meta.source.ip()) && conn.local_ip == Some(self.meta.local)
    }
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
        let Some(flow) = self.flows.find(meta) else {
            return;
        };
        let arrival = Arrival {
            now,
            meta,
            icrc: flow.icrc,
            sender: self.flows.sender(meta),
        };
        let mut segments = Segments {
            chunks: bytes.chunks(meta.stride),
            hint: meta.first,
        };
        if !trace::on() {
            self.handle_segments(&arrival, &mut segments);
            return;
        }
        while let Some((segment, hint)) = segments.next() {
            self.trace_segment(&arrival, segment, hint);
        }
    }

    /// Serves the packets of a buffer, and what comes between them.
    #[inline]
    fn handle_segments<'b>(&mut self, arrival: &Arrival<'_>, segments: &mut Segments<'b>) {
        while let Some(aside) = self.serve(arrival, segments) {
            self.handle_aside(arrival, aside);
        }
    }

    /// Serves packets for connected queue pairs up to one that is something else. Those in a row
    /// for one queue pair share the look for it, for its peer's address and for its timer.
    // rule: roce-83
    fn serve<'b>(
        &mut self,
        arrival: &Arrival<'_>,
        segments: &mut Segments<'b>,
    ) -> Option<Aside<'b>> {
        let mut ctx = self.dev.ctx(arrival.now);
        let mut guard = self.flows.guard(arrival.sender);
        // The queue pair of the packet before, if that came from its peer: its timer is to be set.
        let mut last: Option<(Qpn, Slot)> = None;
        let aside = loop {
            let Some(segment) = segments.next() else {
                break None;
            };
            let packet = match arrival.admit(guard.as_deref_mut(), ctx.counters, segment) {
                Admitted::No => continue,
                Admitted::Aside(aside) => break Some(aside),
                Admitted::Yes(packet, ip_id) if !packet.info().service.is_connected() => {
                    break Some(Aside::Connectionless(packet, ip_id));
                }
                Admitted::Yes(packet, _) => packet,
            };
            let dest = packet.dest();
            let known = last.filter(|(qpn, _)| *qpn == dest);
            if known.is_none() {
                set_timer(&mut self.qps, &mut self.timers, last.take());
            }
            let slot = known.map(|(_, slot)| slot);
            let Some(slot) = slot.or_else(|| self.qps.find(dest.value())) else {
                break Some(Aside::Stray(packet));
            };
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            if !speaks(qp, &packet) {
                ctx.counters.wrong_service += 1;
                continue;
            }
            if known.is_none() {
                if !arrival.is_from_peer(qp) {
                    ctx.counters.wrong_source += 1;
                    continue;
                }
                last = Some((dest, slot));
            }
            if qp.conn.pkey.matches(packet.pkey()) {
                deliver(qp, &mut ctx, &packet);
            } else {
                ctx.counters.bad_pkey += 1;
            }
            if ctx.ieq.at_hand.is_some() {
                break Some(Aside::Captured(packet));
            }
        };
        set_timer(&mut self.qps, &mut self.timers, last);
        aside
    }

    #[inline(never)]
    fn handle_aside(&mut self, arrival: &Arrival<'_>, aside: Aside<'_>) {
        let (now, meta) = (arrival.now, arrival.meta);
        match aside {
            Aside::Malformed(kind, bytes) => {
                self.dev.counters.malformed(kind);
                self.tap(now, meta, IeqClass::MALFORMED, bytes);
            }
            Aside::Damaged(packet) => {
                self.dev.counters.icrc_error += 1;
                self.tap(now, meta, IeqClass::ICRC, packet.bytes());
                self.blame(now, meta, &packet);
            }
            Aside::Connectionless(packet, ip_id) => self.route(now, meta, &packet, ip_id),
            Aside::Stray(packet) => {
                self.dev.counters.unknown_qpn += 1;
                self.tap(now, meta, IeqClass::BAD_QPN, packet.bytes());
            }
            Aside::Captured(packet) => self.capture(now, meta, &packet),
        }
    }

    /// Handles one packet for who looks on: the packet, what follows from it, and the drop if it
    /// was dropped.
    #[cold]
    fn trace_segment(&mut self, arrival: &Arrival<'_>, bytes: &[u8], hint: u16) {
        let meta = arrival.meta;
        let mut note = PacketNote::NONE;
        let mut ip_id = hint;
        if Packet::parse(bytes).is_err() {
            note = note.with_malformed(true);
        } else {
            match icrc::verify(&arrival.icrc, bytes, hint) {
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
        let chunks = bytes.chunks(bytes.len().max(1));
        self.handle_segments(arrival, &mut Segments { chunks, hint });
        if let Some(cause) = self.dev.counters.drop_since(&before) {
            trace::named(trace::Kind::DROPPED, 0, cause);
        }
        if let Some(bucket) = self.dev.counters.exception_since(&before) {
            trace::named(trace::Kind::EXCEPTION, 0, bucket);
        }
    }

    /// What is not for a connected queue pair.
    // rule: roce-16
    // rule: roce-85
    fn route(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>, ip_id: u16) {
        match packet.info().service {
            Service::Ud if packet.dest() == Qpn::MULTICAST => {
                self.route_multicast(now, meta, packet, ip_id);
            }
            Service::Ud => {
                let Some(slot) = self.qps.find(packet.dest().value()) else {
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

    // rule: roce-125
    fn route_multicast(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>, ip_id: u16) {
        let members = self.dev.mcast.members(meta.local).len();
        if members == 0 {
            self.dev.counters.mcast_dropped += 1;
            return;
        }
        for at in 0..members {
            let member = self.dev.mcast.members(meta.local).get(at).copied();
            if let Some(slot) = member.and_then(|qpn| self.qps.find(qpn.value())) {
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

/// Is the packet of the service that this connected queue pair speaks?
#[inline]
fn speaks(qp: &Qp, packet: &Packet<'_>) -> bool {
    let info = packet.info();
    match qp.id.kind {
        QpType::Rc => info.service == Service::Rc,
        QpType::Uc => info.service == Service::Uc,
        // An initiator hears answers only, a target requests only.
        // rule: xrc-1
        QpType::XrcSend => info.service == Service::Xrc && info.is_response,
        QpType::XrcRecv => info.service == Service::Xrc && !info.is_response,
        _ => false,
    }
}

/// A packet that passed the checks of the device goes to its half of the queue pair.
#[inline]
fn deliver(qp: &mut Qp, ctx: &mut Ctx<'_>, packet: &Packet<'_>) {
    ctx.ieq.absolve(packet.dest());
    let info = packet.info();
    let hears = matches!(qp.state, QpState::Rts | QpState::Sqd);
    if !info.is_response {
        // Whatever becomes of the request: the acknowledgement is one as in a packet of its own.
        if info.has_rider && hears {
            qp.on_rider(ctx, packet);
        }
        qp.on_request(ctx, packet);
    } else if hears {
        qp.on_response(ctx, packet);
    } else {
        ctx.counters.bad_state += 1;
    }
}

/// Lets a queue pair be called when it wants to be.
#[inline]
fn set_timer(qps: &mut Table<Box<Qp>>, timers: &mut Timers, who: Option<(Qpn, Slot)>) {
    if let Some(qp) = who.and_then(|(_, slot)| qps.get_mut(slot)) {
        qp.set_timer(timers);
    }
}
