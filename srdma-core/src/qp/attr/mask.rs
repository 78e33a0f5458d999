//! Sets of attributes of a modify call.
//!
//! The bits are those of verbs, so that a mask of a program is a mask of ours. Which of them a
//! transition takes is the table in `attr.rs`.                         [RoCEv2 4.1]

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// A set of attributes of a modify call, with the bits of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AttrMask(pub u32);

macro_rules! attributes {
    ($( $(#[$doc:meta])* $name:ident = $bit:literal ),* $(,)?) => {
        impl AttrMask {
            $( $(#[$doc])* pub const $name: Self = Self(1 << $bit); )*

            /// Every attribute with its name, in the order of the bits.
            pub const ALL: &'static [(Self, &'static str)] =
                &[$( (Self::$name, stringify!($name)) ),*];
        }
    };
}

attributes! {
    /// The state to go to.
    STATE = 0,
    /// The state that the program believes the queue pair to be in.
    CUR_STATE = 1,
    /// Raise an event when the send queue has drained.
    EN_SQD_ASYNC_NOTIFY = 2,
    /// What a peer may do through this queue pair.
    ACCESS_FLAGS = 3,
    /// Index into the partition table.
    PKEY_INDEX = 4,
    /// The physical port.
    PORT = 5,
    /// Queue key of a datagram queue pair.
    QKEY = 6,
    /// The path to the peer.
    AV = 7,
    /// Payload bytes of a full packet.
    PATH_MTU = 8,
    /// Code of the local ACK timeout.
    TIMEOUT = 9,
    /// How often to send again before giving up.
    RETRY_CNT = 10,
    /// How often to wait for a peer without receive buffers; 7 is for ever.
    RNR_RETRY = 11,
    /// The first PSN expected from the peer.
    RQ_PSN = 12,
    /// READs and atomics that may be outstanding as requester.
    MAX_QP_RD_ATOMIC = 13,
    /// A second path, to migrate to.
    ALT_PATH = 14,
    /// Code of the shortest time that a peer waits after our RNR NAK.
    MIN_RNR_TIMER = 15,
    /// The first PSN to send.
    SQ_PSN = 16,
    /// READs and atomics that a peer may have outstanding here.
    MAX_DEST_RD_ATOMIC = 17,
    /// State of path migration.
    PATH_MIG_STATE = 18,
    /// Sizes of the queues.
    CAP = 19,
    /// The peer's queue pair number.
    DEST_QPN = 20,
    /// Limit of the sending rate.
    RATE_LIMIT = 25,
}

impl AttrMask {
    /// No attribute.
    pub const NONE: Self = Self(0);

    /// The attributes of either.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The attributes of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if all of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True for no attribute at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for AttrMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for AttrMask {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for AttrMask {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for AttrMask {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.without(other)
    }
}

impl Not for AttrMask {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl fmt::Display for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut gap = "";
        for &(bit, name) in Self::ALL {
            if self.contains(bit) {
                write!(f, "{gap}{name}")?;
                gap = " ";
                rest = rest.without(bit);
            }
        }
        match (rest.is_empty(), self.is_empty()) {
            (_, true) => f.write_str("nothing"),
            (true, false) => Ok(()),
            (false, false) => write!(f, "{gap}{:#x}", rest.0),
        }
    }
}

impl fmt::Debug for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttrMask({self})")
    }
}
