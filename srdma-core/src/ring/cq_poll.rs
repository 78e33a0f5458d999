//! The completion queue, driver's end.                                 [E810 3.5–3.9]
//!
//! ```text
//! buffers   [ old ] [ old ] [ current ]      oldest first; an older one is dropped when a newer
//!              └ front: where the next entry is read     one has something   [E810 3.8]
//! ```
//!
//! An entry is copied out and decoded; moving past it is a separate step, because a flush entry
//! stands for many completions and is rewritten in place meanwhile ("parking"). What completions
//! an entry stands for, wr_ids, and the rules of arming are the driver's.

use super::cq::{check_cq, slot_words};
use super::cursor::Cursor;
use super::shadow::CqShadow;
use super::{RingFault, Words};
use crate::hw::cqe::{CQE_HEADER, CqeHeader, CqeWords};
use crate::hw::dialect::{Arming, Dialect, SlotForm, SlotWords};
use crate::hw::{CqeInfo, CqpCompletion, FlushCode};
use crate::mem::HostWords;
use std::collections::VecDeque;

/// One buffer of CQEs and how far it was read.
#[derive(Debug)]
struct Buffer<W> {
    words: W,
    cursor: Cursor,
    wide: bool,
    /// The form of 64-byte entries; `None`: they are an E810's.
    form: Option<&'static SlotForm>,
    /// Slots read, modulo 2^32.
    count: u32,
}

/// A copy of an entry.
type Copied = (CqeWords, Option<CqeWords>);

/// What a look at the next entry finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "who looks decides about all three")]
pub enum Next {
    /// Nothing yet.
    Nothing,
    /// An entry of the most frequent form, which is all in these words:
    /// [`CqeInfo::decode`] without an extension.
    Plain(CqeWords),
    /// Something that takes [`CqConsumer::peek`] to tell.
    Other,
}

impl<W: Words> Buffer<W> {
    fn new(dialect: Dialect, words: W, size: u32, wide: bool) -> Result<Self, RingFault> {
        check_cq(dialect, &words, size, wide)?;
        Ok(Self {
            words,
            cursor: Cursor::new(size),
            wide,
            form: dialect.slots(),
            count: 0,
        })
    }

    #[inline]
    fn at(&self, cursor: Cursor) -> usize {
        cursor.index() as usize * slot_words(self.wide)
    }

    /// Word and polarity of the extension that belongs to the entry at `cursor`.
    #[inline]
    fn ext(&self, cursor: Cursor) -> (usize, Cursor) {
        if self.wide {
            (self.at(cursor) + 4, cursor)
        } else {
            let next = cursor.ahead(1);
            (self.at(next), next)
        }
    }

    /// True if there is an entry at `cursor`.
    fn is_ready(&self, cursor: Cursor) -> bool {
        match self.form {
            None => self.copy(cursor).is_some(),
            Some(form) => self.copy_slot(form, cursor).is_some(),
        }
    }

    /// The completion at `cursor`, if there is one.
    #[inline]
    fn decode(&self, cursor: Cursor) -> Option<CqeInfo> {
        let Some(form) = self.form else {
            let (base, ext) = self.copy(cursor)?;
            return Some(CqeInfo::decode(&base, ext.as_ref()));
        };
        Some((form.decode)(&self.copy_slot(form, cursor)?))
    }

    /// A copy of the 64-byte entry at `cursor`, if it is of this lap.
    #[inline]
    fn copy_slot(&self, form: &SlotForm, cursor: Cursor) -> Option<SlotWords> {
        let at = self.at(cursor);
        let header = self.words.load_acquire(at + form.header);
        let word = |word| {
            if word == form.header {
                header
            } else {
                self.words.load(at + word)
            }
        };
        (form.is_ready)(header, cursor.polarity()).then(|| core::array::from_fn(word))
    }

    /// Stores a 64-byte entry over the one at `cursor`.
    fn put_slot(&self, cursor: Cursor, words: &SlotWords) {
        let at = self.at(cursor);
        for (word, &value) in words.iter().enumerate() {
            self.words.store(at + word, value);
        }
    }

