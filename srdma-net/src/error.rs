//! What can go wrong when sockets are opened, and what to do about it.
//!
//! Errors of single sends and receives are not here: they are policy (`offload.rs`) and counters.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// Why a socket of the device could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The allocator refused memory for batches.
    #[error("out of memory")]
    OutOfMemory,
    /// The kernel has no epoll or eventfd left for us.
    #[error("cannot set up waiting for packets; too many open files is the usual cause")]
    Poll(#[source] io::Error),
    /// The background thread did not start.
    #[error("cannot start the engine thread; a limit on threads is the usual cause")]
    Thread(#[source] io::Error),
    /// Devices cannot share memory here.
    #[error(
        "devices cannot share memory: that takes /dev/shm or /tmp, memfd_create, and /proc/PID/fd \
         of this user's processes"
    )]
    NoBridge(#[source] io::Error),
    /// Somebody else owns UDP port 4791 on this address.
    #[error(
        "UDP port 4791 of {local} is in use. Owners may be the kernel's rdma_rxe (`rdma link` \
         shows it; `rdma link delete NAME` or `modprobe -r rdma_rxe` frees the port), or another \
         process or user (`ss -ulpn sport = :4791` shows it): stop it, or use another address"
    )]
    PortInUse {
        /// The address.
        local: IpAddr,
    },
    /// A process of another user has UDP port 4791 on this address.
    #[error(
        "UDP port 4791 of {local} belongs to user {user}, and users cannot share an address: stop \
         that process (`ss -ulpn sport = :4791` shows it), or use another address. The kernel's \
         rdma_rxe counts as root; `rdma link` shows it"
    )]
    OtherUser {
        /// The address.
        local: IpAddr,
        /// Name of the user, or number if it has none.
        user: String,
    },
    /// The registry of processes that share an address cannot be used.
    #[error("cannot use {}, where processes that share an address are listed", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The registry is damaged, and processes that use it keep it from being made anew.
    #[error(
        "{}, where processes that share an address are listed, is damaged, and in use: end the \
         processes that have it open (`fuser {}` lists them), and it is made anew",
        path.display(),
        path.display()
    )]
    RegistryDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The folder of the registries is not this user's alone.
    #[error(
        "{}, where processes that share an address are listed, must be a folder of this user's, \
         closed to others (mode 700): remove it",
        path.display()
    )]
    RegistryUnsafe {
        /// The folder.
        path: PathBuf,
    },
    /// Other processes on the address have all numbers of queue pairs.
    #[error("no block of queue pair numbers is free: other processes on the address have them all")]
    NoBlock,
    /// The address is not one of this machine, or not up yet.
    #[error(
        "{local} is not an address of this machine (`ip address` lists them), or its interface is \
         not up yet"
    )]
    NoSuchAddress {
        /// The address.
        local: IpAddr,
    },
    /// A link-local address means nothing without its interface.
    #[error("{local} is link-local and names no interface; use a global or loopback address")]
    LinkLocal {
        /// The address.
        local: IpAddr,
    },
    /// The system forbids it.
    #[error(
        "not allowed to {what} on {local}: a sandbox, security module or firewall policy forbids \
         it to this user"
    )]
    NotAllowed {
        /// The address.
        local: IpAddr,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The address family is switched off.
    #[error("this kernel or container has no sockets for addresses like {local}")]
    NoFamily {
        /// The address.
        local: IpAddr,
        /// The system's error.
        source: io::Error,
    },
    /// No source port was free.
    #[error(
        "no free UDP port in 49152..=65535 on {local} to send from: close sockets of other programs"
    )]
    NoSourcePort {
        /// The address.
        local: IpAddr,
    },
    /// A kernel without an option that we cannot do without.
    #[error("cannot set {option} on a socket of {local}: Linux 5.0 or newer is needed")]
    Option {
        /// The address.
        local: IpAddr,
        /// The option.
        option: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Too many open files, no memory, and what else may happen.
    #[error("cannot {what} on {local}")]
    Io {
        /// The address.
        local: IpAddr,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl NetError {
    /// The error for `source`, which happened when we tried to `what` on `local`.
    pub(crate) fn from_io(local: IpAddr, what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::PortInUse { local },
            Some(libc::EADDRNOTAVAIL) => Self::NoSuchAddress { local },
            Some(libc::EACCES | libc::EPERM) => Self::NotAllowed {
                local,
                what,
                source,
            },
            Some(libc::EAFNOSUPPORT) => Self::NoFamily { local, source },
            _ => Self::Io {
                local,
                what,
                source,
            },
        }
    }
}
