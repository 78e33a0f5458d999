//! Shared receive queues: the limit.
