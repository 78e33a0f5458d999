//! Object numbers: allotted by this half, as on an E810; the device only refuses duplicates.
//!
//! ```text
//! first ……… [used] next → ………………… last       a number comes back only after a whole round
//! ```
//!
//! The start is random, so that a program that was restarted does not meet packets and keys of its
//! earlier life. Numbers go through a whole round before one is used again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: what the locks of this crate hold stays consistent.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random bits from the system.
pub(crate) fn random() -> u32 {
    // Without entropy the numbers start at the same place: less safe, but not wrong.
    getrandom::u32().unwrap_or(0x5eed)
}

/// Numbers of one kind, `first..=last`.
#[derive(Debug)]
pub(crate) struct IdPool {
    first: u32,
    last: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u32,
    used: HashSet<u32>,
}

impl IdPool {
    /// Starts at a random number.
    pub(crate) fn random(first: u32, last: u32) -> Self {
        Self::starting(first, last, first + random() % (last - first + 1))
    }

    /// Starts at the first number.
    pub(crate) fn new(first: u32, last: u32) -> Self {
        Self::starting(first, last, first)
    }

    fn starting(first: u32, last: u32, next: u32) -> Self {
        debug_assert!(first <= next && next <= last);
        Self {
            first,
            last,
            state: Mutex::new(State {
                next,
                used: HashSet::new(),
            }),
        }
    }

    /// A number that is not in use; `None` if all are.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut state = lock(&self.state);
        if state.used.len() >= self.total() {
            return None;
        }
        loop {
            let id = state.next;
            state.next = if id == self.last { self.first } else { id + 1 };
            if state.used.insert(id) {
                return Some(id);
            }
        }
    }

    /// Numbers in use.
    pub(crate) fn used(&self) -> usize {
        lock(&self.state).used.len()
    }

    /// Numbers there are.
    pub(crate) const fn total(&self) -> usize {
        (self.last - self.first) as usize + 1
    }

    /// The number is one of these.
    pub(crate) const fn covers(&self, id: u32) -> bool {
        self.first <= id && id <= self.last
    }

    /// Gives a number back.
    pub(crate) fn give(&self, id: u32) {
        lock(&self.state).used.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_only_after_a_round() {
        let pool = IdPool::random(3, 10);
        let mut seen: Vec<u32> = (0..8).map(|_| pool.take().unwrap()).collect();
        assert_eq!(pool.take(), None);
        pool.give(seen[0]);
        assert_eq!(pool.take(), Some(seen[0]));
        seen.sort_unstable();
        assert_eq!(seen, [3, 4, 5, 6, 7, 8, 9, 10]);

        let pool = IdPool::new(0, 99);
        for expected in 0..100 {
            let id = pool.take().unwrap();
            assert_eq!(id, expected);
            pool.give(id);
        }
        assert_eq!(pool.take(), Some(0));
    }
}
