//! What both ends of the driver half know of an object: the program's side and the event handlers.
//!
//! ```text
//! QpInner ─┐                        completion context of a QP, 64 bits:
//! CqState ─┼─► QpShared             63:40 QPN │ 39:20 slot in its receive CQ │ 19:0 in its send CQ
//! AEQ ─────┘
//! ```
//!
//! These parts may be dropped anywhere, also inside an event handler: dropping them does nothing.
//! Objects that end with a control command (`QpInner` and its kin) are only reached through weak
//! links from here.

use super::fifo::Owed;
use super::track::{RqTrack, SqTrack};
use crate::channel::ChannelInner;
use crate::context::ContextInner;
use crate::cq::{Cq, CqInner};
use crate::qp::{Qp, QpInner};
use crate::qp_open::OpenShared;
use crate::srq::{Srq, SrqInner};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use srdma_core::num::{CqId, Qpn, SrqId};
use srdma_core::qp::attr::{QpState, QpType};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Slots that a completion context can name.
pub(crate) const MAX_SLOTS: usize = 1 << 20;

/// A queue pair as completions and events see it.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    pub(crate) sq: SqTrack,
    /// `None` with a shared receive queue.
    pub(crate) rq: Option<RqTrack>,
    pub(crate) srq: Option<Arc<SrqShared>>,
    pub(crate) ctx: Weak<ContextInner>,
    pub(crate) owed: Owed,
    state: AtomicU8,
    pub(crate) me: OnceLock<Weak<QpInner>>,
    /// Handles on an XRC target; nobody else has any.
    pub(crate) opens: Mutex<Vec<Arc<OpenShared>>>,
}

/// Where receives of a queue pair come from.
#[derive(Debug)]
pub(crate) enum Receives {
    /// Its own queue.
    Own(RqTrack),
    /// A shared queue.
    Shared(Arc<SrqShared>),
    /// Nowhere: XRC initiators have none, and those of targets are no matter of the target's.
    None,
}

impl QpShared {
    pub(crate) fn new(
        qpn: Qpn,
        qp_type: QpType,
        sq: SqTrack,
        receives: Receives,
        ctx: Weak<ContextInner>,
    ) -> Self {
        let (rq, srq) = match receives {
            Receives::Own(rq) => (Some(rq), None),
            Receives::Shared(srq) => (None, Some(srq)),
            Receives::None => (None, None),
        };
        Self {
            qpn,
            qp_type,
            sq,
            rq,
            srq,
            ctx,
            owed: Owed::default(),
            state: AtomicU8::new(QpState::Reset as u8),
            me: OnceLock::new(),
            opens: Mutex::default(),
        }
    }

    /// The state, as far as this half knows: see `Driver::hear`.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        QpState::from_value(self.state.load(Ordering::SeqCst)).unwrap_or(QpState::Err)
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// A modify call went from `from` to `to`; an error that was heard of meanwhile stays.
    pub(crate) fn advance_state(&self, from: QpState, to: QpState) {
        let (from, to) = (from as u8, to as u8);
        let _ = self
            .state
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The queue pair, if the program still has it.
    pub(crate) fn upgrade(&self) -> Option<Qp> {
        Some(Qp::from_inner(self.me.get()?.upgrade()?))
    }

    /// The device says that the queue pair failed. One that was reset meanwhile did not.
    pub(crate) fn fail(&self, state: QpState) {
        if self.state() != QpState::Reset {
            self.set_state(state);
        }
    }
}

/// The completion context of a queue pair.
pub(crate) fn qp_context(qpn: Qpn, send_slot: usize, recv_slot: usize) -> u64 {
    debug_assert!(send_slot < MAX_SLOTS && recv_slot < MAX_SLOTS);
    u64::from(qpn.value()) << 40 | (recv_slot as u64) << 20 | send_slot as u64
}

/// The slot of a completion context in the CQ of its send or receive queue.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "masked to 20 bits")]
pub(crate) const fn slot_of(context: u64, sq: bool) -> usize {
    let shift = if sq { 0 } else { 20 };
    (context >> shift) as usize & (MAX_SLOTS - 1)
}

/// The QPN of a completion context.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "24 bits are left")]
pub(crate) const fn qpn_of(context: u64) -> Qpn {
    Qpn::new((context >> 40) as u32)
}

/// Runs when a completion queue has an event, on the thread that ran the pass: it may not wait,
/// and takes no lock that is held while the device is driven.
pub(crate) struct Handler(pub(crate) Box<dyn Fn() + Send + Sync>);

impl core::fmt::Debug for Handler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handler")
    }
}

/// A completion queue as event handlers see it.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) id: CqId,
    /// What CEQEs and AEQEs carry; even, never used twice.
    pub(crate) cookie: u64,
    pub(crate) channel: Option<Arc<ChannelInner>>,
    /// Hears of events in place of a channel.
    pub(crate) handler: Option<Handler>,
    pub(crate) ctx: Weak<ContextInner>,
    /// Events that the handler was told of and no arm has counted.
    pub(crate) told: AtomicU8,
    /// Completion events.
    pub(crate) owed: Owed,
    /// Asynchronous events.
    pub(crate) owed_async: Owed,
    pub(crate) me: OnceLock<Weak<CqInner>>,
}

impl CqShared {
    /// True if somebody wants to hear of its completions.
    pub(crate) const fn is_heard(&self) -> bool {
        self.channel.is_some() || self.handler.is_some()
    }

    /// The completion queue, if the program still has it.
    pub(crate) fn upgrade(&self) -> Option<Cq> {
        Some(Cq::from_inner(self.me.get()?.upgrade()?))
    }
}

/// A shared receive queue as completions and events see it.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) id: SrqId,
    pub(crate) ctx: Weak<ContextInner>,
    pub(crate) owed: Owed,
    /// Entries completed, modulo 2^32; the ring's tail.
    tail: AtomicU32,
    pub(crate) me: OnceLock<Weak<SrqInner>>,
}

impl SrqShared {
    pub(crate) fn new(id: SrqId, ctx: Weak<ContextInner>) -> Self {
        let (tail, me) = (AtomicU32::new(0), OnceLock::new());
        Self {
            id,
            ctx,
            owed: Owed::default(),
            tail,
            me,
        }
    }

    /// The shared receive queue, if the program still has it.
    pub(crate) fn upgrade(&self) -> Option<Srq> {
        Some(Srq::from_inner(self.me.get()?.upgrade()?))
    }

    /// `count` entries completed. By any poller.
    #[inline]
    pub(crate) fn complete(&self, count: u32) {
        self.tail.fetch_add(count, Ordering::Release);
    }

    /// Entries completed so far, modulo 2^32.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_names_queue_pair_and_slots() {
        let context = qp_context(Qpn::new(0xff_fffe), 5, MAX_SLOTS - 1);
        assert_eq!(qpn_of(context), Qpn::new(0xff_fffe));
        assert_eq!(
            (slot_of(context, true), slot_of(context, false)),
            (5, MAX_SLOTS - 1)
        );
        assert_ne!(
            qp_context(Qpn::new(1), 0, 0),
            0,
            "0 means that the queue pair is gone"
        );
    }
}
