//! Host memory seen as words: what rings and shadow areas are made of.
//!
//! What it does *not* do: ring protocols (see `ring/`); here are bounds and the order of accesses.

use super::{HostBuf, HostFault};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Host memory seen as 64-bit words: ring entries and shadow areas.
///
/// Words hold little-endian values whatever the host's order. Every index is checked.
#[derive(Clone)]
pub struct HostWords {
    base: *mut u64,
    words: usize,
    _keep: Option<Arc<HostBuf>>,
}

// SAFETY: why needed: raw pointer. Why sound: kept alive by `_keep` or the contract of the range it
// came from; only atomic access.
unsafe impl Send for HostWords {}
// SAFETY: why needed: raw pointer. Why sound: all access is atomic.
unsafe impl Sync for HostWords {}

impl HostWords {
    /// The `words` words at `base`, aligned to eight bytes: `keep`, or the caller's range, holds
    /// them.
    pub(super) const fn of(base: *mut u64, words: usize, keep: Option<Arc<HostBuf>>) -> Self {
        Self {
            base,
            words,
            _keep: keep,
        }
    }

    /// Number of words.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.words
    }

    /// True without words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// The address of word 0.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.addr() as u64
    }

    /// The `count` words from `first` on, or that they are not inside.
    pub fn slice(&self, first: usize, count: usize) -> Result<Self, HostFault> {
        match first.checked_add(count) {
            Some(end) if end <= self.words => Ok(Self {
                base: self.base.wrapping_add(first),
                words: count,
                _keep: self._keep.clone(),
            }),
            _ => Err(HostFault::OutOfRange),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "ring index inside the ring");
        // SAFETY: why needed: ring words are shared with the other half. Why sound: inside the
        // range (asserted), aligned to eight bytes (constructors), alive while `self` is.
        unsafe { AtomicU64::from_ptr(self.base.wrapping_add(index)) }
    }

    /// The `count` words from `first` on, behind one check.
    #[inline]
    fn run(&self, first: usize, count: usize) -> &[AtomicU64] {
        if count == 0 {
            return &[];
        }
        assert!(
            first < self.words && count <= self.words - first,
            "ring entry inside the ring"
        );
        // SAFETY: why needed: ring words are shared with the other half. Why sound: all of them
        // inside the range (asserted), aligned to eight bytes (constructors), alive while `self`
        // is; an atomic word is laid out as the word itself.
        unsafe { core::slice::from_raw_parts(self.base.wrapping_add(first).cast(), count) }
    }

    /// Plain loads of the `N` words from `first` on.
    #[inline]
    #[must_use]
    pub fn load_run<const N: usize>(&self, first: usize) -> [u64; N] {
        let mut values = [0; N];
        for (value, word) in values.iter_mut().zip(self.run(first, N)) {
            *value = u64::from_le(word.load(Ordering::Relaxed));
        }
        values
    }

    /// Plain stores to the `N` words from `first` on.
    #[inline]
    pub fn store_run<const N: usize>(&self, first: usize, values: [u64; N]) {
        for (value, word) in values.into_iter().zip(self.run(first, N)) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Plain stores of one value to the `count` words from `first` on.
    #[inline]
    pub fn fill(&self, first: usize, count: usize, value: u64) {
        for word in self.run(first, count) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
    }

    /// Stores four words from `first` on, the last one with release: an entry and its header.
    #[inline]
    pub fn publish(&self, first: usize, [a, b, c, header]: [u64; 4]) {
        if let [at_a, at_b, at_c, at_header] = self.run(first, 4) {
            at_a.store(a.to_le(), Ordering::Relaxed);
            at_b.store(b.to_le(), Ordering::Relaxed);
            at_c.store(c.to_le(), Ordering::Relaxed);
            at_header.store(header.to_le(), Ordering::Release);
        }
    }

    /// Plain load of word `index`.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        u64::from_le(self.word(index).load(Ordering::Relaxed))
    }

    /// Load of word `index` that later loads may not overtake.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        u64::from_le(self.word(index).load(Ordering::Acquire))
    }

    /// Plain store of word `index`.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        self.word(index).store(value.to_le(), Ordering::Relaxed);
    }

    /// Store of word `index` that earlier stores may not be delayed past: publishes an entry.
    #[inline]
    pub fn store_release(&self, index: usize, value: u64) {
        self.word(index).store(value.to_le(), Ordering::Release);
    }
}
