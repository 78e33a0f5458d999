//! Receive queues, own and shared: entries of a fixed stride.          [E810 2.6]
//!
//! ```text
//! slot = 32 << shift bytes   [ fragment 0 ][ 0 | wr_id ][ header ][ fragments … ][ stale ]
//! ```
//!
//! There is no doorbell: the device looks at the valid bit of the next entry when a message needs
//! one, and must not remember that there was none. Completions name an entry by its first quantum.

use super::cursor::{Cursor, distance};
use super::{PushFault, RingFault, Words, check_memory};
use crate::hw::rwqe::RqHeader;
use crate::hw::wqe::{HEADER, MAX_QUANTA, MAX_WORDS, QUANTUM_WORDS};
use crate::hw::{RqCmd, WqeBuf, WqeFault};
use crate::limits::MAX_SRQ_QUANTA;
use crate::mem::HostWords;

/// Words per slot, after checking the geometry.
fn stride(words: &impl Words, wqes: u32, shift: u8) -> Result<usize, RingFault> {
    if !wqes.is_power_of_two() || 1 << shift.min(8) > MAX_QUANTA {
        return Err(RingFault::BadSize);
    }
    if wqes > MAX_SRQ_QUANTA >> shift {
        return Err(RingFault::BadSize);
    }
    let stride = QUANTUM_WORDS << shift;
    check_memory(words, wqes, stride)?;
    Ok(stride)
}

/// The driver's end.
#[derive(Debug)]
pub struct RqProducer<W = HostWords> {
    words: W,
    cursor: Cursor,
    tail: u32,
    stride: usize,
    /// Where the entries start that are written but not visible yet, and the header held back.
    staged: Option<(Cursor, u64)>,
}

impl<W: Words> RqProducer<W> {
    /// A fresh (zeroed) ring of `wqes` entries of 32 << `shift` bytes.
    pub fn new(words: W, wqes: u32, shift: u8) -> Result<Self, RingFault> {
        let stride = stride(&words, wqes, shift)?;
        Ok(Self {
            words,
            cursor: Cursor::new(wqes),
            tail: 0,
            stride,
            staged: None,
        })
    }

    /// A ring that the device has moved `filled` entries to, while `used`, those included, are not
    /// completed; there is room for as many.
    pub fn resumed(
        words: W,
        wqes: u32,
        shift: u8,
        (filled, used): (u32, u32),
    ) -> Result<Self, RingFault> {
        let mut ring = Self::new(words, wqes, shift)?;
        if used >= wqes || filled > used {
            return Err(RingFault::BadSize);
        }
        ring.cursor.advance(filled);
        ring.tail = filled.wrapping_sub(used) & (wqes - 1);
        Ok(ring)
    }

    /// Index of the next entry; an SRQ's shadow head.
    #[must_use]
    pub const fn head(&self) -> u32 {
        self.cursor.index()
    }

    /// First entry that is not completed.
    #[must_use]
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// Entries in use.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.cursor.since(self.tail)
    }

    /// Entries that may still be used.                               [E810 1.1]
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.size() - self.used() - 1
    }

    /// Everything before entry `tail` is completed. A tail that is not in use changes nothing.
    pub const fn release_to(&mut self, tail: u32) {
        let tail = tail & (self.size() - 1);
        if distance(self.tail, tail, self.size()) <= self.used() {
            self.tail = tail;
        }
    }

    /// Publishes an entry (and what was staged before) and says where.
    #[inline]
    pub fn push(&mut self, wqe: &WqeBuf) -> Result<u32, PushFault> {
        let index = self.stage(wqe)?;
        self.commit();
        Ok(index)
    }

    /// Writes an entry, invisible to the device until [`Self::commit`].
    #[inline]
    pub fn stage(&mut self, wqe: &WqeBuf) -> Result<u32, PushFault> {
        let words = wqe.words().len();
        if words > self.stride {
            return Err(PushFault::TooLong);
        }
        if self.free() == 0 {
            return Err(PushFault::Full);
        }
        let index = self.cursor.index();
        let polarity = self.cursor.polarity();
        let at = index as usize * self.stride;
        for word in (0..HEADER).chain(QUANTUM_WORDS..words) {
            self.words.store(at + word, wqe.word(word, polarity));
        }
        let header = wqe.word(HEADER, polarity);
        // The first header of a batch is held back, the others are hidden behind it.
        match self.staged {
            Some(_) => self.words.store(at + HEADER, header),
            None => self.staged = Some((self.cursor, header)),
        }
        self.cursor.advance(1);
        Ok(index)
    }

    /// Makes staged entries visible.
    #[inline]
    pub fn commit(&mut self) {
        if let Some((start, header)) = self.staged.take() {
            let at = start.index() as usize * self.stride;
            self.words.store_release(at + HEADER, header);
        }
    }

    /// Takes staged entries back. Their valid bits are undone.
    pub fn rollback(&mut self) {
        let Some((start, _)) = self.staged.take() else {
            return;
        };
        let mut cursor = start;
        while cursor.index() != self.cursor.index() {
            let at = cursor.index() as usize * self.stride;
            let not_valid = cursor.polarity().flipped().stamp(0);
            self.words.store(at + HEADER, not_valid);
            cursor.advance(1);
        }
        self.cursor = start;
    }
}

/// The device's end.
#[derive(Clone, Debug)]
pub struct RqConsumer<W = HostWords> {
    words: W,
    cursor: Cursor,
    stride: usize,
    shift: u8,
}

