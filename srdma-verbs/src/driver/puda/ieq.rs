//! The exception queue: packets that came ahead of their turn are sorted here, and given back to
//! the device when their turn has come.
//!
//! ```text
//! OOO   ─► list of the queue pair, in the order of PSNs
//! MOVED ─► what follows the expected PSN ─► SQ ─► the device serves it
//!          nothing does ─► an empty message: the device tells the peer of the hole
//! GONE  ─► the list goes; so it does when a packet of another epoch comes
//! taps  ─► the last ones are kept to be looked at
//! ```
//!
//! The device decides what is exceptional, and whether what comes back is served. [E810 8.5, 8.6.4]

use super::super::Driver;
use super::super::ids::lock;
use super::held::{Held, Kept, Waiting};
use super::pool::Buf;
use super::queue::{Done, Outgoing, Queue, Readiness};
use super::shape::Shape;
use super::{Exception, PudaKind, PudaStats};
use crate::error::Reason;
use srdma_core::hw::ieq::{IEQ_INFO_AT, IEQ_INFO_BYTES, IEQ_PACKET_AT};
use srdma_core::hw::{IeqClass, IeqInfo};
use srdma_core::limits::{IEQ_BUFFERS, IEQ_HOLD_NS, IEQ_LOW_WATER, MAX_DATAGRAM};
use srdma_core::num::{AhId, Qkey, Qpn};
use srdma_core::qp::attr::QpType;
use srdma_core::time::Instant;
use std::collections::{HashMap, VecDeque};

/// Receives that are posted.
const RECEIVES: u32 = 512;
/// Exceptions that are kept to be looked at …
const RECENT: usize = 64;
/// … and bytes of each.
const RECENT_BYTES: usize = 64;

#[allow(
    clippy::cast_possible_truncation,
    reason = "both are a few thousand, and the compiler knows them"
)]
const SHAPE: Shape = Shape {
    kind: PudaKind::Ieq,
    qp_type: QpType::Ud,
    qkey: Qkey(0),
    sq_quanta: 1024,
    rq_wqes: RECEIVES,
    bufs: (
        IEQ_BUFFERS as u32,
        (IEQ_PACKET_AT + MAX_DATAGRAM).next_multiple_of(64) as u32,
    ),
};

/// The queue and what waits.
#[derive(Debug)]
pub(super) struct Sorter {
    queue: Queue,
    held: HashMap<u32, Held<Buf>>,
    recent: VecDeque<Exception>,
    counts: PudaStats,
}

impl Sorter {
    pub(super) fn create(driver: &Driver) -> Result<Self, Reason> {
        Ok(Self {
            queue: Queue::create(driver, SHAPE)?,
            held: HashMap::new(),
            recent: VecDeque::new(),
            counts: PudaStats::default(),
        })
    }

    pub(super) fn destroy(self, driver: &Driver) {
        self.queue.destroy(driver);
    }

    /// What was counted.
    pub(super) fn stats(&self) -> PudaStats {
        let mut stats = self.counts;
        stats.add(&PudaStats::of(&self.queue));
        stats.held = self.held.values().map(|held| held.len() as u64).sum();
        stats
    }

    /// What was only looked at.
    pub(super) fn recent(&self) -> Vec<Exception> {
        self.recent.iter().cloned().collect()
    }

    /// A completion event: everything that is there.
    fn work(&mut self, now: Instant) {
        self.drain();
        self.queue.arm();
        self.drain();
        self.expire(now);
        self.queue.replenish();
        self.queue.pump(|_| Readiness::Ready);
    }

    fn drain(&mut self) {
        while let Some(done) = self.queue.next() {
            match done {
                Done::Received(buf, cqe) => self.take(buf, cqe.len),
                Done::Sent(_) | Done::SendsLost(_) => {}
                Done::Failed => self.give_up_all(),
            }
        }
    }

    fn take(&mut self, buf: Buf, len: u32) {
        let mut info = [0; IEQ_INFO_BYTES];
        self.queue.pool.read(&buf, IEQ_INFO_AT, &mut info);
        let info = IeqInfo::decode(&info);
        let len = len.saturating_sub(PACKET_AT);
        match info.class {
            IeqClass::OOO => {
                self.counts.captured += 1;
                self.keep(&info, buf, len);
                return;
            }
            IeqClass::MOVED => self.give_back(&info),
            IeqClass::GONE => self.give_up(info.qpn),
            class if class.is_tap() => self.look_at(&info, &buf, len),
            _ => self.counts.rcvd_pkt_err += 1,
        }
        self.queue.pool.put(buf);
    }

