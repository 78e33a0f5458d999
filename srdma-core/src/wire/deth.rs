//! The datagram extended transport header.
//!
//! ```text
//!  byte 0..4 Q_Key   4 reserved   5..8 source QP
//! ```
//!
//! Says nothing about who may use which Q_Key.                                 [RoCEv2 1.3]

use crate::num::{Qkey, Qpn};

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Deth {
    /// The key the receiver compares with its own.
    pub qkey: Qkey,
    /// The queue pair it comes from.
    pub source: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        let [k0, k1, k2, k3] = self.qkey.0.to_be_bytes();
        let [s0, s1, s2] = self.source.to_be_bytes();
        [k0, k1, k2, k3, 0, s0, s1, s2]
    }

    /// Reads the header.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [k0, k1, k2, k3, _, s0, s1, s2] = bytes;
        Self {
            qkey: Qkey(u32::from_be_bytes([k0, k1, k2, k3])),
            source: Qpn::from_be_bytes([s0, s1, s2]),
        }
    }
}
