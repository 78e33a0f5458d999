//! Memory that can be registered: owned, page-aligned, and reached only by copies.
//!
//! Registered memory is volatile: a peer may write to it at any time. So it never appears as a
//! slice; see [`crate::Mr::read`] and [`crate::Mr::write`]. A buffer may be registered several
//! times, also in several domains; it lives until the last region and the last handle are gone.

use crate::error::{Reason, Result};
use srdma_core::mem::{HostBuf, HostFault, HostRange};
use std::sync::Arc;

/// Owned memory to register.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub(crate) range: HostRange,
}

impl Buffer {
    /// `len` zeroed bytes.
    pub fn zeroed(len: usize) -> Result<Self> {
        Ok(Self {
            range: Self::alloc(len).map_err(|fault| Reason::Host(fault).of("alloc"))?,
        })
    }

    /// A copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> Result<Self> {
        let buffer = Self::zeroed(bytes.len())?;
        // In range: the buffer has just that length.
        let _ = buffer.range.write(0, bytes);
        Ok(buffer)
    }

    fn alloc(len: usize) -> core::result::Result<HostRange, HostFault> {
        let buf: Arc<HostBuf> = HostBuf::new(len)?;
        Ok(buf.range())
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.range.len()
    }

    /// True for a buffer of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

/// What [`crate::Pd::register`] takes: a buffer, or bytes to be moved into one.
///
/// Everything but a [`Buffer`] is copied once, since the memory of a region must be the device's
/// to write at any time.
pub trait IntoBuffer {
    /// The buffer.
    fn into_buffer(self) -> Result<Buffer>;
}

impl IntoBuffer for Buffer {
    fn into_buffer(self) -> Result<Buffer> {
        Ok(self)
    }
}

impl IntoBuffer for &Buffer {
    fn into_buffer(self) -> Result<Buffer> {
        Ok(self.clone())
    }
}

impl IntoBuffer for Vec<u8> {
    fn into_buffer(self) -> Result<Buffer> {
        Buffer::from_slice(&self)
    }
}

impl IntoBuffer for Box<[u8]> {
    fn into_buffer(self) -> Result<Buffer> {
        Buffer::from_slice(&self)
    }
}

impl IntoBuffer for &[u8] {
    fn into_buffer(self) -> Result<Buffer> {
        Buffer::from_slice(self)
    }
}
