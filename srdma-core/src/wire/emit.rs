//! Writing headers.
//!
//! An [`Emit`] holds the headers that shall stand before a payload and writes them in wire order,
//! whatever the opcode says. It writes neither payload nor pad nor ICRC.       [RoCEv2 1.3]

use super::opcode::{BTH_LEN, Opcode};
use super::{Aeth, AtomicEth, Bth, Deth, Feth, HeaderSet, ImmDt, Reth};
use crate::num::Rkey;

/// The headers of one packet. A CNP's sixteen reserved bytes follow from its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::exhaustive_structs, reason = "one field a header of the wire")]
pub struct Emit {
    /// Base header.
    pub bth: Bth,
    /// XRC shared receive queue number; its low 24 bits are written.
    pub xrceth: Option<u32>,
    /// Datagram header.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic request.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Original value of an atomic.
    pub atomic_ack: Option<u64>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Key to invalidate.
    pub ieth: Option<Rkey>,
    /// FLUSH header.
    pub feth: Option<Feth>,
}

impl Emit {
    /// Only a base header.
    #[inline]
    #[must_use]
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            xrceth: None,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            imm: None,
            ieth: None,
            feth: None,
        }
    }

    /// Which extension headers are set.
    #[inline]
    #[must_use]
    pub const fn headers(&self) -> HeaderSet {
        const fn if_set(set: bool, header: HeaderSet) -> HeaderSet {
            if set { header } else { HeaderSet::NONE }
        }
        if_set(self.xrceth.is_some(), HeaderSet::XRCETH)
            .with(if_set(self.deth.is_some(), HeaderSet::DETH))
            .with(if_set(self.feth.is_some(), HeaderSet::FETH))
            .with(if_set(self.reth.is_some(), HeaderSet::RETH))
            .with(if_set(self.atomic.is_some(), HeaderSet::ATOMIC))
            .with(if_set(self.aeth.is_some(), HeaderSet::AETH))
            .with(if_set(self.atomic_ack.is_some(), HeaderSet::ATOMIC_ACK))
            .with(if_set(self.imm.is_some(), HeaderSet::IMM))
            .with(if_set(self.ieth.is_some(), HeaderSet::IETH))
            .with(if_set(self.bth.opcode.0 == Opcode::CNP.0, HeaderSet::CNP))
    }

    /// Bytes that [`Emit::write`] writes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a base header is always there")]
    pub const fn len(&self) -> usize {
        BTH_LEN + self.headers().len()
    }

    /// Writes the headers to the start of `out` and returns how many bytes they are. `out` must be
    /// long enough: [`crate::limits::MAX_HEADER`] always is.
    #[inline]
    #[allow(
        clippy::must_use_candidate,
        reason = "a caller may know the length from the table"
    )]
    pub fn write(&self, out: &mut [u8]) -> usize {
        let room = out.len();
        let mut rest = out;
        put(&mut rest, &self.bth.to_bytes());
        if let Some(srq) = self.xrceth {
            put(&mut rest, &(srq & 0x00ff_ffff).to_be_bytes());
        }
        if let Some(deth) = self.deth {
            put(&mut rest, &deth.to_bytes());
        }
        if let Some(feth) = self.feth {
            put(&mut rest, &feth.to_bytes());
        }
        if let Some(reth) = self.reth {
            put(&mut rest, &reth.to_bytes());
        }
        if let Some(atomic) = self.atomic {
            put(&mut rest, &atomic.to_bytes());
        }
        if let Some(aeth) = self.aeth {
            put(&mut rest, &aeth.to_bytes());
        }
        if let Some(value) = self.atomic_ack {
            put(&mut rest, &value.to_be_bytes());
        }
        if let Some(imm) = self.imm {
            put(&mut rest, &imm.0);
        }
        if let Some(rkey) = self.ieth {
            put(&mut rest, &rkey.0.to_be_bytes());
        }
        if self.bth.opcode == Opcode::CNP {
            put(&mut rest, &[0; 16]);
        }
        room - rest.len()
    }
}

/// Writes `bytes` to the start of `rest` and moves on.
#[inline]
fn put<const N: usize>(rest: &mut &mut [u8], bytes: &[u8; N]) {
    match core::mem::take(rest).split_first_chunk_mut::<N>() {
        Some((slot, tail)) => {
            *slot = *bytes;
            *rest = tail;
        }
        None => debug_assert!(false, "the caller gave room for every header"),
    }
}
