//! The base transport header: the first twelve bytes of every packet.
//!
//! ```text
//!  byte 0        1                      2..4    4            5..8      8           9..12
//!       opcode   SE|M|pad(2)|tver(4)    P_Key   F|B|resv(6)  dest QP   A|resv(7)   PSN
//! ```
//!
//! Reserved bits are written as zero and not looked at, but for those before the PSN: devices of
//! our own kind tell each other in them how far into its message a packet is. The transport version
//! is not kept: a packet of another version is refused before a `Bth` exists.  [RoCEv2 1.2, 6.5]

use super::opcode::{BTH_LEN, Opcode};
use crate::num::{Pkey, Psn, Qpn};

/// Base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// Solicited event: the receiver may wake somebody for it.
    pub solicited: bool,
    /// Path migration state; always "migrated" where paths do not migrate.
    pub migrated: bool,
    /// The sender wants an acknowledgement.
    pub ack_req: bool,
    /// Bytes after the payload that fill it up to a multiple of four, 0..=3.
    pub pad: u8,
    /// Partition.
    pub pkey: Pkey,
    /// The queue pair it is for.
    pub dest: Qpn,
    /// How many packets of its message come before it, up to [`FAR`], for a device of our own kind;
    /// to others it is a reserved field, and 0.
    pub place: u8,
    /// Packet sequence number.
    pub psn: Psn,
    /// Backward congestion notification.
    pub becn: bool,
    /// Forward congestion notification.
    pub fecn: bool,
}

impl Bth {
    /// A header for `dest` with everything else as most packets have it: default partition,
    /// migrated, no flags, no pad.
    #[must_use]
    pub const fn new(opcode: Opcode, dest: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            ack_req: false,
            pad: 0,
            pkey: Pkey::DEFAULT,
            dest,
            place: 0,
            psn,
            becn: false,
            fecn: false,
        }
    }

    /// The pad count that `len` bytes of payload need.                [RoCEv2 1.6]
    // rule: roce-13
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "masked to two bits")]
    pub const fn pad_for(len: usize) -> u8 {
        (len.wrapping_neg() & 3) as u8
    }

    /// The header's bytes.
    // rule: roce-8
    // rule: roce-10
    #[inline]
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; BTH_LEN] {
        bytes_of(self.words())
    }

    /// The header as three big-endian words.
    #[inline]
    #[must_use]
    pub(super) const fn words(&self) -> [u32; 3] {
        let flags =
            (self.solicited as u32) << 7 | (self.migrated as u32) << 6 | (self.pad as u32 & 3) << 4;
        let congestion = (self.fecn as u32) << 31 | (self.becn as u32) << 30;
        let first = (self.opcode.0 as u32) << 24 | flags << 16 | self.pkey.0 as u32;
        let second = congestion | self.dest.value();
        let place = (self.place & FAR) as u32;
        let third = (self.ack_req as u32) << 31 | place << 24 | self.psn.value();
        [first, second, third]
    }

    /// Reads the header, whatever its version.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; BTH_LEN]) -> Self {
        let &[
            opcode,
            flags,
            k0,
            k1,
            congestion,
            d0,
            d1,
            d2,
            ack,
            p0,
            p1,
            p2,
        ] = bytes;
        Self {
            opcode: Opcode(opcode),
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            ack_req: ack & 0x80 != 0,
            pad: flags >> 4 & 3,
            pkey: Pkey(u16::from_be_bytes([k0, k1])),
            dest: Qpn::from_be_bytes([d0, d1, d2]),
            place: ack & FAR,
            psn: Psn::from_be_bytes([p0, p1, p2]),
            becn: congestion & 0x40 != 0,
            fecn: congestion & 0x80 != 0,
        }
    }
}

/// The largest place in a message that seven bits tell: there or further on.
pub const FAR: u8 = 0x7f;

/// Where the pad count stands in the first word.
pub(super) const PAD_SHIFT: u32 = 20;

/// The bytes of a header's words.
#[inline]
pub(super) const fn bytes_of([first, second, third]: [u32; 3]) -> [u8; BTH_LEN] {
    let [o, f, k0, k1] = first.to_be_bytes();
    let [c, d0, d1, d2] = second.to_be_bytes();
    let [a, p0, p1, p2] = third.to_be_bytes();
    [o, f, k0, k1, c, d0, d1, d2, a, p0, p1, p2]
}
