//! Arming against completing on two threads: does every sleeper wake?
//!
//! ```text
//! completer   lock ─ doorbells · completions · settle · vectors ─ unlock ─► handler ─► unpark
//! consumer    poll until empty ─► arm ─► doorbell ─► (by the model) look once more ─► park
//! ```
//!
//! Both threads run passes under one lock, as programs and the background thread do. The completer
//! stays at most `WINDOW` completions ahead and then parks; short random pauses move completions
//! before, into and behind the arm. Nobody waits busily: who has nothing to do is parked, and is
//! only unparked for a reason, so an event that is lost ends in a panic that names the seed.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a harness fails loudly"
)]

use srdma_core::hca::board::{Board, Doorbell};
use srdma_core::hca::events::Events;
use srdma_core::hw::{Ceqe, CqeInfo};
use srdma_core::mem::{HostBuf, HostWords};
use srdma_core::num::{CeqId, CqId, MsixVector};
use srdma_core::obj::arm::ArmModel;
use srdma_core::obj::cq::{Cq, CqSpec, CqTable};
use srdma_core::obj::table::Slot;
use srdma_core::ring::{Consumer, CqConsumer, CqProducer, CqShadow};
use srdma_core::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// How far the completer may be ahead.
const WINDOW: u64 = 96;
/// One completion of so many in a row is solicited at least; fewer than the window, so that a
/// consumer that waits for one gets it.
const SOLICITED_EVERY: u64 = 8;
/// A sleeper that nobody woke for so long was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
const SLOTS: u32 = 128;
const CQ: CqId = CqId(5);
const COOKIE: u64 = 0x1000;
const VECTOR: MsixVector = MsixVector(0);

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Completions that the consumer read, each once and in order.
    pub completions: u64,
    /// Arms that reached the device.
    pub arms: u64,
    /// Events.
    pub events: u64,
    /// Times that the consumer slept.
    pub sleeps: u64,
    /// Events that woke the consumer to an empty queue, as is allowed.
    pub spurious: u64,
}

struct Device {
    cqs: CqTable,
    events: Events,
    slot: Slot,
    posted: u64,
}

impl Device {
    fn post(&mut self, solicited: bool) {
        self.posted += 1;
        let cqe = CqeInfo {
            context: self.posted,
            solicited,
            ..CqeInfo::default()
        };
        let posted = self.cqs.post(&mut self.events, self.slot, &cqe, Instant(0));
        assert!(
            posted.is_ok(),
            "the window keeps the ring from running over"
        );
    }
}

/// What both threads see.
struct Shared {
    device: Mutex<Device>,
    board: Board,
    ceq: Mutex<Consumer<Ceqe>>,
    /// Completions that the consumer has read.
    taken: AtomicU64,
    /// Events that the handler has passed on.
    events: AtomicU64,
    /// An event that the consumer has not taken.
    fired: AtomicBool,
    stop: AtomicBool,
    consumer: Thread,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes until the board is clean; `work` is done in the first.
    fn run<R>(&self, work: impl FnOnce(&mut Device) -> R) -> R {
        let mut work = Some(work);
        let mut result = None;
        let mut device = self.lock();
        loop {
            let Device { cqs, events, .. } = &mut *device;
            self.board.take(|what| match what {
                Doorbell::Cq(id) => {
                    cqs.arm(events, id, Instant(0));
                }
                Doorbell::CqAck(id) => cqs.ack(events, id, Instant(0)),
                Doorbell::Irq(vector) => events.enable_vector(vector),
                _ => {}
            });
            if let Some(work) = work.take() {
                result = Some(work(&mut device));
            }
            let Device { cqs, events, .. } = &mut *device;
            cqs.settle(events, Instant(0));
            let mut fired = false;
            while events.poll_interrupt(Instant(0)).is_some() {
                fired = true;
            }
            drop(device);
            if fired {
                self.handle();
            }
            // Either its holder sees our doorbell, or we get the lock.
            fence(Ordering::SeqCst);
            if !self.board.is_dirty() {
                break;
            }
            let Ok(again) = self.device.try_lock() else {
                break;
            };
            device = again;
        }
        result.expect("the first pass does the work")
    }

    /// The handler of the vector, on the thread that ran the pass.
    fn handle(&self) {
        let mut ceq = self.ceq.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(entry) = ceq.pop() {
            assert_eq!(entry.cookie, COOKIE);
            self.board.mark(Doorbell::CqAck(CQ));
            self.events.fetch_add(1, Ordering::Relaxed);
            self.fired.store(true, Ordering::SeqCst);
            self.consumer.unpark();
        }
        drop(ceq);
        self.board.mark(Doorbell::Irq(VECTOR));
    }
}

/// A short pause of random length, so that the threads meet at every place.
fn pause(rng: &mut fastrand::Rng) {
    let bound = [1, 8, 40, 160][rng.usize(0..4)];
    for _ in 0..rng.u32(0..bound) {
        std::hint::spin_loop();
    }
}

fn complete(shared: &Shared, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0xc0);
    let mut posted = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        let room = WINDOW - (posted - shared.taken.load(Ordering::SeqCst));
        if room == 0 {
            thread::park();
            continue;
        }
        pause(&mut rng);
        let burst = rng.u64(1..=room.min(3));
        shared.run(|device| {
            for n in posted..posted + burst {
                device.post(n % SOLICITED_EVERY == 0 || rng.u8(..) < 64);
            }
        });
        posted += burst;
    }
}

