//! What stands in a receive buffer of the exception queue. `[srdma]`
//!
//! ```text
//! +0    network header, as in front of a datagram                (40 bytes)
//! +40   55:32 queue pair │ 17:16 ECN │ 15:8 opcode │ 7:0 class
//! +48   63:32 epoch      │ 23:0 PSN
//! +56   when it came, in nanoseconds of the device's clock
//! +64   the packet, from the base header to the ICRC; nothing where there is no packet
//! ```
//!
//! The epoch is the generation of the queue pair's expectation: what is given back with another
//! one is refused, so that nothing held survives a reset, a new receive PSN or a refusal.
//! [E810 8.6.4]

use crate::num::{Psn, Qpn};
use crate::time::Instant;

open_enum! {
    /// Why something is in the exception queue.                       [E810 8.6.3]
    pub struct IeqClass: u8 {
        /// A reliable request ahead of its turn. Who holds it gives it back in its turn.
        OOO = 1,
        /// No packet: the expected PSN of a queue pair moved; here is the new one.
        MOVED = 2,
        /// No packet: what is held for a queue pair is of no use any more.
        GONE = 3,
        /// A packet with a wrong ICRC: nothing in it can be trusted.
        ICRC = 4,
        /// No packet at all: cut short, of another version, of no known opcode.
        MALFORMED = 5,
        /// For a queue pair that is not there.
        BAD_QPN = 6,
    }
}

impl IeqClass {
    /// Nobody holds it: it is there to be looked at.
    #[must_use]
    pub const fn is_tap(self) -> bool {
        matches!(self, Self::ICRC | Self::MALFORMED | Self::BAD_QPN)
    }
}

le_word! {
    /// Word 0.
    pub struct ClassWord {
        class / with_class: IeqClass = [7:0],
        opcode / with_opcode: u8 = [15:8],
        ecn / with_ecn: u8 = [17:16],
        qpn / with_qpn: Qpn = [55:32],
    }
}

le_word! {
    /// Word 1.
    pub struct PlaceWord {
        psn / with_psn: Psn = [23:0],
        epoch / with_epoch: u32 = [63:32],
    }
}

/// Where [`IeqInfo`] stands in a buffer.
pub const IEQ_INFO_AT: usize = 40;
/// Bytes of it.
pub const IEQ_INFO_BYTES: usize = 24;
/// Where the packet begins.
pub const IEQ_PACKET_AT: usize = IEQ_INFO_AT + IEQ_INFO_BYTES;

/// What the device says of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IeqInfo {
    /// What is exceptional.
    pub class: IeqClass,
    /// Opcode of the packet.
    pub opcode: u8,
    /// ECN bits of its network header.
    pub ecn: u8,
    /// The queue pair that it is for. Of a damaged packet: what the bytes say.
    pub qpn: Qpn,
    /// Its PSN; of a move, the expected one.
    pub psn: Psn,
    /// Generation of the queue pair's expectation.
    pub epoch: u32,
    /// When it came.
    pub at: Instant,
}

impl IeqInfo {
    /// The bytes in the buffer.
    #[must_use]
    pub fn encode(&self) -> [u8; IEQ_INFO_BYTES] {
        let class = ClassWord::ZERO
            .with_class(self.class)
            .with_opcode(self.opcode)
            .with_ecn(self.ecn)
            .with_qpn(self.qpn);
        let place = PlaceWord::ZERO.with_psn(self.psn).with_epoch(self.epoch);
        let mut bytes = [0; IEQ_INFO_BYTES];
        for (to, word) in bytes
            .chunks_exact_mut(8)
            .zip([class.bits(), place.bits(), self.at.0])
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From the bytes in the buffer.
    #[must_use]
    pub fn decode(bytes: &[u8; IEQ_INFO_BYTES]) -> Self {
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
            u64::from_le_bytes(word.copied().unwrap_or_default())
        };
        let (class, place) = (ClassWord::from_bits(word(0)), PlaceWord::from_bits(word(8)));
        Self {
            class: class.class(),
            opcode: class.opcode(),
            ecn: class.ecn(),
            qpn: class.qpn(),
            psn: place.psn(),
            epoch: place.epoch(),
            at: Instant(word(16)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read() {
        let info = IeqInfo {
            class: IeqClass::BAD_QPN,
            opcode: 0xff,
            ecn: 3,
            qpn: Qpn::new(0xff_fffe),
            psn: Psn::new(0xff_ffff),
            epoch: u32::MAX,
            at: Instant(u64::MAX),
        };
        assert_eq!(IeqInfo::decode(&info.encode()), info);
        assert!(info.class.is_tap() && !IeqClass::OOO.is_tap());
        let zero = IeqInfo::decode(&[0; IEQ_INFO_BYTES]);
        assert_eq!(zero.encode(), [0; IEQ_INFO_BYTES]);
    }
}
