//! The device: tables of objects, and the contract between it and whoever drives it.
//!
//! ```text
//!   inputs    ring · handle_datagram · handle_timeout · handle_transmitted
//!   outputs   poll_transmit → TxBatch · poll_interrupt → vector · poll_timeout → time
//!   question  poll_lookup → address and block · handle_lookup ← UDP port
//! ```

pub mod board;
mod close;
pub mod config;
mod control;
pub mod counters;
pub(crate) mod ctx;
pub mod events;
mod follow;
mod id_guard;
mod inject;
mod lead;
pub mod msix;
pub(crate) mod peer;
pub mod ports;
mod puda;
pub(crate) mod qp_ctl;
mod rx;
pub(crate) mod timer;
mod tx;
pub mod vectors;

pub use close::CLOSE_NS;
pub use config::{HcaConfig, LocalAddr};
pub use inject::Injection;
pub use tx::Acks;

use crate::cqp::Cqp;
use crate::hca::board::Doorbell;
use crate::hca::counters::Counters;
use crate::hca::ctx::{Ctx, ReadCredit, Turn};
use crate::hca::events::Events;
use crate::hca::peer::PeerTable;
use crate::hca::ports::Ports;
use crate::hca::timer::Timers;
use crate::mem::{Access, HostFault, HostMap, KeyFault, MrTable, Sge};
use crate::num::{CqId, MsixVector, PdId, Qpn};
use crate::obj::ah::AhTable;
use crate::obj::cq::CqTable;
use crate::obj::mcast::McastTable;
use crate::obj::notify::Moderation;
use crate::obj::pd::PdTable;
use crate::obj::port::Port;
use crate::obj::srq::SrqTable;
use crate::obj::table::{Slot, Table};
use crate::puda::ReorderStats;
use crate::puda::ieq::Ieq;
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::time::{Instant, earliest};
use crate::tx::path::PathTable;
use std::collections::VecDeque;

/// Everything of the device but its queue pairs.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) config: HcaConfig,
    pub(crate) host: HostMap,
    pub(crate) regions: MrTable,
    pub(crate) cqs: CqTable,
    pub(crate) srqs: SrqTable,
    pub(crate) pds: PdTable,
    pub(crate) ahs: AhTable,
    pub(crate) mcast: McastTable,
    pub(crate) events: Events,
    pub(crate) port: Port,
    pub(crate) counters: Counters,
    pub(crate) paths: PathTable,
    pub(crate) peers: PeerTable,
    pub(crate) ports: Ports,
    pub(crate) ready: VecDeque<Turn>,
    /// Turns put off while a batch is filled; empty outside.
    pub(crate) held: VecDeque<Turn>,
    pub(crate) acks: VecDeque<Slot>,
    pub(crate) acks_late: VecDeque<Slot>,
    pub(crate) read_credit: ReadCredit,
    pub(crate) ieq: Ieq,
    pub(crate) closing: close::Closing,
}

impl Device {
    /// What queue pair code gets.
    pub(crate) fn ctx(&mut self, now: Instant) -> Ctx<'_> {
        Ctx {
            now,
            regions: &mut self.regions,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            events: &mut self.events,
            paths: &mut self.paths,
            peers: &mut self.peers,
            ports: &mut self.ports,
            ahs: &self.ahs,
            port: &mut self.port,
            counters: &mut self.counters,
            ready: &mut self.ready,
            acks: &mut self.acks,
            acks_late: &mut self.acks_late,
            read_credit: &mut self.read_credit,
            ieq: &mut self.ieq,
        }
    }
}

/// The device model.
///
/// Its methods come in groups:
///
/// * **inputs**: [`ring`](Self::ring), [`handle_datagram`](Self::handle_datagram),
///   [`handle_timeout`](Self::handle_timeout), [`handle_transmitted`](Self::handle_transmitted).
///   An input never fails, because there is nobody to tell but counters, CQEs and AEQEs. Every
///   input may change every output.
/// * **outputs**: [`poll_transmit`](Self::poll_transmit) until `None`, then
///   [`poll_interrupt`](Self::poll_interrupt) until `None`, then
///   [`poll_timeout`](Self::poll_timeout).
/// * **a question**: [`poll_lookup`](Self::poll_lookup), answered with
///   [`handle_lookup`](Self::handle_lookup) before `poll_transmit`, and when that returned `None`.
/// * **set-up**: [`new`](Self::new), [`host_mut`](Self::host_mut),
///   [`attach_cqp`](Self::attach_cqp), [`enable_vector`](Self::enable_vector). Everything else is
///   set up by commands through the CQP.
///
/// `now` never goes back.
#[derive(Debug)]
pub struct Hca {
    qps: Table<Box<Qp>>,
    dev: Device,
    timers: Timers,
    flows: rx::Flows,
    cqp: Option<Cqp>,
}

