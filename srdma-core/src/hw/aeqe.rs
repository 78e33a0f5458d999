//! Asynchronous event queue entries.                                   [E810 5.1, 5.3, 5.5]
//!
//! ```text
//! +0   completion context (QP, SRQ), or the CQ's cookie >> 1
//! +8   63 valid | 62:61 Q2 data | 60:57 TCP state | 56:54 QP state | 53:50 source
//!      46 id bit 18 | 45:34 code | 33 overflow | 32:18 WQE index | 17:0 id bits 17:0
//! ```
//!
//! A code has a *class*: the flush code its work queue ends with, and the event verbs report. SRQ,
//! CQ and connection events have none of their own and are dispatched by code.

mod code;
mod report;
pub use code::AeCode;
pub use report::Report;

use super::{FlushCode, Polarity};

open_enum! {
    /// Where an event arose. Several values of one class are variants that nobody tells apart.
    pub struct AeSource: u8 {
        /// No queue.
        NONE = 0,
        /// Receive queue.
        RQ = 1,
        /// Completion queue.
        CQ = 2,
        /// Send queue.
        SQ = 5,
        /// Inbound WRITE, or the source of a READ response.
        INBOUND = 9,
        /// Outbound READ response.
        OUTBOUND_READ = 13,
    }
}

impl AeSource {
    /// The value that stands for the class of this one.              [E810 5.1]
    #[must_use]
    pub const fn class(self) -> Self {
        match self.0 {
            1 | 3 => Self::RQ,
            2 | 6 | 10 | 14 => Self::CQ,
            5 | 7 => Self::SQ,
            9 | 11 => Self::INBOUND,
            13 | 15 => Self::OUTBOUND_READ,
            _ => Self::NONE,
        }
    }
}

le_word! {
    /// Word 1 of an AEQE, which publishes it.                         [E810 5.1]
    pub struct AeqeWord {
        /// QPN, CQ id or SRQ id: low 18 bits.
        id_low / with_id_low: u32 = [17:0],
        /// WQE index where it happened.
        wqe_index / with_wqe_index: u16 = [32:18],
        /// Events were lost before this one.
        overflow / with_overflow: bool = [33:33],
        /// What happened.
        code / with_code: AeCode = [45:34],
        /// Bit 18 of the id.
        id_high / with_id_high: u8 = [46:46],
        /// Where.
        source / with_source: AeSource = [53:50],
        /// State of the QP.
        state / with_state: super::HwQpState = [56:54],
        /// Not used by RoCE.
        tcp_state / with_tcp_state: u8 = [60:57],
        /// Not used by RoCE.
        q2_data / with_q2_data: u8 = [62:61],
        /// Lap of the ring.
        valid / with_valid: Polarity = [63:63],
    }
}

/// An asynchronous event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeqe {
    /// What happened.
    pub code: AeCode,
    /// Where.
    pub source: AeSource,
    /// QPN, CQ id or SRQ id; 19 bits.
    pub id: u32,
    /// QP or SRQ: the completion context. CQ: the cookie, an even number.
    pub context: u64,
    /// State the QP is in now.
    pub state: super::HwQpState,
    /// WQE index, in quanta.
    pub wqe_index: u16,
    /// Events were lost before this one.
    pub overflow: bool,
}

impl Default for Aeqe {
    fn default() -> Self {
        Self::decode([0; 2])
    }
}

impl Aeqe {
    /// True if the event is about a CQ.
    #[must_use]
    pub fn is_cq(&self) -> bool {
        self.code == AeCode::LCE_CQ_CATASTROPHIC || self.source.class() == AeSource::CQ
    }

    /// True if the event is about a QP.
    #[must_use]
    pub fn is_qp(&self) -> bool {
        let other = [
            AeCode::SRQ_LIMIT,
            AeCode::SRQ_CATASTROPHIC_ERROR,
            AeCode::PORT_ACTIVE,
            AeCode::PORT_DOWN,
            AeCode::GID_CHANGE,
            AeCode::ADAPTER_CATASTROPHIC,
        ];
        !self.is_cq() && !other.contains(&self.code)
    }

    /// The words, valid bit clear.
    #[must_use]
    pub fn encode(&self) -> [u64; 2] {
        let context = if self.is_cq() {
            self.context >> 1
        } else {
            self.context
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "cut to one bit by the field"
        )]
        let word = AeqeWord::ZERO
            .with_id_low(self.id)
            .with_id_high((self.id >> 18) as u8)
            .with_wqe_index(self.wqe_index)
            .with_overflow(self.overflow)
            .with_code(self.code)
            .with_source(self.source)
            .with_state(self.state);
        [context, word.bits()]
    }

    /// From the words, whatever the valid bit.
    #[must_use]
    pub fn decode([context, word]: [u64; 2]) -> Self {
        let word = AeqeWord::from_bits(word);
        let mut event = Self {
            code: word.code(),
            source: word.source(),
            id: word.id_low() | u32::from(word.id_high()) << 18,
            context,
            state: word.state(),
            wqe_index: word.wqe_index(),
            overflow: word.overflow(),
        };
        if event.is_cq() {
            event.context <<= 1;
        }
        event
    }
}

