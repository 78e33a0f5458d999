//! Macros for layouts: bit fields of a 64-bit word, open enumerations, state machines.
//!
//! A field is written once, with its bit range as the data sheet has it. Overlaps and values that
//! cannot fit are compile errors where the value is constant, and are cut to the field otherwise.

/// Turns between a Rust value and the bits of a field.
pub trait Field: Copy {
    /// The value's bits, right-aligned.
    fn to_bits(self) -> u64;
    /// The value from right-aligned bits. Never fails: a field type has a value for any bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! field_int {
    ($($int:ty),*) => {$(
        impl Field for $int {
            #[inline]
            fn to_bits(self) -> u64 { u64::from(self) }
            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                trivial_numeric_casts,
                reason = "a field's range is checked to fit its type; u64 is one of the types"
            )]
            fn from_bits(bits: u64) -> Self { bits as $int }
        }
    )*};
}
field_int!(u8, u16, u32, u64);

impl Field for bool {
    #[inline]
    fn to_bits(self) -> u64 {
        u64::from(self)
    }
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits & 1 != 0
    }
}

/// The mask of bits `hi..=lo`.
#[must_use]
pub const fn field_mask(hi: u32, lo: u32) -> u64 {
    assert!(hi < 64 && lo <= hi, "a field lies within a 64-bit word");
    let width = hi - lo + 1;
    let ones = if width == 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    };
    ones << lo
}

/// Declares a 64-bit little-endian descriptor word with named bit fields `[hi:lo]`.
///
/// Fields may overlap only when declared `overlay`, for words whose meaning depends on the opcode.
///
/// ```
/// srdma_core::le_word! {
///     /// Example word.
///     pub struct Word {
///         low / with_low: u32 = [31:0],
///         flag / with_flag: bool = [63:63],
///     }
/// }
/// let word = Word::ZERO.with_low(7).with_flag(true);
/// assert_eq!(word.bits(), 0x8000_0000_0000_0007);
/// assert_eq!((word.low(), word.flag()), (7, true));
/// ```
#[macro_export]
macro_rules! le_word {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $(
                $(#[$fdoc:meta])*
                $get:ident / $with:ident : $ty:ty = [$hi:literal : $lo:literal] $($overlay:ident)?
            ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(u64);

        const _: () = {
            let mut seen = 0u64;
            $(
                let mask = $crate::macros::field_mask($hi, $lo);
                if !$crate::le_word!(@overlay $($overlay)?) {
                    assert!(seen & mask == 0, "two fields of one word overlap");
                    seen |= mask;
                }
                assert!(
                    ($hi - $lo + 1) as usize <= 8 * core::mem::size_of::<$ty>()
                        || core::mem::size_of::<$ty>() == 0,
                    "a field is wider than its type"
                );
            )*
            let _ = seen;
        };

        #[allow(clippy::len_without_is_empty, reason = "a field may be called `len`")]
        impl $name {
            /// All fields zero.
            pub const ZERO: Self = Self(0);

            /// The word from its bits.
            #[inline]
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The word's bits.
            #[inline]
            #[must_use]
            pub const fn bits(self) -> u64 {
                self.0
            }

            /// Shows every field: name, highest and lowest bit, whether others use these bits too,
            /// and the value.
            pub fn each_field(
                self,
                see: &mut dyn FnMut(&'static str, [u32; 2], bool, &dyn core::fmt::Debug),
            ) {
                $(
                    let overlay = $crate::le_word!(@overlay $($overlay)?);
                    see(stringify!($get), [$hi, $lo], overlay, &self.$get());
                )*
            }

            $(
                $(#[$fdoc])*
                #[doc = concat!("Bits ", stringify!($hi), ":", stringify!($lo), ".")]
                #[inline]
                #[must_use]
                pub fn $get(self) -> $ty {
                    const MASK: u64 = $crate::macros::field_mask($hi, $lo);
                    $crate::macros::Field::from_bits((self.0 & MASK) >> $lo)
                }

                #[doc = concat!(
                    "Sets bits ", stringify!($hi), ":", stringify!($lo),
                    "; a value too wide is cut to the field."
                )]
                #[inline]
                #[must_use]
                pub fn $with(self, value: $ty) -> Self {
                    const MASK: u64 = $crate::macros::field_mask($hi, $lo);
                    Self(self.0 & !MASK | ($crate::macros::Field::to_bits(value) << $lo) & MASK)
                }
            )*
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    $( .field(stringify!($get), &self.$get()) )*
                    .finish()
            }
        }
    };
    (@overlay) => { false };
    (@overlay overlay) => { true };
}

/// Declares an open enumeration: named constants over an integer, unknown values kept.
///
/// ```
/// srdma_core::open_enum! {
///     /// Example codes.
///     pub struct Code: u8 {
///         /// Good.
///         OK = 0,
///         /// Bad.
///         BAD = 1,
///     }
/// }
/// assert_eq!(format!("{:?} {:?}", Code::BAD, Code(9)), "BAD Code(0x9)");
/// ```
#[macro_export]
macro_rules! open_enum {
    (
        $(#[$doc:meta])*
        pub struct $name:ident : $repr:ty {
            $( $(#[$vdoc:meta])* $variant:ident = $value:expr ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);

        #[allow(missing_docs, reason = "some tables carry their meaning in the name")]
        impl $name {
            $( $(#[$vdoc])* pub const $variant: Self = Self($value); )*

            /// Every known value, in the order of the table.
            pub const ALL: &[Self] = &[$( Self($value) ),*];

            /// The name of a known value.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$variant => Some(stringify!($variant)), )*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }

        impl $crate::macros::Field for $name {
            #[inline]
            fn to_bits(self) -> u64 { $crate::macros::Field::to_bits(self.0) }
            #[inline]
            fn from_bits(bits: u64) -> Self { Self($crate::macros::Field::from_bits(bits)) }
        }
    };
}
