//! One privileged queue: a raw queue pair of the driver's with its completion queue and buffers.
//!
//! ```text
//!            ┌─ replenish ◄── pool ◄──────────────┐
//! RQ ◄───────┘                  │                  │ put
//! CQ ─► next ─► Received(buf) ──┼─► who holds it ──┤
//!                               ▼                  │
//! send ─► pending (FIFO, no room) ─► SQ ─► CQ ─► Sent
//! ```
//!
//! Nothing here drives the device: what is posted is rung for, and the pass that follows sees it.
//! So a queue may be used inside event handlers, under its lock.       [E810 8.2 – 8.4]

use super::super::Driver;
use super::super::alloc::RingMem;
use super::super::engine::{Doorbell, Engine};
use super::pool::{Buf, Pool};
use super::shape::{Places, Shape, make};
use crate::error::Reason;
use srdma_core::hw::cqp::QpCmd;
use srdma_core::hw::wqe::{SendWr, UdTarget, WqeBuf, WrFlags};
use srdma_core::hw::{CqeInfo, CqpCmd, Dialect, HwQpState, HwQpType};
use srdma_core::num::{AhId, Qkey, Qpn};
use srdma_core::qp::attr::{AttrMask, QpType};
use srdma_core::ring::{CqConsumer, CqShadow, RingFault, RqProducer, SqProducer};
use srdma_core::trace;
use std::collections::VecDeque;

/// Something to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// `None` for an empty message.
    pub(super) buf: Option<Buf>,
    /// Where in the buffer, and how much.
    pub(super) at: usize,
    pub(super) len: u32,
    pub(super) ah: AhId,
    pub(super) dest: Qpn,
    pub(super) qkey: Qkey,
    /// Dwords of headers in front.
    pub(super) l4_len: u8,
}

/// What a completion meant.
#[derive(Debug)]
pub(super) enum Done {
    /// A message, and the buffer that it is in: the caller's from here on.
    Received(Buf, CqeInfo),
    /// Sent: the handle is free of it.
    Sent(AhId),
    /// The send queue has failed: what was in it is lost, and its handles are free.
    SendsLost(Vec<AhId>),
    /// The queue has failed; every buffer is back.
    Failed,
}

/// What a queue counts.                                               [E810 8.4]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueStats {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Sends that had to wait for room.
    pub(super) queued: u64,
    /// Completions of another queue pair.
    pub(super) bad_qp_id: u64,
}

/// A privileged queue.
#[derive(Debug)]
pub(super) struct Queue {
    shape: Shape,
    engine: Engine,
    cq: CqConsumer,
    sq: SqProducer,
    rq: RqProducer,
    pub(super) pool: Pool,
    /// Buffers in the receive queue, in its order.
    posted: VecDeque<Buf>,
    /// Sends in the send queue: their indices, buffers and handles.
    sending: VecDeque<(u32, Option<Buf>, AhId)>,
    pending: VecDeque<Outgoing>,
    /// How many of them were counted as waiting.
    waited: usize,
    wqe: WqeBuf,
    alive: bool,
    /// The send queue waits to be revived.
    stalled: bool,
    pub(super) stats: QueueStats,
    mem: RingMem,
}

const fn bad_ring(_: RingFault) -> Reason {
    Reason::Exhausted
}

