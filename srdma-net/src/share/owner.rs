//! Whose a UDP port is, for error messages: the kernel lists the user of every socket.

use std::fs;
use std::net::IpAddr;

/// The user who has `port` on `addr` (or on all addresses).
pub(crate) fn of_port(addr: IpAddr, port: u16) -> Option<u32> {
    let file = if addr.is_ipv6() {
        "/proc/thread-self/net/udp6"
    } else {
        "/proc/thread-self/net/udp"
    };
    let table = fs::read_to_string(file).ok()?;
    table.lines().find_map(|line| user_of(line, addr, port))
}

/// The user in `line` if it is about `addr` and `port`.
///
/// ```text
///   sl  local_address rem_address st tx:rx tr:tm retrnsmt uid …
///    1: 0100007F:12B7 00000000:0000 07 …                 1000
/// ```
fn user_of(line: &str, addr: IpAddr, port: u16) -> Option<u32> {
    let mut fields = line.split_whitespace();
    let (local, number) = fields.nth(1)?.split_once(':')?;
    let fits = local == hex(addr) || local.bytes().all(|digit| digit == b'0');
    let same = u16::from_str_radix(number, 16).ok()? == port;
    (fits && same).then(|| fields.nth(5)?.parse().ok())?
}

/// The address as the kernel lists it: 32-bit words as they lie in memory.
fn hex(addr: IpAddr) -> String {
    let octets = match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let words = octets.as_chunks::<4>().0.iter();
    words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect()
}

/// The name of a user, or the number.
pub(crate) fn name(user: u32) -> String {
    let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    known.unwrap_or_else(|| user.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::lock;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn the_owner_of_a_port_is_found() {
        for addr in [crate::testing::address(), "::1".parse().unwrap()] {
            let Ok(socket) = UdpSocket::bind((addr, 0)) else {
                continue;
            };
            let port = socket.local_addr().unwrap().port();
            assert_eq!(of_port(addr, port), Some(lock::user()), "{addr}");
            drop(socket);
            assert_eq!(of_port(addr, port), None, "{addr}");
        }
        assert_eq!(name(0), "root");
        assert_eq!(name(4_000_000_001), "4000000001");
    }

    #[test]
    fn a_socket_on_all_addresses_counts() {
        let line = " 1: 00000000:12B7 00000000:0000 07 0:0 00:0 0 77 0 1 2 0 0";
        let addr = Ipv4Addr::new(10, 0, 0, 1).into();
        assert_eq!(user_of(line, addr, 4791), Some(77));
        assert_eq!(user_of(line, addr, 4792), None);
        assert_eq!(user_of("  sl  local_address rem_address", addr, 4791), None);
    }
}
