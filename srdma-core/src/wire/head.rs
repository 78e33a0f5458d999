//! The headers of one packet as the bytes that they are, in the order in which they are written.
//!
//! ```text
//! Head   three words of the BTH (the pad count comes last) │ extension headers, byte for byte
//! ```
//!
//! This is what the data path fills; [`Emit`](super::Emit) is the same as a description, and
//! writes its bytes through it. It knows neither payload nor ICRC.             [RoCEv2 1.3]

use super::bth::{self, PAD_SHIFT};
use super::opcode::{BTH_LEN, Opcode};
use super::{Aeth, AtomicEth, Bth, Deth, Feth, HeaderSet, ImmDt, Reth, Rider};
use crate::limits::MAX_HEADER;
use crate::num::Rkey;

/// Bytes of all extension headers that any packet has.
const EXT_MAX: usize = MAX_HEADER - BTH_LEN;

/// Headers of one packet: each is appended, in wire order.
#[derive(Clone, Debug)]
pub struct Head {
    bth: [u32; 3],
    ext: [u8; EXT_MAX],
    len: usize,
    set: HeaderSet,
}

impl Head {
    /// Only a base header.
    #[inline]
    #[must_use]
    pub const fn new(bth: &Bth) -> Self {
        Self {
            bth: bth.words(),
            ext: [0; EXT_MAX],
            len: 0,
            set: HeaderSet::NONE,
        }
    }

    /// The base header's bytes.
    #[inline]
    #[must_use]
    pub const fn bth(&self) -> [u8; BTH_LEN] {
        bth::bytes_of(self.bth)
    }

    /// What the packet is.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        let [first, _, _] = self.bth;
        let [opcode, ..] = first.to_be_bytes();
        Opcode(opcode)
    }

    /// Fills in the pad count that `len` bytes of payload need, and tells it.
    #[inline]
    pub const fn pad_for(&mut self, len: usize) -> usize {
        let pad = Bth::pad_for(len);
        let [first, ..] = &mut self.bth;
        *first = *first & !(3 << PAD_SHIFT) | (pad as u32) << PAD_SHIFT;
        pad as usize
    }

    /// The extension headers' bytes.
    #[inline]
    #[must_use]
    pub fn ext(&self) -> &[u8] {
        self.ext.get(..self.len).unwrap_or(&[])
    }

    /// Bytes of all headers.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a base header is always there")]
    pub const fn len(&self) -> usize {
        BTH_LEN + self.len
    }

    /// Which extension headers there are.
    #[inline]
    #[must_use]
    pub const fn headers(&self) -> HeaderSet {
        self.set
    }

    #[inline]
    fn put<const N: usize>(&mut self, kind: HeaderSet, bytes: &[u8; N]) {
        debug_assert!(self.set.is_before(kind), "headers come in wire order");
        self.set = self.set.with(kind);
        let room = self.ext.get_mut(self.len..).unwrap_or_default();
        match room.first_chunk_mut::<N>() {
            Some(slot) => *slot = *bytes,
            None => debug_assert!(false, "the longest set of headers fits"),
        }
        self.len += N;
    }

    /// XRC shared receive queue number; its low 24 bits are written.
    #[inline]
    pub fn xrceth(&mut self, srq: u32) {
        self.put(HeaderSet::XRCETH, &(srq & 0x00ff_ffff).to_be_bytes());
    }

    /// Datagram header.
    #[inline]
    pub fn deth(&mut self, deth: Deth) {
        self.put(HeaderSet::DETH, &deth.to_bytes());
    }

    /// FLUSH header.
    #[inline]
    pub fn feth(&mut self, feth: Feth) {
        self.put(HeaderSet::FETH, &feth.to_bytes());
    }

    /// RDMA header.
    #[inline]
    pub fn reth(&mut self, reth: Reth) {
        self.put(HeaderSet::RETH, &reth.to_bytes());
    }

    /// Atomic request.
    #[inline]
    pub fn atomic(&mut self, atomic: AtomicEth) {
        self.put(HeaderSet::ATOMIC, &atomic.to_bytes());
    }

    /// Acknowledgement.
    #[inline]
    pub fn aeth(&mut self, aeth: Aeth) {
        self.put(HeaderSet::AETH, &aeth.to_bytes());
    }

    /// Original value of an atomic.
    #[inline]
    pub fn atomic_ack(&mut self, original: u64) {
        self.put(HeaderSet::ATOMIC_ACK, &original.to_be_bytes());
    }

    /// Immediate data.
    #[inline]
    pub fn imm(&mut self, imm: ImmDt) {
        self.put(HeaderSet::IMM, &imm.0);
    }

    /// Key to invalidate.
    #[inline]
    pub fn ieth(&mut self, rkey: Rkey) {
        self.put(HeaderSet::IETH, &rkey.0.to_be_bytes());
    }

    /// The sixteen reserved bytes of a congestion notification.
    #[inline]
    pub fn cnp(&mut self) {
        self.put(HeaderSet::CNP, &[0; 16]);
    }

    /// An acknowledgement that goes along.
    #[inline]
    pub fn rider(&mut self, rider: Rider) {
        self.put(HeaderSet::RIDER, &rider.to_bytes());
    }
}
