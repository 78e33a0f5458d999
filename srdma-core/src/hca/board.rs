//! The doorbell board: the one thing that other threads share with whoever drives the device.
//!
//! ```text
//! root 1 × 64 bits → tops 64 × 64 bits → pages 4096 × (summary 64 bits → words 64 × 64 bits)
//!
//! ring   bit in its word, then summary, top, root         bottom up
//! take   root, tops, summary, word: swap to zero, visit   top down
//! ```
//!
//! One such tree for each kind of queue; pages are made at the first ring of one of their numbers.
//!
//! **No ring is lost.** All accesses are sequentially consistent, so they have one order. A ring
//! sets its bit at time t0 and then finds or sets the bit above at t1, the next at t2, the root at
//! t3. Whoever clears a bit of some level after t(n) looks at the level below later still, hence
//! after t(n−1). So whoever clears the root bit after t3 reaches the word after t0 and finds the
//! bit there, unless an earlier visitor, also after t0, has found it. A level whose bit is set
//! already is only read, not written: a bit seen set at t(n) is cleared after t(n).
//!
//! What a ring means, and what the queue holds, is not here: a ring only says where to look. Nor is
//! sleep: whoever rings drives the device, or has seen that somebody does.

use crate::num::{CqId, MsixVector, Qpn, SrqId};
use crate::sync::{AtomicU64, Ordering::SeqCst};
use core::fmt;
use std::sync::OnceLock;

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Doorbell {
    /// Work was posted to the send queue of a QP.
    Sq(Qpn),
    /// A completion queue was armed or resized.
    Cq(CqId),
    /// The driver half has taken the completion event of this queue.
    CqAck(CqId),
    /// Buffers were posted to a shared receive queue, or its limit was armed.
    Srq(SrqId),
    /// A control command was written.
    Cqp,
    /// The handler of a vector has drained its queue: the vector may fire again.
    Irq(MsixVector),
    /// The driver half is done with this many entries of the asynchronous event queue.
    AeqAck {
        /// Entries since the last such ring that was taken.
        entries: u32,
    },
}

/// Bit of `Board::single` for the CQP.
const CQP: u64 = 1;
/// Bit of `Board::single` for `AeqAck`.
const AEQ: u64 = 2;

/// Which queues were rung since the last look.
///
/// `FAN` is the fan-out of each level; anything but 64 is for models.
pub struct Board<const FAN: usize = 64> {
    sq: DirtySet<FAN>,
    cq: DirtySet<FAN>,
    cq_ack: DirtySet<FAN>,
    srq: DirtySet<FAN>,
    irq: DirtySet<FAN>,
    /// Bits of queues that exist once.
    single: AtomicU64,
    aeq_entries: AtomicU64,
}

impl Board {
    /// A board on which nothing is rung.
    #[must_use]
    pub fn new() -> Self {
        Self::with_fan_out()
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl<const FAN: usize> Board<FAN> {
    fn with_fan_out() -> Self {
        Self {
            sq: DirtySet::new(),
            cq: DirtySet::new(),
            cq_ack: DirtySet::new(),
            srq: DirtySet::new(),
            irq: DirtySet::new(),
            single: AtomicU64::new(0),
            aeq_entries: AtomicU64::new(0),
        }
    }

    /// Rings, from any thread, which then drives the device or has seen somebody else doing so.
    ///
    /// What was written to the queue before is seen by whoever takes the ring. Costs one locked
    /// instruction if nobody else rings or takes.
    #[inline]
    pub fn mark(&self, what: Doorbell) {
        match what {
            Doorbell::Sq(qpn) => self.sq.mark(qpn.value()),
            Doorbell::Cq(id) => self.cq.mark(id.value()),
            Doorbell::CqAck(id) => self.cq_ack.mark(id.value()),
            Doorbell::Srq(id) => self.srq.mark(id.value()),
            Doorbell::Irq(vector) => self.irq.mark(vector.value().into()),
            Doorbell::Cqp => self.mark_single(CQP),
            Doorbell::AeqAck { entries } => {
                self.aeq_entries.fetch_add(u64::from(entries), SeqCst);
                self.mark_single(AEQ);
            }
        }
    }

    /// Visits and clears what was rung, control first; true if there was anything.
    ///
    /// For the one that drives the device. A ring during the call is visited now or next time.
    pub fn take(&self, mut visit: impl FnMut(Doorbell)) -> bool {
        let mut any = false;
        if load(&self.single) != 0 {
            any = true;
            self.take_single(&mut visit);
        }
        any |= self.irq.take(|vector| {
            // Marked with 16 bits only.
            visit(Doorbell::Irq(MsixVector(
                u16::try_from(vector).unwrap_or(u16::MAX),
            )));
        });
        any |= self.srq.take(|id| visit(Doorbell::Srq(SrqId(id))));
        any |= self.cq_ack.take(|id| visit(Doorbell::CqAck(CqId(id))));
        any |= self.cq.take(|id| visit(Doorbell::Cq(CqId(id))));
        any |= self.sq.take(|qpn| visit(Doorbell::Sq(Qpn::new(qpn))));
        any
    }

    /// A control command waits.
    #[must_use]
    pub fn has_control(&self) -> bool {
        load(&self.single) & CQP != 0
    }

    /// Something was rung and not yet taken.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        let trees = load(&self.sq.root)
            | load(&self.cq.root)
            | load(&self.cq_ack.root)
            | load(&self.srq.root)
            | load(&self.irq.root);
        trees | load(&self.single) != 0
    }

    fn mark_single(&self, bit: u64) {
        // Always written, never only read: the write publishes what stands in the queue.
        self.single.fetch_or(bit, SeqCst);
    }

    fn take_single(&self, visit: &mut impl FnMut(Doorbell)) {
        let bits = self.single.swap(0, SeqCst);
        if bits & CQP != 0 {
            visit(Doorbell::Cqp);
        }
        if bits & AEQ != 0 {
            // The count may hold entries of a ring whose bit is yet to come; then that bit finds
            // nothing more.
            let entries = u32::try_from(self.aeq_entries.swap(0, SeqCst)).unwrap_or(u32::MAX);
            if entries > 0 {
                visit(Doorbell::AeqAck { entries });
            }
        }
    }
}

impl<const FAN: usize> fmt::Debug for Board<FAN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board")
            .field("dirty", &self.is_dirty())
            .finish()
    }
}

