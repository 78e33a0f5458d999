//! The valid bit: bit 63 of the word that publishes an entry.
//!
//! ```text
//! lap      1    2    3    4   …
//! valid    1    0    1    0   …     a zeroed ring reads as empty on the first lap  [E810 1.5]
//! ```
//!
//! A reader compares the bit with the one its lap expects and never clears it. Which lap an index
//! belongs to is the business of `ring::Cursor`.

use crate::macros::Field;
use core::fmt;

/// The value of the valid bit that marks the entries of one lap.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Polarity(bool);

impl Polarity {
    /// The first lap of every ring.                                  [E810 1.5]
    // rule: e810-16
    pub const ONE: Self = Self(true);
    /// The second lap of every ring.
    pub const ZERO: Self = Self(false);
    /// The bit itself.
    pub const MASK: u64 = 1 << 63;

    /// The polarity of the next lap.
    #[inline]
    #[must_use]
    pub const fn flipped(self) -> Self {
        Self(!self.0)
    }

    /// The polarity a word carries.
    #[inline]
    #[must_use]
    pub const fn of(word: u64) -> Self {
        Self(word & Self::MASK != 0)
    }

    /// The bit in place: bit 63, or nothing.
    #[inline]
    #[must_use]
    pub const fn bit(self) -> u64 {
        (self.0 as u64) << 63
    }

    /// `word` with the valid bit of this lap.
    #[inline]
    #[must_use]
    pub const fn stamp(self, word: u64) -> u64 {
        word & !Self::MASK | self.bit()
    }

    /// True if `word` is of this lap.
    #[inline]
    #[must_use]
    pub const fn matches(self, word: u64) -> bool {
        Self::of(word).0 == self.0
    }
}

impl Field for Polarity {
    #[inline]
    fn to_bits(self) -> u64 {
        u64::from(self.0)
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self(bits & 1 != 0)
    }
}

impl fmt::Debug for Polarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Polarity({})", u8::from(self.0))
    }
}
