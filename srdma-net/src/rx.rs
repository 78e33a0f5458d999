//! The kernel to the device: one `recvmmsg` into a ring of buffers, lent out one by one.
//!
//! ```text
//! RxRing   [16 × 64 KiB]   each buffer: one datagram, or up to 64 KiB of merged ones (GRO)
//! ```
//!
//! A merged buffer is passed on whole, with its stride; the device takes it apart and checks each
//! segment alone. Nothing waits here, nothing is copied, nothing is allocated per call. While
//! packets are out of order the device may keep a buffer (`sys/slab.rs`).

use crate::socket::End;
use crate::sys::mmsg::{Incoming, RecvRing};
use srdma_core::rx::RxMeta;
use srdma_core::wire::flow::Ecn;
use std::sync::Arc;

/// Buffers of a ring if nothing is configured.
pub const RX_BUFFERS: usize = 16;
/// Most buffers of a ring: what the kernel takes in one call.
const MAX_BUFFERS: usize = 1024;

/// What the receiving side has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RxCounters {
    /// `recvmmsg` calls.
    pub calls: u64,
    /// Buffers received.
    pub buffers: u64,
    /// Buffers that held several datagrams.
    pub merged: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Datagrams that the kernel dropped because a receive buffer was full.
    pub dropped_full: u64,
    /// Buffers dropped because they or their control messages were cut off.
    pub dropped_truncated: u64,
    /// Datagrams without bytes: somebody on the bridge woke us.
    pub empty: u64,
    /// Errors of the receiving socket.
    pub errors: u64,
    /// Buffers that were kept for what waits in them.
    pub kept: u64,
}

/// Receive buffers of a device.
#[derive(Debug)]
pub struct RxRing {
    ring: RecvRing,
    metas: Vec<(usize, RxMeta)>,
    counters: RxCounters,
}

impl RxRing {
    /// A ring of `buffers` buffers (at least one), 64 KiB each.
    #[must_use]
    pub fn new(buffers: usize) -> Self {
        let buffers = buffers.clamp(1, MAX_BUFFERS);
        Self {
            ring: RecvRing::new(buffers),
            metas: Vec::with_capacity(buffers),
            counters: RxCounters::default(),
        }
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &RxCounters {
        &self.counters
    }

    /// Takes of what has arrived about as many buffers as lately came, up to the size of the ring;
    /// returns the number of filled ones. Zero: there was nothing.
    ///
    /// Buffers of the last call are gone. An error of
    /// the socket is counted: there is nobody to tell, and the transport repairs what was lost.
    pub fn receive(&mut self, socket: &End) -> usize {
        self.metas.clear();
        self.counters.calls += 1;
        let got = match self.ring.receive(socket.fd()) {
            Ok(got) => got,
            Err(error) => {
                let quiet = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
                self.counters.errors += u64::from(!quiet);
                return 0;
            }
        };
        self.counters.kept = self.ring.replaced();
        for index in 0..got {
            let Some(incoming) = self.ring.incoming(index) else {
                continue;
            };
            self.counters.buffers += 1;
            self.counters.bytes += incoming.bytes.len() as u64;
            if let Some(counter) = incoming.info.drops {
                self.counters.dropped_full += socket.note_drops(counter);
            }
            if incoming.bytes.is_empty() && !incoming.truncated {
                self.counters.empty += 1;
                continue;
            }
            match meta(socket, &incoming) {
                Some(meta) => {
                    self.counters.merged += u64::from(incoming.bytes.len() > meta.stride);
                    self.metas.push((index, meta));
                }
                None => self.counters.dropped_truncated += 1,
            }
        }
        got
    }

    /// The buffers of the last [`receive`](Self::receive), in order.
    pub fn datagrams(&self) -> impl Iterator<Item = (&RxMeta, &[u8])> {
        self.filled().map(|(_, buffer)| buffer)
    }

    /// The same, each with its place in the ring.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, (&RxMeta, &[u8]))> {
        self.metas
            .iter()
            .map(|(index, meta)| (*index, (meta, self.ring.bytes(*index))))
    }

    /// What the buffer at `index` lies in, for who wants to keep some of it; `None` while too much
    /// is kept.
    pub(crate) fn slab(&self, index: usize) -> Option<&Arc<[u8]>> {
        self.ring.slab(index)
    }
}

/// What the device is told of a buffer; `None` if part of it is missing.
fn meta(socket: &End, incoming: &Incoming<'_>) -> Option<RxMeta> {
    if incoming.truncated || incoming.bytes.is_empty() {
        return None;
    }
    let info = &incoming.info;
    Some(RxMeta {
        source: incoming.source?,
        local: info.local.unwrap_or(socket.local),
        port: socket.port,
        ecn: ecn(info.tclass),
        tclass: info.tclass,
        hop_limit: info.hop_limit,
        // rule: roce-159
        stride: info.stride.unwrap_or(incoming.bytes.len()),
        first: 0,
    })
}

/// The ECN bits of a TOS or traffic class.
pub(crate) const fn ecn(tclass: u8) -> Ecn {
    match tclass & 3 {
        0 => Ecn::NotEct,
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        _ => Ecn::Ce,
    }
}

#[cfg(test)]
mod tests;
