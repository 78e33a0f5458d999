//! Rings of fixed entries: CEQ, AEQ, CQP.
//!
//! ```text
//! Producer: room? ─ body words ─ header (release) ─ cursor + 1
//! Consumer: header (acquire) of this lap? ─ copy ─ … ─ cursor + 1
//! ```
//!
//! The producer counts its room itself; [`Producer::release`] gives it back when the other side
//! says so: CQ_ACK for a CEQ, AEQALLOC for an AEQ, a completion for the CQP. In dialects with
//! doorbells for event queues the last one stands behind the ring: [`Consumer::ring_doorbell`],
//! [`Producer::doorbell`].

use super::cursor::Cursor;
use super::{PushFault, RingFault, Words, check_memory};
use crate::hw::cqp::{CQP_HEADER, CQP_WORDS};
use crate::hw::dialect::{
    Dialect, EQ_ARM, EQ_DOORBELL_WORDS, EQ_UPDATE, EntryWords, EqName, Shape, e810, hns, mlx5,
};
use crate::hw::{Aeqe, Ceqe, Polarity};
use crate::mem::HostWords;
use core::marker::PhantomData;

/// An entry of fixed size.
pub trait Entry: Copy {
    /// Its form in a dialect.
    fn shape(dialect: Dialect) -> Shape;
    /// The words, valid bit clear.
    fn encode(self, dialect: Dialect) -> EntryWords;
    /// From a copy of the words, whatever the valid bit.
    fn decode(words: &EntryWords, dialect: Dialect) -> Self;
    /// Bytes of a ring of `entries` entries, with the doorbells that stand behind it.
    #[must_use]
    fn ring_bytes(dialect: Dialect, entries: u32) -> usize {
        dialect.eq_bytes(Self::shape(dialect), entries as usize)
    }
}

impl Entry for Ceqe {
    fn shape(dialect: Dialect) -> Shape {
        match dialect {
            Dialect::E810 => e810::CEQE,
            Dialect::Mlx5 => mlx5::eqe::EQE,
            Dialect::Hns => hns::eqe::EQE,
        }
    }
    fn encode(self, dialect: Dialect) -> EntryWords {
        match dialect {
            Dialect::E810 => e810::first_word(Self::encode(self)),
            Dialect::Mlx5 => mlx5::eqe::Eqe::completion(self.number()).encode(),
            Dialect::Hns => hns::eqe::encode_ce(self.number()),
        }
    }
    fn decode(words: &EntryWords, dialect: Dialect) -> Self {
        match dialect {
            Dialect::E810 => Self::decode(words[0]),
            Dialect::Mlx5 => mlx5::eqe::Eqe::decode(words).to_ceqe(),
            Dialect::Hns => Self {
                cookie: hns::eqe::decode_ce(words).into(),
            },
        }
    }
}

impl Entry for Aeqe {
    fn shape(dialect: Dialect) -> Shape {
        match dialect {
            Dialect::E810 => e810::AEQE,
            Dialect::Mlx5 => mlx5::eqe::EQE,
            Dialect::Hns => hns::eqe::EQE,
        }
    }
    fn encode(self, dialect: Dialect) -> EntryWords {
        match dialect {
            Dialect::E810 => e810::first_words(Self::encode(&self)),
            Dialect::Mlx5 => mlx5::eqe::Eqe::from_aeqe(&self).encode(),
            Dialect::Hns => hns::eqe::encode_ae(&self),
        }
    }
    fn decode(words: &EntryWords, dialect: Dialect) -> Self {
        match dialect {
            Dialect::E810 => Self::decode([words[0], words[1]]),
            Dialect::Mlx5 => mlx5::eqe::Eqe::decode(words).to_aeqe(),
            Dialect::Hns => hns::eqe::decode_ae(words),
        }
    }
}

/// Events of commands (mlx5): which of them completed, a bit each by their place modulo 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandsDone(pub u32);

