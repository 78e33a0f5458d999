//! XRC domains: what targets and the shared receive queues they serve have in common.
//!
//! ```text
//! Xrcd (handle) ─┬─► XrcDomain: number, file, targets     one a domain, shared by its handles
//!                ├─► Pd, Cq of its targets                they have none of their own
//!                └── create_qp · open_qp · SrqBuilder::xrcd
//! ```
//!
//! A domain that is bound to a file is found again by whoever opens the same file, through any
//! context of the device, while somebody has it open. Devices belong to processes here, and so do
//! domains. What a request to a target may reach is a matter of the shared receive queue that it
//! names (`srdma_core`).

use crate::context::{Context, ContextInner};
use crate::cq::{Cq, CqOptions};
use crate::driver::Driver;
use crate::driver::ids::lock;
use crate::driver::shared::{MAX_SLOTS, QpShared, Receives, SrqShared, qp_context};
use crate::driver::track::SqTrack;
use crate::error::{Error, Reason, Result};
use crate::pd::Pd;
use crate::qp::{Qp, QpInner};
use crate::qp_open::OpenQp;
use core::fmt;
use srdma_core::mem::HostWords;
use srdma_core::num::{Qpn, XrcdId};
use srdma_core::qp::attr::QpType;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A file, whatever its names: device and inode.
type FileKey = (u64, u64);

/// The domains of a device that are bound to files.
pub(crate) type XrcFiles = Mutex<HashMap<FileKey, Weak<XrcDomain>>>;

/// An XRC domain, opened. Clones are the same handle.
#[derive(Clone)]
pub struct Xrcd {
    inner: Arc<XrcdInner>,
}

struct XrcdInner {
    domain: Arc<XrcDomain>,
    pd: Pd,
    /// For the targets made here; it stays empty.
    cq: Mutex<Option<Cq>>,
}

/// A domain, as all its handles share it.
pub(crate) struct XrcDomain {
    driver: Arc<Driver>,
    id: XrcdId,
    /// The open file keeps its inode from being used again.
    file: Option<(FileKey, File)>,
    targets: Mutex<HashMap<u32, Weak<QpInner>>>,
    opening: Mutex<()>,
}

/// Which domain of a file is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_enums, reason = "the flags of the C interface")]
pub enum XrcdOpen {
    /// The one that is there; [`Reason::NoXrcd`] if there is none.
    Existing,
    /// The one that is there, or a new one: `O_CREAT`.
    Create,
    /// A new one; [`Reason::XrcdExists`] if there is one: `O_CREAT | O_EXCL`.
    CreateNew,
}

impl Context {
    /// A new XRC domain that nobody else can open.
    pub fn open_xrcd(&self) -> Result<Xrcd> {
        const VERB: &str = "open_xrcd";
        let domain = XrcDomain::create(&self.inner.driver, None);
        let domain = domain.map_err(|reason| reason.of(VERB))?;
        Xrcd::of(&self.inner, domain, VERB)
    }

    /// The XRC domain of a file. The descriptor may be closed afterwards.
    pub fn open_xrcd_file(&self, file: BorrowedFd<'_>, how: XrcdOpen) -> Result<Xrcd> {
        const VERB: &str = "open_xrcd";
        let domain = XrcDomain::of_file(&self.inner.driver, file, how);
        let domain = domain.map_err(|reason| reason.of(VERB))?;
        Xrcd::of(&self.inner, domain, VERB)
    }
}

impl XrcDomain {
    fn create(
        driver: &Arc<Driver>,
        file: Option<(FileKey, File)>,
    ) -> core::result::Result<Arc<Self>, Reason> {
        let id = driver.ids.xrcd.take().ok_or(Reason::Exhausted)?;
        Ok(Arc::new(Self {
            driver: Arc::clone(driver),
            id: XrcdId(id),
            file,
            targets: Mutex::default(),
            opening: Mutex::default(),
        }))
    }

