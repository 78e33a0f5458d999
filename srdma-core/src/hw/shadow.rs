//! Shadow areas: 64 bytes of words beside a queue, read and written outside of its ring.
//!
//! ```text
//! CQ   +0   23:0  CQEIDX: how far the driver has read                     driver writes
//!      +32  17:16 arm sequence | 15 next solicited | 14 next | 13:0 select  driver writes
//! QP   +0   14:0  SQ tail: how far the device has read                    device writes
//! SRQ  +0   head index: the next entry to be filled                       driver writes
//! ```
//!
//! Layout only; the ends that touch memory are in `ring::shadow`.        [E810 2.6, 2.7, 3.9]

/// 64-bit words of any shadow area.
pub const SHADOW_WORDS: usize = 8;
/// Word of the CQ's consumer index.
pub const CQ_INDEX: usize = 0;
/// Word of the register that arms the CQ, in dialects that have one.
pub const CQ_REGISTER: usize = 1;
/// Word of the CQ's arm state.
pub const CQ_ARM: usize = 4;
/// Word of the QP's SQ tail.
pub const QP_SQ_TAIL: usize = 0;
/// Word of the SRQ's producer index.
pub const SRQ_HEAD: usize = 0;

le_word! {
    /// Word 0 of a CQ shadow; an E810 has bits 19:0. `[srdma]`         [E810 3.9]
    pub struct CqIndexWord {
        /// The driver's head.
        head / with_head: u32 = [23:0],
    }
}

le_word! {
    /// Word 4 of a CQ shadow.                                         [E810 3.9]
    pub struct CqArmWord {
        /// Buffers retired by resizes, modulo 2^14.
        select / with_select: u16 = [13:0],
        /// Tell about the next completion.
        next / with_next: bool = [14:14],
        /// Tell about the next solicited completion.
        next_solicited / with_next_solicited: bool = [15:15],
        /// Counts arms, modulo 4.
        seq / with_seq: u8 = [17:16],
    }
}

impl CqArmWord {
    /// The word after one more arm.                                   [E810 3.9]
    #[must_use]
    pub fn armed(self, solicited_only: bool) -> Self {
        self.with_seq(self.seq().wrapping_add(1))
            .with_next_solicited(true)
            .with_next(!solicited_only)
    }

    /// The word after one more arm of a control CQ, which keeps the solicited bit. [E810 3.9]
    #[must_use]
    pub fn armed_control(self) -> Self {
        self.with_seq(self.seq().wrapping_add(1)).with_next(true)
    }

    /// The word after `buffers` more were retired.
    #[must_use]
    pub fn retired(self, buffers: u16) -> Self {
        self.with_select(self.select().wrapping_add(buffers))
    }
}

le_word! {
    /// Word 0 of a QP shadow.                                         [E810 2.7]
    pub struct SqTailWord {
        /// How far the device has read, in quanta.
        tail / with_tail: u16 = [14:0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_words_follow_intels_driver() {
        let mut word = CqArmWord::ZERO;
        for (solicited, bits) in [
            (false, 0x1c000),
            (true, 0x28000),
            (false, 0x3c000),
            (true, 0x8000),
            (false, 0x1c000),
        ] {
            word = word.armed(solicited);
            assert_eq!(word.bits(), bits);
        }
        assert_eq!(word.retired(3).bits(), 0x1c003);
        assert_eq!(word.retired(0x3fff).retired(1).select(), 0);
        assert_eq!(CqArmWord::ZERO.armed_control().bits(), 0x14000);
    }
}
