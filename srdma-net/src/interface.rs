//! The network interfaces behind the addresses of a device: name, MTU, whether they carry packets.
//!
//! ```text
//! 10.0.0.7   eth0, which lists it
//! 127.0.0.9  lo, which lists 127.0.0.1/8: all of a loopback network is local
//! 192.0.2.1  none: bound by other means (`ip_nonlocal_bind`), or not ours
//! ```
//!
//! What the system says is asked each time; nothing is kept. That it has changed: `netlink.rs`.

use crate::sys::sockopt;
use if_addrs::IfAddr;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// An interface and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interface {
    /// The name, as `ip link` shows it.
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// It is the loopback interface.
    pub loopback: bool,
    /// The address means nothing without the interface's name.
    pub link_local: bool,
}

impl Interface {
    /// Bytes of the largest IP packet; `None` if the system does not say.
    #[must_use]
    pub fn mtu(&self) -> Option<usize> {
        let socket = socket(self.addr).ok()?;
        let mtu = sockopt::interface_mtu(socket.as_fd(), &self.name).ok()?;
        usize::try_from(mtu).ok()
    }

    /// Megabits a second of its cable; `None` for an interface without one, or that does not say.
    #[must_use]
    pub fn speed_mbps(&self) -> Option<u32> {
        // An alias has the cable of its interface.
        let name = self.name.split(':').next()?;
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
        text.trim().parse().ok().filter(|speed| *speed != 0)
    }

    /// It is switched on and has a cable; true if the system does not say.
    #[must_use]
    pub fn is_up(&self) -> bool {
        const CARRIES: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
        let flags = socket(self.addr)
            .and_then(|socket| sockopt::interface_flags(socket.as_fd(), &self.name));
        flags.map_or(true, |flags| flags & CARRIES == CARRIES)
    }
}

fn socket(addr: IpAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address((addr, 0).into()), Type::DGRAM, None)
}

/// Every address of this machine with its interface, in the system's order.
pub fn all() -> io::Result<Vec<Interface>> {
    let list = if_addrs::get_if_addrs()?;
    Ok(list.into_iter().map(Interface::from).collect())
}

/// The interface that `addr` belongs to.
#[must_use]
pub fn of(addr: IpAddr) -> Option<Interface> {
    Listing::new().ok()?.of(addr)
}

/// Whether a device with these addresses can carry packets: one of its interfaces is up.
#[must_use]
pub fn any_up(addrs: &[IpAddr]) -> bool {
    let Ok(listing) = Listing::new() else {
        return true;
    };
    addrs.is_empty() || addrs.iter().any(|addr| listing.is_up(*addr))
}

/// What the system said at one moment.
pub(crate) struct Listing(Vec<if_addrs::Interface>);

impl Listing {
    pub(crate) fn new() -> io::Result<Self> {
        if_addrs::get_if_addrs().map(Self)
    }

    /// The interface that `addr` belongs to.
    pub(crate) fn of(&self, addr: IpAddr) -> Option<Interface> {
        let listed = self.0.iter().find(|interface| interface.ip() == addr);
        let found = listed.or_else(|| {
            self.0
                .iter()
                .find(|interface| is_loopback_of(addr, interface))
        });
        let found = Interface::from(found?.clone());
        Some(Interface { addr, ..found })
    }

    /// The interface of `addr` is up, or nobody knows it.
    pub(crate) fn is_up(&self, addr: IpAddr) -> bool {
        self.of(addr).is_none_or(|interface| interface.is_up())
    }

    /// Addresses of the interface `name` that a device can have.
    pub(crate) fn addrs_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
        let own = self
            .0
            .iter()
            .filter(move |interface| interface.name == name && !interface.is_link_local());
        own.map(if_addrs::Interface::ip)
    }
}

/// All of a loopback network is local, though only one address of it is listed.
fn is_loopback_of(addr: IpAddr, interface: &if_addrs::Interface) -> bool {
    match (addr, &interface.addr) {
        (IpAddr::V4(addr), IfAddr::V4(own)) if own.ip.is_loopback() => {
            let mask = own.netmask.to_bits();
            addr.to_bits() & mask == own.ip.to_bits() & mask
        }
        _ => false,
    }
}

impl From<if_addrs::Interface> for Interface {
    fn from(interface: if_addrs::Interface) -> Self {
        Self {
            addr: interface.ip(),
            loopback: interface.is_loopback(),
            link_local: interface.is_link_local(),
            name: interface.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_one_interface() {
        let first = of(Ipv4Addr::LOCALHOST.into()).expect("there is loopback");
        let other = of(Ipv4Addr::new(127, 77, 1, 2).into()).expect("and all of it is local");
        assert_eq!(first.name, other.name);
        assert_eq!(other.addr, IpAddr::from(Ipv4Addr::new(127, 77, 1, 2)));
        assert!(other.loopback && other.is_up());
        assert!(
            other.mtu().is_some_and(|mtu| mtu >= 16_384),
            "{:?}",
            other.mtu()
        );
        let listed = all().expect("the system lists interfaces");
        assert!(listed.iter().any(|interface| interface.name == first.name));
    }

    #[test]
    fn a_foreign_address_has_none() {
        assert_eq!(of(Ipv4Addr::new(203, 0, 113, 77).into()), None);
        assert!(any_up(&[]) && any_up(&[Ipv4Addr::new(203, 0, 113, 77).into()]));
    }

    #[test]
    fn an_unknown_interface_says_nothing() {
        let interface = Interface {
            name: "none such".to_owned(),
            addr: Ipv4Addr::LOCALHOST.into(),
            loopback: false,
            link_local: false,
        };
        assert_eq!((interface.mtu(), interface.speed_mbps()), (None, None));
        assert!(interface.is_up());
    }
}
