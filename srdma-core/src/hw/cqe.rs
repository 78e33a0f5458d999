//! Completion queue entries.                                           [E810 3.1–3.4]
//!
//! ```text
//!  +0   63:32 PSN            31:0 bytes received
//!  +8   completion context (SRQ: wr_id)
//!  +16  55:32 QPN            31:0 invalidated key, or source QPN
//!  +24  63 valid | 62 SQ | 61:56 op | 55 error | 54 solicited | 53 key valid / IPv4 | 52 SRQ
//!       51 push dropped | 50 extended | 46:32 WQE index in quanta | 31:16 major | 15:0 minor
//!
//!  extension: the next slot (narrow CQ) or the second half of the slot (wide CQ)
//!  +0   31:0 immediate       +8  QP context of an SRQ receive
//!  +16  63:48 VLAN | 47:0 source MAC, or a timestamp
//!  +24  63 valid | 62 immediate valid | 61 MAC valid | 60 VLAN valid | 59 timestamp
//! ```
//!
//! [`CqeInfo`] is the meaning. Placing it, its valid bits and which slots it takes: `ring`.
//! What a driver makes of a flush (one entry, many completions) is not here.

use super::Polarity;
use crate::num::{Psn, Qpn, Rkey};

open_enum! {
    /// Major error code.                                              [E810 3.4]
    pub struct Major: u16 {
        /// No error.
        NONE = 0x0000,
        /// The minor code is a [`FlushCode`].
        FLUSH = 0x0001,
        /// Made up by the driver.
        DRIVER = 0x8000,
        /// CQP: object cache.
        CQP_OBJECT = 0xf000,
        /// CQP: context cache.
        CQP_CONTEXT = 0xf001,
        /// SRQ flush; the minor code is an AE code.
        SRQ_FLUSH = 0xfffe,
        /// CQP: command refused.
        CQP_ERROR = 0xffff,
    }
}

open_enum! {
    /// Minor error code of a flush: what a WQE failed with.           [E810 3.4]
    pub struct FlushCode: u16 {
        /// No cause known: fatal.
        INVALID = 0,
        /// Flushed, not itself at fault.
        GENERAL = 1,
        /// Local protection.
        PROT = 2,
        /// Remote access.
        REM_ACCESS = 3,
        /// Local QP operation.
        LOC_QP_OP = 4,
        /// Remote operation.
        REM_OP = 5,
        /// Local length.
        LOC_LEN = 6,
        /// Fatal.
        FATAL = 7,
        /// Transport retries exhausted.
        RETRY_EXC = 8,
        /// Window bind.
        MW_BIND = 9,
        /// Remote invalid request.
        REM_INV_REQ = 10,
        /// RNR retries exhausted.
        RNR_RETRY_EXC = 11,
        /// The response does not fit the request: BAD_RESP_ERR. `[srdma]`
        BAD_RESP = 12,
    }
}

le_word! {
    /// Word 0 of a CQE.
    pub struct CqeLen {
        /// Bytes received.
        bytes / with_bytes: u32 = [31:0],
        /// PSN (or RTT, or a timestamp).
        psn / with_psn: u32 = [63:32],
    }
}

le_word! {
    /// Word 2 of a CQE.
    pub struct CqePeer {
        /// Invalidated key or source QPN.
        peer / with_peer: u32 = [31:0],
        /// Local QPN.
        qpn / with_qpn: Qpn = [55:32],
    }
}

le_word! {
    /// Word 3 of a CQE, which publishes it.                           [E810 3.1]
    pub struct CqeHeader {
        /// Minor error code.
        minor / with_minor: u16 = [15:0],
        /// Major error code.
        major / with_major: Major = [31:16],
        /// First quantum of the WQE.
        wqe_index / with_wqe_index: u16 = [46:32],
        /// An extension follows.
        extended / with_extended: bool = [50:50],
        /// A push was dropped.
        push_dropped / with_push_dropped: bool = [51:51],
        /// The receive came from an SRQ.
        srq / with_srq: bool = [52:52],
        /// RC: the invalidated key is valid. UD: the network header is IPv4.
        stag_or_ipv4 / with_stag_or_ipv4: bool = [53:53],
        /// Solicited event.
        solicited / with_solicited: bool = [54:54],
        /// The error codes mean something.
        error / with_error: bool = [55:55],
        /// Operation.
        op / with_op: u8 = [61:56],
        /// Of the SQ.
        sq / with_sq: bool = [62:62],
        /// Lap of the ring.
        valid / with_valid: Polarity = [63:63],
    }
}

