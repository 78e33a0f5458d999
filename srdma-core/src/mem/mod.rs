//! What host memory is to the device: ranges somebody promised, regions with keys and rights,
//! grants for one checked use.

pub mod host;

pub use host::{HostBuf, HostFault, HostRange, HostWords, Span};
