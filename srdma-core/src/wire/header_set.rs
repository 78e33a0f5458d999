//! Sets of extension headers: what stands between the BTH and the payload.
//!
//! ```text
//!  BTH  XRCETH  DETH  FETH  RETH  AtomicETH  AETH  AtomicAckETH  ImmDt  IETH  rider  payload
//! ```
//!
//! Knows sizes and order, not contents.                                        [RoCEv2 1.3]

/// Bytes of each extension header, in wire order; the index is the bit in a [`HeaderSet`].
const SIZES: [u8; HeaderSet::KINDS] = [4, 8, 4, 16, 28, 4, 8, 4, 4, 16, 8];

/// A set of extension headers. Bit order is wire order, so a set determines every offset.
// rule: roce-18
// rule: roce-19
// rule: roce-20
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct HeaderSet(u16);

impl HeaderSet {
    /// How many kinds of extension header there are.
    pub(super) const KINDS: usize = 11;

    /// No extension header.
    pub const NONE: Self = Self(0);
    /// XRC extended transport header.
    pub const XRCETH: Self = Self(1 << 0);
    /// Datagram extended transport header.
    pub const DETH: Self = Self(1 << 1);
    /// FLUSH extended transport header.
    pub const FETH: Self = Self(1 << 2);
    /// RDMA extended transport header.
    pub const RETH: Self = Self(1 << 3);
    /// Atomic extended transport header.
    pub const ATOMIC: Self = Self(1 << 4);
    /// ACK extended transport header.
    pub const AETH: Self = Self(1 << 5);
    /// Original value of an atomic.
    pub const ATOMIC_ACK: Self = Self(1 << 6);
    /// Immediate data.
    pub const IMM: Self = Self(1 << 7);
    /// Invalidate extended transport header.
    pub const IETH: Self = Self(1 << 8);
    /// The sixteen reserved bytes of a CNP.
    pub const CNP: Self = Self(1 << 9);
    /// An acknowledgement that came along with a request.
    pub const RIDER: Self = Self(1 << 10);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bytes of all headers of the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.len_before(Self::KINDS)
    }

    /// Every header of this set stands before `kind` (one header).
    pub(super) const fn is_before(self, kind: Self) -> bool {
        self.0 < kind.0
    }

    /// The set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Bytes of the set's headers that stand before the header of bit `kind`.
    #[allow(clippy::indexing_slicing, reason = "bounded by the number of kinds")]
    pub(super) const fn len_before(self, kind: usize) -> usize {
        let (mut at, mut bit) = (0, 0);
        while bit < kind && bit < Self::KINDS {
            if self.0 & (1 << bit) != 0 {
                at += SIZES[bit] as usize;
            }
            bit += 1;
        }
        at
    }

    /// The bit of the first header of the set.
    pub(super) const fn first(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    /// The header of bit `kind`.
    pub(super) const fn kind(kind: usize) -> Self {
        Self(1 << kind)
    }
}
