//! The send queue: WQEs of 1 to 8 quanta.                              [E810 1.1, 1.4, 1.5]
//!
//! ```text
//! chunk of 8 quanta   [ WQE 3 ][ WQE 4      ][ NOP ] [ WQE 8                     ] …
//!                                            └ padding: a WQE does not straddle chunks
//! ring   tail ░░░ in use ░░░ head ─── 257 kept free ─── tail
//!                              └ index % 128 == 0: the 128 quanta from index + 128 on are
//!                                overwritten with "not valid on the coming lap" (clear-ahead)
//! ```
//!
//! The driver keeps wr_ids and quanta per index itself and says where the tail is. WQEs can be
//! *staged*: they become visible together, when the header of the first is published. The device
//! never reads past a header of another lap, and parses copies.

use super::cursor::{Cursor, distance};
use super::{PushFault, RingFault, Words, check_memory};
use crate::hw::wqe::{HEADER, MAX_WORDS, QUANTUM_WORDS, SqHeader, SqOp, WqeBuf};
use crate::hw::{Polarity, SqCmd, WqeFault};
use crate::limits::{MAX_WQ_QUANTA, SQ_CHUNK, SQ_RESERVE};
use crate::mem::HostWords;

/// Quanta that are cleared at once, ahead of the head.                [E810 1.5]
const CLEAR: u32 = 128;

/// Where a WQE went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqSlot {
    /// Index of its first quantum: what completions name.
    pub index: u32,
    /// NOPs of one quantum that were put directly before it.
    pub padding: u32,
}

/// WQEs that are written but not visible yet.
#[derive(Debug, Clone, Copy)]
struct Staged {
    start: Cursor,
    header: u64,
}

/// The driver's end.
#[derive(Debug)]
pub struct SqProducer<W = HostWords> {
    words: W,
    cursor: Cursor,
    tail: u32,
    staged: Option<Staged>,
}

impl<W: Words> SqProducer<W> {
    /// A fresh (zeroed) ring of `quanta` quanta: a power of two, at least 512.
    pub fn new(words: W, quanta: u32) -> Result<Self, RingFault> {
        if !quanta.is_power_of_two() || quanta <= SQ_RESERVE || quanta > MAX_WQ_QUANTA {
            return Err(RingFault::BadSize);
        }
        check_memory(&words, quanta, QUANTUM_WORDS)?;
        Ok(Self {
            words,
            cursor: Cursor::new(quanta),
            tail: 0,
            staged: None,
        })
    }

    /// Index of the next quantum.
    #[must_use]
    pub const fn head(&self) -> u32 {
        self.cursor.index()
    }

    /// First quantum that is not completed.
    #[must_use]
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// Quanta of the ring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// Quanta in use.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.cursor.since(self.tail)
    }

    /// Quanta that may still be used.                                [E810 1.1]
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.size().saturating_sub(self.used() + SQ_RESERVE)
    }

    /// Everything before quantum `tail` is completed: the index and quanta of the WQE that a
    /// completion named. A tail that is not in use changes nothing.
    pub const fn release_to(&mut self, tail: u32) {
        let tail = tail & (self.size() - 1);
        if distance(self.tail, tail, self.size()) <= self.used() {
            self.tail = tail;
        }
    }

    /// Writes a WQE and makes it (and what was staged before) visible.
    #[inline]
    pub fn push(&mut self, wqe: &WqeBuf) -> Result<SqSlot, PushFault> {
        let slot = self.stage(wqe)?;
        self.commit();
        Ok(slot)
    }

    /// Writes a WQE, invisible to the device until [`Self::commit`].
    #[inline]
    pub fn stage(&mut self, wqe: &WqeBuf) -> Result<SqSlot, PushFault> {
        let quanta = wqe.quanta();
        let left = SQ_CHUNK - self.cursor.index() % SQ_CHUNK;
        let padding = if quanta <= left { 0 } else { left };
        if quanta + padding > self.free() {
            return Err(PushFault::Full);
        }
        for _ in 0..padding {
            self.put_nop();
        }
        let index = self.cursor.index();
        if index.is_multiple_of(CLEAR) {
            self.clear_ahead();
        }
        self.put(wqe);
        Ok(SqSlot { index, padding })
    }

    /// Makes staged WQEs visible. The doorbell is the caller's business.
    #[inline]
    pub fn commit(&mut self) {
        if let Some(staged) = self.staged.take() {
            let at = word_of(staged.start.index()) + HEADER;
            self.words.store_release(at, staged.header);
        }
    }

    /// Takes staged WQEs back. Their valid bits are undone, so that nothing later shows them.
    pub fn rollback(&mut self) {
        let Some(staged) = self.staged.take() else {
            return;
        };
        let mut cursor = staged.start;
        while cursor.index() != self.cursor.index() {
            let at = word_of(cursor.index()) + HEADER;
            self.words.store(at, not_valid(cursor.polarity()));
            cursor.advance(1);
        }
        self.cursor = staged.start;
    }

    /// The header at an index: a flush asks which WQEs are NOPs.     [E810 3.5]
    #[must_use]
    pub fn header_at(&self, index: u32) -> SqHeader {
        let index = index & (self.size() - 1);
        SqHeader::from_bits(self.words.load(word_of(index) + HEADER))
    }

    #[inline(never)]
    fn put_nop(&mut self) {
        let at = word_of(self.cursor.index());
        self.words.fill(at, HEADER, 0);
        let header = SqHeader::ZERO.with_op(SqOp::NOP);
        self.put_header(self.cursor.polarity().stamp(header.bits()));
        self.cursor.advance(1);
    }

    #[inline]
    fn put(&mut self, wqe: &WqeBuf) {
        let at = word_of(self.cursor.index());
        let polarity = self.cursor.polarity();
        let words = wqe.words().len();
        let first = [0, 1, 2].map(|word| wqe.word(word, polarity));
        self.words.store_run(at, first);
        for word in QUANTUM_WORDS..words {
            self.words.store(at + word, wqe.word(word, polarity));
        }
        self.put_header(wqe.word(HEADER, polarity));
        self.cursor.advance(wqe.quanta());
    }

    /// The first header of a batch is held back, the others are hidden behind it.
    #[inline]
    fn put_header(&mut self, header: u64) {
        if self.staged.is_some() {
            let at = word_of(self.cursor.index()) + HEADER;
            self.words.store(at, header);
        } else {
            let start = self.cursor;
            self.staged = Some(Staged { start, header });
        }
    }

    /// Overwrites quanta that were consumed long ago, so that no stale header there can match when
    /// the lap gets to them.                                         [E810 1.5]
    #[inline(never)]
    fn clear_ahead(&self) {
        let target = self.cursor.ahead(CLEAR);
        let at = word_of(target.index());
        let pattern = not_valid(target.polarity());
        self.words.fill(at, word_of(CLEAR), pattern);
    }
}

