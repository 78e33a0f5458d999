//! Rings of fixed entries: CEQ, AEQ, CQP.
//!
//! ```text
//! Producer: room? ─ body words ─ header (release) ─ cursor + 1
//! Consumer: header (acquire) of this lap? ─ copy ─ … ─ cursor + 1
//! ```
//!
//! The producer counts its room itself; [`Producer::release`] gives it back when the other side
//! says so: CQ_ACK for a CEQ, AEQALLOC for an AEQ, a completion for the CQP.

use super::cursor::Cursor;
use super::{PushFault, RingFault, Words, check_memory};
use crate::hw::cqp::{CQP_HEADER, CQP_WORDS};
use crate::hw::{Aeqe, Ceqe, Polarity};
use crate::mem::HostWords;
use core::marker::PhantomData;

/// An entry of fixed size.
pub trait Entry: Copy {
    /// Its words.
    type Raw: AsRef<[u64]> + AsMut<[u64]> + Copy + Default;
    /// Number of words.
    const WORDS: usize;
    /// Which word carries the valid bit and is written last.
    const HEADER: usize;
    /// The words, valid bit clear.
    fn encode(self) -> Self::Raw;
    /// From a copy of the words, whatever the valid bit.
    fn decode(words: Self::Raw) -> Self;
}

impl Entry for Ceqe {
    type Raw = [u64; 1];
    const WORDS: usize = 1;
    const HEADER: usize = 0;
    fn encode(self) -> [u64; 1] {
        [Self::encode(self)]
    }
    fn decode([word]: [u64; 1]) -> Self {
        Self::decode(word)
    }
}

impl Entry for Aeqe {
    type Raw = [u64; 2];
    const WORDS: usize = 2;
    const HEADER: usize = 1;
    fn encode(self) -> [u64; 2] {
        Self::encode(&self)
    }
    fn decode(words: [u64; 2]) -> Self {
        Self::decode(words)
    }
}

/// A control command as words; see [`crate::hw::CqpCmd`] for the meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CqpWqe(pub [u64; CQP_WORDS]);

impl Entry for CqpWqe {
    type Raw = [u64; CQP_WORDS];
    const WORDS: usize = CQP_WORDS;
    const HEADER: usize = CQP_HEADER;
    fn encode(self) -> [u64; CQP_WORDS] {
        self.0
    }
    fn decode(words: [u64; CQP_WORDS]) -> Self {
        Self(words)
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<E, W = HostWords> {
    words: W,
    cursor: Cursor,
    free: u32,
    _entry: PhantomData<E>,
}

impl<E: Entry, W: Words> Producer<E, W> {
    /// A fresh (zeroed) ring of `size` entries, `room` of which may be unread at a time.
    pub fn new(words: W, size: u32, room: u32) -> Result<Self, RingFault> {
        if size == 0 || room > size {
            return Err(RingFault::BadSize);
        }
        check_memory(&words, size, E::WORDS)?;
        Ok(Self {
            words,
            cursor: Cursor::new(size),
            free: room,
            _entry: PhantomData,
        })
    }

    /// Index of the next entry.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// The lap of the next entry.
    pub(crate) const fn polarity(&self) -> Polarity {
        self.cursor.polarity()
    }

    /// Entries that may still be written.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.free
    }

    /// Publishes an entry and says where.
    pub fn try_push(&mut self, entry: E) -> Result<u32, PushFault> {
        self.free = self.free.checked_sub(1).ok_or(PushFault::Full)?;
        let index = self.cursor.index();
        let at = index as usize * E::WORDS;
        let raw = entry.encode();
        let mut header = 0;
        for (word, &value) in raw.as_ref().iter().enumerate() {
            if word == E::HEADER {
                header = self.cursor.polarity().stamp(value);
            } else {
                self.words.store(at + word, value);
            }
        }
        self.words.store_release(at + E::HEADER, header);
        self.cursor.advance(1);
        Ok(index)
    }

    /// The other side has read `entries` more. What it claims beyond what there is, is cut off.
    pub const fn release(&mut self, entries: u32) {
        let free = self.free.saturating_add(entries);
        self.free = if free > self.cursor.size() {
            self.cursor.size()
        } else {
            free
        };
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<E, W = HostWords> {
    words: W,
    cursor: Cursor,
    _entry: PhantomData<E>,
}

impl<E: Entry, W: Words> Consumer<E, W> {
    /// A fresh (zeroed) ring of `size` entries.
    pub fn new(words: W, size: u32) -> Result<Self, RingFault> {
        if size == 0 {
            return Err(RingFault::BadSize);
        }
        check_memory(&words, size, E::WORDS)?;
        Ok(Self {
            words,
            cursor: Cursor::new(size),
            _entry: PhantomData,
        })
    }

    /// Index of the next entry.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// A copy of the next entry, if it is of this lap.
    #[must_use]
    pub fn peek(&self) -> Option<E> {
        self.copy_at(self.cursor).map(E::decode)
    }

    /// The lap of the next entry.
    pub(crate) const fn polarity(&self) -> Polarity {
        self.cursor.polarity()
    }

    /// Moves past the next entry.
    pub const fn advance(&mut self) {
        self.cursor.advance(1);
    }

    /// The next entry; moves past it.
    pub fn pop(&mut self) -> Option<E> {
        let entry = self.peek()?;
        self.advance();
        Some(entry)
    }

    /// Rewrites entries that wait to be read, keeping them valid: how an entry that names a dying
    /// object is made to name none.                                 [E810 4.3]
    pub fn rewrite_pending(&mut self, mut change: impl FnMut(E) -> Option<E>) {
        let mut cursor = self.cursor;
        for _ in 0..cursor.size() {
            let Some(raw) = self.copy_at(cursor) else {
                break;
            };
            if let Some(entry) = change(E::decode(raw)) {
                let at = cursor.index() as usize * E::WORDS;
                for (word, &value) in entry.encode().as_ref().iter().enumerate() {
                    let value = if word == E::HEADER {
                        cursor.polarity().stamp(value)
                    } else {
                        value
                    };
                    self.words.store(at + word, value);
                }
            }
            cursor.advance(1);
        }
    }

    fn copy_at(&self, cursor: Cursor) -> Option<E::Raw> {
        let at = cursor.index() as usize * E::WORDS;
        let header = self.words.load_acquire(at + E::HEADER);
        if !cursor.polarity().matches(header) {
            return None;
        }
        let mut raw = E::Raw::default();
        for (word, value) in raw.as_mut().iter_mut().enumerate() {
            *value = if word == E::HEADER {
                header & !Polarity::MASK
            } else {
                self.words.load(at + word)
            };
        }
        Some(raw)
    }
}
