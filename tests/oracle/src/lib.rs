//! Intel's own driver code as an oracle: what it writes into rings, and what it reads out of them.
//!
//! ```text
//! OracleQp ── post ──► SQ, RQ in memory ──► our SqConsumer, RqConsumer, Hca
//! OracleCq ◄── poll ── CQ in memory ◄────── our CqProducer, Hca
//!     └── arm ──► shadow word, doorbell ──► our CqTable
//! ```
//!
//! The code comes from `libirdma-rdmav34.a` of Debian's package libibverbs-dev, rdma-core 44
//! [E810 10]. Where that is missing this crate builds without it, `cfg(oracle)` is not set, and the
//! tests print why they are skipped. The library proper is for tests: no crate depends on it.
//!
//! What this does *not* do: judge. It hands work to the oracle and takes its answers; the tests
//! compare. It is for one thread, like the code behind it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "for tests only: what cannot be ends the test"
)]

/// `linked`, or why the oracle is not here.
pub const STATUS: &str = env!("ORACLE_STATUS");

#[cfg(oracle)]
mod cq;
#[cfg(oracle)]
mod depth;
#[cfg(oracle)]
mod ffi;
#[cfg(oracle)]
mod qp;
#[cfg(oracle)]
pub mod wr;

#[cfg(oracle)]
pub use cq::{OracleCq, Polled, Status};
#[cfg(oracle)]
pub use depth::{fragment_quanta, rq_depth, rq_wqe_bytes, sq_depth, wqe_shift};
#[cfg(oracle)]
pub use qp::{Caps, OracleQp};

/// Why the oracle did not do it, as a negative number.               [E810 10.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub i32);

impl Refused {
    /// Nothing in the queue.
    pub const EMPTY: Self = Self(-22);
    /// The completion's queue pair is gone.
    pub const DESTROYED: Self = Self(-68);
    /// More fragments or inline bytes than the queue pair has.
    pub const INVALID_FRAGMENTS: Self = Self(-21);
    /// No room.
    pub const FULL: Self = Self(-20);

    #[cfg(oracle)]
    pub(crate) const fn check(code: i32) -> Result<(), Self> {
        match code {
            0 => Ok(()),
            code => Err(Self(code)),
        }
    }
}
