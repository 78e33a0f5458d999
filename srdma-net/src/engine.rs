//! The engine: who runs a pass over the device, and when nobody has to.
//!
//! ```text
//! posting thread   ring ─► drive ─┐
//! polling thread   drive ─────────┼─► [ lock ] pass: doorbells · receive · timers · send · vectors
//! background thread  look ────────┘                                    then handlers, unlocked
//! ```
//!
//! One lock owns the device; whoever holds it drives one pass, and looks at the doorbell board
//! again after letting go, so that a doorbell rung meanwhile is never lost. The background thread
//! serves what comes while no program thread is in the library. It sleeps on the sockets; while
//! callers poll busily it lets go of the sockets and only looks in from time to time, so that
//! pollers pay neither wake-ups nor lock fights.
//!
//! What this file does not do: decide anything about RDMA.

mod budget;
mod config;
mod faults;
mod follow;
mod join;
pub(crate) mod link;
mod park;
mod pass;
mod quiet;
mod reply;
mod thread;
mod view;

pub use config::{EngineConfig, Transport};
pub(crate) use pass::{By, Core, Passed};
pub(crate) use view::WeakEngine;

use crate::bridge::{OwnYard, Sleeper};
use crate::clock::Clock;
use crate::error::NetError;
use crate::irq::Msix;
use crate::netlink::Watch;
use crate::spin::{Callers, ERRAND_NS, Steady};
use crate::stats;
use crate::sys::eventfd::EventFd;
use crate::sys::exit::LastCall;
use crate::sys::ppoll::sleep_on;
use crate::trace;
use join::Join;
use reply::Reply;
use srdma_core::hca::Hca;
use srdma_core::hca::board::{Board, Doorbell};
use srdma_core::num::MsixVector;
use srdma_core::time::Instant;
use srdma_core::tx::TxArena;
use std::fmt;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

/// Longest pass of a poller: while it lasts, the poller counts as driving. A pass may take in a
/// ring of full buffers, which takes longer than a caller may be away.
const PASS_NS: u64 = 10_000_000;
/// What a pass takes that brings one buffer: 64 KiB at most.
const BUFFER_NS: u64 = 20_000;
/// Vectors that a device can have: one bit each in a pass's result.
pub const MAX_VECTORS: u16 = 64;

/// What all handles of one engine share.
pub(crate) struct Shared {
    /// The device's number in traces.
    trace: u8,
    core: Mutex<Core>,
    board: Board,
    clock: Clock,
    msix: Msix,
    waker: Option<EventFd>,
    stop: AtomicBool,
    /// The process ends.
    last_call: LastCall,
    /// When a polling thread drove last.
    pollers: Callers,
    /// Posts that wait for each other.
    join: Join,
    /// When the background thread means to wake, ns; 0 while it is awake.
    planned: AtomicU64,
    /// The background thread has let go of the sockets and looks in on a timer.
    looking_in: AtomicBool,
    /// A program thread is parked: it serves while it waits.
    parked: AtomicBool,
    /// When the parked thread means to wake, ns; 0 while it is awake.
    park_planned: AtomicU64,
    /// Wakes the parked thread.
    unpark: EventFd,
    /// The background thread sleeps for good, since somebody is parked.
    deep: AtomicBool,
    /// The sockets, to sleep on.
    rx_fds: RwLock<Arc<[RawFd]>>,
    /// Where senders on this machine put packets, if the device is on the bridge.
    yard: Option<Arc<OwnYard>>,
    /// Tells of changes of interfaces; `None` where the kernel does not.
    watch: Option<Watch>,
    /// Somebody is looking at the interfaces.
    following: Mutex<()>,
}

/// A running device. Clones share it; the last one stops it.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    _thread: Option<Arc<thread::Running>>,
}

impl Engine {
    /// Opens sockets and device, and starts the background thread if there is to be one.
    pub fn open(config: EngineConfig) -> Result<Self, NetError> {
        let clock = config.clock.clone();
        let background = config.background;
        let name = config.display_name();
        let (link, hca) = link::open(config)?;
        let waker = background.then(EventFd::new).transpose();
        let waker = waker.map_err(NetError::Poll)?;
        let vectors = hca.vectors().min(MAX_VECTORS);
        let mut arena = TxArena::new().map_err(|_| NetError::OutOfMemory)?;
        link.learn_limits(&mut arena.limits);
        let rx_fds = RwLock::new(link.carrier.fds().into());
        let yard = link.carrier.yard();
        let watch = (background && link.follows_interfaces()).then(Watch::open);
        let shared = Arc::new(Shared {
            trace: trace::register(&name),
            core: Mutex::new(Core {
                hca,
                link,
                arena,
                reply: Reply::default(),
                blocked: false,
                steady: Steady::default(),
            }),
            board: Board::new(),
            clock,
            msix: Msix::new(vectors),
            waker,
            stop: AtomicBool::new(false),
            last_call: LastCall::new(),
            pollers: Callers::new(),
            join: Join::default(),
            planned: AtomicU64::new(0),
            looking_in: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            park_planned: AtomicU64::new(0),
            unpark: EventFd::new().map_err(NetError::Poll)?,
            deep: AtomicBool::new(false),
            rx_fds,
            yard,
            watch: watch.and_then(Result::ok),
            following: Mutex::default(),
        });
        stats::enter(name, WeakEngine::new(&shared));
        let thread = background.then(|| thread::start(&shared)).transpose()?;
        Ok(Self {
            shared,
            _thread: thread.map(Arc::new),
        })
    }

