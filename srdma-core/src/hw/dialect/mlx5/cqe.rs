//! 64-byte completions of the mlx5 dialect.                            [events 4.6]
//!
//! ```text
//! byte  0 flags `[srdma]`   2 WQE id     4 wr_id of an SRQ, high half `[srdma]`
//!       8 completion context `[srdma]`  17 path, 20 checksum, 22 SLID: not used by RoCE
//!      24 29:28 GRH | 25:24 network header | 23:0 source QPN
//!      32 23:0 SRQ number  36 immediate, or invalidated key
//!      40 wr_id of an SRQ, low half `[srdma]`    44 bytes received
//!      48 timestamp; of an error 54 vendor's code, 55 syndrome
//!      56 send opcode      57 QPN       60 WQE counter   62 signature
//!      63 7:4 opcode | 3:2 format | 1 solicited | 0 owner
//! ```
//!
//! Fields are big-endian, so a word here is eight bytes with the first one highest, and turns over
//! when it is stored. What the originals leave reserved carries what our driver half asks for
//! beyond them. A slot that was never written counts as INVALID, so that a large queue costs no
//! memory.

use super::super::{SlotForm, SlotWords, ValidBit, syndrome};
use crate::hw::cqe::rq_op_is_write_imm;
use crate::hw::{CqeInfo, FlushCode, Major, Polarity, SqOp};
use crate::num::Qpn;

open_enum! {
    /// What a completion is of.                                       [events 4.6]
    pub struct CqeOpcode: u8 {
        /// A request that succeeded.
        REQ = 0,
        /// A WRITE with immediate took a receive.
        RESP_WRITE_IMM = 1,
        /// A SEND took a receive.
        RESP_SEND = 2,
        /// A SEND with immediate did.
        RESP_SEND_IMM = 3,
        /// A SEND that invalidated a key did.
        RESP_SEND_INV = 4,
        /// The queue goes on in another buffer; our driver half is told by other means.
        RESIZE_CQ = 5,
        /// No packet.
        NO_PACKET = 6,
        /// A signature was wrong.
        SIG_ERR = 12,
        /// A request that failed.
        REQ_ERR = 13,
        /// A receive that failed.
        RESP_ERR = 14,
        /// Never written.
        INVALID = 15,
    }
}

open_enum! {
    /// What a request was: the opcode of its WQE in this dialect.
    pub struct SendOpcode: u8 {
        /// Nothing.
        NOP = 0x00,
        /// SEND with invalidate.
        SEND_INVAL = 0x01,
        /// RDMA WRITE.
        RDMA_WRITE = 0x08,
        /// SEND.
        SEND = 0x0a,
        /// RDMA READ.
        RDMA_READ = 0x10,
        /// Atomic compare and swap.
        ATOMIC_CS = 0x11,
        /// Atomic fetch and add.
        ATOMIC_FA = 0x12,
        /// Bind a memory window.
        BIND_MW = 0x18,
        /// A change of a key: local invalidate.
        UMR = 0x25,
        /// ATOMIC WRITE. `[srdma]`
        ATOMIC_WRITE = 0x3e,
    }
}

impl SendOpcode {
    /// Of a WQE of ours.
    #[must_use]
    pub const fn of(op: SqOp) -> Self {
        match op {
            SqOp::WRITE | SqOp::WRITE_SOL => Self::RDMA_WRITE,
            SqOp::READ | SqOp::READ_LOC_INV => Self::RDMA_READ,
            SqOp::SEND | SqOp::SEND_SOL => Self::SEND,
            SqOp::SEND_INV | SqOp::SEND_SOL_INV => Self::SEND_INVAL,
            SqOp::COMPARE_SWAP => Self::ATOMIC_CS,
            SqOp::FETCH_ADD => Self::ATOMIC_FA,
            SqOp::ATOMIC_WRITE => Self::ATOMIC_WRITE,
            SqOp::BIND_MW => Self::BIND_MW,
            SqOp::LOCAL_INVALIDATE | SqOp::FAST_REGISTER => Self::UMR,
            _ => Self::NOP,
        }
    }

    /// The plainest WQE of ours with this opcode.
    #[must_use]
    pub const fn op(self) -> SqOp {
        match self {
            Self::RDMA_WRITE => SqOp::WRITE,
            Self::RDMA_READ => SqOp::READ,
            Self::SEND => SqOp::SEND,
            Self::SEND_INVAL => SqOp::SEND_INV,
            Self::ATOMIC_CS => SqOp::COMPARE_SWAP,
            Self::ATOMIC_FA => SqOp::FETCH_ADD,
            Self::ATOMIC_WRITE => SqOp::ATOMIC_WRITE,
            Self::BIND_MW => SqOp::BIND_MW,
            Self::UMR => SqOp::LOCAL_INVALIDATE,
            _ => SqOp::NOP,
        }
    }
}

