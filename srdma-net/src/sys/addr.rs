//! Socket addresses as the kernel lays them out.
//!
//! ```text
//! IPv4   family 0..2 | port 2..4 (BE) | address 4..8   | zero 8..16
//! IPv6   family 0..2 | port 2..4 (BE) | flow 4..8 (BE) | address 8..24 | scope 24..28
//! ```
//!
//! Written and read as bytes, so nothing here is unsafe. No other families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address of either family in the room of the longer one: 4 or 6, and the address.
pub(crate) const fn widen(addr: IpAddr) -> (u8, Ipv6Addr) {
    match addr {
        IpAddr::V4(addr) => (4, addr.to_ipv6_mapped()),
        IpAddr::V6(addr) => (6, addr),
    }
}

/// The address that [`widen`] made this of; `None` if it made it of none.
pub(crate) fn narrow(family: u8, addr: Ipv6Addr) -> Option<IpAddr> {
    match family {
        4 => addr.to_ipv4_mapped().map(IpAddr::V4),
        6 => Some(IpAddr::V6(addr)),
        _ => None,
    }
}

/// Bytes of an IPv4 socket address.
const V4_LEN: u32 = 16;
/// Bytes of an IPv6 socket address.
const V6_LEN: u32 = 28;
/// Room for either.
const MAX_LEN: usize = size_of::<libc::sockaddr_in6>();

const _: () = assert!(size_of::<libc::sockaddr_in>() == 16 && MAX_LEN == 28);

/// One socket address in kernel form.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct Name([u8; MAX_LEN]);

impl Name {
    /// No address yet; room for the kernel to write one.
    pub(crate) const EMPTY: Self = Self([0; MAX_LEN]);
    /// The room that the kernel may fill.
    pub(crate) const ROOM: u32 = V6_LEN;

    /// Writes `addr`, and returns its length.
    pub(crate) fn set(&mut self, addr: &SocketAddr) -> u32 {
        let [f0, f1, p0, p1, rest @ ..] = &mut self.0;
        [*p0, *p1] = addr.port().to_be_bytes();
        match addr {
            SocketAddr::V4(v4) => {
                [*f0, *f1] = family(libc::AF_INET);
                let [a, b, c, d, zero @ ..] = rest;
                [*a, *b, *c, *d] = v4.ip().octets();
                zero.fill(0);
                V4_LEN
            }
            SocketAddr::V6(v6) => {
                [*f0, *f1] = family(libc::AF_INET6);
                let [l0, l1, l2, l3, rest @ ..] = rest;
                [*l0, *l1, *l2, *l3] = v6.flowinfo().to_be_bytes();
                if let Some((addr, scope)) = rest.split_first_chunk_mut::<16>() {
                    *addr = v6.ip().octets();
                    scope.copy_from_slice(&v6.scope_id().to_ne_bytes());
                }
                V6_LEN
            }
        }
    }

    /// Reads the address; `None` if `len` or the family is not what an IP socket returns.
    pub(crate) fn read(&self, len: u32) -> Option<SocketAddr> {
        let [f0, f1, p0, p1, rest @ ..] = &self.0;
        let port = u16::from_be_bytes([*p0, *p1]);
        if [*f0, *f1] == family(libc::AF_INET) && len >= V4_LEN {
            let [a, b, c, d, ..] = *rest;
            return Some(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).into());
        }
        if [*f0, *f1] == family(libc::AF_INET6) && len >= V6_LEN {
            let (flow, rest) = rest.split_first_chunk::<4>()?;
            let (addr, scope) = rest.split_first_chunk::<16>()?;
            let scope = u32::from_ne_bytes(*scope.first_chunk::<4>()?);
            let flow = u32::from_be_bytes(*flow);
            return Some(SocketAddrV6::new(Ipv6Addr::from(*addr), port, flow, scope).into());
        }
        None
    }
}

fn family(number: libc::c_int) -> [u8; 2] {
    libc::sa_family_t::try_from(number)
        .unwrap_or_default()
        .to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:4791", "[fd00::2]:49153", "[fe80::1%3]:4791"] {
            let addr: SocketAddr = text.parse().unwrap();
            let mut name = Name::EMPTY;
            let len = name.set(&addr);
            assert_eq!(name.read(len), Some(addr), "{text}");
            assert_eq!(name.read(4), None, "a short address is none");
        }
        assert_eq!(Name::EMPTY.read(Name::ROOM), None, "family 0 is none");
    }
}
