//! Work completions as libibverbs has them: what the code of mlx5 and hns makes of an entry.

use crate::object::Object;

/// Bytes of a `struct ibv_wc`.
pub(crate) const BYTES: usize = 48;
/// What a poll gives for an entry that names no queue pair.
pub(crate) const POLL_ERR: i32 = -2;

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wc {
    /// The work request.
    pub wr_id: u64,
    /// `enum ibv_wc_status`.
    pub status: u32,
    /// `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// The vendor's code.
    pub vendor_err: u32,
    /// Bytes.
    pub byte_len: u32,
    /// The immediate in network order, or the invalidated key.
    pub imm: u32,
    /// Local queue pair number.
    pub qpn: u32,
    /// Source of a datagram.
    pub src_qp: u32,
    /// `enum ibv_wc_flags`.
    pub flags: u32,
}

impl Wc {
    /// A GRH, or what stands for it, is in the buffer.
    pub const GRH: u32 = 1;
    /// `imm` is an immediate.
    pub const WITH_IMM: u32 = 2;
    /// `imm` is a key.
    pub const WITH_INV: u32 = 8;

    /// From memory that a poll has filled.
    pub(crate) fn read(from: &Object) -> Self {
        Self {
            wr_id: from.words().load(0),
            status: from.u32(8),
            opcode: from.u32(0xc),
            vendor_err: from.u32(0x10),
            byte_len: from.u32(0x14),
            imm: from.u32(0x18),
            qpn: from.u32(0x1c),
            src_qp: from.u32(0x20),
            flags: from.u32(0x24),
        }
    }
}

/// What a poll of one entry gave.
///
/// # Panics
///
/// If the code found no queue pair: the tests make entries of one alone.
pub(crate) fn polled(count: i32, wc: &Object) -> Option<Wc> {
    assert_ne!(count, POLL_ERR, "an entry that names another queue pair");
    (count == 1).then(|| Wc::read(wc))
}
