//! Words of control commands, as ranges of bits.                       [E810 2.8, 6.4, 7.2]
//!
//! Each header word shares 63 valid and 37:32 opcode with [`CqpHeader`]. `[srdma]` marks positions
//! that the data at hand leaves open and we chose among unused ones. No meaning here: see `cmd`.
#![allow(missing_docs, reason = "field names are those of the commands' fields")]

use super::CqpOp;
use crate::hw::{AeCode, AeSource, FlushCode, HwQpState, HwQpType, Major, Polarity};
use crate::num::{AhId, CeqId, CqId, MsixVector, PdId, Qpn, SrqId, XrcdId};

le_word! {
    /// Word 3 of any command.
    pub struct CqpHeader {
        op / with_op: CqpOp = [37:32],
        valid / with_valid: Polarity = [63:63],
    }
}
le_word! {
    /// Word 3 of QP commands.
    pub struct QpHeader {
        qpn / with_qpn: Qpn = [23:0],
        cq_valid / with_cq_valid: bool = [47:47],
        qp_type / with_qp_type: HwQpType = [50:48],
        next_state / with_next_state: HwQpState = [62:60],
    }
}
le_word! {
    /// Word 0 of MODIFY_QP. `[srdma]`
    pub struct QpMaskWord {
        mask / with_mask: u32 = [31:0],
    }
}
le_word! {
    /// Word 3 of CQ commands.
    pub struct CqHeader {
        id / with_id: CqId = [18:0],
        ceq / with_ceq: CeqId = [31:22],
        resize / with_resize: bool = [43:43],
        check_overflow / with_check_overflow: bool = [46:46],
        encode_ceqe / with_encode_ceqe: bool = [48:48],
        ceq_valid / with_ceq_valid: bool = [49:49],
        wide / with_wide: bool = [61:61],
        /// `[srdma]`
        timestamps / with_timestamps: bool = [62:62],
    }
}
le_word! {
    /// Word 0 of CQ commands; an E810 has bits 20:0. `[srdma]`
    pub struct CqSize {
        size / with_size: u32 = [23:0],
    }
}
le_word! {
    /// Word 2 of CQ commands.
    pub struct CqThreshold {
        threshold / with_threshold: u32 = [17:0],
    }
}
le_word! {
    /// Word 3 of SRQ commands. `[srdma]`
    pub struct SrqHeader {
        id / with_id: SrqId = [23:0],
        xrc / with_xrc: bool = [60:60],
        arm_limit / with_arm_limit: bool = [61:61],
    }
}
le_word! {
    /// Word 0 of SRQ commands. `[srdma]`
    pub struct SrqSize {
        wqes / with_wqes: u32 = [31:0],
        limit / with_limit: u32 = [63:32],
    }
}
le_word! {
    /// Word 2 of CREATE_SRQ. `[srdma]`
    pub struct SrqDomain {
        pd / with_pd: PdId = [17:0],
        shift / with_shift: u8 = [33:32],
    }
}
le_word! {
    /// Word 6 of CREATE_SRQ, if it is one of XRC. `[srdma]`
    pub struct SrqXrc {
        xrcd / with_xrcd: XrcdId = [23:0],
        cq / with_cq: CqId = [50:32],
    }
}
le_word! {
    /// Word 3 of stag commands.
    pub struct StagHeader {
        mw_type1 / with_mw_type1: bool = [42:42],
        mr / with_mr: bool = [43:43],
        page_size / with_page_size: u8 = [47:46],
        rights / with_rights: u8 = [52:48],
        remote_access / with_remote_access: bool = [53:53],
        /// Flush, and relaxed ordering. `[srdma]`
        more_rights / with_more_rights: u8 = [56:54],
        va_based / with_va_based: bool = [59:59],
        /// `[srdma]`
        remote_atomic / with_remote_atomic: bool = [61:61],
    }
}
le_word! {
    /// Word 1 of stag commands.
    pub struct StagRange {
        bytes / with_bytes: u64 = [45:0],
        pd / with_pd: PdId = [63:46],
    }
}
le_word! {
    /// Word 2 of stag commands: key and index together are the stag.
    pub struct StagName {
        stag / with_stag: u32 = [31:0],
    }
}
le_word! {
    /// Word 4 of REG_MR: what the 46 bits of [`StagRange`] do not hold. `[srdma]`
    pub struct StagLength {
        high / with_high: u32 = [17:0],
    }
}
le_word! {
    /// Word 6 of REG_MR.
    pub struct StagPbl {
        pbl / with_pbl: u32 = [31:0],
    }
}
le_word! {
    /// Word 3 of AH commands.
    pub struct AhHeader {
        id / with_id: AhId = [16:0],
        ipv4 / with_ipv4: bool = [59:59],
    }
}
le_word! {
    /// Word 1 of CREATE_AH.
    pub struct AhDomain {
        traffic_class / with_traffic_class: u8 = [39:32],
        pd_low / with_pd_low: u16 = [63:48],
    }
}
le_word! {
    /// Word 2 of CREATE_AH.
    pub struct AhFlow {
        flow_label / with_flow_label: u32 = [19:0],
        pd_high / with_pd_high: u8 = [21:20],
        hop_limit / with_hop_limit: u8 = [39:32],
    }
}
le_word! {
    /// Word 3 of CEQ commands.
    pub struct CeqHeader {
        id / with_id: CeqId = [9:0],
    }
}
le_word! {
    /// Word 1 of CREATE_CEQ and CREATE_AEQ: what GLINT_CEQCTL and PFINT_AEQCTL hold. `[srdma]`
    pub struct EventVector {
        vector / with_vector: MsixVector = [10:0],
    }
}
le_word! {
    /// Word 2 of CREATE_CEQ and CREATE_AEQ.
    pub struct EventSize {
        entries / with_entries: u32 = [18:0],
    }
}
le_word! {
    /// Word 3 of FLUSH_WQES.
    pub struct FlushHeader {
        qpn / with_qpn: Qpn = [23:0],
        generate_ae / with_generate_ae: bool = [59:59],
        user_codes / with_user_codes: bool = [60:60],
        sq / with_sq: bool = [61:61],
        rq / with_rq: bool = [62:62],
    }
}
le_word! {
    /// Word 1 of FLUSH_WQES.
    pub struct FlushAe {
        code / with_code: AeCode = [15:0],
        source / with_source: AeSource = [19:16],
    }
}
le_word! {
    /// Word 2 of FLUSH_WQES.
    pub struct FlushCodes {
        rq_minor / with_rq_minor: FlushCode = [15:0],
        rq_major / with_rq_major: Major = [31:16],
        sq_minor / with_sq_minor: FlushCode = [47:32],
        sq_major / with_sq_major: Major = [63:48],
    }
}
le_word! {
    /// Word 3 of multicast commands. `[srdma]`
    pub struct McastHeader {
        qpn / with_qpn: Qpn = [23:0],
        ipv4 / with_ipv4: bool = [60:60],
    }
}
