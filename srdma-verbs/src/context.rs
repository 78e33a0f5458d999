//! An open device: where every object begins.
//!
//! ```text
//! Context (Arc) ── Driver (Arc) ── engine          the last object stops the engine
//!    │ events: Fifo                                 asynchronous events of this context
//!    ├── Pd ── Mr, Mw, Ah, Srq, Qp
//!    └── Cq, CompChannel, Xrcd
//! ```
//!
//! Opening a device that this process has open already gives a further context on the same device:
//! its events are its own, keys and queue pair numbers are shared.

use crate::async_event::AsyncRecord;
use crate::channel::CompChannel;
use crate::cq::CqBuilder;
use crate::driver::Driver;
use crate::driver::fifo::Fifo;
use crate::error::{Arg, Reason, Result};
use crate::managed_cq::PoolInner;
use crate::pd::Pd;
use core::fmt;
use srdma_core::hca::Injection;
use srdma_core::hca::counters::Counters;
use srdma_core::hca::vectors::VectorUse;
use srdma_core::limits;
use srdma_core::num::Pkey;
use srdma_core::obj::port::{Gid, LinkState, Mtu, PKEYS};
use srdma_core::time::Instant;
use srdma_net::ProcessMemory;
use srdma_net::fault::{DeviceFault, FaultConfig};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

/// An open device.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) events: Fifo<AsyncRecord>,
    pub(crate) pool: Mutex<Weak<PoolInner>>,
    name: String,
}

impl fmt::Debug for ContextInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// What a device can do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Number of this device, unique.
    pub guid: u64,
    /// Bytes of the largest region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue, whatever their size.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of one work request.
    pub max_sge: u32,
    /// Inline bytes of one work request.
    pub max_inline: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Regions and windows.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics that a queue pair may have outstanding, in either direction.
    pub max_qp_rd_atomic: u8,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of one shared queue.
    pub max_srq_wr: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs of one multicast group.
    pub max_mcast_qp: u32,
    /// Ports.
    pub ports: u8,
    /// Completion vectors.
    pub comp_vectors: u16,
    /// Bytes of device memory.
    pub max_dm_size: u64,
    /// Regions may be on demand, for every operation of every transport, and be the whole address
    /// space.
    pub on_demand: bool,
    /// Completions that an event may wait for.
    pub max_moderation_count: u16,
    /// Longest time that an event may wait, in microseconds.
    pub max_moderation_us: u16,
    /// Ticks a second of [`Context::raw_clock`] and of timestamps, in kilohertz.
    pub clock_khz: u64,
}

/// The port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Whether it carries packets.
    pub state: LinkState,
    /// Largest path MTU of the hardware kind.
    pub max_mtu: Mtu,
    /// Largest path MTU that the interface carries.
    pub active_mtu: Mtu,
    /// Entries of the GID table.
    pub gid_tbl_len: u32,
    /// Entries of the partition table.
    pub pkey_tbl_len: u32,
    /// Bytes of the largest message.
    pub max_msg_size: u32,
    /// Packets with a wrong partition key, up to 0xffff.
    pub bad_pkeys: u16,
    /// Datagrams with a wrong queue key, up to 0xffff.
    pub bad_qkeys: u16,
    /// Megabits a second of the interface's cable; without one, about what a core can carry.
    pub speed_mbps: u32,
    /// That speed as lanes, in the numbers of verbs: 1 for one, 2 for four.
    pub active_width: u8,
    /// And as speed of a lane, in the numbers of verbs.
    pub active_speed: u8,
}

/// Megabits a second where there is no cable.
const NO_CABLE_MBPS: u32 = 40_000;

