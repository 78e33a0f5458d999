//! What comes from C, made into values of Rust: the few places that look at raw memory.
//!
//! ```text
//! Option<&T>                 a handle or an attribute block; null is None
//! Option<&mut MaybeUninit>   where a result goes
//! list, slice, out, bytes    arrays that C describes by pointer and count
//! own, release               objects that C holds between calls
//! ```
//!
//! The contract of C, for every exported function: a pointer is null, or it points to a live object
//! of its type (for arrays: to as many as the count says) that nobody changes during the call. The
//! references in the signatures of the exported functions state the same for single objects.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use crate::handle::{Errno, Outcome};
use crate::types::ibv_grh;

/// A count as C gives it; negative is nothing.
pub(crate) fn count(n: c_int) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// `len` elements that C lent for the length of the call.
#[inline]
pub(crate) fn slice<'a, T>(base: *const T, len: usize) -> &'a [T] {
    if base.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: why needed: C describes an array by pointer and count. Why sound: not null, and the
    // contract of C says that so many elements are there and stay as they are during the call.
    unsafe { core::slice::from_raw_parts(base, len) }
}

/// `len` places that C wants filled.
#[inline]
pub(crate) fn out<'a, T>(base: *mut T, len: usize) -> &'a mut [MaybeUninit<T>] {
    if base.is_null() || len == 0 {
        return &mut [];
    }
    let base = base.cast::<MaybeUninit<T>>();
    // SAFETY: why needed: C describes an array by pointer and count. Why sound: not null, and the
    // contract of C says that there is room for so many and that nobody else uses it meanwhile.
    unsafe { core::slice::from_raw_parts_mut(base, len) }
}

/// A single object that a pointer inside of another one names.
#[inline]
pub(crate) fn object<'a, T>(ptr: *const T) -> Option<&'a T> {
    // SAFETY: why needed: pointers in C structures. Why sound: the contract of C says that it is
    // null or points to a live object.
    unsafe { ptr.as_ref() }
}

/// Bytes to be sent inline. Nobody writes to them during the call.
#[inline]
pub(crate) fn bytes<'a>(addr: u64, len: usize) -> &'a [u8] {
    let addr = usize::try_from(addr).unwrap_or(0);
    slice(ptr::with_exposed_provenance::<u8>(addr), len)
}

/// A string of C, if it is one in UTF-8.
pub(crate) fn text<'a>(ptr: *const c_char) -> Option<&'a str> {
    if ptr.is_null() {
        return None;
    }
    // SAFETY: why needed: strings of C. Why sound: not null, and the contract of C says that it
    // ends with a zero byte.
    unsafe { CStr::from_ptr(ptr) }.to_str().ok()
}

/// Writes the first `len` bytes of `value` to `to`, which C says to have that much room.
pub(crate) fn write_prefix<T: Copy>(to: *mut c_void, value: &T, len: usize) {
    if to.is_null() {
        return;
    }
    let len = len.min(size_of::<T>());
    // SAFETY: why needed: structures that grow, of which the program may know a shorter version.
    // Why sound: no more than the value has, and the contract of C says that so much fits.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast(), len) };
}

/// Gives an object to C.
pub(crate) fn own<T>(value: Box<T>) -> *mut T {
    Box::into_raw(value)
}

/// Takes an object back that [`own`] gave to C.
pub(crate) fn release<T>(ptr: *mut T) {
    // SAFETY: why needed: the end of an object that C held. Why sound: the contract of C says that
    // the object is live and that this call is the last to name it; it came from `own`.
    drop(unsafe { Box::from_raw(ptr) });
}

/// Sets `errno`.
pub(crate) fn set_errno(code: c_int) {
    // SAFETY: why needed: `errno` belongs to libc. Why sound: takes no argument.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: why needed: as above. Why sound: libc gives this thread's own place.
    unsafe { place.write(code) };
}

/// True if the program asked for calls on this descriptor not to wait.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: why needed: no safe wrapper for descriptors of others. Why sound: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Lets calls on this descriptor wait, as programs expect it of a new one.
pub(crate) fn set_blocking(fd: c_int) {
    // SAFETY: why needed: no safe wrapper for descriptors of others. Why sound: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags >= 0 {
        // SAFETY: why needed: as above. Why sound: no pointers.
        let _ = unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) };
    }
}

