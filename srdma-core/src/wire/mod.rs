//! RoCEv2 packets: bytes in, meaning out. No state.
//!
//! ```text
//!  UDP payload   BTH 12 │ extension headers │ payload │ pad 0..3 │ ICRC 4
//!                └──── header_len ─────────┘                             all a multiple of 4
//! ```
//!
//! [`Packet`] is a checked view over a received datagram: parsing looks up one row of the opcode
//! table and checks lengths; each field is read only when somebody asks for it. [`Emit`] describes
//! headers, and [`Head`] is their bytes. The ICRC is a matter of its own ([`icrc`]), because it
//! covers parts of the IP header. Whether a packet is welcome (queue pair, PSN, keys, MTU) is not
//! decided here.
//!
//! [RoCEv2 1]

mod aeth;
mod bth;
mod deth;
mod emit;
pub mod flow;
mod head;
mod header_set;
pub mod icrc;
mod immdt;
pub mod opcode;
pub mod pretty;
mod reth;
mod sack;

#[cfg(test)]
mod tests;

pub use aeth::{Aeth, NakCode, Rider, Syndrome};
pub use bth::{Bth, FAR};
pub use deth::Deth;
pub use emit::Emit;
pub use flow::{Ecn, FlowTuple, ROCE_PORT};
pub use head::Head;
pub use header_set::HeaderSet;
pub use icrc::{Icrc, IcrcCheck, IcrcFlow, IcrcLen};
pub use immdt::ImmDt;
pub use opcode::{BTH_LEN, MessageForm, Opcode, OpcodeInfo, PayloadRule, Position, Service, Verb};
pub use pretty::Pretty;
pub use reth::{AtomicEth, Feth, Reth};
pub(crate) use sack::Sack;

use crate::limits::MAX_MTU;
use crate::num::{Pkey, Psn, Qpn, Rkey};

/// Bytes of the ICRC at the end of a packet.
pub const ICRC_LEN: usize = 4;

/// Why a datagram is no packet. It is dropped and counted, nobody is told.
// rule: roce-9
// rule: roce-14
// rule: roce-15
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Shorter than the headers of its opcode and an ICRC.
    #[error("the datagram is shorter than its headers and an ICRC")]
    TooShort,
    /// A transport version other than 0.
    #[error("the transport version is not 0")]
    Version,
    /// An opcode without a row in the table.
    #[error("the opcode is unknown or of a service that is not spoken")]
    UnknownOpcode,
    /// The length is no multiple of four, or the pad count exceeds what is there.
    #[error("the pad count does not fit the length")]
    Pad,
    /// More payload than the largest MTU.
    #[error("the payload is longer than the largest path MTU")]
    Length,
}

impl Malformed {
    /// How many reasons there are.
    pub const COUNT: usize = 5;

    /// Every reason, at its index.
    pub const ALL: [Self; Self::COUNT] = [
        Self::TooShort,
        Self::Version,
        Self::UnknownOpcode,
        Self::Pad,
        Self::Length,
    ];

    /// A small number for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::TooShort => 0,
            Self::Version => 1,
            Self::UnknownOpcode => 2,
            Self::Pad => 3,
            Self::Length => 4,
        }
    }
}

