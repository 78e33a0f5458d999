//! Access rights: the values of verbs, and how an E810 spells them.
//!
//! ```text
//! right               verbs      E810 bits            note
//! local read          (always)   0x01
//! local write         1          0x02
//! remote write        2          0x08 (with 0x02)
//! remote read         4          0x04 (with 0x01)
//! remote atomic       8          0x40                 ours: a separate bit of a WQE on GEN3
//! bind windows        16         0x10
//! zero based          32         0x20                 a separate bit of a CQP command
//! flush global        256        0x80                 ours
//! flush persistent    512        0x100                ours
//! relaxed ordering    1 << 20    0x200                ours
//! on demand, hugetlb  64, 128    none                 hints for the driver half only
//! ```
//!
//! What this does *not* do: compare rights with an operation (see `mr.rs`).

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// A set of access rights, in the bits of verbs.                     [RoCEv2 4.4]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u32);

/// Why a set of rights is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessFault {
    /// Remote write or remote atomic without local write.
    #[error("remote write and remote atomic need local write")]
    NeedsLocalWrite,
    /// A bit outside of the optional range that nobody knows.
    #[error("unknown access right")]
    Unknown,
}

/// Bits that verbs lets a provider ignore.                           [RoCEv2 4.4]
const OPTIONAL: u32 = 0x3ff0_0000;

/// The rights of the E810 that have a counterpart, and ours: (verbs, E810).
const HW: [(u32, u32); 9] = [
    (1, 0x02),
    (2, 0x08),
    (4, 0x04),
    (8, 0x40),
    (16, 0x10),
    (32, 0x20),
    (256, 0x80),
    (512, 0x100),
    (1 << 20, 0x200),
];

impl Access {
    /// Local read: every region has it, so it is the empty set.
    pub const LOCAL_READ: Self = Self(0);
    /// Our own scatter may write.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may WRITE.
    pub const REMOTE_WRITE: Self = Self(2);
    /// A peer may READ.
    pub const REMOTE_READ: Self = Self(4);
    /// A peer may CAS and FAA.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// Windows may be bound to the region.
    pub const MW_BIND: Self = Self(16);
    /// Addresses count from 0.
    pub const ZERO_BASED: Self = Self(32);
    /// Pages may come on demand.
    pub const ON_DEMAND: Self = Self(64);
    /// The memory is of huge pages.
    pub const HUGETLB: Self = Self(128);
    /// A peer may FLUSH to global visibility.
    pub const FLUSH_GLOBAL: Self = Self(256);
    /// A peer may FLUSH to persistence.
    pub const FLUSH_PERSISTENT: Self = Self(512);
    /// Bytes may be placed in any order.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);
    /// Everything a peer can be allowed.
    pub const REMOTE: Self = Self(2 | 4 | 8 | 256 | 512);

    const KNOWN: u32 = 0x3ff | 1 << 20;

    /// From the bits of verbs: unknown optional ones are dropped, other unknown ones refused.
    pub const fn from_verbs(bits: u32) -> Result<Self, AccessFault> {
        if bits & !(Self::KNOWN | OPTIONAL) != 0 {
            return Err(AccessFault::Unknown);
        }
        Ok(Self(bits & Self::KNOWN))
    }

    /// The bits of verbs.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if every right of `other` is in this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if some right of `other` is in this set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the rights of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Refuses rights to write from afar where local writing is not allowed. [IBTA 10.6.3]
    pub const fn check(self) -> Result<Self, AccessFault> {
        // rule: roce-134
        let writes = Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC);
        if self.intersects(writes) && !self.contains(Self::LOCAL_WRITE) {
            return Err(AccessFault::NeedsLocalWrite);
        }
        Ok(self)
    }

    /// From rights bits of the E810 and our additions; unknown bits are dropped. [E810 2.4]
    #[must_use]
    pub fn from_hw(bits: u32) -> Self {
        let verbs = HW
            .iter()
            .filter(|(_, hw)| bits & hw != 0)
            .map(|(verbs, _)| verbs);
        Self(verbs.fold(0, |set, bit| set | bit))
    }

    /// The rights bits of the E810 and our additions; local read always set. [E810 2.4]
    #[must_use]
    pub fn to_hw(self) -> u32 {
        let hw = HW
            .iter()
            .filter(|(verbs, _)| self.0 & verbs != 0)
            .map(|(_, hw)| hw);
        hw.fold(0x01, |set, bit| set | bit)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(u32, &str); 11] = [
            (1, "LOCAL_WRITE"),
            (2, "REMOTE_WRITE"),
            (4, "REMOTE_READ"),
            (8, "REMOTE_ATOMIC"),
            (16, "MW_BIND"),
            (32, "ZERO_BASED"),
            (64, "ON_DEMAND"),
            (128, "HUGETLB"),
            (256, "FLUSH_GLOBAL"),
            (512, "FLUSH_PERSISTENT"),
            (1 << 20, "RELAXED_ORDERING"),
        ];
        f.write_str("LOCAL_READ")?;
        for (_, name) in NAMES.iter().filter(|(bit, _)| self.0 & bit != 0) {
            write!(f, "|{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writers_need_local_write() {
        // proves: roce-134
        for right in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert_eq!(right.check(), Err(AccessFault::NeedsLocalWrite));
            assert_eq!(
                (right | Access::LOCAL_WRITE).check(),
                Ok(right | Access::LOCAL_WRITE)
            );
        }
        for right in [
            Access::LOCAL_READ,
            Access::REMOTE_READ,
            Access::FLUSH_GLOBAL,
        ] {
            assert_eq!(right.check(), Ok(right));
        }
    }

    #[test]
    fn verbs_bits_outside_of_the_optional_range_are_refused() {
        assert_eq!(Access::from_verbs(1 << 10), Err(AccessFault::Unknown));
        assert_eq!(Access::from_verbs(1 << 30), Err(AccessFault::Unknown));
        assert_eq!(Access::from_verbs(1 << 29 | 1), Ok(Access::LOCAL_WRITE));
        let all = Access::from_verbs(0x3ff | 1 << 20).unwrap();
        assert_eq!(all.bits(), 0x3ff | 1 << 20);
    }

    #[test]
    fn hardware_bits_convert_both_ways() {
        assert_eq!(Access::LOCAL_READ.to_hw(), 0x01);
        assert_eq!((Access::REMOTE_READ | Access::LOCAL_WRITE).to_hw(), 0x07);
        assert_eq!(Access::from_hw(0x3f).to_hw(), 0x3f);
        let hints = Access::ON_DEMAND | Access::HUGETLB;
        for bits in 0..=0x3ff_u32 {
            let access = Access(bits | 1 << 20);
            assert_eq!(Access::from_hw(access.to_hw()), access.without(hints));
        }
    }

    #[test]
    fn a_set_prints_its_rights() {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert_eq!(format!("{access:?}"), "LOCAL_READ|LOCAL_WRITE|REMOTE_READ");
    }
}
