//! The largest RoCEv2 MTU that the interfaces of a device carry.
//!
//! ```text
//! interface   1500   4200   9000   65536
//! RoCEv2      1024   4096   4096    4096       payload; up to 84 bytes of headers stand around it
//! ```
//!
//! A port has one MTU, so the smallest of its interfaces counts. What lies behind the first router
//! is not looked at: a program that knows better sets the path MTU of its queue pairs.

use crate::interface;
use std::net::IpAddr;

/// IPv6, UDP, BTH, RETH, immediate, ICRC: the most that stands around a full payload.
const HEADERS: usize = 40 + 8 + 12 + 16 + 4 + 4;
/// Of an interface that tells nothing: what every Ethernet carries.
const ETHERNET: usize = 1500;
/// Of loopback, where nothing else is known.
const LOOPBACK: usize = 65_536;

/// The MTU of a device with these addresses.
pub(crate) fn of_addresses(addrs: &[IpAddr]) -> u16 {
    let bytes = addrs.iter().map(|addr| of_interface(*addr)).min();
    of_packet(bytes.unwrap_or(ETHERNET))
}

/// The MTU for IP packets of `bytes` bytes.
fn of_packet(bytes: usize) -> u16 {
    let room = bytes.saturating_sub(HEADERS);
    let fits = |mtu: &u16| usize::from(*mtu) <= room;
    [4096, 2048, 1024, 512]
        .into_iter()
        .find(fits)
        .unwrap_or(256)
}

/// Bytes of an IP packet on the interface that has `addr`.
fn of_interface(addr: IpAddr) -> usize {
    let known = interface::of(addr).and_then(|interface| interface.mtu());
    let usual = if addr.is_loopback() {
        LOOPBACK
    } else {
        ETHERNET
    };
    known.unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn interfaces_carry_what_fits() {
        let table = [
            (0, 256),
            (576, 256),
            (1280, 1024),
            (1500, 1024),
            (9000, 4096),
        ];
        for (bytes, mtu) in table {
            assert_eq!(of_packet(bytes), mtu, "{bytes}");
        }
        assert_eq!(of_packet(4096 + HEADERS), 4096);
        assert_eq!(of_packet(4096 + HEADERS - 1), 2048);
    }

    #[test]
    fn loopback_carries_full_packets() {
        for addr in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 77, 1, 2)] {
            assert_eq!(of_addresses(&[addr.into()]), 4096);
        }
        let foreign = IpAddr::from(Ipv4Addr::new(192, 0, 2, 77));
        assert_eq!(of_addresses(&[foreign, Ipv4Addr::LOCALHOST.into()]), 1024);
    }
}
