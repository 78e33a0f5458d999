//! The connection manager's symbols, so that programs that merely name them can be loaded.
//!
//! There is no connection manager: every call fails with `ENOSYS`, and calls of sockets over RDMA
//! with `EOPNOTSUPP`.

use crate::ffi;
use core::ffi::{c_char, c_void};
use core::ptr;

/// A call that gives back a number.
pub(crate) extern "C" fn call() -> isize {
    ffi::set_errno(libc::ENOSYS);
    -1
}

/// A call that gives back an object.
pub(crate) extern "C" fn object() -> *mut c_void {
    ffi::set_errno(libc::ENOSYS);
    ptr::null_mut()
}

/// A call that gives back nothing.
pub(crate) extern "C" fn nothing() {}

/// A port: none.
pub(crate) extern "C" fn port() -> u16 {
    0
}

/// `rdma_event_str`
pub(crate) extern "C" fn event_str() -> *const c_char {
    c"unknown event".as_ptr()
}

/// A call of sockets over RDMA.
pub(crate) extern "C" fn socket() -> isize {
    ffi::set_errno(libc::EOPNOTSUPP);
    -1
}
