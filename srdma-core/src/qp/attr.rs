//! Queue pair states and the table of attributes that each transition requires and allows.
//!
//! ```text
//! Reset ── Init ── Rtr ── Rts ── Sqd        any state but Reset ── Err
//!            ╰╯           ╰╯ ╰── Sqe ── Rts   any state ── Reset
//! ```
//!
//! Pure data and one function over it: [`check`] says whether a modify call may happen, and if
//! not, which attributes were missing or too many. What this file does *not* do: look at the
//! values of attributes, or change a queue pair.                      [RoCEv2 4.1]

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// Transport service of a queue pair, with the values of the verbs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum QpType {
    /// General services: QP 1, a datagram QP.
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
}

impl QpType {
    /// Every type, for tables and tests.
    pub const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::Gsi];

    /// RC and UC: one peer, fixed at [`QpState::Rtr`].
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc)
    }

    /// UD and GSI: every send names its peer, every receive starts with the 40-byte area.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        !self.is_connected()
    }

    /// The type of a verbs value, if it is one that we have.
    #[must_use]
    pub const fn from_value(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Gsi),
            2 => Some(Self::Rc),
            3 => Some(Self::Uc),
            4 => Some(Self::Ud),
            _ => None,
        }
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gsi => "GSI",
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// State of a queue pair, with the values of the verbs.                [IBTA 10.3.1]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the states of a queue pair are a closed set"
)]
#[repr(u8)]
pub enum QpState {
    /// Created or reset: nothing posted, nothing received.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains: what is in flight ends, nothing further starts.
    Sqd = 4,
    /// The send queue failed; receiving goes on (UC and datagrams).
    Sqe = 5,
    /// Failed: everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// Every state, in the order of its values.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    /// The state of a verbs value.
    #[must_use]
    pub const fn from_value(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            4 => Some(Self::Sqd),
            5 => Some(Self::Sqe),
            6 => Some(Self::Err),
            _ => None,
        }
    }

    /// Receives may be posted: every state but Reset.
    // rule: roce-132
    #[must_use]
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Sends may be posted: from Rts on. In Err they are flushed.
    #[must_use]
    pub const fn takes_sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd | Self::Sqe | Self::Err)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

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

/// Why a modify call may not happen. The queue pair stays as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttrError {
    /// There is no such transition for this type.
    #[error("a {qp_type} queue pair does not go from {from} to {to}")]
    NoTransition {
        /// Type of the queue pair.
        qp_type: QpType,
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The transition exists, but the attributes do not fit it.
    #[error("{qp_type} {from} to {to}: missing {missing}; too many: {extra}")]
    Attributes {
        /// Type of the queue pair.
        qp_type: QpType,
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// Required attributes that were not given.
        missing: AttrMask,
        /// Given attributes that this transition does not take.
        extra: AttrMask,
    },
}

/// The attributes of one transition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Must be given (beside STATE).
    pub required: AttrMask,
    /// May be given.
    pub optional: AttrMask,
}

impl Transition {
    const FREE: Self = Self {
        required: AttrMask::NONE,
        optional: AttrMask::NONE,
    };

    const fn new(required: AttrMask, optional: AttrMask) -> Self {
        Self { required, optional }
    }
}

const PK: AttrMask = AttrMask::PKEY_INDEX;
const PO: AttrMask = AttrMask::PORT;
const QK: AttrMask = AttrMask::QKEY;
const AC: AttrMask = AttrMask::ACCESS_FLAGS;
const RNT: AttrMask = AttrMask::MIN_RNR_TIMER;
const MIG: AttrMask = AttrMask::PATH_MIG_STATE;
const CS: AttrMask = AttrMask::CUR_STATE;
const ALT_AC: AttrMask = AttrMask::ALT_PATH.with(AC);
const PATH: AttrMask = AttrMask::AV
    .with(AttrMask::PATH_MTU)
    .with(AttrMask::DEST_QPN)
    .with(AttrMask::RQ_PSN);
