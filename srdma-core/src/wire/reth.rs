//! Headers that name remote memory: RETH, AtomicETH, AtomicAckETH, FETH, IETH.
//!
//! ```text
//!  RETH       0..8 address   8..12 R_Key   12..16 length
//!  AtomicETH  0..8 address   8..12 R_Key   12..20 swap or add   20..28 compare
//!  FETH       3 selectivity(5:4) placement(3:0); the rest reserved, before the RETH
//!  IETH       0..4 R_Key to invalidate      AtomicAckETH  0..8 original value
//! ```
//!
//! All big-endian. Nothing here checks a key or a range.                       [RoCEv2 1.3]

use crate::num::Rkey;

/// RDMA extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Reth {
    /// First byte in the peer's address space.
    pub addr: u64,
    /// Key of the region or window.
    pub rkey: Rkey,
    /// Bytes of the whole message.
    pub len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let word = (self.addr as u128) << 64 | (self.rkey.0 as u128) << 32 | self.len as u128;
        word.to_be_bytes()
    }

    /// Reads the header.
    #[inline]
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "takes fields out of one wide word"
    )]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let word = u128::from_be_bytes(bytes);
        Self {
            addr: (word >> 64) as u64,
            rkey: Rkey((word >> 32) as u32),
            len: word as u32,
        }
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct AtomicEth {
    /// The 64-bit word's address; aligned, else the responder refuses it.
    pub addr: u64,
    /// Key of the region or window.
    pub rkey: Rkey,
    /// The value to swap in, or to add.
    pub swap_add: u64,
    /// The value to compare with; zero for an add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// The header's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (addr, rest) = bytes.split_at_mut(8);
        let (rkey, rest) = rest.split_at_mut(4);
        let (swap_add, compare) = rest.split_at_mut(8);
        addr.copy_from_slice(&self.addr.to_be_bytes());
        rkey.copy_from_slice(&self.rkey.0.to_be_bytes());
        swap_add.copy_from_slice(&self.swap_add.to_be_bytes());
        compare.copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }

    /// Reads the header.
    #[inline]
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "takes fields out of one wide word"
    )]
    pub const fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let &[a0, a1, a2, a3, a4, a5, a6, a7, k0, k1, k2, k3, rest @ ..] = bytes;
        let operands = u128::from_be_bytes(rest);
        Self {
            addr: u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            rkey: Rkey(u32::from_be_bytes([k0, k1, k2, k3])),
            swap_add: (operands >> 64) as u64,
            compare: operands as u64,
        }
    }
}

/// FLUSH extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct Feth {
    /// Placement type, four bits: [`Feth::GLOBAL`], [`Feth::PERSISTENT`].
    pub placement: u8,
    /// Selectivity, two bits: [`Feth::RANGE`] or [`Feth::REGION`].
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// Placement: make visible to everybody.
    pub const GLOBAL: u8 = 1;
    /// Placement: make persistent.
    pub const PERSISTENT: u8 = 2;
    /// Selectivity: the range that the RETH names.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole region of the RETH's key.
    pub const REGION: u8 = 1;

    /// The header's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        [0, 0, 0, (self.selectivity & 3) << 4 | self.placement & 0xf]
    }

    /// Reads the header.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [_, _, _, low] = bytes;
        Self {
            placement: low & 0xf,
            selectivity: low >> 4 & 3,
        }
    }
}
