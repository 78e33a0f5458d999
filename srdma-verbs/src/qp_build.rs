//! Describing a queue pair, making it, and bringing it to life.
//!
//! ```text
//! QpBuilder: sizes, queues, retry rules ─► PreparedQp: receives may be posted, endpoint known
//! ```

use crate::cq::Cq;
use crate::driver::alloc::{RingAlloc, RingMem, RingSource};
use crate::driver::ids::{lock, random};
use crate::driver::shared::{MAX_SLOTS, QpShared, Receives, qp_context};
use crate::endpoint::QpEndpoint;
use crate::error::{Reason, Result};
use crate::pd::Pd;
use crate::post::SqEnd;
use crate::post_recv::RecvBatch;
use crate::qp::{Layout, Qp, QpCaps, QpInner, RqEnd};
use crate::qp_attr::QpAttr;
use crate::qp_modify::{path_to, rings};
use crate::qp_open::OpenQp;
use crate::qp_size::{size, tracks};
use crate::srq::Srq;
use crate::xrc::Xrcd;
use core::fmt;
use core::sync::atomic::AtomicBool;
use srdma_core::hw::CqpCmd;
use srdma_core::mem::Access;
use srdma_core::num::{Psn, Qkey, Qpn};
use srdma_core::obj::port::{Gid, Mtu};
use srdma_core::qp::attr::{AttrMask, QpState, QpType};
use std::sync::{Arc, Mutex};

/// How a connection behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnOptions {
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    mtu: Option<Mtu>,
    access: Access,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    min_rnr_timer: u8,
    rd_atomic: u8,
}

/// Describes a queue pair before it is made.
#[derive(Clone, Debug)]
#[must_use]
pub struct QpBuilder<'a> {
    pd: &'a Pd,
    qp_type: QpType,
    send_cq: Option<Cq>,
    recv_cq: Option<Cq>,
    srq: Option<Srq>,
    xrcd: Option<Xrcd>,
    caps: QpCaps,
    signals_all: bool,
    options: ConnOptions,
    source: RingSource,
}

impl Pd {
    /// Starts to describe a queue pair. Needs [`QpBuilder::send_cq`] and [`QpBuilder::recv_cq`]; an
    /// XRC initiator the first only. XRC targets: [`Xrcd::create_qp`].
    pub const fn create_qp(&self, qp_type: QpType) -> QpBuilder<'_> {
        QpBuilder {
            pd: self,
            qp_type,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: None,
            caps: QpCaps {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 64,
            },
            signals_all: false,
            options: ConnOptions {
                gid_index: 0,
                hop_limit: 64,
                traffic_class: 0,
                mtu: None,
                access: Access::REMOTE,
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: 12,
                rd_atomic: 16,
            },
            source: None,
        }
    }
}

impl Xrcd {
    /// Starts to describe an XRC target of the domain. It needs nothing: what it receives goes to
    /// the shared receive queues that requests name, and to their completion queues.
    pub fn create_qp(&self) -> QpBuilder<'_> {
        QpBuilder {
            xrcd: Some(self.clone()),
            ..self.pd().create_qp(QpType::XrcRecv)
        }
    }
}

