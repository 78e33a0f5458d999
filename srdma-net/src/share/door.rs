//! The door: packets of peers elsewhere, for the processes of this address.
//!
//! ```text
//! passed on    header | the packets as they came, one or several of `stride` bytes
//! header       magic 0..8 | family 8 | TOS 9 | TTL 10 | 0 | source port 12..14 | stride 14..16
//!              first 16..18 | block of the sender 18..20 | source address 20..36
//! ```
//!
//! What the ICRC covers comes with the packets, so the receiver checks them as if they had come to
//! port 4791 of its own. It believes only a process that the registry of the address knows, by the
//! port that it sends from, which nobody else can send from meanwhile. The first byte of the magic
//! is no opcode, so nothing is mistaken for a packet.
//!
//! Numbers of nobody, of the first block (QP1) and of multicast stay with the process at the door.

use super::{RESERVED, Share};
use crate::rx::ecn;
use crate::socket::{ROCE_PORT, RoceSocket};
use crate::sys::addr::{narrow, widen};
use srdma_core::hca::ports::{BLOCKS, block_of};
use srdma_core::num::Qpn;
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 8] = *b"\xffsrdma\x01\0";
const HEADER: usize = 36;
/// Packets passed on at once: what fits a datagram.
const ROOM: usize = 65_000;
/// How long an answer of the registry holds.
const VALID_NS: u64 = 10_000_000;

/// What has gone through the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DoorCounters {
    /// Datagrams handed to other processes.
    pub(crate) passed: u64,
    /// Those that found no room there.
    pub(crate) lost: u64,
    /// Datagrams that another process handed to us.
    pub(crate) taken: u64,
    /// Those that came from nobody we know.
    pub(crate) refused: u64,
}

/// An answer of the registry.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The port of the process; 0 for nobody else's.
    port: u16,
    until: Instant,
}

/// The door of a device.
#[derive(Debug, Default)]
pub(crate) struct Door {
    /// By address of the device and block; nothing before the first packet for somebody else.
    known: Vec<Vec<Known>>,
    counters: DoorCounters,
}

impl Door {
    pub(crate) const fn counters(&self) -> DoorCounters {
        self.counters
    }

    /// Sorts a buffer that came to port 4791 of address `at`: what is ours goes to `ours`, the rest
    /// to whom it is for.
    pub(crate) fn sort(
        &mut self,
        share: &Share,
        (at, socket): (usize, &RoceSocket),
        now: Instant,
        (meta, bytes): (&RxMeta, &[u8]),
        mut ours: impl FnMut(&RxMeta, &[u8]),
    ) {
        let (mut start, mut current) = (0, None);
        for (index, packet) in bytes.chunks(meta.stride.max(1)).enumerate() {
            let to = self.route(share, (at, socket), packet, now);
            if index > 0 && to != current {
                let end = index * meta.stride;
                self.flush(share, socket, current, (meta, bytes, start, end), &mut ours);
                start = end;
            }
            current = to;
        }
        let whole = (meta, bytes, start, bytes.len());
        self.flush(share, socket, current, whole, &mut ours);
    }

    /// The port of the process that a packet is for; `None` if that is us.
    fn route(
        &mut self,
        share: &Share,
        (at, socket): (usize, &RoceSocket),
        packet: &[u8],
        now: Instant,
    ) -> Option<u16> {
        let [_, _, _, _, _, a, b, c, ..] = packet else {
            return None;
        };
        let block = block_of(Qpn::new(u32::from_be_bytes([0, *a, *b, *c])));
        if share.has(block) || RESERVED.contains(&block) {
            return None;
        }
        if self.known.len() <= at {
            let empty = || vec![Known::default(); usize::from(BLOCKS)];
            self.known.resize_with(at + 1, empty);
        }
        let known = self.known.get_mut(at)?.get_mut(usize::from(block))?;
        if known.until <= now {
            let port = share.neighbour(socket.local(), block).unwrap_or(0);
            let until = now.after(VALID_NS);
            *known = Known { port, until };
        }
        (known.port != 0).then_some(known.port)
    }

