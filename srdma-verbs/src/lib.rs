//! Verbs on a userspace RDMA device: no hardware, no kernel module, no root.
//!
//! ```text
//! Context ── Pd ── Mr · Mw · Ah · Srq · Qp
//!    └────── Cq · CompChannel · Xrcd
//! ```
//!
//! # From device to first WRITE
//!
//! Two devices in one process; in practice they are two programs, and the endpoint, the address and
//! the key travel by any other way (they are plain values).
//!
//! ```rust
//! use srdma_verbs::{Access, DeviceConfig, QpType, WrId};
//! # fn main() -> srdma_verbs::Result<()> {
//! # let [x, y, ..] = std::process::id().to_le_bytes();
//! # let (a, b) = ([127, x, y, 2].into(), [127, x, y, 3].into());
//! // Two devices, on two addresses of this machine: 127.0.0.2 and 127.0.0.3 will do.
//! let (here, there) = (DeviceConfig::new().addr(a).open()?, DeviceConfig::new().addr(b).open()?);
//!
//! // On each side: a domain, a completion queue, a queue pair.
//! let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
//! let (cq, peer_cq) = (here.create_cq(16).build()?, there.create_cq(16).build()?);
//! let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq).build()?;
//! let peer_qp = peer_pd.create_qp(QpType::Rc).send_cq(&peer_cq).recv_cq(&peer_cq).build()?;
//!
//! // Endpoints are exchanged, and both connect.
//! let (mine, theirs) = (qp.endpoint(), peer_qp.endpoint());
//! let qp = qp.connect(&theirs)?;
//! let peer_qp = peer_qp.connect(&mine)?;
//!
//! // The peer opens memory; we write to it.
//! let source = pd.register(b"first write".to_vec(), Access::LOCAL_READ)?;
//! let target = peer_pd.register(vec![0; 64], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let mut batch = qp.post_send();
//! batch.write(WrId(7)).local(source.sge(..)).remote(target.addr(), target.rkey()).signaled();
//! batch.ring()?;
//!
//! // Polling runs the device until the peer has acknowledged.
//! let done = loop {
//!     if let Some(wc) = cq.poll().next() {
//!         break wc.to_completion();
//!     }
//! };
//! assert!(done.is_ok(), "{}", done.status());
//! assert_eq!(target.to_vec(0, 11)?, b"first write");
//! # let _ = peer_qp;
//! # Ok(()) }
//! ```
//!
//! # Why posting is safe
//!
//! We are the device. A request names memory by key, and the device reaches memory only through
//! keys that are registered while it does; a region that is dropped takes its key along. Registered
//! memory is never a slice: [`Mr::read`], [`Mr::write`] and the atomic [`Mr::load`] and
//! [`Mr::store`] copy. Two things are `unsafe`: registering memory that this crate does not own
//! ([`Pd::register_foreign`]), and looking at a region as a slice ([`Mr::as_slice`]).
//!
//! # Which thread does the work
//!
//! The one that calls. Ringing a batch and polling an empty queue run a pass of the device, unless
//! another thread is inside it. A background thread takes over when nobody calls. All objects may
//! be shared between threads; a [`SendBatch`], [`RecvBatch`] or [`Poll`] holds the lock of its
//! queue while it lives.
//!
//! | file | what |
//! |---|---|
//! | `device`, `context` | finding, opening, querying |
//! | `buffer`, `mr`, `dm`, `advise`, `mw` | memory and windows |
//! | `pd`, `ah`, `path` | domains, addresses |
//! | `cq`, `cq_arm`, `cq_life`, `channel`, `wc`, `async_event` | completions and events |
//! | `managed_cq` | a closure for each completion, and a pool of queues |
//! | `qp_build`, `qp`, `qp_modify`, `qp_attr`, `endpoint`, `srq` | queue pairs |
//! | `mad` | management datagrams |
//! | `post`, `wr`, `post_any`, `post_recv` | posting |
//! | `driver` | rings, numbers, control commands, event queues |

