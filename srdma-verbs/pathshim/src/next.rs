//! The functions behind us: what `dlsym(RTLD_NEXT)` finds, looked up once.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// A function of libc, by name.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The function's address; null if this libc has none.
    pub(crate) fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if known.is_null() {
            self.look_up()
        } else {
            known
        }
    }

    /// Asks the loader. Several threads may; they find the same.
    #[cold]
    pub(crate) fn look_up(&self) -> *mut c_void {
        // SAFETY: why needed: the function behind us is known to the loader alone. Why sound: the
        // name is a string with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Takes back the loader's note about a name that it did not find: the program may ask for its own.
pub(crate) fn forget_error() {
    // SAFETY: why needed: the note is the loader's. Why sound: no arguments, and the text that is
    // returned is not looked at.
    let _ = unsafe { libc::dlerror() };
}

/// Sets `errno`.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: why needed: `errno` is behind a C call. Why sound: no arguments; each thread has one.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: why needed: it is reached by pointer. Why sound: the pointer is to this thread's own
    // number, which lives as long as the thread.
    unsafe { errno.write(value) };
}
