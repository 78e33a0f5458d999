//! What a send batch looks like: gather entries, runs, and the batch that lends them out.
//!
//! ```text
//! TxBatch   runs  [ Run | Run | … ]          one GSO send each
//!           segs  [ seam | payload | seam | payload | … ]     iovec layout
//! ```

pub mod arena;
pub(crate) mod path;
pub(crate) mod payload;

pub use arena::{TxArena, TxLimits};

use core::marker::PhantomData;
use core::ops::Range;
use std::net::{IpAddr, SocketAddr};

/// One entry of a gather list: same layout as `struct iovec`, never a Rust reference.
///
/// The address is kept as a number (its provenance exposed), so that an arena can move between the
/// threads that take turns driving the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Seg<'a> {
    base: usize,
    len: usize,
    _life: PhantomData<&'a ()>,
}

impl Seg<'_> {
    /// An entry from its parts; `mem::Span` and the arena are the only callers.
    #[must_use]
    pub(crate) fn from_raw(base: *const u8, len: usize) -> Self {
        Self {
            base: base.expose_provenance(),
            len,
            _life: PhantomData,
        }
    }

    /// The first byte. Reading it is up to whoever can prove the lifetime (the kernel, `net/sys`).
    #[must_use]
    pub fn base(&self) -> *const u8 {
        core::ptr::with_exposed_provenance(self.base)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for an entry of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One GSO send: all packets `segment_len` long, the last one maybe shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where to: UDP port 4791, or that of a process on this machine.
    pub target: SocketAddr,
    /// The local address to send from (its socket's bound address).
    pub local: IpAddr,
    /// IPv4 TOS or IPv6 traffic class, ECN bits included.
    pub tclass: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Length of every packet but maybe the last, in bytes of UDP payload.
    pub segment_len: u16,
    /// Number of packets.
    pub packets: u16,
    /// UDP payload of all packets together, in bytes.
    pub bytes: u32,
    /// One of the packets is of a service without acknowledgements: nobody counts how many of them
    /// are under way.
    pub unreliable: bool,
    /// This run's entries in [`TxBatch::segs`].
    pub segs: Range<u32>,
}

/// Names one batch between `poll_transmit` and `handle_transmitted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxToken(pub u64);

/// Borrowed from the device *and* the arena: while it lives, no region can be released.
#[derive(Debug)]
pub struct TxBatch<'a> {
    /// The sends, in order.
    pub runs: &'a [Run],
    /// All gather entries of all runs.
    pub segs: &'a [Seg<'a>],
    /// To be handed back with the number of runs that left.
    pub token: TxToken,
}