impl<W: Words> RqConsumer<W> {
    /// A fresh (zeroed) ring of `wqes` entries of 32 << `shift` bytes.
    pub fn new(words: W, wqes: u32, shift: u8) -> Result<Self, RingFault> {
        let stride = stride(&words, wqes, shift)?;
        Ok(Self {
            words,
            cursor: Cursor::new(wqes),
            stride,
            shift,
        })
    }

    /// Starts over with a ring that the driver has zeroed.
    pub const fn reset(&mut self) {
        self.cursor = Cursor::new(self.cursor.size());
    }

    /// Entries of the ring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.cursor.size()
    }

    /// Stride of an entry: 32 << shift bytes.
    #[must_use]
    pub const fn shift(&self) -> u8 {
        self.shift
    }

    /// Index of the next entry.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.cursor.index()
    }

    /// What a completion of the next entry names: its first quantum, 15 bits. [E810 11 #6]
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "masked to 15 bits")]
    pub const fn wqe_index(&self) -> u16 {
        ((self.cursor.index() << self.shift) & 0x7fff) as u16
    }

    /// Entries from the next one up to `head`, the driver's word for how far it has filled (SRQ
    /// limit). 0 if the head is no index of this ring.
    #[must_use]
    pub const fn available(&self, head: u32) -> u32 {
        if head < self.cursor.size() {
            distance(self.cursor.index(), head, self.cursor.size())
        } else {
            0
        }
    }

    /// The header of the next entry, if there is one. One load.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<RqHeader> {
        self.header(self.cursor)
    }

    /// Copies the next entry out and parses the copy; does not move. `None`: there is none.
    #[inline]
    pub fn read(&self, cmd: &mut RqCmd) -> Option<Result<(), WqeFault>> {
        self.read_at(self.cursor, cmd)
    }

    /// The same of the entry that is `entries` behind the next one.
    pub fn read_ahead(&self, entries: u32, cmd: &mut RqCmd) -> Option<Result<(), WqeFault>> {
        let inside = entries < self.size();
        inside.then(|| self.read_at(self.cursor.ahead(entries), cmd))?
    }

    #[inline]
    fn header(&self, cursor: Cursor) -> Option<RqHeader> {
        let at = cursor.index() as usize * self.stride;
        let header = self.words.load_acquire(at + HEADER);
        cursor
            .polarity()
            .matches(header)
            .then_some(RqHeader::from_bits(header))
    }

    #[inline]
    fn read_at(&self, cursor: Cursor, cmd: &mut RqCmd) -> Option<Result<(), WqeFault>> {
        let header = self.header(cursor)?;
        let at = cursor.index() as usize * self.stride;
        if header.more_frags() == 0 {
            cmd.parse_single(self.words.load_run(at));
            return Some(Ok(()));
        }
        Some(self.read_long((header, at), cmd))
    }

    /// The same of an entry that has more than one fragment.
    fn read_long(&self, (header, at): (RqHeader, usize), cmd: &mut RqCmd) -> Result<(), WqeFault> {
        let used = header.quanta() as usize * QUANTUM_WORDS;
        if used > self.stride {
            return Err(WqeFault::Straddles);
        }
        let mut words = [0; MAX_WORDS];
        for (word, value) in words.iter_mut().take(used).enumerate() {
            *value = if word == HEADER {
                header.bits()
            } else {
                self.words.load(at + word)
            };
        }
        cmd.parse(words.get(..used).unwrap_or(&[]))
    }

    /// The words of the next entry, for who looks on: as many quanta as its header says.
    #[cold]
    pub fn raw(&self) -> ([u64; MAX_WORDS], usize) {
        let at = self.cursor.index() as usize * self.stride;
        let quanta = RqHeader::from_bits(self.words.load(at + HEADER)).quanta();
        let used = (quanta as usize * QUANTUM_WORDS).min(self.stride);
        let mut words = [0; MAX_WORDS];
        for (word, value) in words.iter_mut().take(used).enumerate() {
            *value = self.words.load(at + word);
        }
        (words, used)
    }

    /// Moves past the next entry.
    #[inline]
    pub const fn advance(&mut self) {
        self.cursor.advance(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::Sge;
    use crate::mem::HostBuf;
    use crate::num::Lkey;

    #[test]
    fn staged_entries_appear_together_or_not_at_all() {
        let buf = HostBuf::new(8 * 32).unwrap();
        let mut producer = RqProducer::new(buf.words(), 8, 0).unwrap();
        let mut consumer = RqConsumer::new(buf.words(), 8, 0).unwrap();
        let (mut wqe, mut cmd) = (WqeBuf::new(), RqCmd::default());
        for lap in 0..40u64 {
            for n in 0..3 {
                let sge = Sge {
                    addr: 1000 * lap + n,
                    len: 1,
                    lkey: Lkey(7),
                };
                wqe.recv(&[sge], Some(lap)).unwrap();
                producer.stage(&wqe).unwrap();
            }
            assert!(consumer.peek().is_none(), "nothing is visible yet");
            producer.rollback();
            wqe.recv(&[], Some(lap)).unwrap();
            producer.stage(&wqe).unwrap();
            producer.stage(&wqe).unwrap();
            assert!(consumer.peek().is_none());
            producer.commit();
            for _ in 0..2 {
                consumer.read(&mut cmd).unwrap().unwrap();
                assert_eq!((cmd.sges.len(), cmd.wr_id), (0, lap));
                consumer.advance();
            }
            assert!(consumer.peek().is_none(), "what was taken back stays away");
            producer.release_to(producer.head());
        }
    }
}