/// A packet whose structure was checked: a view over one datagram, BTH to ICRC.
///
/// Accessors do not fail. Those of extension headers return `None` exactly where the opcode has no
/// such header.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    bth: &'a [u8; BTH_LEN],
    info: &'static OpcodeInfo,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks everything that does not depend on a queue pair: length, version, opcode, headers,
    /// pad, and the payload against the largest MTU. Does not check the ICRC.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let Some(bth) = datagram.first_chunk::<BTH_LEN>() else {
            return Err(Malformed::TooShort);
        };
        let &[opcode, flags, ..] = bth;
        if flags & 0x0f != 0 {
            return Err(Malformed::Version);
        }
        let Some(info) = Opcode(opcode).info() else {
            return Err(Malformed::UnknownOpcode);
        };
        let covered = datagram.len().saturating_sub(ICRC_LEN);
        let Some(body) = datagram.get(usize::from(info.header_len)..covered) else {
            return Err(Malformed::TooShort);
        };
        let pad = usize::from(flags >> 4 & 3);
        let payload = body.len().checked_sub(pad).and_then(|len| body.get(..len));
        let Some(payload) = payload.filter(|_| body.len() % 4 == 0) else {
            return Err(Malformed::Pad);
        };
        if payload.len() > MAX_MTU {
            return Err(Malformed::Length);
        }
        Ok(Self {
            bytes: datagram,
            bth,
            info,
            payload,
        })
    }

    /// The base header, all of it.
    #[inline]
    #[must_use]
    pub const fn bth(&self) -> Bth {
        Bth::from_bytes(self.bth)
    }

    /// The opcode.
    #[inline]
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        let &[opcode, ..] = self.bth;
        Opcode(opcode)
    }

    /// The opcode's row.
    #[inline]
    #[must_use]
    pub const fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// Solicited event.
    #[inline]
    #[must_use]
    pub const fn solicited(&self) -> bool {
        let &[_, flags, ..] = self.bth;
        flags & 0x80 != 0
    }

    /// Bytes of pad.
    #[inline]
    #[must_use]
    pub const fn pad(&self) -> u8 {
        let &[_, flags, ..] = self.bth;
        flags >> 4 & 3
    }

    /// Partition key.
    #[inline]
    #[must_use]
    pub const fn pkey(&self) -> Pkey {
        let &[_, _, a, b, ..] = self.bth;
        Pkey(u16::from_be_bytes([a, b]))
    }

    /// The queue pair it is for.
    #[inline]
    #[must_use]
    pub const fn dest(&self) -> Qpn {
        let &[_, _, _, _, _, a, b, c, ..] = self.bth;
        Qpn::from_be_bytes([a, b, c])
    }

    /// An acknowledgement is wanted.
    #[inline]
    #[must_use]
    pub const fn ack_req(&self) -> bool {
        let &[.., flags, _, _, _] = self.bth;
        flags & 0x80 != 0
    }

    /// How many packets of its message come before this one, up to [`FAR`], as a device of our own
    /// kind tells; 0 if it does not. Other devices leave these bits zero.
    #[inline]
    #[must_use]
    pub const fn place(&self) -> u8 {
        let &[.., flags, _, _, _] = self.bth;
        flags & FAR
    }

    /// Packet sequence number.
    #[inline]
    #[must_use]
    pub const fn psn(&self) -> Psn {
        let &[.., a, b, c] = self.bth;
        Psn::from_be_bytes([a, b, c])
    }

    /// The payload, without pad.
    // rule: roce-13
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The bytes of one extension header.
    #[inline]
    fn header<const N: usize>(&self, header: HeaderSet) -> Option<&'a [u8; N]> {
        self.bytes.get(self.info.offset(header)?..)?.first_chunk()
    }

    /// RDMA header: address, key, length.
    #[inline]
    #[must_use]
    pub fn reth(&self) -> Option<Reth> {
        self.header(HeaderSet::RETH)
            .map(|bytes| Reth::from_bytes(*bytes))
    }

    /// Datagram header: Q_Key and source.
    #[inline]
    #[must_use]
    pub fn deth(&self) -> Option<Deth> {
        self.header(HeaderSet::DETH)
            .map(|bytes| Deth::from_bytes(*bytes))
    }

    /// ACK header.
    #[inline]
    #[must_use]
    pub fn aeth(&self) -> Option<Aeth> {
        self.header(HeaderSet::AETH)
            .map(|bytes| Aeth::from_bytes(*bytes))
    }

    /// Atomic request header.
    #[inline]
    #[must_use]
    pub fn atomic_eth(&self) -> Option<AtomicEth> {
        self.header(HeaderSet::ATOMIC).map(AtomicEth::from_bytes)
    }

    /// The original value in the acknowledgement of an atomic.
    #[inline]
    #[must_use]
    pub fn atomic_ack(&self) -> Option<u64> {
        self.header(HeaderSet::ATOMIC_ACK)
            .map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// Immediate data.
    #[inline]
    #[must_use]
    pub fn imm(&self) -> Option<ImmDt> {
        self.header(HeaderSet::IMM).map(|bytes| ImmDt(*bytes))
    }

    /// The key to invalidate.
    #[inline]
    #[must_use]
    pub fn ieth(&self) -> Option<Rkey> {
        self.header(HeaderSet::IETH)
            .map(|bytes| Rkey(u32::from_be_bytes(*bytes)))
    }

    /// The number of the XRC shared receive queue, 24 bits.
    #[inline]
    #[must_use]
    pub fn xrceth(&self) -> Option<u32> {
        let word = self
            .header(HeaderSet::XRCETH)
            .map(|bytes| u32::from_be_bytes(*bytes))?;
        Some(word & 0x00ff_ffff)
    }

    /// FLUSH header.
    #[inline]
    #[must_use]
    pub fn feth(&self) -> Option<Feth> {
        self.header(HeaderSet::FETH)
            .map(|bytes| Feth::from_bytes(*bytes))
    }

    /// The acknowledgement that came along.
    #[inline]
    #[must_use]
    pub fn rider(&self) -> Option<Rider> {
        self.header(HeaderSet::RIDER)
            .map(|bytes| Rider::from_bytes(*bytes))
    }

    /// The ICRC as it came: the four bytes as a little-endian number.
    #[inline]
    #[must_use]
    pub fn icrc(&self) -> u32 {
        self.bytes
            .last_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The whole datagram.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The headers as they would be written.
    // rule: roce-25
    #[must_use]
    pub fn headers(&self) -> Emit {
        Emit {
            bth: self.bth(),
            xrceth: self.xrceth(),
            deth: self.deth(),
            reth: self.reth(),
            atomic: self.atomic_eth(),
            aeth: self.aeth(),
            atomic_ack: self.atomic_ack(),
            imm: self.imm(),
            ieth: self.ieth(),
            feth: self.feth(),
            rider: self.rider(),
        }
    }
}
