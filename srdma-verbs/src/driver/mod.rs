//! The driver half: what a kernel driver and a user library do with an E810, in one process.
//!
//! ```text
//! alloc   ring memory                        track    wr_ids of what is posted
//! ids     object numbers                     reap     queue entries → completions
//! qpns    numbers of queue pairs
//! cmd     control commands (CQP, CCQ)        fifo     event queues of programs
//! irq     CEQ and AEQ handlers               shared   what handlers may hold
//! puda    queues of the driver's own
//! event_queues  their memory
//! ```
//!
//! Bring-up: CQP, CEQ 0, CCQ, further CEQs, AEQ, vectors; teardown the other way round. [E810 7.4]
//! The safe API above never touches a ring or a doorbell by itself.

pub(crate) mod alloc;
pub(crate) mod cmd;
pub(crate) mod engine;
pub(crate) mod event_queues;
pub(crate) mod fifo;
pub(crate) mod ids;
pub(crate) mod irq;
pub(crate) mod mcast;
pub(crate) mod puda;
pub(crate) mod qpns;
pub(crate) mod reap;
pub(crate) mod shared;
pub(crate) mod track;

use crate::error::{Arg, Reason};
use crate::managed_cq::Crews;
use crate::path::Path;
use crate::xrc::XrcFiles;
use cmd::Cqp;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use engine::{Engine, EngineConfig};
use event_queues::MAX_CQ;
use event_queues::event_queues;
use ids::{IdPool, random};
use irq::Irq;
use mcast::Groups;
use puda::Puda;
use qpns::Qpns;
use srdma_core::hca::vectors::{Demand, Layout, Tracker, VectorUse};
use srdma_core::hw::dialect::mlx5;
use srdma_core::hw::{CqpCmd, Dialect};
use srdma_core::limits;
use srdma_core::num::{CeqId, CqId, MsixVector};
use srdma_core::obj::ah::AddressVector;
use srdma_core::obj::port::Mtu;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Quanta that a send queue never uses, as programs are told.         [E810 1.2]
pub(crate) const SQ_RESERVE: u32 = srdma_core::ring::depth::SQ_DEPTH_RESERVE;

/// A key byte that nobody can guess.
pub(crate) fn random_key() -> u32 {
    random() & 0xff
}

/// Object numbers of the device, by kind.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) qp: Qpns,
    pub(crate) cq: IdPool,
    pub(crate) pd: IdPool,
    pub(crate) srq: IdPool,
    pub(crate) ah: IdPool,
    pub(crate) stag: IdPool,
    pub(crate) xrcd: IdPool,
}

impl Ids {
    fn new(engine: &Engine) -> Self {
        Self {
            qp: Qpns::new(engine),
            // As many as have room in one completion event queue.
            cq: IdPool::new(3, 2 + MAX_CQ),
            pd: IdPool::new(3, limits::MAX_PD - 1),
            srq: IdPool::new(1, limits::MAX_SRQ - 1),
            ah: IdPool::new(1, limits::MAX_AH - 1),
            stag: IdPool::random(1, limits::MAX_MR - 1),
            xrcd: IdPool::new(1, limits::MAX_XRCD),
        }
    }
}

/// One open device.
pub(crate) struct Driver {
    pub(crate) engine: Engine,
    pub(crate) cqp: Cqp,
    pub(crate) ids: Ids,
    pub(crate) irq: Irq,
    /// Whose words completions and events are in.
    pub(crate) dialect: Dialect,
    pub(crate) groups: Mutex<Groups>,
    pub(crate) puda: Puda,
    pub(crate) xrc_files: XrcFiles,
    /// Addresses that it was opened with, by GID index.
    pub(crate) addrs: Vec<IpAddr>,
    pub(crate) guid: u64,
    pub(crate) max_mtu: Mtu,
    pub(crate) rx_buffer: u32,
    /// Bytes of device memory given out.
    pub(crate) dm_used: Mutex<u64>,
    /// Threads that run callbacks.
    pub(crate) crews: Crews,
    pub(crate) layout: Layout,
    cookies: AtomicU64,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("addrs", &self.addrs)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens the sockets, starts the engine and brings the device up.
    pub(crate) fn open(mut config: EngineConfig, msix: u32) -> Result<Arc<Self>, Reason> {
        let layout = layout(msix)?;
        config.hca.vectors = layout.vectors();
        if config.fault.is_none() {
            config.fault = crate::observe::faults()?;
        }
        crate::observe::start();
        let engine = Engine::open(config)?;
        let cqp = Cqp::attach(&engine)?;
        let (dialect, guid, max_mtu, rx_buffer, addrs) = engine.with(|hca| {
            let config = hca.config();
            let addrs = hca
                .port()
                .gids
                .iter()
                .map(|(_, entry)| entry.addr)
                .collect();
            let mtu = hca.port().mtu;
            let (dialect, rx_buffer) = (config.dialect, config.rx_buffer);
            (dialect, config.guid, mtu, rx_buffer, addrs)
        });
        let (irq, event_cmds) = event_queues(&engine, dialect, layout)?;
        let ids = Ids::new(&engine);
        let driver = Arc::new(Self {
            engine,
            cqp,
            ids,
            irq,
            dialect,
            groups: Mutex::default(),
            puda: Puda::default(),
            xrc_files: XrcFiles::default(),
            addrs,
            guid,
            max_mtu,
            rx_buffer,
            dm_used: Mutex::new(0),
            crews: Crews::default(),
            layout,
            cookies: AtomicU64::new(puda::FIRST_FREE_COOKIE),
        });
        driver.bring_up(&event_cmds)?;
        driver.show_puda();
        Ok(driver)
    }

