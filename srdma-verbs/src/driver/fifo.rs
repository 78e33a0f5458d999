//! The queue behind a completion channel and behind asynchronous events.
//!
//! ```text
//! handler ── push ──► [ record … ] ── pop ──► program
//!                        │ not empty ⇔ the descriptor is readable (level)      [events 1.3]
//! ```
//!
//! Sleepers wait on a condition variable; the eventfd is made when a program first asks for it, so
//! a program that never polls descriptors never pays for one. Not on any path without an event.
//!
//! What was inherited over a fork is a copy, but for the descriptor: a child leaves it alone, so
//! that its parent hears of every record.

use crate::sync::{Condvar, Mutex, PoisonError, lock};
use core::time::Duration;
use srdma_net::EventFd;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Instant;

/// Records in order of arrival, for any number of readers; each record goes to one of them.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    records: Mutex<VecDeque<T>>,
    arrived: Condvar,
    fd: OnceLock<(EventFd, u32)>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            records: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
            fd: OnceLock::new(),
        }
    }
}

impl<T> Fifo<T> {
    /// Room for `records` more, so that a push does not allocate.
    pub(crate) fn reserve(&self, records: usize) {
        lock(&self.records).reserve(records);
    }

    /// True without records.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.records).is_empty()
    }

    /// A program has asked for the descriptor.
    pub(crate) fn has_fd(&self) -> bool {
        self.fd.get().is_some()
    }

    /// Appends. Cost: a system call if somebody sleeps, one more if the descriptor is in use: each
    /// record is an edge to who waits for edges.
    // rule: event-3
    pub(crate) fn push(&self, record: T) {
        let mut records = lock(&self.records);
        records.push_back(record);
        if let Some((fd, _)) = self.fd.get() {
            fd.signal();
        }
        drop(records);
        self.arrived.notify_one();
    }

    /// Takes the first record, and calls `taken` with it under the queue's lock.
    // rule: event-4
    pub(crate) fn pop<R>(&self, taken: impl FnOnce(T) -> R) -> Option<R> {
        let mut records = lock(&self.records);
        let record = records.pop_front()?;
        self.settle(&records);
        Some(taken(record))
    }

    /// Takes the first record; sleeps until there is one.
    pub(crate) fn pop_wait<R>(&self, taken: impl FnOnce(T) -> R) -> R {
        let mut records = lock(&self.records);
        loop {
            if let Some(record) = records.pop_front() {
                self.settle(&records);
                return taken(record);
            }
            records = self
                .arrived
                .wait(records)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the first record; sleeps no longer than `limit`.
    pub(crate) fn pop_within<R>(&self, limit: Duration, taken: impl FnOnce(T) -> R) -> Option<R> {
        let start = Instant::now();
        let mut records = lock(&self.records);
        while records.is_empty() {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return None;
            }
            let waited = self.arrived.wait_timeout(records, left);
            (records, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let record = records.pop_front()?;
        self.settle(&records);
        Some(taken(record))
    }

    /// Drops the records that `dead` names.
    // rule: event-29
    pub(crate) fn purge(&self, dead: impl Fn(&T) -> bool) {
        let mut records = lock(&self.records);
        let before = records.len();
        records.retain(|record| !dead(record));
        if before != 0 {
            self.settle(&records);
        }
    }

    /// The descriptor: readable while records are there. Never read from it.
    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        let records = lock(&self.records);
        if self.fd.get().is_none() {
            let fd = EventFd::new()?;
            if !records.is_empty() {
                fd.signal();
            }
            // The lock is held, so nobody else sets it.
            let _ = self.fd.set((fd, std::process::id()));
        }
        drop(records);
        self.fd
            .get()
            .map(|(fd, _)| fd.as_fd())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes the descriptor unreadable when the last record was taken.
    fn settle(&self, records: &VecDeque<T>) {
        if records.is_empty()
            && let Some((fd, owner)) = self.fd.get()
            && *owner == std::process::id()
        {
            fd.take();
        }
    }
}

/// How many events of an object a program was given, and how many it has acknowledged. [events 1.7]
#[derive(Debug)]
pub(crate) struct Owed {
    counts: Mutex<Counts>,
    acked: Condvar,
}

impl Default for Owed {
    fn default() -> Self {
        Self {
            counts: Mutex::new(Counts::default()),
            acked: Condvar::new(),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    given: u32,
    acked: u32,
}

impl Owed {
    /// One event was given to the program.
    pub(crate) fn give(&self) {
        let mut counts = lock(&self.counts);
        counts.given = counts.given.wrapping_add(1);
    }

    /// The program is done with `count` events.
    // rule: event-31, event-33
    pub(crate) fn ack(&self, count: u32) {
        let mut counts = lock(&self.counts);
        counts.acked = counts.acked.wrapping_add(count);
        drop(counts);
        self.acked.notify_all();
    }

    /// Sleeps until exactly as many are acknowledged as were given.
    // rule: event-28, event-32
    pub(crate) fn wait(&self) {
        let mut counts = lock(&self.counts);
        while counts.given != counts.acked {
            counts = self
                .acked
                .wait(counts)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
