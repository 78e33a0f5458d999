//! Drivers' own code as an oracle: what it writes into rings, and what it reads out of them.
//!
//! ```text
//! OracleQp ── post ──► SQ, RQ in memory ──► our SqConsumer, RqConsumer, Hca
//! OracleCq ◄── poll ── CQ in memory ◄────── our CqProducer, Hca
//!     └── arm ──► shadow word, doorbell ──► our CqTable
//! ```
//!
//! The code comes from `libirdma-rdmav34.a` of Debian's package libibverbs-dev, rdma-core 44
//! [E810 10]. Where that is missing this crate builds without it, `cfg(oracle)` is not set, and the
//! tests print why they are skipped. The same goes for `libmlx5.a` and `libhns-rdmav34.a`, which
//! judge the other dialects (`mlx5.rs`, `hns.rs`, `cfg(oracle_others)`). The library proper is for
//! tests: no crate depends on it.
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
/// The same of those that judge the other dialects.
pub const OTHERS_STATUS: &str = env!("OTHERS_STATUS");

#[cfg(oracle)]
mod cq;
#[cfg(oracle)]
mod depth;
#[cfg(oracle)]
mod ffi;
#[cfg(oracle_others)]
mod hns;
#[cfg(oracle_others)]
mod mlx5;
#[cfg(any(oracle, oracle_others))]
mod object;
#[cfg(oracle)]
mod qp;
#[cfg(oracle_others)]
mod queue;
#[cfg(oracle_others)]
mod wc;
#[cfg(oracle)]
pub mod wr;

#[cfg(oracle)]
pub use cq::{OracleCq, Polled, Status};
#[cfg(oracle)]
pub use depth::{fragment_quanta, rq_depth, rq_wqe_bytes, sq_depth, wqe_shift};
#[cfg(oracle)]
pub use qp::{Caps, OracleQp};

#[cfg(oracle_others)]
pub use queue::DriverCq;
#[cfg(oracle_others)]
pub use wc::Wc;

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
