//! Immediate data: four bytes that travel with a SEND or a WRITE to the receiver's completion.
//!
//! They are opaque and keep their order: never swapped, on no machine.        [RoCEv2 1.3]

/// Immediate data, in the order of the wire.
// rule: roce-17
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a wire format has the fields it has"
)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
}
