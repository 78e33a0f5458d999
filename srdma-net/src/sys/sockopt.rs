//! Socket options that `socket2` does not know, and two filters: one keeps a send-only socket
//! empty, the other lets the first of several sockets on one port have everything.
//!
//! What each option is for is said in `socket.rs`, where they are set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option that is an `int`.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: why needed: `setsockopt` takes a pointer and a length. Why sound: they are those of
    // `value`, which outlives the call.
    syscall!(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            len_of::<libc::c_int>(),
        )
    })?;
    Ok(())
}

/// Reads an option that is an `int`.
pub(crate) fn get_int(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = len_of::<libc::c_int>();
    // SAFETY: why needed: `getsockopt` writes through pointers. Why sound: it writes at most `len`
    // bytes to `value` and one length to `len`; both are ours and outlive the call.
    syscall!(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    })?;
    Ok(value)
}

/// What `ioctl` exchanges about an interface: `struct ifreq` with an `int` in it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    value: libc::c_int,
    rest: [u8; 20],
}

const _: () = assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());

/// The MTU of the interface `name`, in bytes of an IP packet.
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &str) -> io::Result<libc::c_int> {
    ask_interface(fd, name, libc::SIOCGIFMTU)
}

/// The flags of the interface `name`: `IFF_UP` and its relatives.
pub(crate) fn interface_flags(fd: BorrowedFd<'_>, name: &str) -> io::Result<libc::c_int> {
    let value = ask_interface(fd, name, libc::SIOCGIFFLAGS)?;
    // The kernel fills the first two bytes.
    let [low, high, ..] = value.to_ne_bytes();
    Ok(u16::from_ne_bytes([low, high]).into())
}

/// Asks about the interface `name`; `what` is a request that fills one number.
fn ask_interface(fd: BorrowedFd<'_>, name: &str, what: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        value: 0,
        rest: [0; 20],
    };
    // The last byte stays zero: the kernel wants a string.
    let room = request.name.iter_mut().take(libc::IFNAMSIZ - 1);
    room.zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: why needed: `ioctl` takes a pointer. Why sound: the kernel reads and writes one
    // `ifreq`, and the struct is at least as large (asserted above), ours, and outlives the call.
    syscall!(unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) })?;
    Ok(request.value)
}

/// Makes a socket drop all that it receives: for sockets that only send.
pub(crate) fn drop_everything(fd: BorrowedFd<'_>) -> io::Result<()> {
    // Keep no byte of the packet.
    attach_zero(fd, libc::SO_ATTACH_FILTER)
}

/// Of all sockets that share a port (`SO_REUSEPORT`), the first one gets everything. When it is
/// closed, the kernel moves the last one to its place.
pub(crate) fn first_takes_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    // Of the group, number 0.
    attach_zero(fd, libc::SO_ATTACH_REUSEPORT_CBPF)
}

/// Attaches the program "return 0".
fn attach_zero(fd: BorrowedFd<'_>, option: libc::c_int) -> io::Result<()> {
    let mut program = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let filter = libc::sock_fprog {
        len: 1,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: why needed: the option is a struct with a pointer. Why sound: the kernel reads one
    // instruction through it, and both values outlive the call.
    syscall!(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const filter).cast(),
            len_of::<libc::sock_fprog>(),
        )
    })?;
    Ok(())
}

/// Takes one entry of the socket's error queue; its payload is a copy of a packet as it was sent.
pub(crate) fn recv_error_copy(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: why needed: `recv` writes through a pointer. Why sound: pointer and length are those
    // of `bytes`, an exclusive borrow.
    let got = syscall!(unsafe {
        libc::recv(
            fd.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    })?;
    Ok(usize::try_from(got).unwrap_or(0))
}

/// Waits until the socket has something in its error queue or `timeout_ms` have passed.
pub(crate) fn wait_error(fd: BorrowedFd<'_>, timeout_ms: libc::c_int) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: why needed: `poll` takes an array. Why sound: one entry, ours, for this call.
    syscall!(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) })?;
    Ok(())
}

/// Waits until the socket has something to receive or `timeout_ms` have passed.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout_ms: libc::c_int) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: why needed: `poll` takes an array. Why sound: one entry, ours, for this call.
    syscall!(unsafe { libc::poll(&raw mut poll, 1, timeout_ms) })?;
    Ok(())
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "option values are a few bytes"
)]
const fn len_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}
