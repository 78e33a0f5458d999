//! The port: link state, GID table, P_Key table, MTU.
//!
//! ```text
//! gid   16 bytes; an IPv4 address as ::ffff:a.b.c.d                 [RoCEv2 A17.4.5.1]
//! slot  gid │ local address │ UDP source port of everything sent from it (the ICRC covers it)
//! ```
//!
//! What this does *not* do: find addresses or open sockets; whoever owns the sockets enters them.

use crate::limits::MAX_GIDS;
use crate::num::Pkey;
use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Entries of the P_Key table: the default partition and nothing else.  [E810 1.7]
pub const PKEYS: [Pkey; 1] = [Pkey::DEFAULT];

/// A global identifier: an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address behind it; a mapped IPv4 address comes back as IPv4.
    #[must_use]
    pub const fn addr(self) -> IpAddr {
        Ipv6Addr::from_octets(self.0).to_canonical()
    }

    /// True for the empty entry of a table.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<IpAddr> for Gid {
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(addr: Ipv4Addr) -> Self {
        Self(addr.to_ipv6_mapped().octets())
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", self.addr())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from_octets(self.0).fmt(f)
    }
}

/// One entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The identifier.
    pub gid: Gid,
    /// The local address, as the sockets know it.
    pub addr: IpAddr,
    /// UDP source port of every packet from this address.
    pub tx_port: u16,
}

/// Why an address could not be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GidError {
    /// All slots are taken.
    #[error("the GID table is full")]
    Full,
    /// The address is in the table.
    #[error("the address is in the GID table")]
    Duplicate,
}

/// The GID table. An index keeps its meaning until its entry is removed.
#[derive(Clone, Debug)]
pub struct GidTable {
    slots: [Option<GidEntry>; MAX_GIDS],
}

impl Default for GidTable {
    fn default() -> Self {
        Self {
            slots: [None; MAX_GIDS],
        }
    }
}

impl GidTable {
    /// The entry at `index`.
    #[must_use]
    pub fn get(&self, index: u8) -> Option<&GidEntry> {
        self.slots.get(usize::from(index))?.as_ref()
    }

    /// The entry of a local address.
    #[must_use]
    pub fn find(&self, addr: IpAddr) -> Option<(u8, &GidEntry)> {
        self.iter().find(|(_, entry)| entry.addr == addr)
    }

    /// Enters an address at the first free index.
    pub fn add(&mut self, addr: IpAddr, tx_port: u16) -> Result<u8, GidError> {
        let addr = addr.to_canonical();
        if self.find(addr).is_some() {
            return Err(GidError::Duplicate);
        }
        let free = self
            .slots
            .iter()
            .position(Option::is_none)
            .ok_or(GidError::Full)?;
        let slot = self.slots.get_mut(free).ok_or(GidError::Full)?;
        *slot = Some(GidEntry {
            gid: addr.into(),
            addr,
            tx_port,
        });
        u8::try_from(free).map_err(|_| GidError::Full)
    }

    /// Puts an entry at an index, or takes it away; true if that is a change. An address that
    /// stands at another index, or an index beyond the table, changes nothing.
    pub fn set(&mut self, index: u8, entry: Option<(IpAddr, u16)>) -> bool {
        let entry = entry.map(|(addr, tx_port)| {
            let addr = addr.to_canonical();
            GidEntry {
                gid: addr.into(),
                addr,
                tx_port,
            }
        });
        let elsewhere = entry.is_some_and(|entry| {
            self.find(entry.addr)
                .is_some_and(|(other, _)| other != index)
        });
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return false;
        };
        if elsewhere || *slot == entry {
            return false;
        }
        *slot = entry;
        true
    }

    /// Takes an entry out.
    pub fn remove(&mut self, index: u8) -> Option<GidEntry> {
        self.slots.get_mut(usize::from(index))?.take()
    }

    /// All entries with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &GidEntry)> {
        (0u8..)
            .zip(&self.slots)
            .filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }
}

/// Whether the port carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LinkState {
    /// The network interface is down.
    #[default]
    Down,
    /// The network interface is up.
    Active,
}

