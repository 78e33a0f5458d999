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
use crate::pd::Pd;
use core::fmt;
use srdma_core::hca::counters::Counters;
use srdma_core::limits;
use srdma_core::num::Pkey;
use srdma_core::obj::port::{Gid, LinkState, Mtu, PKEYS};
use srdma_core::time::Instant;
use std::net::IpAddr;
use std::sync::Arc;

/// An open device.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) events: Fifo<AsyncRecord>,
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
}

impl Context {
    pub(crate) fn create(driver: Arc<Driver>, name: String) -> Self {
        let inner = Arc::new(ContextInner {
            driver,
            events: Fifo::default(),
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

    /// The addresses of the device, in the order of the GID table.
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
            // One entry of the event queue is the control queue's.
            max_cq: crate::driver::irq::CEQ_ENTRIES - 1,
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
        }
    }

    /// The state of the port; 1 is the only one. It is up while one of its interfaces is.
    pub fn query_port(&self, port: u8) -> Result<PortAttr> {
        check_port(port).map_err(|reason| reason.of("query_port"))?;
        let driver = &self.inner.driver;
        driver.engine.follow_interfaces(&driver.addrs);
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
        let addr = self.inner.driver.addrs.get(index as usize);
        Ok(addr.map_or_else(Gid::default, |addr| Gid::from(*addr)))
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

    /// When somebody has to drive at the latest, if nothing arrives before: for devices on a wire
    /// in memory, whose time only moves when told.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.driver.engine.next_deadline()
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