    /// Takes the entry at `cursor` away from its queue pair.
    fn void(&self, cursor: Cursor, info: &CqeInfo) {
        if let Some(form) = self.form {
            if let Some(mut words) = self.copy_slot(form, cursor) {
                (form.void)(&mut words);
                self.put_slot(cursor, &words);
            }
            return;
        }
        let at = match info.srq_wr_id {
            Some(_) => self.ext(cursor).0,
            None => self.at(cursor),
        };
        self.words.store(at + 1, 0);
    }

    /// A copy of the E810's entry at `cursor`, if it and its extension are of this lap.
    #[inline]
    fn copy(&self, cursor: Cursor) -> Option<Copied> {
        let at = self.at(cursor);
        // rule: e810-3
        let header = self.words.load_acquire(at + CQE_HEADER);
        if !cursor.polarity().matches(header) {
            return None;
        }
        let ext = if CqeHeader::from_bits(header).extended() {
            let (at, lap) = self.ext(cursor);
            let header = self.words.load_acquire(at + CQE_HEADER);
            if !lap.polarity().matches(header) {
                return None;
            }
            Some(self.body(at, header))
        } else {
            None
        };
        Some((self.body(at, header), ext))
    }

    #[inline]
    fn body(&self, at: usize, header: u64) -> CqeWords {
        let [word0, word1, word2] = self.words.load_run(at);
        [word0, word1, word2, header]
    }

    #[inline]
    fn slots(&self, extended: bool) -> u32 {
        if extended && !self.wide { 2 } else { 1 }
    }

    /// Takes the QP out of entries that wait to be read; gives how many of them were receives of an
    /// SRQ.                                                          [E810 3.7]
    fn clean(&self, context: u64) -> u32 {
        let mut cursor = self.cursor;
        let mut left = cursor.size();
        let mut shared = 0;
        while left > 0 {
            let Some(info) = self.decode(cursor) else {
                return shared;
            };
            if info.context == context {
                shared += u32::from(info.srq_wr_id.is_some());
                self.void(cursor, &info);
            }
            let slots = self.slots(info.extended());
            cursor.advance(slots);
            left = left.saturating_sub(slots);
        }
        shared
    }

    /// Entries that wait to be read.
    fn pending(&self) -> u32 {
        let mut cursor = self.cursor;
        let mut left = cursor.size();
        let mut count = 0;
        while left > 0
            && let Some(info) = self.decode(cursor)
        {
            let slots = self.slots(info.extended());
            cursor.advance(slots);
            left = left.saturating_sub(slots);
            count += 1;
        }
        count
    }
}

/// The driver's end.
#[derive(Debug)]
pub struct CqConsumer<W = HostWords> {
    current: Buffer<W>,
    old: VecDeque<Buffer<W>>,
    shadow: CqShadow<W>,
}

impl<W: Words> CqConsumer<W> {
    /// A fresh (zeroed) ring of `size` slots.
    pub fn new(words: W, size: u32, wide: bool, shadow: CqShadow<W>) -> Result<Self, RingFault> {
        let dialect = shadow.dialect();
        let wide = dialect.has_wide_slots(wide);
        Ok(Self {
            current: Buffer::new(dialect, words, size, wide)?,
            old: VecDeque::new(),
            shadow,
        })
    }

