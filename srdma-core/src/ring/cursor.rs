//! A position in a ring, and the polarity of the entry there.
//!
//! ```text
//! index     0 1 2 3 │ 0 1 2 3 │ 0 …
//! polarity  1 1 1 1 │ 0 0 0 0 │ 1 …        the first lap is 1 for every ring  [E810 1.5]
//! ```
//!
//! A producer stamps the polarity of its cursor, a consumer expects it: both ends of a ring keep
//! the same arithmetic, so "toggle when index 0 is taken" and "invert on wrap" are one rule.

use super::Polarity;

/// Index below `size`, and the valid bit's value on this lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    index: u32,
    size: u32,
    polarity: Polarity,
}

impl Cursor {
    /// The start of a fresh ring of `size` entries (at least one).
    #[must_use]
    pub const fn new(size: u32) -> Self {
        assert!(size > 0, "a ring has entries");
        Self {
            index: 0,
            size,
            polarity: Polarity::ONE,
        }
    }

    /// The index, below the size.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Entries of the ring.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Polarity of the entry at the index.
    #[inline]
    #[must_use]
    pub const fn polarity(&self) -> Polarity {
        self.polarity
    }

    /// The position `entries` further on, at most one lap.
    #[inline]
    #[must_use]
    pub const fn ahead(mut self, entries: u32) -> Self {
        debug_assert!(entries <= self.size, "a cursor moves at most one lap");
        self.index += entries;
        if self.index >= self.size {
            self.index -= self.size;
            self.polarity = self.polarity.flipped();
        }
        self
    }

    /// Moves on by `entries`, at most one lap.
    #[inline]
    pub const fn advance(&mut self, entries: u32) {
        *self = self.ahead(entries);
    }

    /// Entries from `index` up to here, modulo the size.
    #[inline]
    #[must_use]
    pub const fn since(&self, index: u32) -> u32 {
        distance(index, self.index, self.size)
    }
}

/// Entries from `from` to `to`, both below `size`.                    [E810 1.1]
#[inline]
#[must_use]
pub(super) const fn distance(from: u32, to: u32, size: u32) -> u32 {
    if to >= from {
        to - from
    } else {
        to + size - from
    }
}
