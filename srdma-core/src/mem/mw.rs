//! Windows: a part of a region under a key of its own, bound by a work request.
//!
//! | | type 1 | type 2 (2B) |
//! |---|---|---|
//! | after allocation | valid, of length 0 | free |
//! | bind while bound | replaces | refused: invalidate first |
//! | key byte | each bind brings it | each bind brings it |
//! | who may use it | any QP of the domain | the QP that bound it |
//! | invalidate | refused; bind length 0 | local or by a peer |
//! | zero based | refused | allowed |
//!
//! A bound window holds its region: the region can be neither changed nor taken back. What this
//! does *not* do: keep the order of the send queue; the QP binds when the request's turn has come.
//! [RoCEv2 4.5]

use super::access::Access;
use super::check::missing;
use super::fault::{BindFault, InvalidateFault, KeyFault, RegFault};
use super::invalidate::By;
use super::mr::{MrTable, Object, Region, split};
use crate::num::{PdId, Qpn};
use crate::obj::table::Slot;

/// A window, bound or not.
#[derive(Debug)]
pub(super) struct Window {
    key: u8,
    pd: PdId,
    type1: bool,
    bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) region: Slot,
    /// First byte, counted from the region's start.
    pub(super) offset: u64,
    /// Address of the first byte, as a peer counts it.
    pub(super) base: u64,
    pub(super) len: u64,
    access: Access,
    /// The QP of a type 2 window.
    qpn: Option<Qpn>,
}

/// A bind request, as a WQE brings it.                               [E810 2.4]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// Index of the window and the key byte that it is to have.
    pub window: u32,
    /// Key of the region; not looked at if a type 1 window is unbound by length 0.
    pub parent: u32,
    /// First byte of the window, as the region counts addresses.
    pub va: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub len: u64,
    /// Any of the rights of a peer.
    pub access: Access,
    /// Peers count from 0 instead of from `va`.
    pub zero_based: bool,
    /// The type that the request takes the window for.
    pub type1: bool,
}

/// Rights that a bind can give; the request has no bits for others.   [E810 2.4]
const GIVEN: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

impl Window {
    /// Is the window open to this use by this QP? Its range is left to the caller.
    #[inline]
    pub(super) fn check_remote(
        &self,
        key: u8,
        pd: PdId,
        qpn: Qpn,
        need: Access,
    ) -> Result<&Bound, KeyFault> {
        if self.key != key {
            return Err(KeyFault::BadKey);
        }
        let Some(bound) = &self.bound else {
            return Err(if self.type1 {
                KeyFault::Bounds
            } else {
                KeyFault::Invalid
            });
        };
        if self.pd != pd {
            return Err(KeyFault::BadPd);
        }
        // rule: roce-136
        if bound.qpn.is_some_and(|owner| owner != qpn) {
            return Err(KeyFault::BadQp);
        }
        if !bound.access.contains(need) {
            return Err(KeyFault::Rights);
        }
        Ok(bound)
    }

    /// May a QP invalidate the window?
    pub(super) fn check_invalidate(
        &self,
        key: u8,
        pd: PdId,
        qpn: Qpn,
        by: By,
    ) -> Result<(), InvalidateFault> {
        if self.key != key {
            return Err(KeyFault::BadKey.into());
        }
        if self.pd != pd {
            return Err(KeyFault::BadPd.into());
        }
        // rule: roce-139
        if self.type1 {
            return Err(InvalidateFault::Type1Window);
        }
        match self.bound {
            Some(Bound {
                qpn: Some(owner), ..
            }) if owner != qpn => Err(KeyFault::BadQp.into()),
            None if by == By::Peer => Err(KeyFault::Invalid.into()),
            _ => Ok(()),
        }
    }

    /// May the window be bound by a QP of domain `qp_pd`?
    fn check_bind(&self, bind: &Bind, qp_pd: PdId) -> Result<(), BindFault> {
        if self.type1 != bind.type1 {
            return Err(BindFault::WrongType);
        }
        if self.pd != qp_pd {
            return Err(KeyFault::BadPd.into());
        }
        if self.type1 && bind.zero_based {
            return Err(BindFault::ZeroBasedType1);
        }
        if !self.type1 && self.bound.is_some() {
            return Err(BindFault::StillBound);
        }
        if !self.type1 && bind.len == 0 {
            return Err(BindFault::Bounds);
        }
        Ok(())
    }
}

impl MrTable {
    /// Allocates a window: type 1 valid and of length 0, type 2 free.
    pub fn alloc_mw(&mut self, index: u32, key: u8, pd: PdId, type1: bool) -> Result<(), RegFault> {
        self.insert(
            index,
            Object::Window(Window {
                key,
                pd,
                type1,
                bound: None,
            }),
        )
    }

    /// Takes a window back, bound or not.
    pub fn dealloc_mw(&mut self, stag: u32, pd: PdId) -> Result<(), RegFault> {
        let (index, key) = split(stag);
        let slot = match self.objects.lookup(index) {
            Some((slot, Object::Window(window))) if window.key == key => {
                if window.pd != pd {
                    return Err(RegFault::BadPd);
                }
                slot
            }
            _ => return Err(RegFault::NotFound),
        };
        self.unbind(slot);
        self.objects.remove(index);
        Ok(())
    }

