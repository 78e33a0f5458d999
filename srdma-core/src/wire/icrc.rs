//! The invariant CRC: what the last four bytes of a packet must be.
//!
//! ```text
//!  8 × ff │ IP header, masked │ UDP header, masked │ BTH, byte 4 = ff │ ext │ payload │ pad
//!  └────── IcrcFlow: one word a flow ─────────────┘ └──────── Icrc: running sum ────────┘
//! ```
//!
//! A datagram socket shows neither the IPv4 identification nor the length fields, and need not:
//! CRC is linear, so each field that differs between packets of a flow adds a term of its own to
//! the sum over the rest, found in a table ([`IcrcFlow::start`]). The same linearity turned round
//! gives the identification of a received packet from the difference between the ICRC it carries
//! and the one computed for a guess ([`verify`]).
//!
//! No cache, no state; which identifications are believed: `hca::id_guard`. Not for networks that
//! rewrite addresses or ports.
//!
//! [RoCEv2 1.7, 7.4, 7.6]

mod poly;

#[cfg(test)]
mod tests;

use core::fmt;
use core::net::IpAddr;

use super::ICRC_LEN;
use super::flow::FlowTuple;
use super::opcode::BTH_LEN;

/// Bytes of the longest prefix: eight of ones, IPv6, UDP.
const PREFIX_MAX: usize = 8 + 40 + 8;
/// Bytes between the end of the IPv4 identification and the end of the UDP header.
const AFTER_ID: usize = 22;

/// What the ICRCs of all packets of a flow have in common. Cheap to make and to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcrcFlow {
    /// CRC register after the prefix, with length and identification zero, DF set.
    base: u32,
    /// An IPv6 flow: no identification.
    v6: bool,
}

impl IcrcFlow {
    /// Sums up a flow. IPv4 addresses written as IPv6 count as IPv4, unless only one of them is.
    // rule: roce-28
    #[must_use]
    pub fn new(flow: &FlowTuple) -> Self {
        let (source, target) = (flow.source.to_canonical(), flow.target.to_canonical());
        let mut prefix = Prefix {
            bytes: [0xff; PREFIX_MAX],
            len: 8,
        };
        let v6 = match (source, target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                // Version, TOS, length, identification, DF, TTL, protocol, checksum.
                prefix.put(&[0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                prefix.put(&source.octets());
                prefix.put(&target.octets());
                false
            }
            (source, target) => {
                // Version, traffic class and flow label, length, next header, hop limit.
                prefix.put(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                prefix.put(&octets_v6(source));
                prefix.put(&octets_v6(target));
                true
            }
        };
        prefix.put(&flow.source_port.to_be_bytes());
        prefix.put(&flow.target_port.to_be_bytes());
        prefix.put(&[0, 0, 0xff, 0xff]);
        let covered = prefix.bytes.get(..prefix.len).unwrap_or_default();
        Self {
            base: !crc32fast::hash(covered),
            v6,
        }
    }

    /// The sum up to the end of the BTH, whose byte 4 counts as ones, for a datagram of
    /// `datagram_len` bytes (BTH to ICRC) that travels with identification `ip_id`. IPv6 has none:
    /// the number is not used.
    #[inline]
    #[must_use]
    pub fn start(&self, datagram_len: usize, ip_id: u16, bth: &[u8; BTH_LEN]) -> Icrc {
        self.of_len(datagram_len).start(ip_id, bth)
    }

    /// What is common to the datagrams of one length.
    #[inline]
    #[must_use]
    pub fn of_len(&self, datagram_len: usize) -> IcrcLen {
        IcrcLen {
            base: self.register(datagram_len, 0),
            v6: self.v6,
        }
    }

    /// Whether the flow is one of IPv6.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.v6
    }

    /// The CRC register at the end of the UDP header.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "length fields have sixteen bits"
    )]
    fn register(&self, datagram_len: usize, ip_id: u16) -> u32 {
        // rule: roce-5
        let udp = (datagram_len + 8) as u16;
        if self.v6 {
            self.base ^ poly::field::<2>(udp) ^ poly::field::<42>(udp)
        } else {
            let total = udp.wrapping_add(20);
            self.base
                ^ poly::field::<2>(udp)
                ^ poly::field::<24>(total)
                ^ poly::field::<AFTER_ID>(ip_id)
        }
    }
}

/// What the ICRCs of all packets of a flow that have one length have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcrcLen {
    /// CRC register after the prefix, with identification zero.
    base: u32,
    v6: bool,
}

