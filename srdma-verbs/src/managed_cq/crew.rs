//! The threads that run callbacks: a list of queues with work, and who takes from it. [events 3.6]
//!
//! ```text
//! event ─► handler ─► gate ─► list ─► thread: polls, calls back
//!                               ▲        │ weight used up
//!                               └────────┘ to the end of the list
//! ```
//!
//! A thread without work sleeps, and serves the device meanwhile if nobody else does: the packet
//! that brings the completion wakes the thread that handles it.
//!
//! What this does *not* do: poll and arm (see `run.rs`).

use super::gate::Gate;
use crate::driver::engine::Engine;
use crate::driver::ids::lock;
use crate::error::Reason;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

/// Completions after which a thread lets others have the processor.
const ROUND: usize = 256;

/// What a thread does with a queue whose turn it is.
pub(crate) trait Polled: Send + Sync {
    /// Handles at most `weight` completions and says how many. Calls [`Gate::complete`] if they
    /// were fewer.
    fn poll(self: Arc<Self>, weight: usize) -> usize;
}

/// A queue as the list knows it. Dropping it does nothing, so event handlers may hold it.
pub(crate) struct Poller {
    pub(crate) gate: Gate,
    weight: usize,
    target: OnceLock<Weak<dyn Polled>>,
}

impl Poller {
    pub(crate) fn new(weight: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            weight,
            target: OnceLock::new(),
        })
    }

    /// Says what is to be polled. Before that, and after its end, a turn does nothing.
    pub(crate) fn aim(&self, target: Weak<dyn Polled>) {
        let _ = self.target.set(target);
    }

    /// There is work.
    pub(crate) fn schedule(self: &Arc<Self>, list: &List) {
        if self.gate.schedule() {
            list.push(Arc::clone(self));
        }
    }

    /// Its turn: says how many completions were handled.
    // rule: mcq-10
    fn turn(self: Arc<Self>, list: &List) -> usize {
        if !self.gate.start() {
            return 0;
        }
        let Some(target) = self.target.get().and_then(Weak::upgrade) else {
            self.gate.complete();
            return 0;
        };
        // The last handle may go inside: what it ends is no matter of the list any more.
        let used = target.poll(self.weight);
        if used >= self.weight && self.gate.list_again() {
            list.push(self);
        }
        used
    }
}

/// Queues with work, in the order of their turns.
#[derive(Default)]
pub(crate) struct List {
    state: Mutex<Listed>,
    news: Condvar,
    /// Threads that wait for work.
    idle: AtomicUsize,
}

#[derive(Default)]
struct Listed {
    pollers: VecDeque<Arc<Poller>>,
    members: usize,
    stop: bool,
}

impl List {
    /// One more queue may be listed: makes room, so that handlers do not allocate.
    pub(crate) fn enroll(&self) {
        let mut state = lock(&self.state);
        state.members += 1;
        let room = (2 * state.members).saturating_sub(state.pollers.len());
        state.pollers.reserve(room);
    }

    /// One queue less may be listed.
    pub(crate) fn discharge(&self) {
        let mut state = lock(&self.state);
        state.members = state.members.saturating_sub(1);
    }

    fn push(&self, poller: Arc<Poller>) {
        lock(&self.state).pollers.push_back(poller);
        self.news.notify_one();
    }

    fn pop(&self) -> Option<Arc<Poller>> {
        lock(&self.state).pollers.pop_front()
    }

    fn is_stopped(&self) -> bool {
        lock(&self.state).stop
    }

    /// Nothing to do, and no reason to leave.
    fn is_calm(&self) -> bool {
        let state = lock(&self.state);
        state.pollers.is_empty() && !state.stop
    }

    fn stop(&self) {
        lock(&self.state).stop = true;
        self.news.notify_all();
    }

