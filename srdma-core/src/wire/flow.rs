//! The path of a packet below the transport: addresses, ports, ECN.

/// ECN codepoint of an IP header.                                    [RFC 3168]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[allow(clippy::exhaustive_enums, reason = "two bits have four values")]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0,
    /// ECN-capable, codepoint 1.
    Ect1 = 1,
    /// ECN-capable, codepoint 0.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}