macro_rules! setters {
    ($( $(#[$doc:meta])* $name:ident: $ty:ty => $($field:ident).+; )*) => {
        impl QpBuilder<'_> { $(
            $(#[$doc])*
            pub const fn $name(mut self, value: $ty) -> Self {
                self.$($field).+ = value;
                self
            }
        )* }
    };
}

setters! {
    /// Sends that may be outstanding, at least. 64 if not set.
    max_send_wr: u32 => caps.max_send_wr;
    /// Receives that may be outstanding, at least. 64 if not set.
    max_recv_wr: u32 => caps.max_recv_wr;
    /// Scatter/gather entries of a send, at least. 1 if not set.
    max_send_sge: u32 => caps.max_send_sge;
    /// Scatter entries of a receive, at least. 1 if not set.
    max_recv_sge: u32 => caps.max_recv_sge;
    /// Inline bytes of a send, at least. 64 if not set.
    max_inline: u32 => caps.max_inline;
    /// Every send reports success, signaled or not.
    signal_all: bool => signals_all;
    /// Index of our own address in the GID table. 0 if not set.
    gid_index: u8 => options.gid_index;
    /// How many routers packets may pass. 64 if not set.
    hop_limit: u8 => options.hop_limit;
    /// TOS or traffic class of packets.
    traffic_class: u8 => options.traffic_class;
    /// What the peer may do through this queue pair. Everything if not set.
    access: Access => options.access;
    /// ACK timeout code: 4.096 µs · 2^code, 0 for never. 14 (67 ms) if not set.
    timeout: u8 => options.timeout;
    /// How often to send again before giving up, 0..=7. 7 if not set.
    retry_cnt: u8 => options.retry_cnt;
    /// How often to wait for a peer without receives, 0..=6; 7, for ever, if not set.
    rnr_retry: u8 => options.rnr_retry;
    /// Code of the shortest time that a peer without our receives waits. 12 (0.64 ms) if not set.
    min_rnr_timer: u8 => options.min_rnr_timer;
    /// READs and atomics that may be outstanding, in each direction. 16 if not set.
    rd_atomic: u8 => options.rd_atomic;
}

impl QpBuilder<'_> {
    /// Where sends complete.
    pub fn send_cq(mut self, cq: &Cq) -> Self {
        self.send_cq = Some(cq.clone());
        self
    }

    /// Where receives complete.
    pub fn recv_cq(mut self, cq: &Cq) -> Self {
        self.recv_cq = Some(cq.clone());
        self
    }

    /// Receives come from this queue.
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// The memory of its rings comes from `alloc`.
    pub fn ring_alloc(mut self, alloc: Arc<dyn RingAlloc>) -> Self {
        self.source = Some(alloc);
        self
    }

    /// Largest path MTU. What the port carries, if not set.
    pub const fn mtu(mut self, mtu: Mtu) -> Self {
        self.options.mtu = Some(mtu);
        self
    }

    /// Makes the queue pair and brings it to Init: receives may be posted, the endpoint is known.
    pub fn build(self) -> Result<PreparedQp> {
        const VERB: &str = "create_qp";
        let options = self.options;
        let mtu = self.options.mtu.unwrap_or(self.pd.driver().max_mtu);
        let qp = self.create().map_err(|reason| reason.of(VERB))?;
        let init = QpAttr::to(QpState::Init).pkey_index(0);
        let init = match qp.qp_type() {
            kind if kind.is_connected() => init.port(1).access(options.access),
            QpType::Ud => init.port(1).qkey(Qkey(0)),
            _ => init.qkey(Qkey(0)),
        };
        qp.modify(&init)?;
        Ok(PreparedQp {
            qp,
            options,
            mtu,
            psn: Psn::new(random()),
        })
    }

    /// Makes the queue pair and leaves it in Reset, for [`Qp::modify`].
    pub fn build_reset(self) -> Result<Qp> {
        self.create().map_err(|reason| reason.of("create_qp"))
    }

    fn create(self) -> core::result::Result<Qp, Reason> {
        let (send_cq, recv_cq) = self.queues()?;
        self.check_foreign(&send_cq, &recv_cq)?;
        let own_rq = self.srq.is_none() && !self.qp_type.is_xrc();
        let (caps, layout) = self.sizes(own_rq)?;
        let driver = self.pd.driver();
        let mem = RingMem::of(&self.source, &driver.engine, layout.len)?;
        let (sq, rq) = rings(&mem, &layout, own_rq)?;
        let (sq_track, rq_track) = tracks(&mem, &layout)?;
        let qpn = if self.qp_type == QpType::Gsi {
            driver.program_takes_gsi();
            Qpn::GSI
        } else {
            Qpn::new(driver.ids.qp.take(&driver.engine)?)
        };
        let receives = match &self.srq {
            Some(srq) => Receives::Shared(Arc::clone(&srq.inner().shared)),
            None if own_rq => Receives::Own(rq_track),
            None => Receives::None,
        };
        let ctx = Arc::downgrade(self.pd.ctx());
        let shared = Arc::new(QpShared::new(qpn, self.qp_type, sq_track, receives, ctx));
        let slots = take_slots(&shared, &send_cq, &recv_cq);
        let inner = Arc::new(QpInner {
            pd: self.pd.clone(),
            context: qp_context(qpn, slots.0, slots.1),
            shared,
            send_cq,
            recv_cq,
            srq: self.srq.clone(),
            xrcd: self.xrcd.as_ref().map(|xrcd| Arc::clone(xrcd.domain())),
            slots,
            sq: Mutex::new(SqEnd::new(sq)),
            rq: rq.map(|ring| Mutex::new(RqEnd::new(ring))),
            control: Mutex::new(QpAttr::new()),
            caps,
            layout,
            mem,
            signals_all: self.signals_all,
            live: AtomicBool::new(false),
        });
        if let Err(reason) = announce(&inner) {
            inner.forget_slots();
            inner.give_number();
            return Err(reason);
        }
        match &self.xrcd {
            Some(xrcd) => Ok(OpenQp::open(inner, xrcd)),
            None => Ok(Qp::from_inner(inner)),
        }
    }

    /// Where sends and receives complete.
    fn queues(&self) -> core::result::Result<(Cq, Cq), Reason> {
        let basic = self.srq.as_ref().is_none_or(|srq| srq.xrcd().is_none());
        let alone = self.srq.is_none() || !self.qp_type.is_xrc();
        if !basic || !alone || self.xrcd.is_some() != (self.qp_type == QpType::XrcRecv) {
            return Err(Reason::Xrc);
        }
        let (send, recv) = match &self.xrcd {
            Some(xrcd) => (Some(xrcd.no_cq()?), Some(xrcd.no_cq()?)),
            None if self.qp_type == QpType::XrcSend => (self.send_cq.clone(), self.send_cq.clone()),
            None => (self.send_cq.clone(), self.recv_cq.clone()),
        };
        send.zip(recv).ok_or(Reason::MissingCq)
    }

    fn sizes(&self, own_rq: bool) -> core::result::Result<(QpCaps, Layout), Reason> {
        if self.qp_type != QpType::XrcRecv {
            return size(self.caps, !own_rq);
        }
        let (_, layout) = size(QpCaps::default(), true)?;
        Ok((QpCaps::default(), layout))
    }

    fn check_foreign(&self, send_cq: &Cq, recv_cq: &Cq) -> core::result::Result<(), Reason> {
        let driver = self.pd.driver();
        let same = |cq: &Cq| Arc::ptr_eq(&cq.ctx().driver, driver);
        let srq_fits = self
            .srq
            .as_ref()
            .is_none_or(|srq| srq.pd().same_device(self.pd));
        if !same(send_cq) || !same(recv_cq) || !srq_fits {
            return Err(Reason::Foreign);
        }
        let srq_lives = self.srq.as_ref().is_none_or(Srq::is_live);
        if !send_cq.is_live() || !recv_cq.is_live() || !srq_lives {
            return Err(Reason::Destroyed);
        }
        Ok(())
    }
}

