//! Receive buffers that may outlive a receive: shared slabs, replaced while somebody has a share.
//!
//! ```text
//! ring    [slab · slab · slab]       what the kernel fills next: nobody else has a share
//!            │ lent      ▲
//!            ▼           │ free again, the first that is found, so that few are in use
//! spares  [slab · slab · …]          at most 64, made when first needed
//! ```
//!
//! A device that gets everything in order never lends, and has no spares.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Room of one receive buffer: more than any UDP payload, and not a multiple of a page, so that
/// the first bytes of all buffers do not compete for the same cache lines.
pub(crate) const SLOT: usize = 65_536 + 192;
/// Slabs beside the ring, so much memory may be kept for packets that wait: 4 MiB.
const MAX_SPARES: usize = 64;

#[derive(Debug)]
pub(crate) struct Slabs {
    /// A slab for each buffer of the ring.
    pub(super) ring: Vec<Arc<[u8]>>,
    spares: Vec<Arc<[u8]>>,
    /// Slabs that were lent and replaced.
    pub(super) replaced: u64,
}

impl Slabs {
    pub(crate) fn new(buffers: usize) -> Self {
        Self {
            ring: (0..buffers).map(|_| slab()).collect(),
            spares: Vec::new(),
            replaced: 0,
        }
    }

    /// How many more can be replaced.
    fn left(&self) -> usize {
        let free = self.spares.iter().filter(|slab| is_ours(slab)).count();
        free + (MAX_SPARES - self.spares.len())
    }

    /// The slab of buffer `index`. Who takes a share keeps its bytes, and it has to be replaced.
    /// `None` while too many are kept.
    pub(crate) fn lendable(&self, index: usize) -> Option<&Arc<[u8]>> {
        let left = self.left();
        self.ring.get(index).filter(|_| index < left)
    }

    /// Slabs that were lent and replaced.
    pub(crate) const fn replaced(&self) -> u64 {
        self.replaced
    }

    /// The bytes of buffer `index`.
    pub(crate) fn slab(&self, index: usize) -> Option<&[u8]> {
        self.ring.get(index).map(|slab| &**slab)
    }

    /// The same, to be filled; `None` while somebody has a share.
    pub(crate) fn slab_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        self.ring.get_mut(index).and_then(Arc::get_mut)
    }

    /// If somebody has a share of buffer `index`, another slab takes its place.
    pub(crate) fn replace_lent(&mut self, index: usize) -> bool {
        let Some(lent) = self.ring.get_mut(index).filter(|slab| !is_ours(slab)) else {
            return false;
        };
        self.replaced += 1;
        let free = self.spares.iter_mut().find(|slab| is_ours(slab));
        match free {
            Some(spare) => std::mem::swap(lent, spare),
            // Nobody lends more than are left, so this is within the limit.
            None => self.spares.push(std::mem::replace(lent, slab())),
        }
        true
    }
}

fn slab() -> Arc<[u8]> {
    std::iter::repeat_n(0, SLOT).collect()
}

/// Nobody else has a share, and what others did with theirs is over.
fn is_ours(slab: &Arc<[u8]>) -> bool {
    let ours = Arc::strong_count(slab) == 1;
    // With the release in the drop of the last other share.
    fence(Ordering::Acquire);
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_left_alone_and_used_again() {
        let mut slabs = Slabs::new(2);
        assert!(!slabs.replace_lent(0), "nobody has a share");
        assert_eq!(slabs.left(), MAX_SPARES);
        let share = Arc::clone(&slabs.ring[0]);
        assert!(slabs.replace_lent(0));
        assert!(!Arc::ptr_eq(&share, &slabs.ring[0]));
        assert_eq!((slabs.left(), slabs.replaced), (MAX_SPARES - 1, 1));
        let place = share.as_ptr();
        drop(share);
        assert_eq!(slabs.left(), MAX_SPARES);
        let other = Arc::clone(&slabs.ring[1]);
        assert!(slabs.replace_lent(1));
        assert_eq!(slabs.ring[1].as_ptr(), place, "it is free again");
        drop(other);
    }

    #[test]
    fn only_so_many_are_lent() {
        let mut slabs = Slabs::new(1);
        let mut shares = Vec::new();
        while slabs.left() > 0 {
            shares.push(Arc::clone(&slabs.ring[0]));
            assert!(slabs.replace_lent(0));
        }
        assert_eq!((shares.len(), slabs.spares.len()), (MAX_SPARES, MAX_SPARES));
        shares.pop();
        assert_eq!(slabs.left(), 1);
    }
}
