//! Both ends of every ring against each other, over several laps.

mod cq;
mod dialects;
mod fixed;
mod rq;
mod sq;

use super::CqShadow;
use crate::mem::{HostBuf, HostWords};

/// Zeroed memory of so many words.
fn memory(words: usize) -> HostWords {
    HostBuf::new(words * 8).unwrap().words()
}

fn cq_shadow() -> CqShadow {
    CqShadow::new(memory(8)).unwrap()
}
