//! Every maximum of the device, and how they depend on each other.
//!
//! A queue or loop without a number here is a bug.

/// Largest message of the transport, in bytes.                       [IBTA 9.7.7]
pub const MAX_MSG_BYTES: u64 = 1 << 31;
/// Scatter/gather entries of one work request.                       [E810 1.7]
pub const MAX_SGE: usize = 13;
/// Inline bytes of one work request.                                 [E810 1.7]
pub const MAX_INLINE: usize = 101;
/// SQ and RQ ring size, in quanta of 32 bytes.                       [E810 1.7]
pub const MAX_WQ_QUANTA: u32 = 32_768;
/// SQ quanta that stay unused because the producer clears ahead.      [E810 1.1]
pub const SQ_RESERVE: u32 = 257;
/// Quanta that a WQE may not straddle an aligned group of.            [E810 1.4]
pub const SQ_CHUNK: u32 = 8;
/// CQ ring size, in slots. An E810 has 1,048,575; ours counts to 2^24, so that a ring holds the
/// 4 Mi completions of a large job, each of which may take two slots. `[srdma]`
pub const MAX_CQE: u32 = (1 << 24) - 1;
/// CEQ ring size, in entries.                                        [E810 1.7]
pub const MAX_CEQE: u32 = 262_143;
/// AEQ ring size, in entries.                                        [E810 1.7]
pub const MAX_AEQE: u32 = 524_287;
/// Smallest CQP ring, in commands.                                   [E810 7]
pub const MIN_CQP: u32 = 4;
/// Largest CQP ring, in commands.                                    [E810 7]
pub const MAX_CQP: u32 = 2048;
/// SRQ ring size, in quanta.                                         [E810 1.7]
pub const MAX_SRQ_QUANTA: u32 = 262_144;
/// Completion event queues.                                          [E810 1.7]
pub const MAX_CEQS: usize = 1024;
/// Inbound READ and atomic requests that a responder can replay.
pub const MAX_RD_ATOMIC: u8 = 128;
/// Largest path MTU, payload bytes.                                  [IBTA 9.2]
pub const MAX_MTU: usize = 4096;
/// Bytes of headers in front of any payload: BTH 12, XRCETH 4, DETH 8, then at most AtomicETH 28.
pub const MAX_HEADER: usize = 52;
/// Bytes of any RoCEv2 datagram: headers, payload, pad, ICRC.
pub const MAX_DATAGRAM: usize = MAX_HEADER + MAX_MTU + 3 + 4;
/// Queue pairs of one device.
pub const MAX_QP: u32 = 262_144;
/// Completion queues of one device.                                  [E810 1.7]
pub const MAX_CQ: u32 = 524_288;
/// Shared receive queues of one device.
pub const MAX_SRQ: u32 = 65_536;
/// XRC domains: their number has 24 bits and 0 is none.
pub const MAX_XRCD: u32 = (1 << 24) - 1;
/// Protection domains of one device.                                 [E810 1.7]
pub const MAX_PD: u32 = 262_144;
/// Regions and windows of one device (24-bit index).
pub const MAX_MR: u32 = 1 << 24;
/// Address handles of one device (17-bit id).                        [E810 2.1]
pub const MAX_AH: u32 = 1 << 17;
/// Entries of the GID table.
pub const MAX_GIDS: usize = 32;
/// QPs attached to one multicast group.
pub const MAX_QP_PER_MCAST: usize = 56;
/// Multicast groups of one device.
pub const MAX_MCAST: usize = 8192;
/// PSNs a requester may have in flight; far below the half range.     [IBTA 9.7.2]
pub const MAX_PSN_WINDOW: u32 = 16_384;
/// Receive buffer of a socket where nothing was configured.
pub const DEFAULT_RMEM: u32 = 212_992;
/// Buffers of the exception queue, of one datagram each: 8.5 MB at most. `[srdma]`
pub const IEQ_BUFFERS: usize = 2048;
/// Buffers that no packet out of order may take. `[srdma]`
pub const IEQ_LOW_WATER: usize = 128;
/// Packets out of order that one queue pair may hold: about 2 MB of full ones.  [E810 8.6.4]
pub const IEQ_HELD_PER_QP: usize = 512;
/// How far ahead of its turn a packet may be, in PSNs.                [E810 8.6.4]
pub const IEQ_WINDOW: u32 = 1024;
/// Packets that nobody waits for and that the exception queue takes at once. `[srdma]`
pub const IEQ_TAP_BURST: u64 = 64;
/// Time between such packets if there are always some: a thousand a second.   [E810 8.6.3]
pub const IEQ_TAP_GAP_NS: u64 = 1_000_000;
/// Longest time that a packet out of order is held.                   [E810 8.6.4]
pub const IEQ_HOLD_NS: u64 = 100_000_000;

const _: () = assert!(MAX_PSN_WINDOW < 1 << 22);
const _: () = assert!(IEQ_HELD_PER_QP + IEQ_LOW_WATER < IEQ_BUFFERS);
const _: () = assert!(
    SQ_RESERVE > 2 * 128,
    "the producer clears up to 255 quanta ahead"
);
const _: () = assert!(MAX_INLINE <= 8 + 3 * 31);
const _: () = assert!(MAX_DATAGRAM < 9000);
