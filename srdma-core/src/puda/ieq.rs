//! The exception queue of the device: how it treats packets that leave the fast path, and what it
//! may keep of them.
//!
//! ```text
//! off       a packet behind a hole is dropped; one NAK; the requester goes back
//! reorder   it is kept until the hole is filled, then served as if it came in order
//! capture   it goes to the driver's exception queue, and comes back in its turn
//! ```
//!
//! What programs see is the same in all modes.                         [E810 8.6]
//!
//! In mode `capture` the device keeps nothing but a note: who has something in the driver's hands,
//! and of which epoch. What it has to tell the driver besides packets waits in `notes` until the
//! pass ends.

use super::pool::BufPool;
use crate::hca::counters::Counters;
use crate::hw::ieq::IeqClass;
use crate::limits::{IEQ_BUFFERS, IEQ_TAP_BURST, IEQ_TAP_GAP_NS};
use crate::num::{Psn, Qpn};
use crate::obj::table::Slot;
use crate::time::Instant;
use std::collections::HashMap;

/// What becomes of packets that arrive out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IeqMode {
    /// They are dropped, as by an E810 in RoCE mode, and the requester goes back to the hole.
    Off,
    /// They are kept, and the requester sends again what is missing.
    #[default]
    Reorder,
    /// They go to the driver's exception queue, which sorts them and gives them back. Packets that
    /// are damaged or lost their way go there too, to be looked at.
    Capture,
}

impl IeqMode {
    /// The mode called `off`, `reorder` or `capture`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "reorder" => Some(Self::Reorder),
            "capture" => Some(Self::Capture),
            _ => None,
        }
    }

    /// What [`named`](Self::named) takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Reorder => "reorder",
            Self::Capture => "capture",
        }
    }
}

/// What the exception queue did for one queue pair.                   [E810 8.6.6]
///
/// When nothing is held, `out_of_order = fpdu_processed + discarded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReorderStats {
    /// Packets that came to the queue.
    pub total_ieq_bufs: u64,
    /// Packets that were taken in ahead of their turn.
    pub out_of_order: u64,
    /// Packets that were served when their turn came.
    pub fpdu_processed: u64,
    /// Packets that were taken in and given up.
    pub discarded: u64,
    /// Copies of packets that were held already.
    pub dup_held: u64,
    /// Packets too far ahead.
    pub bad_seq_num: u64,
    /// Packets for which there was no buffer.
    pub no_rx_bufs: u64,
    /// Times that a first packet was held.
    pub pmode_count: u64,
    /// Packets held now.
    pub list_len: u64,
    /// Most that were ever held.
    pub list_max: u64,
}

/// What a queue pair has in the driver's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    /// Generation: what comes back must be of this one.
    pub(crate) epoch: u32,
    /// The farthest packet.
    pub(crate) top: Psn,
    /// How long the present hole is known.
    pub(crate) since: Instant,
    /// The driver was told that the expectation moved, and has not said what it has: the hole is
    /// none before it does.
    pub(crate) asked: bool,
}

/// The packet at hand is an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    pub(crate) class: IeqClass,
    pub(crate) qpn: Qpn,
    pub(crate) psn: Psn,
    pub(crate) epoch: u32,
}

/// The exception queue.
#[derive(Debug)]
pub(crate) struct Ieq {
    pub(crate) mode: IeqMode,
    /// Longest wait for a packet that may only be late before its absence is told.
    pub(crate) gap_max_ns: u64,
    pub(crate) pool: BufPool,
    /// The driver's queue, once there is one.
    pub(crate) queue: Option<Slot>,
    /// The packet at hand has to go there.
    pub(crate) at_hand: Option<Exception>,
    /// Queue pairs whose expectation moved while the driver holds something of theirs.
    pub(crate) moved: Vec<Slot>,
    /// Queue pairs whose packets are of no use any more.
    pub(crate) gone: Vec<Qpn>,
    /// What a returned packet is copied into.
    pub(crate) scratch: Vec<u8>,
    epochs: u32,
    /// When the next tap would come if they came evenly.
    taps_due: Instant,
    /// Consecutive damaged packets that end a queue pair; 0 for never.
    crc_limit: u32,
    crc_failures: HashMap<u32, u32>,
}

impl Ieq {
    pub(crate) fn new(mode: IeqMode, gap_max_ns: u64, crc_limit: u32) -> Self {
        Self {
            mode,
            gap_max_ns,
            pool: BufPool::new(IEQ_BUFFERS),
            queue: None,
            at_hand: None,
            moved: Vec::new(),
            gone: Vec::new(),
            scratch: Vec::new(),
            epochs: 0,
            taps_due: Instant(0),
            crc_limit,
            crc_failures: HashMap::new(),
        }
    }

    /// Packets behind a hole are kept, and requesters send again what is missing alone.
    pub(crate) const fn keeps(&self) -> bool {
        matches!(self.mode, IeqMode::Reorder)
    }

    /// Packets behind a hole go to the driver.
    pub(crate) const fn captures(&self) -> bool {
        matches!(self.mode, IeqMode::Capture) && self.queue.is_some()
    }

    /// A generation that no queue pair has.
    pub(crate) const fn next_epoch(&mut self) -> u32 {
        self.epochs = self.epochs.wrapping_add(1);
        self.epochs
    }

    /// The driver will be told, once, that a queue pair's expectation moved.
    pub(crate) fn note_moved(&mut self, qp: Slot) {
        if !self.moved.contains(&qp) {
            self.moved.push(qp);
        }
    }

    /// True if a packet nobody waits for may take a buffer: so many at once, so many a second, so
    /// that garbage does not take what packets out of order need.
    // rule: puda-9
    pub(crate) fn may_tap(&mut self, now: Instant, counters: &mut Counters) -> bool {
        let most = now.after(IEQ_TAP_BURST * IEQ_TAP_GAP_NS);
        let due = self.taps_due.max(now);
        if due.0 >= most.0 {
            counters.ieq_capture_dropped += 1;
            return false;
        }
        self.taps_due = due.after(IEQ_TAP_GAP_NS);
        true
    }

    /// Damaged packets are attributed to queue pairs.
    pub(crate) const fn blames(&self) -> bool {
        self.crc_limit != 0
    }

    /// One more damaged packet for a queue pair: true if it is one too many.
    pub(crate) fn blame(&mut self, qpn: Qpn) -> bool {
        let count = self.crc_failures.entry(qpn.value()).or_default();
        *count += 1;
        if *count < self.crc_limit {
            return false;
        }
        self.crc_failures.remove(&qpn.value());
        true
    }

    /// An intact packet for a queue pair.
    #[inline]
    pub(crate) fn absolve(&mut self, qpn: Qpn) {
        if !self.crc_failures.is_empty() {
            self.crc_failures.remove(&qpn.value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_called_by_their_names() {
        for mode in [IeqMode::Off, IeqMode::Reorder, IeqMode::Capture] {
            assert_eq!(IeqMode::named(mode.name()), Some(mode));
        }
        assert_eq!(IeqMode::named("on"), None);
        assert_eq!(IeqMode::default(), IeqMode::Reorder);
    }
}
