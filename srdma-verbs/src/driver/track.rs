//! What the driver half remembers of each posted work request.          [E810 1.6]
//!
//! ```text
//! SQ    one record per quantum index: wr_id │ bytes, quanta, operation
//! RQ    one wr_id per entry
//!       tail ─ moved by whoever polls      head ─ moved by whoever posts
//! ```
//!
//! A completion names the first quantum of its WQE; the record there gives back the wr_id, and what
//! else the queue entry does not say. Poster and poller are different threads: records are atomics,
//! and are ordered by the rings themselves (a record is written before its WQE is published, and
//! read after its CQE was seen).

use crate::wc::WrId;
use core::sync::atomic::{AtomicU32, Ordering};
use srdma_core::hw::SqOp;
use srdma_core::mem::HostWords;

/// Operation number of a padding NOP, which never completes towards the program.
const PADDING: u8 = 0xff;

/// One posted send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqRecord {
    pub(crate) wr_id: WrId,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Quanta in the ring.
    pub(crate) quanta: u32,
    /// Operation; `None` for padding.
    pub(crate) op: Option<SqOp>,
}

/// Words of a record in the send queue's memory.
pub(crate) const SQ_RECORD_WORDS: usize = 2;

/// The records of a send queue, in memory that nobody touches before a WQE is posted.
///
/// A record: the wr_id, then 31:0 bytes, 39:32 quanta, 47:40 operation.
#[derive(Debug)]
pub(crate) struct SqTrack {
    records: HostWords,
    head: AtomicU32,
    tail: AtomicU32,
}

impl SqTrack {
    /// For a ring of as many quanta, a power of two, as `records` has room for.
    pub(crate) fn new(records: HostWords) -> Self {
        debug_assert!((records.len() / SQ_RECORD_WORDS).is_power_of_two());
        Self {
            records,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    fn size(&self) -> u32 {
        u32::try_from(self.records.len() / SQ_RECORD_WORDS).unwrap_or(u32::MAX)
    }

    /// The first word of the record at `index`.
    #[inline]
    fn at_word(&self, index: u32) -> usize {
        (index & (self.size() - 1)) as usize * SQ_RECORD_WORDS
    }

    /// Remembers the WQE at `index`. By the poster, before the WQE is visible.
    #[inline]
    pub(crate) fn put(&self, index: u32, record: SqRecord) {
        let op = record.op.map_or(PADDING, |op| op.0);
        let info = u64::from(record.len) | u64::from(record.quanta) << 32 | u64::from(op) << 40;
        let at = self.at_word(index);
        self.records.store(at, record.wr_id.0);
        self.records.store(at + 1, info);
    }

    /// Remembers `count` padding NOPs that end before `index`.
    pub(crate) fn put_padding(&self, index: u32, count: u32) {
        let pad = SqRecord {
            wr_id: WrId(0),
            len: 0,
            quanta: 1,
            op: None,
        };
        for back in 1..=count {
            self.put(index.wrapping_sub(back), pad);
        }
    }

    /// The record at `index`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "fields of 32 and 8 bits")]
    pub(crate) fn at(&self, index: u32) -> SqRecord {
        let at = self.at_word(index);
        let info = self.records.load(at + 1);
        let op = (info >> 40) as u8;
        SqRecord {
            wr_id: WrId(self.records.load(at)),
            len: info as u32,
            quanta: u32::from((info >> 32) as u8).max(1),
            op: (op != PADDING).then_some(SqOp(op)),
        }
    }

    /// The poster has made everything up to `head` visible.
    #[inline]
    pub(crate) fn publish(&self, head: u32) {
        self.head.store(head, Ordering::SeqCst);
    }

    /// First quantum that is not completed.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// Everything before `tail` is completed. By the poller, under the lock of the CQ.
    #[inline]
    pub(crate) fn complete_to(&self, tail: u32) {
        self.tail.store(tail & (self.size() - 1), Ordering::Release);
    }

    /// Quanta that are posted and not completed.
    pub(crate) fn used(&self) -> u32 {
        let head = self.head.load(Ordering::SeqCst);
        head.wrapping_sub(self.tail()) & (self.size() - 1)
    }

    /// A flush starts at the WQE at `index`: what was posted before it is done (and nobody asked
    /// to hear of it). An index that is not outstanding changes nothing.
    pub(crate) fn flush_from(&self, index: u32) {
        let ahead = index.wrapping_sub(self.tail()) & (self.size() - 1);
        if ahead < self.used() {
            self.complete_to(index);
        }
    }

    /// The next WQE that a flush completes: its index and record, padding skipped. [E810 3.5]
    pub(crate) fn next_flushed(&self) -> Option<(u32, SqRecord)> {
        while self.used() != 0 {
            let index = self.tail();
            let record = self.at(index);
            if record.op.is_some() {
                return Some((index, record));
            }
            self.complete_to(index.wrapping_add(record.quanta));
        }
        None
    }

    /// Forgets everything: the ring starts again.
    pub(crate) fn reset(&self) {
        self.tail.store(0, Ordering::Release);
        self.head.store(0, Ordering::SeqCst);
    }
}

/// The wr_ids of a receive queue, in memory that nobody touches before a receive is posted.
#[derive(Debug)]
pub(crate) struct RqTrack {
    ids: HostWords,
    head: AtomicU32,
    tail: AtomicU32,
    shift: u8,
}

impl RqTrack {
    /// For a ring of as many entries (a power of two) as `ids` has words, each of 1 << `shift`
    /// quanta.
    pub(crate) fn new(ids: HostWords, shift: u8) -> Self {
        debug_assert!(ids.len().is_power_of_two());
        Self {
            ids,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            shift,
        }
    }

    fn mask(&self) -> u32 {
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX) - 1
    }

    /// Remembers the entry at `index`. By the poster, before the entry is visible.
    #[inline]
    pub(crate) fn put(&self, index: u32, id: WrId) {
        self.ids.store((index & self.mask()) as usize, id.0);
    }

    /// The wr_id at `index`.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> WrId {
        WrId(self.ids.load((index & self.mask()) as usize))
    }

