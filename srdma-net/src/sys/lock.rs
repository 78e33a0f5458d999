//! Locks on bytes of a file (OFD locks): they belong to an open file, and the kernel drops them
//! when its last descriptor closes, however the process ended. None of these calls waits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How a byte is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Beside others that share it.
    Shared,
    /// Alone.
    Alone,
}

impl Mode {
    const fn kind(self) -> libc::c_int {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Alone => libc::F_WRLCK,
        }
    }
}

/// Locks `len` bytes from `at`, or changes the mode of our lock on them. False: another open file
/// has a lock there that does not allow it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, at: i64, len: i64, mode: Mode) -> io::Result<bool> {
    match call(fd, libc::F_OFD_SETLK, mode.kind(), at, len) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Gives our lock on these bytes back.
pub(crate) fn unlock(fd: BorrowedFd<'_>, at: i64, len: i64) -> io::Result<()> {
    call(fd, libc::F_OFD_SETLK, libc::F_UNLCK, at, len).map(drop)
}

/// True if another open file has a lock on one of these bytes that it does not share.
pub(crate) fn is_locked(fd: BorrowedFd<'_>, at: i64, len: i64) -> io::Result<bool> {
    let kind = call(fd, libc::F_OFD_GETLK, libc::F_RDLCK, at, len)?;
    Ok(kind != libc::F_UNLCK)
}

/// The user whose files and sockets this process makes.
pub(crate) fn user() -> u32 {
    // SAFETY: why needed: the function is declared by libc. Why sound: it takes nothing, cannot
    // fail, and reads a number of this process.
    unsafe { libc::geteuid() }
}

/// One `fcntl`; returns the kind of lock that the kernel left in the description.
fn call(
    fd: BorrowedFd<'_>,
    command: libc::c_int,
    kind: libc::c_int,
    at: i64,
    len: i64,
) -> io::Result<libc::c_int> {
    let short = |number: libc::c_int| libc::c_short::try_from(number).unwrap_or_default();
    let mut lock = libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: at,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: why needed: `fcntl` takes a pointer to a description. Why sound: it is ours, whole,
    // and outlives the call, which reads it and may write it.
    syscall!(unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut lock) })?;
    Ok(libc::c_int::from(lock.l_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_lock_goes_with_the_file_that_has_it() {
        let path = std::env::temp_dir().join(format!("srdma-lock-{}", std::process::id()));
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let (a, b) = (open(), open());
        let lock = |file: &File, mode| try_lock(file.as_fd(), 7, 1, mode).unwrap();
        assert!(lock(&a, Mode::Alone) && lock(&a, Mode::Alone));
        assert!(!lock(&b, Mode::Shared));
        assert!(is_locked(b.as_fd(), 0, 100).unwrap());
        assert!(!is_locked(b.as_fd(), 8, 100).unwrap());
        assert!(
            !is_locked(a.as_fd(), 7, 1).unwrap(),
            "our own does not count"
        );
        drop(a);
        assert!(lock(&b, Mode::Shared));
        let c = open();
        assert!(lock(&c, Mode::Shared) && !lock(&c, Mode::Alone));
        unlock(b.as_fd(), 7, 1).unwrap();
        assert!(lock(&c, Mode::Alone));
        std::fs::remove_file(&path).unwrap();
    }
}
