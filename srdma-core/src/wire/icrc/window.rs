//! Watching the IPv4 identifications that the solver finds.
//!
//! A solved identification costs the ICRC sixteen bits of strength: one corrupted packet in 2^16
//! looks like a good one with some odd identification. Real senders count upwards, so an
//! identification far from the last one is a hint at such a packet, worth a counter.
//!
//! One window per source address; it counts nothing itself.                    [RoCEv2 7.6 RX 3]

/// How far back an identification may lie: reordering.
const BEHIND: u16 = 64;
/// How far ahead it may lie: other traffic of the sender draws from the same counter.
const AHEAD: u16 = 4096;
/// Identifications below this one are the slots of a segmented send: predicted, not counted up.
const SLOTS: u16 = 128;

/// The last identification of one source.
// rule: roce-39
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdWindow {
    last: Option<u16>,
}

impl IdWindow {
    /// A window that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Takes note of an identification and says whether it jumped.
    #[inline]
    pub const fn observe(&mut self, ip_id: u16) -> bool {
        if ip_id < SLOTS {
            return false;
        }
        let Some(last) = self.last else {
            self.last = Some(ip_id);
            return false;
        };
        if last.wrapping_sub(ip_id) <= BEHIND {
            return false;
        }
        self.last = Some(ip_id);
        ip_id.wrapping_sub(last) > AHEAD
    }
}