/// A set of numbers below `FAN`⁴ (2^24), with the tree of the module's picture above it.
struct DirtySet<const FAN: usize> {
    root: AtomicU64,
    tops: [AtomicU64; FAN],
    pages: Box<[OnceLock<Box<Page<FAN>>>]>,
}

/// The lowest two levels, for `FAN`² numbers.
struct Page<const FAN: usize> {
    summary: AtomicU64,
    words: [AtomicU64; FAN],
}

impl<const FAN: usize> Page<FAN> {
    fn new() -> Box<Self> {
        Box::new(Self {
            summary: AtomicU64::new(0),
            words: zeros(),
        })
    }
}

impl<const FAN: usize> DirtySet<FAN> {
    fn new() -> Self {
        const {
            assert!(
                FAN.is_power_of_two() && FAN <= 64,
                "the bits of a level fit a word"
            );
        };
        let pages: Box<[_]> = core::iter::repeat_with(OnceLock::new)
            .take(FAN * FAN)
            .collect();
        // Loom does not know `OnceLock`, so a model starts with all pages.
        #[cfg(loom)]
        pages
            .iter()
            .for_each(|page: &OnceLock<_>| drop(page.set(Page::new())));
        Self {
            root: AtomicU64::new(0),
            tops: zeros(),
            pages,
        }
    }

    /// Adds `number`. A number beyond the set names no queue that could exist: it is ignored.
    #[inline]
    fn mark(&self, number: u32) {
        let Ok(number) = usize::try_from(number) else {
            return;
        };
        let (page_index, in_page) = (number / (FAN * FAN), number % (FAN * FAN));
        let (root_bit, top_bit) = (page_index / FAN, page_index % FAN);
        let (summary_bit, bit) = (in_page / FAN, in_page % FAN);
        let Some(page) = self.pages.get(page_index) else {
            return;
        };
        let page = page.get_or_init(Page::new);
        let Some(word) = page.words.get(summary_bit) else {
            return;
        };
        let Some(top) = self.tops.get(root_bit) else {
            return;
        };
        // Written even if it is set: the write publishes what stands in the queue to whoever
        // clears the bit, and is the full fence before the loads below.
        word.fetch_or(1 << bit, SeqCst);
        raise(&page.summary, summary_bit);
        raise(top, top_bit);
        raise(&self.root, root_bit);
    }

    /// Visits and removes all numbers.
    fn take(&self, mut visit: impl FnMut(u32)) -> bool {
        if load(&self.root) == 0 {
            return false;
        }
        let mut any = false;
        for root_bit in bits(clear(&self.root)) {
            let Some(top) = self.tops.get(root_bit) else {
                continue;
            };
            for top_bit in bits(clear(top)) {
                let page_index = root_bit * FAN + top_bit;
                let Some(page) = self.pages.get(page_index).and_then(OnceLock::get) else {
                    continue;
                };
                for summary_bit in bits(clear(&page.summary)) {
                    let Some(word) = page.words.get(summary_bit) else {
                        continue;
                    };
                    for bit in bits(clear(word)) {
                        let number = (page_index * FAN + summary_bit) * FAN + bit;
                        any = true;
                        visit(u32::try_from(number).unwrap_or(u32::MAX));
                    }
                }
            }
        }
        any
    }
}

/// Makes sure that a bit is set, without writing if it is.
#[inline]
fn raise(word: &AtomicU64, bit: usize) {
    if load(word) & (1 << bit) == 0 {
        word.fetch_or(1 << bit, SeqCst);
    }
}

/// Clears a word and returns what was set.
#[inline]
fn clear(word: &AtomicU64) -> u64 {
    word.swap(0, SeqCst)
}

/// The positions of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        usize::try_from(bit).ok()
    })
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    core::array::from_fn(|_| AtomicU64::new(0))
}

/// A sequentially consistent load.
///
/// Loom takes such loads as acquire loads, which may return old values, and it overlooks orders in
/// which a thread loads a word and then changes it. An exchange that changes nothing has neither
/// flaw, and with `Acquire` it publishes no more than a load does.
#[inline]
fn load(word: &AtomicU64) -> u64 {
    #[cfg(not(loom))]
    let value = word.load(SeqCst);
    #[cfg(loom)]
    let value = word.fetch_or(0, crate::sync::Ordering::Acquire);
    value
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
