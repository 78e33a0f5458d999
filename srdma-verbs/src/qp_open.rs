//! Handles on XRC targets: several for one queue pair, each with events of its own.
//!
//! ```text
//! create_qp ─► Qp ─┐
//! open_qp ───► Qp ─┼─► QpInner ── ends with its last handle
//! open_qp ───► Qp ─┘
//! ```
//!
//! Every handle may change the queue pair; what happens to it is told to all of them.

use crate::context::ContextInner;
use crate::driver::fifo::Owed;
use crate::driver::ids::lock;
use crate::error::Reason;
use crate::qp::{Qp, QpInner};
use crate::xrc::Xrcd;
use core::fmt;
use std::sync::{Arc, OnceLock, Weak};

/// One handle on a target.
pub(crate) struct OpenQp {
    qp: Arc<QpInner>,
    xrcd: Xrcd,
    pub(crate) shared: Arc<OpenShared>,
}

/// A handle as events see it.
#[derive(Debug)]
pub(crate) struct OpenShared {
    pub(crate) ctx: Weak<ContextInner>,
    pub(crate) owed: Owed,
    me: OnceLock<Weak<OpenQp>>,
}

impl OpenShared {
    /// The handle, if the program still has it.
    pub(crate) fn upgrade(&self) -> Option<Qp> {
        let open = self.me.get()?.upgrade()?;
        Some(Qp {
            inner: Arc::clone(&open.qp),
            open: Some(open),
        })
    }
}

impl OpenQp {
    /// A handle on `qp` that was asked for with `xrcd`: its events go where that was opened.
    pub(crate) fn open(qp: Arc<QpInner>, xrcd: &Xrcd) -> Qp {
        let shared = Arc::new(OpenShared {
            ctx: Arc::downgrade(xrcd.ctx()),
            owed: Owed::default(),
            me: OnceLock::new(),
        });
        lock(&qp.shared.opens).push(Arc::clone(&shared));
        let open = Arc::new(Self {
            qp: Arc::clone(&qp),
            xrcd: xrcd.clone(),
            shared,
        });
        let _ = open.shared.me.set(Arc::downgrade(&open));
        Qp {
            inner: qp,
            open: Some(open),
        }
    }

    /// What it was asked for with.
    pub(crate) const fn xrcd(&self) -> &Xrcd {
        &self.xrcd
    }

    /// Neither this handle nor the queue pair was destroyed.
    pub(crate) fn is_live(&self) -> bool {
        let opens = lock(&self.qp.shared.opens);
        opens.iter().any(|open| Arc::ptr_eq(open, &self.shared))
    }

    /// Gives the handle up, and with the last one the queue pair.
    pub(crate) fn close(&self) -> Result<(), Reason> {
        {
            let _one_at_a_time = self.xrcd.domain().opening();
            let left = self.leave().ok_or(Reason::Destroyed)?;
            if left == 0
                && let Err(reason) = self.qp.end()
            {
                lock(&self.qp.shared.opens).push(Arc::clone(&self.shared));
                return Err(reason);
            }
        }
        self.forget_events();
        Ok(())
    }

    /// Takes the handle out; how many are left, if it was there.
    fn leave(&self) -> Option<usize> {
        let mut opens = lock(&self.qp.shared.opens);
        let at = opens
            .iter()
            .position(|open| Arc::ptr_eq(open, &self.shared));
        opens.swap_remove(at?);
        Some(opens.len())
    }

    fn forget_events(&self) {
        if let Some(ctx) = self.shared.ctx.upgrade() {
            ctx.events
                .purge(|record| record.is_about_open(&self.shared));
        }
    }
}

impl Drop for OpenQp {
    fn drop(&mut self) {
        // Destroyed before, or refused by a device that is gone: nothing is left to do.
        let _ = self.close();
    }
}

impl fmt::Debug for OpenQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenQp({})", self.qp.shared.qpn)
    }
}