impl Queue {
    /// Makes the queue and brings it to life, all its receives posted. What was made before a
    /// failure is taken back.
    pub(super) fn create(driver: &Driver, shape: Shape) -> Result<Self, Reason> {
        let places = Places::of(&shape);
        let mem = RingMem::new(&driver.engine, places.len)?;
        let words = |at, len| mem.words(at, len);
        let sq_words = words(0, places.rq)?;
        let sq = SqProducer::new(sq_words, shape.sq_quanta).map_err(bad_ring)?;
        let rq_words = words(places.rq, places.cq - places.rq)?;
        let rq = RqProducer::new(rq_words, shape.rq_wqes, 0).map_err(bad_ring)?;
        let shadow = CqShadow::new(words(places.cq_shadow, 64)?).map_err(bad_ring)?;
        let cq_words = words(places.cq, shape.cq_size() as usize * 32)?;
        let cq = CqConsumer::new(cq_words, shape.cq_size(), false, shadow).map_err(bad_ring)?;
        let pool = Pool::create(driver, shape.kind.pd(), shape.bufs)?;
        let made = make(driver, &shape, &mem, &places);
        if let Err(reason) = made {
            pool.destroy(driver);
            return Err(reason);
        }
        let mut queue = Self {
            shape,
            engine: driver.engine.clone(),
            cq,
            sq,
            rq,
            pool,
            posted: VecDeque::with_capacity(shape.rq_wqes as usize),
            sending: VecDeque::new(),
            pending: VecDeque::new(),
            waited: 0,
            wqe: WqeBuf::new(),
            alive: true,
            stalled: false,
            stats: QueueStats::default(),
            mem,
        };
        queue.replenish();
        queue.arm();
        Ok(queue)
    }

    /// Takes everything back. Not inside an event handler: commands are executed.
    pub(super) fn destroy(self, driver: &Driver) {
        // Refused only by a device that is gone.
        let _ = driver.exec(&CqpCmd::DestroyQp(self.shape.kind.qpn()));
        let _ = driver.exec(&CqpCmd::DestroyCq(self.shape.kind.cq()));
        self.pool.destroy(driver);
    }

    /// Posts as many receives as there are buffers for.               [E810 8.2]
    pub(super) fn replenish(&mut self) {
        let size = self.pool.size();
        while self.alive && self.rq.free() > 0 {
            let Some(buf) = self.pool.take() else { break };
            let sge = self.pool.sge(&buf, 0, size);
            // One fragment always fits, and there is room.
            if self.wqe.recv(&[sge], None).is_err() || self.rq.stage(&self.wqe).is_err() {
                self.pool.put(buf);
                break;
            }
            self.posted.push_back(buf);
        }
        self.rq.commit();
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&self) {
        let shadow = self.cq.shadow();
        shadow.arm_control();
        let cq = self.shape.kind.cq();
        trace::arm(Dialect::E810, cq, shadow.arm_word().bits());
        self.engine.ring(Doorbell::Cq(cq));
    }

    /// What the next completion means; `None` if there is none.      [E810 8.3]
    // rule: puda-1
    pub(super) fn next(&mut self) -> Option<Done> {
        loop {
            let cqe = self.cq.peek()?;
            self.cq.advance(cqe.extended());
            if cqe.qpn != self.shape.kind.qpn() {
                self.stats.bad_qp_id += 1;
                continue;
            }
            if cqe.error.is_some() && cqe.sq && self.shape.qp_type == QpType::Gsi {
                return Some(Done::SendsLost(self.lose_sends()));
            }
            if cqe.error.is_some() {
                self.fail();
                return Some(Done::Failed);
            }
            if cqe.sq {
                let Some((index, buf, ah)) = self.sending.pop_front() else {
                    self.stats.bad_qp_id += 1;
                    continue;
                };
                debug_assert_eq!(index & 0x7fff, u32::from(cqe.wqe_index), "in order");
                self.sq.release_to(index.wrapping_add(1));
                if let Some(buf) = buf {
                    self.pool.put(buf);
                }
                self.stats.sent += 1;
                return Some(Done::Sent(ah));
            }
            let Some(buf) = self.posted.pop_front() else {
                self.stats.bad_qp_id += 1;
                continue;
            };
            self.rq.release_to(u32::from(cqe.wqe_index) + 1);
            self.stats.received += 1;
            return Some(Done::Received(buf, cqe));
        }
    }

    /// The send queue is in error: what is in it is lost. Receiving goes on.
    // rule: puda-13
    fn lose_sends(&mut self) -> Vec<AhId> {
        self.stalled = true;
        self.sq.release_to(self.sq.head());
        let mut handles = Vec::new();
        for (_, buf, ah) in self.sending.drain(..) {
            handles.push(ah);
            if let Some(buf) = buf {
                self.pool.put(buf);
            }
        }
        handles
    }

