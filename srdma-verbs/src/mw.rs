//! Memory windows: part of a region under a key of its own, opened and closed in send-queue order.
//!
//! ```text
//! type 1   Mw::bind(&qp, ..)              the provider chooses the key; any QP of the domain
//! type 2   batch.bind_mw(.., rkey ..)     the program chooses the low byte; the QP that bound it
//! ```                                                                  [RoCEv2 4.5]

use crate::error::{Reason, Result};
use crate::mr::Mr;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::wc::WrId;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::{AllocStag, DeallocStag, StagKind};
use srdma_core::mem::Access;
use srdma_core::num::Rkey;

/// The two kinds of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(clippy::exhaustive_enums, reason = "verbs know two types of windows")]
pub enum MwType {
    /// Bound by a verb; belongs to a domain.
    One,
    /// Bound by a work request; belongs to the queue pair that bound it.
    Two,
}

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pd: Pd,
    kind: MwType,
    stag: AtomicU32,
    /// The key before the last bind, which may have failed.
    before: AtomicU32,
}

/// What a bind opens: part of a region, with rights.
#[derive(Clone, Copy, Debug)]
pub struct BindInfo<'a> {
    pub(crate) mr: &'a Mr,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

impl<'a> BindInfo<'a> {
    /// The bytes `range` of `mr`, for a peer with the remote rights of `access`.
    ///
    /// With [`Access::ZERO_BASED`] (type 2 only) the peer counts from 0. An empty range closes a
    /// type 1 window.
    #[must_use]
    pub const fn new(mr: &'a Mr, range: Range<usize>, access: Access) -> Self {
        let len = range.end.saturating_sub(range.start) as u64;
        Self {
            mr,
            addr: mr.addr().wrapping_add(range.start as u64),
            len,
            access,
        }
    }
}

impl<'a> BindInfo<'a> {
    /// As [`Self::new`], with the address that peers and work requests know.
    #[must_use]
    pub const fn at(mr: &'a Mr, addr: u64, len: u64, access: Access) -> Self {
        Self {
            mr,
            addr,
            len,
            access,
        }
    }
}

impl Mw {
    /// The window's key. Changes with each bind of a type 1 window.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        Rkey(self.stag.load(Ordering::Acquire))
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> MwType {
        self.kind
    }

    /// The domain.
    #[must_use]
    pub const fn pd(&self) -> &Pd {
        &self.pd
    }

    /// The next key of a type 2 window, for the next bind: the low byte goes up by one.
    ///
    /// The window has it once the bind completed; call [`Self::set_rkey`] then.
    #[must_use]
    pub fn next_rkey(&self) -> Rkey {
        next_key(self.rkey())
    }

    /// Remembers the key that a bind of a type 2 window gave it.
    ///
    /// Only the low byte is taken.
    pub fn set_rkey(&self, rkey: Rkey) {
        let stag = self.stag.load(Ordering::Acquire);
        self.before.store(stag, Ordering::Release);
        self.stag
            .store((stag & !0xff) | (rkey.value() & 0xff), Ordering::Release);
    }

    /// Binds a type 1 window with a work request of its own on `qp`, and gives back the key that
    /// the window will have. The completion of `id` says whether it worked.
    pub fn bind(&self, qp: &Qp, id: WrId, info: &BindInfo<'_>, signaled: bool) -> Result<Rkey> {
        self.bind_after(qp, id, info, signaled, false)
    }

    /// As [`Self::bind`]; with `fence`, not before all READs and atomics posted earlier are done.
    pub fn bind_after(
        &self,
        qp: &Qp,
        id: WrId,
        info: &BindInfo<'_>,
        signaled: bool,
        fence: bool,
    ) -> Result<Rkey> {
        const VERB: &str = "bind_mw";
        if self.kind != MwType::One {
            return Err(Reason::IncompleteWr.of(VERB));
        }
        let rkey = self.next_rkey();
        let mut batch = qp.post_send();
        let mut wr = batch.bind_mw1(id, self, info, rkey);
        wr = wr.signaled_if(signaled);
        if fence {
            wr = wr.fence();
        }
        drop(wr);
        batch.ring().map_err(|error| error.into_reason().of(VERB))?;
        self.set_rkey(rkey);
        Ok(rkey)
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let driver = self.pd.driver();
        let kind = stag_kind(self.kind);
        let keys = [&self.stag, &self.before].map(|key| key.load(Ordering::Acquire));
        // The device knows one of both: the last bind worked, or it did not.
        let _ = keys.into_iter().find(|stag| {
            let cmd = DeallocStag {
                stag: *stag,
                pd: self.pd.id(),
                kind,
            };
            driver.exec(&CqpCmd::DeallocStag(cmd)).is_ok()
        });
        driver.ids.stag.give(self.rkey().value() >> 8);
    }
}

/// The key with the low byte one higher.
pub(crate) const fn next_key(rkey: Rkey) -> Rkey {
    Rkey((rkey.value() & !0xff) | (rkey.value().wrapping_add(1) & 0xff))
}

const fn stag_kind(kind: MwType) -> StagKind {
    match kind {
        MwType::One => StagKind::Mw1,
        MwType::Two => StagKind::Mw2,
    }
}

impl Pd {
    /// Makes a window that is not bound to anything.
    pub fn alloc_mw(&self, kind: MwType) -> Result<Mw> {
        const VERB: &str = "alloc_mw";
        let driver = self.driver();
        let index = driver
            .ids
            .stag
            .take()
            .ok_or_else(|| Reason::Exhausted.of(VERB))?;
        let stag = index << 8 | crate::driver::random_key();
        let cmd = AllocStag {
            stag,
            pd: self.id(),
            kind: stag_kind(kind),
        };
        if let Err(reason) = driver.exec(&CqpCmd::AllocStag(cmd)) {
            driver.ids.stag.give(index);
            return Err(reason.of(VERB));
        }
        Ok(Mw {
            pd: self.clone(),
            kind,
            stag: AtomicU32::new(stag),
            before: AtomicU32::new(stag),
        })
    }
}
