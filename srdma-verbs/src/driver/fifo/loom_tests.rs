//! Events against the end of their queue, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p srdma-verbs --release --lib loom`

use super::{Fifo, Owed};
use crate::sync::{Mutex, lock};
use loom::sync::Arc;
use loom::thread;

/// What handlers and programs know of a queue: the table that handlers look it up in, under the
/// lock of their event queue; the records of its channel; its counts.
struct World {
    handlers: Mutex<Option<u32>>,
    records: Fifo<u32>,
    owed: Owed,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            handlers: Mutex::new(Some(1)),
            records: Fifo::default(),
            owed: Owed::default(),
        })
    }

    /// The handler of an interrupt: as `Driver::on_ceq`.
    fn handle(&self) {
        let known = lock(&self.handlers);
        if let Some(cq) = *known {
            self.records.push(cq);
        }
    }

    /// As `CqInner::end`, and the wait of `Cq::destroy`.
    fn destroy(&self) {
        *lock(&self.handlers) = None;
        self.records.purge(|record| *record == 1);
        self.owed.wait();
    }

    fn get(&self) -> Option<u32> {
        self.records.pop(|record| {
            self.owed.give();
            record
        })
    }
}

#[test]
fn loom_no_event_of_the_dead() {
    // proves: event-29, event-30
    loom::model(|| {
        let world = World::new();
        let handler = thread::spawn({
            let world = Arc::clone(&world);
            move || world.handle()
        });
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                if world.get().is_some() {
                    world.owed.ack(1);
                }
            }
        });
        world.destroy();
        // What was read was acknowledged before; what was not read is gone.
        let counts = *lock(&world.owed.counts);
        assert_eq!(counts.given, counts.acked);
        assert_eq!(world.get(), None, "destroyed, and heard of");
        handler.join().unwrap();
        reader.join().unwrap();
        assert_eq!(world.get(), None);
    });
}

#[test]
fn loom_a_sleeper_gets_its_record() {
    loom::model(|| {
        let records = Arc::new(Fifo::default());
        let sleeper = thread::spawn({
            let records = Arc::clone(&records);
            move || records.pop_wait(|record: u32| record)
        });
        let other = thread::spawn({
            let records = Arc::clone(&records);
            move || records.pop_wait(|record: u32| record)
        });
        records.push(3);
        records.push(4);
        let sum = sleeper.join().unwrap() + other.join().unwrap();
        assert_eq!(sum, 7, "each to one of them");
    });
}
