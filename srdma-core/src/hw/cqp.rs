//! The control queue: commands of 64 bytes, and how each is answered.   [E810 7]
//!
//! ```text
//! +0 … +56   eight words, per command
//! +24        63 valid | 37:32 opcode | per command; written last
//!
//! CqpCmd ── encode ──► [u64; 8] ── CQP ring ──► decode ──► CqpCmd            (driver → device)
//!                                  CCQ ◄── CqpCompletion                     (device → driver)
//! ```
//!
//! All control of the device goes this way; commands are executed and completed in order. Whether
//! a command makes sense (ids, states, ranges) is for the device to decide; decoding only refuses
//! what has no meaning at all.

mod completion;
mod objects;
mod queues;
#[cfg(test)]
mod tests;
mod words;

pub use completion::{CqpCompletion, CqpMinor, CqpValue};
pub use objects::{AllocStag, CreateAh, DeallocStag, McastCmd, RegMr, StagKind};
pub use queues::{
    CqCmd, CreateAeq, CreateCeq, FlushWqes, ModifySrq, QpCmd, SrqCmd, SrqRing, XrcHome,
};
pub use words::*;

use crate::num::{AhId, CeqId, CqId, Qpn, SrqId};

/// Words of a CQP WQE.
pub const CQP_WORDS: usize = 8;
type Words = [u64; CQP_WORDS];
/// Index of its header word.
pub const CQP_HEADER: usize = 3;

open_enum! {
    /// Control command.                                               [E810 7.1]
    pub struct CqpOp: u8 {
        CREATE_QP = 0x00,
        MODIFY_QP = 0x01,
        DESTROY_QP = 0x02,
        CREATE_CQ = 0x03,
        MODIFY_CQ = 0x04,
        DESTROY_CQ = 0x05,
        CREATE_SRQ = 0x06,
        MODIFY_SRQ = 0x07,
        DESTROY_SRQ = 0x08,
        ALLOC_STAG = 0x09,
        REG_MR = 0x0a,
        QUERY_STAG = 0x0b,
        REG_SMR = 0x0c,
        DEALLOC_STAG = 0x0d,
        MANAGE_LOC_MAC_TABLE = 0x0e,
        MANAGE_ARP = 0x0f,
        VF_PBLE_BP = 0x10,
        MANAGE_PUSH_PAGES = 0x11,
        QUERY_RDMA_FEATURES = 0x12,
        UPLOAD_CONTEXT = 0x13,
        ALLOC_LOC_MAC = 0x14,
        MANAGE_HMC_PM_FUNC_TABLE = 0x15,
        CREATE_CEQ = 0x16,
        DESTROY_CEQ = 0x18,
        CREATE_AEQ = 0x19,
        DESTROY_AEQ = 0x1b,
        CREATE_AH = 0x1c,
        MODIFY_AH = 0x1d,
        DESTROY_AH = 0x1e,
        UPDATE_PE_SDS = 0x1f,
        QUERY_FPM_VALUES = 0x20,
        COMMIT_FPM_VALUES = 0x21,
        FLUSH_WQES = 0x22,
        MANAGE_APBVT = 0x23,
        NOP = 0x24,
        MANAGE_QUAD_HASH = 0x25,
        CREATE_MCAST = 0x26,
        MODIFY_MCAST = 0x27,
        DESTROY_MCAST = 0x28,
        SUSPEND_QP = 0x29,
        RESUME_QP = 0x2a,
        SHMC_PAGES_ALLOCATED = 0x2b,
        WORK_SCHED_NODE = 0x2c,
        MANAGE_STATS = 0x2d,
        GATHER_STATS = 0x2e,
        UP_MAP = 0x2f,
    }
}

/// Why a CQP WQE means nothing to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CqpFault {
    /// An opcode that this device does not serve.
    #[error("control command {0:?} is not served")]
    NotServed(CqpOp),
}

