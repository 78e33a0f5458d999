//! A turn of a managed queue: poll in batches, call back, arm when nothing is left. [events 3.3]
//!
//! ```text
//! poll ≤ batch ─► callbacks ─► … ─┬─ budget used up ─► another turn, not armed
//!                                 └─ short batch: open the gate, arm ─┬─ missed some ─► a turn
//!                                                                     └─ clean ─► asleep
//! ```
//!
//! The gate opens before the arm: an event that comes in between finds it open.

use super::crew::Polled;
use super::{Managed, ManagedCq, ManagedInner, PollContext};
use crate::driver::ids::lock;
use crate::wc::Completion;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Completions that a turn polls at once.
pub const POLL_BATCH: usize = 16;
/// The same of [`ManagedCq::process_direct`].
pub const POLL_BATCH_DIRECT: usize = 8;
/// Completions that a turn of [`PollContext::Softirq`] handles at most.
pub const BUDGET_SOFTIRQ: usize = 256;
/// Completions that a turn of the workqueue contexts handles at most.
pub const BUDGET_WORKQUEUE: usize = 65_536;

/// What a managed queue counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqStats {
    /// Turns.
    pub runs: u64,
    /// Completions handled.
    pub completions: u64,
    /// Completions of the largest turn.
    pub largest_run: u64,
    /// Turns that used their budget up and were followed by another, without arming.
    pub requeued: u64,
    /// Times the queue was armed.
    pub armed: u64,
    /// Arms that found completions in the queue, so that another turn followed.
    pub missed: u64,
    /// Successful completions whose work request named no closure.
    pub unclaimed: u64,
    /// Callbacks that panicked.
    pub panics: u64,
    /// Times adaptive moderation changed its profile.
    pub profiles: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    runs: AtomicU64,
    completions: AtomicU64,
    largest_run: AtomicU64,
    requeued: AtomicU64,
    armed: AtomicU64,
    missed: AtomicU64,
    unclaimed: AtomicU64,
    panics: AtomicU64,
    profiles: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    pub(crate) fn read(&self) -> CqStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CqStats {
            runs: of(&self.runs),
            completions: of(&self.completions),
            largest_run: of(&self.largest_run),
            requeued: of(&self.requeued),
            armed: of(&self.armed),
            missed: of(&self.missed),
            unclaimed: of(&self.unclaimed),
            panics: of(&self.panics),
            profiles: of(&self.profiles),
        }
    }
}

/// Polls and hands out until the budget is used up or a batch is short, and says how many.
// rule: mcq-4, mcq-6
fn process(
    budget: usize,
    batch: &mut [Completion],
    mut poll: impl FnMut(&mut [Completion]) -> usize,
    mut done: impl FnMut(&Completion),
) -> usize {
    let mut handled = 0;
    while handled < budget {
        let want = batch.len().min(budget - handled);
        let Some(places) = batch.get_mut(..want) else {
            break;
        };
        let got = poll(places);
        for completion in places.iter().take(got) {
            done(completion);
        }
        handled += got;
        if got != want {
            break;
        }
    }
    handled
}

impl ManagedInner {
    fn process(self: &Arc<Self>, budget: usize, batch: &mut [Completion]) -> usize {
        let handle = ManagedCq::from_inner(Arc::clone(self));
        let poll = |places: &mut [Completion]| self.cq.poll_into(places);
        let handled = process(budget, batch, poll, |wc| self.dispatch(&handle, wc));
        let counts = &self.counts;
        count(&counts.runs);
        counts
            .completions
            .fetch_add(handled as u64, Ordering::Relaxed);
        counts
            .largest_run
            .fetch_max(handled as u64, Ordering::Relaxed);
        handled
    }

