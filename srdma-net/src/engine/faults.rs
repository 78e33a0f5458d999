//! Faults between link and device: packets that are held, lost or changed, and mishaps.
//!
//! ```text
//! carrier ─► arrive ─► held ─► hand_over ─► device          a stall: neither way moves
//! device ──► depart ─► held ─► carrier                      port down: both ways lead nowhere
//! ```

use super::Engine;
use super::link::{Carrier, Link};
use crate::fault::{Departure, DeviceFault, FaultConfig, FaultInjector, dest_of};
use crate::trace::gather_run;
use crate::tx::{Sent, part};
use bytes::Bytes;
use core::time::Duration;
use srdma_core::hca::{Hca, Injection};
use srdma_core::mem::host::HostBuf;
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::trace::{self as probes, Kind, PacketPath};
use srdma_core::tx::{TxBatch, TxToken};
use std::net::SocketAddr;

/// What is wrong with a device's network.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(super) injector: Option<FaultInjector>,
    stalled_until: Option<Instant>,
    port_down_until: Option<Instant>,
}

impl Faults {
    pub(super) fn new(config: Option<&FaultConfig>) -> Self {
        Self {
            injector: config.and_then(FaultInjector::new),
            ..Self::default()
        }
    }

    /// Everything goes straight between link and device.
    pub(super) const fn is_off(&self) -> bool {
        self.injector.is_none() && self.stalled_until.is_none() && self.port_down_until.is_none()
    }

    pub(super) fn acts_on_departures(&self) -> bool {
        let injector = self.injector.as_ref();
        injector.is_some_and(FaultInjector::acts_on_departures)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.injector.as_ref().and_then(FaultInjector::next_due);
        let due = match (due, self.stalled_until) {
            (Some(due), Some(until)) => Some(due.max(until)),
            (due, until) => due.or(until),
        };
        [due, self.port_down_until].into_iter().flatten().min()
    }

    pub(super) const fn is_port_down(&self) -> bool {
        self.port_down_until.is_some()
    }

    fn is_stalled(&self, now: Instant) -> bool {
        self.stalled_until.is_some_and(|until| now < until)
    }

    /// What is over at `now` ends.
    fn settle(&mut self, now: Instant, hca: &mut Hca) {
        if self.stalled_until.is_some_and(|until| until <= now) {
            self.stalled_until = None;
        }
        if self.port_down_until.is_some_and(|until| until <= now) {
            self.port_down_until = None;
            hca.inject(now, Injection::Port { up: true });
        }
    }

    fn happen(&mut self, now: Instant, hca: &mut Hca, fault: DeviceFault, packet: &[u8]) {
        let after = |time: Duration| now.after(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        match fault {
            DeviceFault::Stall(time) => self.stalled_until = Some(after(time)),
            DeviceFault::PortDown(time) => {
                self.port_down_until = Some(after(time));
                hca.inject(now, Injection::Port { up: false });
            }
            other => {
                if let Some(what) = other.injection(dest_of(packet)) {
                    hca.inject(now, what);
                }
            }
        }
        if matches!(fault, DeviceFault::Stall(_)) && probes::on() {
            probes::named(Kind::INJECTED, 0, &format!("{fault:?}"));
        }
    }
}

impl Link {
    /// As `receive`, with faults.
    #[cold]
    pub(super) fn receive_faulty(&mut self, now: Instant, hca: &mut Hca) -> usize {
        self.faults.settle(now, hca);
        if self.faults.is_stalled(now) {
            return 0;
        }
        let down = self.faults.is_port_down();
        // What is due goes first; behind it, most can go on in place.
        let held = self.hand_over(now, hca);
        if self.faults.is_stalled(now) {
            return held;
        }
        let injector = &mut self.faults.injector;
        let mut sift = |hca: &mut Hca, meta: &RxMeta, bytes: &[u8]| match injector {
            _ if down => {}
            Some(injector) => injector.sift(now, meta, bytes, |meta, bytes| {
                hca.handle_datagram(now, meta, bytes);
            }),
            None => hca.handle_datagram(now, meta, bytes),
        };
        // One piece of code for all that is not in a hurry.
        let sift: &mut dyn FnMut(&mut Hca, &RxMeta, &[u8]) = &mut sift;
        let got = self.carrier.receive(now, hca, sift);
        held + got + self.hand_over(now, hca)
    }

