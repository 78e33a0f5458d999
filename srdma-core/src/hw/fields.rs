//! Lets the numbers of [`crate::num`] stand as fields of descriptor words.
//!
//! A value wider than its field is cut by the word; nothing here checks ranges.

use crate::macros::Field;
use crate::num::{
    AhId, CeqId, CqId, Lkey, MsixVector, PdId, Pkey, Psn, Qkey, Qpn, Rkey, SrqId, XrcdId,
};

macro_rules! field_number {
    ($($name:ident: $repr:ty),*) => {$(
        impl Field for $name {
            #[inline]
            fn to_bits(self) -> u64 { u64::from(self.value()) }
            #[inline]
            fn from_bits(bits: u64) -> Self { Self(Field::from_bits(bits)) }
        }
    )*};
}
field_number!(
    AhId: u32, CeqId: u16, CqId: u32, Lkey: u32, MsixVector: u16, PdId: u32, Pkey: u16,
    Qkey: u32, Rkey: u32, SrqId: u32, XrcdId: u32
);

macro_rules! field_number24 {
    ($($name:ident),*) => {$(
        impl Field for $name {
            #[inline]
            fn to_bits(self) -> u64 { u64::from(self.value()) }
            #[inline]
            fn from_bits(bits: u64) -> Self { Self::new(Field::from_bits(bits)) }
        }
    )*};
}
field_number24!(Psn, Qpn);
