//! Packets of one queue pair that wait for their turn, in the order of their PSNs.
//!
//! ```text
//! epoch │ [ psn · psn · psn ] ─ hole ─ [ psn ]
//! ```
//!
//! What it does not do: know buffers, or give anything back.           [E810 8.6.4]

use srdma_core::limits::IEQ_HELD_PER_QP;
use srdma_core::num::Psn;
use srdma_core::time::Instant;
use std::collections::VecDeque;

/// What waits.
#[derive(Debug)]
pub(super) struct Waiting<B> {
    pub(super) psn: Psn,
    pub(super) at: Instant,
    /// Bytes of the packet.
    pub(super) len: u32,
    pub(super) buf: B,
}

/// The list of one queue pair.
#[derive(Debug)]
pub(super) struct Held<B> {
    /// Generation of the queue pair's expectation that everything here is of.
    pub(super) epoch: u32,
    list: VecDeque<Waiting<B>>,
}

/// What became of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept<B> {
    /// It waits.
    Held,
    /// It waits, and the farthest one had to go.
    Instead(B),
    /// It waited already.
    Copy(B),
    /// There is no room.
    Full(B),
}

impl<B> Held<B> {
    pub(super) const fn new(epoch: u32) -> Self {
        Self {
            epoch,
            list: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// When the nearest came.
    pub(super) fn since(&self) -> Option<Instant> {
        self.list.front().map(|waiting| waiting.at)
    }

    /// Lets a packet wait.
    // rule: ieq-15
    pub(super) fn keep(&mut self, new: Waiting<B>) -> Kept<B> {
        // Mostly it belongs at the end.
        let mut at = self.list.len();
        while let Some(before) = at.checked_sub(1).and_then(|n| self.list.get(n)) {
            match new.psn.since(before.psn) {
                0 => return Kept::Copy(new.buf),
                distance if distance > 0 => break,
                _ => at -= 1,
            }
        }
        if self.list.len() < IEQ_HELD_PER_QP {
            self.list.insert(at, new);
            return Kept::Held;
        }
        // The nearest are needed first.
        match self.list.pop_back() {
            Some(last) if at <= self.list.len() => {
                self.list.insert(at, new);
                Kept::Instead(last.buf)
            }
            Some(last) => {
                self.list.push_back(last);
                Kept::Full(new.buf)
            }
            None => Kept::Full(new.buf),
        }
    }

    /// The packet with `expected`, if it waits. Those before it were served otherwise, and go to
    /// `stale`.
    pub(super) fn next(&mut self, expected: Psn, stale: &mut Vec<B>) -> Option<Waiting<B>> {
        loop {
            let distance = self.list.front()?.psn.since(expected);
            if distance > 0 {
                return None;
            }
            let waiting = self.list.pop_front()?;
            if distance == 0 {
                return Some(waiting);
            }
            stale.push(waiting.buf);
        }
    }

    /// Everything that waits goes.
    pub(super) fn take(self) -> impl Iterator<Item = B> {
        self.list.into_iter().map(|waiting| waiting.buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(held: &mut Held<u32>, psn: u32) -> Kept<u32> {
        held.keep(Waiting {
            psn: Psn::new(psn),
            at: Instant(0),
            len: 0,
            buf: psn,
        })
    }

    #[test]
    fn packets_stand_in_order_over_the_wrap() {
        // proves: ieq-15
        let mut held = Held::new(1);
        for psn in [0xff_ffff, 2, 0, 0xff_fffd, 1] {
            assert_eq!(keep(&mut held, psn), Kept::Held);
        }
        assert_eq!(keep(&mut held, 0), Kept::Copy(0));
        let mut stale = Vec::new();
        assert!(held.next(Psn::new(0xff_fffe), &mut stale).is_none());
        assert_eq!(stale, [0xff_fffd]);
        let mut expected = Psn::new(0xff_ffff);
        for psn in [0xff_ffff, 0, 1, 2] {
            let waiting = held.next(expected, &mut stale).unwrap();
            assert_eq!(waiting.buf, psn);
            expected = expected.add(1);
        }
        assert!(held.is_empty() && stale.len() == 1);
    }

    #[test]
    fn a_full_list_gives_up_its_farthest_for_a_nearer_one() {
        // proves: ieq-15
        let mut held = Held::new(1);
        let most = u32::try_from(IEQ_HELD_PER_QP).unwrap();
        for n in 0..most {
            assert_eq!(keep(&mut held, 10 + 2 * n), Kept::Held);
        }
        assert_eq!(keep(&mut held, 10_000), Kept::Full(10_000));
        assert_eq!(keep(&mut held, 11), Kept::Instead(10 + 2 * (most - 1)));
        assert_eq!(keep(&mut held, 5), Kept::Instead(10 + 2 * (most - 2)));
        assert_eq!(held.len(), IEQ_HELD_PER_QP);
        assert_eq!(held.take().take(3).collect::<Vec<_>>(), [5, 10, 11]);
    }
}
