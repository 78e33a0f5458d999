//! Events of the hns dialect, third generation: 64 bytes each.         [events 4.8]
//!
//! ```text
//! CEQE  31 owner | 23:0 CQN
//! AEQE  55:32 number of the queue | 31 owner | 15:8 sub-type | 7:0 type
//!       +8  state of the QP `[srdma]`
//! ```
//!
//! What an E810 tells of a queue pair that failed, and completions say too, is no event of verbs
//! but must reach the driver half: it has a type of its own here.

use super::super::{EntryWords, Shape, ValidBit};
use crate::hw::{AeCode, AeSource, Aeqe, HwQpState, Report};

open_enum! {
    /// What happened.                                                 [events 4.8]
    pub struct EventType: u8 {
        /// Path migrated.
        PATH_MIG = 0x01,
        /// Path migration failed.
        PATH_MIG_FAILED = 0x02,
        /// A packet came before the connection was up.
        COMM_EST = 0x03,
        /// The send queue is drained.
        SQ_DRAINED = 0x04,
        /// A work queue failed.
        WQ_CATAS = 0x05,
        /// The peer asked for what it may not.
        INV_REQ_LOCAL_WQ = 0x06,
        /// The peer named what it may not reach.
        LOCAL_WQ_ACCESS = 0x07,
        /// A shared receive queue fell below its limit.
        SRQ_LIMIT = 0x08,
        /// A queue pair takes no more of a shared receive queue.
        SRQ_LAST_WQE = 0x09,
        /// A shared receive queue failed.
        SRQ_CATAS = 0x0a,
        /// A completion queue cannot be reached.
        CQ_ACCESS_ERROR = 0x0b,
        /// A completion queue overran.
        CQ_OVERFLOW = 0x0c,
        /// No such completion queue.
        CQ_ID_INVALID = 0x0d,
        /// The state of a port changed.
        PORT_CHANGE = 0x0f,
        /// Doorbells were lost.
        DB_OVERFLOW = 0x12,
        /// A command completed.
        MB = 0x13,
        /// A completion event queue overran.
        CEQ_OVERFLOW = 0x14,
        /// The function is reset: the device is gone.
        FLR = 0x15,
        /// A shared receive queue is of another domain.
        XRCD_VIOLATION = 0x16,
        /// An extended header made no sense.
        INVALID_XRCETH = 0x17,
        /// The state of a queue pair changed. `[srdma]`
        STATE = 0x40,
    }
}

open_enum! {
    /// How a port changed; the originals learn it from the network interface. `[srdma]`
    pub struct PortChange: u8 {
        /// It did not.
        NONE = 0,
        /// No link.
        DOWN = 1,
        /// A link.
        ACTIVE = 4,
        /// Its GIDs.
        GID = 8,
    }
}

le_word! {
    /// A completion event.
    pub struct CeqeWord {
        /// The completion queue.
        cqn / with_cqn: u32 = [23:0],
        /// Changes from lap to lap; 1 on the first.
        owner / with_owner: bool = [31:31],
    }
}

le_word! {
    /// The first word of another event, which publishes it.
    pub struct AeqeWord {
        /// What happened.
        event / with_event: EventType = [7:0],
        /// Of a PORT_CHANGE: how; not written for others.
        sub_type / with_sub_type: PortChange = [15:8],
        /// Changes from lap to lap; 1 on the first.
        owner / with_owner: bool = [31:31],
        /// CQ, QP or SRQ.
        queue_num / with_queue_num: u32 = [55:32],
    }
}

le_word! {
    /// The second word. `[srdma]`
    pub struct AeqeState {
        /// State of the queue pair.
        state / with_state: HwQpState = [2:0],
    }
}

/// The form of both kinds of event queues.
pub const EQE: Shape = Shape {
    words: 8,
    header: 0,
    valid: ValidBit {
        bit: 31,
        first: true,
    },
    fresh: 0,
};

/// A completion event, owner bit clear.
#[must_use]
pub fn encode_ce(cqn: u32) -> EntryWords {
    [CeqeWord::ZERO.with_cqn(cqn).bits(), 0, 0, 0, 0, 0, 0, 0]
}

