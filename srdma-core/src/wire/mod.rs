//! RoCEv2 packets: bytes in, meaning out. No state.

pub mod flow;