/// A queue pair in Init: not connected yet. Receives may be posted already.
pub struct PreparedQp {
    qp: Qp,
    options: ConnOptions,
    mtu: Mtu,
    psn: Psn,
}

impl PreparedQp {
    /// What the peer must know.
    #[must_use]
    pub fn endpoint(&self) -> QpEndpoint {
        let gid = self.qp.inner.driver().gid(self.options.gid_index);
        QpEndpoint {
            gid: gid.map(Gid::from).unwrap_or_default(),
            qpn: self.qp.qp_num(),
            psn: self.psn,
            mtu: self.mtu,
            rd_atomic: self.options.rd_atomic,
            rx_buffer: self.qp.inner.driver().rx_buffer,
            qp_type: self.qp.qp_type(),
        }
    }

    /// The queue pair's number.
    #[must_use]
    pub fn qp_num(&self) -> Qpn {
        self.qp.qp_num()
    }

    /// Starts a batch of receives.
    pub fn post_recv(&self) -> RecvBatch<'_> {
        self.qp.post_recv()
    }

    /// Connects to `theirs`: Init, ready to receive, ready to send. The peer must do the same with
    /// our endpoint, before or after.
    pub fn connect(self, theirs: &QpEndpoint) -> Result<Qp> {
        let kind = self.qp.qp_type();
        if !kind.is_connected() || theirs.qp_type != kind.peer() {
            return Err(Reason::Endpoint.of("connect"));
        }
        let options = &self.options;
        let mut rtr = QpAttr::to(QpState::Rtr)
            .path(path_to(theirs.gid, options))
            .path_mtu(self.mtu.min(theirs.mtu))
            .dest_qp(theirs.qpn)
            .rq_psn(theirs.psn)
            .peer_rx(theirs.rx_buffer);
        let mut rts = QpAttr::to(QpState::Rts).sq_psn(self.psn);
        if matches!(kind, QpType::Rc | QpType::XrcRecv) {
            rtr = rtr
                .max_dest_rd_atomic(options.rd_atomic)
                .min_rnr_timer(options.min_rnr_timer);
        }
        if kind.is_reliable() {
            rts = rts.timeout(options.timeout);
        }
        if matches!(kind, QpType::Rc | QpType::XrcSend) {
            rts = rts
                .retry_cnt(options.retry_cnt)
                .rnr_retry(options.rnr_retry)
                .max_rd_atomic(options.rd_atomic.min(theirs.rd_atomic));
        }
        self.qp.modify(&rtr)?;
        self.qp.modify(&rts)?;
        Ok(self.qp)
    }

    /// Brings a datagram queue pair to life: it hears datagrams with this queue key.
    pub fn activate_ud(self, qkey: Qkey) -> Result<Qp> {
        if self.qp.qp_type().is_connected() {
            return Err(Reason::QpType(self.qp.qp_type()).of("activate_ud"));
        }
        self.qp.modify(&QpAttr::to(QpState::Rtr).qkey(qkey))?;
        self.qp.modify(&QpAttr::to(QpState::Rts).sq_psn(self.psn))?;
        Ok(self.qp)
    }

    /// The queue pair as it is, for [`Qp::modify`].
    #[must_use]
    pub fn into_qp(self) -> Qp {
        self.qp
    }
}