    /// The command that lets a send queue in error send again.
    pub(super) fn revival(&self) -> QpCmd {
        QpCmd {
            qpn: self.shape.kind.qpn(),
            qp_type: HwQpType::UDA,
            next_state: HwQpState::RTS,
            mask: AttrMask::NONE.with(AttrMask::STATE),
            ctx_addr: self.mem.addr(Places::of(&self.shape).ctx),
            shadow_addr: self.mem.addr(Places::of(&self.shape).shadow),
        }
    }

    /// It does.
    pub(super) const fn revived(&mut self) {
        self.stalled = false;
    }

    /// The device gave the queue up: what is posted comes back, and nothing is posted any more.
    fn fail(&mut self) {
        self.alive = false;
        let sends = self.sending.drain(..).filter_map(|(_, buf, _)| buf);
        let pending = self.pending.drain(..).filter_map(|out| out.buf);
        for buf in self.posted.drain(..).chain(sends).chain(pending) {
            self.pool.put(buf);
        }
    }

    /// Lets something be sent: at once, or in its turn when there is room.
    pub(super) fn send(&mut self, out: Outgoing) {
        self.pending.push_back(out);
    }

    /// Posts what waits, as far as there is room and `ready` lets the first one go. Gives the
    /// handles of those that were given up.                           [E810 8.4]
    // rule: puda-4
    pub(super) fn pump(&mut self, ready: impl Fn(AhId) -> Readiness) -> Vec<AhId> {
        let mut given_up = Vec::new();
        let mut posted = false;
        while self.alive
            && !self.stalled
            && let Some(front) = self.pending.front()
        {
            match ready(front.ah) {
                Readiness::Ready => {}
                Readiness::Wait => break,
                Readiness::Never => {
                    let Some(out) = self.pending.pop_front() else {
                        break;
                    };
                    given_up.push(out.ah);
                    if let Some(buf) = out.buf {
                        self.pool.put(buf);
                    }
                    continue;
                }
            }
            if self.sq.free() == 0 {
                break;
            }
            let Some(out) = self.pending.pop_front() else {
                break;
            };
            posted |= self.post(out);
        }
        if posted {
            self.sq.commit();
            self.engine.ring(Doorbell::Sq(self.shape.kind.qpn()));
        }
        let waiting = self.pending.len();
        self.stats.queued += waiting.saturating_sub(self.waited) as u64;
        self.waited = waiting;
        given_up
    }

    fn post(&mut self, out: Outgoing) -> bool {
        let wr = SendWr {
            flags: WrFlags::SIGNALED,
            ud: Some(UdTarget {
                ah: out.ah,
                qkey: out.qkey,
                dest: out.dest,
            }),
            ..SendWr::default()
        };
        let sge = out
            .buf
            .as_ref()
            .map(|buf| self.pool.sge(buf, out.at, out.len));
        let built = self.wqe.send(&wr, sge.as_slice());
        self.wqe.set_l4_len(out.l4_len);
        match built.map(|()| self.sq.stage(&self.wqe)) {
            Ok(Ok(slot)) => {
                self.sending.push_back((slot.index, out.buf, out.ah));
                true
            }
            // One fragment always fits, and there was room.
            _ => {
                if let Some(buf) = out.buf {
                    self.pool.put(buf);
                }
                false
            }
        }
    }

    /// Sends that wait or are on their way.
    pub(super) fn outgoing(&self) -> usize {
        self.pending.len() + self.sending.len()
    }

    /// Buffers here: free, posted, on their way out.
    pub(super) fn buffers(&self) -> (usize, usize, usize) {
        let sends = self.sending.iter().filter(|(_, buf, _)| buf.is_some());
        let pending = self.pending.iter().filter(|out| out.buf.is_some());
        let out = sends.count() + pending.count();
        (self.pool.available(), self.posted.len(), out)
    }
}

/// Whether a send may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Its address handle is being made.
    Wait,
    /// Its address handle could not be made.
    Never,
}
