//! The device: interrupt vectors, event queues, counters.

pub mod counters;
pub mod msix;
