//! Why the use of memory or a key, a binding, an invalidation or a registration is refused.
//!
//! Each names the asynchronous event of an E810 for it; what becomes of it on the wire and in a
//! completion is the QP's matter.                                    [E810 5.3]
//!
//! What this does *not* do: count or report anything.

use super::access::AccessFault;
use crate::obj::table::TableFault;

/// Why host memory could not be had or reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostFault {
    /// The allocator refused.
    #[error("out of memory")]
    OutOfMemory,
    /// An offset or length leaves the range.
    #[error("outside of the memory range")]
    OutOfRange,
    /// A word access at an address that is no multiple of eight.
    #[error("address is not a multiple of 8")]
    Misaligned,
    /// Nothing is mapped there, or it does not allow this access.
    #[error("no memory at that address, or not for this access")]
    Absent,
}

/// Why a key does not open the memory it was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// No region or window has the key's index.
    #[error("no region or window under this key")]
    Unallocated,
    /// The region or window is free (or a claim's region is gone or changed).
    #[error("region or window is not in a valid state")]
    Invalid,
    /// A type 2 window is bound to another queue pair.
    #[error("window is bound to another queue pair")]
    BadQp,
    /// Region or window and queue pair are of different domains.
    #[error("region or window is of another protection domain")]
    BadPd,
    /// The index is right, the key byte is not: a stale or guessed key.
    #[error("key byte does not match")]
    BadKey,
    /// The index is one that no region or window can have.
    #[error("key index is out of range")]
    BadIndex,
    /// The bytes are not all inside of the region or window.
    #[error("outside of the region or window")]
    Bounds,
    /// Region or window do not allow this use.
    #[error("region or window does not allow this access")]
    Rights,
    /// Address plus length passes 2^64.
    #[error("address plus length wraps around")]
    Wrap,
    /// The region is on demand, and nothing is mapped there, or not for this access.
    #[error("no memory behind the region at this address")]
    Absent,
    /// Key 0, which only privileged queue pairs may use.
    #[error("key 0 needs a privileged queue pair")]
    ZeroStag,
}

impl KeyFault {
    /// Code of the asynchronous event.                              [E810 5.3]
    #[must_use]
    pub const fn ae_code(self) -> u16 {
        match self {
            Self::Unallocated => 0x0102,
            Self::Invalid | Self::Absent => 0x0103,
            Self::BadQp => 0x0104,
            Self::BadPd => 0x0105,
            Self::BadKey => 0x0106,
            Self::BadIndex => 0x0107,
            Self::Bounds => 0x0108,
            Self::Rights => 0x0109,
            Self::Wrap => 0x010a,
            Self::ZeroStag => 0x0206,
        }
    }
}

/// Why a window cannot be bound.                                     [IBTA 10.6.7]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindFault {
    /// The window's or region's key is wrong, or its domain is.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// A type 2 window is bound already and was not invalidated.
    #[error("window is bound already")]
    StillBound,
    /// The key of the window names a region.
    #[error("key of the window names a region")]
    NotWindow,
    /// The window is of the other type.
    #[error("window is of another type")]
    WrongType,
    /// The region counts its addresses from 0.
    #[error("region is zero based")]
    ParentZeroBased,
    /// The key of the region names a window.
    #[error("key of the region names a window")]
    ParentIsWindow,
    /// The region is free.
    #[error("region is not in a valid state")]
    ParentInvalid,
    /// The region does not let windows be bound.
    #[error("region does not allow windows")]
    Disabled,
    /// Rights that a window cannot give, or that the region cannot back.
    #[error("rights are not possible for a window of this region")]
    Rights,
    /// The range is not inside the region, or a type 2 window has no length.
    #[error("window is not inside of the region")]
    Bounds,
    /// A type 1 window cannot count from 0.
    #[error("a type 1 window cannot be zero based")]
    ZeroBasedType1,
}

impl BindFault {
    /// Code of the asynchronous event.                              [E810 5.3]
    #[must_use]
    pub const fn ae_code(self) -> u16 {
        match self {
            Self::Key(fault) => fault.ae_code(),
            Self::StillBound => 0x0114,
            Self::NotWindow => 0x0115,
            Self::ParentZeroBased => 0x0116,
            Self::ParentIsWindow => 0x0117,
            Self::Rights => 0x0118,
            Self::Bounds => 0x0119,
            Self::ParentInvalid => 0x011a,
            Self::Disabled => 0x011b,
            Self::ZeroBasedType1 => 0x011e,
            Self::WrongType => 0x0120,
        }
    }
}

/// Why a key cannot be invalidated by a work request.                [IBTA 10.6.6]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidateFault {
    /// The key is wrong, or its domain or queue pair is.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// A region of a register command: only its owner takes it back, by command.
    #[error("region was not registered by a work request")]
    PlainRegion,
    /// A peer may not invalidate this region.
    #[error("region does not allow its invalidation by a peer")]
    NoRemoteRights,
    /// Windows are bound to the region.
    #[error("windows are bound to the region")]
    HasWindows,
    /// A type 1 window.
    #[error("a type 1 window cannot be invalidated")]
    Type1Window,
}

impl InvalidateFault {
    /// Code of the asynchronous event.                              [E810 5.3]
    #[must_use]
    pub const fn ae_code(self) -> u16 {
        match self {
            Self::Key(fault) => fault.ae_code(),
            Self::PlainRegion => 0x0111,
            Self::NoRemoteRights => 0x0112,
            Self::HasWindows => 0x0113,
            Self::Type1Window => 0x011d,
        }
    }
}

/// Why a region or window cannot be made, changed or taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegFault {
    /// The index is taken, out of range, or one too many.
    #[error(transparent)]
    Table(#[from] TableFault),
    /// Rights that no region can have.
    #[error(transparent)]
    Access(#[from] AccessFault),
    /// Index 0 is the reserved key's.
    #[error("index 0 is reserved")]
    ZeroIndex,
    /// The length does not fit the memory, or the addresses pass 2^64.
    #[error("length does not fit the memory")]
    Length,
    /// No region (or window, where one is meant) has this key.
    #[error("no such region or window")]
    NotFound,
    /// The region or window is of another domain.
    #[error("region or window is of another protection domain")]
    BadPd,
    /// Windows are bound to the region.
    #[error("windows are bound to the region")]
    HasWindows,
    /// Registration by work request of a region that is valid already.
    #[error("region is valid already")]
    Valid,
    /// Registration by work request of a window.
    #[error("key names a window")]
    IsWindow,
}

impl RegFault {
    /// Code of the asynchronous event of a registration by work request. [E810 5.3]
    #[must_use]
    pub const fn ae_code(self) -> u16 {
        match self {
            Self::Valid => 0x010c,
            Self::IsWindow => 0x010d,
            Self::Access(_) => 0x010e,
            Self::Length => 0x0110,
            Self::BadPd => KeyFault::BadPd.ae_code(),
            Self::HasWindows => InvalidateFault::HasWindows.ae_code(),
            Self::ZeroIndex => KeyFault::ZeroStag.ae_code(),
            Self::NotFound | Self::Table(_) => KeyFault::Unallocated.ae_code(),
        }
    }
}
