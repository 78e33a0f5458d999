//! A route netlink socket that only listens.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Multicast groups: links, IPv4 addresses, IPv6 addresses.
const GROUPS: libc::c_int = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

/// Opens a socket that hears of changes of links and addresses; non-blocking, closed on exec.
pub(crate) fn watch_links_and_addresses() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: why needed: no safe wrapper in the standard library. Why sound: no pointers.
    let fd = syscall!(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: why needed: takes ownership of a raw descriptor. Why sound: just opened, nobody else
    // knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: why needed: the type has no constructor. Why sound: it is integers, for all of which
    // zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
    address.nl_groups = GROUPS.cast_unsigned();
    let len = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
    // SAFETY: why needed: `bind` takes a pointer and a length. Why sound: they are those of
    // `address`, which outlives the call.
    syscall!(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}
