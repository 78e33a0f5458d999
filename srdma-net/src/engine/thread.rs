//! The background thread: serves the device while no program thread does, and sleeps otherwise.
//!
//! | state | sleeps on | until |
//! |---|---|---|
//! | serving | nothing: runs passes | nothing came for the spin budget |
//! | idle | the sockets, the waker, the next deadline | something happens |
//! | looking in | the waker and a short timer | the pollers have stopped |
//!
//! A program that polls memory never calls us and leaves no core free. So the thread asks for the
//! processor when a packet comes, with a short slice that lets it go before a busy thread
//! ([`sched`]), and gives it back at once where the program is about to answer.

use super::{By, Shared};
use crate::bridge::Sleeper;
use crate::error::NetError;
use crate::netlink::Watch;
use crate::spin::{SPIN_NS, Spinner, Wait};
use crate::sys::exit::leave_signals_alone;
use crate::sys::ppoll::sleep_on;
use crate::sys::sched;
use srdma_core::time::Instant;
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to look in while pollers drive.
const LOOK_IN_NS: u64 = 1_000_000;
/// The longest that it grows to where the thread runs late, which is what each look costs a poller.
const MAX_LOOK_IN_NS: u64 = 2_000_000;
/// How soon to try again what the end of the process asks for.
const LAST_LOOK_NS: u64 = 50_000;
/// How many times the patience it then is.
const LOOK_IN_PATIENCES: u64 = 10;
/// How long to leave the device to somebody who is in it, at first. A yield would not do: with a
/// short slice the scheduler gives the processor back at once, before the other is done.
const LOCKED: Duration = Duration::from_micros(20);
/// The wait doubles so many times while somebody stays in it. On a slow processor a short sleep is
/// over before it has begun, and who is in there may be waiting for this very processor.
const LOCKED_DOUBLES: u32 = 5;
/// A thread that parked and left within this time will probably do so again.
const BUSY_NS: u64 = 2_000_000;

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

