//! The functions that stand in front of libc's: each replaces its path if that is ours, and calls
//! the one behind it.
//!
//! ```text
//! open(path, flags, mode)   path ours? ── no ──► libc's open(path, …)
//!                              │
//!                              └── yes ── room on the stack ──► libc's open(room, …)
//! ```
//!
//! `open` and its relatives have variable arguments in C. They are declared with the one that there
//! may be: on Linux's ABIs for x86-64 and aarch64 it comes in a register either way, and what is in
//! that register when the caller gave none is handed on and not looked at.

use crate::next::{Next, forget_error, set_errno};
use crate::route::{self, PATH_MAX};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libc::{mode_t, size_t, ssize_t};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the variable arguments of `open` were only looked at for x86-64 and aarch64");

/// A buffer or stream that is handed on.
type Opaque = *mut c_void;

/// Calls `f` with the path to use in place of `path`.
///
/// # Safety
///
/// `path` is null or a string with a zero, as the function that was called demands.
unsafe fn with_path<R>(path: *const c_char, f: impl FnOnce(*const c_char) -> R) -> R {
    if path.is_null() {
        return f(path);
    }
    // SAFETY: why needed: C gives a pointer. Why sound: not null, and by the contract above a
    // string, which stays as it is during the call.
    let text = unsafe { CStr::from_ptr(path) };
    let Some(route) = route::find(text.to_bytes()) else {
        return f(path);
    };
    let mut room = [0; PATH_MAX];
    if route.write(&mut room) {
        f(room.as_ptr().cast())
    } else {
        f(path)
    }
}

/// Defines the hooks: the argument named first is the one that is replaced, and the value behind
/// `else` is what the caller gets where libc lacks the function.
macro_rules! hooks {
    (
        $path:ident:
        $(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty, else $failed:expr;)*
    ) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                let next = next::$name.get();
                if next.is_null() {
                    set_errno(libc::ENOSYS);
                    return $failed;
                }
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                // SAFETY: why needed: the loader gives addresses without a type. Why sound: not
                // null, and libc's function of this name has this type.
                let next = unsafe { core::mem::transmute::<Opaque, Function>(next) };
                let call = |$path| {
                    // SAFETY: why needed: it is a C function. Why sound: the caller keeps to the
                    // contract of the function it called, which is that of the one behind; the
                    // path is the caller's or a string on our stack.
                    unsafe { next($($arg),*) }
                };
                // SAFETY: why needed: it reads a path of C. Why sound: the caller gave a path.
                unsafe { with_path($path, call) }
            }
        )*

        /// What stands behind each hook.
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod next {
            use super::Next;
            $(
                pub(super) static $name: Next = {
                    let name = concat!(stringify!($name), "\0").as_bytes();
                    match super::CStr::from_bytes_with_nul(name) {
                        Ok(name) => Next::new(name),
                        Err(_) => unreachable!(),
                    }
                };
            )*
            pub(super) static ALL: &[&Next] = &[$(&$name),*];
        }
    };
}

hooks! { path:
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, else -1;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else -1;
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int, else -1;

    fn fopen(path: *const c_char, mode: *const c_char) -> Opaque, else core::ptr::null_mut();
    fn fopen64(path: *const c_char, mode: *const c_char) -> Opaque, else core::ptr::null_mut();
    fn chdir(path: *const c_char) -> c_int, else -1;
    fn opendir(path: *const c_char) -> Opaque, else core::ptr::null_mut();
    fn scandir(path: *const c_char, list: Opaque, filter: Opaque, order: Opaque) -> c_int,
        else -1;
    fn scandir64(path: *const c_char, list: Opaque, filter: Opaque, order: Opaque) -> c_int,
        else -1;

    fn stat(path: *const c_char, to: Opaque) -> c_int, else -1;
    fn stat64(path: *const c_char, to: Opaque) -> c_int, else -1;
    fn lstat(path: *const c_char, to: Opaque) -> c_int, else -1;
    fn lstat64(path: *const c_char, to: Opaque) -> c_int, else -1;
    fn fstatat(at: c_int, path: *const c_char, to: Opaque, flags: c_int) -> c_int, else -1;
    fn fstatat64(at: c_int, path: *const c_char, to: Opaque, flags: c_int) -> c_int, else -1;
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: Opaque) -> c_int,
        else -1;
    fn __xstat(version: c_int, path: *const c_char, to: Opaque) -> c_int, else -1;
    fn __xstat64(version: c_int, path: *const c_char, to: Opaque) -> c_int, else -1;
    fn __lxstat(version: c_int, path: *const c_char, to: Opaque) -> c_int, else -1;
    fn __lxstat64(version: c_int, path: *const c_char, to: Opaque) -> c_int, else -1;
    fn __fxstatat(
        version: c_int, at: c_int, path: *const c_char, to: Opaque, flags: c_int
    ) -> c_int, else -1;
    fn __fxstatat64(
        version: c_int, at: c_int, path: *const c_char, to: Opaque, flags: c_int
    ) -> c_int, else -1;

    fn access(path: *const c_char, mode: c_int) -> c_int, else -1;
    fn eaccess(path: *const c_char, mode: c_int) -> c_int, else -1;
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int, else -1;
    fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else -1;

    fn readlink(path: *const c_char, to: *mut c_char, len: size_t) -> ssize_t, else -1;
    fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, len: size_t) -> ssize_t,
        else -1;
    fn __readlink_chk(path: *const c_char, to: *mut c_char, len: size_t, room: size_t) -> ssize_t,
        else -1;
    fn __readlinkat_chk(
        at: c_int, path: *const c_char, to: *mut c_char, len: size_t, room: size_t
    ) -> ssize_t, else -1;
    fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char, else core::ptr::null_mut();
    fn __realpath_chk(path: *const c_char, to: *mut c_char, room: size_t) -> *mut c_char,
        else core::ptr::null_mut();
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char, else core::ptr::null_mut();
}

/// Runs when the library is loaded, before the program does.
extern "C" fn start() {
    // All at once, so that none has to be looked up in a signal handler.
    for next in next::ALL {
        let _ = next.look_up();
    }
    forget_error();
    // SAFETY: why needed: a copy of the variable without allocation. Why sound: the name is a
    // string with a zero.
    let value = unsafe { libc::getenv(c"SRDMA_SYSFS".as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: why needed: C gives a pointer. Why sound: not null, so a string of the environment,
    // which nobody changes while libraries are loaded.
    let root = unsafe { CStr::from_ptr(value) };
    let _ = route::set_root(root.to_bytes());
}

/// Makes the loader call [`start`].
// SAFETY: why needed: the loader calls what stands in this section. Why sound: it calls functions
// of this type, with arguments that this one does not look at.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