/// A control command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the device serves every command or does not compile"
)]
#[allow(missing_docs, reason = "the variants are the opcodes")]
pub enum CqpCmd {
    CreateQp(QpCmd),
    ModifyQp(QpCmd),
    DestroyQp(Qpn),
    CreateCq(CqCmd),
    /// Resize: switches the CQ to a new buffer.
    ModifyCq(CqCmd),
    DestroyCq(CqId),
    CreateSrq(SrqCmd),
    /// Sets the limit.
    ModifySrq(ModifySrq),
    DestroySrq(SrqId),
    /// An unbound window, or a region without memory.
    AllocStag(AllocStag),
    RegMr(RegMr),
    DeallocStag(DeallocStag),
    CreateAh(CreateAh),
    DestroyAh(AhId),
    CreateCeq(CreateCeq),
    DestroyCeq(CeqId),
    CreateAeq(CreateAeq),
    DestroyAeq,
    FlushWqes(FlushWqes),
    McastCreate(McastCmd),
    McastDestroy(McastCmd),
    SuspendQp(Qpn),
    ResumeQp(Qpn),
    /// The device fills this many bytes at this address.
    QueryFeatures {
        addr: u64,
        len: u32,
    },
    Nop,
}

impl CqpCmd {
    /// The opcode.
    #[must_use]
    pub const fn op(&self) -> CqpOp {
        match self {
            Self::CreateQp(_) => CqpOp::CREATE_QP,
            Self::ModifyQp(_) => CqpOp::MODIFY_QP,
            Self::DestroyQp(_) => CqpOp::DESTROY_QP,
            Self::CreateCq(_) => CqpOp::CREATE_CQ,
            Self::ModifyCq(_) => CqpOp::MODIFY_CQ,
            Self::DestroyCq(_) => CqpOp::DESTROY_CQ,
            Self::CreateSrq(_) => CqpOp::CREATE_SRQ,
            Self::ModifySrq(_) => CqpOp::MODIFY_SRQ,
            Self::DestroySrq(_) => CqpOp::DESTROY_SRQ,
            Self::AllocStag(_) => CqpOp::ALLOC_STAG,
            Self::RegMr(_) => CqpOp::REG_MR,
            Self::DeallocStag(_) => CqpOp::DEALLOC_STAG,
            Self::CreateAh(_) => CqpOp::CREATE_AH,
            Self::DestroyAh(_) => CqpOp::DESTROY_AH,
            Self::CreateCeq(_) => CqpOp::CREATE_CEQ,
            Self::DestroyCeq(_) => CqpOp::DESTROY_CEQ,
            Self::CreateAeq(_) => CqpOp::CREATE_AEQ,
            Self::DestroyAeq => CqpOp::DESTROY_AEQ,
            Self::FlushWqes(_) => CqpOp::FLUSH_WQES,
            Self::McastCreate(_) => CqpOp::CREATE_MCAST,
            Self::McastDestroy(_) => CqpOp::DESTROY_MCAST,
            Self::SuspendQp(_) => CqpOp::SUSPEND_QP,
            Self::ResumeQp(_) => CqpOp::RESUME_QP,
            Self::QueryFeatures { .. } => CqpOp::QUERY_RDMA_FEATURES,
            Self::Nop => CqpOp::NOP,
        }
    }

    /// The words, valid bit clear.
    #[must_use]
    pub fn encode(&self) -> [u64; CQP_WORDS] {
        let [w0, w1, w2, header, w4, w5, w6, w7] = match self {
            Self::CreateQp(cmd) => cmd.encode(true),
            Self::ModifyQp(cmd) => cmd.encode(false),
            Self::DestroyQp(qpn) | Self::SuspendQp(qpn) | Self::ResumeQp(qpn) => {
                id_words(QpHeader::ZERO.with_qpn(*qpn).bits())
            }
            Self::CreateCq(cmd) => cmd.encode(false),
            Self::ModifyCq(cmd) => cmd.encode(true),
            Self::DestroyCq(id) => id_words(CqHeader::ZERO.with_id(*id).bits()),
            Self::CreateSrq(cmd) => cmd.encode(),
            Self::ModifySrq(cmd) => cmd.encode(),
            Self::DestroySrq(id) => id_words(SrqHeader::ZERO.with_id(*id).bits()),
            Self::AllocStag(cmd) => cmd.encode(),
            Self::RegMr(cmd) => cmd.encode(),
            Self::DeallocStag(cmd) => cmd.encode(),
            Self::CreateAh(cmd) => cmd.encode(),
            Self::DestroyAh(id) => id_words(AhHeader::ZERO.with_id(*id).bits()),
            Self::CreateCeq(cmd) => cmd.encode(),
            Self::DestroyCeq(id) => id_words(CeqHeader::ZERO.with_id(*id).bits()),
            Self::CreateAeq(cmd) => cmd.encode(),
            Self::DestroyAeq | Self::Nop => id_words(0),
            Self::FlushWqes(cmd) => cmd.encode(),
            Self::McastCreate(cmd) | Self::McastDestroy(cmd) => cmd.encode(),
            Self::QueryFeatures { addr, len } => [0, 0, 0, u64::from(*len), *addr, 0, 0, 0],
        };
        let op = CqpHeader::ZERO.with_op(self.op()).bits();
        [w0, w1, w2, header | op, w4, w5, w6, w7]
    }