/// A word that is not valid on a lap: all zeros or all ones.
const fn not_valid(polarity: Polarity) -> u64 {
    if polarity.bit() == 0 { u64::MAX } else { 0 }
}

/// First word of a quantum.
#[inline]
const fn word_of(quantum: u32) -> usize {
    quantum as usize * QUANTUM_WORDS
}

/// The device's end.
#[derive(Debug)]
pub struct SqConsumer<W = HostWords> {
    words: W,
    cursor: Cursor,
}

impl<W: Words> SqConsumer<W> {
    /// A fresh (zeroed) ring of `quanta` quanta: a power of two, at least one chunk.
    pub fn new(words: W, quanta: u32) -> Result<Self, RingFault> {
        if !quanta.is_power_of_two() || !(SQ_CHUNK..=MAX_WQ_QUANTA).contains(&quanta) {
            return Err(RingFault::BadSize);
        }
        check_memory(&words, quanta, QUANTUM_WORDS)?;
        Ok(Self {
            words,
            cursor: Cursor::new(quanta),
        })
    }

    /// Starts over with a ring that the driver has zeroed.
    pub const fn reset(&mut self) {
        self.cursor = Cursor::new(self.cursor.size());
    }

    /// Index of the next quantum: what a completion of the WQE there names.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// Quanta of the ring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// The header of the next WQE, if there is one. One load.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<SqHeader> {
        let header = self
            .words
            .load_acquire(word_of(self.cursor.index()) + HEADER);
        self.cursor
            .polarity()
            .matches(header)
            .then_some(SqHeader::from_bits(header))
    }

    /// Copies the next WQE out and parses the copy; does not move. `None`: there is none.
    ///
    /// On a fault `cmd` has the header's parts, so that the fault can be reported.
    #[inline(always)]
    // rule: e810-14
    pub fn read(&self, cmd: &mut SqCmd) -> Option<Result<(), WqeFault>> {
        let header = self.peek()?;
        Some(self.parse(self.cursor.index(), header, cmd))
    }

    /// Copies out and parses the WQE at an index that was read before and is not completed: its
    /// memory belongs to the device until then, so a retransmission can read it again.
    pub fn read_at(&self, index: u32, cmd: &mut SqCmd) -> Result<(), WqeFault> {
        let index = index & (self.size() - 1);
        let header = self.words.load_acquire(word_of(index) + HEADER);
        self.parse(index, SqHeader::from_bits(header), cmd)
    }

    /// The words at an index, for who looks on: as many quanta as the header there says.
    #[cold]
    pub fn raw(&self, index: u32) -> ([u64; MAX_WORDS], usize) {
        let index = index & (self.size() - 1);
        let at = word_of(index);
        let quanta = SqHeader::from_bits(self.words.load(at + HEADER)).quanta();
        let left = word_of(SQ_CHUNK - index % SQ_CHUNK);
        let used = word_of(quanta).min(left);
        let mut words = [0; MAX_WORDS];
        for (word, value) in words.iter_mut().take(used).enumerate() {
            *value = self.words.load(at + word);
        }
        (words, used)
    }

    /// Moves past the WQE that `cmd` was read from (but not out of its chunk).
    #[inline]
    pub fn advance(&mut self, cmd: &SqCmd) {
        let left = SQ_CHUNK - self.cursor.index() % SQ_CHUNK;
        self.cursor.advance(u32::from(cmd.quanta).min(left));
    }

    #[inline]
    fn parse(&self, index: u32, header: SqHeader, cmd: &mut SqCmd) -> Result<(), WqeFault> {
        let quanta = header.quanta();
        let first = self.words.load_run(word_of(index));
        if quanta == 1 {
            return cmd.fill(header, 1, first, &[]);
        }
        self.parse_long((index, quanta), header, first, cmd)
    }

    /// The parse of a WQE of several quanta.
    #[inline(never)]
    fn parse_long(
        &self,
        (index, quanta): (u32, u32),
        header: SqHeader,
        first: [u64; HEADER],
        cmd: &mut SqCmd,
    ) -> Result<(), WqeFault> {
        if index % SQ_CHUNK + quanta > SQ_CHUNK {
            cmd.start(header, quanta);
            return Err(WqeFault::Straddles);
        }
        let mut words = [0; MAX_WORDS - QUANTUM_WORDS];
        let (at, used) = (word_of(index + 1), word_of(quanta - 1));
        for (word, value) in words.iter_mut().take(used).enumerate() {
            *value = self.words.load(at + word);
        }
        cmd.fill(header, quanta, first, words.get(..used).unwrap_or(&[]))
    }
}
