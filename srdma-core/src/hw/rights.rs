//! What a stag allows, in the bits of the E810.                       [E810 2.4]
//!
//! ```text
//!  5           4     3             2            1            0
//!  zero based  bind  remote write  remote read  local write  local read
//! ```
//!
//! Remote atomics are a bit of their own beside this set (`REMOTE_ATOMICS_EN`), zero-based is a
//! flag of the command (`VABASEDTO` = 0). Nothing here checks a right: see `mem`.

use crate::macros::Field;
use core::fmt;
use core::ops::BitOr;

/// A set of access rights of a region or window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StagRights(pub u8);

impl StagRights {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// Local gather.
    pub const LOCAL_READ: Self = Self(0x01);
    /// Local scatter.
    pub const LOCAL_WRITE: Self = Self(0x02);
    /// A peer may READ.
    pub const REMOTE_READ: Self = Self(0x04);
    /// A peer may WRITE.
    pub const REMOTE_WRITE: Self = Self(0x08);
    /// Windows may be bound to the region.
    pub const BIND: Self = Self(0x10);
    /// Offsets start at zero.
    pub const ZERO_BASED: Self = Self(0x20);

    /// True if every right of `other` is in this set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for StagRights {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Field for StagRights {
    #[inline]
    fn to_bits(self) -> u64 {
        u64::from(self.0)
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self(Field::from_bits(bits))
    }
}

impl fmt::Debug for StagRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StagRights({:#04x})", self.0)
    }
}
