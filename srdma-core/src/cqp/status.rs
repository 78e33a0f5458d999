//! How a control command ended, and how refusals of the objects become codes.
//!
//! ```text
//! driver's errno      minor code
//! EINVAL              INVALID_COMMAND · INVALID_STATE · INVALID_ID
//! EFAULT              INVALID_MEMORY
//! EBUSY               IN_USE
//! ENOMEM              NO_ROOM
//! EEXIST              EXISTS
//! ```
//!
//! What this does *not* do: choose the errno; the driver half does.

use crate::hca::events::EventFault;
use crate::hw::Major;
use crate::hw::cqp::CqpMinor;
use crate::mem::{HostFault, RegFault};
use crate::obj::{AhFault, McastFault, PdFault, TableFault};
use crate::ring::RingFault;

/// The outcome of one control command.                                  [E810 7.4]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqpStatus {
    /// `NONE` if the command was carried out.
    pub major: Major,
    /// Why not; or a remark on the success.
    pub minor: CqpMinor,
    /// Result of the operation.
    pub value: u32,
    /// More of the result.
    pub detail: u32,
}

impl CqpStatus {
    /// Carried out.
    pub const OK: Self = Self {
        major: Major::NONE,
        minor: CqpMinor::NONE,
        value: 0,
        detail: 0,
    };

    /// Carried out, with a remark.
    #[must_use]
    pub const fn remark(minor: CqpMinor) -> Self {
        Self { minor, ..Self::OK }
    }

    /// Not carried out; nothing changed.
    #[must_use]
    pub const fn refused(minor: CqpMinor) -> Self {
        Self {
            major: Major::CQP_ERROR,
            minor,
            value: 0,
            detail: 0,
        }
    }

    /// The same with a result.
    #[must_use]
    pub const fn with_value(self, value: u32) -> Self {
        Self { value, ..self }
    }

    /// True if the command was carried out.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self.major == Major::NONE
    }
}

/// What a command gives: nothing, or why it is refused.
pub(super) type Outcome = Result<(), Refusal>;

/// A refusal on its way to a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub CqpMinor);

impl From<Outcome> for CqpStatus {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Ok(()) => Self::OK,
            Err(Refusal(minor)) => Self::refused(minor),
        }
    }
}

impl From<TableFault> for Refusal {
    fn from(fault: TableFault) -> Self {
        Self(match fault {
            TableFault::Taken => CqpMinor::EXISTS,
            TableFault::Full => CqpMinor::NO_ROOM,
            TableFault::OutOfRange => CqpMinor::INVALID_ID,
        })
    }
}

impl From<HostFault> for Refusal {
    fn from(fault: HostFault) -> Self {
        Self(match fault {
            HostFault::OutOfMemory => CqpMinor::NO_ROOM,
            HostFault::OutOfRange | HostFault::Misaligned | HostFault::Absent => {
                CqpMinor::INVALID_MEMORY
            }
        })
    }
}

impl From<PdFault> for Refusal {
    fn from(fault: PdFault) -> Self {
        match fault {
            PdFault::NotFound => Self(CqpMinor::INVALID_ID),
            PdFault::InUse => Self(CqpMinor::IN_USE),
            PdFault::Table(fault) => fault.into(),
        }
    }
}

impl From<AhFault> for Refusal {
    fn from(fault: AhFault) -> Self {
        match fault {
            AhFault::NotFound => Self(CqpMinor::INVALID_ID),
            AhFault::BadPd | AhFault::BadAddress => Self(CqpMinor::INVALID_COMMAND),
            AhFault::Table(fault) => fault.into(),
        }
    }
}

impl From<McastFault> for Refusal {
    fn from(fault: McastFault) -> Self {
        Self(match fault {
            McastFault::NotMulticast => CqpMinor::INVALID_COMMAND,
            McastFault::Duplicate => CqpMinor::EXISTS,
            McastFault::GroupFull | McastFault::Full => CqpMinor::NO_ROOM,
            McastFault::NotAttached => CqpMinor::INVALID_ID,
        })
    }
}

impl From<RegFault> for Refusal {
    fn from(fault: RegFault) -> Self {
        Self(match fault {
            RegFault::Table(fault) => return fault.into(),
            RegFault::Access(_) | RegFault::BadPd | RegFault::IsWindow => CqpMinor::INVALID_COMMAND,
            RegFault::ZeroIndex | RegFault::NotFound => CqpMinor::INVALID_ID,
            RegFault::Length => CqpMinor::INVALID_MEMORY,
            RegFault::HasWindows => CqpMinor::IN_USE,
            RegFault::Valid => CqpMinor::INVALID_STATE,
        })
    }
}

impl From<RingFault> for Refusal {
    fn from(fault: RingFault) -> Self {
        Self(match fault {
            RingFault::BadSize => CqpMinor::INVALID_COMMAND,
            RingFault::ShortMemory => CqpMinor::INVALID_MEMORY,
        })
    }
}

impl From<EventFault> for Refusal {
    fn from(fault: EventFault) -> Self {
        Self(match fault {
            EventFault::NotFound => CqpMinor::INVALID_ID,
            EventFault::NoVector => CqpMinor::INVALID_COMMAND,
            EventFault::Ring(fault) => return fault.into(),
            EventFault::Exists => CqpMinor::EXISTS,
            EventFault::InUse => CqpMinor::IN_USE,
            EventFault::Full => CqpMinor::NO_ROOM,
        })
    }
}
