//! Completion queues: events, overrun, lists.
