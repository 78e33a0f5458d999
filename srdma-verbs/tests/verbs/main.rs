//! Two devices of one process, over real sockets on loopback addresses of their own.
//!
//! What this does *not* do: search for bad luck in simulated networks (the package `srdma-tests`
//! does); a wire in memory is used where a packet must be held back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::assertions_on_result_states,
    clippy::tests_outside_test_module,
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    reason = "a test: failing is what it does, and nobody else uses its helpers"
)]

mod arming;
mod async_table;
mod bridge;
mod channels;
mod common;
mod cqs;
mod dialects;
mod errors;
mod events;
mod faults;
mod managed;
mod managed_end;
mod managed_pool;
mod memory;
mod objects;
mod ops;
mod port;
mod puda;
mod srqs;
mod ud;
mod vectors;
mod wire;
mod xrc;
