//! Where programs look for what the kernel would say, and the helper that reads it.

use crate::ffi;
use core::ffi::{c_char, c_int, c_void};
use std::fs;
use std::path::Path;

/// Where device classes stand.
pub(crate) const CLASS: &str = "/sys/class";

/// `ibv_get_sysfs_path`
pub(crate) extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: the text of a file without its line end; bytes read, or -1.
pub(crate) extern "C" fn read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    let (Some(folder), Some(file)) = (ffi::text(folder), ffi::text(file)) else {
        return -1;
    };
    let Ok(mut bytes) = fs::read(Path::new(folder).join(file)) else {
        return -1;
    };
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    bytes.truncate(size);
    let places = ffi::out(buf.cast::<u8>(), size);
    for (place, byte) in places.iter_mut().zip(&bytes) {
        place.write(*byte);
    }
    if let Some(place) = places.get_mut(bytes.len()) {
        place.write(0);
    }
    c_int::try_from(bytes.len()).unwrap_or(-1)
}

/// `ibv_read_ibdev_sysfs_file`, of which only libraries for kernel devices know. Variadic in C; the
/// further arguments are for a format that is not looked at.
pub(crate) extern "C" fn read_ibdev_sysfs_file(
    _buf: *mut c_char,
    _size: usize,
    _device: *const c_void,
    _format: *const c_char,
) -> c_int {
    -1
}