const RETRIES: AttrMask = AttrMask::TIMEOUT
    .with(AttrMask::RETRY_CNT)
    .with(AttrMask::RNR_RETRY)
    .with(AttrMask::MAX_QP_RD_ATOMIC);

/// The attributes of `from` → `to` for `qp_type`; `None` if there is no such transition.
// rule: roce-129
// rule: roce-130
// rule: roce-131
#[must_use]
pub const fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
    use QpType::{Gsi, Rc, Uc, Ud};
    const NONE: AttrMask = AttrMask::NONE;
    let (required, optional) = match (from, to, qp_type) {
        (_, Reset, _) => return Some(Transition::FREE),
        (Reset, Err, _) => return None,
        (_, Err, _) => return Some(Transition::FREE),

        (Reset, Init, Rc | Uc) => (PK.with(PO).with(AC), NONE),
        (Reset, Init, Ud) => (PK.with(PO).with(QK), NONE),
        (Reset, Init, Gsi) => (PK.with(QK), NONE),

        (Init, Init, Rc | Uc) => (NONE, PK.with(PO).with(AC)),
        (Init, Init, Ud) => (NONE, PK.with(PO).with(QK)),
        (Init, Init, Gsi) => (NONE, PK.with(QK)),

        (Init, Rtr, Rc) => (
            PATH.with(AttrMask::MAX_DEST_RD_ATOMIC).with(RNT),
            ALT_AC.with(PK),
        ),
        (Init, Rtr, Uc) => (PATH, ALT_AC.with(PK)),
        (Init, Rtr, Ud | Gsi) => (NONE, PK.with(QK)),

        (Rtr, Rts, Rc) => (
            RETRIES.with(AttrMask::SQ_PSN),
            CS.with(ALT_AC).with(MIG).with(RNT),
        ),
        (Rtr, Rts, Uc) => (AttrMask::SQ_PSN, CS.with(ALT_AC).with(MIG)),
        (Rtr, Rts, Ud | Gsi) => (AttrMask::SQ_PSN, CS.with(QK)),

        (Rts | Sqd, Rts, Rc) => (NONE, CS.with(ALT_AC).with(MIG).with(RNT)),
        (Rts | Sqd, Rts, Uc) => (NONE, CS.with(ALT_AC).with(MIG)),
        (Rts | Sqd | Sqe, Rts, Ud | Gsi) => (NONE, CS.with(QK)),
        (Sqe, Rts, Uc) => (NONE, CS.with(AC)),

        (Rts, Sqd, _) => (NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd, Rc) => (
            NONE,
            PO.with(AttrMask::AV)
                .with(RETRIES)
                .with(AttrMask::MAX_DEST_RD_ATOMIC)
                .with(ALT_AC)
                .with(PK)
                .with(RNT)
                .with(MIG),
        ),
        (Sqd, Sqd, Uc) => (NONE, AttrMask::AV.with(ALT_AC).with(PK).with(MIG)),
        (Sqd, Sqd, Ud | Gsi) => (NONE, PK.with(QK)),
        _ => return None,
    };
    Some(Transition::new(required, optional))
}

/// Whether a queue pair of `qp_type` in state `from` may go to `to` with the attributes `given`.
///
/// `from` is the claimed state when CUR_STATE is given, else the real one; `to` is `from` when
/// STATE is not given. STATE itself is always allowed.
pub const fn check(
    qp_type: QpType,
    from: QpState,
    to: QpState,
    given: AttrMask,
) -> Result<(), AttrError> {
    let Some(Transition { required, optional }) = transition(qp_type, from, to) else {
        return Err(AttrError::NoTransition { qp_type, from, to });
    };
    let missing = required.without(given);
    let extra = given.without(required.with(optional).with(AttrMask::STATE));
    if missing.is_empty() && extra.is_empty() {
        Ok(())
    } else {
        Err(AttrError::Attributes {
            qp_type,
            from,
            to,
            missing,
            extra,
        })
    }
}

#[cfg(test)]
mod tests;