le_word! {
    /// Word 2 of an extension.                                        [E810 3.2]
    pub struct CqeMac {
        /// Source MAC, first byte highest.
        mac / with_mac: u64 = [47:0],
        /// VLAN tag.
        vlan / with_vlan: u16 = [63:48],
    }
}

le_word! {
    /// Word 3 of an extension.                                        [E810 3.2]
    pub struct CqeExtHeader {
        /// Word 2 is a timestamp, and neither MAC nor VLAN tag. `[srdma]`
        timestamp / with_timestamp: bool = [59:59],
        /// The VLAN tag is valid.
        vlan_valid / with_vlan_valid: bool = [60:60],
        /// The source MAC is valid.
        mac_valid / with_mac_valid: bool = [61:61],
        /// The immediate is valid.
        imm_valid / with_imm_valid: bool = [62:62],
        /// Lap of the ring slot it stands in.
        valid / with_valid: Polarity = [63:63],
    }
}

/// The words of a CQE or of its extension.
pub type CqeWords = [u64; 4];

/// Word 3 of every half: the one with the valid bit.
pub const CQE_HEADER: usize = 3;

/// A completion: what the words mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CqeInfo {
    /// Of the SQ, else of the RQ or SRQ.
    pub sq: bool,
    /// SQ: the WQE's opcode. RQ: low six bits of the BTH opcode, see [`rq_op`].
    pub op: u8,
    /// Local QPN.
    pub qpn: Qpn,
    /// The QP's completion context; 0 once the QP is gone.
    pub context: u64,
    /// First quantum of the WQE.
    pub wqe_index: u16,
    /// Bytes received; UD counts the 40 bytes of GRH area.
    pub len: u32,
    /// PSN.
    pub psn: Psn,
    /// Invalidated key (with `stag_or_ipv4`) or source QPN.
    pub peer: u32,
    /// RC: `peer` is an invalidated key. UD: the network header is IPv4.
    pub stag_or_ipv4: bool,
    /// Solicited event.
    pub solicited: bool,
    /// Error codes; `None` for success.
    pub error: Option<(Major, u16)>,
    /// The wr_id of an SRQ receive; makes the CQE extended.
    pub srq_wr_id: Option<u64>,
    /// The SRQ, for dialects that name it; 0 if none.
    pub srqn: u32,
    /// Immediate, a host-order value; makes the CQE extended.
    pub imm: Option<u32>,
    /// Source MAC of a datagram; makes the CQE extended.
    pub mac: Option<[u8; 6]>,
    /// VLAN tag of a datagram; makes the CQE extended.
    pub vlan: Option<u16>,
    /// When it was written, in nanoseconds of the device's clock; makes the CQE extended, and takes
    /// the place of MAC and VLAN tag. `[srdma]`
    pub timestamp: Option<u64>,
}

impl CqeInfo {
    /// A flush entry of one work queue.                               [E810 6.4]
    #[must_use]
    pub fn flush(sq: bool, qpn: Qpn, context: u64, wqe_index: u16, code: FlushCode) -> Self {
        Self {
            sq,
            qpn,
            context,
            wqe_index,
            error: Some((Major::FLUSH, code.0)),
            ..Self::default()
        }
    }

    /// The flush code, if this is a flush.
    #[must_use]
    pub fn flush_code(&self) -> Option<FlushCode> {
        match self.error {
            Some((Major::FLUSH, minor)) => Some(FlushCode(minor)),
            _ => None,
        }
    }

    /// The peer's key that a receive invalidated.
    #[must_use]
    pub fn invalidated(&self) -> Option<Rkey> {
        self.stag_or_ipv4.then_some(Rkey(self.peer))
    }

    /// True if the entry needs its extension half.                    [E810 3.2]
    #[inline]
    #[must_use]
    pub const fn extended(&self) -> bool {
        self.imm.is_some()
            || self.srq_wr_id.is_some()
            || self.timestamp.is_some()
            || self.mac.is_some()
            || self.vlan.is_some()
    }

