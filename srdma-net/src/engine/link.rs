//! What carries the packets of an engine: sockets (`udp.rs`), or a wire in memory.

mod udp;

use super::budget::budgets;
use super::config::{EngineConfig, Transport};
use super::faults::Faults;
use super::follow::{self, Known};
use super::quiet::Quiet;
use crate::bridge::{Bridge, OwnYard};
use crate::error::NetError;
use crate::offload::{GsoLimit, OffloadConfig};
use crate::room::Desk;
use crate::rx::RxRing;
use crate::share::door::Door;
use crate::share::{self, Share};
use crate::socket::{ROCE_PORT, RoceSocket, SocketConfig};
use crate::tx::{Sender, Sent};
use crate::wire_link::WireLink;
use srdma_core::hca::{Hca, LocalAddr};
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::tx::{TxBatch, TxLimits};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use udp::UdpLink;

/// What carries the packets.
pub(crate) enum Carrier {
    Udp(Box<UdpLink>),
    Wire(Arc<WireLink>),
}

/// A carrier, and what is wrong with it.
pub(crate) struct Link {
    pub(crate) carrier: Carrier,
    pub(super) faults: Faults,
}

/// Opens what `config` names, and the device on it.
pub(super) fn open(config: EngineConfig) -> Result<(Link, Hca), NetError> {
    let mut hca = config.hca;
    let local = |ip, source_port| LocalAddr { ip, source_port };
    let faults = Faults::new(config.fault.as_ref());
    let carrier = match config.transport {
        Transport::Wire(wire) => {
            hca.addrs = wire
                .addresses()
                .iter()
                .map(|addr| local(addr.ip(), addr.port()))
                .collect();
            if let Some(cap) = config.rcvbuf_cap {
                hca.peer_budget = cap;
                hca.read_budget = cap;
            }
            Carrier::Wire(wire)
        }
        Transport::Udp => {
            let settings = SocketConfig {
                rx_buffer: config.rcvbuf_cap,
                offload: OffloadConfig {
                    gso: config.gso,
                    gro: config.gro,
                },
                plain_wire: hca.plain_wire,
                ..SocketConfig::default()
            };
            let (sockets, share) = share::open(&config.addrs, &settings)?;
            let (listed, link) = follow::at_start(&config.addrs);
            hca.link = link;
            hca.shared = share.is_some();
            hca.max_mtu = hca.max_mtu.min(crate::mtu::of_addresses(&config.addrs));
            let granted = sockets.iter().map(|socket| socket.buffers().rx).min();
            hca.rx_buffer = sockets.iter().map(RoceSocket::told_rx).min().unwrap_or(0);
            let granted = granted.unwrap_or(hca.peer_budget);
            (hca.peer_budget, hca.read_budget) = budgets(hca.peer_budget, granted, config.gso);
            hca.addrs = sockets
                .iter()
                .map(|s| local(s.local(), s.tx_port()))
                .collect();
            let segments = match config.addrs.first() {
                Some(ip) if config.gso => GsoLimit::probe(*ip).map_or(1, |limit| limit.packets),
                _ => 1,
            };
            let bridge = share.as_ref().filter(|_| config.bridge && !hca.plain_wire);
            let bridge = bridge.and_then(|share| Bridge::open(share, &sockets).ok());
            Carrier::Udp(Box::new(UdpLink {
                bridge,
                quiet: vec![[Quiet::default(); 2]; sockets.len()],
                sockets,
                share,
                listed,
                interfaces: config.interfaces,
                settings,
                door: Door::default(),
                desk: Desk::default().plain(hca.plain_wire),
                asked: 0,
                passes: 0,
                waits: 0,
                rx: RxRing::new(crate::rx::RX_BUFFERS),
                tx: Sender::new(config.gso).plain(hca.plain_wire),
                segments,
            }))
        }
    };
    Ok((Link { carrier, faults }, Hca::new(hca)))
}

impl Link {
    /// Takes what has arrived; returns how many buffers that was.
    pub(super) fn receive(&mut self, now: Instant, hca: &mut Hca) -> usize {
        if !self.faults.is_off() {
            return self.receive_faulty(now, hca);
        }
        self.carrier.receive(now, hca, |hca, meta, bytes| {
            hca.handle_datagram(now, meta, bytes);
        })
    }

    /// True while there is no use in building packets that nobody acknowledges.
    pub(crate) fn is_held(&mut self) -> bool {
        self.carrier.is_held()
    }

    /// Bytes that nobody acknowledges which may be worth building.
    pub(super) fn room(&self) -> u32 {
        match &self.carrier {
            Carrier::Wire(_) => u32::MAX,
            Carrier::Udp(udp) => udp.tx.room(),
        }
    }

    /// Sends a batch.
    pub(crate) fn send(&mut self, now: Instant, batch: &TxBatch<'_>) -> Sent {
        if !self.faults.is_off() {
            return self.send_faulty(now, batch);
        }
        self.carrier.send(batch)
    }

    /// Packets that leave are recorded where they are sent one by one.
    pub(crate) fn records_itself(&self) -> bool {
        self.faults.acts_on_departures() || self.faults.is_port_down()
    }

    /// Tells the arena what GSO can do.
    pub(super) fn learn_limits(&self, limits: &mut TxLimits) {
        self.carrier.learn_limits(limits);
        // Packets that are sent one by one all have the identification of a first one.
        if self.faults.acts_on_departures() {
            limits.max_segments = 1;
        }
    }

    /// The port has the state of interfaces, and no fault has taken it down.
    pub(super) const fn follows_interfaces(&self) -> bool {
        matches!(self.carrier, Carrier::Udp(_)) && !self.faults.is_port_down()
    }