    /// From a copy of the words, whatever the valid bit.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a length of 32 bits in the low dword"
    )]
    pub fn decode(words: &[u64; CQP_WORDS]) -> Result<Self, CqpFault> {
        let [_, _, _, header, word4, ..] = *words;
        Ok(match CqpHeader::from_bits(header).op() {
            CqpOp::CREATE_QP => Self::CreateQp(QpCmd::decode(words)),
            CqpOp::MODIFY_QP => Self::ModifyQp(QpCmd::decode(words)),
            CqpOp::DESTROY_QP => Self::DestroyQp(QpHeader::from_bits(header).qpn()),
            CqpOp::CREATE_CQ => Self::CreateCq(CqCmd::decode(words)),
            CqpOp::MODIFY_CQ => Self::ModifyCq(CqCmd::decode(words)),
            CqpOp::DESTROY_CQ => Self::DestroyCq(CqHeader::from_bits(header).id()),
            CqpOp::CREATE_SRQ => Self::CreateSrq(SrqCmd::decode(words)),
            CqpOp::MODIFY_SRQ => Self::ModifySrq(ModifySrq::decode(words)),
            CqpOp::DESTROY_SRQ => Self::DestroySrq(SrqHeader::from_bits(header).id()),
            CqpOp::ALLOC_STAG => Self::AllocStag(AllocStag::decode(words)),
            CqpOp::REG_MR => Self::RegMr(RegMr::decode(words)),
            CqpOp::DEALLOC_STAG => Self::DeallocStag(DeallocStag::decode(words)),
            CqpOp::CREATE_AH => Self::CreateAh(CreateAh::decode(words)),
            CqpOp::DESTROY_AH => Self::DestroyAh(AhHeader::from_bits(header).id()),
            CqpOp::CREATE_CEQ => Self::CreateCeq(CreateCeq::decode(words)),
            CqpOp::DESTROY_CEQ => Self::DestroyCeq(CeqHeader::from_bits(header).id()),
            CqpOp::CREATE_AEQ => Self::CreateAeq(CreateAeq::decode(words)),
            CqpOp::DESTROY_AEQ => Self::DestroyAeq,
            CqpOp::FLUSH_WQES => Self::FlushWqes(FlushWqes::decode(words)),
            CqpOp::CREATE_MCAST => Self::McastCreate(McastCmd::decode(words)),
            CqpOp::DESTROY_MCAST => Self::McastDestroy(McastCmd::decode(words)),
            CqpOp::SUSPEND_QP => Self::SuspendQp(QpHeader::from_bits(header).qpn()),
            CqpOp::RESUME_QP => Self::ResumeQp(QpHeader::from_bits(header).qpn()),
            CqpOp::QUERY_RDMA_FEATURES => Self::QueryFeatures {
                addr: word4,
                len: header as u32,
            },
            CqpOp::NOP => Self::Nop,
            other => return Err(CqpFault::NotServed(other)),
        })
    }
}

/// A command that names an object and nothing more.
const fn id_words(header: u64) -> [u64; CQP_WORDS] {
    [0, 0, 0, header, 0, 0, 0, 0]
}