pub(super) fn start(shared: &Arc<Shared>) -> Result<Running, NetError> {
    let mine = Arc::clone(shared);
    let handle = std::thread::Builder::new()
        .name("srdma-engine".into())
        .spawn(move || {
            Thread {
                shared: mine,
                armed: false,
                woken: true,
                locked: 0,
                look_in: None,
                look_in_ns: LOOK_IN_NS,
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
    /// Packets wake it.
    armed: bool,
    /// It has just slept: any socket may have woken it.
    woken: bool,
    /// How often in a row it found somebody in the device.
    locked: u32,
    /// When it means to look in.
    look_in: Option<Instant>,
    /// How often it does.
    look_in_ns: u64,
}

impl Thread {
    fn run(mut self) {
        leave_signals_alone();
        // Where the kernel refuses, the thread is as prompt as any other.
        let _ = sched::be_prompt();
        let mut spin = Spinner::new(SPIN_NS);
        while !self.shared.stop.load(Ordering::SeqCst) {
            let last_call = &self.shared.last_call;
            last_call.answer(|| self.shared.drive(By::Anyone));
            let limit_ns = if last_call.is_waiting() {
                // Somebody was in there.
                Some(LAST_LOOK_NS)
            } else if self.shared.parked.load(Ordering::SeqCst) {
                self.disarm();
                self.look_in = None;
                match self.stay_out() {
                    Some(limit) => limit,
                    None => continue,
                }
            } else if let Some(limit) = self.pollers_drive() {
                self.disarm();
                Some(limit)
            } else {
                match self.serve(&mut spin) {
                    Some(limit) => limit,
                    None => continue,
                }
            };
            self.sleep(limit_ns);
        }
    }

    /// Interrupted or not: the loop looks at everything again.
    fn sleep(&mut self, limit_ns: Option<u64>) {
        let shared = &*self.shared;
        let waker = shared.waker.iter().map(AsRawFd::as_raw_fd);
        let watch = shared.watch.iter().map(AsRawFd::as_raw_fd);
        if self.armed {
            shared.sleep(Sleeper::Thread, waker.chain(watch), limit_ns);
        } else {
            let _ = sleep_on(waker.chain(watch), limit_ns);
        }
        shared.planned.store(0, Ordering::Relaxed);
        self.woken = true;
        if let Some(waker) = &shared.waker {
            waker.take();
        }
        if shared.watch.as_ref().is_some_and(Watch::take) {
            shared.follow();
        }
    }

    /// How long to leave the device to pollers; `None`: there are none.
    fn pollers_drive(&mut self) -> Option<u64> {
        let now = self.shared.clock.now();
        let pollers = &self.shared.pollers;
        if let Some(at) = self.look_in.take_if(|at| *at <= now) {
            let patience = pollers.ran_late(now.since(at));
            self.look_in_ns = (patience * LOOK_IN_PATIENCES).clamp(LOOK_IN_NS, MAX_LOOK_IN_NS);
        }
        if !pollers.present(now) {
            self.look_in = None;
            return None;
        }
        self.look_in = Some(now.after(self.look_in_ns));
        Some(self.look_in_ns)
    }

    /// Somebody is parked and serves. Looks in while that may change soon, else sleeps for good.
    /// `None`: it has left meanwhile.
    fn stay_out(&self) -> Option<Option<u64>> {
        let now = self.shared.clock.now();
        if self.shared.pollers.driving(now, BUSY_NS).is_some() {
            return Some(Some(LOOK_IN_NS));
        }
        self.shared.deep.store(true, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            return Some(None);
        }
        self.shared.deep.store(false, Ordering::SeqCst);
        None
    }

    /// Runs a pass. `None`: look again at once; else how long to sleep.
    fn serve(&mut self, spin: &mut Spinner) -> Option<Option<u64>> {
        let shared = Arc::clone(&self.shared);
        let Some(mut core) = shared.try_lock() else {
            // Somebody is in there; if they do not come back, the next look finds the rest.
            std::thread::sleep(locked_for(self.locked));
            self.locked = self.locked.saturating_add(1);
            return None;
        };
        self.locked = 0;
        if std::mem::take(&mut self.woken) {
            core.link.carrier.look_everywhere();
        }
        let passed = shared.run(core, By::Thread);
        if passed.active {
            spin.worked(shared.clock.now());
        }
        self.arm();
        if passed.active && !passed.awaits {
            return None;
        }
        let core = shared.try_lock()?;
        let now = shared.clock.now();
        if shared.board.is_dirty() {
            return None;
        }
        // Nothing is spun for while the program is to answer: it may need this very core.
        let spin = if passed.awaits {
            Spinner::new(0)
        } else {
            *spin
        };
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
                Some(limit_ns)
            }
        }
    }

    /// Wakes up for packets.
    fn arm(&mut self) {
        self.armed = true;
        self.shared.looking_in.store(false, Ordering::Relaxed);
    }

    /// Leaves the packets to those who poll.
    fn disarm(&mut self) {
        self.armed = false;
        self.shared.looking_in.store(true, Ordering::Relaxed);
    }
}

/// How long to leave the device to somebody who is in it, after so many looks in vain.
fn locked_for(looks: u32) -> Duration {
    LOCKED * (1 << looks.min(LOCKED_DOUBLES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stays_in_the_device_is_left_alone_ever_longer() {
        assert_eq!(locked_for(0), LOCKED);
        assert_eq!(locked_for(1), LOCKED * 2);
        assert_eq!(locked_for(LOCKED_DOUBLES), locked_for(u32::MAX));
        // Longer than a slow processor needs to let another thread run at all.
        assert!(locked_for(u32::MAX) > Duration::from_micros(500));
        assert!(locked_for(u32::MAX) < Duration::from_nanos(LOOK_IN_NS));
    }
}
