//! Interrupt vectors: which are marked, which may fire, and when.       [E810 4.5-4.7]
//!
//! ```text
//!              mark                    poll_interrupt               enable
//!  idle ─────────────► pending ──────────────────────► fired ──────────────────► idle
//!                      waits while disabled            (disabled by       pending again if the
//!                      or in hold-off                   firing)           queue has entries left
//! ```
//!
//! Firing disables the vector. The handler drains its queue and enables it; enabling looks at the
//! queue once more, so an entry written between drain and enable is not lost. Moderation holds a
//! vector back for `itr` after it fired, never the first time after it was idle.
//!
//! What this does *not* do: write to an eventfd (the engine does, for each vector it is given), or
//! know what a vector stands for (see `events.rs`).

use crate::num::MsixVector;
use crate::time::Instant;
use std::collections::VecDeque;

/// Longest hold-off: 8160 µs.                                          [E810 4.6]
pub const MAX_ITR_NS: u32 = 8_160_000;

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    enabled: bool,
    pending: bool,
    /// In `waiting`, so that no vector is there twice.
    listed: bool,
    itr_ns: u32,
    /// Earliest time of the next interrupt.
    ready_at: Instant,
}

/// The vectors of one device.
#[derive(Debug)]
pub struct IrqSet {
    vectors: Vec<Vector>,
    /// Enabled vectors with something pending; each is here at most once.
    waiting: VecDeque<MsixVector>,
    fired: u64,
}

impl IrqSet {
    /// `count` vectors, all disabled.
    pub fn new(count: u16) -> Self {
        let count = usize::from(count);
        Self {
            vectors: vec![Vector::default(); count],
            waiting: VecDeque::with_capacity(count),
            fired: 0,
        }
    }

    /// Number of vectors.
    pub fn count(&self) -> usize {
        self.vectors.len()
    }

    /// Interrupts raised so far.
    pub const fn fired(&self) -> u64 {
        self.fired
    }

    /// True if the vector would fire for an event now or when its hold-off ends.
    pub fn is_enabled(&self, vector: MsixVector) -> bool {
        self.vectors
            .get(usize::from(vector.0))
            .is_some_and(|v| v.enabled)
    }

    /// True if something came for the vector that it has not fired for.
    pub fn is_pending(&self, vector: MsixVector) -> bool {
        self.vectors
            .get(usize::from(vector.0))
            .is_some_and(|v| v.pending)
    }

    /// Sets the hold-off after each interrupt; 0 is none, more than 8160 µs is cut.
    pub fn set_itr(&mut self, vector: MsixVector, itr_ns: u32) -> bool {
        let Some(v) = self.vectors.get_mut(usize::from(vector.0)) else {
            return false;
        };
        v.itr_ns = itr_ns.min(MAX_ITR_NS);
        true
    }

    /// Something was written to a queue of this vector.
    pub fn mark(&mut self, vector: MsixVector) {
        let Some(v) = self.vectors.get_mut(usize::from(vector.0)) else {
            return;
        };
        v.pending = true;
        self.list(vector);
    }

    /// The handler is done, or ready for the first time. `has_work`: the queues of this vector hold
    /// entries that nobody has taken; then it fires at once.            rule: e810-28
    pub fn enable(&mut self, vector: MsixVector, has_work: bool) {
        let Some(v) = self.vectors.get_mut(usize::from(vector.0)) else {
            return;
        };
        v.enabled = true;
        v.pending = has_work;
        self.list(vector);
    }

    /// No interrupts until the next `enable`; what comes meanwhile stays pending.
    pub fn disable(&mut self, vector: MsixVector) {
        if let Some(v) = self.vectors.get_mut(usize::from(vector.0)) {
            v.enabled = false;
        }
    }

    /// The next vector to raise at `now`. Each comes up once, however often it was marked.
    pub fn poll(&mut self, now: Instant) -> Option<MsixVector> {
        for _ in 0..self.waiting.len() {
            let vector = self.waiting.pop_front()?;
            let v = self.vectors.get_mut(usize::from(vector.0))?;
            if !(v.enabled && v.pending) {
                v.listed = false;
            } else if v.ready_at > now {
                self.waiting.push_back(vector);
            } else {
                v.listed = false;
                v.pending = false;
                v.enabled = false;
                v.ready_at = now.after(u64::from(v.itr_ns));
                self.fired += 1;
                return Some(vector);
            }
        }
        None
    }

    /// When the first held-back vector may fire; in the past if `poll` would yield one.
    pub fn next_deadline(&self) -> Option<Instant> {
        let live = |vector: &MsixVector| {
            let v = self.vectors.get(usize::from(vector.0))?;
            (v.enabled && v.pending).then_some(v.ready_at)
        };
        self.waiting.iter().filter_map(live).min()
    }

    fn list(&mut self, vector: MsixVector) {
        let Some(v) = self.vectors.get_mut(usize::from(vector.0)) else {
            return;
        };
        if v.enabled && v.pending && !v.listed {
            v.listed = true;
            self.waiting.push_back(vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: MsixVector = MsixVector(1);

    #[test]
    fn a_vector_fires_once_until_enabled_again() {
        let mut irq = IrqSet::new(2);
        irq.mark(V);
        assert_eq!(
            irq.poll(Instant(0)),
            None,
            "disabled vectors keep it pending"
        );
        irq.enable(V, true);
        irq.mark(V);
        irq.mark(V);
        assert_eq!(irq.poll(Instant(0)), Some(V));
        assert_eq!(irq.poll(Instant(0)), None);
        irq.mark(V);
        assert_eq!(irq.poll(Instant(0)), None, "firing disables");
        assert!(!irq.is_enabled(V));
    }

    #[test]
    fn enabling_looks_again() {
        // proves: e810-28
        let mut irq = IrqSet::new(2);
        irq.enable(V, false);
        irq.mark(V);
        assert_eq!(irq.poll(Instant(0)), Some(V));
        irq.mark(V);
        irq.enable(V, true);
        assert_eq!(
            irq.poll(Instant(0)),
            Some(V),
            "an entry came after the drain"
        );
        irq.mark(V);
        irq.enable(V, false);
        assert_eq!(irq.poll(Instant(0)), None, "the drain had taken it");
    }

    #[test]
    fn moderation_delays_but_never_the_first() {
        let mut irq = IrqSet::new(2);
        assert!(irq.set_itr(V, 2_000));
        irq.enable(V, false);
        irq.mark(V);
        assert_eq!(irq.poll(Instant(10)), Some(V), "never the first after idle");
        irq.enable(V, true);
        assert_eq!(irq.poll(Instant(11)), None);
        assert_eq!(irq.next_deadline(), Some(Instant(2_010)));
        assert_eq!(irq.poll(Instant(2_010)), Some(V));
        irq.enable(V, false);
        irq.mark(V);
        assert_eq!(irq.poll(Instant(9_000)), Some(V));
        assert_eq!(irq.fired(), 3);
    }

    #[test]
    fn unknown_vectors_are_ignored() {
        let mut irq = IrqSet::new(1);
        irq.mark(MsixVector(9));
        irq.enable(MsixVector(9), true);
        assert!(!irq.set_itr(MsixVector(9), 1));
        assert_eq!((irq.poll(Instant(0)), irq.next_deadline()), (None, None));
    }
}
