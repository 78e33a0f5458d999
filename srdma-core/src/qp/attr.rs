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

mod mask;

pub use mask::AttrMask;

use core::fmt;

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
    /// XRC initiator: sends only, and names a shared receive queue of the peer in each request.
    XrcSend = 9,
    /// XRC target: receives only, into the shared receive queues of its XRC domain.
    XrcRecv = 10,
}

impl QpType {
    /// Every type, for tables and tests.
    pub const ALL: [Self; 6] = [
        Self::Rc,
        Self::Uc,
        Self::Ud,
        Self::Gsi,
        Self::XrcSend,
        Self::XrcRecv,
    ];

    /// RC, UC and XRC: one peer, fixed at [`QpState::Rtr`].
    #[must_use]
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::Ud | Self::Gsi)
    }

    /// RC and XRC: requests are acknowledged, and sent again when they are not.
    #[inline]
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcSend | Self::XrcRecv)
    }

    /// The two halves of XRC.
    #[inline]
    #[must_use]
    pub const fn is_xrc(self) -> bool {
        matches!(self, Self::XrcSend | Self::XrcRecv)
    }

    /// The type that the other end of a connection has.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::XrcSend => Self::XrcRecv,
            Self::XrcRecv => Self::XrcSend,
            same => same,
        }
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
            9 => Some(Self::XrcSend),
            10 => Some(Self::XrcRecv),
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
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
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
    use QpType::{Gsi, Rc, Uc, Ud, XrcRecv, XrcSend};
    const NONE: AttrMask = AttrMask::NONE;
    let (required, optional) = match (from, to, qp_type) {
        (_, Reset, _) => return Some(Transition::FREE),
        (Reset, Err, _) => return None,
        (_, Err, _) => return Some(Transition::FREE),

        (Reset, Init, Rc | Uc | XrcSend | XrcRecv) => (PK.with(PO).with(AC), NONE),
        (Reset, Init, Ud) => (PK.with(PO).with(QK), NONE),
        (Reset, Init, Gsi) => (PK.with(QK), NONE),

        (Init, Init, Rc | Uc | XrcSend | XrcRecv) => (NONE, PK.with(PO).with(AC)),
        (Init, Init, Ud) => (NONE, PK.with(PO).with(QK)),
        (Init, Init, Gsi) => (NONE, PK.with(QK)),

        (Init, Rtr, Rc | XrcRecv) => (
            PATH.with(AttrMask::MAX_DEST_RD_ATOMIC).with(RNT),
            ALT_AC.with(PK),
        ),
        (Init, Rtr, Uc | XrcSend) => (PATH, ALT_AC.with(PK)),
        (Init, Rtr, Ud | Gsi) => (NONE, PK.with(QK)),

        (Rtr, Rts, Rc) => (
            RETRIES.with(AttrMask::SQ_PSN),
            CS.with(ALT_AC).with(MIG).with(RNT),
        ),
        // rule: xrc-9
        (Rtr, Rts, XrcSend) => (RETRIES.with(AttrMask::SQ_PSN), CS.with(ALT_AC).with(MIG)),
        (Rtr, Rts, XrcRecv) => (
            AttrMask::TIMEOUT.with(AttrMask::SQ_PSN),
            CS.with(ALT_AC).with(MIG).with(RNT),
        ),
        (Rtr, Rts, Uc) => (AttrMask::SQ_PSN, CS.with(ALT_AC).with(MIG)),
        (Rtr, Rts, Ud | Gsi) => (AttrMask::SQ_PSN, CS.with(QK)),

        (Rts | Sqd, Rts, Rc | XrcRecv) => (NONE, CS.with(ALT_AC).with(MIG).with(RNT)),
        (Rts | Sqd, Rts, Uc | XrcSend) => (NONE, CS.with(ALT_AC).with(MIG)),
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
        (Sqd, Sqd, XrcSend) => (
            NONE,
            PO.with(AttrMask::AV)
                .with(RETRIES)
                .with(ALT_AC)
                .with(PK)
                .with(MIG),
        ),
        (Sqd, Sqd, XrcRecv) => (
            NONE,
            PO.with(AttrMask::AV)
                .with(AttrMask::TIMEOUT)
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
