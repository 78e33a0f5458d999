//! The I/O half of srdma: UDP sockets with GSO and GRO, eventfds, and the engine that drives the
//! device.
//!
//! | module | what |
//! |---|---|
//! | [`socket`] | the two UDP sockets of a local address |
//! | [`tx`], [`rx`] | a batch to one `sendmmsg`; one `recvmmsg` to lent buffers |
//! | [`offload`] | what the kernel takes in one send, and what its refusals mean |
//! | [`selftest`] | does the kernel send the IP header that the ICRC was computed for |
//! | [`clock`], [`spin`] | what time it is; when to spin and when to sleep |
//! | [`irq`] | interrupt vectors as eventfds or handlers |
//! | [`share`] | several processes on one address |
//! | `bridge` | devices of one machine, through memory that they share |
//! | [`stats`] | counters of running processes, for those who ask |
//! | [`trace`] | who looks on: text, JSON lines and captures of what the device does |
//! | [`fault`] | a bad network at the socket's edge |
//! | [`interface`] | names, MTU and state of the network interfaces behind addresses |
//! | [`wire_link`] | a wire in memory in place of the sockets |
//! | [`bare`] | plain UDP sockets with the same offloads, to be measured against |
//! | [`error`] | what can go wrong at start, and what to do |
//!
//! System calls, and all `unsafe`, are in the private module `sys`. The device itself is
//! `srdma-core`; what it decides is not decided again here.

#![deny(unsafe_code)]

pub mod bare;
mod bridge;
pub mod clock;
pub mod engine;
pub mod error;
pub mod fault;
pub mod interface;
pub mod irq;
mod mtu;
mod netlink;
pub mod offload;
mod room;
pub mod rx;
pub mod selftest;
pub mod share;
pub mod socket;
pub mod spin;
pub mod stats;
mod sys;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod tx;
pub mod wire_link;

pub use engine::{Engine, EngineConfig, Transport};
pub use error::NetError;
pub use sys::eventfd::EventFd;
pub use sys::memory::{ProcessMemory, check_range};
