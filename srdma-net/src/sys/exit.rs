//! Ends of processes: a call at the end of ours, also if it is not Rust's; outliving a program.

use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

extern "C" fn run() {
    // A child may have been born while another thread had the lock; then nothing is left to do.
    let all = match LAST.try_lock() {
        Ok(all) => all.clone(),
        Err(_) => return,
    };
    for last in all {
        last();
    }
}

/// Calls `last` when the process ends by `exit` or by the return of `main`; once, however often it
/// is given.
pub(crate) fn at_exit(last: fn()) {
    let mut all = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().any(|known| std::ptr::fn_addr_eq(*known, last)) {
        return;
    }
    all.push(last);
    if all.len() > 1 {
        return;
    }
    drop(all);
    // SAFETY: why needed: there is no other way to be called at the end of a C program. Why sound:
    // `run` is a function of this library, takes nothing, does not unwind (it only writes and
    // removes files), and C libraries run such handlers of a library before they unload it.
    let _ = unsafe { libc::atexit(run) };
}

/// From here on an interrupt of the terminal does not end this process: for one that shows what a
/// program does which the same interrupt ends.
pub fn outlive_interrupts() {
    // SAFETY: why needed: the standard library leaves signals alone. Why sound: the disposition
    // "ignore" runs no code, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
