//! Memory that is reached by calls and not by pointers: it may be absent, or be nowhere at all.
//!
//! ```text
//! region on demand    the program's address space, or a part: mapped or not when it is used
//! null region         reads give zeros, writes are forgotten
//! ```
//!
//! A use that finds nothing is a protection error of its work request, as the page fault of a NIC
//! that nobody could serve. What this does *not* do: know how a process is asked for its memory
//! (the I/O half does).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// One atomic step on a 64-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the atomics of the transport")]
pub enum AtomicStep {
    /// Stores `new` if the word is `expected`.
    CompareSwap {
        /// What the word must be.
        expected: u64,
        /// What it becomes then.
        new: u64,
    },
    /// Adds, modulo 2^64.
    FetchAdd(u64),
    /// Stores.
    Store(u64),
}

impl AtomicStep {
    /// Takes the step on a word in host order: the value before.
    pub fn run(self, word: &AtomicU64) -> u64 {
        match self {
            Self::CompareSwap { expected, new } => {
                match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
            Self::FetchAdd(addend) => word.fetch_add(addend, Ordering::SeqCst),
            Self::Store(value) => word.swap(value, Ordering::SeqCst),
        }
    }
}

/// Reaches memory by address, and says if it is not there.
pub trait Pager: Send + Sync + fmt::Debug {
    /// Fills `bytes` from `addr` on; false if some of it cannot be read, and then `bytes` has any
    /// content.
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool;

    /// Puts `bytes` in from `addr` on; false if some of it cannot be written, and then some of the
    /// bytes may be there.
    fn write(&self, addr: u64, bytes: &[u8]) -> bool;

    /// Makes `len` bytes from `addr` on ready for use, for writing too if `write`; false if some of
    /// them cannot be used so.
    fn prefetch(&self, addr: u64, len: u64, write: bool) -> bool;

    /// One step on the word at `addr`, a multiple of eight: the value before.
    fn atomic(&self, addr: u64, step: AtomicStep) -> Option<u64>;
}

/// The memory of a null region.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Nowhere;

impl Pager for Nowhere {
    fn read(&self, _: u64, bytes: &mut [u8]) -> bool {
        bytes.fill(0);
        true
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        true
    }

    fn prefetch(&self, _: u64, _: u64, _: bool) -> bool {
        true
    }

    fn atomic(&self, _: u64, _: AtomicStep) -> Option<u64> {
        Some(0)
    }
}