le_word! {
    /// Bytes 0 to 7.
    pub struct CqeFirst {
        /// High half of the wr_id of a receive from an SRQ. `[srdma]`
        wr_id_high / with_wr_id_high: u32 = [31:0],
        /// Of a multi-packet receive.
        wqe_id / with_wqe_id: u16 = [47:32],
        /// The time is meant. `[srdma]`
        timed / with_timed: bool = [48:48],
    }
}

le_word! {
    /// Bytes 24 to 31.
    pub struct CqeFlags {
        /// QPN of a datagram's sender.
        rqpn / with_rqpn: Qpn = [55:32],
        /// Network header: 0 GRH or RoCE v1, 1 IPv6, 2 IPv4.
        l3_type / with_l3_type: u8 = [57:56],
        /// A GRH, or what stands for it, is in the buffer.
        grh / with_grh: u8 = [61:60],
    }
}

le_word! {
    /// Bytes 32 to 39.
    pub struct CqeKey {
        /// Immediate, or the key that was invalidated.
        imm_inval / with_imm_inval: u32 = [31:0],
        /// The shared receive queue; 0 if none.
        srqn / with_srqn: u32 = [55:32],
    }
}

le_word! {
    /// Bytes 40 to 47.
    pub struct CqeCount {
        /// Bytes received.
        byte_cnt / with_byte_cnt: u32 = [31:0],
        /// Low half of the wr_id of a receive from an SRQ. `[srdma]`
        wr_id_low / with_wr_id_low: u32 = [63:32],
    }
}

le_word! {
    /// Bytes 48 to 55 of an error.
    pub struct CqeError {
        /// Why.
        syndrome / with_syndrome: u8 = [7:0],
        /// Our own code.
        vendor_err / with_vendor_err: u8 = [15:8],
    }
}

le_word! {
    /// Bytes 56 to 63, which publish the entry.
    pub struct CqeLast {
        /// Changes from lap to lap; 0 on the first.
        owner / with_owner: bool = [0:0],
        /// The message was solicited.
        solicited / with_solicited: bool = [1:1],
        /// Inline data; not used.
        format / with_format: u8 = [3:2],
        /// What it is of.
        opcode / with_opcode: CqeOpcode = [7:4],
        /// Not used.
        signature / with_signature: u8 = [15:8],
        /// First quantum of the WQE.
        wqe_counter / with_wqe_counter: u16 = [31:16],
        /// Local QPN.
        qpn / with_qpn: Qpn = [55:32],
        /// What a request was.
        send_opcode / with_send_opcode: SendOpcode = [63:56],
    }
}

/// The word that publishes a completion.
pub const CQE_HEADER: usize = 7;
/// The owner bit of that word as it stands in memory: byte 63, bit 0.
pub const CQE_VALID: ValidBit = ValidBit {
    bit: 56,
    first: false,
};
/// The form of a completion.
pub const CQE: SlotForm = SlotForm {
    header: CQE_HEADER,
    valid: CQE_VALID,
    is_ready,
    encode,
    decode,
    void,
    rewritten,
};
/// The word with the completion context.
const CONTEXT: usize = 1;

/// True if the header, as it stands in memory, is of this lap.         [events 4.6]
// rule: event-70
#[inline]
#[must_use]
pub fn is_ready(header: u64, lap: Polarity) -> bool {
    header != 0
        && CQE_VALID.matches(header, lap)
        && CqeLast::from_bits(header.swap_bytes()).opcode() != CqeOpcode::INVALID
}

/// The entry as it stands in memory, owner bit clear.
#[inline]
#[must_use]
pub fn encode(info: &CqeInfo) -> SlotWords {
    let wr_id = info.srq_wr_id.unwrap_or(0);
    let (opcode, time, last) = last(info);
    let inval = opcode == CqeOpcode::RESP_SEND_INV;
    let datagram = !info.sq && !inval && info.peer != 0;
    let flags = match (info.error, info.timestamp) {
        (Some(_), Some(at)) => at,
        _ if datagram => CqeFlags::ZERO
            .with_rqpn(Qpn::new(info.peer))
            .with_l3_type(if info.stag_or_ipv4 { 2 } else { 1 })
            .with_grh(1)
            .bits(),
        _ => 0,
    };
    let key = if inval {
        info.peer
    } else {
        info.imm.unwrap_or(0)
    };
    [
        CqeFirst::ZERO
            .with_wr_id_high(high(wr_id))
            .with_timed(info.timestamp.is_some())
            .bits(),
        info.context,
        0,
        flags,
        CqeKey::ZERO.with_imm_inval(key).with_srqn(info.srqn).bits(),
        CqeCount::ZERO
            .with_byte_cnt(info.len)
            .with_wr_id_low(low(wr_id))
            .bits(),
        time,
        last.bits(),
    ]
    .map(u64::swap_bytes)
}

