//! Advice about registered memory: what will be used soon.

use crate::error::{Reason, Result};
use crate::pd::Pd;
use srdma_core::hw::Sge;

/// What is advised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(clippy::exhaustive_enums, reason = "verbs know three")]
pub enum Advice {
    /// Will be read: absent pages are fetched.
    Prefetch,
    /// Will be written to: absent pages are fetched, writable.
    PrefetchWrite,
    /// Will be used; what is absent stays absent.
    PrefetchNoFault,
}

impl Pd {
    /// Gives advice about parts of regions of this domain. Done before it returns. Keys and ranges
    /// are checked as for a work request, and memory on demand must be there, unless advised
    /// without faults.
    pub fn advise(&self, advice: Advice, sges: &[Sge]) -> Result<()> {
        const VERB: &str = "advise_mr";
        if sges.is_empty() {
            return Err(Reason::IncompleteWr.of(VERB));
        }
        let write = advice == Advice::PrefetchWrite;
        let fault = advice != Advice::PrefetchNoFault;
        for sge in sges {
            self.driver()
                .engine
                .with(|hca| hca.prefetch(self.id(), sge, write, fault))
                .map_err(|fault| Reason::Key(fault).of(VERB))?;
        }
        Ok(())
    }
}
