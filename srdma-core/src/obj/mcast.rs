//! Multicast groups: which UD queue pairs hear which address.
//!
//! ```text
//! GID  ::ffff:a.b.c.d  ff0e::ffff:a.b.c.d  ──► IPv4 a.b.c.d      [RoCEv2 4.6]
//! GID  ff..::          ──► IPv6 itself
//! ```
//!
//! What this does *not* do: join the group on a socket; `attach` and `detach` only say when the
//! first member came and the last one left.

use crate::limits::{MAX_MCAST, MAX_QP_PER_MCAST};
use crate::num::Qpn;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a queue pair cannot join or leave a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McastFault {
    /// The address is not a multicast address.
    #[error("not a multicast address")]
    NotMulticast,
    /// The queue pair is a member already.
    #[error("queue pair is attached already")]
    Duplicate,
    /// The group has as many members as it may have.
    #[error("no room for another queue pair in the group")]
    GroupFull,
    /// As many groups as the device may have.
    #[error("no room for another group")]
    Full,
    /// The queue pair is no member of the group.
    #[error("queue pair is not attached")]
    NotAttached,
}

/// The groups of the device and their members.
#[derive(Debug, Default)]
pub struct McastTable {
    groups: BTreeMap<IpAddr, Vec<Qpn>>,
}

impl McastTable {
    /// Without groups.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            groups: BTreeMap::new(),
        }
    }

    /// Attaches a queue pair; true if it is the group's first member.
    pub fn attach(&mut self, group: IpAddr, qpn: Qpn) -> Result<bool, McastFault> {
        let group = canonical(group);
        if !group.is_multicast() {
            return Err(McastFault::NotMulticast);
        }
        if !self.groups.contains_key(&group) && self.groups.len() >= MAX_MCAST {
            return Err(McastFault::Full);
        }
        let members = self.groups.entry(group).or_default();
        if members.contains(&qpn) {
            return Err(McastFault::Duplicate);
        }
        if members.len() >= MAX_QP_PER_MCAST {
            return Err(McastFault::GroupFull);
        }
        members.push(qpn);
        Ok(members.len() == 1)
    }

    /// Detaches a queue pair; true if the group is empty and gone.
    pub fn detach(&mut self, group: IpAddr, qpn: Qpn) -> Result<bool, McastFault> {
        let group = canonical(group);
        let members = self.groups.get_mut(&group).ok_or(McastFault::NotAttached)?;
        let place = members
            .iter()
            .position(|m| *m == qpn)
            .ok_or(McastFault::NotAttached)?;
        members.remove(place);
        let last = members.is_empty();
        if last {
            self.groups.remove(&group);
        }
        Ok(last)
    }

    /// The members of a group, in the order they came; empty for an unknown group.
    #[must_use]
    pub fn members(&self, group: IpAddr) -> &[Qpn] {
        self.groups
            .get(&canonical(group))
            .map_or(&[], Vec::as_slice)
    }

    /// True if the queue pair is a member of any group: it must not be destroyed.
    #[must_use]
    pub fn is_attached(&self, qpn: Qpn) -> bool {
        // rule: roce-141
        self.groups.values().any(|members| members.contains(&qpn))
    }

    /// All groups with members.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.keys().copied()
    }
}

/// The IP address of a multicast GID.                               [RoCEv2 4.6]
///
/// `None` if the GID is not a multicast one.
#[must_use]
pub fn group_of_gid(gid: [u8; 16]) -> Option<IpAddr> {
    let group = canonical(IpAddr::V6(Ipv6Addr::from(gid)));
    group.is_multicast().then_some(group)
}

/// The GID of a group as RoCEv2 spells it: IPv4 addresses are mapped.
#[must_use]
pub const fn gid_of_group(group: IpAddr) -> [u8; 16] {
    match group {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// One spelling for each group: both IPv4 forms of a GID become the IPv4 address.
fn canonical(group: IpAddr) -> IpAddr {
    if let IpAddr::V6(v6) = group
        && let [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] = v6.octets()
    {
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    group.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));

    #[test]
    fn members_come_and_go() {
        // proves: roce-141
        let mut table = McastTable::new();
        assert_eq!(table.attach(GROUP, Qpn::new(5)), Ok(true));
        assert_eq!(table.attach(GROUP, Qpn::new(6)), Ok(false));
        assert_eq!(table.attach(GROUP, Qpn::new(5)), Err(McastFault::Duplicate));
        assert_eq!(table.members(GROUP), [Qpn::new(5), Qpn::new(6)]);
        assert!(table.is_attached(Qpn::new(6)) && !table.is_attached(Qpn::new(7)));
        assert_eq!(
            table.detach(GROUP, Qpn::new(7)),
            Err(McastFault::NotAttached)
        );
        assert_eq!(table.detach(GROUP, Qpn::new(5)), Ok(false));
        assert_eq!(table.detach(GROUP, Qpn::new(6)), Ok(true));
        assert_eq!(
            table.detach(GROUP, Qpn::new(6)),
            Err(McastFault::NotAttached)
        );
        assert_eq!(table.groups().count(), 0);
        assert!(table.members(GROUP).is_empty());
    }

    #[test]
    fn both_gid_forms_name_one_group() {
        let mapped: Ipv6Addr = "::ffff:239.1.2.3".parse().unwrap();
        let v1: Ipv6Addr = "ff0e::ffff:239.1.2.3".parse().unwrap();
        assert_eq!(group_of_gid(mapped.octets()), Some(GROUP));
        assert_eq!(group_of_gid(v1.octets()), Some(GROUP));
        assert_eq!(gid_of_group(GROUP), mapped.octets());
        let mut table = McastTable::new();
        table.attach(IpAddr::V6(v1), Qpn::new(5)).unwrap();
        assert_eq!(table.members(GROUP), [Qpn::new(5)]);
        let unicast: Ipv6Addr = "fd00::1".parse().unwrap();
        assert_eq!(group_of_gid(unicast.octets()), None);
        assert_eq!(
            table.attach(IpAddr::V6(unicast), Qpn::new(5)),
            Err(McastFault::NotMulticast)
        );
    }

    #[test]
    fn groups_and_members_are_bounded() {
        let mut table = McastTable::new();
        for n in 0..MAX_QP_PER_MCAST {
            table
                .attach(GROUP, Qpn::new(u32::try_from(n).unwrap()))
                .unwrap();
        }
        assert_eq!(
            table.attach(GROUP, Qpn::new(0xfffff)),
            Err(McastFault::GroupFull)
        );
        for n in 1..u32::try_from(MAX_MCAST).unwrap() {
            let group = IpAddr::V4(Ipv4Addr::from(0xe100_0000 + n));
            table.attach(group, Qpn::new(1)).unwrap();
        }
        let more = IpAddr::V4(Ipv4Addr::new(238, 0, 0, 1));
        assert_eq!(table.attach(more, Qpn::new(1)), Err(McastFault::Full));
        assert_eq!(table.attach(GROUP, Qpn::new(1)), Err(McastFault::Duplicate));
    }
}