    fn of_file(
        driver: &Arc<Driver>,
        file: BorrowedFd<'_>,
        how: XrcdOpen,
    ) -> core::result::Result<Arc<Self>, Reason> {
        let file = File::from(file.try_clone_to_owned()?);
        let about = file.metadata()?;
        let key = (about.dev(), about.ino());
        let mut files = lock(&driver.xrc_files);
        match (files.get(&key).and_then(Weak::upgrade), how) {
            (Some(_), XrcdOpen::CreateNew) => Err(Reason::XrcdExists),
            (Some(domain), _) => Ok(domain),
            (None, XrcdOpen::Existing) => Err(Reason::NoXrcd),
            (None, _) => {
                let domain = Self::create(driver, Some((key, file)))?;
                files.insert(key, Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }

    pub(crate) const fn id(&self) -> XrcdId {
        self.id
    }

    /// Targets are opened and closed one at a time. Never held by an event handler.
    pub(crate) fn opening(&self) -> MutexGuard<'_, ()> {
        lock(&self.opening)
    }

    pub(crate) fn add_target(&self, qp: &Arc<QpInner>) {
        lock(&self.targets).insert(qp.shared.qpn.value(), Arc::downgrade(qp));
    }

    pub(crate) fn remove_target(&self, qpn: Qpn) {
        lock(&self.targets).remove(&qpn.value());
    }
}

impl Drop for XrcDomain {
    fn drop(&mut self) {
        if let Some((key, _)) = &self.file {
            let mut files = lock(&self.driver.xrc_files);
            // Somebody may have made the next domain of the file meanwhile.
            if files
                .get(key)
                .is_some_and(|domain| domain.strong_count() == 0)
            {
                files.remove(key);
            }
        }
        self.driver.ids.xrcd.give(self.id.value());
    }
}

impl Xrcd {
    fn of(ctx: &Arc<ContextInner>, domain: Arc<XrcDomain>, verb: &'static str) -> Result<Self> {
        let pd = Pd::create(ctx).map_err(|error| Error::new(verb, error.into_reason()))?;
        Ok(Self {
            inner: Arc::new(XrcdInner {
                domain,
                pd,
                cq: Mutex::new(None),
            }),
        })
    }

    /// The domain's number, the same for all its handles.
    #[must_use]
    pub fn id(&self) -> XrcdId {
        self.inner.domain.id
    }

    /// Another handle on a target of the domain, made by this or another handle on the domain. The
    /// queue pair ends when all its handles are destroyed or dropped.
    pub fn open_qp(&self, qpn: Qpn) -> Result<Qp> {
        let domain = &self.inner.domain;
        let _one_at_a_time = domain.opening();
        let qp = lock(&domain.targets)
            .get(&qpn.value())
            .and_then(Weak::upgrade);
        match qp.filter(|qp| qp.is_live()) {
            Some(qp) => Ok(OpenQp::open(qp, self)),
            None => Err(Reason::NoTarget.of("open_qp")),
        }
    }

    /// True while something else holds this handle: queue pairs, shared receive queues, clones.
    #[must_use]
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Closes the domain; [`Reason::Busy`] while other handles, queue pairs or shared receive
    /// queues made with this one exist, and nothing happens. Who else has the domain open keeps it.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.inner) {
            Ok(_) => Ok(()),
            Err(_) => Err(Reason::Busy.of("close_xrcd")),
        }
    }

    pub(crate) fn domain(&self) -> &Arc<XrcDomain> {
        &self.inner.domain
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    pub(crate) fn ctx(&self) -> &Arc<ContextInner> {
        self.inner.pd.ctx()
    }

    pub(crate) fn same_device(&self, pd: &Pd) -> bool {
        self.inner.pd.same_device(pd)
    }

    /// The completion queue that stands where a target has none.
    pub(crate) fn no_cq(&self) -> core::result::Result<Cq, Reason> {
        let mut cq = lock(&self.inner.cq);
        if let Some(cq) = &*cq {
            return Ok(cq.clone());
        }
        let made = Cq::create(self.ctx(), 1, CqOptions::default())?;
        *cq = Some(made.clone());
        Ok(made)
    }
}

impl PartialEq for Xrcd {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Xrcd {}

impl fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xrcd({})", self.id())
    }
}

/// What an XRC shared receive queue has besides a basic one.
#[derive(Debug)]
pub(crate) struct XrcSrq {
    pub(crate) xrcd: Xrcd,
    pub(crate) cq: Cq,
    /// What its completions carry: they come from any target of the domain, but in the place of
    /// one queue pair of this completion queue.
    pub(crate) context: u64,
    slot: usize,
}

/// Bytes of the records of a send queue that nobody posts to.
pub(crate) const NO_SENDS: usize = 8 * crate::driver::track::SQ_RECORD_WORDS;

impl XrcSrq {
    /// Lets a shared receive queue report to `cq`; `records` are [`NO_SENDS`] bytes.
    pub(crate) fn join(
        (xrcd, cq): (&Xrcd, &Cq),
        pd: &Pd,
        srq: &Arc<SrqShared>,
        records: HostWords,
    ) -> core::result::Result<Self, Reason> {
        if !xrcd.same_device(pd) || !Arc::ptr_eq(&cq.ctx().driver, pd.driver()) {
            return Err(Reason::Foreign);
        }
        if !cq.is_live() {
            return Err(Reason::Destroyed);
        }
        // Not the number of a queue pair; it only has to differ from 0, which is a void entry.
        let name = Qpn::new(1 << 23 | srq.id.value());
        let stand_in = Arc::new(QpShared::new(
            name,
            QpType::XrcRecv,
            SqTrack::new(records),
            Receives::Shared(Arc::clone(srq)),
            srq.ctx.clone(),
        ));
        let slot = cq.state().reaper.add(&stand_in);
        if slot >= MAX_SLOTS {
            cq.state().reaper.remove(slot);
            return Err(Reason::Exhausted);
        }
        Ok(Self {
            xrcd: xrcd.clone(),
            cq: cq.clone(),
            context: qp_context(name, slot, slot),
            slot,
        })
    }

    /// The device writes no more completions of the queue: those unread are void.
    pub(crate) fn leave(&self) {
        let mut state = self.cq.state();
        state.reaper.clean(self.context, false);
        state.reaper.remove(self.slot);
    }
}