#![deny(unsafe_code)]

mod advise;
mod ah;
mod async_event;
mod buffer;
mod channel;
mod context;
mod cq;
mod cq_arm;
mod cq_life;
mod device;
mod dm;
#[allow(
    unsafe_code,
    reason = "`driver::alloc` is the corner where it may stand"
)]
mod driver;
mod endpoint;
mod error;
mod mad;
mod managed_cq;
mod mr;
mod mw;
mod observe;
mod path;
mod pd;
mod post;
mod post_any;
mod post_recv;
mod qp;
mod qp_attr;
mod qp_build;
mod qp_modify;
mod qp_open;
mod qp_size;
mod srq;
mod sync;
mod wc;
mod wr;
mod xrc;

pub use advise::Advice;
pub use ah::Ah;
pub use async_event::{AsyncEvent, AsyncKind, Element};
pub use buffer::{Buffer, IntoBuffer};
pub use channel::{CompChannel, CompEvent};
pub use context::{Context, DeviceAttr, PortAttr};
pub use cq::{Cq, CqBuilder, MAX_CQE, Poll};
pub use device::{
    ConfigError, ConfigFault, DeviceConfig, DeviceInfo, WireMode, devices, offered_devices, open,
};
pub use dm::{Dm, MAX_DM_BYTES};
pub use driver::alloc::{RingAlloc, RingBlock};
pub use driver::puda::{Exception, PudaKind, PudaStats};
pub use endpoint::QpEndpoint;
pub use error::{Arg, Error, Reason, Result};
pub use mad::{MAD_BYTES, Mad, MadAgent, MadHandler, MadSender};
pub use managed_cq::{
    BUDGET_SOFTIRQ, BUDGET_WORKQUEUE, CqPool, CqStats, MIN_POOL_CQE, ManagedCq, ManagedCqBuilder,
    POLL_BATCH, POLL_BATCH_DIRECT, PollContext, PooledCq, WrCqe,
};
pub use mr::{MAX_MR_BYTES, Mr, Rereg};
pub use mw::{BindInfo, Mw, MwType};
pub use path::Path;
pub use pd::Pd;
pub use post::SendBatch;
pub use post_any::{AnyOp, AnyWr};
pub use post_recv::{RecvBatch, RecvWr};
pub use qp::{Qp, QpCaps};
pub use qp_attr::QpAttr;
pub use qp_build::{PreparedQp, QpBuilder};
pub use srq::{Srq, SrqAttr, SrqBuilder};
pub use wc::{Completion, Wc, WcFlags, WcOpcode, WcStatus, WrId};
pub use wr::{Wr, kind};
pub use xrc::{Xrcd, XrcdOpen};

pub use observe::check_faults;
pub use srdma_core::hca::Injection;
pub use srdma_core::hca::counters::Counters;
pub use srdma_core::hw::Dialect;
pub use srdma_core::hw::Sge;
pub use srdma_core::hw::cqp::CqpMinor;
pub use srdma_core::hw::wqe::WqeError;
pub use srdma_core::mem::{Access, AccessFault, HostFault, KeyFault};
pub use srdma_core::num::{CqId, Lkey, PdId, Pkey, Psn, Qkey, Qpn, Rkey, SrqId, XrcdId};
pub use srdma_core::obj::arm::ArmModel;
pub use srdma_core::obj::port::{Gid, LinkState, Mtu};
pub use srdma_core::puda::{IeqMode, ReorderStats};
pub use srdma_core::qp::attr::{AttrError, AttrMask, QpState, QpType};
pub use srdma_net::NetError;
pub use srdma_net::clock::{Clock, ManualClock};
pub use srdma_net::fault::{DeviceFault, Direction, FaultAction, FaultConfig, FaultRule};
pub use srdma_net::wire_link::{Datagram, WireLink};