    fn bring_up(self: &Arc<Self>, event_cmds: &[CqpCmd]) -> Result<(), Reason> {
        // The CCQ first, so that every command after it is answered; it reports to CEQ 0, which is
        // created next and armed last.                                [E810 7.4]
        self.exec(&self.cqp.ccq_cmd(self.dialect, None))?;
        for cmd in event_cmds {
            self.exec(cmd)?;
        }
        for VectorUse {
            vector, aeq, ceq, ..
        } in self.layout.uses()
        {
            let weak = Arc::downgrade(self);
            let handler = Arc::new(move || {
                if let Some(driver) = weak.upgrade() {
                    driver.on_vector(vector, ceq, aeq);
                }
            });
            self.engine.set_handler(vector, handler);
            self.engine.with(|hca| hca.enable_vector(vector));
        }
        self.cqp.arm_ccq(&self.engine);
        self.start_ieq()
    }

    /// Completion vectors that a CQ can ask for.
    pub(crate) fn comp_vectors(&self) -> u16 {
        u16::try_from(self.irq.ceqs()).unwrap_or(u16::MAX)
    }

    /// The interrupt vector of a completion vector.
    pub(crate) const fn msix_of(&self, comp_vector: u16) -> MsixVector {
        self.layout.vector_of(CeqId(comp_vector))
    }

    /// Events of a vector come no closer together than `period_ns`.
    pub(crate) fn moderate(&self, vector: MsixVector, period_ns: u32) {
        self.engine
            .with(|hca| hca.moderate_vector(vector, period_ns));
    }

    /// What events name a CQ by: its number, or one that no CQ had before, even and not that of the
    /// CCQ.                                                     [events 4.9]
    pub(crate) fn cookie(&self, cq: CqId) -> u64 {
        if self.dialect.names_by_number() {
            return cq.value().into();
        }
        self.cookies.fetch_add(2, Ordering::Relaxed)
    }

    /// The address of a GID index, at this moment.
    pub(crate) fn gid(&self, index: u8) -> Option<IpAddr> {
        self.engine
            .with(|hca| hca.port().gids.get(index).map(|entry| entry.addr))
    }

    /// The addresses of a path.
    pub(crate) fn address_vector(&self, path: &Path) -> Result<AddressVector, Reason> {
        let limit = (self.addrs.len() as u64).saturating_sub(1);
        let local = self.gid(path.gid_index).ok_or(Reason::Range {
            arg: Arg::GidIndex,
            limit,
        })?;
        let av = AddressVector {
            target: path.dest.addr(),
            local,
            hop_limit: path.hop_limit,
            tclass: path.traffic_class,
            flow_label: path.flow_label,
        };
        if av.is_valid() {
            Ok(av)
        } else {
            Err(Reason::Endpoint)
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop_puda();
        // What a refusal here means is that the device is gone already.
        let _ = self.exec(&CqpCmd::DestroyAeq);
        if self.irq.has_commands() {
            let _ = self.exec(&CqpCmd::DestroyCeq(mlx5::COMMANDS));
        }
        for ceq in (0..self.comp_vectors()).rev() {
            let _ = self.exec(&CqpCmd::DestroyCeq(CeqId(ceq)));
        }
    }
}

/// What the vectors of a device with `msix` of them are for: those of RDMA, as a network driver
/// that has the rest would give them.                                 [events 5]
// rule: event-80, event-81
fn layout(msix: u32) -> Result<Layout, Reason> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let demand = Demand {
        hardware: msix,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX / 4),
        flow_director: true,
        rdma: true,
    };
    let division = demand.divide()?;
    let mut tracker = Tracker::new(msix, division.total(), false);
    let granted = tracker.for_rdma(division.rdma).len();
    let granted = u32::try_from(granted).unwrap_or(u32::MAX);
    let layout = Layout::new(granted, demand.cpus)?;
    Ok(layout.at_most(srdma_net::engine::MAX_VECTORS))
}
