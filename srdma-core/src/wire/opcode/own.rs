//! Opcodes of our own: those of RC with one more header, between devices of our own kind.
//!
//! ```text
//! 1110 0000 | operation   the operation of RC, and behind its own headers
//!   SEND, WRITE only                 a rider: an acknowledgement goes along
//!   WRITE middle, last               RETH: as long as the first packet
//!   READ response middle             AETH: as long as first and last
//! ```
//!
//! One segmented send has packets of one length: a message whose packets are alike leaves in fewer.
//! `[srdma]`

use super::{HeaderSet, Opcode};

/// The class that is left to manufacturers.
const CLASS: u8 = 0xe0;

impl Opcode {
    /// The same message with an acknowledgement along, if it is one that can take it.
    // rule: ride-1
    #[inline]
    #[must_use]
    pub const fn with_rider(self) -> Option<Self> {
        match self {
            Self::RC_SEND_ONLY
            | Self::RC_SEND_ONLY_IMM
            | Self::RC_WRITE_ONLY
            | Self::RC_WRITE_ONLY_IMM => Some(Self(self.0 | CLASS)),
            _ => None,
        }
    }

    /// The same packet with the header that the first one of its message has, if it lacks it and
    /// is as long with it.
    // rule: even-1
    #[inline]
    #[must_use]
    pub const fn evened(self) -> Option<Self> {
        match self {
            Self::RC_WRITE_MIDDLE | Self::RC_WRITE_LAST | Self::RC_READ_RESP_MIDDLE => {
                Some(Self(self.0 | CLASS))
            }
            _ => None,
        }
    }

    /// The opcode that everybody knows of the same operation.
    #[inline]
    #[must_use]
    pub const fn known(self) -> Self {
        match self.own() {
            Some((known, _)) => known,
            None => self,
        }
    }

    /// The opcode that everybody knows of the same operation, and the header that this one has
    /// besides; none if it is not one of ours.
    #[must_use]
    pub const fn own(self) -> Option<(Self, HeaderSet)> {
        if self.0 & CLASS != CLASS {
            return None;
        }
        let known = Self(self.0 & !CLASS);
        if known.with_rider().is_some() {
            return Some((known, HeaderSet::RIDER));
        }
        if known.evened().is_none() {
            return None;
        }
        let header = match known {
            Self::RC_READ_RESP_MIDDLE => HeaderSet::AETH,
            _ => HeaderSet::RETH,
        };
        Some((known, header))
    }
}
