//! The completion queue, device's end.                                 [E810 3.1, 3.2, 3.6, 3.8]
//!
//! ```text
//! narrow (32 B slots)   [ CQE ][ CQE' ][ ext ][ CQE ]      an extended CQE takes two slots; the
//!                                                          second may be slot 0, of the next lap
//! wide (64 B slots)     [ CQE |     ][ CQE | ext ]         one slot
//! other dialects        [ CQE       ][ CQE       ]         one slot
//! ```
//!
//! The extension is written first, with its valid bit, then the body, then the header with
//! release. Room is known from the driver's head in the shadow area, read only when the own
//! estimate gets low. One slot always stays free, so that "moved by a whole ring" cannot be taken
//! for "not moved". A full CQ is a value, not a fault of the device: the caller raises the event.

use super::cursor::{Cursor, distance};
use super::shadow::CqShadow;
use super::{RingFault, Words, check_memory};
use crate::hw::cqe::{CQE_HEADER, CqeWords};
use crate::hw::dialect::{ArmRequest, Dialect, SlotForm};
use crate::hw::{CqeInfo, CqpCompletion, Polarity};
use crate::limits::MAX_CQE;
use crate::mem::HostWords;

/// The CQ has no room for this completion.                            [E810 3.6]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("completion queue is full")]
pub struct CqOverflow;

/// Words of a CQ slot.
#[inline]
pub(super) const fn slot_words(wide: bool) -> usize {
    if wide { 8 } else { 4 }
}

/// The shadow's count of retired buffers, modulo 2^14.                [E810 3.9]
const SELECT_MASK: u16 = 0x3fff;

/// Checks a CQ's geometry.
pub(super) fn check_cq(
    dialect: Dialect,
    words: &impl Words,
    size: u32,
    wide: bool,
) -> Result<(), RingFault> {
    if !(2..=MAX_CQE).contains(&size) || !dialect.cq_size_fits(size) {
        return Err(RingFault::BadSize);
    }
    check_memory(words, size, slot_words(wide))
}

/// The device's end.
#[derive(Debug)]
pub struct CqProducer<W = HostWords> {
    words: W,
    shadow: CqShadow<W>,
    cursor: Cursor,
    wide: bool,
    /// Slots that are known to be free.
    free: u32,
    /// The driver's head when the shadow was last read.
    seen: u32,
    threshold: u32,
    /// Slots written to this buffer, modulo 2^32.
    written: u32,
    /// How many resizes there were, modulo 2^14.
    resizes: u16,
}

impl<W: Words> CqProducer<W> {
    /// A fresh (zeroed) ring of `size` slots. The shadow area is read when no more than
    /// `threshold` slots are known to be free.
    pub fn new(
        words: W,
        size: u32,
        wide: bool,
        shadow: CqShadow<W>,
        threshold: u32,
    ) -> Result<Self, RingFault> {
        let wide = shadow.dialect().has_wide_slots(wide);
        check_cq(shadow.dialect(), &words, size, wide)?;
        Ok(Self {
            words,
            shadow,
            cursor: Cursor::new(size),
            wide,
            free: size - 1,
            seen: 0,
            written: 0,
            threshold,
            resizes: 0,
        })
    }

    /// Index of the next slot.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// Polarities of the next slot and of the one that holds its extension.
    pub(crate) fn laps(&self) -> [Polarity; 2] {
        let own = self.cursor.polarity();
        let ext = if self.wide {
            own
        } else {
            self.cursor.ahead(1).polarity()
        };
        [own, ext]
    }

    /// Slots of the ring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The shadow area: arm word and driver's head.
    #[must_use]
    pub const fn shadow(&self) -> &CqShadow<W> {
        &self.shadow
    }

    /// Slots that are free, after looking.
    pub fn free(&mut self) -> u32 {
        self.refresh();
        self.free
    }

    /// Slots that the driver has not read yet, after looking.
    pub fn unread(&mut self) -> u32 {
        self.size() - 1 - self.free()
    }

    /// What the driver of queue `id` asked for last.
    #[inline]
    #[must_use]
    pub fn request(&self, id: u32) -> Option<ArmRequest> {
        self.shadow.request([id, self.size()])
    }

    /// Slots written beyond what a request says that the driver had read; `None` if it does not
    /// say, or cannot be right.
    // rule: event-73
    #[must_use]
    pub fn written_since(&self, request: &ArmRequest) -> Option<u32> {
        let (read, modulus) = request.read?;
        // A driver that still reads an older buffer has read nothing of this one.
        let read = if self.shadow.select() == self.resizes {
            read
        } else {
            0
        };
        let written = self.written % modulus;
        let since = (written + modulus).wrapping_sub(read) % modulus;
        (since < self.size()).then_some(since)
    }

