//! A wire in memory in place of the sockets: for tests of the whole stack on a simulated network.
//!
//! ```text
//! device → send(batch) → outbox → take ─┐ network of the test: loses, delays, routes
//! device ← receive ←──── inbox ← deliver┘
//! ```
//!
//! It does what the kernel does: cuts a run into datagrams with the IP IDs that the kernel would
//! give them, merges datagrams of one flow on receive if asked to, and drops what finds no room.
//! Unlike the kernel, which miscuts in silence, it insists that runs are well-formed: a run that is
//! not is our own bug.

use crate::offload::{MAX_BYTES_V4, MAX_BYTES_V6};
use crate::rx::ecn;
use crate::sys::gather;
use crate::tx::{Sent, part, segs};
use bytes::{Bytes, BytesMut};
use srdma_core::rx::RxMeta;
use srdma_core::tx::{Run, TxBatch};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Datagrams that each direction holds if nothing is configured.
pub const LINK_CAPACITY: usize = 4096;
/// Datagrams merged at most, as in the kernel.                       [RoCEv2 7.7]
const MAX_MERGED: usize = 64;

/// One UDP datagram on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub target: SocketAddr,
    /// TOS or traffic class.
    pub tclass: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification: the packet's index in its run. DF is set.
    pub ip_id: u16,
    /// UDP payload.
    pub bytes: Bytes,
}

impl Datagram {
    /// May be merged behind `first`: same flow, same header, not longer.
    fn joins(&self, first: &Self) -> bool {
        (self.source, self.target) == (first.source, first.target)
            && (self.tclass, self.hop_limit) == (first.tclass, first.hop_limit)
            && self.bytes.len() <= first.bytes.len()
    }
}

/// The device's end and the network's end of a wire.
#[derive(Debug)]
pub struct WireLink {
    addresses: Vec<SocketAddr>,
    capacity: usize,
    merge: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outbox: VecDeque<Datagram>,
    inbox: VecDeque<Datagram>,
    dropped_full: u64,
}

impl WireLink {
    /// A wire for a device with these local addresses, each with the port that it sends from.
    ///
    /// `capacity`: datagrams that each direction holds; `merge`: receive merged, as with GRO.
    #[must_use]
    pub fn new(addresses: &[SocketAddr], capacity: usize, merge: bool) -> Arc<Self> {
        let addresses = addresses.to_vec();
        Arc::new(Self {
            addresses,
            capacity,
            merge,
            state: Mutex::default(),
        })
    }

    /// The device's local addresses, each with the port that it sends from.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The device's end: sends a batch. Blocked if the rest finds no room in the outbox.
    ///
    /// # Panics
    ///
    /// If a run is malformed.
    pub fn send(&self, batch: &TxBatch<'_>) -> Sent {
        let mut state = self.state();
        for (index, run) in batch.runs.iter().enumerate() {
            let room = self.capacity.saturating_sub(state.outbox.len());
            // A run larger than the whole box may use it alone, else it would wait for ever.
            if usize::from(run.packets) > room && !state.outbox.is_empty() {
                return Sent {
                    runs: index,
                    blocked: true,
                };
            }
            state.outbox.extend(self.cut(batch, run));
        }
        Sent {
            runs: batch.runs.len(),
            blocked: false,
        }
    }

    /// The device's end: the next datagram, or several merged.
    pub fn receive(&self) -> Option<(RxMeta, Bytes)> {
        let mut state = self.state();
        let first = state.inbox.pop_front()?;
        let stride = first.bytes.len();
        let meta = RxMeta {
            source: first.source,
            local: first.target.ip(),
            port: first.target.port(),
            ecn: ecn(first.tclass),
            tclass: first.tclass,
            hop_limit: first.hop_limit,
            stride,
            first: 0,
        };
        let joins = |next: &Datagram| self.merge && stride > 0 && next.joins(&first);
        if !state.inbox.front().is_some_and(joins) {
            return Some((meta, first.bytes));
        }
        let limit = usize::try_from(byte_limit(first.target.ip())).unwrap_or(usize::MAX);
        let mut merged = BytesMut::from(&first.bytes[..]);
        for _ in 1..MAX_MERGED {
            let fits = |next: &Datagram| joins(next) && merged.len() + next.bytes.len() <= limit;
            let Some(next) = state.inbox.pop_front_if(|next| fits(next)) else {
                break;
            };
            merged.extend_from_slice(&next.bytes);
            if next.bytes.len() < stride {
                break;
            }
        }
        Some((meta, merged.freeze()))
    }

    /// The network's end: the oldest datagram that was sent.
    pub fn take(&self) -> Option<Datagram> {
        self.state().outbox.pop_front()
    }

    /// The network's end: delivers a datagram; dropped and counted if the inbox is full.
    pub fn deliver(&self, datagram: Datagram) {
        let mut state = self.state();
        if state.inbox.len() < self.capacity {
            state.inbox.push_back(datagram);
        } else {
            state.dropped_full += 1;
        }
    }

    /// Datagrams dropped because the inbox was full.
    #[must_use]
    pub fn dropped_full(&self) -> u64 {
        self.state().dropped_full
    }

    /// Something waits at the device's end.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.state().inbox.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The datagrams of one run; none if the wire has not its local address.
    fn cut<'a>(
        &self,
        batch: &'a TxBatch<'a>,
        run: &'a Run,
    ) -> impl Iterator<Item = Datagram> + use<'a> {
        let list = segs(batch, run);
        let total: usize = list.iter().map(|seg| seg.len()).sum();
        assert_eq!(Some(total), usize::try_from(run.bytes).ok(), "{run:?}");
        let packets = run.bytes.div_ceil(u32::from(run.segment_len.max(1))).max(1);
        assert_eq!(packets, u32::from(run.packets), "{run:?}");
        assert!(run.bytes <= byte_limit(run.target.ip()), "{run:?}");
        let mut all = BytesMut::with_capacity(total);
        gather::append(&mut all, list);
        let all = all.freeze();
        let source = self
            .addresses
            .iter()
            .find(|addr| addr.ip() == run.local)
            .copied();
        source.into_iter().flat_map(move |source| {
            let all = all.clone();
            (0..run.packets).map(move |ip_id| {
                let (start, len) = part(run, ip_id);
                Datagram {
                    source,
                    target: run.target,
                    tclass: run.tclass,
                    hop_limit: run.hop_limit,
                    ip_id,
                    bytes: all.slice(start..start + len),
                }
            })
        })
    }
}

const fn byte_limit(target: IpAddr) -> u32 {
    if target.is_ipv6() {
        MAX_BYTES_V6
    } else {
        MAX_BYTES_V4
    }
}

#[cfg(test)]
mod tests;
