//! Sockets on which nothing comes are looked at less often: each look is a system call.

use srdma_core::time::Instant;

/// Passes without a packet after which a socket is looked at less often: after so many times as
/// many passes, in every so many-th. What comes to it late is late by a small part of the silence.
const QUIET_AFTER: u32 = 64;
/// Every socket is looked at as often as this …
const QUIET_PASSES: u32 = 32;
/// … and after this time, where passes take long: on a slow processor, or on a busy one, where who
/// polls gives it up after each.
const QUIET_NS: u64 = 10_000;
/// Where packets come over the bridge, it is looked at by the clock: the longer nothing came, the
/// less often, a pass of silence being worth so much …
const BRIDGED_PASS_NS: u64 = 10;
/// … and at least as often as this.
const BRIDGED_NS: u64 = 100_000;

/// A socket on which nothing comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quiet {
    /// Passes since something came.
    passes: u32,
    /// The last look at it.
    looked: Instant,
}

impl Quiet {
    /// A pass at `now`, one of many: true if the socket is not to be looked at. `bridged`: packets
    /// come by another way.
    #[inline]
    pub(super) fn rests(&mut self, now: Instant, pass: u32, bridged: bool) -> bool {
        self.passes = self.passes.saturating_add(1);
        if self.passes < 2 * QUIET_AFTER {
            self.looked = now;
            return false;
        }
        let limit = if bridged {
            (u64::from(self.passes) * BRIDGED_PASS_NS).clamp(QUIET_NS, BRIDGED_NS)
        } else {
            QUIET_NS
        };
        let turn = pass & (turn_of(self.passes) - 1) == 0;
        let rests = (bridged || !turn) && now.since(self.looked) < limit;
        if !rests {
            self.looked = now;
        }
        rests
    }

    /// Something came.
    pub(super) const fn gave(&mut self) {
        self.passes = 0;
    }
}

/// A socket that gave nothing for `quiet` passes is looked at in every so many-th: a power of two.
const fn turn_of(quiet: u32) -> u32 {
    let turns = (quiet / QUIET_AFTER) | 1;
    let turn = 1 << turns.ilog2();
    if turn < QUIET_PASSES {
        turn
    } else {
        QUIET_PASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_socket_is_looked_at_ever_less_but_never_forgotten() {
        assert_eq!(turn_of(0), 1);
        assert_eq!(turn_of(2 * QUIET_AFTER - 1), 1);
        assert_eq!(turn_of(u32::MAX), QUIET_PASSES);
        for quiet in (0..5000).step_by(7) {
            assert!(turn_of(quiet) <= 1 + quiet / QUIET_AFTER);
            assert!(turn_of(quiet).is_power_of_two());
        }
    }

    #[test]
    fn beside_the_bridge_a_quiet_socket_is_looked_at_by_the_clock() {
        let mut quiet = Quiet::default();
        let start = 10 * BRIDGED_NS;
        for pass in 0..2 * QUIET_AFTER - 1 {
            assert!(!quiet.rests(Instant(start), pass, true), "not quiet yet");
        }
        let mut looks = |from: u64, step: u64| {
            let passes =
                (0..1000).filter(|pass| !quiet.rests(Instant(from + pass * step), 1, true));
            passes.count() as u64
        };
        let often = looks(start, QUIET_NS / 10);
        assert!(
            (90..=110).contains(&often),
            "{often} looks, as soon as it is quiet"
        );
        for _ in 0..10 {
            looks(2 * start, 0);
        }
        let seldom = looks(3 * start, BRIDGED_NS / 100);
        assert!((9..=11).contains(&seldom), "{seldom} looks, later on");
        quiet.gave();
        assert!(!quiet.rests(Instant(start), 7, true));
    }

    #[test]
    fn where_passes_take_long_a_quiet_socket_is_looked_at_in_each() {
        let looks = |step: u64| {
            let mut quiet = Quiet::default();
            let passes = 2 * QUIET_AFTER * QUIET_PASSES;
            let looks = (1..=passes).filter(|pass| {
                let now = Instant(1 + u64::from(*pass) * step);
                let looks = !quiet.rests(now, *pass, false);
                looks && *pass > passes - 2 * QUIET_PASSES
            });
            looks.count()
        };
        assert_eq!(looks(1), 2);
        assert_eq!(looks(QUIET_NS / 4), 16);
        assert_eq!(looks(QUIET_NS), 64);
    }
}
