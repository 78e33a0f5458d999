//! Posting sends whose kind and parts become known one after another: what a layer for another
//! language or interface needs.
//!
//! ```text
//! batch.any(&AnyWr { op, id, .. })     starts a request; the one before is written
//!      .any_local(sge)                 more memory of ours
//!      .any_inline(bytes)              more bytes that are copied
//!      .any_to(ah, qpn, qkey)          where a datagram goes
//!      .any_xrc_srqn(srq)              for which queue, on XRC initiators
//! batch.ring()                         the last one is written, all are posted
//! ```
//!
//! The typed builders of `wr.rs` know while compiling what a request can have; here a part that a
//! request has no use for is left alone. Cost: that of the typed builders. No allocation.

use crate::ah::Ah;
use crate::mw::{BindInfo, Mw};
use crate::post::SendBatch;
use crate::wc::WrId;
use crate::wr::Desc;
use srdma_core::hw::wqe::{RemoteAddr, UdTarget, WrFlags};
use srdma_core::hw::{Sge, SqOp};
use srdma_core::num::{Qkey, Qpn, Rkey, SrqId};

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AnyOp {
    /// SEND, with an immediate value or without.
    Send(Option<u32>),
    /// SEND that invalidates a key of the peer.
    SendInv(Rkey),
    /// RDMA WRITE to an address under a key, with an immediate value or without.
    Write(u64, Rkey, Option<u32>),
    /// RDMA READ from an address under a key.
    Read(u64, Rkey),
    /// Compare and swap.
    CompareSwap {
        /// Where.
        addr: u64,
        /// Under which key.
        rkey: Rkey,
        /// What must be there.
        compare: u64,
        /// What is there afterwards.
        swap: u64,
    },
    /// Fetch and add: address, key, addend.
    FetchAdd(u64, Rkey, u64),
    /// Write of eight bytes in one piece: address, key, bytes.
    AtomicWrite(u64, Rkey, [u8; 8]),
    /// Makes a local key invalid.
    LocalInv(Rkey),
    /// Nothing.
    Nop,
}

/// A request as plain values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnyWr {
    /// Comes back in the completion.
    pub id: WrId,
    /// What to do.
    pub op: AnyOp,
    /// Reports success.
    pub signaled: bool,
    /// Waits for all earlier READs and atomics.
    pub fence: bool,
    /// Asks for a solicited event at the peer.
    pub solicited: bool,
}

impl AnyWr {
    #[inline]
    fn desc(&self) -> Desc {
        let remote = |addr, rkey| Some(RemoteAddr { addr, rkey });
        let desc = |op| Desc::new(self.id, op);
        let mut desc = match self.op {
            AnyOp::Send(imm) => Desc {
                imm,
                ..desc(SqOp::SEND)
            },
            AnyOp::SendInv(rkey) => Desc {
                inv: Some(rkey),
                ..desc(SqOp::SEND_INV)
            },
            AnyOp::Write(addr, rkey, imm) => Desc {
                imm,
                remote: remote(addr, rkey),
                ..desc(SqOp::WRITE)
            },
            AnyOp::Read(addr, rkey) => Desc {
                remote: remote(addr, rkey),
                ..desc(SqOp::READ)
            },
            AnyOp::CompareSwap {
                addr,
                rkey,
                compare,
                swap,
            } => Desc {
                operands: [swap, compare],
                remote: remote(addr, rkey),
                ..desc(SqOp::COMPARE_SWAP)
            },
            AnyOp::FetchAdd(addr, rkey, addend) => Desc {
                operands: [addend, 0],
                remote: remote(addr, rkey),
                ..desc(SqOp::FETCH_ADD)
            },
            AnyOp::AtomicWrite(addr, rkey, value) => Desc {
                operands: [u64::from_le_bytes(value), 0],
                remote: remote(addr, rkey),
                ..desc(SqOp::ATOMIC_WRITE)
            },
            AnyOp::LocalInv(rkey) => Desc {
                inv: Some(rkey),
                ..desc(SqOp::LOCAL_INVALIDATE)
            },
            AnyOp::Nop => desc(SqOp::NOP),
        };
        desc.flags = self.flags();
        desc.solicited = self.solicited;
        desc
    }

    fn flags(&self) -> WrFlags {
        WrFlags {
            signaled: self.signaled,
            read_fence: self.fence,
            ..WrFlags::default()
        }
    }
}

impl SendBatch<'_> {
    /// Starts a request of any kind. It is written when the next one starts, or when the batch is
    /// rung; until then parts can be added to it.
    #[inline]
    pub fn any(&mut self, wr: &AnyWr) -> &mut Self {
        self.begin(wr.desc())
    }

    /// Starts a bind of a type 2 window, as [`Self::bind_mw`] does. Of `wr` the id and the flags
    /// are taken.
    pub fn any_bind(&mut self, wr: &AnyWr, mw: &Mw, info: &BindInfo<'_>, rkey: Rkey) -> &mut Self {
        let desc = Desc {
            flags: wr.flags(),
            ..Desc::new(wr.id, SqOp::BIND_MW)
        };
        self.begin(desc);
        self.end.payload.bind = Some(Desc::bind(mw, info, rkey, false));
        self
    }

    /// More memory of ours for the request that was started last.
    #[inline]
    pub fn any_local(&mut self, sge: Sge) -> &mut Self {
        let payload = &mut self.end.payload;
        payload.too_many |= !payload.sges.push(sge);
        self
    }

    /// More bytes that are copied into the request that was started last.
    #[inline]
    pub fn any_inline(&mut self, bytes: &[u8]) -> &mut Self {
        self.end.payload.append(bytes);
        self
    }

    /// Where the datagram that was started last goes.
    #[inline]
    pub fn any_to(&mut self, ah: &Ah, qpn: Qpn, qkey: Qkey) -> &mut Self {
        if let Some(desc) = &mut self.pending {
            desc.ud = Some(UdTarget {
                ah: ah.id(),
                qkey,
                dest: qpn,
            });
        }
        self
    }

    /// The shared receive queue of the peer that the request that was started last is for; on XRC
    /// initiators.
    #[inline]
    pub const fn any_xrc_srqn(&mut self, srq: SrqId) -> &mut Self {
        if let Some(desc) = &mut self.pending {
            desc.xrc_srq = Some(srq);
        }
        self
    }

    /// Spoils the batch: a part of a request is impossible, and the layer above noticed it.
    pub fn any_refuse(&mut self) {
        self.refuse(crate::error::Reason::IncompleteWr);
    }

    #[inline]
    fn begin(&mut self, desc: Desc) -> &mut Self {
        self.settle();
        self.end.payload.clear();
        self.pending = Some(desc);
        self
    }
}
