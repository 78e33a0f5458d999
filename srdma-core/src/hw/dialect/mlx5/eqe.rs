//! Events of the mlx5 dialect: one form for all queues.                [events 4.2, 4.3]
//!
//! ```text
//! byte  1 type   3 sub-type   62 signature   63 bit 0 owner
//!      32 event data, 28 bytes; its offsets are
//!         COMP           24 CQN
//!         QP, SRQ        24 number   0 state of the QP `[srdma]`
//!         OBJECT_CHANGE   2 kind of object, 4 number, 0 state of the QP `[srdma]`
//!         CQ_ERROR        0 CQN, 11 syndrome
//!         PORT_CHANGE     8 bits 7:4 port
//!         CMD             0 bitmap of commands
//!         PAGE_REQUEST    0 EC function, 2 function, 4 pages
//! ```
//!
//! What an E810 tells of a queue pair that failed, and completions say too, is no event of verbs
//! but must reach the driver half: it goes as OBJECT_CHANGE.

use super::super::{EntryWords, Shape, ValidBit};
use crate::hw::{AeCode, AeSource, Aeqe, Ceqe, HwQpState, Report};

open_enum! {
    /// What happened.                                                 [events 4.3]
    pub struct EventType: u8 {
        /// Completions came.
        COMP = 0x00,
        /// Path migrated.
        PATH_MIG = 0x01,
        /// A packet came before the connection was up.
        COMM_EST = 0x02,
        /// The send queue is drained.
        SQ_DRAINED = 0x03,
        /// A completion queue failed.
        CQ_ERROR = 0x04,
        /// A work queue failed.
        WQ_CATAS = 0x05,
        /// Path migration failed.
        PATH_MIG_FAILED = 0x07,
        /// The device failed.
        INTERNAL_ERROR = 0x08,
        /// The state of a port changed.
        PORT_CHANGE = 0x09,
        /// Commands completed.
        CMD = 0x0a,
        /// The device asks for memory, or gives some back.
        PAGE_REQUEST = 0x0b,
        /// Memory was absent.
        PAGE_FAULT = 0x0c,
        /// The peer asked for what it may not.
        WQ_INVAL_REQ = 0x10,
        /// The peer named what it may not reach.
        WQ_ACCESS = 0x11,
        /// A shared receive queue failed.
        SRQ_CATAS = 0x12,
        /// A queue pair takes no more of a shared receive queue.
        SRQ_LAST_WQE = 0x13,
        /// A shared receive queue fell below its limit.
        SRQ_RQ_LIMIT = 0x14,
        /// Something general, by sub-type.
        GENERAL = 0x22,
        /// An object changed.
        OBJECT_CHANGE = 0x27,
    }
}

open_enum! {
    /// How a port changed.                                            [events 4.2]
    pub struct PortChange: u8 {
        /// No link.
        DOWN = 1,
        /// A link.
        ACTIVE = 4,
        /// Initialized.
        INITIALIZED = 5,
        /// Its LID.
        LID = 6,
        /// Its partition keys.
        PKEY = 7,
        /// Its GIDs.
        GUID = 8,
        /// Clients shall register again.
        CLIENT_REREG = 9,
    }
}

le_word! {
    /// Bytes 0 to 7.
    pub struct EqeFirst {
        /// Of a PORT_CHANGE: how.
        sub_type / with_sub_type: PortChange = [39:32],
        /// What happened.
        event / with_event: EventType = [55:48],
    }
}

le_word! {
    /// Bytes 32 to 39: the first of the event data.
    pub struct EqeData {
        /// OBJECT_CHANGE: its number. PAGE_REQUEST: how many, signed.
        number / with_number: u32 = [31:0],
        /// OBJECT_CHANGE: its kind. PAGE_REQUEST: the function.
        kind / with_kind: u16 = [47:32],
        /// QP events: its state. `[srdma]`
        state / with_state: HwQpState = [58:56],
        /// CQ_ERROR: the queue.
        cqn / with_cqn: u32 = [55:32] overlay,
        /// CMD: which commands completed.
        commands / with_commands: u32 = [63:32] overlay,
    }
}

