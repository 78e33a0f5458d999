//! Event queues: room, credits, vectors.
