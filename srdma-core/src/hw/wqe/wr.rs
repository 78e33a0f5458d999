//! Work requests without their payload: what a WQE is built of.

use super::{SqHeader, SqOp, UdTarget, UdWord};
use crate::num::Rkey;

/// Flags every work request may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrFlags {
    /// Report success.
    pub signaled: bool,
    /// Wait for outstanding READs and atomics.
    pub read_fence: bool,
    /// Wait for all earlier WQEs.
    pub local_fence: bool,
}

impl WrFlags {
    /// Signaled, no fences.
    pub const SIGNALED: Self = Self {
        signaled: true,
        read_fence: false,
        local_fence: false,
    };

    #[inline]
    pub(super) fn header(self, op: SqOp) -> SqHeader {
        SqHeader::ZERO
            .with_op(op)
            .with_signaled(self.signaled)
            .with_read_fence(self.read_fence)
            .with_local_fence(self.local_fence)
    }
}

/// Remote memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteAddr {
    /// Address (or offset).
    pub addr: u64,
    /// Remote key.
    pub rkey: Rkey,
}

/// A SEND without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendWr {
    /// Common flags.
    pub flags: WrFlags,
    /// Solicited event at the receiver.
    pub solicited: bool,
    /// Immediate, as a host-order value.
    pub imm: Option<u32>,
    /// Remote key to invalidate.
    pub inv: Option<Rkey>,
    /// Target of a datagram. Takes the place of `inv`, which datagrams do not have.
    pub ud: Option<UdTarget>,
}

impl SendWr {
    #[inline]
    pub(super) fn header(&self) -> SqHeader {
        let op = match (self.inv.is_some(), self.solicited) {
            (false, false) => SqOp::SEND,
            (false, true) => SqOp::SEND_SOL,
            (true, false) => SqOp::SEND_INV,
            (true, true) => SqOp::SEND_SOL_INV,
        };
        let header = self.flags.header(op).with_key(self.inv.unwrap_or_default());
        match self.ud {
            Some(ud) => header.with_ah(ud.ah),
            None => header,
        }
    }

    #[inline]
    pub(super) fn target(&self) -> u64 {
        self.ud.map_or(0, |ud| {
            UdWord::ZERO.with_qkey(ud.qkey).with_dest(ud.dest).bits()
        })
    }
}

/// A WRITE without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteWr {
    /// Common flags.
    pub flags: WrFlags,
    /// Solicited event at the receiver; means something with an immediate only.
    pub solicited: bool,
    /// Immediate, as a host-order value.
    pub imm: Option<u32>,
    /// Where to.
    pub remote: RemoteAddr,
}

impl WriteWr {
    #[inline]
    pub(super) fn header(&self) -> SqHeader {
        let op = if self.solicited && self.imm.is_some() {
            SqOp::WRITE_SOL
        } else {
            SqOp::WRITE
        };
        self.flags.header(op).with_key(self.remote.rkey)
    }
}

/// A READ without its sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadWr {
    /// Common flags.
    pub flags: WrFlags,
    /// Where from.
    pub remote: RemoteAddr,
    /// Invalidate the local key afterwards.
    pub local_inv: bool,
}