/// What verbs make of a QP event.                                     [E810 5.5]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventClass {
    /// `QP_FATAL`.
    Catastrophic,
    /// `QP_ACCESS_ERR`.
    Access,
    /// `QP_REQ_ERR`.
    Request,
}

impl AeCode {
    /// The code the queue named by the source flushes with, and the event that verbs report.
    /// Asked of a code that is no QP error, the answer is the default.   [E810 5.5]
    #[must_use]
    pub const fn class(self) -> (FlushCode, EventClass) {
        use EventClass::{Access, Catastrophic, Request};
        match self.0 {
            0x0102..=0x010a | 0x011c => (FlushCode::PROT, Access),
            0x0133 | 0x020a => (FlushCode::LOC_QP_OP, Catastrophic),
            0x0132 | 0x0134 | 0x0135 | 0x0303 | 0x0305 => (FlushCode::LOC_LEN, Catastrophic),
            0x0112 | 0x020d => (FlushCode::REM_ACCESS, Access),
            0x0114 | 0x0118 | 0x0119 | 0x011b => (FlushCode::MW_BIND, Access),
            0x050a => (FlushCode::RETRY_EXC, Catastrophic),
            0x0208 | 0x0911 => (FlushCode::REM_INV_REQ, Request),
            0x0316 | 0x0505 | 0x0507 | 0x020e => (FlushCode::REM_OP, Catastrophic),
            0x050f => (FlushCode::RNR_RETRY_EXC, Catastrophic),
            0x0700 | 0x0703..=0x0705 => (FlushCode::FATAL, Catastrophic),
            _ => (FlushCode::GENERAL, Catastrophic),
        }
    }

    /// The flush code alone.
    #[must_use]
    pub const fn flush_code(self) -> FlushCode {
        self.class().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::HwQpState;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_table_says() {
        let event = Aeqe {
            code: AeCode::ADAPTER_CATASTROPHIC,
            source: AeSource::SQ,
            id: 0x7_ffff,
            context: 0x1234,
            state: HwQpState::ERROR,
            wqe_index: 0x7fff,
            overflow: true,
        };
        let word = 6 << 54 | 5 << 50 | 1 << 46 | 0xb0b << 34 | 1 << 33 | 0x7fff << 18 | 0x3_ffff;
        assert_eq!(event.encode(), [0x1234, word]);
    }

    #[test]
    fn a_cq_event_halves_its_cookie() {
        let event = Aeqe {
            code: AeCode::CQ_OPERATION_ERROR,
            source: AeSource::CQ,
            context: 0xffff_8000_0000_1000,
            ..Aeqe::default()
        };
        assert_eq!(event.encode()[0], 0x7fff_c000_0000_0800);
        assert_eq!(Aeqe::decode(event.encode()), event);
    }

    #[test]
    fn classes_follow_the_table() {
        use EventClass::{Access, Catastrophic, Request};
        for (code, class) in [
            (0x0102, (FlushCode::PROT, Access)),
            (0x010a, (FlushCode::PROT, Access)),
            (0x010c, (FlushCode::GENERAL, Catastrophic)),
            (0x0112, (FlushCode::REM_ACCESS, Access)),
            (0x0119, (FlushCode::MW_BIND, Access)),
            (0x011c, (FlushCode::PROT, Access)),
            (0x0133, (FlushCode::LOC_QP_OP, Catastrophic)),
            (0x0208, (FlushCode::REM_INV_REQ, Request)),
            (0x0911, (FlushCode::REM_INV_REQ, Request)),
            (0x020a, (FlushCode::LOC_QP_OP, Catastrophic)),
            (0x0303, (FlushCode::LOC_LEN, Catastrophic)),
            (0x0316, (FlushCode::REM_OP, Catastrophic)),
            (0x050a, (FlushCode::RETRY_EXC, Catastrophic)),
            (0x050f, (FlushCode::RNR_RETRY_EXC, Catastrophic)),
            (0x0701, (FlushCode::GENERAL, Catastrophic)),
            (0x0705, (FlushCode::FATAL, Catastrophic)),
        ] {
            assert_eq!(AeCode(code).class(), class, "{code:#x}");
        }
    }

    proptest! {
        #[test]
        fn events_decode_back(
            code in 0_u16..0x1000, source in 0_u8..16, id in 0_u32..1 << 19, context: u64,
            state in 0_u8..8, wqe_index in 0_u16..0x8000, overflow: bool,
        ) {
            let mut event = Aeqe {
                code: AeCode(code), source: AeSource(source), id, context,
                state: HwQpState(state), wqe_index, overflow,
            };
            if event.is_cq() {
                event.context &= !1;
            }
            prop_assert_eq!(Aeqe::decode(event.encode()), event);
        }
    }
}
