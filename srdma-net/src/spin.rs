//! How long the background thread spins before it sleeps, and when it stays out.
//!
//! ```text
//! last work ──── spin budget ────► sleep until a socket, a doorbell or a timer
//!                30 µs
//! last pass by a caller ── grace ──► the thread may listen to the socket again
//!                          50 µs
//! ```
//!
//! A sleeping thread costs a hand-over of several µs when work arrives, a spinning one costs a
//! core. So it spins only shortly after it had work, and never when the device is idle. While
//! program threads run passes themselves, it neither spins nor listens.
//!
//! The numbers are read from the clock by the caller; nothing here waits.

use srdma_core::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering};

/// Spinning of the background thread after its last work, if nothing is configured.
pub const SPIN_NS: u64 = 30_000;
/// How long after a pass by a caller the background thread stays out.
pub const CALLER_GRACE_NS: u64 = 50_000;

/// What the background thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way to wait")]
pub enum Wait {
    /// Run another pass at once.
    Spin,
    /// Sleep until woken, at most so many nanoseconds.
    Sleep {
        /// `None`: no timer is set.
        limit_ns: Option<u64>,
    },
}

/// Decides between spinning and sleeping.
#[derive(Clone, Copy, Debug)]
pub struct Spinner {
    budget_ns: u64,
    last_work: Option<Instant>,
}

impl Spinner {
    /// Spins for `budget_ns` after work; zero: never.
    #[must_use]
    pub const fn new(budget_ns: u64) -> Self {
        Self {
            budget_ns,
            last_work: None,
        }
    }

    /// A pass moved something.
    pub const fn worked(&mut self, now: Instant) {
        self.last_work = Some(now);
    }

    /// What to do after a pass that moved nothing; `timer`: when the device wants to be called.
    #[must_use]
    pub fn next(&self, now: Instant, timer: Option<Instant>) -> Wait {
        if timer.is_some_and(|at| at <= now) {
            return Wait::Spin;
        }
        match self.last_work {
            Some(at) if now.since(at) < self.budget_ns => Wait::Spin,
            _ => Wait::Sleep {
                limit_ns: timer.map(|at| at.since(now)),
            },
        }
    }
}

/// When a program thread last ran a pass. Shared between callers and the background thread.
#[derive(Debug, Default)]
pub struct Callers {
    /// Time of the last pass plus one; zero if there was none.
    last: AtomicU64,
}

impl Callers {
    /// Nobody yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
        }
    }

    /// A caller runs a pass at `now`. One plain store.
    #[inline]
    pub fn mark(&self, now: Instant) {
        self.last.store(now.0.saturating_add(1), Ordering::Relaxed);
    }

    /// The caller goes to sleep: nobody drives from here on.
    pub fn leave(&self) {
        self.last.store(0, Ordering::Relaxed);
    }

    /// Nanoseconds that the background thread should still stay out; `None` if it may take over.
    #[must_use]
    pub fn driving(&self, now: Instant, grace_ns: u64) -> Option<u64> {
        let last = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Instant(last)
            .after(grace_ns)
            .0
            .checked_sub(now.0)
            .filter(|&left| left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_after_work_and_sleeps_when_idle() {
        let mut spinner = Spinner::new(SPIN_NS);
        let idle = Wait::Sleep { limit_ns: None };
        assert_eq!(
            spinner.next(Instant(0), None),
            idle,
            "an idle device spins never"
        );
        spinner.worked(Instant(1000));
        assert_eq!(spinner.next(Instant(1000 + SPIN_NS - 1), None), Wait::Spin);
        assert_eq!(spinner.next(Instant(1000 + SPIN_NS), None), idle);
        let timer = Some(Instant(200_000));
        let sleep = Wait::Sleep {
            limit_ns: Some(100_000),
        };
        assert_eq!(spinner.next(Instant(100_000), timer), sleep);
        assert_eq!(
            spinner.next(Instant(200_000), timer),
            Wait::Spin,
            "the timer is due"
        );
        let mut never = Spinner::new(0);
        never.worked(Instant(5));
        assert_eq!(never.next(Instant(5), None), idle);
    }

    #[test]
    fn callers_keep_the_thread_out_for_a_while() {
        let callers = Callers::new();
        assert_eq!(callers.driving(Instant(0), 50), None);
        callers.mark(Instant(0));
        assert_eq!(callers.driving(Instant(10), 50), Some(40));
        assert_eq!(callers.driving(Instant(50), 50), None);
        callers.mark(Instant(10));
        callers.leave();
        assert_eq!(
            callers.driving(Instant(11), 50),
            None,
            "a sleeper drives nothing"
        );
        callers.mark(Instant(u64::MAX));
        assert_eq!(
            callers.driving(Instant(u64::MAX), 50),
            None,
            "at the end of time"
        );
    }
}
