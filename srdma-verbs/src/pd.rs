//! Protection domains: what keys, windows, queue pairs and address handles must share.
//!
//! A domain is a number. It lives until the last object made in it is gone.

use crate::context::ContextInner;
use crate::driver::Driver;
use crate::error::{Reason, Result};
use core::fmt;
use srdma_core::num::PdId;
use std::sync::Arc;

/// A protection domain.
#[derive(Clone)]
pub struct Pd {
    inner: Arc<PdInner>,
}

struct PdInner {
    ctx: Arc<ContextInner>,
    id: PdId,
}

impl Pd {
    pub(crate) fn create(ctx: &Arc<ContextInner>) -> Result<Self> {
        let id = ctx
            .driver
            .ids
            .pd
            .take()
            .ok_or_else(|| Reason::Exhausted.of("alloc_pd"))?;
        Ok(Self {
            inner: Arc::new(PdInner {
                ctx: Arc::clone(ctx),
                id: PdId(id),
            }),
        })
    }

    /// The domain's number.
    #[must_use]
    pub fn id(&self) -> PdId {
        self.inner.id
    }

    pub(crate) fn ctx(&self) -> &Arc<ContextInner> {
        &self.inner.ctx
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.inner.ctx.driver
    }

    pub(crate) fn same_device(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.driver(), other.driver())
    }

    /// True while something else holds the domain: objects made in it, or other handles.
    #[must_use]
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Gives the domain back; [`Reason::Busy`] while objects of it exist, and nothing happens.
    pub fn dealloc(self) -> Result<()> {
        match Arc::try_unwrap(self.inner) {
            Ok(_) => Ok(()),
            Err(_) => Err(Reason::Busy.of("dealloc_pd")),
        }
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        self.ctx.driver.ids.pd.give(self.id.value());
    }
}

impl PartialEq for Pd {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Pd {}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pd({})", self.id())
    }
}
