//! Turns against events and against the end, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p srdma-verbs --release --lib loom`

use super::Gate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;

/// A completion queue that gives an event for an arm, a list that one thread takes turns from, and
/// the number of completions that wait.
struct Queue {
    gate: Gate,
    listed: AtomicU32,
    armed: AtomicBool,
    waiting: AtomicU32,
    handled: AtomicU32,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            listed: AtomicU32::new(0),
            armed: AtomicBool::new(true),
            waiting: AtomicU32::new(0),
            handled: AtomicU32::new(0),
        })
    }

    fn schedule(&self) {
        if self.gate.schedule() {
            self.listed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The device: publishes, then fires what is armed.
    fn complete_one(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) {
            self.schedule();
        }
    }

    fn take_all(&self) {
        let taken = self.waiting.swap(0, Ordering::SeqCst);
        self.handled.fetch_add(taken, Ordering::SeqCst);
    }

    /// A turn, as `ManagedInner::poll` has it. False: nothing is listed.
    fn turn(&self) -> bool {
        let list = |listed: u32| listed.checked_sub(1);
        let order = Ordering::SeqCst;
        if self.listed.fetch_update(order, order, list).is_err() {
            return false;
        }
        if self.gate.start() {
            self.take_all();
            self.gate.complete();
            self.armed.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) != 0 {
                self.schedule();
            }
        }
        true
    }
}

#[test]
fn loom_no_completion_is_left() {
    // proves: mcq-2, mcq-9
    loom::model(|| {
        let queue = Queue::new();
        let device = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                queue.complete_one();
                queue.complete_one();
            }
        });
        queue.turn();
        queue.turn();
        device.join().unwrap();
        // Everything that happened is known; the thread of the list goes on until it is empty.
        while queue.turn() {}
        assert_eq!(queue.handled.load(Ordering::SeqCst), 2, "left asleep");
    });
}

#[test]
fn loom_nothing_runs_after_the_end() {
    // proves: mcq-7
    loom::model(|| {
        let queue = Queue::new();
        let ended = Arc::new(AtomicBool::new(false));
        let worker = thread::spawn({
            let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            move || {
                queue.complete_one();
                if queue.gate.start() {
                    assert!(!ended.load(Ordering::SeqCst), "it has ended");
                    queue.take_all();
                    if queue.gate.list_again() && queue.gate.start() {
                        assert!(!ended.load(Ordering::SeqCst), "it has ended");
                        queue.gate.complete();
                    }
                }
            }
        });
        assert!(queue.gate.close());
        ended.store(true, Ordering::SeqCst);
        worker.join().unwrap();
        assert!(!queue.gate.enter());
    });
}