/// Path MTU: payload bytes of one packet.                              [IBTA 9.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Every MTU, smallest first.
    pub const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// Payload bytes.
    #[must_use]
    pub const fn bytes(self) -> u16 {
        128 << self as u16
    }

    /// The largest one of at most `bytes` payload bytes.
    #[must_use]
    pub fn at_most(bytes: usize) -> Option<Self> {
        Self::ALL
            .into_iter()
            .rev()
            .find(|mtu| usize::from(mtu.bytes()) <= bytes)
    }

    /// The MTU of exactly `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

/// The port of the device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Local addresses.
    pub gids: GidTable,
    /// Largest path MTU that the network interface carries.
    pub mtu: Mtu,
    link: LinkState,
    bad_pkeys: u16,
    bad_qkeys: u16,
}

impl Port {
    /// A port that is up, without addresses.
    #[must_use]
    pub fn new(mtu: Mtu) -> Self {
        let gids = GidTable::default();
        Self {
            gids,
            mtu,
            link: LinkState::Active,
            bad_pkeys: 0,
            bad_qkeys: 0,
        }
    }

    /// Whether it carries packets.
    #[must_use]
    pub const fn link(&self) -> LinkState {
        self.link
    }

    /// Sets the link state; true if that is a change, and so an event.  [events 2.4]
    pub fn set_link(&mut self, link: LinkState) -> bool {
        let changed = self.link != link;
        self.link = link;
        changed
    }

    /// True if the table holds a P_Key that matches `pkey`.
    #[must_use]
    pub fn matches_pkey(&self, pkey: Pkey) -> bool {
        PKEYS.iter().any(|own| own.matches(pkey))
    }

    /// A packet carried a wrong P_Key. The count stays at its end.
    pub const fn count_bad_pkey(&mut self) {
        self.bad_pkeys = self.bad_pkeys.saturating_add(1);
    }

    /// A datagram carried a wrong Q_Key. The count stays at its end.
    pub const fn count_bad_qkey(&mut self) {
        self.bad_qkeys = self.bad_qkeys.saturating_add(1);
    }

    /// Packets with a wrong P_Key, up to 0xFFFF.
    #[must_use]
    pub const fn bad_pkeys(&self) -> u16 {
        self.bad_pkeys
    }

    /// Datagrams with a wrong Q_Key, up to 0xFFFF.
    #[must_use]
    pub const fn bad_qkeys(&self) -> u16 {
        self.bad_qkeys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_addresses() {
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let gid = Gid::from(v4);
        assert_eq!(
            gid.0,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]
        );
        assert_eq!(gid.addr(), v4);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(Gid::from(v6).addr(), v6);
        assert!(Gid::default().is_zero());
    }

    #[test]
    fn table_keeps_indices() {
        let mut table = GidTable::default();
        let addr = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        for last in 0..32 {
            assert_eq!(table.add(addr(last), 0xc000), Ok(last));
        }
        assert_eq!(table.add(addr(99), 0xc000), Err(GidError::Full));
        assert_eq!(table.add(addr(5), 0xc000), Err(GidError::Duplicate));
        assert_eq!(table.remove(5).map(|entry| entry.addr), Some(addr(5)));
        assert_eq!(table.find(addr(31)).map(|(index, _)| index), Some(31));
        assert_eq!(table.add(addr(99), 0xc001), Ok(5));
        assert_eq!(table.get(200), None);
        let before = (addr(99), 0xc001);
        assert!(!table.set(5, Some(before)), "no change");
        assert!(table.set(5, None) && !table.set(5, None));
        assert!(!table.set(5, Some((addr(31), 1))), "stands elsewhere");
        assert!(table.set(5, Some(before)));
        assert!(!table.set(32, Some((addr(100), 1))), "beyond the table");
    }

    #[test]
    fn mtus() {
        assert_eq!(Mtu::ALL.map(Mtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!(Mtu::at_most(1500 - 60), Some(Mtu::B1024));
        assert_eq!(Mtu::at_most(100), None);
        assert_eq!(Mtu::from_bytes(4096), Some(Mtu::B4096));
    }

    #[test]
    fn link_edges_only() {
        let mut port = Port::new(Mtu::B1024);
        assert!(!port.set_link(LinkState::Active));
        assert!(port.set_link(LinkState::Down));
        assert!(port.matches_pkey(Pkey(0x7fff)) && !port.matches_pkey(Pkey(0xfffe)));
    }
}