struct Reader<'a> {
    shared: &'a Shared,
    ring: CqConsumer,
    completer: Thread,
    rng: fastrand::Rng,
    seed: u64,
    outcome: Outcome,
}

impl Reader<'_> {
    /// Reads until the queue is empty; true if there was anything.
    fn drain(&mut self) -> bool {
        let before = self.outcome.completions;
        while let Some(cqe) = self.ring.peek() {
            self.outcome.completions += 1;
            assert_eq!(cqe.context, self.outcome.completions, "seed {}", self.seed);
            self.ring.advance(cqe.extended());
        }
        if self.outcome.completions == before {
            return false;
        }
        self.shared
            .taken
            .store(self.outcome.completions, Ordering::SeqCst);
        self.completer.unpark();
        true
    }

    /// Arms; true if the consumer must look once more before it sleeps.
    fn arm(&mut self, model: ArmModel) -> bool {
        // A weaker arm and a stronger one right behind it: the stronger counts.
        let promoted = self.rng.u8(..) < 16;
        let solicited = self.rng.u8(..) < 64;
        if promoted {
            self.ring.shadow().arm(true);
            self.ring_arm();
        }
        self.ring.shadow().arm(solicited && !promoted);
        self.ring_arm();
        match model {
            ArmModel::Strict => true,
            // Nothing that was there before is lost, so there is no need to look.
            ArmModel::Compare => false,
            _ => {
                let shared = self.shared;
                shared.run(|device| device.cqs.arm(&mut device.events, CQ, Instant(0)))
            }
        }
    }

    fn ring_arm(&mut self) {
        self.outcome.arms += 1;
        pause(&mut self.rng);
        self.shared.board.mark(Doorbell::Cq(CQ));
        self.shared.run(|_| ());
    }

    fn wait(&mut self) {
        self.outcome.sleeps += 1;
        let start = std::time::Instant::now();
        while !self.shared.fired.swap(false, Ordering::SeqCst) {
            let left = FORGOTTEN.saturating_sub(start.elapsed());
            assert!(
                !left.is_zero(),
                "seed {}: asleep for ever after {:?}",
                self.seed,
                self.outcome
            );
            thread::park_timeout(left);
        }
        if !self.drain() {
            self.outcome.spurious += 1;
        }
    }
}

fn words(count: usize) -> HostWords {
    HostBuf::new(count * 8).expect("a little memory").words()
}

/// A device with one queue, and the reading end of it.
fn device(model: ArmModel) -> (Device, CqConsumer, Consumer<Ceqe>) {
    let (ring, shadow, ceqes) = (words(SLOTS as usize * 4), words(8), words(8));
    let shadow = CqShadow::new(shadow).expect("64 bytes");
    let producer = CqProducer::new(ring.clone(), SLOTS, false, shadow.clone(), SLOTS / 2);
    let consumer = CqConsumer::new(ring, SLOTS, false, shadow).expect("memory for it");
    let mut events = Events::new(1);
    events
        .create_ceq(CeqId(0), VECTOR, ceqes.clone(), 8)
        .and_then(|()| events.attach_cq(CeqId(0)))
        .expect("room for one queue");
    events.enable_vector(VECTOR);
    let mut cqs = CqTable::new(model);
    let cq = Cq::new(CqSpec {
        id: CQ,
        producer: producer.expect("memory for it"),
        ceq: Some(CeqId(0)),
        cookie: COOKIE,
        check_overflow: true,
        wide: false,
        timestamps: false,
    });
    let slot = cqs.insert(cq).expect("the first one");
    let ceq = Consumer::new(ceqes, 8).expect("memory for it");
    let device = Device {
        cqs,
        events,
        slot,
        posted: 0,
    };
    (device, consumer, ceq)
}

/// `rounds` times: the consumer arms an empty queue while completions come, and sleeps if it may.
///
/// Panics, with the seed, if it is not woken, or if a completion is missing.
#[must_use]
pub fn run(model: ArmModel, rounds: u64, seed: u64) -> Outcome {
    let (device, ring, ceq) = device(model);
    let shared = &Shared {
        device: Mutex::new(device),
        board: Board::new(),
        ceq: Mutex::new(ceq),
        taken: AtomicU64::new(0),
        events: AtomicU64::new(0),
        fired: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        consumer: thread::current(),
    };
    let outcome = thread::scope(|scope| {
        let completer = scope.spawn(move || complete(shared, seed));
        let mut reader = Reader {
            shared,
            ring,
            completer: completer.thread().clone(),
            rng: fastrand::Rng::with_seed(seed),
            seed,
            outcome: Outcome::default(),
        };
        // The completer ends with the consumer, also if that panics.
        let end = End(shared, completer.thread().clone());
        for _ in 0..rounds {
            reader.drain();
            pause(&mut reader.rng);
            let look = reader.arm(model);
            if !(look && reader.drain()) {
                reader.wait();
            }
        }
        drop(end);
        reader.outcome
    });
    let mut device = shared.lock();
    let Device { cqs, events, .. } = &mut *device;
    assert!(
        cqs.next_deadline().is_none() && events.next_deadline().is_none(),
        "seed {seed}: nothing is left that would keep a device awake"
    );
    Outcome {
        events: shared.events.load(Ordering::Relaxed),
        ..outcome
    }
}

struct End<'a>(&'a Shared, Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.1.unpark();
    }
}
