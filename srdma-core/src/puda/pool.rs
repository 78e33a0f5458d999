//! Room for packets that outlive a receive: copies, or a part of the buffer that they came in.
//!
//! ```text
//! keep ─┬─ lies in a slab that is lent ─► a share in the slab ──┬─► held by a list ─► put
//!       └─ else ─► copy into a buffer of one datagram's size ───┘
//! available + out = limit, always
//! ```
//!
//! Buffers for copies are made when first needed and used again. Slabs are lent only while
//! something is out of order, and whoever lends them takes care how many. Shares go back with the
//! next that is lent, or when nothing is kept any more.
//!
//! What it does not do: wait. An empty pool says so, and the packet is dropped.  [E810 8.1]

use crate::limits::MAX_DATAGRAM;
use bytes::BytesMut;
use core::ops::Deref;
use std::sync::Arc;

/// What is shorter is copied: a slab that is kept for it costs more.
const SHARE_FROM: usize = 512;

/// A packet that is kept.
#[derive(Debug)]
pub(crate) enum Kept {
    /// In a buffer of the pool.
    Copy(BytesMut),
    /// Where it came in: the slab, where it begins and how long it is.
    Share(Arc<[u8]>, usize, usize),
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Copy(buf) => buf,
            Self::Share(slab, at, len) => slab.get(*at..*at + *len).unwrap_or_default(),
        }
    }
}

/// The buffers.
#[derive(Debug)]
pub(crate) struct BufPool {
    /// Free ones, used last in, first out, so that warm memory is used again.
    free: Vec<BytesMut>,
    /// Where what is received lies now, if it may be shared.
    slab: Option<Arc<[u8]>>,
    /// Shares that are not needed any more. Given back together: each gives up an atomic count,
    /// which waits until everything that was written before, a whole payload maybe, is in place.
    idle: Vec<Arc<[u8]>>,
    limit: usize,
    out: usize,
}

impl BufPool {
    /// A pool that will never keep more than `limit` packets at a time.
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            free: Vec::new(),
            slab: None,
            idle: Vec::new(),
            limit,
            out: 0,
        }
    }

    /// What is kept from here on lies in `slab`, if it is said of one, and may stay there.
    pub(crate) fn lend(&mut self, slab: Option<Arc<[u8]>>) {
        self.idle.clear();
        self.slab = slab;
    }

    /// Keeps `bytes`; `None` if there is no room, or it is no datagram.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Kept> {
        if self.out >= self.limit || bytes.len() > MAX_DATAGRAM {
            return None;
        }
        self.out += 1;
        if let Some(share) = self.share(bytes) {
            return Some(share);
        }
        let mut buf = self
            .free
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(MAX_DATAGRAM));
        buf.extend_from_slice(bytes);
        Some(Kept::Copy(buf))
    }

    fn share(&self, bytes: &[u8]) -> Option<Kept> {
        let slab = self.slab.as_ref().filter(|_| bytes.len() >= SHARE_FROM)?;
        let at = bytes.as_ptr().addr().checked_sub(slab.as_ptr().addr())?;
        let inside = at.checked_add(bytes.len())? <= slab.len();
        inside.then(|| Kept::Share(Arc::clone(slab), at, bytes.len()))
    }

    /// Gives a packet's room back.
    pub(crate) fn put(&mut self, kept: Kept) {
        debug_assert!(self.out > 0, "more buffers come back than went out");
        self.out = self.out.saturating_sub(1);
        match kept {
            Kept::Copy(mut buf) => {
                buf.clear();
                self.free.push(buf);
            }
            Kept::Share(slab, ..) => self.idle.push(slab),
        }
        if self.out == 0 && self.slab.is_none() {
            self.idle.clear();
        }
    }

    /// Packets that can still be kept.
    pub(crate) const fn available(&self) -> usize {
        self.limit - self.out
    }

    /// Packets that are kept.
    pub(crate) const fn out(&self) -> usize {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_goes_out_and_memory_is_used_again() {
        let mut pool = BufPool::new(2);
        let a = pool.keep(b"one").expect("a buffer");
        let place = a.as_ptr();
        let b = pool.keep(&[7; MAX_DATAGRAM]).expect("a buffer");
        assert_eq!((&*a, b.len()), (&b"one"[..], MAX_DATAGRAM));
        assert_eq!((pool.available(), pool.out()), (0, 2));
        assert!(pool.keep(b"three").is_none());
        pool.put(a);
        assert!(pool.keep(&[0; MAX_DATAGRAM + 1]).is_none());
        let c = pool.keep(b"").expect("a buffer");
        assert_eq!((c.as_ptr(), c.len()), (place, 0));
        pool.put(b);
        pool.put(c);
        assert_eq!((pool.available(), pool.out()), (2, 0));
    }

    #[test]
    fn what_lies_in_a_slab_that_is_lent_stays_there() {
        let slab: Arc<[u8]> = (0..=250).cycle().take(4 * SHARE_FROM).collect();
        let mut pool = BufPool::new(8);
        let long = &slab[SHARE_FROM..3 * SHARE_FROM];
        let copied = pool.keep(long).expect("room");
        assert_ne!(copied.as_ptr(), long.as_ptr(), "nothing is lent yet");
        pool.lend(Some(Arc::clone(&slab)));
        let shared = pool.keep(long).expect("room");
        assert_eq!((shared.as_ptr(), shared.len()), (long.as_ptr(), long.len()));
        let elsewhere = [7; SHARE_FROM];
        let others = [
            pool.keep(&slab[..SHARE_FROM - 1]).expect("room"),
            pool.keep(&elsewhere).expect("room"),
        ];
        assert_eq!(
            (&*others[0], &*others[1]),
            (&slab[..SHARE_FROM - 1], &elsewhere[..])
        );
        pool.lend(None);
        assert_eq!(Arc::strong_count(&slab), 2, "one packet is in it");
        assert_eq!(pool.out(), 4);
        for kept in [copied, shared].into_iter().chain(others) {
            pool.put(kept);
        }
        assert_eq!((Arc::strong_count(&slab), pool.out()), (1, 0));
    }
}
