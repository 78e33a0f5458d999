//! Memory that a driver's code works on.
//!
//! Its objects live in buffers that the rest of Rust reads as atomic words only, so no reference to
//! memory that the code changes is ever made.

use core::ffi::c_void;
use srdma_core::mem::{HostBuf, HostWords};
use std::sync::Arc;

/// Memory of one of the oracle's structures, or of an array that it uses.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    buf: Arc<HostBuf>,
    words: HostWords,
}

impl Object {
    /// Zeroed memory of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let buf = HostBuf::new(bytes).expect("memory for a test");
        let words = buf.words();
        Self { buf, words }
    }

    pub(crate) const fn words(&self) -> &HostWords {
        &self.words
    }

    #[cfg(oracle)]
    pub(crate) const fn buf(&self) -> &Arc<HostBuf> {
        &self.buf
    }

    pub(crate) fn addr(&self) -> u64 {
        self.buf.addr()
    }

    /// The pointer that the oracle gets.
    pub(crate) fn ptr(&self) -> *mut c_void {
        pointer(self.addr())
    }

    /// The four bytes at a byte offset.
    pub(crate) fn u32(&self, offset: usize) -> u32 {
        let word = self.words.load(offset / 8);
        (word >> (offset % 8 * 8)) as u32
    }

    /// Sets the four bytes at a byte offset.
    #[cfg(oracle_others)]
    pub(crate) fn set_u32(&self, offset: usize, value: u32) {
        let shift = offset % 8 * 8;
        let word = self.words.load(offset / 8) & !(0xffff_ffff << shift);
        self.words
            .store(offset / 8, word | u64::from(value) << shift);
    }

    /// Sets the eight bytes at a byte offset that is a multiple of eight.
    #[cfg(oracle_others)]
    pub(crate) fn set_u64(&self, offset: usize, value: u64) {
        self.words.store(offset / 8, value);
    }

    /// The byte at a byte offset.
    #[cfg(oracle)]
    pub(crate) fn u8(&self, offset: usize) -> u8 {
        self.words.load(offset / 8).to_le_bytes()[offset % 8]
    }
}

/// An address as the oracle takes it.
pub(crate) fn pointer(addr: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(addr as usize)
}
