//! Control commands: written to the CQP, answered through the CCQ.      [E810 7]
//!
//! ```text
//! exec ─► CQP ring ─► doorbell ─► a pass of the device ─► CCQ ─► answer
//! later(flush) ─► list ─► executed by whoever has the CQP next, at the latest when it lets go
//! ```
//!
//! Commands are executed one at a time, in order, and waited for. Event handlers run on threads
//! that may be inside `exec` already, so what they want done goes to the list.

use super::Driver;
use super::alloc::RingMem;
use super::engine::{Doorbell, Engine};
use super::ids::lock;
use crate::error::Reason;
use srdma_core::hw::cqp::{CqCmd, CreateAh, FlushWqes, QpCmd};
use srdma_core::hw::shadow::SHADOW_WORDS;
use srdma_core::hw::{CqpCmd, CqpCompletion, Dialect, FlushCode};
use srdma_core::num::{AhId, CeqId, CqId, Qpn};
use srdma_core::ring::{CqConsumer, CqShadow, CqpWqe, Producer};
use srdma_core::trace;
use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};

/// Commands that fit the CQP.
const ENTRIES: u32 = 128;
/// Entries of the CCQ: one for each command, and one that stays free.
const CCQ_ENTRIES: u32 = ENTRIES + 2;
/// The control completion queue.                                      [E810 1.7]
pub(crate) const CCQ: CqId = CqId(0);
/// What CEQEs of the CCQ carry in the E810's dialect; no other CQ has it.
pub(crate) const CCQ_COOKIE: u64 = 2;
/// What they carry in any.
pub(crate) const fn ccq_cookie(dialect: Dialect) -> u64 {
    if dialect.names_by_number() {
        CCQ.0 as u64
    } else {
        CCQ_COOKIE
    }
}
/// Passes of the device after which a command counts as lost.
const PATIENCE: u32 = 10_000;

/// The control queue and what waits for it.
#[derive(Debug)]
pub(crate) struct Cqp {
    queue: Mutex<Queue>,
    later: Mutex<VecDeque<Later>>,
}

/// A command that an event handler wants executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Later {
    /// Flushes the receive queue of a failed queue pair.
    Flush(Qpn),
    /// Makes an address handle of the local queue.
    CreateAh(CreateAh),
    /// Takes one back.
    DestroyAh(AhId),
    /// Lets the local queue send again after an error.
    Revive(QpCmd),
}

#[derive(Debug)]
struct Queue {
    sq: Producer<CqpWqe>,
    ccq: CqConsumer,
    _mem: RingMem,
}

impl Cqp {
    /// Gives the device its control queue. The CCQ does not exist before [`Self::create_ccq`].
    pub(crate) fn attach(engine: &Engine) -> Result<Self, Reason> {
        let (sq_len, ccq_len) = (64 * ENTRIES as usize, 32 * CCQ_ENTRIES as usize);
        let ccq_at = sq_len;
        let shadow_at = (ccq_at + ccq_len).next_multiple_of(128);
        let mem = RingMem::new(engine, shadow_at + 8 * SHADOW_WORDS)?;
        let sq = Producer::new(mem.words(0, sq_len)?, ENTRIES, ENTRIES - 1);
        let shadow = mem.words(shadow_at, 8 * SHADOW_WORDS)?;
        let ccq = CqShadow::new(shadow).and_then(|shadow| {
            // The length was chosen for the ring, so `words` is all that can fail.
            let words = mem
                .words(ccq_at, ccq_len)
                .map_err(|_| srdma_core::ring::RingFault::ShortMemory)?;
            CqConsumer::new(words, CCQ_ENTRIES, false, shadow)
        });
        engine.with(|hca| hca.attach_cqp(mem.addr(0), ENTRIES))?;
        let (Ok(sq), Ok(ccq)) = (sq, ccq) else {
            return Err(Reason::Timeout);
        };
        let queue = Mutex::new(Queue { sq, ccq, _mem: mem });
        Ok(Self {
            queue,
            later: Mutex::default(),
        })
    }

