//! What a running device shows of itself.

use super::Engine;
use crate::trace;

impl Engine {
    /// What this thread records from here on is about this device.
    #[cold]
    pub fn enter_trace(&self) {
        trace::enter(self.shared.trace);
    }

    /// Counters of the socket side: name and value.
    #[must_use]
    pub fn link_counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.lock().link.counters()
    }
}
