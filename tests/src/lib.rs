//! The harness of the tests that span crates, and the source tree as the tidy test sees it.

pub mod fabric;
pub mod netns;
pub mod node;
pub mod pair;
pub mod pcap;
pub mod program;
pub mod race;
pub mod rig;
pub mod source;
pub mod storm;
pub mod wire_dsl;
