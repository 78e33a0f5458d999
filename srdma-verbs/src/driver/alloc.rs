//! Ring memory, and the places where memory of others enters: the only `unsafe` of this crate.
//!
//! ```text
//! RingMem    zeroed pages that both halves use; known to the device while the value lives
//! foreign    memory of the program, under its promise        Pd::register_foreign
//! slices     registered memory as a slice, under its promise Mr::as_slice, Mr::as_mut_slice
//! ```
//!
//! Reading and writing ring memory needs nothing unsafe: `HostWords` does that in the core.

use super::engine::Engine;
use crate::error::Result;
use crate::mr::Mr;
use crate::pd::Pd;
use core::fmt;
use srdma_core::mem::{Access, HostBuf, HostFault, HostRange, HostWords};
use std::sync::Arc;

/// Memory of rings and shadow areas. The device forgets its address when this is dropped; rings
/// that it has open keep it alive.
pub(crate) struct RingMem {
    buf: Arc<HostBuf>,
    engine: Engine,
}

impl RingMem {
    /// `len` zeroed bytes, page-aligned.
    pub(crate) fn new(engine: &Engine, len: usize) -> core::result::Result<Self, HostFault> {
        let buf = HostBuf::new(len)?;
        engine.with(|hca| hca.host_mut().insert_ring(Arc::clone(&buf)));
        Ok(Self {
            buf,
            engine: engine.clone(),
        })
    }

    /// The address of byte `offset`.
    pub(crate) fn addr(&self, offset: usize) -> u64 {
        self.buf.addr() + offset as u64
    }

    /// `len` bytes from `offset` on as words; both multiples of eight.
    pub(crate) fn words(
        &self,
        offset: usize,
        len: usize,
    ) -> core::result::Result<HostWords, HostFault> {
        self.buf.words().slice(offset / 8, len / 8)
    }
}

impl Drop for RingMem {
    fn drop(&mut self) {
        let addr = self.buf.addr();
        self.engine.with(|hca| hca.host_mut().remove_ring(addr));
    }
}

impl fmt::Debug for RingMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.buf.fmt(f)
    }
}

impl Pd {
    /// Registers memory that the program owns otherwise: a mapping, a static, a C buffer.
    ///
    /// # Safety
    ///
    /// `base..base + len` must stay mapped, readable, and writable where `access` allows writing,
    /// until the region is deregistered (see below), for use from any thread. While the region is
    /// registered and can be written to, no Rust reference to the memory may be live.
    ///
    /// Dropping the region deregisters it, unless windows are still bound to it: then the memory
    /// must stay for as long as the device is open.
    pub unsafe fn register_foreign(&self, base: *mut u8, len: usize, access: Access) -> Result<Mr> {
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let range = unsafe { HostRange::foreign(base, len) };
        Mr::create(self, range, base.addr() as u64, access)
    }

    /// As [`Self::register_foreign`], but peers and work requests know the first byte as `va`.
    ///
    /// # Safety
    ///
    /// As for [`Self::register_foreign`].
    pub unsafe fn register_foreign_at(
        &self,
        base: *mut u8,
        len: usize,
        va: u64,
        access: Access,
    ) -> Result<Mr> {
        // SAFETY: why needed: a raw pointer becomes a range that the device uses. Why sound: the
        // caller promises what `HostRange::foreign` asks for, until the device has let go.
        let range = unsafe { HostRange::foreign(base, len) };
        Mr::create(self, range, va, access)
    }
}

impl Mr {
    /// The region as a slice, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody may write to the region while the slice lives: no peer, no receive or READ in
    /// progress, no other handle to the same memory.
    #[must_use]
    pub unsafe fn as_slice(&self) -> &[u8] {
        let Ok(span) = self.range.span(0, self.range.len()) else {
            return &[];
        };
        if span.is_empty() {
            return &[];
        }
        // SAFETY: why needed: a view of memory that is shared with the device. Why sound: mapped
        // and of that length (the range's promise), alive while `self` is, and the caller promises
        // that nobody writes meanwhile.
        unsafe { core::slice::from_raw_parts(span.seg().base(), span.len()) }
    }

    /// The region as a mutable slice, without a copy.
    ///
    /// # Safety
    ///
    /// Nobody else may read or write the region while the slice lives: no peer, no work request in
    /// progress, no other handle to the same memory.
    #[must_use]
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        let Ok(span) = self.range.span(0, self.range.len()) else {
            return &mut [];
        };
        if span.is_empty() {
            return &mut [];
        }
        // SAFETY: why needed: a view of memory that is shared with the device. Why sound: mapped,
        // writable and of that length (the range's promise), alive while `self` is, and the caller
        // promises that it is the only user.
        unsafe { core::slice::from_raw_parts_mut(span.seg().base().cast_mut(), span.len()) }
    }
}
