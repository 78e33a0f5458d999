//! The library as the loader and a C program see it.
//!
//! Cargo builds the library for these tests; they load it by `LD_LIBRARY_PATH` and `LD_PRELOAD`
//! into programs that know nothing of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::tests_outside_test_module,
    reason = "a test: failing is what it does"
)]

mod common;
mod programs;
mod symbols;
