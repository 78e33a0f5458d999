//! The clock that the device is told: the system's monotonic one, or one that a test turns.
//!
//! Only differences mean anything: each clock has an origin of its own.

use crate::sys::clock::monotonic_ns;
use srdma_core::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where `now` comes from.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Nanoseconds of the system's clock that count as none.
    System(u64),
    Manual(ManualClock),
}

impl Clock {
    /// The system's monotonic clock, from here on.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System(monotonic_ns()))
    }

    /// A clock that stands still until it is turned.
    #[must_use]
    pub fn manual(clock: &ManualClock) -> Self {
        Self(Source::Manual(clock.clone()))
    }

    /// The time. Never goes back. Costs about 20 ns on the system's clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System(origin) => Instant(monotonic_ns() - origin),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// A test turns this clock, so real waiting does not move it.
    #[must_use]
    pub const fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }
}

/// A clock turned by hand; clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::Acquire))
    }

    /// Turns it on by `ns`.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::AcqRel);
    }

    /// Turns it on to `at`; never back.
    pub fn advance_to(&self, at: Instant) {
        self.0.fetch_max(at.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_only_go_forward() {
        let hand = ManualClock::new();
        let clock = Clock::manual(&hand);
        hand.advance(5);
        hand.advance_to(Instant(3));
        assert_eq!(clock.now(), Instant(5));
        hand.advance_to(Instant(9));
        assert_eq!(clock.now(), Instant(9));
        let system = Clock::system();
        let first = system.now();
        assert!(system.now() >= first && clock.is_manual() && !system.is_manual());
    }
}
