//! Queue pair numbers: a block of 4,096, and more blocks as they are needed.
//!
//! ```text
//! alone on its addresses      3 ………………………… 0xfffffe      as for any other number
//! beside other processes      [block] [block] …           taken from the registry, in turn
//! ```
//!
//! At most half of the numbers are in use before another block is taken, so that each rests before
//! it comes back.

use super::engine::Engine;
use super::ids::{IdPool, lock};
use crate::error::Reason;
use std::ops::RangeInclusive;
use std::sync::Mutex;

/// Numbers of queue pairs.
#[derive(Debug)]
pub(crate) struct Qpns(Mutex<State>);

#[derive(Debug)]
struct State {
    blocks: Vec<IdPool>,
    /// Whose turn it is.
    next: usize,
    /// More can be had.
    grows: bool,
}

impl Qpns {
    /// Starts with what the engine has.
    pub(crate) fn new(engine: &Engine) -> Self {
        let own = engine.own_qpns();
        let grows = own.is_some();
        // 0 is no QP, 1 the GSI QP or the driver's local queue, 2 its exception queue, 0xffffff the
        // multicast target.                                            [E810 1.7]
        let first = own.unwrap_or(3..=0xff_fffe);
        Self(Mutex::new(State {
            blocks: vec![pool(&first)],
            next: 0,
            grows,
        }))
    }

    /// A number that is not in use.
    pub(crate) fn take(&self, engine: &Engine) -> Result<u32, Reason> {
        self.take_or(|| engine.claim_qpns().map_err(Reason::Net))
    }

    fn take_or(
        &self,
        claim: impl Fn() -> Result<Option<RangeInclusive<u32>>, Reason>,
    ) -> Result<u32, Reason> {
        let mut state = lock(&self.0);
        if state.grows && state.used() * 2 >= state.total() {
            match claim() {
                Ok(Some(numbers)) => state.blocks.push(pool(&numbers)),
                Err(reason) if state.used() == state.total() => return Err(reason),
                // What is left will do.
                Ok(None) | Err(_) => {}
            }
        }
        for _ in 0..state.blocks.len() {
            state.next = (state.next + 1) % state.blocks.len().max(1);
            let block = state.blocks.get(state.next);
            if let Some(number) = block.and_then(IdPool::take) {
                return Ok(number);
            }
        }
        Err(Reason::Exhausted)
    }

    /// Gives a number back.
    pub(crate) fn give(&self, number: u32) {
        let state = lock(&self.0);
        if let Some(block) = state.blocks.iter().find(|block| block.covers(number)) {
            block.give(number);
        }
    }
}

impl State {
    fn used(&self) -> usize {
        self.blocks.iter().map(IdPool::used).sum()
    }

    fn total(&self) -> usize {
        self.blocks.iter().map(IdPool::total).sum()
    }
}

fn pool(numbers: &RangeInclusive<u32>) -> IdPool {
    IdPool::random(*numbers.start(), *numbers.end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn blocks_are_added_and_numbers_rest() {
        let blocks = AtomicU32::new(1);
        let block = |n: u32| n * 16..=n * 16 + 15;
        let qpns = Qpns(Mutex::new(State {
            blocks: vec![pool(&block(1))],
            next: 0,
            grows: true,
        }));
        let claim = || {
            let n = blocks.fetch_add(1, Ordering::Relaxed) + 1;
            Ok((n <= 3).then(|| block(n)))
        };
        let mut seen = HashSet::new();
        for count in 1..=48 {
            assert!(seen.insert(qpns.take_or(claim).unwrap()));
            let total = lock(&qpns.0).total();
            assert!(total == 48 || total >= count * 2 - 2, "{count} of {total}");
        }
        assert!(matches!(qpns.take_or(claim), Err(Reason::Exhausted)));
        assert!(seen.iter().all(|number| (16..64).contains(number)));
        seen.iter().for_each(|number| qpns.give(*number));
        qpns.give(7);
        // A number rests while half of the others come up.
        let first = qpns.take_or(claim).unwrap();
        qpns.give(first);
        for _ in 0..24 {
            let number = qpns.take_or(claim).unwrap();
            assert_ne!(number, first);
            qpns.give(number);
        }
    }
}
