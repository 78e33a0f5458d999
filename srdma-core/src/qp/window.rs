//! What is in flight: one small record a WQE, and the arithmetic of PSNs over them.
//!
//! ```text
//!   retired                 cur                        retired + inflight.len()
//!      │ front … acknowledged │ being sent … to be sent again │ then fetch from the ring
//!      una ─────────────► sent ─────────► top ────────────────► next
//! ```
//!
//! `una`: oldest unacknowledged PSN. `sent`: next PSN to send. `top`: one past the highest ever
//! sent. `next`: first PSN of the next WQE. After a loss `sent` goes back; nothing else is kept.

use crate::hca::peer::{PACKET_OVERHEAD, packet_cost};
use crate::hw::wqe::SqOp;
use crate::num::Psn;
use crate::wire::MessageForm;

/// What the requester remembers of a WQE between fetch and completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCtx {
    /// Index of its first quantum in the SQ.
    pub(crate) index: u16,
    /// Its operation.
    pub(crate) op: SqOp,
    /// What kind of work it is.
    pub(crate) kind: Kind,
    /// Of a SEND or WRITE: what decides its opcodes.
    pub(crate) form: MessageForm,
    /// A CQE was asked for.
    pub(crate) signaled: bool,
    /// Local work is done; or the WQE failed locally and waits for its turn to say so.
    pub(crate) local: Local,
    /// First PSN.
    pub(crate) first: Psn,
    /// PSNs it takes; zero for local work.
    pub(crate) packets: u32,
    /// Message bytes.
    pub(crate) len: u32,
    /// Of an answer with data: where it goes, from the first address to behind the last.
    pub(crate) span: (u64, u64),
    /// It goes there in one piece.
    pub(crate) flat: bool,
}

/// How a WQE is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By an acknowledgement.
    Acked,
    /// By response data: READ.
    Read,
    /// By an atomic acknowledgement.
    Atomic,
    /// By an empty READ response: ATOMIC WRITE.
    AtomicWrite,
    /// Here, without a packet.
    Local,
}

impl Kind {
    /// Its completion needs a response of its own, so a later ACK does not complete it.
    pub(crate) const fn needs_response(self) -> bool {
        matches!(self, Self::Read | Self::Atomic | Self::AtomicWrite)
    }
}

/// State of local work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Nothing local about it, or not done.
    Pending,
    /// Done.
    Done,
    /// Failed: the completion status waits until everything before it is complete.
    Failed(super::flush::Cause),
}

impl SendCtx {
    /// How far its end lies behind `psn`; negative if it lies before. A message may take as many
    /// PSNs as half the range has, which no two PSNs can be apart.
    pub(crate) fn end_after(&self, psn: Psn) -> i64 {
        i64::from(self.first.since(psn)) + i64::from(self.packets)
    }

    /// The packet of `other` whose data goes where that of packet `index` goes, if both go in one
    /// piece, and whole packets apart.
    pub(crate) fn twin(&self, index: u32, other: &Self, mtu: u32) -> Option<u32> {
        let mtu = u64::from(mtu);
        let at = self.span.0.wrapping_add(u64::from(index) * mtu);
        let apart = at.checked_sub(other.span.0)?;
        let aligned = self.flat && other.flat && apart.is_multiple_of(mtu);
        let index = u32::try_from(apart / mtu).ok()?;
        (aligned && other.kind.needs_response() && at < other.span.1).then_some(index)
    }

    /// No answer to `other` goes where those to this go.
    pub(crate) fn is_apart(&self, other: &Self) -> bool {
        let apart = other.span.1 <= self.span.0 || self.span.1 <= other.span.0;
        apart || !other.kind.needs_response()
    }

    /// Data of packet `index` may not be placed before that of `other`, which is earlier: they go
    /// to one place, and what comes last is not told by whole packets.
    pub(crate) fn clashes(&self, index: u32, other: &Self, mtu: u32) -> bool {
        if self.is_apart(other) {
            return false;
        }
        let mtu64 = u64::from(mtu);
        let distance = self.span.0.abs_diff(other.span.0);
        if !self.flat || !other.flat || !distance.is_multiple_of(mtu64) {
            return true;
        }
        // The later data has to cover all that the earlier one would write there.
        let end = |of: &Self, at: u64| of.span.1.min(at.saturating_add(mtu64));
        let at = self.span.0.wrapping_add(u64::from(index) * mtu64);
        self.twin(index, other, mtu).is_some() && end(self, at) < end(other, at)
    }

