//! Objects that C holds: how they are borrowed, and how calls on them end.
//!
//! ```text
//! C pointer ── borrow ──► null? kind? ──► &T         EINVAL if it is not what it should be
//!                          Errno ──► status     0 or a positive errno
//!                                ──► minus_one  0 or -1 and errno
//!                                ──► pointer    object or null and errno
//! ```
//!
//! An object starts with the structure that programs see, and has its kind behind it. A pointer to
//! an object of another kind, or to one that is gone, is refused as far as memory still tells.

use crate::ffi;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An error as C reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVAL: Self = Self(libc::EINVAL);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const IO: Self = Self(libc::EIO);
    pub(crate) const MFILE: Self = Self(libc::EMFILE);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
}

impl From<srdma_verbs::Error> for Errno {
    fn from(error: srdma_verbs::Error) -> Self {
        Self(error.errno())
    }
}

/// What a call comes to.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// What kind of object a pointer names. The values are such that other memory rarely has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u64)]
pub(crate) enum Kind {
    Context = 0x7372_646d_6100_0001,
    Pd = 0x7372_646d_6100_0002,
    Mr = 0x7372_646d_6100_0003,
    Mw = 0x7372_646d_6100_0004,
    Ah = 0x7372_646d_6100_0005,
    Channel = 0x7372_646d_6100_0006,
    Cq = 0x7372_646d_6100_0007,
    Srq = 0x7372_646d_6100_0008,
    Qp = 0x7372_646d_6100_0009,
    Td = 0x7372_646d_6100_000a,
    Device = 0x7372_646d_6100_000b,
    Xrcd = 0x7372_646d_6100_000c,
    Dm = 0x7372_646d_6100_000d,
}

/// The kind of an object, in its memory. Cleared when the object ends.
#[derive(Debug)]
pub(crate) struct Tag(AtomicU64);

impl Tag {
    pub(crate) const fn new(kind: Kind) -> Self {
        Self(AtomicU64::new(kind as u64))
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// An object that C holds.
pub(crate) trait Object {
    /// Its kind.
    const KIND: Kind;
    /// The kind as its memory says it.
    fn tag(&self) -> &Tag;
}

macro_rules! object {
    ($name:ty, $kind:ident) => {
        impl crate::handle::Object for $name {
            const KIND: crate::handle::Kind = crate::handle::Kind::$kind;
            fn tag(&self) -> &crate::handle::Tag {
                &self.tag
            }
        }
    };
}
pub(crate) use object;

/// The object of a handle.
#[inline]
pub(crate) fn borrow<T: Object>(handle: Option<&T>) -> Outcome<&T> {
    match handle {
        Some(object) if object.tag().0.load(Ordering::Relaxed) == T::KIND as u64 => Ok(object),
        _ => Err(Errno::INVAL),
    }
}

/// The object of a handle that another structure holds or that is about to end.
#[inline]
pub(crate) fn borrow_raw<'a, T: Object>(handle: *const T) -> Outcome<&'a T> {
    borrow(ffi::object(handle))
}

/// Zero, or the error.
#[inline]
pub(crate) fn status(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(code)) => code,
    }
}

/// Zero, or -1 and `errno`.
pub(crate) fn minus_one(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(Errno(code)) => {
            ffi::set_errno(code);
            -1
        }
    }
}

/// Zero, or the error, also in `errno`: for calls of which programs look at either.
pub(crate) fn status_errno(outcome: Outcome<()>) -> c_int {
    let code = status(outcome);
    if code != 0 {
        ffi::set_errno(code);
    }
    code
}

/// An object for C, or null and `errno`.
pub(crate) fn pointer<T>(outcome: Outcome<*mut T>) -> *mut T {
    match outcome {
        Ok(object) => object,
        Err(Errno(code)) => {
            ffi::set_errno(code);
            core::ptr::null_mut()
        }
    }
}

/// Locks, also after a panic elsewhere.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