    fn keep(&mut self, info: &IeqInfo, buf: Buf, len: u32) {
        // rule: ieq-16
        let other = |held: &Held<Buf>| held.epoch != info.epoch;
        if self.held.get(&info.qpn.value()).is_some_and(other) {
            self.give_up(info.qpn);
        }
        // Receives come first: without them the device has nowhere to put anything.
        if self.queue.pool.available() < IEQ_LOW_WATER {
            self.counts.no_room += 1;
            self.queue.pool.put(buf);
            return;
        }
        let held = self.held.entry(info.qpn.value());
        let held = held.or_insert_with(|| Held::new(info.epoch));
        let kept = held.keep(Waiting {
            psn: info.psn,
            at: info.at,
            len,
            buf,
        });
        let (counter, buf) = match kept {
            Kept::Held => return,
            Kept::Instead(buf) => (&mut self.counts.discarded, buf),
            Kept::Copy(buf) => (&mut self.counts.dup_held, buf),
            Kept::Full(buf) => (&mut self.counts.no_room, buf),
        };
        *counter += 1;
        self.queue.pool.put(buf);
    }

    /// The queue pair expects `info.psn`: what follows goes back.
    // rule: ieq-15
    fn give_back(&mut self, info: &IeqInfo) {
        let mut stale = Vec::new();
        let mut expected = info.psn;
        let mut empty = false;
        if let Some(held) = self.held.get_mut(&info.qpn.value())
            && held.epoch == info.epoch
        {
            while let Some(waiting) = held.next(expected, &mut stale) {
                self.queue.send(Outgoing {
                    buf: Some(waiting.buf),
                    at: IEQ_PACKET_AT,
                    len: waiting.len,
                    ..outgoing(info.qpn, info.epoch)
                });
                self.counts.returned += 1;
                expected = expected.add(1);
            }
            empty = held.is_empty();
        }
        if empty {
            self.held.remove(&info.qpn.value());
        }
        self.counts.stale += stale.len() as u64;
        for buf in stale {
            self.queue.pool.put(buf);
        }
        if expected == info.psn {
            self.counts.holes_told += 1;
            self.queue.send(outgoing(info.qpn, info.epoch));
        }
    }

    fn give_up(&mut self, qpn: Qpn) {
        let Some(held) = self.held.remove(&qpn.value()) else {
            return;
        };
        self.counts.discarded += held.len() as u64;
        for buf in held.take() {
            self.queue.pool.put(buf);
        }
    }

    /// The device has failed the queue.
    fn give_up_all(&mut self) {
        let all: Vec<u32> = self.held.keys().copied().collect();
        for qpn in all {
            self.give_up(Qpn::new(qpn));
        }
    }

    /// The device says when a hole has been waited for too long. If that got lost for want of a
    /// buffer, time tells as well.
    fn expire(&mut self, now: Instant) {
        let old = |held: &Held<Buf>| {
            let since = held.since();
            since.is_some_and(|at| now.0.saturating_sub(at.0) > 4 * IEQ_HOLD_NS)
        };
        let expired: Vec<u32> = self
            .held
            .iter()
            .filter_map(|(qpn, held)| old(held).then_some(*qpn))
            .collect();
        for qpn in expired {
            self.give_up(Qpn::new(qpn));
        }
    }

    fn look_at(&mut self, info: &IeqInfo, buf: &Buf, len: u32) {
        self.counts.taps += 1;
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        let mut bytes = vec![0; (len as usize).min(RECENT_BYTES)];
        self.queue.pool.read(buf, IEQ_PACKET_AT, &mut bytes);
        self.recent.push_back(Exception {
            class: info.class,
            qpn: info.qpn,
            opcode: info.opcode,
            psn: info.psn,
            at_ns: info.at.0,
            bytes,
        });
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it is 64")]
const PACKET_AT: u32 = IEQ_PACKET_AT as u32;

/// An empty message for a queue pair.
const fn outgoing(qpn: Qpn, epoch: u32) -> Outgoing {
    Outgoing {
        buf: None,
        at: 0,
        len: 0,
        ah: AhId(0),
        dest: qpn,
        qkey: Qkey(epoch),
        l4_len: 0,
    }
}

impl Driver {
    /// The exception queue has completions.
    pub(super) fn on_ieq(&self) {
        let now = self.engine.now();
        if let Some(sorter) = lock(&self.puda.ieq).as_mut() {
            sorter.work(now);
        }
    }
}
