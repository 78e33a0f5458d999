//! E810-format descriptors: words in, meaning out. No state.
//!
//! ```text
//! wqe      SQ work: header, fragments, inline      built by the driver, parsed by the device
//! rwqe     RQ and SRQ work                         built by the driver, parsed by the device
//! cqe      completions: 32, 2 × 32 and 64 bytes    encoded by the device, decoded by the driver
//! ceqe     "this CQ has something new"             device → driver
//! aeqe     asynchronous events and their classes   device → driver
//! cqp      control commands and their completions  driver → device → driver
//! ieq      what a buffer of the exception queue holds   device → driver
//! qp_ctx   the 256 bytes of attributes a QP has    driver → device
//! shadow   words both halves read outside of rings
//! doorbell registers: where to look, never what is there
//! dialect  the words of completions and events as other NICs spell them
//! ```
//!
//! Words are `u64` values in host order; whoever stores them makes them little-endian. The valid
//! bit is left clear by every encoder here and put in by the ring, which alone knows the lap.
//! The tables are in `docs/rings.md`. Nothing here touches memory that others share.

pub mod aeqe;
pub mod ceqe;
pub mod cqe;
pub mod cqp;
pub mod dialect;
pub mod doorbell;
mod fields;
pub mod ieq;
pub mod polarity;
pub mod qp_ctx;
pub mod rwqe;
pub mod sge;
pub mod shadow;
pub mod wqe;

pub use crate::mem::Sge;
pub use aeqe::{AeCode, AeSource, Aeqe, EventClass, Report};
pub use ceqe::Ceqe;
pub use cqe::{CqeInfo, FlushCode, Major};
pub use cqp::{CqpCmd, CqpCompletion, CqpFault, CqpOp};
pub use dialect::Dialect;
pub use ieq::{IeqClass, IeqInfo};
pub use polarity::Polarity;
pub use qp_ctx::{HwQpState, HwQpType, QpContext};
pub use rwqe::RqCmd;
pub use sge::SgeList;
pub use wqe::{SqCmd, SqHeader, SqOp, WqeBuf, WqeFault};
