//! Address handles: where a UD packet goes, under an id that a WQE can carry.
//!
//! ```text
//! UD WQE ──17-bit id──► AhTable ──► (domain, AddressVector)      [E810 2.8]
//! ```
//!
//! What this does *not* do: resolve link addresses; the kernel's routing does that below UDP.

use super::table::{Table, TableFault};
use crate::limits::MAX_AH;
use crate::num::{AhId, PdId};
use std::net::IpAddr;

/// The path of a packet: both addresses and what the IP header carries besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// Where packets go: a unicast or multicast address.
    pub target: IpAddr,
    /// Our own address that they leave from.
    pub local: IpAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// TOS or traffic class; its two low bits (ECN) are the transport's.
    pub tclass: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
}

impl AddressVector {
    /// A path between two addresses with hop limit 64 and nothing else set.
    #[must_use]
    pub const fn new(target: IpAddr, local: IpAddr) -> Self {
        Self {
            target,
            local,
            hop_limit: 64,
            tclass: 0,
            flow_label: 0,
        }
    }

    /// True if packets can be made of it: one address family, a real source and target.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.target.is_ipv4() == self.local.is_ipv4()
            && !self.target.is_unspecified()
            && !self.local.is_unspecified()
            && !self.local.is_multicast()
            && self.flow_label < 1 << 20
    }
}

/// Why a command on an address handle is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AhFault {
    /// No such handle.
    #[error("no such address handle")]
    NotFound,
    /// The handle is of another protection domain.
    #[error("address handle is of another protection domain")]
    BadPd,
    /// The addresses do not fit each other or are not addresses of hosts.
    #[error("address vector is not usable")]
    BadAddress,
    /// The id could not be taken.
    #[error(transparent)]
    Table(#[from] TableFault),
}

/// The address handles of the device.
#[derive(Debug)]
pub struct AhTable {
    handles: Table<(PdId, AddressVector)>,
}

impl Default for AhTable {
    fn default() -> Self {
        Self::new()
    }
}

impl AhTable {
    /// Without handles.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            handles: Table::new(MAX_AH),
        }
    }

    /// Takes an id, chosen by the driver half.
    pub fn create(&mut self, ah: AhId, pd: PdId, av: AddressVector) -> Result<(), AhFault> {
        check(ah, &av)?;
        self.handles.insert(ah.value(), (pd, av))?;
        Ok(())
    }

    /// Changes where a handle leads; packets already built are not touched.
    pub fn modify(&mut self, ah: AhId, pd: PdId, av: AddressVector) -> Result<(), AhFault> {
        check(ah, &av)?;
        let handle = self
            .handles
            .by_number_mut(ah.value())
            .ok_or(AhFault::NotFound)?;
        if handle.0 != pd {
            return Err(AhFault::BadPd);
        }
        handle.1 = av;
        Ok(())
    }

    /// Gives an id back and says which domain it was of.
    pub fn destroy(&mut self, ah: AhId) -> Result<PdId, AhFault> {
        self.handles
            .remove(ah.value())
            .map(|(pd, _)| pd)
            .ok_or(AhFault::NotFound)
    }

    /// The path of a handle, for a QP of domain `pd`.              [IBTA 10.2.2]
    pub fn resolve(&self, ah: AhId, pd: PdId) -> Result<&AddressVector, AhFault> {
        match self.handles.by_number(ah.value()) {
            None => Err(AhFault::NotFound),
            Some((owner, _)) if *owner != pd => Err(AhFault::BadPd),
            Some((_, av)) => Ok(av),
        }
    }

    /// Domain and path of a handle.
    #[must_use]
    pub fn query(&self, ah: AhId) -> Option<(PdId, AddressVector)> {
        self.handles.by_number(ah.value()).copied()
    }

    /// How many handles there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// True without handles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }
}

fn check(ah: AhId, av: &AddressVector) -> Result<(), AhFault> {
    if ah.value() >= MAX_AH {
        return Err(TableFault::OutOfRange.into());
    }
    if av.is_valid() {
        Ok(())
    } else {
        Err(AhFault::BadAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str, local: &str) -> AddressVector {
        AddressVector::new(target.parse().unwrap(), local.parse().unwrap())
    }

    #[test]
    fn a_handle_serves_its_domain_only() {
        let mut ahs = AhTable::new();
        let av = path("10.0.0.2", "10.0.0.1");
        ahs.create(AhId(7), PdId(3), av).unwrap();
        assert_eq!(ahs.resolve(AhId(7), PdId(3)), Ok(&av));
        assert_eq!(ahs.resolve(AhId(7), PdId(4)), Err(AhFault::BadPd));
        assert_eq!(ahs.resolve(AhId(8), PdId(3)), Err(AhFault::NotFound));
        let other = path("10.0.0.3", "10.0.0.1");
        assert_eq!(ahs.modify(AhId(7), PdId(4), other), Err(AhFault::BadPd));
        ahs.modify(AhId(7), PdId(3), other).unwrap();
        assert_eq!(ahs.query(AhId(7)), Some((PdId(3), other)));
        assert_eq!(ahs.destroy(AhId(7)), Ok(PdId(3)));
        assert!(ahs.is_empty());
    }

    #[test]
    fn unusable_paths_are_refused() {
        let mut ahs = AhTable::new();
        for (target, local) in [
            ("10.0.0.2", "fd00::1"),
            ("0.0.0.0", "10.0.0.1"),
            ("10.0.0.2", "0.0.0.0"),
            ("10.0.0.2", "224.0.0.5"),
        ] {
            let av = path(target, local);
            assert_eq!(
                ahs.create(AhId(1), PdId(3), av),
                Err(AhFault::BadAddress),
                "{av:?}"
            );
        }
        let wide = AddressVector {
            flow_label: 1 << 20,
            ..path("fd00::2", "fd00::1")
        };
        assert_eq!(ahs.create(AhId(1), PdId(3), wide), Err(AhFault::BadAddress));
        let good = path("ff0e::1", "fd00::1");
        let out = AhFault::Table(TableFault::OutOfRange);
        assert_eq!(ahs.create(AhId(MAX_AH), PdId(3), good), Err(out));
        assert_eq!(ahs.create(AhId(MAX_AH - 1), PdId(3), good), Ok(()));
    }
}
