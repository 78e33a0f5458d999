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
use crate::hw::dialect::{ArmRequest, Dialect, e810, hns, mlx5};
use crate::hw::shadow::{
    CQ_ARM, CQ_INDEX, CQ_REGISTER, CqArmWord, CqIndexWord, QP_SQ_TAIL, SHADOW_WORDS, SRQ_HEAD,
    SqTailWord,
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
///
/// ```text
///            E810                 mlx5                 hns
/// word 0     head                 record: CI, ARM      record: CI        driver, at each poll
/// word 4     arm, 13:0 select     13:0 select          13:0 select       driver
/// word 1                          last write to UAR 0x20, or 0x230       driver, at each arm
/// ```
///
/// `select` counts buffers that resizes retired; other NICs copy the entries instead. `[srdma]`
// rule: e810-19
#[derive(Debug, Clone)]
pub struct CqShadow<W = HostWords> {
    words: W,
    dialect: Dialect,
}

impl<W: Words> CqShadow<W> {
    /// Over 64 bytes of memory.
    pub fn new(words: W) -> Result<Self, RingFault> {
        Self::speaking(Dialect::E810, words)
    }

    /// As [`new`](Self::new), in a dialect.
    pub fn speaking(dialect: Dialect, words: W) -> Result<Self, RingFault> {
        let words = check(words)?;
        Ok(Self { words, dialect })
    }

    /// Whose words these are.
    #[inline]
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Device: how far the driver has read in a ring of `size` slots. Those before may be written
    /// again.
    #[inline]
    #[must_use]
    pub fn head(&self, size: u32) -> u32 {
        let word = self.words.load_acquire(CQ_INDEX);
        match self.dialect {
            Dialect::E810 => CqIndexWord::from_bits(word).head(),
            Dialect::Mlx5 => mlx5::record_ci(word) & (size - 1),
            Dialect::Hns => hns::record_ci(word) & (size - 1),
        }
    }

    /// Driver: has read up to slot `index`, `count` slots in all, and is done with those before.
    #[inline]
    pub fn store_head(&self, index: u32, count: u32) {
        let word = match self.dialect {
            Dialect::E810 => CqIndexWord::ZERO.with_head(index).bits(),
            Dialect::Mlx5 => mlx5::record_read(self.words.load(CQ_INDEX), count),
            Dialect::Hns => hns::record_read(self.words.load(CQ_INDEX), count),
        };
        self.words.store_release(CQ_INDEX, word);
    }

    /// Device: what the driver asked for last; nothing if it never did. `cq`: of which queue the
    /// register is, and how many slots that has.
    #[inline]
    #[must_use]
    pub fn request(&self, cq: [u32; 2]) -> Option<ArmRequest> {
        let [number, _] = cq;
        let bits = self.arm_bits();
        match self.dialect {
            Dialect::E810 => Some(e810::arm_request(bits)),
            Dialect::Mlx5 => mlx5::arm_request(bits, number),
            Dialect::Hns => hns::arm_request(bits, cq),
        }
    }

    /// The word of the last request, as it stands in memory.
    #[inline]
    #[must_use]
    pub fn arm_bits(&self) -> u64 {
        match self.dialect {
            Dialect::E810 => self.words.load_acquire(CQ_ARM),
            Dialect::Mlx5 | Dialect::Hns => self.words.load_acquire(CQ_REGISTER),
        }
    }

    /// Device: how many buffers the driver has retired, modulo 2^14.
    #[inline]
    #[must_use]
    pub fn select(&self) -> u16 {
        self.arm_word().select()
    }

    /// Driver: asks for the event `sn`, having read `count` slots; `cq` as in
    /// [`request`](Self::request). Ends with a full fence, as [`arm`](Self::arm) does.
    pub fn ask(&self, cq: [u32; 2], sn: u8, count: u32, solicited_only: bool) {
        let [number, _] = cq;
        let last = self.words.load(CQ_REGISTER);
        match self.dialect {
            Dialect::E810 => self.update(|word| word.armed(solicited_only)),
            Dialect::Mlx5 => {
                let word = mlx5::arm_word(last, number, sn, count, solicited_only);
                let record = mlx5::record_armed(self.words.load(CQ_INDEX), word);
                // The record before the register.                 [events 4.5]
                self.words.store_release(CQ_INDEX, record);
                let word = word.bits().swap_bytes();
                self.words.store_release(CQ_REGISTER, word);
            }
            Dialect::Hns => {
                let word = hns::arm_word(last, cq, sn, count, solicited_only);
                self.words.store_release(CQ_REGISTER, word.bits());
            }
        }
        fence(Ordering::SeqCst);
    }

    /// Device, after an arm doorbell: kind and sequence of the arm.   [E810 3.11]
    #[inline]
    #[must_use]
    pub fn arm_word(&self) -> CqArmWord {
        CqArmWord::from_bits(self.words.load_acquire(CQ_ARM))
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
        let word = CqArmWord::from_bits(self.words.load(CQ_ARM));
        self.words.store_release(CQ_ARM, change(word).bits());
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
