//! What the device is told about a received buffer besides its bytes.

use crate::wire::flow::Ecn;
use std::net::{IpAddr, SocketAddr};

/// One received buffer: where it came from, and how many datagrams it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// Address and UDP port of the sender.
    pub source: SocketAddr,
    /// The local address it was sent to.
    pub local: IpAddr,
    /// The UDP port it was sent to; the ICRC covers it.
    pub port: u16,
    /// ECN bits of the IP header.
    pub ecn: Ecn,
    /// IPv4 TOS or IPv6 traffic class, whole byte.
    pub tclass: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Length of each datagram in the buffer but maybe the last (GRO); the buffer's length if one.
    pub stride: usize,
    /// What the first datagram counts as among those that were sent together: what the sender's
    /// kernel probably gave it as IPv4 identification.
    pub first: u16,
}
