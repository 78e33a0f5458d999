//! The background thread: serves the device while no program thread does, and sleeps otherwise.
//!
//! | state | sleeps on | until |
//! |---|---|---|
//! | serving | nothing: runs passes | nothing came for the spin budget |
//! | idle | the sockets, the waker, the next deadline | something happens |
//! | looking in | the waker and a short timer | the pollers have stopped |

use super::{By, Shared};
use crate::error::NetError;
use crate::netlink::Watch;
use crate::spin::{CALLER_GRACE_NS, SPIN_NS, Spinner, Wait};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

const WAKER: Token = Token(usize::MAX);
/// Interfaces changed.
const WATCH: Token = Token(usize::MAX - 1);
/// How often to look in while pollers drive.
const LOOK_IN: Duration = Duration::from_micros(300);
/// A thread that parked and left within this time will probably do so again.
const BUSY_NS: u64 = 2_000_000;
/// Events taken from the kernel at once; what is left comes with the next call.
const EVENTS: usize = 8;

pub(super) fn waker(poll: &Poll) -> io::Result<Waker> {
    Waker::new(poll.registry(), WAKER)
}

/// The thread, stopped and joined when the last engine handle goes.
pub(super) struct Running {
    shared: Weak<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.stop.store(true, Ordering::SeqCst);
            shared.wake_thread();
        }
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

pub(super) fn start(shared: &Arc<Shared>, poll: Poll) -> Result<Running, NetError> {
    if let Some(watch) = &shared.watch {
        let fd = watch.as_raw_fd();
        let mut source = SourceFd(&fd);
        let registry = poll.registry();
        registry
            .register(&mut source, WATCH, Interest::READABLE)
            .map_err(NetError::Poll)?;
    }
    let mine = Arc::clone(shared);
    let handle = std::thread::Builder::new()
        .name("srdma-engine".into())
        .spawn(move || {
            Thread {
                fds: mine.fds(),
                shared: mine,
                poll,
                armed: false,
                woken: true,
            }
            .run();
        })
        .map_err(NetError::Thread)?;
    Ok(Running {
        shared: Arc::downgrade(shared),
        handle: Some(handle),
    })
}

struct Thread {
    shared: Arc<Shared>,
    poll: Poll,
    fds: Arc<[RawFd]>,
    /// The sockets are registered.
    armed: bool,
    /// It has just slept: any socket may have woken it.
    woken: bool,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut spin = Spinner::new(SPIN_NS);
        while !self.shared.stop.load(Ordering::SeqCst) {
            let timeout = if self.shared.parked.load(Ordering::SeqCst) {
                self.disarm();
                match self.stay_out() {
                    Some(timeout) => timeout,
                    None => continue,
                }
            } else if self.pollers_drive() {
                self.disarm();
                Some(LOOK_IN)
            } else {
                match self.serve(&mut spin) {
                    Some(timeout) => timeout,
                    None => continue,
                }
            };
            // Interrupted or not: the loop looks at everything again.
            let _ = self.poll.poll(&mut events, timeout);
            self.shared.planned.store(0, Ordering::Relaxed);
            self.woken = true;
            if events.iter().any(|event| event.token() == WATCH) {
                self.follow();
            }
        }
    }

    /// Something about the interfaces has changed.
    fn follow(&self) {
        if self.shared.watch.as_ref().is_some_and(Watch::take) {
            self.shared.follow();
        }
    }

    fn pollers_drive(&self) -> bool {
        self.shared
            .pollers
            .driving(self.shared.clock.now(), CALLER_GRACE_NS)
            .is_some()
    }

    /// Somebody is parked and serves. Looks in while that may change soon, else sleeps for good.
    /// `None`: it has left meanwhile.
    fn stay_out(&self) -> Option<Option<Duration>> {
        let now = self.shared.clock.now();
        if self.shared.pollers.driving(now, BUSY_NS).is_some() {
            return Some(Some(LOOK_IN));
        }
        self.shared.deep.store(true, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            return Some(None);
        }
        self.shared.deep.store(false, Ordering::SeqCst);
        None
    }

    /// Runs a pass. `None`: look again at once; else how long to sleep.
    fn serve(&mut self, spin: &mut Spinner) -> Option<Option<Duration>> {
        let shared = Arc::clone(&self.shared);
        let Some(mut core) = shared.try_lock() else {
            // Somebody is in there; if they do not come back, the next look finds the rest.
            std::thread::yield_now();
            return None;
        };
        if std::mem::take(&mut self.woken) {
            core.link.carrier.look_everywhere();
        }
        let active = shared.run(core, By::Anyone);
        if active {
            spin.worked(shared.clock.now());
        }
        let fresh = !self.armed;
        self.arm();
        if active || fresh {
            return None;
        }
        let core = shared.try_lock()?;
        let now = shared.clock.now();
        if shared.board.is_dirty() {
            return None;
        }
        let deadline = core.deadline(now);
        match spin.next(now, deadline) {
            Wait::Spin => {
                drop(core);
                std::hint::spin_loop();
                None
            }
            Wait::Sleep { limit_ns } => {
                let planned = deadline.map_or(u64::MAX, |at| at.0.max(1));
                shared.planned.store(planned, Ordering::Relaxed);
                drop(core);
                // Pairs with the fence in `drive`: who rang while the lock was held, and did not
                // get it, is seen here.
                fence(Ordering::SeqCst);
                if shared.board.is_dirty() {
                    shared.planned.store(0, Ordering::Relaxed);
                    return None;
                }
                Some(limit_ns.map(Duration::from_nanos))
            }
        }
    }

    /// Wakes up for packets.
    fn arm(&mut self) {
        let fds = self.shared.fds();
        if !Arc::ptr_eq(&fds, &self.fds) {
            self.disarm();
            self.fds = fds;
        }
        if self.armed {
            return;
        }
        for (at, fd) in self.fds.iter().enumerate() {
            let _ = self
                .poll
                .registry()
                .register(&mut SourceFd(fd), Token(at), Interest::READABLE);
        }
        self.armed = true;
        self.shared.looking_in.store(false, Ordering::Relaxed);
    }

    /// Leaves the packets to those who poll.
    fn disarm(&mut self) {
        self.shared.looking_in.store(true, Ordering::Relaxed);
        if !self.armed {
            return;
        }
        for fd in &*self.fds {
            let _ = self.poll.registry().deregister(&mut SourceFd(fd));
        }
        self.armed = false;
    }
}