    /// Notes that there is something to do. The caller drives (or polls) afterwards; whoever holds
    /// the device then sees it.
    pub fn ring(&self, what: Doorbell) {
        if trace::on() {
            self.enter_trace();
            trace::doorbell(what);
        }
        self.shared.board.mark(what);
    }

    /// Runs passes on this thread if the device is free. False: somebody else is running it, and
    /// will see what was rung before.
    pub fn drive(&self) -> bool {
        self.shared.drive(By::Anyone)
    }

    /// As [`drive`](Self::drive), for a thread that has just posted: sends, and leaves what has
    /// arrived to the next look, which spares a system call on the way of every message.
    pub fn drive_posted(&self) -> bool {
        self.shared.drive(By::Poster)
    }

    /// As [`drive_posted`](Self::drive_posted), but the pass may wait for the next post, or the
    /// next look, of a thread that [took](Self::took) more completions than it has posted since.
    pub fn drive_joined(&self) -> bool {
        let shared = &*self.shared;
        // Nothing waits where nobody would look in: who is parked sleeps until packets come.
        let waits = shared.join.expects()
            && shared.looking_in.load(Ordering::Relaxed)
            && !shared.parked.load(Ordering::Relaxed)
            && shared.join.waits(shared.clock.now());
        !waits && shared.drive(By::Poster)
    }

    /// This thread took so many completions. Cost: a load or two.
    #[inline]
    pub fn took(&self, completions: u32) {
        let shared = &*self.shared;
        shared.join.took(completions);
        if shared.join.is_waiting() && shared.join.is_late(shared.clock.now()) {
            shared.drive(By::Poster);
        }
    }

    /// As [`drive`](Self::drive), for a thread that polls: it will be back at once, so the
    /// background thread stays out of its way, and acknowledgements may wait for its reply.
    pub fn drive_polling(&self) -> bool {
        self.shared.drive(By::Poller)
    }

    /// As [`drive`](Self::drive), for a thread that goes from event to event: its reply may take
    /// acknowledgements along.
    pub fn drive_arming(&self) -> bool {
        self.shared.drive(By::Armer)
    }

    /// For a thread that polled and is about to sleep: the background thread takes over at once.
    /// Cost: a load; a system call if that thread was staying out.
    pub fn hand_over(&self) {
        self.shared.pollers.leave();
        if self.shared.looking_in.load(Ordering::Relaxed) {
            self.shared.wake_thread();
        }
    }

    /// A last pass, for the end of the process, which may come in the middle of any call: the
    /// background thread runs it, and this thread waits for a while at most. False: it was not run,
    /// since the call that was cut short is in its way, or there is no such thread.
    pub fn last_call(&self) -> bool {
        let shared = &*self.shared;
        shared.waker.is_some() && shared.last_call.make(|| shared.wake_thread(), || 0)
    }

    /// Waits for the device and gives access to it; a pass follows.
    pub fn with<R>(&self, f: impl FnOnce(&mut Hca) -> R) -> R {
        let shared = &*self.shared;
        let mut core = shared.lock();
        trace::enter(shared.trace);
        let result = f(&mut core.hca);
        shared.run(core, By::Anyone);
        result
    }

    /// What runs when `vector` fires; see [`msix`](Self::msix). False: there is no such vector.
    pub fn set_handler(&self, vector: MsixVector, handler: Arc<dyn Fn() + Send + Sync>) -> bool {
        self.shared
            .msix
            .set_handler(vector, Some(Arc::new(move |_| handler())))
    }

    /// The interrupt vectors: a handler each, which runs on the thread that ran the pass after it
    /// let go of the device, or an eventfd each.
    #[must_use]
    pub fn msix(&self) -> &Msix {
        &self.shared.msix
    }

    /// The queue pair numbers that this device has to itself from the start; `None` if it shares
    /// its addresses with nobody, and has all of them.
    #[must_use]
    pub fn own_qpns(&self) -> Option<RangeInclusive<u32>> {
        let share = self.shared.lock().link.carrier.share().cloned()?;
        Some(share.first_qpns())
    }

    /// Takes further queue pair numbers; `None` if there are none left.
    pub fn claim_qpns(&self) -> Result<Option<RangeInclusive<u32>>, NetError> {
        let share = self.shared.lock().link.carrier.share().cloned();
        share.map_or(Ok(None), |share| share.claim())
    }