    /// The command that creates the CCQ: the first one.
    pub(crate) fn ccq_cmd(&self, dialect: Dialect, ceq: Option<CeqId>) -> CqpCmd {
        let queue = lock(&self.queue);
        let ccq_at = 64 * ENTRIES as usize;
        let shadow_at = (ccq_at + 32 * CCQ_ENTRIES as usize).next_multiple_of(128);
        CqpCmd::CreateCq(CqCmd {
            id: CCQ,
            ceq,
            cookie: ccq_cookie(dialect),
            size: CCQ_ENTRIES,
            threshold: 16,
            addr: queue._mem.addr(ccq_at),
            shadow_addr: queue._mem.addr(shadow_at),
            check_overflow: false,
            wide: false,
            timestamps: false,
        })
    }

    /// Arms the CCQ, as its driver does after each drain.             [E810 7.3]
    pub(crate) fn arm_ccq(&self, engine: &Engine) {
        let queue = lock(&self.queue);
        queue.ccq.shadow().arm_control();
        trace::arm(Dialect::E810, CCQ, queue.ccq.shadow().arm_word().bits());
        drop(queue);
        engine.ring(Doorbell::Cq(CCQ));
    }
}

impl Queue {
    fn run(&mut self, engine: &Engine, cmd: &CqpCmd) -> Result<CqpCompletion, Reason> {
        self.sq
            .try_push(CqpWqe(cmd.encode()))
            .map_err(|_| Reason::Timeout)?;
        engine.ring(Doorbell::Cqp);
        let mut driven = engine.drive();
        for _ in 0..PATIENCE {
            if let Some(done) = self.ccq.peek_control() {
                self.ccq.advance(false);
                self.sq.release(1);
                return if done.is_ok() {
                    Ok(done)
                } else {
                    Err(Reason::Refused(done.minor))
                };
            }
            if driven {
                std::thread::yield_now();
                driven = engine.drive();
            } else {
                // Somebody else has the device: wait for it, and let a pass follow.
                engine.with(|_| ());
                driven = true;
            }
        }
        Err(Reason::Timeout)
    }
}

impl Driver {
    /// Executes a control command and waits for its answer.
    pub(crate) fn exec(&self, cmd: &CqpCmd) -> Result<CqpCompletion, Reason> {
        let done = lock(&self.cqp.queue).run(&self.engine, cmd);
        self.run_later();
        done
    }

    /// Flushes the receive queue of a failed queue pair as soon as the control queue is free. For
    /// event handlers.
    pub(crate) fn flush_later(&self, qpn: Qpn) {
        self.exec_later(Later::Flush(qpn));
    }

    /// Executes a command as soon as the control queue is free. Not under a lock that event
    /// handlers take: it may be executed here and now.
    pub(crate) fn exec_later(&self, what: Later) {
        lock(&self.cqp.later).push_back(what);
        self.run_later();
    }

    /// Flushes receives that were posted to a failed queue pair.      [E810 6.4]
    pub(crate) fn flush_receives(&self, qpn: Qpn) -> Result<(), Reason> {
        self.exec(&flush_cmd(qpn)).map(|_| ())
    }

    /// Does what waits for the control queue, unless somebody has it: then they do, afterwards.
    fn run_later(&self) {
        loop {
            if lock(&self.cqp.later).is_empty() {
                return;
            }
            let mut queue = match self.cqp.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let Some(what) = lock(&self.cqp.later).pop_front() else {
                return;
            };
            let cmd = match what {
                Later::Flush(qpn) => flush_cmd(qpn),
                Later::CreateAh(cmd) => CqpCmd::CreateAh(cmd),
                Later::DestroyAh(id) => CqpCmd::DestroyAh(id),
                Later::Revive(cmd) => CqpCmd::ModifyQp(cmd),
            };
            // A queue pair that left the error state meanwhile has nothing to flush.
            let done = queue.run(&self.engine, &cmd).is_ok();
            drop(queue);
            match what {
                Later::Flush(_) => {}
                Later::CreateAh(cmd) => {
                    self.puda.ilq.ah_made(cmd.id, done);
                    self.engine.drive_posted();
                }
                Later::DestroyAh(id) => self.ids.ah.give(id.value()),
                Later::Revive(_) => {
                    self.puda.ilq.revived();
                    self.engine.drive_posted();
                }
            }
        }
    }
}

const fn flush_cmd(qpn: Qpn) -> CqpCmd {
    CqpCmd::FlushWqes(FlushWqes {
        qpn,
        sq: None,
        rq: Some(FlushCode::GENERAL),
        user_codes: false,
        ae: None,
    })
}
