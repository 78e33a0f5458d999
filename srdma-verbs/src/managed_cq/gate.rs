//! Who may run the callbacks of a queue: one thread at a time, and nobody once it is closed.
//!
//! ```text
//!          schedule        start          complete
//! idle ──────────► listed ───────► running ───────► idle
//!                    ▲                │
//!                    └── list_again ──┘              close: no more lists; waits for who runs
//! ```
//!
//! An event that comes while the queue is listed or running changes nothing: whoever runs arms
//! after `complete`, so an event of that arm finds the gate idle.          [events 3.6]

use crate::sync::{Condvar, Mutex, PoisonError, ThreadId, lock, this_thread};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Listed,
    Running,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    closed: bool,
    runner: Option<ThreadId>,
}

/// The gate of one queue.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    left: Condvar,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            left: Condvar::new(),
        }
    }

    /// There is work. True: the caller puts the queue on the list.
    // rule: mcq-9
    pub(crate) fn schedule(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = state.phase == Phase::Idle && !state.closed;
        if idle {
            state.phase = Phase::Listed;
        }
        idle
    }

    /// A thread found the queue on the list. False: it was closed meanwhile.
    pub(crate) fn start(&self) -> bool {
        let mut state = lock(&self.state);
        let listed = state.phase == Phase::Listed;
        if listed {
            state.phase = Phase::Running;
            state.runner = Some(this_thread());
        }
        listed
    }

    /// Starts without a list. False: it is running, or closed.
    pub(crate) fn enter(&self) -> bool {
        self.schedule() && self.start()
    }

    /// The run is over, and all is done.
    pub(crate) fn complete(&self) {
        let mut state = lock(&self.state);
        debug_assert!(state.phase == Phase::Running, "completed without a run");
        state.phase = Phase::Idle;
        state.runner = None;
        drop(state);
        self.left.notify_all();
    }

    /// The run is over, and more is left. True: the caller puts the queue at the end of the list.
    pub(crate) fn list_again(&self) -> bool {
        let mut state = lock(&self.state);
        debug_assert!(state.phase == Phase::Running, "listed again without a run");
        let open = !state.closed;
        state.phase = if open { Phase::Listed } else { Phase::Idle };
        state.runner = None;
        drop(state);
        self.left.notify_all();
        open
    }

    /// True on the thread that runs.
    pub(crate) fn is_mine(&self) -> bool {
        lock(&self.state).runner == Some(this_thread())
    }

    /// Lets nobody in any more, and waits for who is inside. False, and nothing changed: the
    /// caller is inside itself.
    // rule: mcq-7
    pub(crate) fn close(&self) -> bool {
        let mut state = lock(&self.state);
        if state.runner == Some(this_thread()) {
            return false;
        }
        state.closed = true;
        if state.phase == Phase::Listed {
            state.phase = Phase::Idle;
        }
        while state.phase == Phase::Running {
            state = self
                .left
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Lets runs in again.
    pub(crate) fn open(&self) {
        lock(&self.state).closed = false;
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