/// Lanes and speed of a lane, in the numbers of verbs, that carry so many megabits a second: what
/// Linux reports for an Ethernet port of that speed.
const fn lanes(mbps: u32) -> (u8, u8) {
    // Lanes: 1 is one, 2 is four. Speeds: 1 SDR, 2 DDR, 8 FDR10, 32 EDR, 64 HDR, 128 NDR.
    match mbps {
        0..=1_000 => (1, 1),
        1_001..=10_000 => (1, 8),
        10_001..=20_000 => (2, 2),
        20_001..=25_000 => (1, 32),
        25_001..=40_000 => (2, 8),
        40_001..=50_000 => (1, 64),
        50_001..=100_000 => (2, 32),
        100_001..=200_000 => (2, 64),
        _ => (2, 128),
    }
}

impl Context {
    pub(crate) fn create(driver: Arc<Driver>, name: String) -> Self {
        let inner = Arc::new(ContextInner {
            driver,
            events: Fifo::default(),
            pool: Mutex::default(),
            name,
        });
        inner.driver.irq.add_context(&inner);
        Self { inner }
    }

    /// The name that the device was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// From here on, packets of this device meet these faults; `None` for a good network.
    pub fn set_faults(&self, faults: Option<&FaultConfig>) {
        self.inner.driver.engine.set_faults(faults);
    }

    /// Brings a mishap of the device about, for tests of programs that must survive it; false if
    /// there is nothing that it could happen to.
    pub fn inject(&self, what: Injection) -> bool {
        self.inner.driver.engine.inject(what)
    }

    /// Lets the device stand still, or its port be down, for a while.
    pub fn disturb(&self, fault: DeviceFault) {
        self.inner.driver.engine.disturb(fault);
    }

    /// The addresses that the device was opened with, in the order of the GID table. What the table
    /// holds now: [`query_gid`](Self::query_gid).
    #[must_use]
    pub fn addrs(&self) -> &[IpAddr] {
        &self.inner.driver.addrs
    }

    /// What the device can do.
    #[must_use]
    pub fn query_device(&self) -> DeviceAttr {
        DeviceAttr {
            guid: self.inner.driver.guid,
            max_mr_size: crate::mr::MAX_MR_BYTES,
            max_qp: limits::MAX_QP,
            max_qp_wr: (limits::MAX_WQ_QUANTA - crate::driver::SQ_RESERVE) / 8,
            max_sge: count(limits::MAX_SGE),
            max_inline: count(limits::MAX_INLINE),
            max_cq: crate::driver::event_queues::MAX_CQ,
            max_cqe: crate::cq::MAX_CQE,
            max_mr: limits::MAX_MR,
            max_pd: limits::MAX_PD,
            max_qp_rd_atomic: limits::MAX_RD_ATOMIC,
            max_ah: limits::MAX_AH,
            max_srq: limits::MAX_SRQ,
            max_srq_wr: limits::MAX_SRQ_QUANTA / 8 - 1,
            max_mcast_grp: count(limits::MAX_MCAST),
            max_mcast_qp: count(limits::MAX_QP_PER_MCAST),
            ports: 1,
            comp_vectors: self.inner.driver.comp_vectors(),
            max_dm_size: crate::dm::MAX_DM_BYTES,
            on_demand: ProcessMemory::is_available(),
            max_moderation_count: u16::MAX,
            max_moderation_us: u16::MAX,
            clock_khz: 1_000_000,
        }
    }

    /// The state of the port; 1 is the only one. It is up while one of its interfaces is.
    pub fn query_port(&self, port: u8) -> Result<PortAttr> {
        check_port(port).map_err(|reason| reason.of("query_port"))?;
        let driver = &self.inner.driver;
        driver.engine.follow_interfaces();
        let interface = driver
            .addrs
            .first()
            .and_then(|addr| srdma_net::interface::of(*addr));
        let speed_mbps = interface
            .and_then(|interface| interface.speed_mbps())
            .unwrap_or(NO_CABLE_MBPS);
        let (active_width, active_speed) = lanes(speed_mbps);
        Ok(self.inner.driver.engine.with(|hca| {
            let (counters, port) = (hca.counters(), hca.port());
            let short = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
            PortAttr {
                state: port.link(),
                max_mtu: Mtu::B4096,
                active_mtu: port.mtu,
                gid_tbl_len: count(limits::MAX_GIDS),
                pkey_tbl_len: count(PKEYS.len()),
                max_msg_size: 1 << 31,
                bad_pkeys: short(counters.bad_pkey),
                bad_qkeys: short(counters.bad_qkey),
                speed_mbps,
                active_width,
                active_speed,
            }
        }))
    }

