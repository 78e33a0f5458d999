//! The harness of the tests that span crates, and the source tree as the tidy test sees it.

pub mod fabric;
pub mod pcap;
pub mod source;
