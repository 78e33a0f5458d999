//! The exception queue of the device: how it treats packets that leave the fast path, and what it
//! may keep of them.
//!
//! ```text
//! off       a packet behind a hole is dropped; one NAK; the requester goes back
//! reorder   it is kept until the hole is filled, then served as if it came in order
//! capture   as off: no copies are made of what was dropped
//! ```
//!
//! What programs see is the same in all modes.                         [E810 8.6]

use super::pool::BufPool;
use crate::limits::IEQ_BUFFERS;

/// What becomes of packets that arrive out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IeqMode {
    /// They are dropped, as by an E810 in RoCE mode, and the requester goes back to the hole.
    Off,
    /// They are kept, and the requester sends again what is missing.
    #[default]
    Reorder,
    /// As `Off`: the name is known, but no copies of exceptions are made.
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

/// The exception queue.
#[derive(Debug)]
pub(crate) struct Ieq {
    pub(crate) mode: IeqMode,
    /// Longest wait for a packet that may only be late before its absence is told.
    pub(crate) gap_max_ns: u64,
    pub(crate) pool: BufPool,
}

impl Ieq {
    pub(crate) const fn new(mode: IeqMode, gap_max_ns: u64) -> Self {
        Self {
            mode,
            gap_max_ns,
            pool: BufPool::new(IEQ_BUFFERS),
        }
    }

    /// Packets behind a hole are kept, and requesters send again what is missing alone.
    pub(crate) const fn keeps(&self) -> bool {
        matches!(self.mode, IeqMode::Reorder)
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
