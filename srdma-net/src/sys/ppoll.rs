//! Sleeping on several descriptors with a limit in nanoseconds.

use srdma_core::limits::MAX_GIDS;
use std::io;
use std::os::fd::RawFd;

/// Descriptors of one sleep at most: both sockets of each address, one to be woken by, and one that
/// tells of interfaces.
const MAX_FDS: usize = 2 * MAX_GIDS + 2;

/// Sleeps until one of `fds` is readable, a signal comes, or `limit_ns` have passed. Descriptors
/// beyond [`MAX_FDS`] are not looked at: their packets wait for the limit.
pub(crate) fn sleep_on(fds: impl Iterator<Item = RawFd>, limit_ns: Option<u64>) -> io::Result<()> {
    let mut polls = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; MAX_FDS];
    let mut count: libc::nfds_t = 0;
    for (poll, fd) in polls.iter_mut().zip(fds) {
        poll.fd = fd;
        count += 1;
    }
    let limit = limit_ns.map(|ns| libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    });
    let limit = limit
        .as_ref()
        .map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: why needed: no safe wrapper for a sleep with nanoseconds. Why sound: `count` entries
    // of a local array, a limit that lives for the call or none, no signal mask.
    syscall!(unsafe { libc::ppoll(polls.as_mut_ptr(), count, limit, core::ptr::null()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::EventFd;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_last_of_all_descriptors_wakes() {
        let fds: Vec<EventFd> = (0..MAX_FDS).map(|_| EventFd::new().unwrap()).collect();
        fds[MAX_FDS - 1].signal();
        // Without a limit: it sleeps for ever if the last one is not looked at.
        sleep_on(fds.iter().map(AsRawFd::as_raw_fd), None).unwrap();
        assert_eq!(fds[MAX_FDS - 1].take(), 1);
    }
}