    /// What the packets `from..to` (counted in the message) cost at the receiver's socket.
    pub(crate) fn cost(&self, from: u32, to: u32, mtu: u32) -> u32 {
        if to <= from || self.kind != Kind::Acked {
            return 0;
        }
        let bytes = |packets: u32| {
            u64::from(packets)
                .saturating_mul(u64::from(mtu))
                .min(u64::from(self.len))
        };
        let span = bytes(to) - bytes(from);
        u32::try_from(span + u64::from(to - from) * u64::from(PACKET_OVERHEAD)).unwrap_or(u32::MAX)
    }
}

/// One READ or atomic request that is outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadReq {
    /// Last PSN of its responses.
    pub(crate) last: Psn,
    /// What it holds of the READ credit.
    pub(crate) cost: u32,
}

/// What the responses to a READ of `len` bytes in `packets` packets cost at our own socket.
pub(crate) const fn read_cost(len: u32, packets: u32) -> u32 {
    if packets == 0 {
        packet_cost(len)
    } else {
        len + packets * PACKET_OVERHEAD
    }
}

/// Packets of a message of `len` bytes: at least one.                 [RoCEv2 1.6]
// rule: roce-42
#[inline]
pub(crate) const fn packets_of(len: u32, mtu: u32) -> u32 {
    if len <= mtu { 1 } else { len.div_ceil(mtu) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_at_least_one_packet() {
        // proves: roce-42
        assert_eq!(packets_of(0, 1024), 1);
        assert_eq!(packets_of(1, 1024), 1);
        assert_eq!(packets_of(1024, 1024), 1);
        assert_eq!(packets_of(1025, 1024), 2);
        assert_eq!(packets_of(1 << 31, 256), 1 << 23);
    }

    #[test]
    fn what_lands_on_what_is_told_by_whole_packets() {
        let read = |at: u64, len: u32, flat: bool| SendCtx {
            index: 0,
            op: SqOp::READ,
            kind: Kind::Read,
            form: MessageForm::SEND,
            signaled: true,
            local: Local::Pending,
            first: Psn::new(0),
            packets: packets_of(len, 1024),
            len,
            span: (at, at + u64::from(len)),
            flat,
        };
        let (late, early) = (read(2048, 4096, true), read(0, 4096, true));
        assert_eq!(late.twin(0, &early, 1024), Some(2));
        assert_eq!(late.twin(2, &early, 1024), None, "behind it");
        assert_eq!(early.twin(1, &late, 1024), None, "before it");
        assert!((0..4).all(|n| !late.clashes(n, &early, 1024)));
        let short = read(2048, 1500, true);
        assert!(!short.clashes(0, &early, 1024));
        assert!(short.clashes(1, &early, 1024), "it covers a part only");
        assert!(!late.clashes(1, &short, 1024));
        assert!(read(2050, 4096, true).clashes(0, &early, 1024));
        assert!(read(2048, 4096, false).clashes(0, &early, 1024));
        assert!(!read(4096, 4096, false).clashes(0, &early, 1024));
    }

    #[test]
    fn cost_of_parts_adds_up() {
        let ctx = SendCtx {
            index: 0,
            op: SqOp::SEND,
            kind: Kind::Acked,
            form: MessageForm::SEND,
            signaled: true,
            local: Local::Pending,
            first: Psn::new(5),
            packets: 4,
            len: 3500,
            span: (0, 0),
            flat: true,
        };
        let whole = ctx.cost(0, 4, 1024);
        assert_eq!(whole, 3500 + 4 * PACKET_OVERHEAD);
        assert_eq!(ctx.cost(0, 1, 1024) + ctx.cost(1, 4, 1024), whole);
        assert_eq!(ctx.cost(3, 4, 1024), 3500 - 3072 + PACKET_OVERHEAD);
    }
}
