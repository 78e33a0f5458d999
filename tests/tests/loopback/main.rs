//! Real sockets on loopback: every operation, crowds, closing, idling, and peers that are killed.
//!
//! ```text
//! ops      every operation, RC UC UD, 0 bytes to 1 MiB × GSO × GRO × small socket buffers
//! big      one message of 2 GiB
//! many     two hundred queue pairs at once, mixed traffic
//! loss     the same under loss, duplication and reordering, whatever is done about it
//! close    devices that go in the middle of traffic
//! idle     a hundred connected queue pairs, and no CPU
//! kill     kill -9 of a peer process
//! share    several processes on one address
//! peer     what a child process of these tests runs
//! ```
//!
//! Devices live on addresses of 127/8 made of the process id, so runs do not meet. IPv6 has one
//! loopback address; two are had in a network namespace, which the test makes for itself.
//!
//! gate: heavy

#![cfg(test)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "patterns keep the low byte of a place, and identifiers are small"
)]

mod big;
mod close;
mod common;
mod idle;
mod kill;
mod loss;
mod many;
mod ops;
mod peer;
mod share;
