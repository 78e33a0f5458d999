//! How long the background thread spins before it sleeps, and when it stays out.
//!
//! ```text
//! last work ──── spin budget ────► sleep until a socket, a doorbell or a timer
//!                30 µs
//! last pass by a caller ── grace ──► the thread may listen to the socket again
//!                          50 µs, more where threads run late
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
/// Most that the grace grows by where threads run late.
const MAX_PATIENCE_NS: u64 = 250_000;
/// How long a caller that polls may be away on an errand that is known: it posts, which sends, or
/// was put aside by the thread that it woke. On a slow processor both take longer than the grace.
pub const ERRAND_NS: u64 = 500_000;
/// Polls in a row after which somebody is taken to poll for good.
const STEADY_POLLS: u32 = 32;

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
    /// What is added to the grace.
    patience: AtomicU64,
}

impl Callers {
    /// Nobody yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            patience: AtomicU64::new(0),
        }
    }

    /// A caller runs a pass at `now`. One plain store.
    #[inline]
    pub fn mark(&self, now: Instant) {
        self.last.store(now.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Somebody posts at `now`: if callers drive, they will be back after that. The next pass of a
    /// poller says when it really was. One load; a store more where callers drive.
    #[inline]
    pub fn errand(&self, now: Instant) {
        if self.present(now) {
            self.mark(now.after(ERRAND_NS));
        }
    }

    /// True while callers drive, or may be expected back.
    #[inline]
    #[must_use]
    pub fn present(&self, now: Instant) -> bool {
        let patience = self.patience.load(Ordering::Relaxed);
        self.driving(now, CALLER_GRACE_NS + patience).is_some()
    }

    /// The background thread ran `late_ns` after its time. Whatever kept it (a busy processor, a
    /// slow one) keeps callers as well: they are not gone for that. Returns the patience.
    pub fn ran_late(&self, late_ns: u64) -> u64 {
        let before = self.patience.load(Ordering::Relaxed);
        let patience = late_ns.saturating_mul(2).max(before / 2);
        let patience = patience.min(MAX_PATIENCE_NS);
        self.patience.store(patience, Ordering::Relaxed);
        patience
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

/// Whether somebody polls for good, so that the background thread is better told to stay out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steady {
    /// Polls in a row.
    polls: u32,
}

impl Steady {
    /// A poll; `present`: callers drove until now.
    pub const fn polled(&mut self, present: bool) {
        self.polls = if present {
            self.polls.saturating_add(1)
        } else {
            0
        };
    }

    /// True once somebody has polled for a while.
    #[must_use]
    pub const fn is_steady(&self) -> bool {
        self.polls >= STEADY_POLLS
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

    #[test]
    fn who_polls_and_posts_is_not_gone() {
        let callers = Callers::new();
        callers.errand(Instant(5));
        assert_eq!(callers.driving(Instant(5), 50), None, "nobody polls");
        callers.mark(Instant(10));
        callers.errand(Instant(20));
        let back = Instant(20 + ERRAND_NS);
        assert!(callers.driving(back, CALLER_GRACE_NS).is_some());
        assert_eq!(callers.driving(back.after(CALLER_GRACE_NS), 0), None);
        callers.mark(Instant(30));
        assert_eq!(
            callers.driving(Instant(31), 50),
            Some(49),
            "a poll tells the true time"
        );
    }

    #[test]
    fn who_runs_late_is_patient() {
        let callers = Callers::new();
        callers.mark(Instant(0));
        let gap = Instant(CALLER_GRACE_NS + 150_000);
        assert!(!callers.present(gap));
        assert_eq!(callers.ran_late(100_000), 200_000);
        assert!(callers.present(gap));
        assert_eq!(callers.ran_late(0), 100_000, "it wears off");
        assert!(!callers.present(gap));
        assert_eq!(callers.ran_late(u64::MAX), MAX_PATIENCE_NS);
    }

    #[test]
    fn only_polls_in_a_row_are_steady() {
        let mut steady = Steady::default();
        for _ in 1..STEADY_POLLS {
            steady.polled(true);
        }
        assert!(!steady.is_steady());
        steady.polled(true);
        assert!(steady.is_steady());
        steady.polled(true);
        assert!(steady.is_steady(), "as long as it polls");
        steady.polled(false);
        assert!(!steady.is_steady());
    }
}