    /// Hands over what was held and is due.
    fn hand_over(&mut self, now: Instant, hca: &mut Hca) -> usize {
        let mut got = 0;
        while let Some(arrival) = self.faults.injector.as_mut().and_then(|all| all.poll(now)) {
            got += 1;
            for fault in arrival.device {
                self.faults.happen(now, hca, fault, &arrival.bytes);
            }
            probes::note(arrival.note);
            hca.handle_datagram(now, &arrival.meta, &arrival.bytes);
            if let Some(injector) = &mut self.faults.injector {
                injector.recycle(arrival.bytes);
            }
            if self.faults.is_stalled(now) {
                break;
            }
        }
        got
    }

    /// As `send`, with faults.
    #[cold]
    pub(super) fn send_faulty(&mut self, now: Instant, batch: &TxBatch<'_>) -> Sent {
        if self.faults.is_stalled(now) {
            return Sent {
                runs: 0,
                blocked: true,
            };
        }
        let all = Sent {
            runs: batch.runs.len(),
            blocked: false,
        };
        if self.faults.is_port_down() {
            return all;
        }
        if !self.faults.acts_on_departures() {
            return self.carrier.send(batch);
        }
        for (index, run) in batch.runs.iter().enumerate() {
            let bytes = gather_run(batch, run);
            let (port, _) = self.carrier.origin(run.local, run.target.ip());
            for at in 0..run.packets {
                let (start, len) = part(run, at);
                let end = bytes.len().min(start + len);
                let packet = bytes.slice(start.min(end)..end);
                let injector = self.faults.injector.as_mut();
                if !injector.is_some_and(|all| all.offer_out(now, run, port, &packet)) {
                    return Sent {
                        runs: index,
                        blocked: true,
                    };
                }
            }
        }
        self.depart(now);
        all
    }

    /// Sends what has become due.
    pub(super) fn depart(&mut self, now: Instant) {
        if self.faults.is_stalled(now) || self.faults.is_port_down() {
            return;
        }
        while let Some(next) = self
            .faults
            .injector
            .as_mut()
            .and_then(|all| all.poll_out(now))
        {
            if send_one(&mut self.carrier, &next).blocked {
                if let Some(injector) = &mut self.faults.injector {
                    injector.put_back(next);
                }
                return;
            }
        }
    }
}

/// Sends one datagram; without memory for it, it is lost.
fn send_one(carrier: &mut Carrier, departure: &Departure) -> Sent {
    let Departure {
        run,
        port,
        bytes,
        note,
    } = departure;
    let lost = Sent {
        runs: 1,
        blocked: false,
    };
    let Some(memory) = copy(bytes) else {
        return lost;
    };
    let range = memory.range();
    let Ok(span) = range.span(0, bytes.len()) else {
        return lost;
    };
    let (runs, segs) = ([run.clone()], [span.seg()]);
    let sent = carrier.send(&TxBatch {
        runs: &runs,
        segs: &segs,
        token: TxToken::default(),
    });
    if !sent.blocked && probes::on() {
        let path = PacketPath {
            source: SocketAddr::new(run.local, *port),
            target: run.target,
            tclass: run.tclass,
            hop_limit: run.hop_limit,
            ip_id: 0,
            note: *note,
        };
        probes::packet(Kind::OUT, None, &path, bytes);
    }
    sent
}

fn copy(bytes: &Bytes) -> Option<std::sync::Arc<HostBuf>> {
    let memory = HostBuf::small(bytes.len()).ok()?;
    memory.range().write(0, bytes).ok()?;
    Some(memory)
}

impl Engine {
    /// From here on, packets meet these faults; `None` for a good network. What is held leaves or
    /// arrives no more.
    pub fn set_faults(&self, config: Option<&FaultConfig>) {
        let mut core = self.shared.lock();
        core.link.faults.injector = config.and_then(FaultInjector::new);
        self.shared.run(core, super::By::Anyone);
    }

    /// A mishap of the device itself; false if there is nothing that it could happen to.
    pub fn inject(&self, what: Injection) -> bool {
        let now = self.now();
        self.with(|hca| hca.inject(now, what))
    }

    /// The network stands still, or is gone, for a while.
    pub fn disturb(&self, fault: DeviceFault) {
        let now = self.now();
        let mut core = self.shared.lock();
        let super::Core { hca, link, .. } = &mut *core;
        link.faults.happen(now, hca, fault, &[]);
        self.shared.run(core, super::By::Anyone);
    }
}
