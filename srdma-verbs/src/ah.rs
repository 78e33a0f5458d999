//! Address handles: where a datagram goes, known to the device under a number.

use crate::error::{Reason, Result};
use crate::path::Path;
use crate::pd::Pd;
use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::CreateAh;
use srdma_core::num::AhId;
use std::sync::Arc;

/// An address handle. Work requests may name it while it lives.
#[derive(Clone, Debug)]
pub struct Ah {
    inner: Arc<AhInner>,
}

#[derive(Debug)]
struct AhInner {
    pd: Pd,
    id: AhId,
    path: Path,
}

impl Ah {
    pub(crate) fn id(&self) -> AhId {
        self.inner.id
    }

    /// The way it stands for.
    #[must_use]
    pub fn path(&self) -> Path {
        self.inner.path
    }

    /// The domain.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }
}

impl Drop for AhInner {
    fn drop(&mut self) {
        let driver = self.pd.driver();
        let _ = driver.exec(&CqpCmd::DestroyAh(self.id));
        driver.ids.ah.give(self.id.value());
    }
}

impl Pd {
    /// Makes an address handle for `path`.
    pub fn create_ah(&self, path: Path) -> Result<Ah> {
        const VERB: &str = "create_ah";
        let driver = self.driver();
        let av = driver
            .address_vector(&path)
            .map_err(|reason| reason.of(VERB))?;
        let id = driver
            .ids
            .ah
            .take()
            .ok_or_else(|| Reason::Exhausted.of(VERB))?;
        let id = AhId(id);
        if let Err(reason) = driver.exec(&CqpCmd::CreateAh(CreateAh {
            id,
            pd: self.id(),
            av,
        })) {
            driver.ids.ah.give(id.value());
            return Err(reason.of(VERB));
        }
        Ok(Ah {
            inner: Arc::new(AhInner {
                pd: self.clone(),
                id,
                path,
            }),
        })
    }
}