    /// Sleeps until there is something.
    fn sleep(&self) {
        let state = lock(&self.state);
        drop(
            self.news
                .wait_while(state, |state| state.pollers.is_empty() && !state.stop)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// The next queue; sleeps until there is one. `None`: the crew is dismissed.
    fn next(&self, engine: &Engine) -> Option<Arc<Poller>> {
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(poller) = self.pop() {
                return Some(poller);
            }
            self.idle.fetch_add(1, Ordering::AcqRel);
            if !engine.park(None, || !self.is_calm()) {
                self.sleep();
            }
            self.idle.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Nobody waits for what is listed next.
    fn is_unattended(&self) -> bool {
        self.idle.load(Ordering::Acquire) == 0
    }
}

/// Which threads serve a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CrewKey {
    /// One thread for all queues of a processor, with small budgets.
    Softirq(usize),
    /// One thread for all queues of a processor.
    Bound(usize),
    /// Several threads for all queues.
    Unbound,
}

impl CrewKey {
    /// Threads at most.
    fn most(self) -> usize {
        match self {
            Self::Softirq(_) | Self::Bound(_) => 1,
            // One that waits in a callback holds nobody up.
            Self::Unbound => processors().max(2),
        }
    }

    fn thread_name(self) -> String {
        match self {
            Self::Softirq(cpu) => format!("srdma-cqirq/{cpu}"),
            Self::Bound(cpu) => format!("srdma-cqwq/{cpu}"),
            Self::Unbound => "srdma-cqwq/u".into(),
        }
    }
}

/// Processors that threads of this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads and their list. The last queue that they serve dismisses them.
pub(crate) struct Crew {
    pub(crate) list: Arc<List>,
    engine: Engine,
    key: CrewKey,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crew({:?})", self.key)
    }
}

/// The crews of a device that are at work.
#[derive(Debug, Default)]
pub(crate) struct Crews {
    crews: Mutex<HashMap<CrewKey, Weak<Crew>>>,
}

impl Crews {
    /// The crew of that key; made if there is none.
    pub(crate) fn join(&self, key: CrewKey, engine: &Engine) -> Result<Arc<Crew>, Reason> {
        let mut crews = lock(&self.crews);
        if let Some(crew) = crews.get(&key).and_then(Weak::upgrade) {
            return Ok(crew);
        }
        let crew = Arc::new(Crew {
            list: Arc::default(),
            engine: engine.clone(),
            key,
            threads: Mutex::default(),
        });
        crew.grow()?;
        crews.insert(key, Arc::downgrade(&crew));
        Ok(crew)
    }
}

impl Crew {
    /// One more thread, unless there are as many as there may be.
    fn grow(self: &Arc<Self>) -> Result<(), Reason> {
        let mut threads = lock(&self.threads);
        if threads.len() >= self.key.most() {
            return Ok(());
        }
        let (list, engine) = (Arc::clone(&self.list), self.engine.clone());
        let crew = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name(self.key.thread_name())
            .spawn(move || work(&list, &engine, &crew))?;
        threads.push(thread);
        Ok(())
    }

    /// True on a thread of the crew.
    pub(crate) fn is_mine(&self) -> bool {
        let me = std::thread::current().id();
        lock(&self.threads)
            .iter()
            .any(|thread| thread.thread().id() == me)
    }

    /// A turn out of turn, if the queue is listed.
    pub(crate) fn serve(&self, poller: &Arc<Poller>) {
        Arc::clone(poller).turn(&self.list);
    }

    /// Lets a thread of the crew that serves the device look at the list again.
    pub(crate) fn nudge(&self) {
        self.engine.unpark();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.list.stop();
        self.engine.unpark();
        let me = std::thread::current().id();
        for thread in lock(&self.threads).drain(..) {
            // A callback may drop the last handle: its thread ends by itself.
            if thread.thread().id() != me {
                let _ = thread.join();
            }
        }
    }
}

fn work(list: &List, engine: &Engine, crew: &Weak<Crew>) {
    let mut left = ROUND;
    while let Some(poller) = list.next(engine) {
        // Before its turn, which may be long: handlers that list queues start no threads.
        if list.is_unattended()
            && let Some(crew) = crew.upgrade()
        {
            // Without a further thread those who are there take longer.
            let _ = crew.grow();
        }
        let used = poller.turn(list);
        if !list.is_calm() {
            engine.unpark();
        }
        left = left.saturating_sub(used);
        if left == 0 {
            left = ROUND;
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests;
