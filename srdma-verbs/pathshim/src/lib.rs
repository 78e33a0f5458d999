//! A preload library that shows a program the few files of an RDMA device that some programs read
//! past libibverbs.
//!
//! ```text
//! program ── open("/sys/class/infiniband/srdma0/node_guid") ─► us ── open("TREE/class/…") ──► libc
//!            anything else ──────────────────────────────────► us ── as it is ──────────────► libc
//! ```
//!
//! `TREE` is a directory of ordinary files, named by `SRDMA_SYSFS`, that `srdma-cli run` makes.
//! Without the variable every call goes straight through.
//!
//! | file | what |
//! |---|---|
//! | `route` | which paths are ours, and where they lead |
//! | `next` | the functions behind us |
//! | `hooks` | the functions that stand in front, one line each |
//!
//! Rules of the house: no allocation, no lock, no I/O of our own and no panic, so that the hooks
//! are as safe in a signal handler, after `vfork` or inside an allocator as what they stand for.
//!
//! What it does not do: system calls without libc (Go, static programs), functions of libc that
//! look at paths inside (`glob`, `nftw`), paths relative to a directory, links
//! through which a path leads to `/sys` by another name.

#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod next;
mod route;
