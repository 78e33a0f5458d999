//! What a receiver of our kind says of packets that it holds: the payload of an acknowledgement.
//!
//! ```text
//!   0        1        2               4                12
//!   │ kind 1 │ words  │ lost (16)     │ word 0 (64)    │ word 1 …
//!
//!   bit i of word w: the packet 1 + 64 w + i behind the expected PSN is held
//!   lost: nothing that is not held and less than this behind the expected PSN will come any more
//! ```
//!
//! An acknowledgement has no payload in the specification; who knows nothing of this one sees an
//! acknowledgement, or a NAK, and passes over the rest. It is sent to our own kind only, all the
//! same. `[srdma]`

use crate::limits::IEQ_WINDOW;

const KIND: u8 = 1;
const HEAD: usize = 4;
const WORDS: usize = (IEQ_WINDOW / 64) as usize;

/// What is held behind a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sack {
    /// What is not held before this place will not come any more.
    pub(crate) lost: u32,
    words: [u64; WORDS],
    used: usize,
}

impl Sack {
    /// The longest that [`write`](Self::write) writes.
    pub(crate) const MAX_LEN: usize = HEAD + 8 * WORDS;

    /// The packet `place` behind the expected one is held.
    pub(crate) fn hold(&mut self, place: u32) {
        let bit = place.wrapping_sub(1);
        let word = (bit / 64) as usize;
        if let Some(bits) = self.words.get_mut(word) {
            *bits |= 1 << (bit % 64);
            self.used = self.used.max(word + 1);
        }
    }

    /// Places of the packets that are held, in order.
    pub(crate) fn held(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words.into_iter().zip(0u32..).take(self.used);
        words.flat_map(|(word, at)| {
            let bits = (0..64u32).filter(move |bit| word >> bit & 1 != 0);
            bits.map(move |bit| 1 + 64 * at + bit)
        })
    }

    /// Writes it to the start of `out`, and gives its length.
    pub(crate) fn write(&self, out: &mut [u8; Self::MAX_LEN]) -> usize {
        let lost = u16::try_from(self.lost).unwrap_or(u16::MAX);
        let [a, b] = lost.to_be_bytes();
        #[allow(clippy::cast_possible_truncation, reason = "at most WORDS")]
        let head = [KIND, self.used as u8, a, b];
        let words = self.words.iter().take(self.used);
        let bytes = head
            .into_iter()
            .chain(words.flat_map(|word| word.to_be_bytes()));
        for (to, from) in out.iter_mut().zip(bytes) {
            *to = from;
        }
        HEAD + 8 * self.used
    }

    /// Reads it; `None` if the bytes are something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (&[kind, used, a, b], rest) = bytes.split_first_chunk::<HEAD>()?;
        let used = usize::from(used);
        if kind != KIND || used > WORDS || rest.len() != 8 * used {
            return None;
        }
        let mut sack = Self {
            lost: u32::from(u16::from_be_bytes([a, b])),
            words: [0; WORDS],
            used,
        };
        let (chunks, _) = rest.as_chunks::<8>();
        for (word, bytes) in sack.words.iter_mut().zip(chunks) {
            *word = u64::from_be_bytes(*bytes);
        }
        Some(sack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_not() {
        let mut sack = Sack::default();
        let places = [1, 2, 64, 65, 700, IEQ_WINDOW];
        for place in places {
            sack.hold(place);
        }
        sack.hold(0);
        sack.hold(IEQ_WINDOW + 1);
        sack.lost = 699;
        let mut bytes = [0; Sack::MAX_LEN];
        let len = sack.write(&mut bytes);
        assert_eq!(len, Sack::MAX_LEN);
        let read = Sack::read(&bytes[..len]).expect("what was written");
        assert_eq!(read, sack);
        assert_eq!(read.held().collect::<Vec<_>>(), places);
        assert_eq!(Sack::read(&bytes[..len - 8]), None);
        assert_eq!(Sack::read(&bytes[..3]), None);
        assert_eq!(Sack::read(&[]), None);
        bytes[0] = 2;
        assert_eq!(Sack::read(&bytes), None);
        let mut long = [0; Sack::MAX_LEN + 8];
        long[..2].copy_from_slice(&[KIND, u8::try_from(WORDS + 1).unwrap()]);
        assert_eq!(Sack::read(&long), None, "more than anybody holds");
        for len in 0..64 {
            // Whatever it says, it is bounded.
            let bytes: Vec<u8> = (0..len).map(|_| fastrand::u8(..)).collect();
            let held = Sack::read(&bytes).map_or(0, |sack| sack.held().count());
            assert!(held <= 8 * bytes.len());
        }
    }

    #[test]
    fn a_short_one_is_short() {
        let mut sack = Sack::default();
        sack.hold(3);
        let mut bytes = [0; Sack::MAX_LEN];
        assert_eq!(sack.write(&mut bytes), 12);
        assert_eq!(bytes[..12], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    }
}
