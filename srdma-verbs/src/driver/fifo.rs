//! The queue behind a completion channel and behind asynchronous events.
//!
//! ```text
//! handler ── push ──► [ record … ] ── pop ──► program
//!                        │ not empty ⇔ the descriptor is readable (level)      [events 1.3]
//! ```
//!
//! Sleepers wait on a condition variable; the eventfd is made when a program first asks for it, so
//! a program that never polls descriptors never pays for one. Not on any path without an event.

use super::ids::lock;
use srdma_net::EventFd;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Records in order of arrival, for any number of readers; each record goes to one of them.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    records: Mutex<VecDeque<T>>,
    arrived: Condvar,
    fd: OnceLock<EventFd>,
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

    /// Appends. Cost: a system call if somebody sleeps, one more if the descriptor is in use and
    /// was not readable.
    pub(crate) fn push(&self, record: T) {
        let mut records = lock(&self.records);
        records.push_back(record);
        if records.len() == 1
            && let Some(fd) = self.fd.get()
        {
            fd.signal();
        }
        drop(records);
        self.arrived.notify_one();
    }

    /// Takes the first record, and calls `taken` with it under the queue's lock.
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
    pub(crate) fn pop_within<R>(
        &self,
        limit: core::time::Duration,
        taken: impl FnOnce(T) -> R,
    ) -> Option<R> {
        let records = lock(&self.records);
        let (mut records, _) = self
            .arrived
            .wait_timeout_while(records, limit, |records| records.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let record = records.pop_front()?;
        self.settle(&records);
        Some(taken(record))
    }

    /// Drops the records that `dead` names.
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
            let _ = self.fd.set(fd);
        }
        drop(records);
        self.fd
            .get()
            .map(EventFd::as_fd)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Makes the descriptor unreadable when the last record was taken.
    fn settle(&self, records: &VecDeque<T>) {
        if records.is_empty()
            && let Some(fd) = self.fd.get()
        {
            fd.take();
        }
    }
}

/// How many events of an object a program was given, and how many it has acknowledged. [events 1.7]
#[derive(Debug, Default)]
pub(crate) struct Owed {
    counts: Mutex<Counts>,
    acked: Condvar,
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
    pub(crate) fn ack(&self, count: u32) {
        let mut counts = lock(&self.counts);
        counts.acked = counts.acked.wrapping_add(count);
        drop(counts);
        self.acked.notify_all();
    }

    /// Sleeps until exactly as many are acknowledged as were given.
    pub(crate) fn wait(&self) {
        let counts = lock(&self.counts);
        drop(
            self.acked
                .wait_while(counts, |counts| counts.given != counts.acked)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::sync::Arc;

    fn readable(fifo: &Fifo<u32>) -> bool {
        use std::os::fd::AsRawFd;
        let fd = fifo.fd().unwrap().as_raw_fd();
        let mut poll = mio::Poll::new().unwrap();
        let mut source = mio::unix::SourceFd(&fd);
        poll.registry()
            .register(&mut source, mio::Token(0), mio::Interest::READABLE)
            .unwrap();
        let mut events = mio::Events::with_capacity(1);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn the_descriptor_is_readable_while_records_are_there() {
        let fifo = Fifo::default();
        fifo.push(1);
        assert!(readable(&fifo));
        fifo.push(2);
        assert_eq!(fifo.pop(|r| r), Some(1));
        assert!(readable(&fifo));
        assert_eq!(fifo.pop(|r| r), Some(2));
        assert!(!readable(&fifo));
        assert_eq!(fifo.pop(|r| r), None);
        fifo.push(3);
        fifo.push(4);
        fifo.purge(|r| *r == 3);
        assert!(readable(&fifo));
        fifo.purge(|_| true);
        assert!(!readable(&fifo));
        assert_eq!(fifo.pop_within(Duration::ZERO, |r| r), None);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let fifo = Arc::new(Fifo::default());
        let sleeper = std::thread::spawn({
            let fifo = Arc::clone(&fifo);
            move || fifo.pop_wait(|r: u32| r)
        });
        fifo.push(7);
        assert_eq!(sleeper.join().unwrap(), 7);
    }

    #[test]
    fn waiting_ends_with_the_last_acknowledgement() {
        let owed = Arc::new(Owed::default());
        owed.wait();
        owed.give();
        owed.give();
        let waiter = std::thread::spawn({
            let owed = Arc::clone(&owed);
            move || owed.wait()
        });
        owed.ack(1);
        owed.ack(1);
        waiter.join().unwrap();
    }
}