impl Hca {
    /// A device with a port and nothing else.
    #[must_use]
    pub fn new(config: HcaConfig) -> Self {
        let dev = Device {
            host: HostMap::new(),
            regions: MrTable::new(),
            cqs: CqTable::new(config.arm_model),
            srqs: SrqTable::new(),
            pds: PdTable::new(),
            ahs: AhTable::new(),
            mcast: McastTable::new(),
            events: Events::speaking(config.dialect, config.vectors),
            port: config.port(),
            counters: Counters::default(),
            paths: PathTable::default(),
            peers: PeerTable::new(config.peer_budget),
            ports: Ports::new(config.shared),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            acks: VecDeque::new(),
            acks_late: VecDeque::new(),
            read_credit: ReadCredit::new(config.read_budget),
            ieq: Ieq::new(config.ieq, config.ieq_gap_ns, config.icrc_limit),
            closing: close::Closing::default(),
            config,
        };
        Self {
            qps: Table::new(1 << 24),
            dev,
            timers: Timers::default(),
            flows: rx::Flows::new(),
            cqp: None,
        }
    }

    /// The memory that commands may name.
    pub const fn host_mut(&mut self) -> &mut HostMap {
        &mut self.dev.host
    }

    /// Checks that a work request of domain `pd` may use an entry, for writing if `write`; with
    /// `fault`, memory that may be absent is made ready.
    pub fn prefetch(&self, pd: PdId, sge: &Sge, write: bool, fault: bool) -> Result<(), KeyFault> {
        let need = if write {
            Access::LOCAL_WRITE
        } else {
            Access::LOCAL_READ
        };
        let regions = &self.dev.regions;
        let grant = regions.check_local(sge.lkey, pd, need, sge.addr, sge.len)?;
        if fault { grant.prefetch(write) } else { Ok(()) }
    }

    /// The port: GIDs, link, MTU.
    #[must_use]
    pub const fn port(&self) -> &Port {
        &self.dev.port
    }

