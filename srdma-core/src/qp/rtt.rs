//! Round-trip estimation and probes: a lost last packet must not wait for the verbs timeout.
//!
//! ```text
//!   sent ──────────► no answer for PTO ─► probe ─► 2 PTO ─► probe ─► …      not counted
//!   sent ──────────────────────────────────────► local ACK timeout ─► retry  counted
//! ```
//!
//! Probes are internal: the program sees the timing that it configured, and gives up after the
//! number of timeouts that it configured. Until a peer has answered once there is no estimate, and
//! only the verbs timeout counts.                                      [RoCEv2 6.3, 6.4]

use super::Qp;
use super::responder::ACK_LATE_NS;
use super::window::Kind;
use crate::hca::ctx::Ctx;
use crate::num::Psn;
use crate::time::Instant;

/// Shortest wait for an answer: peers may have clocks of jiffies.
const FLOOR_NS: u64 = 4_000_000;
/// Shortest wait for a peer of our kind.
const NEAR_FLOOR_NS: u64 = 200_000;
/// Doublings that lead from there to about the other.
const NEAR_STEPS: u32 = 4;
/// Longest.
const CEILING_NS: u64 = 60_000_000;
/// The wait doubles with each probe that is not answered, up to this many times.
const MAX_BACKOFF: u32 = 4;

/// What a requester knows of the way to its peer and back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    smoothed: Option<u64>,
    variation: u64,
    /// The packet whose answer is timed: sent once, and asked to be acknowledged.
    timed: Option<(Psn, Instant)>,
    /// The last packet that asked to be acknowledged.
    asked: Option<Psn>,
    /// When the next probe is due.
    pub(crate) probe_at: Option<Instant>,
    /// It leaves time for an acknowledgement that nothing asked for.
    is_late: bool,
    backoff: u32,
    /// The peer is of our kind: it has no clock of jiffies.
    near: bool,
}

impl Rtt {
    /// A packet was sent for the first time. One that `asks` to be acknowledged is answered at
    /// once, so its answer can be timed; any other is in a while.
    pub(crate) fn on_sent(&mut self, psn: Psn, asks: bool, now: Instant) {
        if asks {
            self.asked = Some(psn);
            if self.timed.is_none() {
                self.timed = Some((psn, now));
            }
            if self.probe_at.is_none() || self.is_late {
                self.schedule(now);
            }
        } else if self.probe_at.is_none() {
            self.schedule_late(now);
        }
    }

    /// There is an estimate.
    pub(super) const fn is_measured(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Everything before `una` is answered; something is still in flight or not.
    pub(crate) fn on_progress(&mut self, una: Psn, in_flight: bool, now: Instant) {
        if let Some((psn, at)) = self.timed
            && una.since(psn) > 0
        {
            self.timed = None;
            self.sample(now.since(at));
        }
        self.backoff = 0;
        self.probe_at = None;
        if in_flight && self.asked.is_some_and(|asked| asked.since(una) >= 0) {
            self.schedule(now);
        } else if in_flight {
            self.schedule_late(now);
        }
    }

    /// Packets were given up: what comes back now may answer either copy.     (Karn)
    pub(crate) const fn on_rewind(&mut self) {
        self.timed = None;
    }

    /// How long the answer to what is sent now may take, as far as anything is known: of a way that
    /// was never measured, the wait for the first answer.
    pub(super) fn round_trip(&self, now: Instant) -> u64 {
        match (self.smoothed, self.timed) {
            (Some(smoothed), _) => smoothed + 4 * self.variation,
            (None, Some((_, at))) => now.since(at),
            (None, None) => 0,
        }
    }

    /// The peer turned out to be of our kind.
    pub(super) const fn set_near(&mut self) {
        self.near = true;
    }

    /// It is early to take READs for lost, whose repetition is dear.
    const fn is_early(&self) -> bool {
        self.near && self.backoff < NEAR_STEPS
    }

    /// Nothing is due any more.
    pub(crate) const fn stop(&mut self) {
        self.timed = None;
        self.probe_at = None;
        self.backoff = 0;
    }

    fn sample(&mut self, ns: u64) {
        match self.smoothed {
            None => {
                self.smoothed = Some(ns);
                self.variation = ns / 2;
            }
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(ns)) / 4;
                self.smoothed = Some((7 * smoothed + ns) / 8);
            }
        }
    }

    /// All that is in flight will be acknowledged unasked.
    // rule: ack-2
    fn schedule_late(&mut self, now: Instant) {
        if let Some(wait) = self.wait() {
            self.probe_at = Some(now.after(wait + 2 * ACK_LATE_NS));
            self.is_late = true;
        }
    }

    fn schedule(&mut self, now: Instant) {
        let Some(wait) = self.wait() else { return };
        self.probe_at = Some(now.after(wait));
        self.is_late = false;
        let most = if self.near {
            MAX_BACKOFF + NEAR_STEPS
        } else {
            MAX_BACKOFF
        };
        if self.backoff < most {
            self.backoff += 1;
        }
    }

    /// How long to wait for an answer; `None` without an estimate.
    fn wait(&self) -> Option<u64> {
        let smoothed = self.smoothed?;
        let floor = if self.near { NEAR_FLOOR_NS } else { FLOOR_NS };
        let wait = (smoothed + 4 * self.variation).max(2 * smoothed);
        Some(wait.clamp(floor, CEILING_NS) << self.backoff)
    }
}

