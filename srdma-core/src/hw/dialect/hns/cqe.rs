//! 64-byte completions of the hns dialect.                             [events 4.8]
//!
//! ```text
//! +0   63:32 immediate or key | 31:16 WQE index | 15:8 status | 7 owner | 6 receive | 4:0 opcode
//! +8   63:56 sub-status | 55:32 QPN | 25:24 inline | 23:0 SRQ number
//! +16  63:32 source MAC, low | 31:0 bytes received
//! +24  63 LPK | 62 GRH | 55:32 source QPN | 17:16 network header | 15:0 source MAC, high
//! +32  completion context | wr_id of an SRQ | time | flags: what of these is meant   `[srdma]`
//! ```
//!
//! The second half of the originals holds inline data, which nobody asks for here.

use super::super::{SlotForm, SlotWords, ValidBit, syndrome};
use crate::hw::cqe::{rq_op_is_invalidate, rq_op_is_write_imm};
use crate::hw::{CqeInfo, FlushCode, Major, Polarity, SqOp};
use crate::num::Qpn;

/// A request of ours, and its opcode in a completion.
const SENDS: [(SqOp, u8); 11] = [
    (SqOp::SEND, 0x0),
    (SqOp::SEND_INV, 0x1),
    (SqOp::WRITE, 0x3),
    (SqOp::READ, 0x5),
    (SqOp::COMPARE_SWAP, 0x6),
    (SqOp::FETCH_ADD, 0x7),
    (SqOp::FAST_REGISTER, 0xa),
    (SqOp::LOCAL_INVALIDATE, 0xb),
    (SqOp::BIND_MW, 0xc),
    // The rest is of our own choice. `[srdma]`
    (SqOp::ATOMIC_WRITE, 0x1e),
    (SqOp::NOP, 0x1f),
];

open_enum! {
    /// What a receive was taken by.
    pub struct RecvOpcode: u8 {
        /// WRITE with immediate.
        WRITE_IMM = 0,
        /// SEND.
        SEND = 1,
        /// SEND with immediate.
        SEND_IMM = 2,
        /// SEND that invalidated a key.
        SEND_INV = 3,
    }
}

le_word! {
    /// Word 0, which publishes the entry.
    pub struct CqeFirst {
        /// What it is of.
        opcode / with_opcode: u8 = [4:0],
        /// Inline data; not used.
        rq_inline / with_rq_inline: bool = [5:5],
        /// Of a receive.
        recv / with_recv: bool = [6:6],
        /// Changes from lap to lap; 1 on the first.
        owner / with_owner: bool = [7:7],
        /// Why it failed; 0 if it did not.
        status / with_status: u8 = [15:8],
        /// First quantum of the WQE.
        wqe_idx / with_wqe_idx: u16 = [31:16],
        /// Immediate, or the key that was invalidated.
        imm_rkey / with_imm_rkey: u32 = [63:32],
    }
}

le_word! {
    /// Word 1.
    pub struct CqeQueue {
        /// The shared receive queue; 0 if none.
        srqn / with_srqn: u32 = [23:0],
        /// Inline data; not used.
        cqe_inline / with_cqe_inline: u8 = [25:24],
        /// Local QPN.
        lcl_qpn / with_lcl_qpn: Qpn = [55:32],
        /// Our own code.
        sub_status / with_sub_status: u8 = [63:56],
    }
}

le_word! {
    /// Word 2.
    pub struct CqeLen {
        /// Bytes received.
        byte_cnt / with_byte_cnt: u32 = [31:0],
        /// Low bytes of the source's MAC.
        smac_low / with_smac_low: u32 = [63:32],
    }
}

le_word! {
    /// Word 3.
    pub struct CqePeer {
        /// High bytes of the source's MAC.
        smac_high / with_smac_high: u16 = [15:0],
        /// Network header: 1 RoCE v1, 2 IPv4, 3 IPv6.
        port_type / with_port_type: u8 = [17:16],
        /// VLAN tag.
        vid / with_vid: u16 = [29:18],
        /// There is one.
        vid_valid / with_vid_valid: bool = [30:30],
        /// QPN of a datagram's sender.
        rmt_qpn / with_rmt_qpn: Qpn = [55:32],
        /// Service level.
        sl / with_sl: u8 = [58:56],
        /// Port.
        portn / with_portn: u8 = [61:59],
        /// A GRH, or what stands for it, is in the buffer.
        grh / with_grh: bool = [62:62],
        /// Loopback.
        lpk / with_lpk: bool = [63:63],
    }
}

le_word! {
    /// Word 7. `[srdma]`
    pub struct CqeFlags {
        /// Word 5 is the wr_id of a receive from an SRQ.
        wr_id / with_wr_id: bool = [0:0],
        /// Word 6 is a time.
        timed / with_timed: bool = [1:1],
        /// The message was solicited.
        solicited / with_solicited: bool = [2:2],
    }
}