    fn dispatch(&self, handle: &ManagedCq, wc: &Completion) {
        let Some(done) = self.callbacks.get(wc.wr_id()) else {
            // A flushed request may have nobody who asks for it.
            if wc.is_ok() {
                count(&self.counts.unclaimed);
            }
            return;
        };
        // rule: mcq-8
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done(handle, wc))) {
            count(&self.counts.panics);
            lock(&self.panic).get_or_insert(panic);
        }
    }

    /// One turn on the thread of the caller.
    // rule: mcq-5
    pub(crate) fn direct(self: &Arc<Self>, budget: usize) -> usize {
        if !self.poller.gate.enter() {
            return 0;
        }
        let mut batch = [Completion::EMPTY; POLL_BATCH_DIRECT];
        let handled = self.process(budget, &mut batch);
        self.poller.gate.complete();
        handled
    }

    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        lock(&self.panic).take()
    }

    /// Arms. True: completions are there that give no event.
    pub(crate) fn arm(&self) -> bool {
        count(&self.counts.armed);
        // Refused by a queue that is being destroyed: there is nothing to wait for.
        let missed = self.cq.arm_reporting(false).unwrap_or(false);
        if missed {
            count(&self.counts.missed);
        }
        missed
    }

    fn schedule(&self) {
        if let Some(crew) = &self.crew {
            self.poller.schedule(&crew.list);
        }
    }

    /// A run is a sample for adaptive moderation, and may change the profile.
    fn sample(&self, handled: usize) {
        let Some(dim) = &self.dim else { return };
        let micros = self.cq.ctx().driver.engine.now().0 / 1000;
        let mut dim = lock(dim);
        if let Some(profile) = dim.sample(micros, handled) {
            let period = Duration::from_micros(profile.micros.into());
            // Refused only by a queue that is gone.
            let _ = self.cq.set_moderation(profile.completions, period);
            dim.applied();
            count(&self.counts.profiles);
        }
    }
}

impl Polled for ManagedInner {
    fn poll(self: Arc<Self>, weight: usize) -> usize {
        self.cq.on_event_fetched();
        let mut batch = [Completion::EMPTY; POLL_BATCH];
        let handled = self.process(weight, &mut batch);
        let softirq = self.context == PollContext::Softirq;
        if handled >= weight {
            count(&self.counts.requeued);
            if softirq {
                self.sample(handled);
            }
            return handled;
        }
        self.poller.gate.complete();
        let missed = self.arm();
        if missed {
            self.schedule();
        }
        if softirq || !missed {
            self.sample(handled);
        }
        handled
    }
}

impl Managed {
    /// The managed queue, while somebody has a handle on it.
    pub(crate) fn upgrade(&self) -> Option<ManagedCq> {
        self.inner.upgrade().map(ManagedCq::from_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wc::WrId;

    /// Processes a queue of `there` completions; gives how many were asked for, and handled.
    fn asked(budget: usize, batch: usize, mut there: usize) -> (Vec<usize>, usize) {
        let mut asked = Vec::new();
        let (mut polled, mut done) = (0, 0);
        let mut places = vec![Completion::EMPTY; batch];
        let handled = process(
            budget,
            &mut places,
            |places| {
                asked.push(places.len());
                let got = places.len().min(there);
                for place in &mut places[..got] {
                    place.wr_id = WrId(polled);
                    polled += 1;
                }
                there -= got;
                got
            },
            |wc| {
                assert_eq!(wc.wr_id, WrId(done), "in the order of the queue");
                done += 1;
            },
        );
        assert_eq!(done, handled as u64);
        (asked, handled)
    }

    #[test]
    fn a_turn_asks_for_no_more_than_a_batch_and_its_budget() {
        // proves: mcq-4
        assert_eq!(asked(256, 16, 0), (vec![16], 0));
        assert_eq!(asked(256, 16, 15), (vec![16], 15));
        assert_eq!(asked(256, 16, 16), (vec![16, 16], 16));
        assert_eq!(asked(40, 16, 1000), (vec![16, 16, 8], 40));
        assert_eq!(asked(40, 16, 35), (vec![16, 16, 8], 35));
        assert_eq!(asked(BUDGET_SOFTIRQ, POLL_BATCH, 1000).1, 256);
        assert_eq!(asked(0, 16, 10), (vec![], 0));
        let (asked, handled) = asked(usize::MAX, POLL_BATCH_DIRECT, 100);
        assert_eq!((asked, handled), (vec![8; 13], 100));
    }
}