    /// Named counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.dev.counters.clone();
        let events = self.dev.events.stats();
        counters.ceqes = events.ceqes;
        counters.aeqes = events.aeqes;
        counters.aeqes_lost = events.aeqes_lost;
        counters.interrupts = self.dev.events.irq().fired();
        (counters.cqes, counters.cq_overruns) = self.dev.cqs.stats();
        counters
    }

    /// Counters that the socket side keeps.
    pub const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.dev.counters
    }

    /// The state that a queue pair is in; what the driver half was told may be older.
    #[must_use]
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qps.by_number(qpn.value()).map(|qp| qp.state)
    }

    /// What the exception queue did for a queue pair; `None` if there is no such queue pair.
    #[must_use]
    pub fn ieq_stats(&self, qpn: Qpn) -> Option<ReorderStats> {
        let qp = self.qps.by_number(qpn.value())?;
        Some(
            qp.early
                .as_ref()
                .map(|list| list.stats())
                .unwrap_or_default(),
        )
    }

    /// Buffers of the exception queue: that are there, and that hold something.
    #[must_use]
    pub const fn ieq_buffers(&self) -> (usize, usize) {
        (self.dev.ieq.pool.available(), self.dev.ieq.pool.out())
    }

    /// Settings.
    #[must_use]
    pub const fn config(&self) -> &HcaConfig {
        &self.dev.config
    }

    /// Interrupt vectors.
    #[must_use]
    pub const fn vectors(&self) -> u16 {
        self.dev.config.vectors
    }

    /// Gives the device its control queue: `entries` WQEs of 64 bytes at `addr`.
    pub fn attach_cqp(&mut self, addr: u64, entries: u32) -> Result<(), HostFault> {
        let words = self.dev.host.words(addr, entries as usize * 64)?;
        let cqp = Cqp::new(words, entries, 0).map_err(|_| HostFault::OutOfRange)?;
        self.cqp = Some(cqp);
        Ok(())
    }

    /// Lets a vector fire (again); what came since it fired last fires at once.
    // rule: e810-28
    pub fn enable_vector(&mut self, vector: MsixVector) {
        self.dev.events.enable_vector(vector);
    }

    /// Holds a completion vector back for `itr_ns` after it fired; 0 for not at all. False for the
    /// vector of asynchronous events, which is never held back.         [E810 4.6]
    pub fn moderate_vector(&mut self, vector: MsixVector, itr_ns: u32) -> bool {
        self.dev.events.set_moderation(vector, itr_ns)
    }

    /// Puts events of a completion queue off; false if there is no such queue.
    pub fn moderate_cq(&mut self, cq: CqId, moderation: Moderation) -> bool {
        self.dev.cqs.moderate(cq, moderation)
    }

    /// Work may have been posted, a queue armed, or control commands written.
    // rule: e810-26
    pub fn ring(&mut self, now: Instant, what: Doorbell) {
        self.dev.counters.doorbells += 1;
        crate::trace::taken(what);
        match what {
            Doorbell::Sq(qpn) => self.ring_sq(now, qpn),
            Doorbell::Cq(id) => {
                let missed = self.dev.cqs.arm(&mut self.dev.events, id, now);
                self.dev.counters.arms_missed += u64::from(missed);
            }
            Doorbell::CqAck(id) => self.dev.cqs.ack(&mut self.dev.events, id, now),
            Doorbell::Cqp => self.run_cqp(now),
            Doorbell::AeqAck { entries } => self.dev.events.ack_aeq(entries),
            Doorbell::Irq(vector) => self.dev.events.enable_vector(vector),
            // Entries of a shared receive queue are found by their valid bit when one is needed.
            Doorbell::Srq(_) => {}
        }
    }

    fn ring_sq(&mut self, now: Instant, qpn: Qpn) {
        let Some(slot) = self.qps.find(qpn.value()) else {
            return;
        };
        let Some(qp) = self.qps.get_mut(slot) else {
            return;
        };
        if qp.id.is_ieq() {
            self.take_back(now, slot);
            return;
        }
        let mut ctx = self.dev.ctx(now);
        match qp.state {
            QpState::Rts | QpState::Sqd => qp.make_ready(&mut ctx),
            QpState::Err | QpState::Sqe => qp.ring_in_error(&mut ctx),
            _ => {}
        }
    }

    /// Time has reached (or passed) the last [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, slot)) = self.timers.pop(now) {
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            if self.timers.is_due(slot, &mut qp.timer, at, now) {
                let mut ctx = self.dev.ctx(now);
                qp.on_timer(&mut ctx);
                qp.set_timer(&mut self.timers);
            }
        }
        self.end_closing(now);
        self.dev.cqs.handle_timeout(&mut self.dev.events, now);
    }

    /// Makes every acknowledgement due that waits for its time: a control command may end its queue
    /// pair, and the peer would ask in vain. True if any is due.
    pub fn settle_acks(&mut self, now: Instant) -> bool {
        while let Some(slot) = self.dev.acks_late.pop_front() {
            let Some(qp) = self.qps.get_mut(slot) else {
                continue;
            };
            qp.ack_late_queued = false;
            if qp.rsp.replies.ack.take_late(Instant(u64::MAX)) && qp.can_receive() {
                qp.ack_due(&mut self.dev.ctx(now));
            }
        }
        self.owes_acks()
    }

    /// A completion queue overran: every queue pair that completes there is lost.
    // rule: roce-140
    #[cold]
    fn fail_users_of(&mut self, cq: Slot, now: Instant) {
        for (_, _, qp) in self.qps.iter_mut() {
            if qp.id.send_cq == cq || qp.id.recv_cq == cq {
                qp.cq_overrun(&mut self.dev.ctx(now));
                qp.set_timer(&mut self.timers);
            }
        }
    }

    /// The next vector to raise, each at most once a pass.
    pub fn poll_interrupt(&mut self, now: Instant) -> Option<MsixVector> {
        while let Some(cq) = self.dev.cqs.take_overrun() {
            self.fail_users_of(cq, now);
        }
        self.tell_ieq(now);
        let device = &mut self.dev;
        // Arms that were seen while completions were written are looked at once more.
        device.cqs.settle(&mut device.events, now);
        device.events.poll_interrupt(now)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        earliest([
            self.timers.next(),
            self.dev.events.next_deadline(),
            self.dev.cqs.next_deadline(),
            self.dev.closing.next(),
        ])
    }

    /// What a program may have been waiting for, so far: completions, and messages written into its
    /// memory.
    #[must_use]
    pub const fn news(&self) -> u64 {
        self.dev.cqs.stats().0 + self.dev.counters.inbound_writes
    }

    /// True if something is ready to be sent, acknowledgements aside.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.dev.ready.is_empty()
    }
}
