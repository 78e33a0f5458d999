//! What a record is made of.
//!
//! ```text
//! word 0   63:56 kind | 55:48 device | 47:32 words | 31:0 bytes
//! word 1   time
//! then     words, as the kind has them, and bytes, eight a word
//! ```

use crate::hca::board::Doorbell;
use crate::hw::wqe::MAX_WORDS;
use crate::num::{CqId, MsixVector, Qpn, SrqId};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

open_enum! {
    /// What a record tells.
    pub struct Kind: u8 {
        /// A device was opened; bytes: its name.
        DEVICE = 1,
        /// The driver half rang: which queue, its number.
        DOORBELL = 2,
        /// The device looked there.
        TAKEN = 3,
        /// A send WQE was fetched: QPN, index, words.
        WQE = 4,
        /// A receive WQE was taken: QPN, index, words.
        RQE = 5,
        /// A WQE of a shared receive queue was taken: its number, index, words.
        SRQE = 6,
        /// A control command was fetched: index, words.
        COMMAND = 7,
        /// A completion was written: CQ, slot, words, extension.
        CQE = 8,
        /// A completion event was written: CEQ, index, word.
        CEQE = 9,
        /// An asynchronous event was written: index, words.
        AEQE = 10,
        /// An arm word was written: CQ, word.
        ARM = 11,
        /// A vector fired.
        INTERRUPT = 12,
        /// A packet came in: its path, bytes from the BTH to the ICRC.
        IN = 13,
        /// A packet left.
        OUT = 14,
        /// The last packet of this device was dropped; bytes: the counter that moved.
        DROPPED = 15,
        /// A fault rule dropped a packet before the device saw it, or the network did.
        FAULT_IN = 16,
        /// A fault rule dropped a packet behind the device.
        FAULT_OUT = 17,
        /// A fault was injected into the device; bytes: which.
        INJECTED = 18,
        /// The program was given a completion event: CQ.
        EVENT = 19,
        /// The program acknowledged completion events: CQ, count.
        ACK = 20,
        /// The program was given an asynchronous event; bytes: which.
        ASYNC = 21,
        /// The program acknowledged asynchronous events: number of the object, count.
        ASYNC_ACK = 22,
        /// The driver half took a completion event off its queue: CQ.
        CEQE_READ = 23,
        /// The socket refused packets; they are sent again later: count.
        UNSENT = 24,
        /// Records were lost for want of room: count.
        LOST = 25,
        /// The last packet of this device left the fast path; bytes: the counter that moved.
        EXCEPTION = 26,
        /// A completion was written in the mlx5 dialect: CQ, slot, words.
        MLX5_CQE = 40,
        /// A completion or command event in that dialect: queue, index, words.
        MLX5_EQE = 41,
        /// An asynchronous event in that dialect: index, words.
        MLX5_ASYNC = 42,
        /// An arm in that dialect: CQ, what the register got.
        MLX5_ARM = 43,
        /// A completion was written in the hns dialect: CQ, slot, words.
        HNS_CQE = 44,
        /// A completion event in that dialect: queue, index, words.
        HNS_CEQE = 45,
        /// An asynchronous event in that dialect: index, words.
        HNS_AEQE = 46,
        /// An arm in that dialect: CQ, what the register got.
        HNS_ARM = 47,
    }
}

/// One record, as it was drained.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What it tells.
    pub kind: Kind,
    /// The device, by its number in this process; 0 if none was named.
    pub device: u8,
    /// When, in nanoseconds of the trace's clock.
    pub time_ns: u64,
    /// Its words.
    pub words: &'a [u64],
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl<'a> Record<'a> {
    pub(super) fn header(kind: Kind, device: u8, words: usize, bytes: usize) -> u64 {
        let words = u64::try_from(words).unwrap_or(0) & 0xffff;
        let bytes = u64::try_from(bytes).unwrap_or(0) & 0xffff_ffff;
        u64::from(kind.0) << 56 | u64::from(device) << 48 | words << 32 | bytes
    }

    /// Words of a record that begins with `first`.
    #[allow(clippy::cast_possible_truncation, reason = "16 and 32 bits")]
    pub(super) const fn words_of(first: u64) -> usize {
        2 + Self::counts(first).0 + Self::counts(first).1.div_ceil(8)
    }

    #[allow(clippy::cast_possible_truncation, reason = "16 and 32 bits")]
    const fn counts(first: u64) -> (usize, usize) {
        (
            (first >> 32 & 0xffff) as usize,
            (first & 0xffff_ffff) as usize,
        )
    }

    /// From the words of the ring; `None` if they are no record.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "eight bits are left")]
    pub fn parse(all: &'a [u64]) -> Option<Self> {
        let &[first, time_ns, ref body @ ..] = all else {
            return None;
        };
        let (words, bytes) = Self::counts(first);
        let (words, packed) = body.split_at_checked(words)?;
        let mut unpacked: Vec<u8> = packed.iter().flat_map(|word| word.to_le_bytes()).collect();
        if unpacked.len() < bytes {
            return None;
        }
        unpacked.truncate(bytes);
        Some(Self {
            kind: Kind((first >> 56) as u8),
            device: (first >> 48) as u8,
            time_ns,
            words,
            bytes: unpacked,
        })
    }

    /// Word `at`; 0 if there is none.
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// The words of a descriptor behind `skip` others.
    #[must_use]
    pub fn rest(&self, skip: usize) -> &'a [u64] {
        self.words.get(skip..).unwrap_or_default()
    }

    /// How the packet went, if this is one.
    #[must_use]
    pub fn path(&self) -> Option<PacketPath> {
        matches!(
            self.kind,
            Kind::IN | Kind::OUT | Kind::FAULT_IN | Kind::FAULT_OUT
        )
        .then(|| PacketPath::parse(self.words))
        .flatten()
    }
}

