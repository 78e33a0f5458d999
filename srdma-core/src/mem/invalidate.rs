//! Invalidation by work request or by a peer's SEND: a key stops opening anything.
//!
//! | what the key names | local | by a peer |
//! |---|---|---|
//! | type 2 window, bound by this QP | free | free |
//! | type 2 window, free | stays free | refused |
//! | type 1 window | refused | refused |
//! | region of a work request | free | free |
//! | region of a register command | refused | refused |
//!
//! What this does *not* do: decide what a refusal does to a QP ([RoCEv2 3.7], class J).

use super::access::Access;
use super::check::missing;
use super::fault::{InvalidateFault, KeyFault};
use super::host::HostRange;
use super::mr::{MrTable, Object, Region, split};
use crate::num::{PdId, Qpn, Rkey};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A work request of our own user.
    User,
    /// A SEND of the peer.
    Peer,
}

impl MrTable {
    /// Invalidates by a work request of our own user: a bound type 2 window, or a region that a
    /// work request registered. What is free already stays free.
    pub fn local_invalidate(
        &mut self,
        stag: u32,
        pd: PdId,
        qpn: Qpn,
    ) -> Result<(), InvalidateFault> {
        self.invalidate(stag, pd, qpn, By::User)
    }

    /// Invalidates because a peer's SEND asked for it.              [RoCEv2 3.7]
    ///
    /// Refused for a region of a register command: the peer has no right to take it away.
    pub fn remote_invalidate(
        &mut self,
        rkey: Rkey,
        pd: PdId,
        qpn: Qpn,
    ) -> Result<(), InvalidateFault> {
        // rule: roce-113
        self.invalidate(rkey.value(), pd, qpn, By::Peer)
    }

    fn invalidate(&mut self, stag: u32, pd: PdId, qpn: Qpn, by: By) -> Result<(), InvalidateFault> {
        let (index, key) = split(stag);
        let slot = self.objects.find(index).ok_or_else(|| missing(stag))?;
        match self.objects.get_mut(slot) {
            Some(Object::Region(region)) => {
                region.check_invalidate(key, pd, by)?;
                region.valid = false;
                region.range = HostRange::empty();
                region.len = 0;
                self.objects.renew(slot);
                Ok(())
            }
            Some(Object::Window(window)) => {
                window.check_invalidate(key, pd, qpn, by)?;
                self.unbind(slot);
                Ok(())
            }
            None => Err(KeyFault::Unallocated.into()),
        }
    }
}

impl Region {
    /// May this region be invalidated?                              [RoCEv2 4.5]
    fn check_invalidate(&self, key: u8, pd: PdId, by: By) -> Result<(), InvalidateFault> {
        match self.check_key(key, pd) {
            Err(KeyFault::Invalid) if by == By::User && self.pd == pd => {}
            checked => checked?,
        }
        if by == By::Peer && !(self.by_request && self.access.intersects(Access::REMOTE)) {
            return Err(InvalidateFault::NoRemoteRights);
        }
        if !self.by_request {
            return Err(InvalidateFault::PlainRegion);
        }
        if self.windows > 0 {
            return Err(InvalidateFault::HasWindows);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
