//! The background thread: serves the device while no program thread does, and sleeps otherwise.
//!
//! | state | sleeps on | until |
//! |---|---|---|
//! | serving | nothing: runs passes | nothing came for the spin budget |
//! | idle | the sockets, the waker, the next deadline | something happens |
//! | looking in | the waker and a short timer | the pollers have stopped |

use super::Shared;
use crate::error::NetError;
use crate::spin::SpinPolicy;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

const WAKER: Token = Token(usize::MAX);
/// A polling thread that was here within this time is expected back.
const POLLER_GONE_NS: u64 = 50_000;
/// How often to look in while pollers drive.
const LOOK_IN: Duration = Duration::from_micros(200);
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
            shared.wake();
        }
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

pub(super) fn start(shared: &Arc<Shared>, poll: Poll) -> Result<Running, NetError> {
    let fds = shared.lock().link.fds();
    let mine = Arc::clone(shared);
    let handle = std::thread::Builder::new()
        .name("srdma-engine".into())
        .spawn(move || Thread { shared: mine, poll, fds, armed: false }.run())
        .map_err(NetError::Thread)?;
    Ok(Running { shared: Arc::downgrade(shared), handle: Some(handle) })
}

struct Thread {
    shared: Arc<Shared>,
    poll: Poll,
    fds: Vec<RawFd>,
    /// The sockets are registered.
    armed: bool,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let spin = SpinPolicy::default();
        while !self.shared.stop.load(Ordering::SeqCst) {
            let timeout = if self.pollers_drive() {
                self.disarm();
                Some(LOOK_IN)
            } else {
                match self.serve(&spin) {
                    Some(timeout) => timeout,
                    None => continue,
                }
            };
            // Interrupted or not: the loop looks at everything again.
            let _ = self.poll.poll(&mut events, timeout);
            self.shared.planned.store(0, Ordering::Relaxed);
        }
    }

    fn pollers_drive(&self) -> bool {
        let now = self.shared.clock.now().0;
        now.saturating_sub(self.shared.polled_at.load(Ordering::Relaxed)) < POLLER_GONE_NS
    }

    /// Runs a pass. `None`: look again at once; else how long to sleep.
    fn serve(&mut self, spin: &SpinPolicy) -> Option<Option<Duration>> {
        let shared = Arc::clone(&self.shared);
        let Some(core) = shared.try_lock() else {
            // Somebody is in there; if they do not come back, the next look finds the rest.
            std::thread::yield_now();
            return None;
        };
        let active = shared.run(core, false);
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
        if spin.keep_spinning(now.since(core.active_at)) {
            drop(core);
            std::hint::spin_loop();
            return None;
        }
        let deadline = core.deadline(now);
        shared.planned.store(deadline.map_or(u64::MAX, |at| at.0.max(1)), Ordering::Relaxed);
        drop(core);
        Some(deadline.map(|at| Duration::from_nanos(at.since(now))))
    }

    /// Wakes up for packets.
    fn arm(&mut self) {
        if self.armed {
            return;
        }
        for (at, fd) in self.fds.iter().enumerate() {
            let _ = self.poll.registry().register(&mut SourceFd(fd), Token(at), Interest::READABLE);
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
        for fd in &self.fds {
            let _ = self.poll.registry().deregister(&mut SourceFd(fd));
        }
        self.armed = false;
    }
}