/// The word that publishes a completion.
pub const CQE_HEADER: usize = 0;
/// The owner bit of that word.
pub const CQE_VALID: ValidBit = ValidBit {
    bit: 7,
    first: true,
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

/// True if the header is of this lap.                                  [events 4.8]
// rule: event-70
#[inline]
#[must_use]
pub fn is_ready(header: u64, lap: Polarity) -> bool {
    CQE_VALID.matches(header, lap)
}

/// The entry, owner bit clear.
#[inline]
#[must_use]
pub fn encode(info: &CqeInfo) -> SlotWords {
    let inval = !info.sq && info.stag_or_ipv4 && rq_op_is_invalidate(info.op);
    let datagram = !info.sq && !inval && info.peer != 0;
    let (status, sub) = match info.error {
        None => (0, 0),
        Some((major, minor)) => (syndrome::of(major, minor), syndrome::vendor(minor)),
    };
    let first = CqeFirst::ZERO
        .with_opcode(opcode(info, inval))
        .with_recv(!info.sq)
        .with_status(status)
        .with_wqe_idx(info.wqe_index)
        .with_imm_rkey(if inval {
            info.peer
        } else {
            info.imm.unwrap_or(0)
        });
    let queue = CqeQueue::ZERO
        .with_srqn(info.srqn)
        .with_lcl_qpn(info.qpn)
        .with_sub_status(sub);
    let peer = if datagram {
        CqePeer::ZERO
            .with_rmt_qpn(Qpn::new(info.peer))
            .with_port_type(if info.stag_or_ipv4 { 2 } else { 3 })
            .with_grh(true)
    } else {
        CqePeer::ZERO
    };
    let flags = CqeFlags::ZERO
        .with_wr_id(info.srq_wr_id.is_some())
        .with_timed(info.timestamp.is_some())
        .with_solicited(info.solicited);
    [
        first.bits(),
        queue.bits(),
        CqeLen::ZERO.with_byte_cnt(info.len).bits(),
        peer.bits(),
        info.context,
        info.srq_wr_id.unwrap_or(0),
        info.timestamp.unwrap_or(0),
        flags.bits(),
    ]
}

fn opcode(info: &CqeInfo, inval: bool) -> u8 {
    if info.sq {
        let plain = match SqOp(info.op) {
            SqOp::SEND_SOL => SqOp::SEND,
            SqOp::SEND_SOL_INV => SqOp::SEND_INV,
            SqOp::WRITE_SOL => SqOp::WRITE,
            SqOp::READ_LOC_INV => SqOp::READ,
            op => op,
        };
        let known = SENDS.iter().find(|(op, _)| *op == plain);
        return known.map_or(0x1f, |(_, number)| *number);
    }
    let opcode = match info.imm {
        Some(_) if rq_op_is_write_imm(info.op) => RecvOpcode::WRITE_IMM,
        Some(_) => RecvOpcode::SEND_IMM,
        None if inval => RecvOpcode::SEND_INV,
        None => RecvOpcode::SEND,
    };
    opcode.0
}

/// From a copy of the entry, whatever its owner bit.
#[inline]
#[must_use]
pub fn decode(words: &SlotWords) -> CqeInfo {
    let &[first, queue, len, peer, context, wr_id, time, flags] = words;
    let (first, queue) = (CqeFirst::from_bits(first), CqeQueue::from_bits(queue));
    let (peer, flags) = (CqePeer::from_bits(peer), CqeFlags::from_bits(flags));
    let (sq, status) = (!first.recv(), first.status());
    let recv = RecvOpcode(first.opcode());
    let good = !sq && status == 0;
    let inval = good && recv == RecvOpcode::SEND_INV;
    let with_imm = good && matches!(recv, RecvOpcode::WRITE_IMM | RecvOpcode::SEND_IMM);
    CqeInfo {
        sq,
        op: if sq {
            let known = SENDS.iter().find(|(_, number)| *number == first.opcode());
            known.map_or(SqOp::NOP.0, |(op, _)| op.0)
        } else {
            receive_op(recv)
        },
        qpn: queue.lcl_qpn(),
        context,
        wqe_index: first.wqe_idx(),
        len: CqeLen::from_bits(len).byte_cnt(),
        peer: if inval {
            first.imm_rkey()
        } else {
            peer.rmt_qpn().value()
        },
        stag_or_ipv4: inval || peer.grh() && peer.port_type() == 2,
        solicited: flags.solicited(),
        error: (status != 0).then(|| (Major::FLUSH, syndrome::flush_code(status).0)),
        srq_wr_id: flags.wr_id().then_some(wr_id),
        srqn: queue.srqn(),
        imm: with_imm.then(|| first.imm_rkey()),
        timestamp: flags.timed().then_some(time),
        ..CqeInfo::default()
    }
}

/// The BTH opcode that stands for those of one kind: a reliable message of one packet.
const fn receive_op(opcode: RecvOpcode) -> u8 {
    match opcode {
        RecvOpcode::WRITE_IMM => 0x0b,
        RecvOpcode::SEND_IMM => 0x05,
        RecvOpcode::SEND_INV => 0x17,
        _ => 0x04,
    }
}

/// The entry names no queue pair from here on.
pub const fn void(words: &mut SlotWords) {
    let [_, _, _, _, context, ..] = words;
    *context = 0;
}

/// What is left of a flush starts at WQE `index` and failed with `code`.
#[must_use]
pub fn rewritten(words: &SlotWords, index: u16, code: FlushCode) -> SlotWords {
    let &[first, queue, c, d, e, f, g, h] = words;
    let first = CqeFirst::from_bits(first)
        .with_wqe_idx(index)
        .with_status(syndrome::of(Major::FLUSH, code.0));
    let queue = CqeQueue::from_bits(queue).with_sub_status(syndrome::vendor(code.0));
    [first.bits(), queue.bits(), c, d, e, f, g, h]
}
