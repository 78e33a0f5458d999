//! Structures of `<infiniband/verbs.h>`, with their sizes and offsets checked while compiling.
//!
//! ```text
//! device.rs   ibv_device, ibv_context and the table in front of it
//! object.rs   what programs hold: PD, MR, CQ, QP …
//! work.rs     work requests and completions
//! attr.rs     attributes that calls take and give
//! ```
//!
//! Fields that both sides change are cells. Pointers to objects are untyped: which object they name
//! is found out by `handle::borrow`. Pointers to functions too, since each side casts them anyway.
//! The numbers are those of x86-64; a test compares them with a C compiler's.

#![allow(
    non_camel_case_types,
    reason = "the names of C, so that either side can be searched for them"
)]

/// A pointer to a function, or null.
pub(crate) type Slot = *const ();

/// A pointer to an object or to memory of the program.
pub(crate) type Ptr = *mut core::ffi::c_void;

/// `alloc` of a parent domain: domain, its context, bytes, alignment, resource type.
pub(crate) type AllocFn = unsafe extern "C" fn(Ptr, Ptr, usize, usize, u64) -> Ptr;
/// `free` of a parent domain: domain, its context, memory, resource type.
pub(crate) type FreeFn = unsafe extern "C" fn(Ptr, Ptr, Ptr, u64);

/// A structure of C: name, size, and each field with its offset.
macro_rules! c_struct {
    ($(
        $(#[$meta:meta])*
        $name:ident: $size:literal { $( $field:ident: $ty:ty = $at:literal, )* }
    )*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[allow(dead_code, reason = "programs read fields that we only write, and the reverse")]
        pub(crate) struct $name { $( pub(crate) $field: $ty, )* }

        #[cfg(target_arch = "x86_64")]
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $at); )*
        };

        #[cfg(test)]
        impl crate::types::Layout for $name {
            const NAME: &'static str = stringify!($name);
            const SIZE: usize = size_of::<Self>();
            const FIELDS: &'static [(&'static str, usize)] =
                &[$( (stringify!($field), core::mem::offset_of!(Self, $field)) ),*];
        }
    )* };
}

/// The layout of a structure, for the test that asks a C compiler.
#[cfg(test)]
pub(crate) trait Layout {
    /// Its name in C.
    const NAME: &'static str;
    /// Its bytes.
    const SIZE: usize;
    /// Its fields and where they start.
    const FIELDS: &'static [(&'static str, usize)];
}

mod attr;
mod device;
mod object;
#[cfg(test)]
mod probe;
mod work;

pub(crate) use attr::*;
pub(crate) use device::*;
pub(crate) use object::*;
pub(crate) use work::*;
