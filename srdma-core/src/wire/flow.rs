//! What the IP layer carries beside the packet: addresses, ports, ECN.
//!
//! A datagram socket neither writes nor reads IP headers, but the ICRC covers part of them; the
//! [`FlowTuple`] is that part. The IPv4 identification is not in it: it differs per packet.
//!
//! [RoCEv2 1.1, 1.7]

use core::net::IpAddr;

/// The UDP port of RoCEv2.                                                     [RoCEv2 1.1]
pub const ROCE_PORT: u16 = 4791;

/// Explicit congestion notification: the low two bits of the traffic class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(u8)]
#[allow(clippy::exhaustive_enums, reason = "two bits have four values")]
pub enum Ecn {
    /// Not capable.
    #[default]
    NotEct = 0,
    /// Capable, the other codepoint.
    Ect1 = 1,
    /// Capable, the usual codepoint.
    Ect0 = 2,
    /// A router on the path met congestion.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in the low two bits of a TOS or traffic class byte.
    #[must_use]
    pub const fn from_traffic_class(byte: u8) -> Self {
        match byte & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Addresses and ports of a datagram. Both addresses are of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a datagram has these four")]
pub struct FlowTuple {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub target: IpAddr,
    /// UDP port of the sender: any value.
    pub source_port: u16,
    /// UDP port of the receiver.
    pub target_port: u16,
}

impl FlowTuple {
    /// The flow from `source` to the RoCE port of `target`.
    #[must_use]
    pub const fn to_roce(source: IpAddr, source_port: u16, target: IpAddr) -> Self {
        Self {
            source,
            target,
            source_port,
            target_port: ROCE_PORT,
        }
    }
}
