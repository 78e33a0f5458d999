//! Completion event queue entries.                                     [E810 4.1]
//!
//! ```text
//! 63 valid | 62:0 CQ cookie >> 1
//! ```
//!
//! The cookie is what the driver named in CREATE_CQ; it must be even. An entry whose cookie is 0
//! was cleaned when its CQ went away, and is skipped.

use super::Polarity;

le_word! {
    /// The word of a CEQE.
    pub struct CeqeWord {
        /// The CQ's cookie without its lowest bit, which is 0.
        half_cookie / with_half_cookie: u64 = [62:0],
        /// Lap of the ring.
        valid / with_valid: Polarity = [63:63],
    }
}

/// "This CQ has something new."
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ceqe {
    /// The CQ's cookie (even); 0 in a cleaned entry. Its number in dialects that name it so.
    pub cookie: u64,
}

impl Ceqe {
    /// The number of the CQ, in dialects that name it so.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "cut to 24 bits")]
    pub const fn number(self) -> u32 {
        (self.cookie & 0xff_ffff) as u32
    }

    /// The word, valid bit clear.
    #[inline]
    #[must_use]
    pub fn encode(self) -> u64 {
        // rule: e810-23
        CeqeWord::ZERO.with_half_cookie(self.cookie >> 1).bits()
    }

    /// From the word, whatever its valid bit.
    #[inline]
    #[must_use]
    pub fn decode(word: u64) -> Self {
        Self { cookie: word << 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_loses_only_its_lowest_bit() {
        let event = Ceqe {
            cookie: 0xffff_8000_1234_5678,
        };
        assert_eq!(event.encode(), 0x7fff_c000_091a_2b3c);
        assert_eq!(Ceqe::decode(event.encode() | 1 << 63), event);
    }
}
