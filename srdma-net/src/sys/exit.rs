//! Ends of processes: a call at the end of ours, also if it is not Rust's; outliving a program.

use std::sync::OnceLock;

static LAST: OnceLock<fn()> = OnceLock::new();

extern "C" fn run() {
    if let Some(last) = LAST.get() {
        last();
    }
}

/// Calls `last` when the process ends by `exit` or by the return of `main`. The first one counts.
pub(crate) fn at_exit(last: fn()) {
    if LAST.set(last).is_err() {
        return;
    }
    // SAFETY: why needed: there is no other way to be called at the end of a C program. Why sound:
    // `run` is a function of this library, takes nothing, does not unwind (it only writes files),
    // and C libraries run such handlers of a library before they unload it.
    let _ = unsafe { libc::atexit(run) };
}

/// From here on an interrupt of the terminal does not end this process: for one that shows what a
/// program does which the same interrupt ends.
pub fn outlive_interrupts() {
    // SAFETY: why needed: the standard library leaves signals alone. Why sound: the disposition
    // "ignore" runs no code, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
