//! Fork: memory is read by its address in this process, so no page needs protection from a copy.

use core::ffi::{c_int, c_void};

/// `IBV_FORK_UNNEEDED`
const UNNEEDED: c_int = 2;

/// `ibv_fork_init`
pub(crate) extern "C" fn init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`
pub(crate) extern "C" fn is_initialized() -> c_int {
    UNNEEDED
}

/// `ibv_dontfork_range` and `ibv_dofork_range`
pub(crate) extern "C" fn range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
