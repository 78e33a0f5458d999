//! Where a connection or a datagram goes: the address vector of verbs.
//!
//! A path names our own address by its index in the GID table and the peer's by its GID. Routing
//! and link addresses are the kernel's business and have no place here.

use srdma_core::obj::port::Gid;
use std::net::Ipv4Addr;

/// The way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Path {
    pub(crate) dest: Gid,
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
}

impl Path {
    /// To `dest`, from our address with index `gid_index`; 64 hops, best effort.
    #[must_use]
    pub const fn new(dest: Gid, gid_index: u8) -> Self {
        Self {
            dest,
            gid_index,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }

    /// Back to where a datagram came from, by the 40 bytes in front of it; `None` if they hold no
    /// network header.                                               [RoCEv2 1.9]
    ///
    /// `gid_index` is the index of our address that the datagram was sent to.
    // rule: roce-123
    #[must_use]
    pub fn reply_to(header: &[u8; 40], gid_index: u8) -> Option<Self> {
        let [first, class, ..] = *header;
        if first >> 4 == 6 {
            let source: [u8; 16] = header.get(8..24)?.try_into().ok()?;
            let class = (first << 4) | (class >> 4);
            return Some(Self::new(Gid(source), gid_index).traffic_class(class & !3));
        }
        // An IPv4 header stands in the last twenty bytes.
        let [version, class, ..] = *header.get(20..)? else {
            return None;
        };
        if version != 0x45 {
            return None;
        }
        let source: [u8; 4] = header.get(32..36)?.try_into().ok()?;
        let source = Gid::from(Ipv4Addr::from(source));
        Some(Self::new(source, gid_index).traffic_class(class & !3))
    }

    /// How many routers a packet may pass.
    #[must_use]
    pub const fn hop_limit(mut self, hops: u8) -> Self {
        self.hop_limit = hops;
        self
    }

    /// TOS or traffic class of the packets. The two low bits belong to the transport.
    #[must_use]
    pub const fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }

    /// Flow label; 20 bits count.
    #[must_use]
    pub const fn flow_label(mut self, label: u32) -> Self {
        self.flow_label = label & 0xf_ffff;
        self
    }

    /// The peer.
    #[must_use]
    pub const fn dest(&self) -> Gid {
        self.dest
    }

    /// How many routers a packet may pass.
    #[must_use]
    pub const fn used_hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// TOS or traffic class.
    #[must_use]
    pub const fn used_traffic_class(&self) -> u8 {
        self.traffic_class
    }

    /// Flow label.
    #[must_use]
    pub const fn used_flow_label(&self) -> u32 {
        self.flow_label
    }

    /// Index of our own address.
    #[must_use]
    pub const fn gid_index(&self) -> u8 {
        self.gid_index
    }
}
