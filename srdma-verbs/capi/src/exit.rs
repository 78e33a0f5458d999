//! The end of the process: peers get the acknowledgements that are still due.
//!
//! A NIC acknowledges by itself. Here an acknowledgement may wait for the next pass of the device,
//! and a program that ends right after its last receive would leave its peer to ask until it gives
//! up. So one more pass is run for each device that is open when the process ends. A program may
//! end from a signal's handler, in the middle of any call, so nothing here allocates or waits for a
//! lock.

use crate::context::Context;
use crate::handle::lock;
use core::ptr;
use std::sync::{Mutex, Once};

/// Contexts that are open, each with the process that opened it.
static OPEN: Mutex<Vec<(u32, usize)>> = Mutex::new(Vec::new());

/// A context was opened.
pub(crate) fn enter(context: &Context) {
    static ARMED: Once = Once::new();
    ARMED.call_once(|| crate::ffi::at_exit(last_pass));
    let addr = ptr::from_ref(context).expose_provenance();
    lock(&OPEN).push((std::process::id(), addr));
}

/// A context is closed.
pub(crate) fn leave(context: &Context) {
    let addr = ptr::from_ref(context).addr();
    lock(&OPEN).retain(|(_, known)| *known != addr);
}

extern "C" fn last_pass() {
    let me = std::process::id();
    // Whoever holds the list is opening or closing a device, and does not come to its end.
    let Ok(open) = OPEN.try_lock() else { return };
    // A child has no part in the devices of its parent.
    for (_, addr) in open.iter().filter(|(process, _)| *process == me) {
        let context = crate::ffi::object::<Context>(ptr::with_exposed_provenance(*addr));
        if let Some(context) = context {
            context.verbs.last_call();
        }
    }
}
