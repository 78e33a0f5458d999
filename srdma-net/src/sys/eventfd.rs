//! Eventfds: a counter in the kernel that a thread can sleep on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One eventfd, non-blocking and closed on exec.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// Opens one, not signalled.
    pub fn new() -> io::Result<Self> {
        // SAFETY: why needed: no safe wrapper in the standard library. Why sound: no pointers.
        let fd = syscall!(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: why needed: takes ownership of a raw descriptor. Why sound: just opened, nobody
        // else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(File::from(fd)))
    }

    /// Wakes whoever sleeps on it. A full counter is signalled already, so nothing can fail.
    pub fn signal(&self) {
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Takes the count of signals since the last call; zero if there was none. Does not wait, even
    /// if whoever has the descriptor too made it blocking.
    pub fn take(&self) -> u64 {
        let mut raw = [0u8; 8];
        let part = libc::iovec {
            iov_base: raw.as_mut_ptr().cast(),
            iov_len: raw.len(),
        };
        let fd = self.0.as_raw_fd();
        // SAFETY: why needed: reading without waiting has no safe wrapper. Why sound: one entry,
        // which names the eight bytes of `raw`.
        let read = unsafe { libc::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT) };
        match read {
            8 => u64::from_ne_bytes(raw),
            // Kernels before 5.8 cannot do that.
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let read = (&self.0).read(&mut raw);
                read.map_or(0, |_| u64::from_ne_bytes(raw))
            }
            _ => 0,
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_add_up_and_are_taken_once() {
        let event = EventFd::new().unwrap();
        assert_eq!(event.take(), 0);
        event.signal();
        event.signal();
        assert_eq!(event.take(), 2);
        assert_eq!(event.take(), 0);
    }

    #[test]
    fn taking_does_not_wait_on_a_blocking_descriptor() {
        let event = EventFd::new().unwrap();
        // SAFETY: why needed: flags of a descriptor. Why sound: no pointers.
        let set = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, 0) };
        assert_eq!(set, 0);
        assert_eq!(event.take(), 0);
        event.signal();
        assert_eq!((event.take(), event.take()), (1, 0));
    }
}