le_word! {
    /// Bytes 40 to 47.
    pub struct EqeMore {
        /// CQ_ERROR: 1 overrun, 2 access.
        syndrome / with_syndrome: u8 = [39:32],
        /// PORT_CHANGE: the port.
        port / with_port: u8 = [63:60],
    }
}

le_word! {
    /// Bytes 56 to 63, which publish the entry.
    pub struct EqeLast {
        /// Changes from lap to lap; 0 on the first.
        owner / with_owner: bool = [0:0],
        /// Not used.
        signature / with_signature: u8 = [15:8],
        /// CQ, QP or SRQ.
        number / with_number: u32 = [55:32],
    }
}

/// The form of every event queue: new ones are filled with the owner bit set. [events 4.2]
pub const EQE: Shape = Shape {
    words: 8,
    header: 7,
    valid: ValidBit {
        bit: 56,
        first: false,
    },
    fresh: 1 << 56,
};

/// The kind of object in an OBJECT_CHANGE that is a queue pair. `[srdma]`
pub const OBJECT_QP: u16 = 0xff00;
/// The syndrome of a completion queue that overran.
pub const CQ_OVERRUN: u8 = 1;

/// An event, before it is put into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eqe {
    /// Type and sub-type.
    pub first: EqeFirst,
    /// Event data, first eight bytes.
    pub data: EqeData,
    /// Event data, next eight bytes.
    pub more: EqeMore,
    /// Number and owner.
    pub last: EqeLast,
}

impl Eqe {
    /// Nothing but a type.
    #[must_use]
    pub fn of(event: EventType) -> Self {
        Self {
            first: EqeFirst::ZERO.with_event(event),
            data: EqeData::ZERO,
            more: EqeMore::ZERO,
            last: EqeLast::ZERO,
        }
    }

    /// Completions came for a queue.
    #[must_use]
    pub fn completion(cqn: u32) -> Self {
        Self::numbered(EventType::COMP, cqn)
    }

    /// These commands completed: a bit each, by their place modulo 32.
    #[must_use]
    pub fn commands(bitmap: u32) -> Self {
        Self {
            data: EqeData::ZERO.with_commands(bitmap),
            ..Self::of(EventType::CMD)
        }
    }

