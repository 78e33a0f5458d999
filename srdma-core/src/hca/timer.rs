//! Timers: a heap of deadlines, at most one live entry a QP, stale ones skipped when they come up.
//!
//! Setting a later deadline costs nothing: the entry in the heap stays and is moved on when its
//! time comes. So an acknowledgement that pushes the retransmission timer back writes one field.

use crate::obj::table::Slot;
use crate::time::Instant;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// What one QP remembers of its timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimerState {
    /// When the QP wants to be called.
    pub(crate) deadline: Option<Instant>,
    /// The time of its live heap entry.
    queued: Option<Instant>,
}

/// All deadlines of the device.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32, u32)>>,
}

impl Timers {
    /// Sets or clears the deadline of `qp`.
    pub(crate) fn set(&mut self, qp: Slot, state: &mut TimerState, deadline: Option<Instant>) {
        state.deadline = deadline;
        let Some(at) = deadline else { return };
        if state.queued.is_none_or(|queued| at < queued) {
            state.queued = Some(at);
            self.heap.push(Reverse((at, qp.index, qp.generation)));
        }
    }

    /// When the next entry comes up.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes one entry whose time has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, Slot)> {
        let Reverse((at, index, generation)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        Some((at, Slot { index, generation }))
    }

    /// What the popped entry at `at` means for its QP: true if its deadline has passed. Otherwise
    /// the entry was stale or early, and goes back to the heap where the deadline lies ahead.
    pub(crate) fn is_due(
        &mut self,
        qp: Slot,
        state: &mut TimerState,
        at: Instant,
        now: Instant,
    ) -> bool {
        if state.queued != Some(at) {
            return false;
        }
        state.queued = None;
        match state.deadline {
            Some(deadline) if deadline <= now => {
                state.deadline = None;
                true
            }
            deadline => {
                self.set(qp, state, deadline);
                false
            }
        }
    }
}
