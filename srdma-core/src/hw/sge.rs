//! Fragments: the scatter/gather entries of SQ and RQ WQEs.            [E810 2.3]
//!
//! ```text
//! first word    63:0 address (tagged offset)
//! second word   63 valid | 62:32 length | 31:0 stag
//!
//! slot 0 at +0 (or the immediate), slot k ≥ 1 at +32 + 16 (k-1):
//!
//!   quantum 0   [ slot 0 ][ per op ][ header ]
//!   quantum 1   [ slot 1 ][ slot 2 ]            ← bit 63 of each last word is a valid bit
//!   quantum 2   [ slot 3 ][ slot 4 ]
//! ```
//!
//! A slot of length 0 and stag 0 is padding and never becomes an [`Sge`].

use crate::mem::Sge;
use crate::num::Lkey;

le_word! {
    /// Second word of a fragment.                                     [E810 2.3]
    pub struct FragWord {
        /// Local key.
        lkey / with_lkey: Lkey = [31:0],
        /// Bytes; 31 bits.
        bytes / with_bytes: u32 = [62:32],
        /// Lap of the ring.
        valid / with_valid: crate::hw::Polarity = [63:63],
    }
}

/// The second word of a fragment, with the valid bit clear.
#[inline]
#[must_use]
pub fn frag_word(sge: &Sge) -> u64 {
    FragWord::ZERO
        .with_lkey(sge.lkey)
        .with_bytes(sge.len)
        .bits()
}

/// From the two words of a fragment; `None` for padding.
// rule: e810-11
#[inline]
#[must_use]
pub fn sge_from_words(addr: u64, second: u64) -> Option<Sge> {
    let word = FragWord::from_bits(second);
    let (len, lkey) = (word.bytes(), word.lkey());
    (len != 0 || lkey.value() != 0).then_some(Sge { addr, len, lkey })
}

/// Fragments that one WQE can name on this device, padding not counted.
pub const SGE_LIST: usize = 14;

/// The fragments of one WQE, padding dropped. Only the first `len` elements mean something.
#[derive(Clone)]
pub struct SgeList {
    items: [Sge; SGE_LIST],
    len: u8,
    /// Bytes of them all.
    total: u64,
}

impl SgeList {
    /// No fragments.
    pub const EMPTY: Self = Self {
        items: [Sge {
            addr: 0,
            len: 0,
            lkey: Lkey(0),
        }; SGE_LIST],
        len: 0,
        total: 0,
    };

    /// The fragments.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Sge] {
        self.items.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Forgets the fragments. Does not touch the array.
    #[inline]
    pub const fn clear(&mut self) {
        self.len = 0;
        self.total = 0;
    }

    /// Appends; false if the list is full.
    #[inline]
    pub fn push(&mut self, sge: Sge) -> bool {
        match self.items.get_mut(usize::from(self.len)) {
            Some(item) => {
                *item = sge;
                self.len += 1;
                self.total += u64::from(sge.len);
                true
            }
            None => false,
        }
    }

    /// Sum of the lengths.
    #[inline]
    #[must_use]
    pub const fn total_len(&self) -> u64 {
        self.total
    }

    /// Takes over `other`, copying no more than is in use.
    #[inline]
    pub fn copy_from(&mut self, other: &Self) {
        let used = usize::from(other.len);
        if let (Some(to), Some(from)) = (self.items.get_mut(..used), other.items.get(..used)) {
            to.copy_from_slice(from);
            self.len = other.len;
            self.total = other.total;
        }
    }
}

impl Default for SgeList {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl core::fmt::Debug for SgeList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl PartialEq for SgeList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}
impl Eq for SgeList {}

impl core::ops::Deref for SgeList {
    type Target = [Sge];
    #[inline]
    fn deref(&self) -> &[Sge] {
        self.as_slice()
    }
}
