//! Which host memory the device may touch.
//!
//! ```text
//! rings, shadow areas   by address     a CQP command names them; must lie in one HostBuf
//! memory of regions     by PBL index   the driver half puts a range in, REG_MR names the index
//! ```
//!
//! On an E810 both are bus addresses behind an IOMMU; here they are virtual addresses of one
//! process, so an address is only used if it was entered first. What this does *not* do: keys and
//! rights (see `mr.rs`).

use super::host::{HostBuf, HostFault, HostRange, HostWords};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Names the memory of a region until the region is registered.      [E810 7.2]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PblIndex(pub u32);

impl PblIndex {
    /// Bits that a PBL index has in descriptors.
    pub const BITS: u32 = 28;
}

/// Which host memory the device may touch: ring buffers by address, region memory by PBL index.
#[derive(Debug, Default)]
pub struct HostMap {
    rings: BTreeMap<u64, Arc<HostBuf>>,
    regions: BTreeMap<u32, HostRange>,
    last: u32,
}

impl HostMap {
    /// Without any memory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            rings: BTreeMap::new(),
            regions: BTreeMap::new(),
            last: 0,
        }
    }

    /// Lets the device use a buffer for rings and shadow areas.
    pub fn insert_ring(&mut self, buf: Arc<HostBuf>) {
        self.rings.insert(buf.addr(), buf);
    }

    /// Takes a ring buffer out, by its address; false if there is none.
    ///
    /// Ring ends made before stay alive until they are dropped.
    pub fn remove_ring(&mut self, addr: u64) -> bool {
        self.rings.remove(&addr).is_some()
    }

    /// The `bytes` bytes at `addr` as words: all in one ring buffer, both multiples of eight.
    pub fn words(&self, addr: u64, bytes: usize) -> Result<HostWords, HostFault> {
        let (start, buf) = self
            .rings
            .range(..=addr)
            .next_back()
            .ok_or(HostFault::OutOfRange)?;
        let offset = usize::try_from(addr - start).map_err(|_| HostFault::OutOfRange)?;
        if !bytes.is_multiple_of(8) {
            return Err(HostFault::Misaligned);
        }
        buf.range().slice(offset, bytes)?.words()
    }

    /// Enters the memory of a region; indexes repeat only after 2^28 of them.
    pub fn insert_region(&mut self, range: HostRange) -> PblIndex {
        loop {
            self.last = (self.last + 1) % (1 << PblIndex::BITS);
            if self.last != 0 && !self.regions.contains_key(&self.last) {
                break;
            }
        }
        self.regions.insert(self.last, range);
        PblIndex(self.last)
    }

    /// The memory under an index.
    #[must_use]
    pub fn region(&self, pbl: PblIndex) -> Option<&HostRange> {
        self.regions.get(&pbl.0)
    }

    /// Takes the memory under an index out.
    pub fn remove_region(&mut self, pbl: PblIndex) -> Option<HostRange> {
        self.regions.remove(&pbl.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_in_one_ring_buffer() {
        let mut map = HostMap::new();
        let buf = HostBuf::new(8192).unwrap();
        let at = buf.addr();
        assert_eq!(map.words(at, 8).err(), Some(HostFault::OutOfRange));
        map.insert_ring(Arc::clone(&buf));
        let words = map.words(at + 4096, 4096).unwrap();
        words.store(511, 7);
        assert_eq!((words.len(), buf.words().load(1023)), (512, 7));
        for (addr, bytes, fault) in [
            (at, 8200, HostFault::OutOfRange),
            (at + 8192, 8, HostFault::OutOfRange),
            (at - 8, 8, HostFault::OutOfRange),
            (u64::MAX - 7, 8, HostFault::OutOfRange),
            (at, usize::MAX & !7, HostFault::OutOfRange),
            (at + 4, 8, HostFault::Misaligned),
            (at, 12, HostFault::Misaligned),
        ] {
            assert_eq!(
                map.words(addr, bytes).err(),
                Some(fault),
                "{addr:#x} {bytes}"
            );
        }
        assert!(map.remove_ring(at) && !map.remove_ring(at));
        assert_eq!(map.words(at, 8).err(), Some(HostFault::OutOfRange));
    }

    #[test]
    fn region_indexes_are_not_zero_and_not_reused_at_once() {
        let mut map = HostMap::new();
        let first = map.insert_region(HostRange::empty());
        assert!(map.region(first).is_some());
        assert!(map.remove_region(first).is_some());
        assert!(map.region(first).is_none() && map.remove_region(first).is_none());
        let second = map.insert_region(HostRange::empty());
        assert_ne!(first, second);
        map.last = (1 << PblIndex::BITS) - 1;
        let wrapped = map.insert_region(HostRange::empty());
        assert!(wrapped.0 != 0 && wrapped != second);
    }
}