    /// The time of the engine's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// When somebody has to drive at the latest, if nothing arrives before (engines without a
    /// background thread).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let now = self.now();
        self.shared.lock().deadline(now)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Shared {
    /// The lock. A panic in a pass is our own bug; the device is not used any further by that
    /// thread, and the others find it as it was left.
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(core)) => Some(core.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The sockets, to sleep on.
    fn fds(&self) -> Arc<[RawFd]> {
        let fds = self.rx_fds.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&fds)
    }

    fn set_fds(&self, fds: Vec<RawFd>) {
        *self.rx_fds.write().unwrap_or_else(PoisonError::into_inner) = fds.into();
    }

    /// Sleeps on the sockets and `others`, until packets come by any way, or for so long.
    fn sleep(&self, who: Sleeper, others: impl Iterator<Item = RawFd>, limit_ns: Option<u64>) {
        let fds = self.fds();
        let come = self.yard.as_ref().is_some_and(|yard| yard.lie_down(who));
        let limit_ns = if come { Some(0) } else { limit_ns };
        // Interrupted or not: who sleeps looks at everything again.
        let _ = sleep_on(others.chain(fds.iter().copied()), limit_ns);
        if let Some(yard) = &self.yard {
            yard.get_up(who);
        }
    }

    fn drive(&self, by: By) -> bool {
        // Pairs with the fence in `run`: either we get the lock, or its holder sees our doorbell.
        // Who polls has rung none, but for what it left to this look.
        if by != By::Poller || self.join.is_waiting() {
            fence(Ordering::SeqCst);
        }
        let Some(core) = self.try_lock() else {
            return false;
        };
        self.run(core, by);
        true
    }

    /// Passes until the board is clean; handlers run with the lock released.
    fn run<'a>(&'a self, mut core: MutexGuard<'a, Core>, by: By) -> Passed {
        let mut all = Passed::default();
        trace::enter(self.trace);
        loop {
            let now = self.clock.now();
            let looking_in = self.looking_in.load(Ordering::Relaxed);
            self.join.passes(now);
            match by {
                By::Poller => {
                    core.steady.polled(self.pollers.present(now));
                    self.pollers.mark(now.after(PASS_NS));
                }
                By::Poster => self.pollers.errand(now),
                By::Waiter | By::Armer | By::Thread | By::Anyone => {}
            }
            let passed = core.pass(now, &self.board, by, looking_in);
            all = all.then(passed);
            let planned = self.planned.load(Ordering::Relaxed);
            // A thread asleep on the sockets is woken by every packet that a poller takes: tell it
            // to stay out.
            let expel = by == By::Poller && core.steady.is_steady() && !looking_in && planned != 0;
            if by == By::Poller {
                let end = if passed.long {
                    self.clock.now()
                } else if passed.active {
                    now.after(BUFFER_NS)
                } else {
                    now
                };
                // Telling it may cost the poller its processor for a while.
                let away = if expel { ERRAND_NS } else { 0 };
                self.pollers.mark(end.after(away));
            }
            // Whoever sleeps knows of what was due before.
            let due = if passed.idle {
                None
            } else {
                core.deadline(now)
            };
            // Its look at the sockets may have taken what was to wake a sleeper for the rest. One
            // that was woken since is on its way.
            let leaves = self.yard.as_ref().is_some_and(|yard| {
                let asleep = planned != 0 || self.park_planned.load(Ordering::Relaxed) != 0;
                asleep && yard.has_left_a_sleeper()
            });
            let wake = expel || leaves || due.is_some_and(|at| at.0.saturating_add(1) < planned);
            drop(core);
            if wake {
                self.wake();
            }
            self.handle(passed.fired);
            // Pairs with the fence in `park`: either a thread that is about to sleep sees the event
            // that was just handled, or we see that it is about to sleep.
            fence(Ordering::SeqCst);
            let parked = self.park_planned.load(Ordering::Relaxed);
            // It may have been waiting for just that, or for an earlier deadline.
            if by != By::Waiter
                && parked != 0
                && (passed.fired != 0 || due.is_some_and(|at| at.0 < parked))
            {
                self.unpark.signal();
            }
            // The fence above also pairs with that in `drive`.
            if !self.board.is_dirty() {
                return all;
            }
            let Some(again) = self.try_lock() else {
                return all;
            };
            core = again;
        }
    }

    fn handle(&self, mut fired: u64) {
        while fired != 0 {
            let vector = u16::try_from(fired.trailing_zeros()).unwrap_or(0);
            fired &= fired - 1;
            self.msix.raise(MsixVector(vector));
        }
    }

    fn wake(&self) {
        if self.park_planned.load(Ordering::Relaxed) != 0 {
            self.unpark.signal();
        } else {
            self.wake_thread();
        }
    }

    fn wake_thread(&self) {
        self.planned.store(0, Ordering::Relaxed);
        if let Some(waker) = &self.waker {
            waker.signal();
        }
    }
}

#[cfg(test)]
mod tests;
