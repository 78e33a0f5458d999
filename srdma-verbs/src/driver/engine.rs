//! The engine as the driver half sees it: one place that names what it uses of the I/O half.

pub(crate) use srdma_core::hca::board::Doorbell;
pub(crate) use srdma_net::{Engine, EngineConfig, Transport};
