//! What a running device shows of itself.

use super::{Engine, Shared};
use crate::stats::{self, Counting};
use crate::trace;
use std::fmt;
use std::sync::{Arc, Weak};

/// A device that may be gone.
#[derive(Clone)]
pub(crate) struct WeakEngine(Weak<Shared>);

impl fmt::Debug for WeakEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakEngine")
    }
}

impl WeakEngine {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::downgrade(shared))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() != 0
    }

    /// Both are of one device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }

    /// All counters: the device's, then the socket's. `None` if the device is gone.
    pub(crate) fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        let shared = self.0.upgrade()?;
        let core = shared.lock();
        let mut all: Vec<_> = core.hca.counters().iter().collect();
        let link = core.link.counters();
        let lost = link.iter().find(|(name, _)| *name == "socket_tx_lost");
        all.extend(lost.map(|(_, value)| ("send_err", *value)));
        all.extend(link);
        all.push(("posts_joined", shared.join.total()));
        Some(all)
    }
}

impl Engine {
    /// What this thread records from here on is about this device.
    #[cold]
    pub fn enter_trace(&self) {
        trace::enter(self.shared.trace);
    }

    /// Lets those who ask for counters of this process have those of the driver as well.
    pub fn count_also(&self, driver: &Arc<Counting>) {
        stats::also(&WeakEngine::new(&self.shared), driver);
    }

    /// Counters of the socket side: name and value.
    #[must_use]
    pub fn link_counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.shared.lock().link.counters();
        all.push(("posts_joined", self.shared.join.total()));
        all
    }
}
