//! Privileged queues: what the driver half keeps for itself beside the queues of programs. [E810 8]
//!
//! ```text
//! pool    buffers                               queue   rings, replenish, sends that wait (shape)
//! ilq     queue pair 1: management datagrams    ahs     address handles for them
//! ieq     exceptions: sorted, given back        held    what waits for its turn
//! ```
//!
//! Both run inside event handlers and so never wait for the device: they take what is there, post,
//! and ring. What needs a command goes to the control queue's list (`driver/cmd.rs`).

mod ahs;
mod held;
mod ieq;
mod ilq;
mod pool;
mod queue;
mod shape;
#[cfg(test)]
mod tests;

use super::Driver;
use super::ids::lock;
use crate::context::Context;
use crate::error::Reason;
use ieq::Sorter;
use ilq::Ilq;
use queue::Queue;
use srdma_core::hw::Dialect;
use srdma_core::hw::IeqClass;
use srdma_core::num::{CqId, PdId, Psn, Qpn};
use srdma_core::puda::IeqMode;
use srdma_net::stats::Counting;
use std::sync::{Arc, Mutex};

/// The first cookie that completion events of others may carry.
pub(super) const FIRST_FREE_COOKIE: u64 = PudaKind::Ieq.cookie() + 2;

/// What others call the counters of the local queue, in the order of [`PudaStats::named`].
const ILQ_NAMES: [&str; 13] = [
    "ilq_buf_alloc_fail",
    "ilq_pkt_rcvd",
    "ilq_pkt_sent",
    "ilq_sent_pkt_q",
    "ilq_rcvd_pkt_err",
    "ilq_unclaimed",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];
/// And of the exception queue.
const IEQ_NAMES: [&str; 13] = [
    "ieq_queue_buf_alloc_fail",
    "ieq_queue_pkt_rcvd",
    "ieq_queue_pkt_sent",
    "ieq_queue_sent_pkt_q",
    "ieq_queue_rcvd_pkt_err",
    "",
    "ieq_queue_returned",
    "ieq_queue_discarded",
    "ieq_queue_dup_held",
    "ieq_queue_no_room",
    "ieq_queue_stale",
    "ieq_queue_holes_told",
    "ieq_queue_held",
];

/// One of the privileged queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PudaKind {
    /// The local queue: management datagrams.
    Ilq,
    /// The exception queue.
    Ieq,
}

impl PudaKind {
    /// The queue that a completion event is of.
    pub(super) fn of_cookie(dialect: Dialect, cookie: u64) -> Option<Self> {
        [Self::Ilq, Self::Ieq]
            .into_iter()
            .find(|kind| kind.cookie_in(dialect) == cookie)
    }

    /// The number of its queue pair, its completion queue and its domain.   [E810 1.7]
    const fn number(self) -> u32 {
        match self {
            Self::Ilq => 1,
            Self::Ieq => 2,
        }
    }

    /// What its completion events carry.
    const fn cookie(self) -> u64 {
        super::cmd::CCQ_COOKIE + 2 * self.number() as u64
    }

    /// What its completion events name it by.                          [events 4.9]
    fn cookie_in(self, dialect: Dialect) -> u64 {
        if dialect.names_by_number() {
            self.number().into()
        } else {
            self.cookie()
        }
    }

    /// Its queue pair.
    const fn qpn(self) -> Qpn {
        Qpn::new(self.number())
    }

    /// Its completion queue.
    pub(super) const fn cq(self) -> CqId {
        CqId(self.number())
    }

    /// The domain of everything that it uses.
    const fn pd(self) -> PdId {
        PdId(self.number())
    }
}

/// The privileged queues of a device.
#[derive(Default)]
pub(crate) struct Puda {
    pub(super) ilq: Ilq,
    ieq: Mutex<Option<Sorter>>,
}

/// What a privileged queue counted, and where its buffers are.        [E810 8.6.6]
///
/// `available + posted + sending + held = total` at any time. Of the exception queue:
/// `captured = returned + discarded + dup_held + no_room + stale + held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PudaStats {
    /// Buffers there are.
    pub total: u64,
    /// Buffers that are free.
    pub available: u64,
    /// Buffers that wait for a packet.
    pub posted: u64,
    /// Buffers on their way out, or waiting for room.
    pub sending: u64,
    /// Buffers that hold a packet until its turn.
    pub held: u64,
    /// Times that there was no buffer.
    pub buf_alloc_fail: u64,
    /// Messages received.
    pub pkt_rcvd: u64,
    /// Messages sent.
    pub pkt_sent: u64,
    /// Sends that waited for room.
    pub sent_pkt_q: u64,
    /// Messages that made no sense.
    pub rcvd_pkt_err: u64,
    /// Completions of another queue pair.
    pub bad_qp_id: u64,
    /// Local queue: datagrams of a class that nobody handles.
    pub unclaimed: u64,
    /// Exception queue: packets ahead of their turn.
    pub captured: u64,
    /// Of those, given back to the device in their turn.
    pub returned: u64,
    /// Of those, given up: too old, or their queue pair started over.
    pub discarded: u64,
    /// Of those, copies of what is held.
    pub dup_held: u64,
    /// Of those, too many.
    pub no_room: u64,
    /// Of those, served otherwise meanwhile.
    pub stale: u64,
    /// Exception queue: packets that are only looked at.
    pub taps: u64,
    /// Exception queue: times that the peer was told of a hole.
    pub holes_told: u64,
}