    /// Index of the next slot in the buffer that is read now.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.front().cursor.index()
    }

    /// The shadow area: arms go through it.
    #[must_use]
    pub const fn shadow(&self) -> &CqShadow<W> {
        &self.shadow
    }

    /// The next completion; does not move.
    #[inline]
    pub fn peek(&mut self) -> Option<CqeInfo> {
        if !self.old.is_empty() {
            self.retire();
        }
        let front = self.front();
        front.decode(front.cursor)
    }

    /// The next completion, as words where they are simply there; does not move. Cost: a load if
    /// there is none, three more if there is one.
    #[inline]
    pub fn peek_words(&self) -> Next {
        let front = &self.current;
        if front.form.is_some() || !self.old.is_empty() {
            return Next::Other;
        }
        let at = front.at(front.cursor);
        let header = front.words.load_acquire(at + CQE_HEADER);
        if !front.cursor.polarity().matches(header) {
            return Next::Nothing;
        }
        if CqeHeader::from_bits(header).extended() {
            return Next::Other;
        }
        Next::Plain(front.body(at, header))
    }

    /// The next completion of a command, in the control CQ; does not move. That queue uses an
    /// E810's words in every dialect, so this says nothing of others.  [E810 6.6]
    #[inline]
    pub fn peek_control(&mut self) -> Option<CqpCompletion> {
        if !self.old.is_empty() {
            self.retire();
        }
        let front = self.front();
        let (words, _) = front.copy(front.cursor)?;
        Some(CqpCompletion::decode(&words))
    }

    /// True if an entry waits to be read, whatever it stands for.
    pub fn is_ready(&mut self) -> bool {
        if !self.old.is_empty() {
            self.retire();
        }
        let front = self.front();
        front.is_ready(front.cursor)
    }

    /// Asks for an event of queue `id`. The doorbell comes after.     [events 1.5]
    pub fn ask(&self, id: u32, arming: &Arming, solicited_only: bool) {
        let front = self.front();
        let cq = [id, front.cursor.size()];
        self.shadow
            .ask(cq, arming.sn(), front.count, solicited_only);
    }

    /// Moves past the entry that was peeked, and tells the device.
    #[inline]
    pub fn advance(&mut self, extended: bool) {
        let front = self.old.front_mut().unwrap_or(&mut self.current);
        let slots = front.slots(extended);
        front.cursor.advance(slots);
        front.count = front.count.wrapping_add(slots);
        let (index, count) = (front.cursor.index(), front.count);
        self.shadow.store_head(index, count);
    }

    /// Parking: the rest of a flush starts at WQE `index`, and failed with `code`.  [E810 3.5]
    pub fn park(&mut self, index: u16, code: FlushCode) {
        let front = self.front();
        if let Some(form) = front.form {
            if let Some(words) = front.copy_slot(form, front.cursor) {
                let rewritten = (form.rewritten)(&words, index, code);
                front.put_slot(front.cursor, &rewritten);
            }
            return;
        }
        let at = front.at(front.cursor) + CQE_HEADER;
        let header = CqeHeader::from_bits(front.words.load(at));
        let header = header.with_minor(code.0).with_wqe_index(index);
        front.words.store(at, header.bits());
    }

    /// Makes completions of a dying QP name none: their context becomes 0. Those of an SRQ keep
    /// their wr_id, and are counted: their entries are free, though nobody will report them.
    /// [E810 3.7]
    pub fn clean(&mut self, context: u64) -> u32 {
        let buffers = self.old.iter().chain([&self.current]);
        buffers.map(|buffer| buffer.clean(context)).sum()
    }

    /// Entries that wait to be read. Cost: a look at each of them.
    pub fn pending(&self) -> u32 {
        let buffers = self.old.iter().chain([&self.current]);
        buffers.map(Buffer::pending).sum()
    }

    /// Goes on in a new (zeroed) buffer of `size` slots, once the old ones are read. To be called
    /// when the device has completed MODIFY_CQ, so that nothing more comes into the old. [E810 3.8]
    pub fn resize(&mut self, words: W, size: u32) -> Result<(), RingFault> {
        let dialect = self.shadow.dialect();
        let next = Buffer::new(dialect, words, size, self.current.wide)?;
        let old = core::mem::replace(&mut self.current, next);
        self.old.push_back(old);
        Ok(())
    }

    /// Buffers that a resize replaced and that are still held.
    #[must_use]
    pub fn old_buffers(&self) -> usize {
        self.old.len()
    }

    #[inline]
    fn front(&self) -> &Buffer<W> {
        self.old.front().unwrap_or(&self.current)
    }

    /// Drops buffers that are read to their end: a newer one has something.
    #[cold]
    fn retire(&mut self) {
        let newer = |buffer: &Buffer<W>| buffer.is_ready(buffer.cursor);
        let found = self.old.iter().position(newer);
        let keep_from = match found {
            Some(at) => at,
            None if newer(&self.current) => self.old.len(),
            None => return,
        };
        if keep_from == 0 {
            return;
        }
        self.old.drain(..keep_from);
        // The head first: once the count names this buffer, the device takes the head for its own.
        let front = self.front();
        let (index, count) = (front.cursor.index(), front.count);
        self.shadow.store_head(index, count);
        self.shadow
            .retire(u16::try_from(keep_from).unwrap_or(u16::MAX));
    }
}