    /// Names and values.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.carrier.counters();
        if let Some(injector) = &self.faults.injector {
            all.extend(injector.counters().named());
        }
        all
    }

    /// When held packets are due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.faults.next_due()
    }
}

impl Carrier {
    /// Takes what has arrived; returns how many buffers that was.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        hca: &mut Hca,
        mut f: impl FnMut(&mut Hca, &RxMeta, &[u8]),
    ) -> usize {
        match self {
            Self::Wire(wire) => {
                let mut count = 0;
                while let Some((meta, bytes)) = wire.receive() {
                    f(hca, &meta, &bytes);
                    count += 1;
                }
                count
            }
            Self::Udp(udp) => udp.receive(now, hca, f),
        }
    }

    /// What is to be compared with the interfaces; a wire has none.
    pub(super) fn known(&self) -> Option<Known> {
        match self {
            Self::Wire(_) => None,
            Self::Udp(udp) => Some(Known {
                addrs: udp.sockets.iter().map(RoceSocket::local).collect(),
                listed: udp.listed.clone(),
                interfaces: udp.interfaces.clone(),
                settings: udp.settings,
                share: udp.share.clone(),
            }),
        }
    }

    /// Takes a further address in, and says at which index of the GID table.
    pub(super) fn add(&mut self, socket: RoceSocket) -> Option<(u8, LocalAddr)> {
        let Self::Udp(udp) = self else { return None };
        let index = u8::try_from(udp.sockets.len()).ok()?;
        let addr = LocalAddr {
            ip: socket.local(),
            source_port: socket.tx_port(),
        };
        if let Some(bridge) = &mut udp.bridge {
            // One that cannot be entered is reached by its socket.
            let _ = bridge.add(&socket);
        }
        udp.sockets.push(socket);
        udp.quiet.push([Quiet::default(); 2]);
        udp.listed.push(true);
        Some((index, addr))
    }

    /// The port that packets of an address are sent from.
    pub(super) fn local(&self, index: usize) -> Option<LocalAddr> {
        let Self::Udp(udp) = self else { return None };
        let socket = udp.sockets.get(index)?;
        Some(LocalAddr {
            ip: socket.local(),
            source_port: socket.tx_port(),
        })
    }

    /// What the device shares with other processes.
    pub(super) fn share(&self) -> Option<&Arc<Share>> {
        match self {
            Self::Wire(_) => None,
            Self::Udp(udp) => udp.share.as_ref(),
        }
    }

    /// Answers what the device wants to know. True if there was a question.
    pub(super) fn answer(&self, now: Instant, hca: &mut Hca) -> bool {
        let mut any = false;
        while let Some(lookup) = hca.poll_lookup() {
            let home = match self.share() {
                Some(share) => share.resolve(lookup),
                None => Some(ROCE_PORT.into()),
            };
            hca.handle_lookup(now, lookup, home);
            any = true;
        }
        any
    }

    /// The port that packets of a local address leave from, and whether the kernel cuts a run to
    /// `target` itself and so counts its packets.
    pub(crate) fn origin(&self, local: IpAddr, target: IpAddr) -> (u16, bool) {
        match self {
            Self::Wire(wire) => {
                let addr = wire.addresses().iter().find(|addr| addr.ip() == local);
                (addr.map_or(0, SocketAddr::port), true)
            }
            Self::Udp(udp) => {
                let socket = RoceSocket::on(&udp.sockets, local);
                (
                    socket.map_or(0, RoceSocket::tx_port),
                    udp.tx.offload().gso(target),
                )
            }
        }
    }

    fn is_held(&mut self) -> bool {
        match self {
            Self::Wire(_) => false,
            Self::Udp(udp) => {
                let bridge = udp.bridge.as_mut();
                let held = udp.tx.is_held() || bridge.is_some_and(|it| it.outbox.is_held());
                udp.ask();
                held
            }
        }
    }

    pub(crate) fn send(&mut self, batch: &TxBatch<'_>) -> Sent {
        match self {
            Self::Wire(wire) => wire.send(batch),
            Self::Udp(udp) => {
                let sent = udp.send(batch);
                udp.ask();
                sent
            }
        }
    }

    /// Tells the arena what GSO can do.
    pub(super) fn learn_limits(&self, limits: &mut TxLimits) {
        match self {
            Self::Wire(_) => {}
            Self::Udp(udp) => {
                limits.max_segments = udp.segments;
                let refused = udp.tx.offload().lowered();
                if refused.len() != limits.refused.len() {
                    limits.refused = refused.to_vec();
                }
            }
        }
    }

    /// What the background thread sleeps on.
    pub(super) fn fds(&self) -> Vec<RawFd> {
        match self {
            Self::Wire(_) => Vec::new(),
            Self::Udp(udp) => {
                let ends = udp.sockets.iter().flat_map(RoceSocket::ends);
                ends.map(|end| end.fd().as_raw_fd()).collect()
            }
        }
    }

    /// What senders on this machine wake us by.
    pub(super) fn yard(&self) -> Option<Arc<OwnYard>> {
        let Self::Udp(udp) = self else { return None };
        Some(Arc::clone(udp.bridge.as_ref()?.inbox.own()))
    }

    /// Looks at every socket in the next pass: one of them woke us.
    pub(super) fn look_everywhere(&mut self) {
        if let Self::Udp(udp) = self {
            udp.quiet.fill([Quiet::default(); 2]);
        }
    }

    /// Names and values.
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Wire(_) => Vec::new(),
            Self::Udp(udp) => udp.counters(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
