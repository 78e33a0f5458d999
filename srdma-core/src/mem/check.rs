//! Checks of a key: what turns a key, a domain and a range into a [`Grant`].
//!
//! ```text
//! key ──► region ──────────────► key byte, state, domain, rights, range ──► Grant
//!    └──► window ──► + QP, its own range ──► region ──► range ──┘
//! claim ──► window and region of the same generation? ──► range ──► Grant
//! ```
//!
//! Cost of a check by key: the three loads of the table and a few compares. Cost of
//! [`MrTable::renew`]: a load and a compare for the region, the same for a window.
//!
//! What this does *not* do: check alignment of atomics or the rights of a QP, or skip the check of
//! messages without bytes (callers do, [RoCEv2 3.6]).

use super::access::Access;
use super::fault::KeyFault;
use super::grant::{Claim, Grant};
use super::host::Span;
use super::mr::{MrTable, Object, Region, split};
use super::pager::Pager;
use crate::num::{Lkey, PdId, Qpn, Rkey};
use crate::obj::table::Slot;

impl MrTable {
    /// Local key check: `LOCAL_WRITE` to scatter, `LOCAL_READ` to gather.
    ///
    /// Windows have no local key. Key 0 is valid only where the device registered it.
    #[inline]
    pub fn check_local(
        &self,
        lkey: Lkey,
        pd: PdId,
        need: Access,
        addr: u64,
        len: u32,
    ) -> Result<Grant<'_>, KeyFault> {
        let (slot, region, offset) = self.local(lkey, pd, need, addr, len)?;
        region.grant(slot, Slot::NONE, offset, u64::from(len))
    }

    /// Local key check to gather, of which only the memory is asked for. `None` where it may be
    /// absent: a grant copies it out.
    #[inline]
    pub(crate) fn check_gather(
        &self,
        lkey: Lkey,
        pd: PdId,
        addr: u64,
        len: u32,
    ) -> Result<Option<Span<'_>>, KeyFault> {
        let (_, region, offset) = self.local(lkey, pd, Access::LOCAL_READ, addr, len)?;
        let (span, pager) = region.memory(offset, u64::from(len))?;
        Ok(pager.is_none().then_some(span))
    }

    /// The region of a local key, and where in it a range starts.
    #[inline]
    fn local(
        &self,
        lkey: Lkey,
        pd: PdId,
        need: Access,
        addr: u64,
        len: u32,
    ) -> Result<(Slot, &Region, u64), KeyFault> {
        let (index, key) = split(lkey.value());
        let Some((slot, object)) = self.objects.lookup(index) else {
            return Err(missing(lkey.value()));
        };
        let Object::Region(region) = object else {
            return Err(KeyFault::Rights);
        };
        region.check_key(key, pd).map_err(|fault| {
            if index == 0 {
                KeyFault::ZeroStag
            } else {
                fault
            }
        })?;
        if !region.access.contains(need) {
            return Err(KeyFault::Rights);
        }
        let offset = within(region.va, region.len, addr, u64::from(len))?;
        Ok((slot, region, offset))
    }

    /// Remote key check: key, state, domain, queue pair of a type 2 window, rights, and the range
    /// of the window and of its region.                             [RoCEv2 3.6, 4.5]
    #[inline]
    pub fn check_remote(
        &self,
        rkey: Rkey,
        pd: PdId,
        qpn: Qpn,
        need: Access,
        addr: u64,
        len: u64,
    ) -> Result<Grant<'_>, KeyFault> {
        // rule: roce-103
        let (index, key) = split(rkey.value());
        let Some((slot, object)) = self.objects.lookup(index).filter(|_| index != 0) else {
            return Err(missing(rkey.value()));
        };
        match object {
            Object::Region(region) => {
                region.check_key(key, pd)?;
                // A key for local use only opens nothing to a peer, whatever it asks for.
                if !region.access.contains(need) || !region.access.intersects(Access::REMOTE) {
                    return Err(KeyFault::Rights);
                }
                let offset = within(region.va, region.len, addr, len)?;
                region.grant(slot, Slot::NONE, offset, len)
            }
            Object::Window(window) => {
                let bound = window.check_remote(key, pd, qpn, need)?;
                // rule: roce-137
                let into = within(bound.base, bound.len, addr, len)?;
                let region = self.region(bound.region).ok_or(KeyFault::Invalid)?;
                region.grant(bound.region, slot, bound.offset + into, len)
            }
        }
    }

    /// Remote key check of a request that is about a whole region or window, without a range.
    pub fn check_whole(
        &self,
        rkey: Rkey,
        pd: PdId,
        qpn: Qpn,
        need: Access,
    ) -> Result<(), KeyFault> {
        let (index, key) = split(rkey.value());
        match self.objects.lookup(index).filter(|_| index != 0) {
            None => Err(missing(rkey.value())),
            Some((_, Object::Region(region))) => {
                region.check_key(key, pd)?;
                if region.access.contains(need) {
                    Ok(())
                } else {
                    Err(KeyFault::Rights)
                }
            }
            Some((_, Object::Window(window))) => window.check_remote(key, pd, qpn, need).map(drop),
        }
    }

    /// A grant for `len` bytes at `offset` of an earlier claim, if region and window are still
    /// the same generation; rights and domain cannot have changed without a new one.
    #[inline]
    pub fn renew(&self, claim: &Claim, offset: u64, len: usize) -> Result<Grant<'_>, KeyFault> {
        let bytes = len as u64;
        if offset > claim.len || bytes > claim.len - offset {
            return Err(KeyFault::Bounds);
        }
        if !claim.window.is_none() && self.objects.get(claim.window).is_none() {
            return Err(KeyFault::Invalid);
        }
        let region = self.region(claim.region).ok_or(KeyFault::Invalid)?;
        region.grant(claim.region, claim.window, claim.offset + offset, bytes)
    }
}

