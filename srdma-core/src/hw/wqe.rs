//! SQ work queue entries: header, opcodes, geometry.                   [E810 2.1–2.4]
//!
//! ```text
//!  quantum 0 (32 B)                                  quanta 1..8
//!  +0  fragment 0 | immediate | operand              fragments two by two, or
//!  +8  fragment 0 second word | inline bytes 0..8    31 inline bytes and a byte with the valid bit
//!  +16 remote address | UD: Q_Key and QPN
//!  +24 header, written last
//!
//!  header 63 valid | 62 signaled | 61 local fence | 60 read fence | 57 inline | 56 push
//!         55:48 inline length, or 55 remote atomics, 54 type 1, 53 VA based, 52:48 rights
//!         47 immediate | 45 XRC [srdma] | 41:38 more fragments | 37:32 opcode
//!         31:0 key, or 16:0 AH
//! ```
//!
//! [`WqeBuf`] builds, [`SqCmd`] parses. Neither knows where in a ring an entry stands, nor the lap:
//! see `ring::SqProducer` and `ring::SqConsumer`.

mod build;
mod parse;
#[cfg(test)]
mod tests;
mod wr;
#[cfg(test)]
mod xrc_tests;

pub use build::{WqeBuf, WqeError};
pub use parse::{AtomicOperands, SqCmd, WqeFault};
pub(in crate::hw) use parse::{check_quanta, read_fragments};
pub use wr::{ReadWr, RemoteAddr, SendWr, WrFlags, WriteWr};

use super::Polarity;
use crate::num::{AhId, Qkey, Qpn, Rkey, SrqId};

/// 64-bit words of one quantum (32 bytes).                            [E810 1.1]
pub const QUANTUM_WORDS: usize = 4;
/// Quanta of the largest WQE.                                         [E810 1.1]
pub const MAX_QUANTA: u32 = 8;
/// Words of the largest WQE.
pub const MAX_WORDS: usize = 32;
/// Index of the header word in a WQE.
pub const HEADER: usize = 3;

open_enum! {
    /// Operation of an SQ WQE.                                        [E810 2.2]
    pub struct SqOp: u8 {
        /// RDMA WRITE, with immediate by flag.
        WRITE = 0x00,
        /// RDMA READ.
        READ = 0x01,
        /// SEND, with immediate by flag.
        SEND = 0x03,
        /// SEND with invalidate.
        SEND_INV = 0x04,
        /// SEND, solicited.
        SEND_SOL = 0x05,
        /// SEND with invalidate, solicited.
        SEND_SOL_INV = 0x06,
        /// Bind a memory window.
        BIND_MW = 0x08,
        /// Fast registration; kernel only, not served by this device.
        FAST_REGISTER = 0x09,
        /// Local invalidate.
        LOCAL_INVALIDATE = 0x0a,
        /// RDMA READ, then invalidate the local key.
        READ_LOC_INV = 0x0b,
        /// Nothing; also the padding before a chunk boundary.
        NOP = 0x0c,
        /// RDMA WRITE with immediate, solicited.
        WRITE_SOL = 0x0d,
        /// Atomic fetch and add.
        FETCH_ADD = 0x0f,
        /// Atomic compare and swap.
        COMPARE_SWAP = 0x11,
        /// ATOMIC WRITE. `[srdma]`
        ATOMIC_WRITE = 0x12,
        /// iWARP connection WQE; not served by this device.
        GEN_RTS_AE = 0x30,
        /// Never in a WQE: a receive, as drivers name it in completions.
        REC = 0x3e,
        /// Never in a WQE: a receive with immediate.
        REC_IMM = 0x3f,
    }
}

impl SqOp {
    /// True for the four SENDs.
    #[inline]
    #[must_use]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            Self::SEND | Self::SEND_INV | Self::SEND_SOL | Self::SEND_SOL_INV
        )
    }

    /// True for the two WRITEs.
    #[inline]
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::WRITE | Self::WRITE_SOL)
    }

    /// True if the WQE asks the responder for a solicited event.
    #[inline]
    #[must_use]
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SEND_SOL | Self::SEND_SOL_INV | Self::WRITE_SOL)
    }
}