fn last(info: &CqeInfo) -> (CqeOpcode, u64, CqeLast) {
    let opcode = match (info.error, info.sq) {
        (Some(_), true) => CqeOpcode::REQ_ERR,
        (Some(_), false) => CqeOpcode::RESP_ERR,
        (None, true) => CqeOpcode::REQ,
        (None, false) if info.imm.is_some() && rq_op_is_write_imm(info.op) => {
            CqeOpcode::RESP_WRITE_IMM
        }
        (None, false) if info.imm.is_some() => CqeOpcode::RESP_SEND_IMM,
        (None, false) if info.stag_or_ipv4 && crate::hw::cqe::rq_op_is_invalidate(info.op) => {
            CqeOpcode::RESP_SEND_INV
        }
        (None, false) => CqeOpcode::RESP_SEND,
    };
    let time = match info.error {
        None => info.timestamp.unwrap_or(0),
        Some((major, minor)) => CqeError::ZERO
            .with_syndrome(syndrome::of(major, minor))
            .with_vendor_err(syndrome::vendor(minor))
            .bits(),
    };
    let send = if info.sq {
        SendOpcode::of(SqOp(info.op))
    } else {
        SendOpcode::NOP
    };
    let last = CqeLast::ZERO
        .with_solicited(info.solicited)
        .with_opcode(opcode)
        .with_wqe_counter(info.wqe_index)
        .with_qpn(info.qpn)
        .with_send_opcode(send);
    (opcode, time, last)
}

/// From a copy of the entry, whatever its owner bit.
#[inline]
#[must_use]
pub fn decode(words: &SlotWords) -> CqeInfo {
    let [first, context, _, flags, key, count, time, last] = words.map(u64::swap_bytes);
    let (first, key) = (CqeFirst::from_bits(first), CqeKey::from_bits(key));
    let (count, last) = (CqeCount::from_bits(count), CqeLast::from_bits(last));
    let (opcode, from) = (last.opcode(), CqeFlags::from_bits(flags));
    let failed = matches!(opcode, CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
    let sq = matches!(opcode, CqeOpcode::REQ | CqeOpcode::REQ_ERR);
    let inval = opcode == CqeOpcode::RESP_SEND_INV;
    let datagram = !failed && from.grh() != 0;
    let with_imm = matches!(opcode, CqeOpcode::RESP_WRITE_IMM | CqeOpcode::RESP_SEND_IMM);
    let wr_id = u64::from(first.wr_id_high()) << 32 | u64::from(count.wr_id_low());
    CqeInfo {
        sq,
        op: if sq {
            last.send_opcode().op().0
        } else {
            receive_op(opcode)
        },
        qpn: last.qpn(),
        context,
        wqe_index: last.wqe_counter(),
        len: count.byte_cnt(),
        peer: match (inval, datagram) {
            (true, _) => key.imm_inval(),
            (false, true) => from.rqpn().value(),
            (false, false) => 0,
        },
        stag_or_ipv4: inval || datagram && from.l3_type() == 2,
        solicited: last.solicited(),
        error: failed.then(|| {
            let code = syndrome::flush_code(CqeError::from_bits(time).syndrome());
            (Major::FLUSH, code.0)
        }),
        srq_wr_id: (key.srqn() != 0).then_some(wr_id),
        srqn: key.srqn(),
        imm: with_imm.then(|| key.imm_inval()),
        timestamp: first.timed().then_some(if failed { flags } else { time }),
        ..CqeInfo::default()
    }
}

/// The BTH opcode that stands for those of one kind: a reliable message of one packet.
const fn receive_op(opcode: CqeOpcode) -> u8 {
    match opcode {
        CqeOpcode::RESP_WRITE_IMM => 0x0b,
        CqeOpcode::RESP_SEND_IMM => 0x05,
        CqeOpcode::RESP_SEND_INV => 0x17,
        _ => 0x04,
    }
}

/// The entry names no queue pair from here on.
pub const fn void(words: &mut SlotWords) {
    let [_, context, ..] = words;
    *context = 0;
}

/// The words that [`void`] changes.
pub const VOIDED: [usize; 1] = [CONTEXT];

/// What is left of a flush starts at WQE `index` and failed with `code`; as words in memory.
#[must_use]
pub fn rewritten(words: &SlotWords, index: u16, code: FlushCode) -> SlotWords {
    let &[a, b, c, d, e, f, error, last] = words;
    let error = CqeError::from_bits(error.swap_bytes())
        .with_syndrome(syndrome::of(Major::FLUSH, code.0))
        .with_vendor_err(syndrome::vendor(code.0));
    let last = CqeLast::from_bits(last.swap_bytes()).with_wqe_counter(index);
    let [error, last] = [error.bits(), last.bits()].map(u64::swap_bytes);
    [a, b, c, d, e, f, error, last]
}

#[allow(clippy::cast_possible_truncation, reason = "half of a word")]
const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[allow(clippy::cast_possible_truncation, reason = "half of a word")]
const fn low(word: u64) -> u32 {
    word as u32
}