const _: () = assert!(MAX_WORDS + 2 < 0xffff, "a WQE fits a record");

/// Which queue a doorbell is of, and its number.
pub(super) fn doorbell_words(what: Doorbell) -> (u64, u64) {
    match what {
        Doorbell::Sq(qpn) => (0, qpn.value().into()),
        Doorbell::Cq(id) => (1, id.value().into()),
        Doorbell::CqAck(id) => (2, id.value().into()),
        Doorbell::Srq(id) => (3, id.value().into()),
        Doorbell::Cqp => (4, 0),
        Doorbell::Irq(vector) => (5, vector.0.into()),
        Doorbell::AeqAck { entries } => (6, entries.into()),
    }
}

/// The doorbell of two words.
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers as they were written"
)]
pub(super) const fn doorbell_of(which: u64, number: u64) -> Option<Doorbell> {
    let number = number as u32;
    Some(match which {
        0 => Doorbell::Sq(Qpn::new(number)),
        1 => Doorbell::Cq(CqId(number)),
        2 => Doorbell::CqAck(CqId(number)),
        3 => Doorbell::Srq(SrqId(number)),
        4 => Doorbell::Cqp,
        5 => Doorbell::Irq(MsixVector(number as u16)),
        6 => Doorbell::AeqAck { entries: number },
        _ => return None,
    })
}

le_word! {
    /// What was done to a packet, and what is known of it.
    pub struct PacketNote {
        /// A fault rule dropped it.
        dropped / with_dropped: bool = [0:0],
        /// It was sent or received once more than it should.
        duplicated / with_duplicated: bool = [1:1],
        /// It was held back behind later ones.
        reordered / with_reordered: bool = [2:2],
        /// It was held back.
        delayed / with_delayed: bool = [3:3],
        /// Bits were flipped.
        corrupted / with_corrupted: bool = [4:4],
        /// The ICRC fits no admissible header.
        bad_icrc / with_bad_icrc: bool = [8:8],
        /// It is no packet.
        malformed / with_malformed: bool = [9:9],
        /// How long it was held back.
        held_us / with_held_us: u32 = [63:32],
    }
}

impl PacketNote {
    /// Nothing was done.
    pub const NONE: Self = Self::ZERO;

    /// What either says.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self::from_bits(self.bits() | other.bits())
    }

    /// What faults did to the packet, in words; empty if nothing.
    #[must_use]
    pub fn faults(self) -> String {
        let held = format!("held back {} us", self.held_us());
        let parts = [
            (self.dropped(), "dropped"),
            (self.duplicated(), "duplicate"),
            (self.corrupted(), "bits flipped"),
            (self.reordered(), "reordered"),
            (self.held_us() > 0 || self.delayed(), &*held),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(set, _)| *set)
            .map(|part| part.1)
            .collect();
        parts.join(", ")
    }
}

/// The headers in front of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPath {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub target: SocketAddr,
    /// TOS or traffic class.
    pub tclass: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification.
    pub ip_id: u16,
    /// What was done to it.
    pub note: PacketNote,
}

impl PacketPath {
    /// The words of a packet's record, with `note`.
    #[must_use]
    pub fn words(&self, note: PacketNote) -> [u64; 6] {
        let [a, b] = ip_words(self.source.ip());
        let [c, d] = ip_words(self.target.ip());
        let [s0, s1] = self.source.port().to_be_bytes();
        let [t0, t1] = self.target.port().to_be_bytes();
        let [i0, i1] = self.ip_id.to_be_bytes();
        let rest = [s0, s1, t0, t1, i0, i1, self.tclass, self.hop_limit];
        [a, b, c, d, u64::from_be_bytes(rest), note.bits()]
    }

    fn parse(words: &[u64]) -> Option<Self> {
        let &[a, b, c, d, rest, note, ..] = words else {
            return None;
        };
        let [s0, s1, t0, t1, i0, i1, tclass, hop_limit] = rest.to_be_bytes();
        let port = |a, b| u16::from_be_bytes([a, b]);
        Some(Self {
            source: SocketAddr::new(ip_of(a, b), port(s0, s1)),
            target: SocketAddr::new(ip_of(c, d), port(t0, t1)),
            tclass,
            hop_limit,
            ip_id: port(i0, i1),
            note: PacketNote::from_bits(note),
        })
    }
}

fn ip_words(ip: IpAddr) -> [u64; 2] {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let [a, b, c, d, e, f, g, h, rest @ ..] = bits.octets();
    [
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes(rest),
    ]
}

fn ip_of(high: u64, low: u64) -> IpAddr {
    let bits = u128::from(high) << 64 | u128::from(low);
    IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
}