impl fmt::Debug for PreparedQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared{:?}", self.qp)
    }
}

/// A slot in the table of each completion queue; the same one if both are the same.
fn take_slots(shared: &Arc<QpShared>, send_cq: &Cq, recv_cq: &Cq) -> (usize, usize) {
    let send = send_cq.state().reaper.add(shared);
    let recv = if send_cq == recv_cq {
        send
    } else {
        recv_cq.state().reaper.add(shared)
    };
    (send, recv)
}

/// Makes a queue pair known to the device and to event handlers.
fn announce(inner: &Arc<QpInner>) -> core::result::Result<(), Reason> {
    let (send, recv) = inner.slots;
    if send >= MAX_SLOTS || recv >= MAX_SLOTS {
        return Err(Reason::Exhausted);
    }
    let attr = *lock(&inner.control);
    inner.write_context(&inner.context_of(&attr, false)?)?;
    let _ = inner.shared.me.set(Arc::downgrade(inner));
    let driver = inner.driver();
    driver.exec(&CqpCmd::CreateQp(
        inner.command(QpState::Reset, AttrMask::NONE),
    ))?;
    driver.irq.add_qp(&inner.shared);
    if let Some(xrcd) = &inner.xrcd {
        xrcd.add_target(inner);
    }
    inner.send_cq.add_user();
    inner.recv_cq.add_user();
    if let Some(srq) = &inner.srq {
        srq.add_user();
    }
    inner
        .live
        .store(true, core::sync::atomic::Ordering::Release);
    Ok(())
}
