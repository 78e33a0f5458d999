//! Datagrams that are not due yet, in the order of their times.

use core::cmp::{Ordering, Reverse};
use srdma_core::time::Instant;
use std::collections::BinaryHeap;

/// Datagrams held at most, in each direction.
pub(super) const MAX_HELD: usize = 8192;

#[derive(Debug)]
pub(super) struct Hold<T> {
    held: BinaryHeap<Reverse<Held<T>>>,
    /// What was taken and came back.
    front: Option<T>,
    next_order: u64,
}

impl<T> Default for Hold<T> {
    fn default() -> Self {
        Self {
            held: BinaryHeap::new(),
            front: None,
            next_order: 0,
        }
    }
}

impl<T> Hold<T> {
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= MAX_HELD
    }

    /// Holds `item` until `due`; false, and it is gone, if too many are held.
    pub(super) fn put(&mut self, due: Instant, item: T) -> bool {
        if self.is_full() {
            return false;
        }
        let order = self.next_order;
        self.next_order += 1;
        self.held.push(Reverse(Held { due, order, item }));
        true
    }

    /// `item` was taken and is the next again.
    pub(super) fn put_back(&mut self, item: T) {
        self.front = Some(item);
    }

    /// The next that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<T> {
        if let Some(item) = self.front.take() {
            return Some(item);
        }
        if self.next_due()? > now {
            return None;
        }
        self.held.pop().map(|Reverse(held)| held.item)
    }

    /// Something is to be taken at `now`.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.front.is_some() || self.next_due().is_some_and(|due| due <= now)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        // What came back waits for the socket, not for a time.
        self.held.peek().map(|Reverse(held)| held.due)
    }
}

#[derive(Debug)]
struct Held<T> {
    due: Instant,
    order: u64,
    item: T,
}

impl<T> Held<T> {
    const fn key(&self) -> (u64, u64) {
        (self.due.0, self.order)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