    /// The entry that a completion names by its first quantum.
    #[inline]
    pub(crate) fn slot_of(&self, wqe_index: u16) -> u32 {
        u32::from(wqe_index) >> self.shift
    }

    /// What a completion calls the entry at `index`.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "masked to the field's 15 bits"
    )]
    pub(crate) fn wqe_index(&self, index: u32) -> u16 {
        ((index << self.shift) & 0x7fff) as u16
    }

    /// The poster has made everything up to `head` visible.
    #[inline]
    pub(crate) fn publish(&self, head: u32) {
        self.head.store(head, Ordering::SeqCst);
    }

    /// First entry that is not completed.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// Everything before `tail` is completed.
    #[inline]
    pub(crate) fn complete_to(&self, tail: u32) {
        self.tail.store(tail & self.mask(), Ordering::Release);
    }

    /// Entries that are posted and not completed.
    pub(crate) fn used(&self) -> u32 {
        let head = self.head.load(Ordering::SeqCst);
        head.wrapping_sub(self.tail()) & self.mask()
    }

    /// Forgets everything: the ring starts again.
    pub(crate) fn reset(&self) {
        self.tail.store(0, Ordering::Release);
        self.head.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srdma_core::mem::HostBuf;

    fn words(count: usize) -> HostWords {
        HostBuf::new(count * 8).unwrap().words()
    }

    fn record(id: u64, quanta: u32) -> SqRecord {
        SqRecord {
            wr_id: WrId(id),
            len: 5,
            quanta,
            op: Some(SqOp::SEND),
        }
    }

    #[test]
    fn records_come_back() {
        let track = SqTrack::new(words(1024));
        let big = SqRecord {
            wr_id: WrId(u64::MAX),
            len: u32::MAX,
            quanta: 8,
            op: Some(SqOp::ATOMIC_WRITE),
        };
        track.put(511, big);
        assert_eq!(track.at(511), big);
        assert_eq!(track.at(511 + 512), big);
    }

    #[test]
    fn a_flush_walks_over_padding_and_the_ring_end() {
        let track = SqTrack::new(words(1024));
        track.complete_to(508);
        track.put(508, record(1, 1));
        track.put_padding(512, 3);
        track.put(0, record(2, 4));
        track.publish(4);
        assert_eq!(track.used(), 8);
        let (index, first) = track.next_flushed().unwrap();
        assert_eq!((index, first.wr_id), (508, WrId(1)));
        track.complete_to(index + first.quanta);
        let (index, second) = track.next_flushed().unwrap();
        assert_eq!((index, second.wr_id), (0, WrId(2)));
        track.complete_to(index + second.quanta);
        assert_eq!((track.next_flushed(), track.used()), (None, 0));
    }

    #[test]
    fn a_flush_starts_at_the_failing_request() {
        let track = SqTrack::new(words(1024));
        for index in 0..4 {
            track.put(index, record(u64::from(index), 1));
        }
        track.publish(4);
        track.flush_from(2);
        assert_eq!(track.next_flushed().unwrap().0, 2);
        track.flush_from(1);
        track.flush_from(4);
        track.flush_from(400);
        assert_eq!(track.tail(), 2, "only outstanding requests are a start");
    }

    #[test]
    fn receive_entries_are_named_by_quanta() {
        let track = RqTrack::new(words(8), 2);
        track.put(7, WrId(70));
        assert_eq!(track.slot_of(track.wqe_index(7)), 7);
        assert_eq!(track.at(7), WrId(70));
        track.complete_to(7);
        track.publish(2);
        assert_eq!(track.used(), 3);
    }
}
