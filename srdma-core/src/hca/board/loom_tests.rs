//! The board under loom: every order of two ringers and a taker, at fan-out 2.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p srdma-core --release --lib board`.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use std::collections::BTreeSet;

/// A queue: `posted` stands for its memory, which is written plainly before the ring.
struct Queue {
    number: u32,
    posted: AtomicU64,
}

impl Queue {
    fn new(number: u32) -> Self {
        Self {
            number,
            posted: AtomicU64::new(0),
        }
    }
}

/// `bound`: preemptions in one order; `None`: all orders.
fn model(bound: Option<usize>, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.check(check);
}

/// Takes, and notes for each queue the most that was seen posted.
fn take(set: &DirtySet<2>, queues: &[Queue; 2], seen: &mut [u64; 2]) {
    set.take(|number| {
        for (queue, seen) in queues.iter().zip(seen.iter_mut()) {
            if queue.number == number {
                *seen = (*seen).max(queue.posted.load(Relaxed));
            }
        }
    });
}

/// Two threads post and ring while the driver takes once; a last look finds all the rest.
fn two_ringers(numbers: [u32; 2]) {
    let first_looks = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let looks = std::sync::Arc::clone(&first_looks);
    model(Some(4), move || {
        let set = Arc::new(DirtySet::<2>::new());
        let queues = Arc::new(numbers.map(Queue::new));
        let ringers = [0usize, 1].map(|me| {
            let (set, queues) = (Arc::clone(&set), Arc::clone(&queues));
            thread::spawn(move || {
                queues[me].posted.store(1, Relaxed);
                set.mark(queues[me].number);
            })
        });
        let mut seen = [0; 2];
        take(&set, &queues, &mut seen);
        looks.lock().unwrap().insert(seen);
        for ringer in ringers {
            ringer.join().unwrap();
        }
        take(&set, &queues, &mut seen);
        assert_eq!(seen, [1, 1], "a ring was lost");
    });
    // The model has teeth: the first look found nothing, either one, and both.
    assert_eq!(first_looks.lock().unwrap().len(), 4);
}

#[test]
fn two_ringers_in_one_word() {
    two_ringers([0, 1]);
}

#[test]
fn two_ringers_under_one_summary() {
    two_ringers([0, 2]);
}

#[test]
fn two_ringers_under_one_top() {
    two_ringers([0, 4]);
}

#[test]
fn two_ringers_under_one_root() {
    two_ringers([0, 8]);
}

/// One thread rings twice, while the driver takes twice: the second post is never overlooked.
#[test]
fn rings_of_the_same_queue_while_it_is_taken() {
    model(None, || {
        let set = Arc::new(DirtySet::<2>::new());
        let queues = Arc::new([Queue::new(5), Queue::new(15)]);
        let ringer = {
            let (set, queues) = (Arc::clone(&set), Arc::clone(&queues));
            thread::spawn(move || {
                for round in 1..=2 {
                    queues[0].posted.store(round, Relaxed);
                    set.mark(5);
                }
            })
        };
        let mut seen = [0; 2];
        take(&set, &queues, &mut seen);
        take(&set, &queues, &mut seen);
        ringer.join().unwrap();
        take(&set, &queues, &mut seen);
        assert_eq!(seen[0], 2, "the second ring was lost");
    });
}

/// A thread that rings and then drives finds its own post, even if another ring of the queue is
/// half done.
#[test]
fn a_driver_finds_its_own_post() {
    model(Some(4), || {
        let set = Arc::new(DirtySet::<2>::new());
        let other = {
            let set = Arc::clone(&set);
            thread::spawn(move || set.mark(5))
        };
        set.mark(5);
        assert!(
            set.take(|number| assert_eq!(number, 5)),
            "nothing to be found"
        );
        other.join().unwrap();
    });
}

/// What an engine does before it sleeps: it looks under the lock of the device, lets go, and looks
/// again. Who rings drives if the lock is free, and is seen if it is not.
#[test]
fn no_ring_is_slept_over() {
    model(None, || {
        let set = Arc::new(DirtySet::<2>::new());
        let device = Arc::new(loom::sync::Mutex::new(()));
        let ringer = {
            let (set, device) = (Arc::clone(&set), Arc::clone(&device));
            thread::spawn(move || {
                set.mark(5);
                crate::sync::fence(SeqCst);
                device.try_lock().is_ok_and(|_held| set.take(|_| {}))
            })
        };
        let held = device.lock().unwrap();
        let early = load(&set.root) != 0;
        drop(held);
        crate::sync::fence(SeqCst);
        let sleeps = !early && load(&set.root) == 0;
        let driven = ringer.join().unwrap();
        assert!(driven || !sleeps, "a ring that nobody serves");
    });
}
