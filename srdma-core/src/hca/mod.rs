//! The device: interrupt vectors, event queues, counters, and the board that other threads ring.

pub mod board;
pub mod counters;
pub mod events;
pub mod msix;
