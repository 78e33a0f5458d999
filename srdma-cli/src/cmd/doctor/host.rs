//! What the kernel tells of itself in `/proc`: settings, and the addresses of this machine.
//!
//! Files that are missing or not understood give nothing: `doctor` says less then.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A setting of `/proc/sys/net/core`.
pub(super) fn core_setting(name: &str) -> Option<u64> {
    let text = read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Addresses that a device can have: global ones and loopback.
pub(super) fn addresses() -> Vec<IpAddr> {
    let v4 = read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let v6 = read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let v4 = parse_fib_trie(&v4).into_iter().map(IpAddr::V4);
    let mut all: Vec<IpAddr> = v4.collect();
    all.extend(parse_if_inet6(&v6).into_iter().map(IpAddr::V6));
    all
}

/// The port of RoCEv2 is bound somewhere: the lines of `/proc/net/udp` and `udp6` that have it.
///
/// A socket of the kernel (as that of rdma_rxe) has no owner that `/proc/PID/fd` would show.
pub(super) fn port_inodes(port: u16) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for file in ["/proc/net/udp", "/proc/net/udp6"] {
        inodes.extend(parse_udp(&read_to_string(file).unwrap_or_default(), port));
    }
    inodes
}

/// Processes that have one of the sockets open: id and name.
pub(super) fn owners(inodes: &BTreeSet<u64>) -> Vec<String> {
    let names: BTreeSet<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let Some(pid) = path
            .file_name()
            .and_then(|name| name.to_str()?.parse::<u32>().ok())
        else {
            continue;
        };
        let files = std::fs::read_dir(path.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        if links.any(|link| link.to_str().is_some_and(|link| names.contains(link))) {
            let name = read_to_string(path.join("comm")).unwrap_or_default();
            found.push(format!("{} (process {pid})", name.trim()));
        }
    }
    found
}

/// Is the kernel module loaded?
pub(super) fn module_loaded(name: &str) -> bool {
    let modules = read_to_string("/proc/modules").unwrap_or_default();
    modules
        .lines()
        .any(|line| line.split_whitespace().next() == Some(name))
}

/// Local host addresses of the routing table: a line with the address, then `/32 host LOCAL`.
fn parse_fib_trie(text: &str) -> BTreeSet<Ipv4Addr> {
    let mut found = BTreeSet::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.contains("/32 host LOCAL") {
            found.extend(last);
        }
    }
    found
}

/// Lines: address as 32 hex digits, interface number, prefix length, scope, flags, name.
fn parse_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let lines = text.lines().filter_map(|line| {
        let hex = line.split_whitespace().next()?;
        (hex.len() == 32).then_some(())?;
        u128::from_str_radix(hex, 16).ok().map(Ipv6Addr::from)
    });
    lines.filter(|addr| !addr.is_unicast_link_local()).collect()
}

/// Inodes of the sockets bound to `port`. Columns: number, local address:port, …, the tenth inode.
fn parse_udp(text: &str, port: u16) -> Vec<u64> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let bound = words.nth(1)?.rsplit(':').next()?;
        let bound = u16::from_str_radix(bound, 16).ok()?;
        let inode = words.nth(7)?.parse().ok()?;
        (bound == port).then_some(inode)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let trie = "Main:\n  |-- 127.0.0.0\n     /8 host LOCAL\n  |-- 127.0.0.1\n     \
                    /32 host LOCAL\n  |-- 10.0.0.255\n     /32 link BROADCAST\n";
        assert_eq!(parse_fib_trie(trie), BTreeSet::from([Ipv4Addr::LOCALHOST]));
        let v6 = "00000000000000000000000000000001 01 80 10 80       lo\n\
                  fe800000000000000000000000000001 02 40 20 80     eth0\nshort\n";
        assert_eq!(parse_if_inet6(v6), [Ipv6Addr::LOCALHOST]);
        let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                   uid  timeout inode ref pointer drops\n 101: 0100007F:12B7 00000000:0000 07 \
                   00000000:00000000 00:00000000 00000000     0        0 12345 2 0000 0\n";
        assert_eq!(parse_udp(udp, 4791), [12_345]);
        assert_eq!(parse_udp(udp, 4792), [0; 0]);
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
