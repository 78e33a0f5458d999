//! The E810's own spelling: the words are those of `hw::cqe`, `ceqe`, `aeqe` and `shadow`.

use super::{ArmRequest, EntryWords, Shape};
use crate::hw::shadow::CqArmWord;

/// A completion event queue's entries.                                 [E810 4.1]
pub const CEQE: Shape = Shape::e810(1, 0);
/// An asynchronous event queue's entries.                              [E810 5.1]
pub const AEQE: Shape = Shape::e810(2, 1);

/// An entry of one word.
#[must_use]
pub const fn first_word(word: u64) -> EntryWords {
    [word, 0, 0, 0, 0, 0, 0, 0]
}

/// An entry of two words.
#[must_use]
pub const fn first_words([first, second]: [u64; 2]) -> EntryWords {
    [first, second, 0, 0, 0, 0, 0, 0]
}

/// The request in an arm word.                                         [E810 3.11]
#[inline]
#[must_use]
pub fn arm_request(bits: u64) -> ArmRequest {
    let word = CqArmWord::from_bits(bits);
    ArmRequest {
        seq: bits >> 16,
        next: word.next(),
        solicited: word.next_solicited(),
        read: None,
    }
}
