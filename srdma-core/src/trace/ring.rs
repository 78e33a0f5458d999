//! The ring of records: many write, one reads, nobody waits.
//!
//! ```text
//! claim     tail + n, if head leaves room           one compare-and-swap; full: counted as lost
//! write     body words, then the first word         the first word is never 0: it commits
//! read      first word at head, body; zero them; head + n
//! ```
//!
//! A place is free once the reader has zeroed it and moved `head` behind it. A writer that was
//! interrupted between claim and commit holds the reader up, and nobody else.

use crate::sync::{AtomicU64, Ordering};

/// Longest record, in words.
const MAX_WORDS: usize = 4096;

/// Records of words, each first word not 0 and naming its length as `Record` does.
#[derive(Debug)]
pub struct Ring {
    words: Box<[AtomicU64]>,
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
}

impl Ring {
    /// A ring of `words` words, rounded up to a power of two.
    #[must_use]
    pub fn new(words: usize) -> Self {
        let words = words.next_power_of_two().max(8);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Appends `head`, `words` and `bytes` as one record; false if there is no room.
    pub fn push(&self, head: &[u64; 2], words: &[u64], bytes: &[u8]) -> bool {
        let need = 2 + words.len() + bytes.len().div_ceil(8);
        let start = if need > MAX_WORDS {
            None
        } else {
            self.claim(need as u64)
        };
        let Some(start) = start else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let [first, second] = *head;
        let packed = bytes.chunks(8).map(pack);
        let body = [second]
            .into_iter()
            .chain(words.iter().copied())
            .chain(packed);
        for (at, word) in (start + 1..).zip(body) {
            self.store(at, word, Ordering::Relaxed);
        }
        self.store(start, first, Ordering::Release);
        true
    }

    /// The oldest record, if it is complete. One reader at a time.
    pub fn pop(&self, out: &mut Vec<u64>) -> bool {
        out.clear();
        let head = self.head.load(Ordering::Relaxed);
        let first = self.load(head, Ordering::Acquire);
        if first == 0 {
            return false;
        }
        let need = super::Record::words_of(first) as u64;
        for at in head..head + need {
            out.push(self.load(at, Ordering::Relaxed));
            self.store(at, 0, Ordering::Relaxed);
        }
        self.head.store(head + need, Ordering::Release);
        true
    }

    /// How many found no room since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    fn claim(&self, need: u64) -> Option<u64> {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head > tail {
                // What we knew of the tail is older than the head.
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            }
            if tail + need - head > self.words.len() as u64 {
                return None;
            }
            let claimed =
                self.tail
                    .compare_exchange(tail, tail + need, Ordering::Relaxed, Ordering::Relaxed);
            match claimed {
                Ok(start) => return Some(start),
                Err(now) => tail = now,
            }
        }
    }

    fn place(&self, at: u64) -> Option<&AtomicU64> {
        let mask = self.words.len() as u64 - 1;
        self.words.get(usize::try_from(at & mask).unwrap_or(0))
    }

    fn load(&self, at: u64, order: Ordering) -> u64 {
        self.place(at).map_or(0, |word| word.load(order))
    }

    fn store(&self, at: u64, value: u64, order: Ordering) {
        if let Some(word) = self.place(at) {
            word.store(value, order);
        }
    }
}

fn pack(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}
