//! Posts that share a pass: those of a thread that answers several completions, one by one.
//!
//! ```text
//! poll: four ─► post ─► post ─► post ─► post ─► pass, sends all
//!               └ wait for the others: so many at most, and so long after a pass
//! ```
//!
//! A pass sends with a system call, which carries many messages as cheaply as one. Who posts one
//! for each completion would pay one for each; but one follows the other at once, and after the
//! last comes a look at the queue, which runs a pass as well. Where neither comes, the background
//! thread does, which looks in.

use core::cell::Cell;
use core::ptr;
use srdma_core::time::Instant;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Posts that share a pass at most.
const MOST: u32 = 32;
/// So long after a pass nothing waits any more. Who works on what it took for longer than this
/// sends each answer at once.
const JOIN_NS: u64 = 10_000;

/// Who took completions, and what waits. Hints alone: whatever they say, a pass takes all that was
/// rung.
#[derive(Debug, Default)]
pub(super) struct Join {
    /// The thread that took completions last; zero for none.
    taker: AtomicUsize,
    /// How many it took since a pass and has not answered.
    taken: AtomicU32,
    /// Posts that wait.
    waiting: AtomicU32,
    /// When a pass began last, ns.
    passed: AtomicU64,
    /// Posts that waited, in all.
    total: AtomicU64,
}

thread_local! {
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

/// A number of this thread: no other that runs has it, and it is not zero.
fn this_thread() -> usize {
    THREAD.with(|place| ptr::from_ref(place).addr())
}

impl Join {
    /// This thread took completions.
    pub(super) fn took(&self, completions: u32) {
        self.taker.store(this_thread(), Ordering::Relaxed);
        self.taken.store(completions, Ordering::Relaxed);
    }

    /// This thread posts, and has more to answer.
    #[inline]
    pub(super) fn expects(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == 0 || self.taker.load(Ordering::Relaxed) != this_thread() {
            return false;
        }
        self.taken.store(taken - 1, Ordering::Relaxed);
        taken > 1
    }

    /// True if what was posted may wait for the next pass.
    pub(super) fn waits(&self, now: Instant) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let may = waiting < MOST - 1 && !self.is_late(now);
        if may {
            self.waiting.store(waiting + 1, Ordering::Relaxed);
            self.total.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Posts that waited so far.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        now.since(Instant(self.passed.load(Ordering::Relaxed))) >= JOIN_NS
    }

    /// A pass takes what waits.
    #[inline]
    pub(super) fn passes(&self, now: Instant) {
        self.passed.store(now.0, Ordering::Relaxed);
        if self.is_waiting() {
            self.waiting.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts that go at once, of so many answers to as many completions.
    fn passes_of(join: &Join, answers: u32, now: Instant) -> Vec<u32> {
        join.took(answers);
        let mut passes = Vec::new();
        for n in 0..answers {
            if !(join.expects() && join.waits(now)) {
                join.passes(now);
                passes.push(n);
            }
        }
        passes
    }

    #[test]
    fn answers_to_completions_share_a_pass() {
        let join = Join::default();
        let now = Instant(JOIN_NS);
        join.passes(now);
        assert_eq!(passes_of(&join, 1, now), [0]);
        assert_eq!(passes_of(&join, 4, now), [3]);
        assert_eq!(passes_of(&join, 80, now), [31, 63, 79]);
        assert!(!join.expects(), "what it posts further answers nothing");
    }

    #[test]
    fn who_works_long_on_each_sends_each_at_once() {
        let join = Join::default();
        join.passes(Instant(0));
        assert_eq!(passes_of(&join, 1, Instant(JOIN_NS)), [0]);
        join.took(3);
        assert!(join.expects() && join.waits(Instant(2 * JOIN_NS - 1)));
        assert!(join.is_waiting() && !join.is_late(Instant(2 * JOIN_NS - 1)));
        assert!(
            join.is_late(Instant(2 * JOIN_NS)),
            "the next look runs a pass"
        );
        assert!(join.expects() && !join.waits(Instant(2 * JOIN_NS)));
        join.passes(Instant(2 * JOIN_NS));
        assert!(!join.is_waiting());
    }

    #[test]
    fn another_thread_waits_for_nobody() {
        let join = Join::default();
        join.took(5);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!join.expects()));
        });
        assert!(join.expects());
    }
}
