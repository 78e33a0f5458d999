//! What a ring needs of its memory: 64-bit words with plain, acquire and release access.
//!
//! [`HostWords`] in the device; an array of loom's atomics in models. No bounds are checked here
//! beyond those of the implementations.

use crate::mem::HostWords;

/// Words that two ends share.
pub trait Words {
    /// Number of words.
    fn len(&self) -> usize;
    /// True without words.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Plain load.
    fn load(&self, index: usize) -> u64;
    /// Load that later loads may not overtake.
    fn load_acquire(&self, index: usize) -> u64;
    /// Plain store.
    fn store(&self, index: usize, value: u64);
    /// Plain stores to the `N` words from `index` on.
    #[inline]
    fn store_run<const N: usize>(&self, index: usize, values: [u64; N]) {
        for (word, value) in values.into_iter().enumerate() {
            self.store(index + word, value);
        }
    }
    /// Plain stores of one value to `count` words from `index` on.
    #[inline]
    fn fill(&self, index: usize, count: usize, value: u64) {
        for word in index..index + count {
            self.store(word, value);
        }
    }
    /// Store that earlier accesses may not be delayed past.
    fn store_release(&self, index: usize, value: u64);
    /// Plain loads of the `N` words from `first` on.
    #[inline]
    fn load_run<const N: usize>(&self, first: usize) -> [u64; N] {
        core::array::from_fn(|word| self.load(first + word))
    }
    /// Stores four words from `first` on, the last one with release.
    #[inline]
    fn publish(&self, first: usize, [a, b, c, last]: [u64; 4]) {
        self.store(first, a);
        self.store(first + 1, b);
        self.store(first + 2, c);
        self.store_release(first + 3, last);
    }
}

impl Words for HostWords {
    #[inline]
    fn len(&self) -> usize {
        Self::len(self)
    }
    #[inline]
    fn load(&self, index: usize) -> u64 {
        Self::load(self, index)
    }
    #[inline]
    fn load_acquire(&self, index: usize) -> u64 {
        Self::load_acquire(self, index)
    }
    #[inline]
    fn store(&self, index: usize, value: u64) {
        Self::store(self, index, value);
    }
    #[inline]
    fn store_run<const N: usize>(&self, index: usize, values: [u64; N]) {
        Self::store_run(self, index, values);
    }
    #[inline]
    fn fill(&self, index: usize, count: usize, value: u64) {
        Self::fill(self, index, count, value);
    }
    #[inline]
    fn store_release(&self, index: usize, value: u64) {
        Self::store_release(self, index, value);
    }
    #[inline]
    fn load_run<const N: usize>(&self, first: usize) -> [u64; N] {
        Self::load_run(self, first)
    }
    #[inline]
    fn publish(&self, first: usize, words: [u64; 4]) {
        Self::publish(self, first, words);
    }
}
