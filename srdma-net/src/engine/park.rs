//! Parking: a program thread that waits for an event serves the device itself.
//!
//! ```text
//! packet ─► wakes the waiting program ─► pass ─► its event is there        one wake-up, not two
//! ```
//!
//! One thread at a time parks; others sleep as usual and are woken by the handlers that its passes
//! run. While it is there the background thread stays out, and it comes back when the parked thread
//! has left and nobody drives.

use super::By;
use crate::bridge::Sleeper;
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

impl super::Engine {
    /// Lets a parked thread look again at what it waits for: for news that no pass of the device
    /// brought. Cost: a fence and a load; a system call if somebody is parked.
    pub fn unpark(&self) {
        // Pairs with the fence in `park`.
        fence(Ordering::SeqCst);
        if self.shared.park_planned.load(Ordering::Relaxed) != 0 {
            self.shared.unpark.signal();
        }
    }

    /// Serves the device on this thread until `done`, or until `limit` has passed. False: another
    /// thread is parked, or this engine has no thread that would take over afterwards; then the
    /// caller has to sleep in its own way.
    pub fn park(&self, limit: Option<Duration>, done: impl Fn() -> bool) -> bool {
        let shared = &*self.shared;
        if shared.waker.is_none() || shared.parked.swap(true, Ordering::SeqCst) {
            return false;
        }
        let until = limit.map(|limit| {
            let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            shared.clock.now().after(ns)
        });
        loop {
            shared.run(shared.lock(), By::Waiter);
            let now = shared.clock.now();
            if done() || until.is_some_and(|until| now >= until) {
                break;
            }
            let core = shared.lock();
            if shared.board.is_dirty() {
                continue;
            }
            let deadline = core.deadline(now).into_iter().chain(until).min();
            let planned = deadline.map_or(u64::MAX, |at| at.0.max(1));
            shared.park_planned.store(planned, Ordering::Relaxed);
            drop(core);
            // The look after the announcement: an event that another thread's pass raised before it
            // is seen here, one that comes later signals `unpark`. Pairs with the fence in `run`.
            // It also pairs with that in `drive`: who rang while the lock was held above, and did
            // not get it, is seen here.
            fence(Ordering::SeqCst);
            if !done() && !shared.board.is_dirty() {
                let limit_ns = deadline.map(|at| at.since(now));
                let unpark = shared.unpark.as_raw_fd();
                shared.sleep(Sleeper::Parked, [unpark].into_iter(), limit_ns);
            }
            shared.park_planned.store(0, Ordering::Relaxed);
            shared.unpark.take();
        }
        shared.park_planned.store(0, Ordering::Relaxed);
        shared.pollers.mark(shared.clock.now());
        shared.parked.store(false, Ordering::SeqCst);
        if shared.deep.swap(false, Ordering::SeqCst) {
            shared.wake_thread();
        }
        true
    }
}
