//! Datagrams that are not due yet, in the order of their times.

use slab::Slab;
use srdma_core::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Datagrams held at most, in each direction.
pub(super) const MAX_HELD: usize = 8192;

/// What is held, each until its time.
#[derive(Debug)]
pub(super) struct Hold<T> {
    /// When each is due, in which order they came, and where it is.
    order: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    held: Slab<T>,
    /// What was taken and came back.
    front: Option<T>,
    next_order: u64,
}

impl<T> Default for Hold<T> {
    fn default() -> Self {
        Self {
            order: BinaryHeap::new(),
            held: Slab::new(),
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
        let place = self.held.insert(item);
        self.order.push(Reverse((due, self.next_order, place)));
        self.next_order += 1;
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
        let Reverse((_, _, place)) = self.order.pop()?;
        self.held.try_remove(place)
    }

    /// Something is to be taken at `now`.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.front.is_some() || self.next_due().is_some_and(|due| due <= now)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        // What came back waits for the socket, not for a time.
        self.order.peek().map(|Reverse((due, ..))| *due)
    }
}