    /// The GID at `index`; zero for an empty entry of the table.
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Gid> {
        const VERB: &str = "query_gid";
        check_port(port).map_err(|reason| reason.of(VERB))?;
        let limit = count(limits::MAX_GIDS) - 1;
        if index > limit {
            let limit = u64::from(limit);
            return Err(Reason::Range {
                arg: Arg::GidIndex,
                limit,
            }
            .of(VERB));
        }
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        let addr = self.inner.driver.gid(index);
        Ok(addr.map(Gid::from).unwrap_or_default())
    }

    /// The partition key at `index`; 0 is the only one.
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<Pkey> {
        const VERB: &str = "query_pkey";
        check_port(port).map_err(|reason| reason.of(VERB))?;
        let limit = PKEYS.len() as u64 - 1;
        let pkey = PKEYS.get(usize::from(index));
        pkey.copied().ok_or_else(|| {
            Reason::Range {
                arg: Arg::PkeyIndex,
                limit,
            }
            .of(VERB)
        })
    }

    /// The clock of the device, in nanoseconds; its origin means nothing.
    #[must_use]
    pub fn raw_clock(&self) -> u64 {
        self.inner.driver.engine.now().0
    }

    /// The time of day at a time of [`Self::raw_clock`], in nanoseconds since 1970.
    #[must_use]
    pub fn wallclock(&self, raw: u64) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        now.wrapping_sub(self.raw_clock()).wrapping_add(raw)
    }

    /// What the device has counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.driver.engine.with(|hca| hca.counters())
    }

    /// Runs the device on this thread, unless another thread is running it (false).
    ///
    /// For devices without a background thread; posting and polling do it by themselves.
    pub fn drive(&self) -> bool {
        self.inner.driver.engine.drive()
    }

    /// A last pass, for the end of the process: peers get the acknowledgements that are still due.
    /// It may be called from the handler of a signal, in the middle of any other call: a thread of
    /// the device runs the pass, and this one waits for a while at most. False: it was not run; a
    /// device without a background thread never does.
    pub fn last_call(&self) -> bool {
        self.inner.driver.engine.last_call()
    }

    /// When somebody has to drive at the latest, if nothing arrives before: for devices on a wire
    /// in memory, whose time only moves when told.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.driver.engine.next_deadline()
    }

    /// What each interrupt vector is for.
    pub fn vectors(&self) -> impl Iterator<Item = VectorUse> {
        self.inner.driver.layout.uses()
    }

    /// Counters of the sockets: name and value.
    #[must_use]
    pub fn link_counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.driver.engine.link_counters()
    }

    /// A protection domain.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Pd::create(&self.inner)
    }

    /// A completion channel.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        Ok(CompChannel::create(&self.inner.driver))
    }

    /// Starts to describe a completion queue of at least `entries` entries.
    pub fn create_cq(&self, entries: u32) -> CqBuilder<'_> {
        CqBuilder::new(self, entries)
    }

    /// True if both are contexts of one device.
    #[must_use]
    pub fn same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.driver, &other.inner.driver)
    }
}

fn check_port(port: u8) -> core::result::Result<(), Reason> {
    if port == 1 {
        Ok(())
    } else {
        Err(Reason::Range {
            arg: Arg::Port,
            limit: 1,
        })
    }
}

/// A limit as verbs report it.
fn count(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
