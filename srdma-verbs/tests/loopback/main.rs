//! Two devices of one process, over real sockets on loopback addresses of their own.
//!
//! What this does *not* do: simulate bad networks (the package `srdma-tests` does).

mod common;
mod errors;
mod events;
mod objects;
mod ops;
mod ud;
