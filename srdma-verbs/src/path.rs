//! Where a connection or a datagram goes: the address vector of verbs.
//!
//! A path names our own address by its index in the GID table and the peer's by its GID. Routing
//! and link addresses are the kernel's business and have no place here.

use srdma_core::obj::port::Gid;

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

    /// Index of our own address.
    #[must_use]
    pub const fn gid_index(&self) -> u8 {
        self.gid_index
    }
}
