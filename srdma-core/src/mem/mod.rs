//! What host memory is to the device: ranges somebody promised, regions with keys and rights,
//! grants for one checked use.
//!
//! ```text
//! key, domain, rights, range ──check──► Grant<'_>  ──place, gather, atomic──► memory
//!                                         │ claim()
//!                                         ▼
//!                                       Claim      ──renew(offset, len)──► Grant<'_>
//!                                       (kept across packets; dead with its region or window)
//! ```
//!
//! What this does *not* do: decide what a fault becomes on the wire (the QPs do).

pub mod access;
mod check;
pub mod fault;
pub mod grant;
pub mod host;
mod invalidate;
pub mod map;
pub mod mr;
pub mod mw;
pub mod pager;
pub mod sge;

pub use access::{Access, AccessFault};
pub use fault::{BindFault, InvalidateFault, KeyFault, RegFault};
pub use grant::{Claim, Grant};
pub use host::{HostBuf, HostFault, HostRange, HostWords, Span};
pub use map::{HostMap, PblIndex};
pub use mr::{FastReg, MrTable, Rereg};
pub use mw::Bind;
pub use pager::{AtomicStep, Nowhere, Pager};
pub use sge::{Piece, Sge};
