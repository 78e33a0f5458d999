//! IPv4 identifications that make sense: what keeps the ICRC strong although the ID is not seen.
//!
//! A socket does not show the identification, so the ICRC's solver takes any: a damaged packet then
//! passes once in 65,536. But senders do not choose at random. Ones like us send the packet's index
//! in its run, below 128; others count upwards, jumping ahead by at most the idle time in jiffies.
//! An ID that fits neither is not believed unless the very next packet goes on from it, so a
//! damaged packet passes about once in 10^6 (counting senders) or in 3·10^7 (senders like us).
//! [RoCEv2 7.4 - 7.6]

use crate::time::Instant;

/// IDs that a sender like us uses: indices in a run.
const LOW_IDS: u16 = 128;
/// Packets with such IDs after which a sender is known to be like us.
const LOW_PROOF: u8 = 16;
/// How far a counter may move between two packets.
const AHEAD: u16 = 4096;
/// How far back, for packets that overtook each other.
const BEHIND: u16 = 64;
/// Jiffies a second, at most, that an idle sender's counter jumps by.
const JIFFIES_NS: u64 = 1_000_000;

/// What is known of the identifications of one sender.
// rule: roce-39
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdGuard {
    low: u8,
    last: Option<(u16, Instant)>,
    doubtful: Option<u16>,
}

impl IdGuard {
    /// The packet's ID was the expected one: index in its buffer.
    #[inline]
    pub(super) const fn expected(&mut self) {
        self.low = self.low.saturating_add(1);
        self.doubtful = None;
    }

    /// The ICRC fits with this ID. True if the packet is to be believed.
    pub(super) fn believes(&mut self, id: u16, now: Instant) -> bool {
        let like_us = self.low >= LOW_PROOF;
        if !like_us && self.last.is_some_and(|last| follows(id, last, now)) {
            self.last = Some((id, now));
            self.doubtful = None;
            return true;
        }
        if id < LOW_IDS {
            self.expected();
            return true;
        }
        // The same number again is a copy of the doubtful packet, made by the network.
        let goes_on = |doubtful: u16| id != doubtful && in_window(id, doubtful, AHEAD);
        let confirmed = self.doubtful.is_some_and(goes_on);
        if (like_us || self.last.is_some()) && !confirmed {
            self.doubtful = Some(id);
            return false;
        }
        self.low = 0;
        self.doubtful = None;
        self.last = Some((id, now));
        true
    }
}

/// A counter that stood at `last` may stand at `id` now.
fn follows(id: u16, (last, at): (u16, Instant), now: Instant) -> bool {
    let idle = u16::try_from(now.since(at) / JIFFIES_NS).unwrap_or(u16::MAX);
    in_window(id, last, AHEAD.saturating_add(idle))
}

const fn in_window(id: u16, last: u16, ahead: u16) -> bool {
    let distance = id.wrapping_sub(last);
    distance <= ahead || distance >= BEHIND.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    #[test]
    fn senders_like_us_may_use_any_index_and_nothing_else() {
        let mut guard = IdGuard::default();
        for _ in 0..LOW_PROOF {
            guard.expected();
        }
        assert!(guard.believes(127, NOW));
        assert!(!guard.believes(0xbeef, NOW));
        assert!(!guard.believes(0x1234, NOW));
        assert!(guard.believes(3, NOW));
    }

    #[test]
    fn what_was_seen_before_a_sender_is_known_does_not_count_later() {
        let mut guard = IdGuard::default();
        assert!(guard.believes(1, NOW), "the second packet of a run");
        for _ in 0..LOW_PROOF {
            guard.expected();
        }
        assert!(!guard.believes(0x3000, NOW));
        guard.expected();
        assert!(
            !guard.believes(0x3001, NOW),
            "a doubtful one is confirmed at once or never"
        );
        guard.expected();
        let later = NOW.after(100_000 * JIFFIES_NS);
        assert!(!guard.believes(0x0b3c, later));
        assert!(!guard.believes(0x7000, later));
    }

    #[test]
    fn counters_may_move_wrap_and_jump_by_their_idle_time() {
        // proves: roce-39
        let mut guard = IdGuard::default();
        assert!(guard.believes(0xfff0, NOW));
        assert!(guard.believes(0x0010, NOW));
        assert!(guard.believes(0x0001, NOW), "slightly behind");
        assert!(!guard.believes(0x4000, NOW), "a jump without idling");
        assert!(guard.believes(0x2000, NOW.after(8_000 * JIFFIES_NS)));
    }

    #[test]
    fn a_second_packet_confirms_a_jump() {
        let mut guard = IdGuard::default();
        assert!(guard.believes(5000, NOW));
        assert!(!guard.believes(40_000, NOW));
        assert!(!guard.believes(40_000, NOW), "a copy confirms nothing");
        assert!(guard.believes(40_001, NOW));
        assert!(guard.believes(40_002, NOW));
    }
}
