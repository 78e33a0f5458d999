//! The numbers of the field as types: QPNs, PSNs, keys and ids that cannot be mixed up.
//!
//! 24-bit numbers keep only their low 24 bits, so no value outside the wire's range exists.
//! Nothing here allocates or fails.

use core::fmt;

/// Mask of a 24-bit number.
const MASK24: u32 = 0x00ff_ffff;

macro_rules! number24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// Keeps the low 24 bits of `value`.
            #[must_use]
            pub const fn new(value: u32) -> Self {
                Self(value & MASK24)
            }

            /// The number, below 2^24.
            #[must_use]
            pub const fn value(self) -> u32 {
                self.0
            }

            /// The number as it stands on the wire: three bytes, big-endian.
            #[must_use]
            pub const fn to_be_bytes(self) -> [u8; 3] {
                let [_, a, b, c] = self.0.to_be_bytes();
                [a, b, c]
            }

            /// Reads three big-endian bytes.
            #[must_use]
            pub const fn from_be_bytes(bytes: [u8; 3]) -> Self {
                let [a, b, c] = bytes;
                Self(u32::from_be_bytes([0, a, b, c]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#08x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#08x}", self.0)
            }
        }
    };
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $repr);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn value(self) -> $repr {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number24! {
    /// Queue pair number, 24 bits.                                   [IBTA 9.2.5]
    Qpn
}
number24! {
    /// Packet sequence number: 24 bits, compared on the circle.       [IBTA 9.2.8]
    Psn
}
number24! {
    /// Message sequence number of an AETH, 24 bits.                   [IBTA 9.3.5]
    Msn
}
number! {
    /// Local key: names a region for our own scatter and gather.
    Lkey, u32
}
number! {
    /// Remote key: names a region or window for the peer.
    Rkey, u32
}
number! {
    /// Partition key; bit 15 is full membership.                      [IBTA 10.9.3]
    Pkey, u16
}
number! {
    /// Queue key of a datagram; bit 31 marks a privileged one.        [IBTA 10.2.4]
    Qkey, u32
}
number! {
    /// Completion queue id, 19 bits on an E810.                       [E810 1.7]
    CqId, u32
}
number! {
    /// Completion event queue id, 0..1024.                            [E810 1.7]
    CeqId, u16
}
number! {
    /// Shared receive queue id.
    SrqId, u32
}
number! {
    /// XRC domain id, 24 bits.
    XrcdId, u32
}
number! {
    /// Protection domain id, 18 bits on an E810.                      [E810 1.7]
    PdId, u32
}
number! {
    /// Address handle id, 17 bits in a UD WQE.                        [E810 2.1]
    AhId, u32
}
number! {
    /// One MSI-X vector of the device.
    MsixVector, u16
}

impl Qpn {
    /// The general services QP.                                       [IBTA 3.9.3]
    pub const GSI: Self = Self::new(1);
    /// The driver's exception queue.                                  [E810 1.7]
    pub const IEQ: Self = Self::new(2);
    /// Destination of every multicast datagram.
    pub const MULTICAST: Self = Self::new(0xff_ffff);
}

impl Pkey {
    /// The default partition, full member.
    pub const DEFAULT: Self = Self(0xffff);

    /// Same partition, and at least one of the two is a full member. [IBTA 10.9.3]
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        self.0 & 0x7fff == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

impl Psn {
    /// The number `packets` further on, modulo 2^24.
    #[must_use]
    #[allow(
        clippy::should_implement_trait,
        reason = "wraps on a circle, unlike `Add`"
    )]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The number `packets` before this one, modulo 2^24.
    #[inline]
    #[must_use]
    pub const fn back(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// The number before this one.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// Signed distance `self - earlier`, in -2^23 .. 2^23. The half-range value is negative,
    /// so a receiver takes it as a duplicate.                        [IBTA 9.7.2]
    #[must_use]
    #[allow(
        clippy::cast_possible_wrap,
        reason = "the shift moves the sign of 24 bits to bit 31"
    )]
    // rule: e810-33
    pub const fn since(self, earlier: Self) -> i32 {
        // rule: roce-41
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}

impl Msn {
    /// The next message's number, modulo 2^24.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_distance_is_correct_across_the_wrap() {
        // proves: roce-41
        assert_eq!(Psn::new(0).since(Psn::new(0xff_ffff)), 1);
        assert_eq!(Psn::new(0xff_ffff).since(Psn::new(0)), -1);
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), (1 << 23) - 1);
        assert_eq!(Psn::new(0xff_ffff).add(1), Psn::new(0));
        assert_eq!(Psn::new(0).prev(), Psn::new(0xff_ffff));
    }

    #[test]
    fn numbers_keep_24_bits() {
        assert_eq!(Qpn::new(0x1200_0003).value(), 3);
        assert_eq!(Qpn::from_be_bytes([1, 2, 3]).to_be_bytes(), [1, 2, 3]);
    }

    #[test]
    fn limited_members_do_not_meet() {
        assert!(Pkey(0xffff).matches(Pkey(0x7fff)));
        assert!(!Pkey(0x7fff).matches(Pkey(0x7fff)));
        assert!(!Pkey(0xffff).matches(Pkey(0xfffe)));
    }
}