    /// Binds a window, after all checks; a refused bind changes nothing.
    ///
    /// The window's key from before, and claims made through it, are dead.
    pub fn bind(&mut self, bind: &Bind, qp_pd: PdId, qpn: Qpn) -> Result<(), BindFault> {
        let (index, key) = split(bind.window);
        let slot = match self.objects.lookup(index) {
            Some((slot, Object::Window(window))) => {
                window.check_bind(bind, qp_pd)?;
                slot
            }
            Some((_, Object::Region(_))) => return Err(BindFault::NotWindow),
            None => return Err(missing(bind.window).into()),
        };
        let bound = if bind.len == 0 {
            None
        } else {
            Some(self.parent_of(bind, qp_pd, qpn)?)
        };
        // rule: roce-138
        let slot = self.unbind(slot);
        if let Some(Object::Window(window)) = self.objects.get_mut(slot) {
            window.key = key;
            window.bound = bound;
        }
        if let Some(bound) = bound {
            if let Some(region) = self.region_mut(bound.region) {
                region.windows += 1;
            }
            self.bound += usize::from(bound.qpn.is_some());
        }
        Ok(())
    }

    /// Frees every window bound to a queue pair that goes away; how many.
    ///
    /// Otherwise the next owner of the number would have the old one's windows. Cost: nothing if
    /// no type 2 window is bound at all, else a walk over all regions and windows.
    pub fn free_windows_of(&mut self, qpn: Qpn) -> usize {
        if self.bound == 0 {
            return 0;
        }
        let owned = |object: &Object| match object {
            Object::Window(window) => window.bound.is_some_and(|bound| bound.qpn == Some(qpn)),
            Object::Region(_) => false,
        };
        let slots: Vec<Slot> = self
            .objects
            .iter()
            .filter(|(_, _, o)| owned(o))
            .map(|(slot, _, _)| slot)
            .collect();
        for slot in &slots {
            self.unbind(*slot);
        }
        slots.len()
    }

    /// True if a queue pair has windows bound to it.
    #[must_use]
    pub fn has_windows(&self, qpn: Qpn) -> bool {
        self.bound > 0
            && self.objects.iter().any(|(_, _, object)| match object {
                Object::Window(window) => window.bound.is_some_and(|b| b.qpn == Some(qpn)),
                Object::Region(_) => false,
            })
    }

    /// Lets go of the region and gives the window another generation.
    pub(super) fn unbind(&mut self, slot: Slot) -> Slot {
        let bound = match self.objects.get_mut(slot) {
            Some(Object::Window(window)) => window.bound.take(),
            _ => None,
        };
        if let Some(bound) = bound {
            if let Some(region) = self.region_mut(bound.region) {
                assert!(
                    region.windows > 0,
                    "a region loses no more windows than it had"
                );
                region.windows -= 1;
            }
            self.bound -= usize::from(bound.qpn.is_some());
        }
        self.objects.renew(slot).unwrap_or(slot)
    }

    /// The region of a bind, and where the window lies in it.
    fn parent_of(&self, bind: &Bind, pd: PdId, qpn: Qpn) -> Result<Bound, BindFault> {
        let (index, key) = split(bind.parent);
        let (region, parent) = match self.objects.lookup(index).filter(|_| index != 0) {
            Some((slot, Object::Region(region))) => (slot, region),
            Some((_, Object::Window(_))) => return Err(BindFault::ParentIsWindow),
            None => return Err(missing(bind.parent).into()),
        };
        match parent.check_key(key, pd) {
            Err(KeyFault::Invalid) => return Err(BindFault::ParentInvalid),
            checked => checked?,
        }
        check_rights(parent, bind)?;
        let offset = bind.va.wrapping_sub(parent.va);
        if offset > parent.len || bind.len > parent.len - offset {
            return Err(BindFault::Bounds);
        }
        Ok(Bound {
            region,
            offset,
            base: if bind.zero_based { 0 } else { bind.va },
            len: bind.len,
            access: bind.access,
            qpn: (!bind.type1).then_some(qpn),
        })
    }

    fn region_mut(&mut self, slot: Slot) -> Option<&mut Region> {
        match self.objects.get_mut(slot)? {
            Object::Region(region) => Some(region),
            Object::Window(_) => None,
        }
    }
}

/// May the region carry a window with these rights?                  [IBTA 10.6.7]
const fn check_rights(parent: &Region, bind: &Bind) -> Result<(), BindFault> {
    if parent.access.contains(Access::ZERO_BASED) {
        return Err(BindFault::ParentZeroBased);
    }
    if !parent.access.contains(Access::MW_BIND) {
        return Err(BindFault::Disabled);
    }
    let writes = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);
    let backed = !bind.access.intersects(writes) || parent.access.contains(Access::LOCAL_WRITE);
    if !GIVEN.contains(bind.access) || !backed {
        return Err(BindFault::Rights);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
