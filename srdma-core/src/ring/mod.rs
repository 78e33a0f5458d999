//! One ring, two ends.                                                 [E810 1]
//!
//! ```text
//! ring    producer   consumer   entry                 ends
//! SQ      driver     device     32–256 B in quanta    SqProducer     SqConsumer
//! RQ SRQ  driver     device     32 << shift B         RqProducer     RqConsumer
//! CQ CCQ  device     driver     32 B, 2 × 32, 64 B    CqProducer     CqConsumer
//! CEQ     device     driver     8 B                   Producer<Ceqe> Consumer<Ceqe>
//! AEQ     device     driver     16 B                  Producer<Aeqe> Consumer<Aeqe>
//! CQP     driver     device     64 B                  Producer<CqpWqe> Consumer<CqpWqe>
//! ```
//!
//! *Publish:* all words of an entry but its header plainly, then the header with release. *Read:*
//! the header with acquire; the rest only if its valid bit is of this lap. An entry is copied out
//! before anybody looks at it, since the other side may write over it, and the copy is parsed.
//!
//! Ends hold their memory as [`Words`]; indexes are checked there. Who may hold an end, and how
//! doorbells travel, is not decided here.

mod cq;
mod cq_poll;
mod cursor;
pub mod depth;
mod fixed;
mod rq;
mod shadow;
mod sq;
mod store;

#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(loom)]
pub(crate) mod loom_tests;

pub use cq::{CqOverflow, CqProducer};
pub use cq_poll::{CqConsumer, Next};
pub use cursor::Cursor;
pub use fixed::{CommandsDone, Consumer, CqpWqe, Entry, Producer};
pub use rq::{RqConsumer, RqProducer};
pub use shadow::{CqShadow, QpShadow, SrqShadow};
pub use sq::{SqConsumer, SqProducer, SqSlot};
pub use store::Words;

pub use crate::hw::Polarity;

/// Why a ring cannot be made of this memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// A size that this kind of ring cannot have.
    #[error("ring size out of bounds")]
    BadSize,
    /// The memory is smaller than the ring.
    #[error("memory smaller than the ring")]
    ShortMemory,
}

/// Why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushFault {
    /// No room until the other side has read more.
    #[error("ring is full")]
    Full,
    /// The entry is longer than a slot of this ring.
    #[error("entry longer than the ring's slots")]
    TooLong,
}

/// Checks that `size` entries of `words` words lie in the memory.
fn check_memory(memory: &impl Words, size: u32, words: usize) -> Result<(), RingFault> {
    match (size as usize).checked_mul(words) {
        Some(needed) if needed <= memory.len() => Ok(()),
        _ => Err(RingFault::ShortMemory),
    }
}
