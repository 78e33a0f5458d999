//! System calls: all the `unsafe` of this crate.
//!
//! | file | what | unsafe because |
//! |---|---|---|
//! | `mmsg.rs` | `sendmmsg`, `recvmmsg` over reused header arrays | raw pointers in headers |
//! | `gather.rs` | the bytes of gather entries, copied out | registered memory is no slice |
//! | `sockopt.rs` | options that `socket2` lacks, socket filters | pointers to option values |
//! | `netlink.rs` | a socket that hears of links and addresses | its address is C's |
//! | `eventfd.rs` | eventfds | the descriptor comes from a raw call |
//! | `memory.rs` | memory of this process that may be absent | a word by its address |
//! | `lock.rs` | locks on bytes of a file | a pointer to their description |
//! | `exit.rs` | the end of the process; signals | pointers to a function and a set |
//! | `clock.rs` | the monotonic clock as one number | a pointer to where it is written |
//! | `ppoll.rs` | sleeping on several descriptors | an array of them, and a time limit |
//! | `sched.rs` | a thread that runs soon | the kernel's description of its scheduling |
//! | `cmsg.rs` | control messages, as bytes | macros of libc for their lengths |
//! | `shm.rs` | memory that processes share | a mapping, and copies that others race with |
//! | `slab.rs` | receive buffers that may be kept | nothing: shares are counted |
//! | `addr.rs` | socket addresses | nothing: bytes in, bytes out |
//!
//! Lengths always come from the slice that they belong to. Gather entries come from a `TxBatch`,
//! whose lifetime covers the call. Policy (what an error means) is not here: see `offload.rs`.

#![allow(unsafe_code, reason = "system calls take raw pointers")]

/// Runs a system call and turns its `-1` into `io::Error`.
macro_rules! syscall {
    ($call:expr) => {
        match $call {
            -1 => Err(std::io::Error::last_os_error()),
            value => Ok(value),
        }
    };
}

pub(crate) mod addr;
pub(crate) mod clock;
pub(crate) mod cmsg;
pub(crate) mod eventfd;
pub(crate) mod exit;
pub(crate) mod gather;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod mmsg;
pub(crate) mod netlink;
pub(crate) mod ppoll;
pub(crate) mod sched;
pub(crate) mod shm;
pub(crate) mod slab;
pub(crate) mod sockopt;
