//! Ends of processes: a call at the end of ours, also if it is not Rust's; outliving a program.
//!
//! A program may end from a signal's handler, in the middle of anything that its thread does: with
//! the device's lock held, or that of the allocator. So nothing here allocates or waits for a lock,
//! and what has to be done is asked of a thread of ours ([`LastCall`]).

use super::clock::monotonic_ns;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the thread is waited for that gets nowhere: longer than one waits for the processor
/// where many others run.
const PATIENCE_NS: u64 = 300_000_000;
/// How long between two looks.
const LOOK: Duration = Duration::from_micros(100);

static LAST: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

extern "C" fn run() {
    // A child may have been born while another thread had the lock; then nothing is left to do.
    if let Ok(all) = LAST.try_lock() {
        all.iter().for_each(|last| last());
    }
}

/// What the end of the process asks of a thread of ours.
#[derive(Debug)]
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

    /// Asks, has the thread woken, and waits until it is done. Gives up if it gets nowhere for a
    /// while: what it needs may be held by the very call that the end of the process cut short.
    /// `progress` tells how far it is.
    pub(crate) fn make(&self, wake: impl FnOnce(), progress: impl Fn() -> u64) -> bool {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        wake();
        let (mut seen, mut since) = (progress(), monotonic_ns());
        loop {
            let done = self.done.load(Ordering::SeqCst);
            if done.wrapping_sub(mine).cast_signed() >= 0 {
                return true;
            }
            let (now, far) = (monotonic_ns(), progress());
            if far != seen {
                (seen, since) = (far, now);
            } else if now - since >= PATIENCE_NS {
                return false;
            }
            std::thread::sleep(LOOK);
        }
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

/// The calling thread handles no signals: they are the program's, whose handlers may end the
/// process, which then waits for our threads. Those that tell of a fault of the thread itself stay.
pub(crate) fn leave_signals_alone() {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: why needed: the standard library leaves signals alone. Why sound: it fills the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        // SAFETY: why needed: as above. Why sound: the set was filled just before.
        unsafe { libc::sigdelset(set.as_mut_ptr(), fault) };
    }
    // SAFETY: why needed: as above. Why sound: the set is filled, the old one is not asked for, and
    // only the mask of this thread changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), core::ptr::null_mut()) };
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
        assert!(CALL.make(|| (), || 0));
        assert_eq!(TRIES.load(Ordering::SeqCst), 3);
        assert!(!CALL.is_waiting());
        thread.join().unwrap();
    }

    #[test]
    fn signals_are_the_programs() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
        };
        let mask = std::thread::spawn(move || {
            leave_signals_alone();
            blocked()
        });
        let mask = mask.join().unwrap();
        let has = |signal: libc::c_int| mask & 1 << (signal - 1) != 0;
        assert!(has(libc::SIGINT) && has(libc::SIGURG) && has(libc::SIGALRM));
        assert!(!has(libc::SIGSEGV) && !has(libc::SIGBUS));
        assert_eq!(blocked() & 1 << (libc::SIGURG - 1), 0, "here as before");
    }

    #[test]
    fn who_ends_does_not_wait_for_ever() {
        let call = LastCall::new();
        let mut woken = false;
        let looks = AtomicU32::new(0);
        // It gets somewhere for longer than one is waited for that does not, and then no more.
        let far = u32::try_from(PATIENCE_NS / 80_000).unwrap();
        let progress = || u64::from(looks.fetch_add(1, Ordering::SeqCst).min(far));
        assert!(!call.make(|| woken = true, progress));
        assert!(woken && call.is_waiting() && looks.into_inner() > far);
        // Late, but it is for the last who asked.
        call.answer(|| true);
        assert!(!call.is_waiting());
    }
}
