//! Completions of control commands: entries of the CCQ, in CQE format.  [E810 7.3, 7.4]
//!
//! ```text
//! +8   CQP context      +16  63:32 detail | 31:0 value
//! +24  63 valid | 62 SQ | 55 error | 46:32 index of the command | 31:16 major | 15:0 minor
//! ```
//!
//! Commands complete in order, one entry each, never extended.

use crate::hw::Major;
use crate::hw::cqe::{CqeHeader, CqeWords};

open_enum! {
    /// Minor code of a control completion.                            [E810 7.4]
    pub struct CqpMinor: u16 {
        /// Nothing to add.
        NONE = 0,
        /// Success; the stag was not valid.
        STAG_INVALID = 1,
        /// Success; a flush found RQ entries only.
        FLUSHED_RQ = 2,
        /// Success; a flush found SQ entries only.
        FLUSHED_SQ = 3,
        /// Success; a flush found entries in both queues.
        FLUSHED_BOTH = 4,
        /// Success; the QP will be suspended later.
        SUSPEND_PENDING = 5,
        /// Success later (GEN3).
        DEFERRED = 6,
        /// Success, out of order (GEN3).
        OUT_OF_ORDER = 7,
        /// Refused: no such opcode, or a field that cannot be. `[srdma]`
        INVALID_COMMAND = 0x8001,
        /// Refused: the object's state does not allow it.
        INVALID_STATE = 0x8002,
        /// Refused: the id names nothing, or is out of range. `[srdma]`
        INVALID_ID = 0x8003,
        /// Refused: a range is not promised memory. `[srdma]`
        INVALID_MEMORY = 0x8004,
        /// Refused: the object is in use. `[srdma]`
        IN_USE = 0x8005,
        /// Nothing to flush.
        NO_WQE_PENDING = 0x8006,
        /// Refused: closing.
        BAD_CLOSE = 0x8007,
        /// Refused: closed.
        LLP_CLOSED = 0x8009,
        /// Reset not sent.
        RESET_NOT_SENT = 0x800a,
        /// Refused: a table or queue is full. `[srdma]`
        NO_ROOM = 0x8010,
        /// Refused: the id names an object already. `[srdma]`
        EXISTS = 0x8011,
        /// The device must be reset.
        FATAL = 0x8029,
    }
}

le_word! {
    /// Word 2 of a control completion.
    pub struct CqpValue {
        value / with_value: u32 = [31:0],
        detail / with_detail: u32 = [63:32],
    }
}

/// How a control command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqpCompletion {
    /// What the CQP was created with.
    pub context: u64,
    /// Index of the command in the CQP ring.
    pub wqe_index: u16,
    /// `NONE` for success, else `CQP_ERROR` and its kin.
    pub major: Major,
    /// Detail of the refusal, or of the success.
    pub minor: CqpMinor,
    /// Result.
    pub value: u32,
    /// More of the result.
    pub detail: u32,
}

impl CqpCompletion {
    /// True if the command was carried out.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.major == Major::NONE
    }

    /// The words, valid bit clear.
    #[must_use]
    pub fn encode(&self) -> CqeWords {
        let header = CqeHeader::ZERO
            .with_minor(self.minor.0)
            .with_major(self.major)
            .with_wqe_index(self.wqe_index)
            .with_error(!self.is_ok())
            .with_sq(true);
        let value = CqpValue::ZERO
            .with_value(self.value)
            .with_detail(self.detail);
        [0, self.context, value.bits(), header.bits()]
    }

    /// From a copy of the words, whatever the valid bit.
    #[must_use]
    pub fn decode(&[_, context, value, header]: &CqeWords) -> Self {
        let (value, header) = (CqpValue::from_bits(value), CqeHeader::from_bits(header));
        Self {
            context,
            wqe_index: header.wqe_index(),
            major: header.major(),
            minor: CqpMinor(header.minor()),
            value: value.value(),
            detail: value.detail(),
        }
    }
}
