//! Buffers for packets that outlive a receive: made when first needed, up to a limit, used again.
//!
//! ```text
//! take ─► BytesMut of one datagram's size ─► held by a list or a queue ─► put
//! available + out = limit, always
//! ```
//!
//! What it does not do: wait. An empty pool says so, and the packet is dropped.  [E810 8.1]

use crate::limits::MAX_DATAGRAM;
use bytes::BytesMut;

/// The buffers.
#[derive(Debug)]
pub(crate) struct BufPool {
    /// Free ones, used last in, first out, so that warm memory is used again.
    free: Vec<BytesMut>,
    limit: usize,
    out: usize,
}

impl BufPool {
    /// A pool that will never hand out more than `limit` buffers at a time.
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            free: Vec::new(),
            limit,
            out: 0,
        }
    }

    /// A copy of `bytes` in a buffer; `None` if all are out, or it does not fit one.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<BytesMut> {
        if self.out >= self.limit || bytes.len() > MAX_DATAGRAM {
            return None;
        }
        let mut buf = self
            .free
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(MAX_DATAGRAM));
        self.out += 1;
        buf.extend_from_slice(bytes);
        Some(buf)
    }

    /// Gives a buffer back.
    pub(crate) fn put(&mut self, mut buf: BytesMut) {
        debug_assert!(self.out > 0, "more buffers come back than went out");
        self.out = self.out.saturating_sub(1);
        buf.clear();
        self.free.push(buf);
    }

    /// Buffers that can still be taken.
    pub(crate) const fn available(&self) -> usize {
        self.limit - self.out
    }

    /// Buffers that are out.
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
        let a = pool.copy(b"one").expect("a buffer");
        let place = a.as_ptr();
        let b = pool.copy(&[7; MAX_DATAGRAM]).expect("a buffer");
        assert_eq!((&*a, b.len()), (&b"one"[..], MAX_DATAGRAM));
        assert_eq!((pool.available(), pool.out()), (0, 2));
        assert!(pool.copy(b"three").is_none());
        pool.put(a);
        assert!(pool.copy(&[0; MAX_DATAGRAM + 1]).is_none());
        let c = pool.copy(b"").expect("a buffer");
        assert_eq!((c.as_ptr(), c.len()), (place, 0));
        pool.put(b);
        pool.put(c);
        assert_eq!((pool.available(), pool.out()), (2, 0));
    }
}