le_word! {
    /// Word 3 of an SQ WQE.                                           [E810 2.1]
    pub struct SqHeader {
        /// Remote key, or the key to invalidate.
        key / with_key: Rkey = [31:0],
        /// Address handle of a datagram.
        ah / with_ah: AhId = [16:0] overlay,
        /// Operation.
        op / with_op: SqOp = [37:32],
        /// Fragment slots beyond the first, the padding fragment counted.
        more_frags / with_more_frags: u8 = [41:38],
        /// Privileged datagram: dwords of headers in front of the payload in memory.
        l4_len / with_l4_len: u8 = [45:42] overlay,
        /// The WQE names an XRC shared receive queue of the peer. `[srdma]`
        xrc / with_xrc: bool = [45:45],
        /// Ask for the round-trip time in the CQE.
        report_rtt / with_report_rtt: bool = [46:46],
        /// Word 0 is the immediate.
        imm / with_imm: bool = [47:47],
        /// Rights of a window.
        rights / with_rights: u8 = [52:48] overlay,
        /// Window: addresses are virtual, not offsets.
        va_based / with_va_based: bool = [53:53] overlay,
        /// Window: type 1.
        type1 / with_type1: bool = [54:54] overlay,
        /// Window: remote atomics allowed.
        remote_atomic / with_remote_atomic: bool = [55:55] overlay,
        /// Inline bytes.
        inline_len / with_inline_len: u8 = [55:48],
        /// Also pushed by MMIO; ignored here.
        push / with_push: bool = [56:56],
        /// The payload is in the WQE.
        inline / with_inline: bool = [57:57],
        /// iWARP.
        stream_mode / with_stream_mode: bool = [58:58],
        /// iWARP.
        wait_for_rcv_pdu / with_wait_for_rcv_pdu: bool = [59:59],
        /// Wait for outstanding READs and atomics.
        read_fence / with_read_fence: bool = [60:60],
        /// Wait for all earlier WQEs.
        local_fence / with_local_fence: bool = [61:61],
        /// Report success.
        signaled / with_signaled: bool = [62:62],
        /// Lap of the ring.
        valid / with_valid: Polarity = [63:63],
    }
}

impl SqHeader {
    /// Quanta of the WQE, 1..=8, from the header alone, whatever its bits are.
    #[inline]
    #[must_use]
    pub fn quanta(self) -> u32 {
        match self.op() {
            SqOp::BIND_MW | SqOp::FAST_REGISTER | SqOp::LOCAL_INVALIDATE | SqOp::NOP => 1,
            _ if self.inline() => inline_quanta(u32::from(self.inline_len())),
            _ => frag_slots_quanta(u32::from(self.more_frags())),
        }
    }
}

le_word! {
    /// Word 0 where an immediate or an XRC shared receive queue takes the place of fragment 0.
    pub struct ImmWord {
        imm / with_imm: u32 = [31:0],
        /// `[srdma]`
        srq / with_srq: SrqId = [55:32],
    }
}

le_word! {
    /// Word 6 of an atomic.
    pub struct AtomicSrq {
        /// `[srdma]`
        srq / with_srq: SrqId = [23:0],
    }
}

le_word! {
    /// Word 2 of a datagram SEND.                                     [E810 2.4]
    pub struct UdWord {
        /// Q_Key.
        qkey / with_qkey: Qkey = [31:0],
        /// Destination QPN.
        dest / with_dest: Qpn = [55:32],
    }
}

le_word! {
    /// Word 1 of BIND_MW.                                             [E810 2.4]
    pub struct BindWord {
        /// The window.
        window / with_window: u32 = [31:0],
        /// The region it opens.
        parent / with_parent: u32 = [63:32],
    }
}

/// Where a datagram goes. All zero for connected QPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdTarget {
    /// Address handle.
    pub ah: AhId,
    /// Q_Key.
    pub qkey: Qkey,
    /// Destination QPN.
    pub dest: Qpn,
}

/// Quanta of a WQE with `more` fragment slots beyond the first.       [E810 1.3]
#[inline]
#[must_use]
pub const fn frag_slots_quanta(more: u32) -> u32 {
    let quanta = 1 + more.div_ceil(2);
    if quanta > MAX_QUANTA {
        MAX_QUANTA
    } else {
        quanta
    }
}

/// SQ quanta for `frags` fragments, an immediate counted as one.      [E810 1.3]
#[must_use]
pub const fn sq_quanta(frags: u32) -> u32 {
    if frags <= 1 { 1 } else { 1 + frags / 2 }
}

/// Quanta of an inline WQE: 8 bytes in the first, 31 in each other.   [E810 1.3]
#[inline]
#[must_use]
pub const fn inline_quanta(len: u32) -> u32 {
    if len <= 8 {
        1
    } else {
        let quanta = 1 + (len - 8).div_ceil(31);
        if quanta > MAX_QUANTA {
            MAX_QUANTA
        } else {
            quanta
        }
    }
}

/// Rights a bind names in its header: remote read and remote write.   [E810 2.4]
const BIND_RIGHTS: u32 = 0x0c;
