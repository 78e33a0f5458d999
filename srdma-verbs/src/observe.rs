//! Who looks on, as variables say: `SRDMA_TRACE` and `SRDMA_PCAP`.
//!
//! They are read when a process opens its first device, so programs need not know of them. See
//! `docs/tracing.md`.

use core::sync::atomic::{AtomicU32, Ordering};
use srdma_net::trace::{self, TraceConfig};

/// Where lines go.
const TRACE: &str = "SRDMA_TRACE";
/// Where packets go.
const CAPTURE: &str = "SRDMA_PCAP";

/// The process that has read the variables; a child reads them again.
static READ_BY: AtomicU32 = AtomicU32::new(0);

/// Does what the variables say, once a process.
pub(crate) fn start() {
    let process = std::process::id();
    if READ_BY.swap(process, Ordering::SeqCst) == process {
        return;
    }
    let set = |name| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let (lines, capture) = (set(TRACE), set(CAPTURE));
    let config = TraceConfig::from_variables(lines.as_deref(), capture.as_deref());
    if config == TraceConfig::default() {
        return;
    }
    if let Err(error) = trace::start(&config) {
        // The program has asked for a device, and can have it.
        eprintln!("srdma: {TRACE} or {CAPTURE}: nothing is written: {error}");
    }
}