impl PudaStats {
    fn of(queue: &Queue) -> Self {
        let (available, posted, sending) = queue.buffers();
        Self {
            total: queue.pool.total() as u64,
            available: available as u64,
            posted: posted as u64,
            sending: sending as u64,
            buf_alloc_fail: queue.pool.alloc_fail,
            pkt_rcvd: queue.stats.received,
            pkt_sent: queue.stats.sent,
            sent_pkt_q: queue.stats.queued,
            bad_qp_id: queue.stats.bad_qp_id,
            ..Self::default()
        }
    }

    /// The counters under the names of a queue.
    fn named(&self, names: &[&'static str; 13]) -> impl Iterator<Item = (&'static str, u64)> {
        let values = [
            self.buf_alloc_fail,
            self.pkt_rcvd,
            self.pkt_sent,
            self.sent_pkt_q,
            self.rcvd_pkt_err + self.bad_qp_id,
            self.unclaimed,
            self.returned,
            self.discarded,
            self.dup_held,
            self.no_room,
            self.stale,
            self.holes_told,
            self.held,
        ];
        let counted = names.iter().copied().zip(values);
        counted.filter(|(name, _)| !name.is_empty())
    }

    fn forget_buffers(&mut self) {
        (self.total, self.available) = (0, 0);
        (self.posted, self.sending, self.held) = (0, 0, 0);
    }

    fn add(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.total, other.total),
            (&mut self.available, other.available),
            (&mut self.posted, other.posted),
            (&mut self.sending, other.sending),
            (&mut self.buf_alloc_fail, other.buf_alloc_fail),
            (&mut self.pkt_rcvd, other.pkt_rcvd),
            (&mut self.pkt_sent, other.pkt_sent),
            (&mut self.sent_pkt_q, other.sent_pkt_q),
            (&mut self.bad_qp_id, other.bad_qp_id),
        ] {
            *to += from;
        }
    }
}

/// An exception that was only looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exception {
    /// What is exceptional.
    pub class: IeqClass,
    /// The queue pair that it says it is for.
    pub qpn: Qpn,
    /// Its opcode.
    pub opcode: u8,
    /// Its PSN.
    pub psn: Psn,
    /// When it came, in nanoseconds of the device's clock.
    pub at_ns: u64,
    /// Its first bytes, from the base header on.
    pub bytes: Vec<u8>,
}

impl Driver {
    /// A privileged queue has completions.
    pub(super) fn on_puda(self: &Arc<Self>, kind: PudaKind) {
        match kind {
            PudaKind::Ilq => self.on_ilq(),
            PudaKind::Ieq => self.on_ieq(),
        }
    }

    /// Lets those who ask for the counters of this process have those of these queues as well.
    pub(super) fn show_puda(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let counting: Arc<Counting> = Arc::new(move || {
            let Some(driver) = weak.upgrade() else {
                return Vec::new();
            };
            let ilq = driver.puda.ilq.stats();
            let ieq = lock(&driver.puda.ieq).as_ref().map(Sorter::stats);
            ilq.named(&ILQ_NAMES)
                .chain(ieq.unwrap_or_default().named(&IEQ_NAMES))
                .collect()
        });
        self.engine.count_also(&counting);
    }

    /// Makes the exception queue where packets out of order are to go there.
    pub(super) fn start_ieq(&self) -> Result<(), Reason> {
        if self.engine.with(|hca| hca.config().ieq) == IeqMode::Capture {
            let sorter = Sorter::create(self)?;
            *lock(&self.puda.ieq) = Some(sorter);
        }
        Ok(())
    }

    /// Takes the queues back: the device is closed.
    pub(super) fn stop_puda(&self) {
        let sorter = lock(&self.puda.ieq).take();
        if let Some(sorter) = sorter {
            sorter.destroy(self);
        }
    }
}

impl Context {
    /// What a privileged queue counted; zero if there is none.
    #[must_use]
    pub fn puda_stats(&self, kind: PudaKind) -> PudaStats {
        let puda = &self.inner.driver.puda;
        match kind {
            PudaKind::Ilq => puda.ilq.stats(),
            PudaKind::Ieq => lock(&puda.ieq)
                .as_ref()
                .map(Sorter::stats)
                .unwrap_or_default(),
        }
    }

    /// The last exceptions that were only looked at, oldest first: packets that are damaged, cut or
    /// for nobody. In mode [`IeqMode::Capture`]; [E810 8.6.3].
    #[must_use]
    pub fn exceptions(&self) -> Vec<Exception> {
        let ieq = lock(&self.inner.driver.puda.ieq);
        ieq.as_ref().map(Sorter::recent).unwrap_or_default()
    }
}
