//! Ends of processes: a call at the end of ours, also if it is not Rust's; outliving a program.
//!
//! A program may end from a signal's handler, in the middle of anything that its thread does: with
//! the device's lock held, or that of the allocator. So nothing here allocates or waits for a lock,
//! and what has to be done is asked of a thread of ours ([`LastCall`]).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Looks at whether the thread has done what the end of the process asks of it.
const LOOKS: u32 = 2_000;
/// How long between two of them. Together they are longer than a thread waits for the processor
/// where many others run.
const LOOK: Duration = Duration::from_micros(100);

static LAST: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

extern "C" fn run() {
    // A child may have been born while another thread had the lock; then nothing is left to do.
    if let Ok(all) = LAST.try_lock() {
        all.iter().for_each(|last| last());
    }
}

/// What the end of the process asks of a thread of ours.
#[derive(Debug, Default)]
pub(crate) struct LastCall {
    asked: AtomicU32,
    done: AtomicU32,
}

impl LastCall {
    pub(crate) const fn new() -> Self {
        Self {
            asked: AtomicU32::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// Asks, has the thread woken, and waits until it is done. Gives up after a while: what the
    /// thread needs may be held by the very call that the end of the process cut short.
    pub(crate) fn make(&self, wake: impl FnOnce()) -> bool {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        wake();
        (0..LOOKS).any(|_| {
            let done = self.done.load(Ordering::SeqCst) == mine;
            if !done {
                std::thread::sleep(LOOK);
            }
            done
        })
    }

    /// Is somebody waiting?
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.done.load(Ordering::Relaxed)
    }

    /// Does it if it was asked; `what` tells whether it could.
    pub(crate) fn answer(&self, what: impl FnOnce() -> bool) {
        let asked = self.asked.load(Ordering::SeqCst);
        if asked != self.done.load(Ordering::SeqCst) && what() {
            self.done.store(asked, Ordering::SeqCst);
        }
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
    // `run` is a function of this library, takes nothing, does not unwind (it waits, and
    // removes a file), and C libraries run such handlers of a library before they unload it.
    let _ = unsafe { libc::atexit(run) };
}

/// From here on an interrupt of the terminal does not end this process: for one that shows what a
/// program does which the same interrupt ends.
pub fn outlive_interrupts() {
    // SAFETY: why needed: the standard library leaves signals alone. Why sound: the disposition
    // "ignore" runs no code, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_waits_until_it_is_done() {
        static CALL: LastCall = LastCall::new();
        static TRIES: AtomicU32 = AtomicU32::new(0);
        assert!(!CALL.is_waiting());
        let thread = std::thread::spawn(|| {
            while TRIES.load(Ordering::SeqCst) < 3 {
                // Something is in the way at first.
                CALL.answer(|| TRIES.fetch_add(1, Ordering::SeqCst) == 2);
                std::thread::yield_now();
            }
        });
        assert!(CALL.make(|| ()));
        assert_eq!(TRIES.load(Ordering::SeqCst), 3);
        assert!(!CALL.is_waiting());
        thread.join().unwrap();
    }

    #[test]
    fn who_ends_does_not_wait_for_ever() {
        let call = LastCall::new();
        let mut woken = false;
        assert!(!call.make(|| woken = true));
        assert!(woken && call.is_waiting());
        // Late, but it is for the last who asked.
        call.answer(|| true);
        assert!(!call.is_waiting());
    }
}
