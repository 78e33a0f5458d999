//! Privileged queues: what the device keeps for itself besides the queues of programs.
//!
//! ```text
//! pool   buffers for packets that outlive a receive, up to a limit     (pool.rs)
//! ieq    exceptions: what becomes of packets that leave the fast path  (ieq.rs)
//!        the packets of a queue pair, and the messages that they begin (reorder.rs, line.rs)
//! ```
//!
//! [E810 8]

pub mod ieq;
pub(crate) mod line;
pub(crate) mod pool;
pub(crate) mod reorder;

pub use ieq::{IeqMode, ReorderStats};