impl Entry for CommandsDone {
    fn shape(_dialect: Dialect) -> Shape {
        mlx5::eqe::EQE
    }
    fn encode(self, _dialect: Dialect) -> EntryWords {
        mlx5::eqe::Eqe::commands(self.0).encode()
    }
    fn decode(words: &EntryWords, _dialect: Dialect) -> Self {
        Self(mlx5::eqe::Eqe::decode(words).data.commands())
    }
}

/// A control command as words; see [`crate::hw::CqpCmd`] for the meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CqpWqe(pub [u64; CQP_WORDS]);

impl Entry for CqpWqe {
    fn shape(_dialect: Dialect) -> Shape {
        Shape::e810(CQP_WORDS, CQP_HEADER)
    }
    fn encode(self, _dialect: Dialect) -> EntryWords {
        self.0
    }
    fn decode(words: &EntryWords, _dialect: Dialect) -> Self {
        Self(*words)
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<E, W = HostWords> {
    words: W,
    cursor: Cursor,
    free: u32,
    dialect: Dialect,
    _entry: PhantomData<E>,
}

impl<E: Entry, W: Words> Producer<E, W> {
    /// A fresh (zeroed) ring of `size` entries, `room` of which may be unread at a time.
    pub fn new(words: W, size: u32, room: u32) -> Result<Self, RingFault> {
        Self::speaking(Dialect::E810, words, size, room)
    }

    /// As [`new`](Self::new), in a dialect.
    pub fn speaking(dialect: Dialect, words: W, size: u32, room: u32) -> Result<Self, RingFault> {
        if room > size {
            return Err(RingFault::BadSize);
        }
        check_ring::<E>(dialect, &words, size)?;
        Ok(Self {
            words,
            cursor: Cursor::new(size),
            free: room,
            dialect,
            _entry: PhantomData,
        })
    }

    /// Index of the next entry.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// Entries that may still be written.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.free
    }

    /// The next entry as it would stand in memory, and how many of the words count.
    #[must_use]
    pub fn image(&self, entry: E) -> (EntryWords, usize) {
        let shape = E::shape(self.dialect);
        let mut words = entry.encode(self.dialect);
        if let Some(header) = words.get_mut(shape.header) {
            *header = shape.valid.stamp(*header, self.cursor.polarity());
        }
        (words, shape.words)
    }

    /// Publishes an entry and says where.
    pub fn try_push(&mut self, entry: E) -> Result<u32, PushFault> {
        self.free = self.free.checked_sub(1).ok_or(PushFault::Full)?;
        let index = self.cursor.index();
        let header_at = E::shape(self.dialect).header;
        let (words, count) = self.image(entry);
        let at = index as usize * count;
        let mut header = 0;
        for (word, &value) in words.iter().take(count).enumerate() {
            if word == header_at {
                header = value;
            } else {
                self.words.store(at + word, value);
            }
        }
        self.words.store_release(at + header_at, header);
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

    /// Entries that the doorbells of queue `eq` acknowledge beyond the first `taken`: never more
    /// than are unread, whatever stands there.
    #[must_use]
    pub fn doorbell(&self, eq: EqName, taken: u64) -> u32 {
        let size = self.cursor.size();
        let behind = size as usize * E::shape(self.dialect).words;
        let unread = size.saturating_sub(self.free);
        let progress = |register| {
            let word = self.words.load_acquire(behind + register);
            let more = self.dialect.eq_progress(eq, size, register, (taken, word));
            more.filter(|more| *more <= unread)
        };
        let progress = [EQ_ARM, EQ_UPDATE].into_iter().filter_map(progress);
        progress.max().unwrap_or(0)
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<E, W = HostWords> {
    words: W,
    cursor: Cursor,
    dialect: Dialect,
    /// Entries read so far, and when the last doorbell was rung.
    count: u64,
    rung: u64,
    _entry: PhantomData<E>,
}

impl<E: Entry, W: Words> Consumer<E, W> {
    /// A fresh (zeroed) ring of `size` entries.
    pub fn new(words: W, size: u32) -> Result<Self, RingFault> {
        Self::speaking(Dialect::E810, words, size)
    }

    /// As [`new`](Self::new), in a dialect. To be made before anything is written to the ring.
    pub fn speaking(dialect: Dialect, words: W, size: u32) -> Result<Self, RingFault> {
        check_ring::<E>(dialect, &words, size)?;
        let shape = E::shape(dialect);
        if shape.fresh != 0 {
            for entry in 0..size as usize {
                words.store(entry * shape.words + shape.header, shape.fresh);
            }
        }
        Ok(Self {
            words,
            cursor: Cursor::new(size),
            dialect,
            count: 0,
            rung: 0,
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
        let words = self.copy_at(self.cursor)?;
        Some(E::decode(&words, self.dialect))
    }

    /// The lap of the next entry.
    pub(crate) const fn polarity(&self) -> Polarity {
        self.cursor.polarity()
    }

    /// Moves past the next entry.
    pub const fn advance(&mut self) {
        self.cursor.advance(1);
        self.count += 1;
    }

    /// The next entry; moves past it.
    pub fn pop(&mut self) -> Option<E> {
        let entry = self.peek()?;
        self.advance();
        Some(entry)
    }

    /// Entries read since the last doorbell.
    #[must_use]
    pub const fn unannounced(&self) -> u64 {
        self.count - self.rung
    }

    /// Says how far the queue was read, and asks for the next event if `arm`; nothing in a dialect
    /// without such doorbells. The board says afterwards where to look.  [events 4.2, 4.8]
    // rule: event-71
    pub fn ring_doorbell(&mut self, eq: EqName, arm: bool) {
        let size = self.cursor.size();
        let Some((register, word)) = self.dialect.eq_doorbell(eq, size, self.count, arm) else {
            return;
        };
        let behind = size as usize * E::shape(self.dialect).words;
        self.words.store_release(behind + register, word);
        self.rung = self.count;
    }

    /// Rewrites entries that wait to be read, keeping them valid: how an entry that names a dying
    /// object is made to name none.                                 [E810 4.3]
    pub fn rewrite_pending(&mut self, mut change: impl FnMut(E) -> Option<E>) {
        let shape = E::shape(self.dialect);
        let mut cursor = self.cursor;
        for _ in 0..cursor.size() {
            let Some(words) = self.copy_at(cursor) else {
                break;
            };
            if let Some(entry) = change(E::decode(&words, self.dialect)) {
                let at = cursor.index() as usize * shape.words;
                let words = entry.encode(self.dialect);
                for (word, &value) in words.iter().take(shape.words).enumerate() {
                    let value = if word == shape.header {
                        shape.valid.stamp(value, cursor.polarity())
                    } else {
                        value
                    };
                    self.words.store(at + word, value);
                }
            }
            cursor.advance(1);
        }
    }

    fn copy_at(&self, cursor: Cursor) -> Option<EntryWords> {
        let shape = E::shape(self.dialect);
        let at = cursor.index() as usize * shape.words;
        let header = self.words.load_acquire(at + shape.header);
        if !shape.valid.matches(header, cursor.polarity()) {
            return None;
        }
        let mut raw = EntryWords::default();
        for (word, value) in raw.iter_mut().take(shape.words).enumerate() {
            *value = if word == shape.header {
                header & !(1 << shape.valid.bit)
            } else {
                self.words.load(at + word)
            };
        }
        Some(raw)
    }
}

const _: () = assert!(EQ_DOORBELL_WORDS > EQ_UPDATE, "each register has a place");

fn check_ring<E: Entry>(dialect: Dialect, words: &impl Words, size: u32) -> Result<(), RingFault> {
    if size == 0 || dialect.has_eq_doorbell() && !size.is_power_of_two() {
        return Err(RingFault::BadSize);
    }
    let shape = E::shape(dialect);
    check_memory(words, size, shape.words)?;
    let needed = dialect.eq_bytes(shape, size as usize) / 8;
    if words.len() < needed {
        return Err(RingFault::ShortMemory);
    }
    Ok(())
}