    /// The datagrams in `start..end` of a buffer go where `to` says.
    fn flush(
        &mut self,
        share: &Share,
        socket: &RoceSocket,
        to: Option<u16>,
        (meta, bytes, start, end): (&RxMeta, &[u8], usize, usize),
        ours: &mut impl FnMut(&RxMeta, &[u8]),
    ) {
        let Some(part) = bytes.get(start..end.min(bytes.len())) else {
            return;
        };
        let stride = meta.stride.max(1);
        let meta = RxMeta {
            first: meta.first.wrapping_add(count(start / stride)),
            ..*meta
        };
        let Some(port) = to else {
            return ours(&meta, part);
        };
        let target = SocketAddr::new(socket.local(), port);
        let many = (ROOM / stride).max(1);
        for (index, piece) in part.chunks(many.saturating_mul(stride)).enumerate() {
            let first = meta.first.wrapping_add(count(index * many));
            let header = encode(&RxMeta { first, ..meta }, share.name());
            let packets = piece.len().div_ceil(stride) as u64;
            match socket.send_parts(&[&header, piece], target) {
                Ok(()) => self.counters.passed += packets,
                Err(_) => self.counters.lost += packets,
            }
        }
    }

    /// Takes a buffer that came to our own port: as it is, or out of what was passed on.
    pub(crate) fn unpack(
        &mut self,
        share: &Share,
        (meta, bytes): (&RxMeta, &[u8]),
        mut ours: impl FnMut(&RxMeta, &[u8]),
    ) {
        if bytes.first() != MAGIC.first() {
            return ours(meta, bytes);
        }
        for datagram in bytes.chunks(meta.stride.max(1)) {
            match decode(datagram, meta.local) {
                Some((inner, block, packets)) => {
                    let known = share.neighbour(meta.local, block);
                    let trusted = meta.source.ip() == meta.local;
                    if trusted && known == Some(meta.source.port()) {
                        let stride = inner.stride.max(1);
                        self.counters.taken += packets.len().div_ceil(stride) as u64;
                        ours(&inner, packets);
                    } else {
                        self.counters.refused += 1;
                    }
                }
                None => ours(meta, datagram),
            }
        }
    }
}

fn count(packets: usize) -> u16 {
    u16::try_from(packets).unwrap_or(u16::MAX)
}

/// The header for packets of `meta`, from the process that has `block`.
fn encode(meta: &RxMeta, block: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let stride = count(meta.stride);
    let (family, addr) = widen(meta.source.ip());
    let bytes = MAGIC
        .into_iter()
        .chain([family, meta.tclass, meta.hop_limit, 0])
        .chain(meta.source.port().to_le_bytes())
        .chain(stride.to_le_bytes())
        .chain(meta.first.to_le_bytes())
        .chain(block.to_le_bytes())
        .chain(addr.octets());
    header
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = from);
    header
}

/// What was passed on to `local`, and by whom; `None` if nothing was.
fn decode(bytes: &[u8], local: IpAddr) -> Option<(RxMeta, u16, &[u8])> {
    let (header, packets) = bytes.split_first_chunk::<HEADER>()?;
    let (magic, header) = header.split_first_chunk::<8>()?;
    let (flags, header) = header.split_first_chunk::<4>()?;
    let (numbers, addr) = header.split_first_chunk::<8>()?;
    let [family, tclass, hop_limit, _] = *flags;
    let [p0, p1, s0, s1, f0, f1, b0, b1] = *numbers;
    let addr = narrow(family, Ipv6Addr::from(*addr.first_chunk::<16>()?))?;
    let stride = usize::from(u16::from_le_bytes([s0, s1]));
    if *magic != MAGIC || stride == 0 || packets.is_empty() || addr.is_ipv4() != local.is_ipv4() {
        return None;
    }
    let meta = RxMeta {
        source: SocketAddr::new(addr, u16::from_le_bytes([p0, p1])),
        local,
        port: ROCE_PORT,
        ecn: ecn(tclass),
        tclass,
        hop_limit,
        stride,
        first: u16::from_le_bytes([f0, f1]),
    };
    Some((meta, u16::from_le_bytes([b0, b1]), packets))
}

#[cfg(test)]
mod tests;
