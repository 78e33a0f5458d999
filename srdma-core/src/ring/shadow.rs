//! Shadow areas as memory: who writes what, and in which order.        [E810 2.7, 3.9]
//!
//! ```text
//! CqShadow   driver: head (release), arm, retire        device: head, arm word (acquire)
//! QpShadow   device: SQ tail (release)                  driver: SQ tail
//! SrqShadow  driver: head (release)                     device: head (acquire)
//! ```
//!
//! The arm word has one writer, the driver, who holds the CQ's lock around read-modify-write. The
//! device never writes it.

use super::{RingFault, Words};
use crate::hw::shadow::{
    CQ_ARM, CQ_INDEX, CqArmWord, CqIndexWord, QP_SQ_TAIL, SHADOW_WORDS, SRQ_HEAD, SqTailWord,
};
use crate::mem::HostWords;
use crate::sync::{Ordering, fence};

fn check<W: Words>(words: W) -> Result<W, RingFault> {
    if words.len() < SHADOW_WORDS {
        return Err(RingFault::ShortMemory);
    }
    Ok(words)
}

/// The shadow area of a CQ.                                           [E810 3.9]
// rule: e810-19
#[derive(Debug, Clone)]
pub struct CqShadow<W = HostWords>(W);

impl<W: Words> CqShadow<W> {
    /// Over 64 bytes of memory.
    pub fn new(words: W) -> Result<Self, RingFault> {
        check(words).map(Self)
    }

    /// Device: how far the driver has read. Slots before it may be written again.
    #[inline]
    #[must_use]
    pub fn head(&self) -> u32 {
        CqIndexWord::from_bits(self.0.load_acquire(CQ_INDEX)).head()
    }

    /// Driver: has read up to `head`, and is done with the slots before.
    #[inline]
    pub fn store_head(&self, head: u32) {
        let word = CqIndexWord::ZERO.with_head(head);
        self.0.store_release(CQ_INDEX, word.bits());
    }

    /// Device, after an arm doorbell: kind and sequence of the arm.   [E810 3.11]
    #[inline]
    #[must_use]
    pub fn arm_word(&self) -> CqArmWord {
        CqArmWord::from_bits(self.0.load_acquire(CQ_ARM))
    }

    /// Driver: asks to hear of the next completion. The doorbell comes after.  [E810 3.9]
    ///
    /// Ends with a full fence, and so does what the device does between its last completion and its
    /// look at the word: a driver that polls once more sees the completion, or is told of it.
    pub fn arm(&self, solicited_only: bool) {
        self.update(|word| word.armed(solicited_only));
        fence(Ordering::SeqCst);
    }

    /// Driver: arms a control CQ.                                     [E810 3.9]
    pub fn arm_control(&self) {
        self.update(CqArmWord::armed_control);
        fence(Ordering::SeqCst);
    }

    /// Driver: dropped `buffers` buffers that resizes had replaced.   [E810 3.8]
    pub fn retire(&self, buffers: u16) {
        self.update(|word| word.retired(buffers));
    }

    fn update(&self, change: impl FnOnce(CqArmWord) -> CqArmWord) {
        let word = CqArmWord::from_bits(self.0.load(CQ_ARM));
        self.0.store_release(CQ_ARM, change(word).bits());
    }
}

/// The shadow area of a QP.                                           [E810 2.7]
#[derive(Debug, Clone)]
pub struct QpShadow<W = HostWords>(W);

impl<W: Words> QpShadow<W> {
    /// Over 64 bytes of memory.
    pub fn new(words: W) -> Result<Self, RingFault> {
        check(words).map(Self)
    }

    /// Device: has read the SQ up to `tail`, in quanta.
    #[inline]
    pub fn store_sq_tail(&self, tail: u32) {
        // The field has 15 bits, as many as the largest SQ has quanta.
        let tail = u16::try_from(tail & 0x7fff).unwrap_or(0);
        let word = SqTailWord::ZERO.with_tail(tail);
        self.0.store_release(QP_SQ_TAIL, word.bits());
    }

    /// How far the device has read the SQ.
    #[must_use]
    pub fn sq_tail(&self) -> u16 {
        SqTailWord::from_bits(self.0.load_acquire(QP_SQ_TAIL)).tail()
    }
}

/// The shadow area of an SRQ.                                         [E810 2.6]
#[derive(Debug, Clone)]
pub struct SrqShadow<W = HostWords>(W);

impl<W: Words> SrqShadow<W> {
    /// Over 64 bytes of memory.
    pub fn new(words: W) -> Result<Self, RingFault> {
        check(words).map(Self)
    }

    /// Driver: the next entry to be filled.
    #[inline]
    pub fn store_head(&self, head: u32) {
        self.0.store_release(SRQ_HEAD, u64::from(head));
    }

    /// Device: the next entry to be filled, as the driver says; not bounded.
    #[inline]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the index has 32 bits")]
    pub fn head(&self) -> u32 {
        self.0.load_acquire(SRQ_HEAD) as u32
    }
}