/// Gives a list of pointers to C, with a null at its end.
pub(crate) fn own_list<T>(pointers: Vec<*mut T>) -> *mut *mut T {
    // The length in front of the first element tells how to take it back.
    let mut list = Vec::with_capacity(pointers.len() + 2);
    list.push(ptr::without_provenance_mut(pointers.len()));
    list.extend(pointers);
    list.push(ptr::null_mut());
    let base = Box::into_raw(list.into_boxed_slice()).cast::<*mut T>();
    // SAFETY: why needed: C knows the list by its second element. Why sound: it has at least two.
    unsafe { base.add(1) }
}

/// Takes a list back that [`own_list`] gave to C.
pub(crate) fn release_list<T>(list: *mut *mut T) {
    if list.is_null() {
        return;
    }
    // SAFETY: why needed: the length stands in front. Why sound: the contract of C says that the
    // list came from `own_list`, which put it there.
    let base = unsafe { list.sub(1) };
    // SAFETY: why needed: as above. Why sound: as above.
    let len = unsafe { base.read() }.addr();
    let whole = ptr::slice_from_raw_parts_mut(base, len + 2);
    // SAFETY: why needed: the end of an allocation that C held. Why sound: it is the slice that
    // `own_list` made, of that length, and this call is the last to name it.
    drop(unsafe { Box::from_raw(whole) });
}

/// A descriptor of nothing, to be the identity of an open device.
pub(crate) fn memfd() -> Outcome<OwnedFd> {
    let name = c"srdma";
    // SAFETY: why needed: no safe wrapper in the standard library. Why sound: a string that ends.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Errno(last_errno()));
    }
    // SAFETY: why needed: takes ownership of a raw descriptor. Why sound: just opened, nobody else
    // knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which file a descriptor names: device and inode.
pub(crate) fn identity(fd: c_int) -> Outcome<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: why needed: no safe wrapper for descriptors of others. Why sound: the pointer names
    // room for the result.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(Errno(last_errno()));
    }
    // SAFETY: why needed: a result by pointer. Why sound: the call succeeded, so it was written.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Zeroes `len` bytes, which C says to be there.
pub(crate) fn zero(to: *mut c_void, len: usize) {
    if to.is_null() {
        return;
    }
    // SAFETY: why needed: structures that grow, of which the program may know a longer version.
    // Why sound: not null, and the contract of C says that so much room is there.
    unsafe { ptr::write_bytes(to.cast::<u8>(), 0, len) };
}

/// The bytes of a header that C describes as a structure without gaps.
pub(crate) fn plain(header: &ibv_grh) -> &[u8; size_of::<ibv_grh>()] {
    // SAFETY: why needed: a structure of C that is bytes on the wire. Why sound: its fields are
    // bytes without gaps, and the array is as long as the structure.
    unsafe { &*ptr::from_ref(header).cast() }
}

/// A borrow that lasts as long as C keeps the object.
pub(crate) fn kept<T>(object: &T) -> &'static T {
    // SAFETY: why needed: C holds a batch or a poll between two calls. Why sound: it stands in the
    // same object as what it borrows, in front of it, so it ends first.
    unsafe { &*ptr::from_ref(object) }
}

/// Takes a descriptor over from C.
pub(crate) fn take_fd(fd: c_int) -> OwnedFd {
    // SAFETY: why needed: C gives a descriptor away. Why sound: it is open (its file was looked at
    // before), and the contract of the call says that it is ours from here on.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The number of a network interface; 0 if there is none of that name.
pub(crate) fn interface_index(name: &str) -> u32 {
    let Ok(name) = CString::new(name) else {
        return 0;
    };
    // SAFETY: why needed: no safe wrapper in the standard library. Why sound: a string that ends.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// Bytes that C wants filled, and that it says to be there.
pub(crate) fn bytes_out<'a>(base: *mut u8, len: usize) -> &'a mut [u8] {
    zero(base.cast(), len);
    if base.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: why needed: C describes memory by pointer and length. Why sound: not null, written
    // just above, and the contract of C says that nobody else uses it meanwhile.
    unsafe { core::slice::from_raw_parts_mut(base, len) }
}

/// A descriptor that C lends for the length of the call.
pub(crate) fn lent_fd<'a>(fd: c_int) -> BorrowedFd<'a> {
    // SAFETY: why needed: C names descriptors by number. Why sound: it is open (its file was looked
    // at before), and the contract of C says that it stays so during the call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Has a function called when the process ends.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: why needed: no safe wrapper in the standard library. Why sound: the library is never
    // unloaded (it is linked so), so the function is there when it is called.
    let _ = unsafe { libc::atexit(function) };
}
