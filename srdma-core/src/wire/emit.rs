//! Describing the headers of a packet.
//!
//! An [`Emit`] holds the headers that shall stand before a payload and writes them in wire order,
//! whatever the opcode says. It writes neither payload nor pad nor ICRC. The data path appends to a
//! [`Head`] instead, which has no choices left.                                [RoCEv2 1.3]

use super::opcode::{BTH_LEN, Opcode};
use super::{Aeth, AtomicEth, Bth, Deth, Feth, Head, HeaderSet, ImmDt, Reth, Rider};
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
    /// Acknowledgement that goes along with a request.
    pub rider: Option<Rider>,
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
            rider: None,
        }
    }

    /// Which extension headers are set.
    #[inline]
    #[must_use]
    pub fn headers(&self) -> HeaderSet {
        self.head().headers()
    }

    /// Bytes that [`Emit::write`] writes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a base header is always there")]
    pub fn len(&self) -> usize {
        self.head().len()
    }

    /// The headers as bytes.
    #[must_use]
    pub fn head(&self) -> Head {
        let mut head = Head::new(&self.bth);
        if let Some(srq) = self.xrceth {
            head.xrceth(srq);
        }
        if let Some(deth) = self.deth {
            head.deth(deth);
        }
        if let Some(feth) = self.feth {
            head.feth(feth);
        }
        if let Some(reth) = self.reth {
            head.reth(reth);
        }
        if let Some(atomic) = self.atomic {
            head.atomic(atomic);
        }
        if let Some(aeth) = self.aeth {
            head.aeth(aeth);
        }
        if let Some(original) = self.atomic_ack {
            head.atomic_ack(original);
        }
        if let Some(imm) = self.imm {
            head.imm(imm);
        }
        if let Some(rkey) = self.ieth {
            head.ieth(rkey);
        }
        if self.bth.opcode == Opcode::CNP {
            head.cnp();
        }
        if let Some(rider) = self.rider {
            head.rider(rider);
        }
        head
    }

    /// Writes the headers to the start of `out` and returns how many bytes they are. `out` must be
    /// long enough: [`crate::limits::MAX_HEADER`] always is.
    #[inline]
    #[allow(
        clippy::must_use_candidate,
        reason = "a caller may know the length from the table"
    )]
    pub fn write(&self, out: &mut [u8]) -> usize {
        let head = self.head();
        let room = out.split_first_chunk_mut::<BTH_LEN>();
        match room.and_then(|(bth, ext)| Some((bth, ext.get_mut(..head.ext().len())?))) {
            Some((bth, ext)) => {
                *bth = head.bth();
                ext.copy_from_slice(head.ext());
            }
            None => debug_assert!(false, "the caller gave room for every header"),
        }
        head.len()
    }
}