    /// The device wants `pages` pages for a function, or gives so many back if negative.
    #[must_use]
    pub fn pages(function: u16, pages: i32) -> Self {
        Self {
            data: EqeData::ZERO
                .with_kind(function)
                .with_number(pages.cast_unsigned()),
            ..Self::of(EventType::PAGE_REQUEST)
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a port has four bits")]
    fn port(change: PortChange, port: u32) -> Self {
        let eqe = Self::of(EventType::PORT_CHANGE);
        Self {
            first: eqe.first.with_sub_type(change),
            more: EqeMore::ZERO.with_port((port & 0xf) as u8),
            ..eqe
        }
    }

    fn numbered(event: EventType, number: u32) -> Self {
        Self {
            last: EqeLast::ZERO.with_number(number),
            ..Self::of(event)
        }
    }

    /// The event that stands for one of an E810.
    // rule: dialect-2
    #[must_use]
    pub fn from_aeqe(event: &Aeqe) -> Self {
        let kind = match event.report() {
            Report::CqError => {
                return Self {
                    data: EqeData::ZERO.with_cqn(event.id),
                    more: EqeMore::ZERO.with_syndrome(CQ_OVERRUN),
                    ..Self::of(EventType::CQ_ERROR)
                };
            }
            Report::Nothing => {
                return Self {
                    data: EqeData::ZERO
                        .with_kind(OBJECT_QP)
                        .with_number(event.id)
                        .with_state(event.state),
                    ..Self::of(EventType::OBJECT_CHANGE)
                };
            }
            Report::PortActive => return Self::port(PortChange::ACTIVE, event.id),
            Report::PortDown => return Self::port(PortChange::DOWN, event.id),
            Report::GidChange => return Self::port(PortChange::GUID, event.id),
            Report::DeviceFatal => EventType::INTERNAL_ERROR,
            Report::SrqLimit => EventType::SRQ_RQ_LIMIT,
            Report::SrqError => EventType::SRQ_CATAS,
            Report::LastWqe => EventType::SRQ_LAST_WQE,
            Report::SqDrained => EventType::SQ_DRAINED,
            Report::CommEst => EventType::COMM_EST,
            Report::Request => EventType::WQ_INVAL_REQ,
            Report::Access => EventType::WQ_ACCESS,
            Report::Fatal => EventType::WQ_CATAS,
        };
        let mut eqe = Self::numbered(kind, event.id);
        eqe.data = EqeData::ZERO.with_state(event.state);
        eqe
    }

    /// The completion event that this one is; another kind names no queue.
    #[must_use]
    pub fn to_ceqe(self) -> Ceqe {
        let number = match self.first.event() {
            EventType::COMP => self.last.number(),
            _ => 0,
        };
        Ceqe {
            cookie: number.into(),
        }
    }

    /// The E810's event that this one stands for: of its codes the one that means most nearly the
    /// same.
    #[must_use]
    pub fn to_aeqe(self) -> Aeqe {
        let number = self.last.number();
        let of = |code, source, id: u32| Aeqe {
            code,
            source,
            id,
            context: id.into(),
            state: self.data.state(),
            ..Aeqe::default()
        };
        match self.first.event() {
            EventType::CQ_ERROR => {
                let cqn = self.data.cqn();
                Aeqe {
                    state: HwQpState::INVALID,
                    ..of(AeCode::CQ_OPERATION_ERROR, AeSource::CQ, cqn)
                }
            }
            EventType::PORT_CHANGE => {
                let code = match self.first.sub_type() {
                    PortChange::ACTIVE => AeCode::PORT_ACTIVE,
                    PortChange::DOWN => AeCode::PORT_DOWN,
                    PortChange::GUID => AeCode::GID_CHANGE,
                    _ => return Aeqe::default(),
                };
                of(code, AeSource::NONE, self.more.port().into())
            }
            EventType::INTERNAL_ERROR => of(AeCode::ADAPTER_CATASTROPHIC, AeSource::NONE, 0),
            EventType::SRQ_RQ_LIMIT => of(AeCode::SRQ_LIMIT, AeSource::NONE, number),
            EventType::SRQ_CATAS => of(AeCode::SRQ_CATASTROPHIC_ERROR, AeSource::NONE, number),
            EventType::SRQ_LAST_WQE => of(AeCode::LAST_WQE_REACHED, AeSource::NONE, number),
            EventType::SQ_DRAINED => of(AeCode::QP_SUSPEND_COMPLETE, AeSource::NONE, number),
            EventType::COMM_EST => of(AeCode::LLP_CONNECTION_ESTABLISHED, AeSource::NONE, number),
            EventType::WQ_INVAL_REQ => of(AeCode::INVALID_REQUEST, AeSource::INBOUND, number),
            EventType::WQ_ACCESS => of(AeCode::AMP_RIGHTS_VIOLATION, AeSource::INBOUND, number),
            EventType::WQ_CATAS => of(AeCode::LOCAL_QP_CATASTROPHIC, AeSource::NONE, number),
            EventType::OBJECT_CHANGE if self.data.kind() == OBJECT_QP => {
                of(AeCode::NONE, AeSource::NONE, self.data.number())
            }
            // Nothing that our device writes, so nobody's.
            _ => Aeqe::default(),
        }
    }

    /// The words as they stand in memory, owner bit clear.
    #[must_use]
    pub fn encode(self) -> EntryWords {
        let [first, data, more, last] = [
            self.first.bits(),
            self.data.bits(),
            self.more.bits(),
            self.last.bits(),
        ];
        [first, 0, 0, 0, data, more, 0, last].map(u64::swap_bytes)
    }

    /// From a copy of the words, whatever the owner bit.
    #[must_use]
    pub fn decode(words: &EntryWords) -> Self {
        let [first, _, _, _, data, more, _, last] = words.map(u64::swap_bytes);
        Self {
            first: EqeFirst::from_bits(first),
            data: EqeData::from_bits(data),
            more: EqeMore::from_bits(more),
            last: EqeLast::from_bits(last).with_owner(false),
        }
    }
}