/// The completion queue of an event.
#[must_use]
pub fn decode_ce([word, ..]: &EntryWords) -> u32 {
    CeqeWord::from_bits(*word).cqn()
}

/// The event that stands for one of an E810, owner bit clear.
// rule: dialect-2
#[must_use]
pub fn encode_ae(event: &Aeqe) -> EntryWords {
    let kind = match event.report() {
        Report::CqError => EventType::CQ_OVERFLOW,
        Report::Nothing => EventType::STATE,
        Report::PortActive | Report::PortDown | Report::GidChange => EventType::PORT_CHANGE,
        Report::DeviceFatal => EventType::FLR,
        Report::SrqLimit => EventType::SRQ_LIMIT,
        Report::SrqError => EventType::SRQ_CATAS,
        Report::LastWqe => EventType::SRQ_LAST_WQE,
        Report::SqDrained => EventType::SQ_DRAINED,
        Report::CommEst => EventType::COMM_EST,
        Report::Request => EventType::INV_REQ_LOCAL_WQ,
        Report::Access => EventType::LOCAL_WQ_ACCESS,
        Report::Fatal => EventType::WQ_CATAS,
    };
    let change = match event.report() {
        Report::PortActive => PortChange::ACTIVE,
        Report::PortDown => PortChange::DOWN,
        Report::GidChange => PortChange::GID,
        _ => PortChange::NONE,
    };
    let word = AeqeWord::ZERO
        .with_event(kind)
        .with_sub_type(change)
        .with_queue_num(event.id);
    let state = AeqeState::ZERO.with_state(event.state);
    [word.bits(), state.bits(), 0, 0, 0, 0, 0, 0]
}

/// The E810's event that this one stands for: of its codes the one that means most nearly the same.
#[must_use]
pub fn decode_ae([word, state, ..]: &EntryWords) -> Aeqe {
    let (word, state) = (AeqeWord::from_bits(*word), AeqeState::from_bits(*state));
    let (code, source) = match word.event() {
        EventType::CQ_OVERFLOW | EventType::CQ_ACCESS_ERROR => {
            (AeCode::CQ_OPERATION_ERROR, AeSource::CQ)
        }
        EventType::PORT_CHANGE => match word.sub_type() {
            PortChange::ACTIVE => (AeCode::PORT_ACTIVE, AeSource::NONE),
            PortChange::DOWN => (AeCode::PORT_DOWN, AeSource::NONE),
            PortChange::GID => (AeCode::GID_CHANGE, AeSource::NONE),
            _ => return Aeqe::default(),
        },
        EventType::STATE => (AeCode::NONE, AeSource::NONE),
        EventType::FLR => (AeCode::ADAPTER_CATASTROPHIC, AeSource::NONE),
        EventType::SRQ_LIMIT => (AeCode::SRQ_LIMIT, AeSource::NONE),
        EventType::SRQ_CATAS => (AeCode::SRQ_CATASTROPHIC_ERROR, AeSource::NONE),
        EventType::SRQ_LAST_WQE => (AeCode::LAST_WQE_REACHED, AeSource::NONE),
        EventType::SQ_DRAINED => (AeCode::QP_SUSPEND_COMPLETE, AeSource::NONE),
        EventType::COMM_EST => (AeCode::LLP_CONNECTION_ESTABLISHED, AeSource::NONE),
        EventType::INV_REQ_LOCAL_WQ => (AeCode::INVALID_REQUEST, AeSource::INBOUND),
        EventType::LOCAL_WQ_ACCESS => (AeCode::AMP_RIGHTS_VIOLATION, AeSource::INBOUND),
        EventType::WQ_CATAS => (AeCode::LOCAL_QP_CATASTROPHIC, AeSource::NONE),
        // Nothing that our device writes, so nobody's.
        _ => return Aeqe::default(),
    };
    Aeqe {
        code,
        source,
        id: word.queue_num(),
        context: word.queue_num().into(),
        state: state.state(),
        ..Aeqe::default()
    }
}