impl Qp {
    /// No answer for a while: send the last packet again, which draws an acknowledgement or, if
    /// more is missing, a NAK. An unanswered READ or atomic is asked for again.
    // rule: roce-146
    pub(super) fn probe(&mut self, ctx: &mut Ctx<'_>) {
        self.req.rtt.probe_at = None;
        if !self.req.in_flight() || self.req.rnr_until.is_some() {
            return;
        }
        let last = self.req.sent.prev();
        let reads = self
            .req
            .inflight
            .iter()
            .any(|work| work.kind != Kind::Acked && work.packets > 0);
        if reads && self.req.rtt.is_early() {
            self.req.rtt.schedule(ctx.now);
            return;
        }
        ctx.counters.completer_retry_err += 1;
        if reads && self.probe_reads(ctx) {
            self.req.rtt.schedule(ctx.now);
            return;
        }
        let from = if reads { self.req.una } else { last };
        // The verbs timeout runs on: a peer that is gone is still found out in time.
        let rto_at = self.req.rto_at;
        self.rewind(ctx, from);
        self.req.rto_at = rto_at;
        self.req.rtt.schedule(ctx.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_probe_before_the_peer_has_answered_once() {
        let mut rtt = Rtt::default();
        rtt.on_sent(Psn::new(1), true, Instant(0));
        rtt.on_sent(Psn::new(2), true, Instant(0));
        assert_eq!(rtt.probe_at, None);
        rtt.on_progress(Psn::new(2), true, Instant(10_000));
        assert_eq!(rtt.probe_at, Some(Instant(10_000 + FLOOR_NS)));
    }

    #[test]
    fn the_wait_doubles_up_to_a_limit_and_starts_over_with_progress() {
        let mut rtt = Rtt::default();
        rtt.on_sent(Psn::new(1), true, Instant(0));
        rtt.on_progress(Psn::new(2), false, Instant(1000));
        let mut waits = Vec::new();
        for _ in 0..7 {
            rtt.schedule(Instant(0));
            waits.push(rtt.probe_at.map(|at| at.0 / FLOOR_NS));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 16, 16].map(Some));
        rtt.on_sent(Psn::new(3), true, Instant(0));
        rtt.on_progress(Psn::new(3), true, Instant(0));
        assert_eq!(rtt.probe_at, Some(Instant(FLOOR_NS)));
    }

    #[test]
    fn a_packet_sent_twice_is_not_timed() {
        let mut rtt = Rtt::default();
        rtt.on_sent(Psn::new(1), true, Instant(0));
        rtt.on_rewind();
        rtt.on_progress(Psn::new(2), false, Instant(1000));
        assert_eq!(rtt.smoothed, None);
    }
}
