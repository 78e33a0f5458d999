//! The ACK extended transport header: syndrome and message sequence number.
//!
//! ```text
//!  byte 0:  0 | 00 credits(5)   ACK          bytes 1..4: MSN
//!           0 | 01 timer(5)     RNR NAK
//!           0 | 11 code(5)      NAK
//!           everything else     reserved, kept as it came
//! ```
//!
//! What a code does to a queue pair is not decided here. Delays of RNR timer codes are in
//! [`crate::time`].                                                            [RoCEv2 1.4]
//!
//! Between devices of our own kind an acknowledgement may come along with a request:
//!
//! ```text
//!  rider  0..4: AETH    4: 0    5..8: PSN that is acknowledged
//! ```

use crate::num::{Msn, Psn};

open_enum! {
    /// Why a request was refused: five bits.
    pub struct NakCode: u8 {
        /// A packet is missing: send again from the PSN of the NAK.
        PSN_SEQUENCE = 0,
        /// The request breaks a rule.
        INVALID_REQUEST = 1,
        /// Key, range or rights do not allow the access.
        REMOTE_ACCESS = 2,
        /// The responder failed at home.
        REMOTE_OPERATION = 3,
        /// Reliable datagram only.
        INVALID_RD = 4,
    }
}

/// What an AETH says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Syndrome {
    /// Positive acknowledgement; `credits` is the five-bit credit code, 31 for "not used".
    Ack {
        /// Credit code.
        credits: u8,
    },
    /// The receiver was not ready: try again after the delay of `timer`.
    RnrNak {
        /// RNR timer code, see [`crate::time::rnr_timer_ns`].
        timer: u8,
    },
    /// Refused.
    Nak(NakCode),
    /// A byte without a meaning.
    Reserved(u8),
}

impl Syndrome {
    /// Acknowledgement without end-to-end credits: byte 0x1f.
    // rule: roce-23
    pub const ACK: Self = Self::Ack { credits: 31 };

    /// The syndrome's byte. Codes are cut to five bits.
    #[inline]
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 0x20 | timer & 0x1f,
            Self::Nak(code) => 0x60 | code.0 & 0x1f,
            Self::Reserved(byte) => byte,
        }
    }

    /// The meaning of a byte.
    #[inline]
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        match byte >> 5 {
            0b000 => Self::Ack { credits: byte },
            0b001 => Self::RnrNak { timer: byte & 0x1f },
            0b011 => Self::Nak(NakCode(byte & 0x1f)),
            _ => Self::Reserved(byte),
        }
    }
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Aeth {
    /// Acknowledged, not ready, or refused.
    pub syndrome: Syndrome,
    /// Messages the responder has completed.
    pub msn: Msn,
}

impl Aeth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [a, b, c] = self.msn.to_be_bytes();
        [self.syndrome.to_byte(), a, b, c]
    }

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [syndrome, a, b, c] = bytes;
        Self {
            syndrome: Syndrome::from_byte(syndrome),
            msn: Msn::from_be_bytes([a, b, c]),
        }
    }
}

/// A positive acknowledgement that comes along with a request: what would be a packet of its own.
/// `[srdma]`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Rider {
    /// As in the packet of its own.
    pub aeth: Aeth,
    /// The PSN of that packet: this one and all before it are acknowledged.
    pub psn: Psn,
}

impl Rider {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [s, a, b, c] = self.aeth.to_bytes();
        let [p, q, r] = self.psn.to_be_bytes();
        [s, a, b, c, 0, p, q, r]
    }

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [s, a, b, c, _, p, q, r] = bytes;
        Self {
            aeth: Aeth::from_bytes([s, a, b, c]),
            psn: Psn::from_be_bytes([p, q, r]),
        }
    }
}
