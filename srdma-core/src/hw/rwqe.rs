//! RQ and SRQ work queue entries.                                      [E810 2.6]
//!
//! ```text
//! +0, +8  fragment 0      +16  0, or the SRQ's wr_id
//! +24     63 valid | 41:38 more fragments | everything else 0
//! +32…    more fragments, an even count padded as in the SQ
//! ```
//!
//! Entries have a fixed stride of 32 << shift bytes; what stands behind the last counted fragment
//! is stale, so only the count tells where an entry ends. Built by [`super::WqeBuf::recv`].

use super::Polarity;
use super::sge::SgeList;
use super::wqe::{QUANTUM_WORDS, WqeFault, frag_slots_quanta};

le_word! {
    /// Word 3 of an RQ WQE.                                           [E810 2.6]
    pub struct RqHeader {
        /// Fragment slots beyond the first, padding counted.
        more_frags / with_more_frags: u8 = [41:38],
        /// Lap of the ring.
        valid / with_valid: Polarity = [63:63],
    }
}

impl RqHeader {
    /// Quanta in use, 1..=8.
    #[inline]
    #[must_use]
    pub fn quanta(self) -> u32 {
        frag_slots_quanta(u32::from(self.more_frags()))
    }
}

/// One receive, parsed; belongs to the caller and is filled in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RqCmd {
    /// Where to scatter, padding dropped.
    pub sges: SgeList,
    /// Word 2: the wr_id of an SRQ entry, 0 in an RQ.
    pub wr_id: u64,
}

impl RqCmd {
    /// Fills the command from the words of one entry (its whole slot, or the quanta in use).
    #[inline]
    pub fn parse(&mut self, words: &[u64]) -> Result<(), WqeFault> {
        let &[word0, word1, word2, word3, ref rest @ ..] = words else {
            return Err(WqeFault::Truncated);
        };
        let header = RqHeader::from_bits(word3);
        self.wr_id = word2;
        self.sges.clear();
        let used = (header.quanta() as usize - 1) * QUANTUM_WORDS;
        let rest = rest.get(..used).ok_or(WqeFault::Straddles)?;
        super::wqe::check_quanta(header.valid(), rest)?;
        super::wqe::read_fragments(
            &mut self.sges,
            Some([word0, word1]),
            header.more_frags(),
            rest,
        )
    }

    /// Fills the command from the words before the header of an entry of one fragment, which has no
    /// others.
    #[inline]
    pub fn parse_single(&mut self, [word0, word1, word2]: [u64; 3]) {
        self.wr_id = word2;
        let parsed = super::wqe::read_fragments(&mut self.sges, Some([word0, word1]), 0, &[]);
        debug_assert!(parsed.is_ok(), "a list has room for one");
    }
}

/// RQ entry bytes for `frags` fragments, as a shift of 32.            [E810 1.3]
#[must_use]
pub const fn rq_shift_for(frags: u32) -> Option<u8> {
    match frags {
        0..=1 => Some(0),
        2..=3 => Some(1),
        4..=7 => Some(2),
        8..=14 => Some(3),
        _ => None,
    }
}