impl Region {
    /// A grant for bytes counted from the region's start; the region's range is checked here.
    #[inline]
    fn grant(
        &self,
        region: Slot,
        window: Slot,
        offset: u64,
        len: u64,
    ) -> Result<Grant<'_>, KeyFault> {
        if offset > self.len || len > self.len - offset {
            return Err(KeyFault::Bounds);
        }
        Ok(Grant::new(
            self.memory(offset, len)?,
            region,
            window,
            offset,
        ))
    }

    /// The memory of bytes inside of the region, and who must be asked about it.
    #[inline]
    fn memory(&self, offset: u64, len: u64) -> Result<(Span<'_>, Option<&dyn Pager>), KeyFault> {
        let (Ok(at), Ok(bytes)) = (usize::try_from(offset), usize::try_from(len)) else {
            return Err(KeyFault::Bounds);
        };
        self.range.window(at, bytes).map_err(|_| KeyFault::Bounds)
    }
}

/// Where `[addr, addr + len)` starts in `[base, base + size)`, or that it is not inside.
///
/// Right at the edges of 2^64: no sum is ever made.
#[inline]
const fn within(base: u64, size: u64, addr: u64, len: u64) -> Result<u64, KeyFault> {
    let offset = addr.wrapping_sub(base);
    if offset <= size && len <= size - offset {
        return Ok(offset);
    }
    Err(outside(addr, len))
}

/// Which fault an address outside is.
#[cold]
const fn outside(addr: u64, len: u64) -> KeyFault {
    if len > 0 && addr.checked_add(len - 1).is_none() {
        KeyFault::Wrap
    } else {
        KeyFault::Bounds
    }
}

/// Which fault a key without an object is.
#[cold]
pub(super) const fn missing(stag: u32) -> KeyFault {
    match stag {
        0 => KeyFault::ZeroStag,
        1..=0xff => KeyFault::BadIndex,
        _ => KeyFault::Unallocated,
    }
}

#[cfg(test)]
mod tests;
