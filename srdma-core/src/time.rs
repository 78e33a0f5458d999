//! Time as the device sees it: nanoseconds of a clock that somebody else reads.
//!
//! The device never reads a clock. `Instant` is whatever the caller passes in; it only has to move
//! forward. Also here: the timer codes of the wire.

/// A point in time: nanoseconds since an origin that the caller chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The point `ns` nanoseconds later; stays at the end of time instead of wrapping.
    #[must_use]
    pub const fn after(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, zero if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The first of some times, each of which may be never. Runs for each packet: no branches.
#[inline]
pub(crate) fn earliest<const N: usize>(times: [Option<Instant>; N]) -> Option<Instant> {
    let mut first = u64::MAX;
    for at in times {
        first = first.min(at.map_or(u64::MAX, |at| at.0));
    }
    (first != u64::MAX).then_some(Instant(first))
}

/// The local ACK timeout of code `code`: 4.096 µs · 2^code; `None` for 0, which never expires.
/// Codes above 31 count as 31.                                       [IBTA 9.7.6.1.3]
#[must_use]
pub const fn ack_timeout_ns(code: u8) -> Option<u64> {
    // rule: roce-60
    if code == 0 {
        return None;
    }
    let code = if code > 31 { 31 } else { code };
    Some(4096 << code)
}

/// Microseconds of each RNR timer code. Code 0 is the longest.       [IBTA 9.7.5.2.8]
// rule: roce-24
pub const RNR_TIMER_US: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840,
    5120, 7680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
    327_680, 491_520,
];

/// Nanoseconds of RNR timer code `code` (its low five bits).
#[must_use]
#[allow(
    clippy::indexing_slicing,
    reason = "the index is masked to the table's length"
)]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    RNR_TIMER_US[(code & 31) as usize] as u64 * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        // proves: roce-24
        // proves: roce-60
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(1), 10_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(14), Some(67_108_864));
        assert_eq!(ack_timeout_ns(31), ack_timeout_ns(200));
    }
}
