//! What answers that it is not supported, and what is called for nothing.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// A verb, or a command for a kernel device, that gives back a number.
pub(crate) extern "C" fn verb() -> c_int {
    libc::EOPNOTSUPP
}

/// A verb that gives back an object.
pub(crate) extern "C" fn object() -> *mut c_void {
    crate::ffi::set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// A call that gives back a descriptor or a length.
pub(crate) extern "C" fn descriptor() -> isize {
    crate::ffi::set_errno(libc::EOPNOTSUPP);
    -1
}

/// Drivers of kernel devices announce themselves, and write to logs.
pub(crate) extern "C" fn ignored() {}

/// A name of something that does not exist.
pub(crate) extern "C" fn name() -> *const c_char {
    c"unknown".as_ptr()
}