impl IcrcLen {
    /// The sum up to the end of the BTH: see [`IcrcFlow::start`].
    // rule: roce-11
    // rule: roce-12
    #[inline]
    #[must_use]
    pub fn start(&self, ip_id: u16, bth: &[u8; BTH_LEN]) -> Icrc {
        let id = if self.v6 {
            0
        } else {
            poly::field::<AFTER_ID>(ip_id)
        };
        Icrc::from_register(poly::update_bth(self.base ^ id, bth))
    }
}

/// The bytes that every packet of a flow begins with, as the ICRC sees them.
struct Prefix {
    bytes: [u8; PREFIX_MAX],
    len: usize,
}

impl Prefix {
    fn put(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        if let Some(slot) = self.bytes.get_mut(self.len..end) {
            slot.copy_from_slice(part);
        }
        self.len = end;
    }
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A running ICRC.
#[derive(Clone)]
pub struct Icrc {
    hasher: crc32fast::Hasher,
}

impl Icrc {
    #[inline]
    fn from_register(register: u32) -> Self {
        Self {
            hasher: crc32fast::Hasher::new_with_initial(!register),
        }
    }

    #[inline]
    fn register(&self) -> u32 {
        !self.hasher.clone().finalize()
    }

    /// Adds bytes of extension headers, payload or pad.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// The sum itself, for payload that only its owner can read.
    #[inline]
    pub const fn hasher(&mut self) -> &mut crc32fast::Hasher {
        &mut self.hasher
    }

    /// The four bytes that end the packet.
    // rule: roce-27
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        self.hasher.finalize().to_le_bytes()
    }
}

impl fmt::Debug for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Icrc({:#010x})", self.register())
    }
}

/// The ICRC of the same packet under another identification (IPv4 only): what a packet needs when
/// it moves to another slot of a segmented send.
// rule: roce-40
#[must_use]
pub fn resign(
    icrc: [u8; ICRC_LEN],
    datagram_len: usize,
    old_id: u16,
    new_id: u16,
) -> [u8; ICRC_LEN] {
    let behind = datagram_len.saturating_sub(ICRC_LEN);
    let term = poly::shift(poly::field::<AFTER_ID>(old_id ^ new_id), behind);
    (u32::from_le_bytes(icrc) ^ term).to_le_bytes()
}

/// What [`verify`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "every receiver decides about all three"
)]
pub enum IcrcCheck {
    /// Intact. The identification is 0 on IPv6.
    Good {
        /// IPv4 identification.
        ip_id: u16,
    },
    /// Intact, but sent with leave to fragment.
    DfClear {
        /// IPv4 identification.
        ip_id: u16,
    },
    /// Corrupted, or of another flow.
    Bad,
}

/// Checks one datagram, BTH to ICRC.
///
/// `id_hint` is the datagram's index in its receive buffer, which is the identification that a
/// sender like us gave it; a right guess saves the solver's few nanoseconds and nothing else. On
/// IPv4 any identification is accepted, at the price of sixteen of the ICRC's bits.
// rule: roce-26
// rule: roce-29
// rule: roce-34
// rule: roce-35
// rule: roce-36
// rule: roce-37
#[inline]
#[must_use]
pub fn verify(flow: &IcrcFlow, datagram: &[u8], id_hint: u16) -> IcrcCheck {
    let Some((covered, icrc)) = datagram.split_last_chunk::<ICRC_LEN>() else {
        return IcrcCheck::Bad;
    };
    let Some((bth, rest)) = covered.split_first_chunk::<BTH_LEN>() else {
        return IcrcCheck::Bad;
    };
    let register = poly::update_bth(flow.register(datagram.len(), id_hint), bth);
    let mut sum = Icrc::from_register(register);
    sum.bytes(rest);
    let difference = u32::from_le_bytes(sum.finish()) ^ u32::from_le_bytes(*icrc);
    if difference == 0 {
        return IcrcCheck::Good {
            ip_id: if flow.v6 { 0 } else { id_hint },
        };
    }
    if flow.v6 {
        return IcrcCheck::Bad;
    }
    solve(difference, covered.len(), id_hint)
}

/// Explains a difference between two ICRCs by the four bytes of identification and flags, if those
/// can be the cause. `covered` bytes follow the UDP header.                     [RoCEv2 7.4]
fn solve(difference: u32, covered: usize, guess: u16) -> IcrcCheck {
    // Two bytes behind the identification, the flags, are in the solved word; the rest is undone.
    let [id_hi, id_lo, flags, fragment] =
        poly::unshift(difference, covered + AFTER_ID + 2).to_le_bytes();
    let ip_id = u16::from_be_bytes([id_hi, id_lo]) ^ guess;
    match (flags, fragment) {
        (0, 0) => IcrcCheck::Good { ip_id },
        (0x40, 0) => IcrcCheck::DfClear { ip_id },
        _ => IcrcCheck::Bad,
    }
}