    /// The first half, valid bit clear.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> CqeWords {
        let (major, minor) = self.error.unwrap_or((Major::NONE, 0));
        [
            CqeLen::ZERO
                .with_bytes(self.len)
                .with_psn(self.psn.value())
                .bits(),
            self.srq_wr_id.unwrap_or(self.context),
            CqePeer::ZERO.with_peer(self.peer).with_qpn(self.qpn).bits(),
            CqeHeader::ZERO
                .with_minor(minor)
                .with_major(major)
                .with_wqe_index(self.wqe_index)
                .with_extended(self.extended())
                .with_srq(self.srq_wr_id.is_some())
                .with_stag_or_ipv4(self.stag_or_ipv4)
                .with_solicited(self.solicited)
                .with_error(self.error.is_some())
                .with_op(self.op)
                .with_sq(self.sq)
                .bits(),
        ]
    }

    /// The extension half, valid bit clear.
    #[must_use]
    pub fn encode_ext(&self) -> CqeWords {
        let [a, b, c, d, e, f] = self.mac.unwrap_or_default();
        let context = if self.srq_wr_id.is_some() {
            self.context
        } else {
            0
        };
        let link = CqeMac::ZERO
            .with_mac(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
            .with_vlan(self.vlan.unwrap_or(0));
        let stamped = self.timestamp.is_some();
        [
            u64::from(self.imm.unwrap_or(0)),
            context,
            self.timestamp.unwrap_or_else(|| link.bits()),
            CqeExtHeader::ZERO
                .with_timestamp(stamped)
                .with_vlan_valid(self.vlan.is_some() && !stamped)
                .with_mac_valid(self.mac.is_some() && !stamped)
                .with_imm_valid(self.imm.is_some())
                .bits(),
        ]
    }

    /// From a copy of the first half, and of the extension if the first half announces one.
    #[inline]
    #[must_use]
    pub fn decode(base: &CqeWords, ext: Option<&CqeWords>) -> Self {
        let [word0, context, word2, word3] = *base;
        let (len, peer) = (CqeLen::from_bits(word0), CqePeer::from_bits(word2));
        let header = CqeHeader::from_bits(word3);
        let mut info = Self {
            sq: header.sq(),
            op: header.op(),
            qpn: peer.qpn(),
            context,
            wqe_index: header.wqe_index(),
            len: len.bytes(),
            psn: Psn::new(len.psn()),
            peer: peer.peer(),
            stag_or_ipv4: header.stag_or_ipv4(),
            solicited: header.solicited(),
            error: header.error().then(|| (header.major(), header.minor())),
            ..Self::default()
        };
        if let Some(ext) = ext {
            info.decode_ext(header.srq(), ext);
        }
        info
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the low half is the immediate"
    )]
    fn decode_ext(&mut self, srq: bool, ext: &CqeWords) {
        let [imm, qp_context, word2, header] = *ext;
        let (mac, header) = (CqeMac::from_bits(word2), CqeExtHeader::from_bits(header));
        if srq {
            self.srq_wr_id = Some(self.context);
            self.context = qp_context;
        }
        self.imm = header.imm_valid().then_some(imm as u32);
        let [_, _, bytes @ ..] = mac.mac().to_be_bytes();
        self.mac = header.mac_valid().then_some(bytes);
        self.vlan = header.vlan_valid().then(|| mac.vlan());
        self.timestamp = header.timestamp().then_some(word2);
    }
}

/// The OP field of a receive: low six bits of the completing packet's BTH opcode. [E810 3.3]
#[inline]
#[must_use]
pub const fn rq_op(bth_opcode: u8) -> u8 {
    bth_opcode & 0x3f
}

/// True if a receive's OP says that a WRITE with immediate took it: WRITE_LAST_IMM or
/// WRITE_ONLY_IMM of RC or UC.                                       [E810 3.3]
#[inline]
#[must_use]
pub const fn rq_op_is_write_imm(op: u8) -> bool {
    // RC is 0b000x_xxxx, UC 0b001x_xxxx: bit 5 of the field tells them apart.
    matches!(op & 0x1f, 0x09 | 0x0b)
}

/// True if a receive's OP says that the packet named a key to be invalidated: SEND_LAST_INV or
/// SEND_ONLY_INV of RC or XRC.
#[inline]
#[must_use]
pub const fn rq_op_is_invalidate(op: u8) -> bool {
    matches!(op & 0x1f, 0x16 | 0x17)
}

#[cfg(test)]
mod tests;