    /// Publishes a completion.
    #[inline]
    pub fn push(&mut self, cqe: &CqeInfo) -> Result<(), CqOverflow> {
        match self.shadow.dialect().slots() {
            None if cqe.extended() => self.push_words(&cqe.encode(), Some(&cqe.encode_ext())),
            None => self.push_words(&cqe.encode(), None),
            Some(form) => self.push_slot(form, cqe),
        }
    }

    /// Makes sure that there is room for `slots`.
    #[inline]
    fn claim(&mut self, slots: u32) -> Result<(), CqOverflow> {
        if self.free <= self.threshold || self.free < slots {
            self.refresh();
            if self.free < slots {
                return Err(CqOverflow);
            }
        }
        Ok(())
    }

    /// Publishes a slot of 64 bytes whose header says that it is there.
    #[inline]
    fn push_slot(&mut self, form: &SlotForm, cqe: &CqeInfo) -> Result<(), CqOverflow> {
        self.claim(1)?;
        let at = self.cursor.index() as usize * slot_words(true);
        let words = form.image(cqe, self.cursor.polarity());
        for (word, &value) in words.iter().enumerate() {
            if word != form.header {
                self.words.store(at + word, value);
            }
        }
        let header = words.get(form.header).copied().unwrap_or(0);
        self.words.store_release(at + form.header, header);
        self.step(1);
        Ok(())
    }

    #[inline]
    const fn step(&mut self, slots: u32) {
        self.cursor.advance(slots);
        self.written = self.written.wrapping_add(slots);
        self.free -= slots;
    }

    /// Publishes the completion of a command, in the control CQ.       [E810 6.6]
    #[inline]
    pub fn push_control(&mut self, completion: &CqpCompletion) -> Result<(), CqOverflow> {
        self.push_words(&completion.encode(), None)
    }

    /// True if a completion without an extension is the words of [`CqeInfo::encode`] here.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.shadow.dialect().slots().is_none()
    }

    /// Publishes an E810's entry given as words, valid bits clear.
    #[inline]
    pub(crate) fn push_words(
        &mut self,
        base: &CqeWords,
        ext: Option<&CqeWords>,
    ) -> Result<(), CqOverflow> {
        let slots = if ext.is_some() && !self.wide { 2 } else { 1 };
        self.claim(slots)?;
        let at = self.cursor.index() as usize * slot_words(self.wide);
        if let Some(ext) = ext {
            self.put_ext(at, ext);
        }
        let &[word0, word1, word2, header] = base;
        let header = self.cursor.polarity().stamp(header);
        // rule: e810-2
        self.words.publish(at, [word0, word1, word2, header]);
        self.step(slots);
        Ok(())
    }

    /// Takes all slots for free, whatever the driver has read: for a CQ that ignores overruns.
    pub const fn overwrite(&mut self) {
        self.free = self.size() - 1;
    }

    /// Goes on in a new (zeroed) buffer of `size` slots; the shadow area stays.  [E810 3.8]
    pub fn switch(&mut self, words: W, size: u32) -> Result<(), RingFault> {
        check_cq(self.shadow.dialect(), &words, size, self.wide)?;
        self.words = words;
        self.cursor = Cursor::new(size);
        self.free = size - 1;
        self.seen = 0;
        self.written = 0;
        self.resizes = self.resizes.wrapping_add(1) & SELECT_MASK;
        Ok(())
    }

    /// The extension: the other half of a wide slot, or the next slot with its own polarity.
    // rule: e810-4
    fn put_ext(&self, at: usize, ext: &CqeWords) {
        let (at, polarity) = if self.wide {
            (at + 4, self.cursor.polarity())
        } else {
            let next = self.cursor.ahead(1);
            (next.index() as usize * slot_words(false), next.polarity())
        };
        let &[word0, word1, word2, header] = ext;
        self.words.store(at, word0);
        self.words.store(at + 1, word1);
        self.words.store(at + 2, word2);
        self.words.store(at + CQE_HEADER, polarity.stamp(header));
    }

    /// Learns how far the driver has read. A head that cannot be (of a buffer from before a resize,
    /// or garbage) teaches nothing. Entries are never read back: before the head they are the
    /// driver's.
    // rule: e810-7
    #[cold]
    fn refresh(&mut self) {
        // The count first: once it names this buffer, the head is of this buffer too.
        if self.shadow.select() != self.resizes {
            return;
        }
        let head = self.shadow.head(self.size());
        if head >= self.size() {
            return;
        }
        let moved = distance(self.seen, head, self.size());
        if self.free + moved < self.size() {
            self.free += moved;
            self.seen = head;
        }
    }
}
