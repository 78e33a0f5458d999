//! Regions: memory under a key, with a domain and rights.
//!
//! ```text
//! key  31      8 7    0        state of a region
//!      [ index ][ byte ]       valid ◄──register by work request── free   (allocated for that)
//!                                    ───invalidate──────────────►
//! ```
//!
//! Regions and windows share the index space, so a key names one or the other. Local and remote key
//! of a region are the same number; rights decide what it opens.
//!
//! What this does *not* do: check a use of a key (see `check.rs`) or invalidate (`invalidate.rs`).

use super::access::Access;
use super::fault::{KeyFault, RegFault};
use super::host::HostRange;
use super::mw::Window;
use crate::limits::MAX_MR;
use crate::num::PdId;
use crate::obj::table::{Slot, Table, TableFault};

/// A region, valid or free.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) key: u8,
    pub(super) pd: PdId,
    pub(super) access: Access,
    /// Address of the first byte, as keys' users count it.
    pub(super) va: u64,
    pub(super) len: u64,
    pub(super) range: HostRange,
    /// Bound windows; they hold the region where it is.
    pub(super) windows: u32,
    pub(super) valid: bool,
    /// Made for registration by work request: may be invalidated.
    pub(super) by_request: bool,
}

/// What an index stands for.
#[derive(Debug)]
pub(super) enum Object {
    Region(Region),
    Window(Window),
}

/// What a region is changed to; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct Rereg {
    /// Key byte from here on.
    pub key: Option<u8>,
    /// Domain from here on.
    pub pd: Option<PdId>,
    /// Rights from here on.
    pub access: Option<Access>,
    /// First address, length and memory from here on.
    pub memory: Option<(u64, u64, HostRange)>,
}

/// Registration by a work request of a region that was allocated for it. [E810 2.4]
#[derive(Debug, Clone)]
pub struct FastReg {
    /// Index and the new key byte.
    pub stag: u32,
    /// Rights.
    pub access: Access,
    /// Address of the first byte; not used if zero based.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// The memory.
    pub range: HostRange,
}

/// All regions and windows of the device.
#[derive(Debug)]
pub struct MrTable {
    pub(super) objects: Table<Object>,
    /// Type 2 windows that are bound, so that a QP without any costs no search.
    pub(super) bound: usize,
}

impl Default for MrTable {
    fn default() -> Self {
        Self::new()
    }
}

/// Index and key byte of a key.
pub(super) const fn split(stag: u32) -> (u32, u8) {
    let [key, ..] = stag.to_le_bytes();
    (stag >> 8, key)
}

impl Region {
    fn new(pd: PdId, key: u8) -> Self {
        Self {
            key,
            pd,
            access: Access::LOCAL_READ,
            va: 0,
            len: 0,
            range: HostRange::empty(),
            windows: 0,
            valid: true,
            by_request: false,
        }
    }

    /// Takes rights, addresses and memory over, or changes nothing.
    fn fill(
        &mut self,
        access: Access,
        va: u64,
        len: u64,
        range: HostRange,
    ) -> Result<(), RegFault> {
        access.check()?;
        let va = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            va
        };
        let fits = usize::try_from(len).is_ok_and(|len| len <= range.len());
        if !fits || (len > 0 && va.checked_add(len - 1).is_none()) {
            return Err(RegFault::Length);
        }
        (self.access, self.va, self.len, self.range) = (access, va, len, range);
        Ok(())
    }

    /// State, key byte and domain: what every use of a region asks first.
    #[inline]
    pub(super) fn check_key(&self, key: u8, pd: PdId) -> Result<(), KeyFault> {
        if self.key != key {
            return Err(KeyFault::BadKey);
        }
        if !self.valid {
            return Err(KeyFault::Invalid);
        }
        if self.pd != pd {
            return Err(KeyFault::BadPd);
        }
        Ok(())
    }
}

impl MrTable {
    /// Without regions and windows.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            objects: Table::new(MAX_MR),
            bound: 0,
        }
    }

    /// Allocates a free region without memory, for registration by work request.
    pub fn alloc_mr(&mut self, index: u32, key: u8, pd: PdId) -> Result<(), RegFault> {
        let region = Region {
            valid: false,
            by_request: true,
            ..Region::new(pd, key)
        };
        self.insert(index, Object::Region(region))
    }

    /// Registers memory under an index and key byte; `va` is not used if zero based.
    #[allow(
        clippy::too_many_arguments,
        reason = "the fields of one command, each of another type"
    )]
    pub fn register(
        &mut self,
        index: u32,
        key: u8,
        pd: PdId,
        access: Access,
        va: u64,
        len: u64,
        range: HostRange,
    ) -> Result<(), RegFault> {
        let mut region = Region::new(pd, key);
        region.fill(access, va, len, range)?;
        self.insert(index, Object::Region(region))
    }

    /// Lets privileged QPs of domain `pd` use key 0 for local access to `range`.
    ///
    /// Addresses are those of the memory. No command reaches this: only the device itself.
    pub fn register_reserved(&mut self, pd: PdId, range: HostRange) -> Result<(), RegFault> {
        let mut region = Region::new(pd, 0);
        let (va, len) = (range.addr(), range.len() as u64);
        region.fill(Access::LOCAL_WRITE, va, len, range)?;
        self.objects.insert(0, Object::Region(region))?;
        Ok(())
    }

    /// Registers memory under a region allocated for it: the region becomes valid.
    pub fn fast_register(&mut self, reg: FastReg, pd: PdId) -> Result<(), RegFault> {
        let (index, key) = split(reg.stag);
        let slot = self.objects.find(index).ok_or(RegFault::NotFound)?;
        let region = match self.objects.get_mut(slot) {
            Some(Object::Region(region)) => region,
            Some(Object::Window(_)) => return Err(RegFault::IsWindow),
            None => return Err(RegFault::NotFound),
        };
        if region.pd != pd {
            return Err(RegFault::BadPd);
        }
        if region.valid {
            return Err(RegFault::Valid);
        }
        region.fill(reg.access, reg.va, reg.len, reg.range)?;
        (region.key, region.valid) = (key, true);
        self.objects.renew(slot);
        Ok(())
    }

    /// Changes a region in place; claims made before are dead. Refused while windows are bound.
    pub fn rereg(&mut self, stag: u32, pd: PdId, change: Rereg) -> Result<(), RegFault> {
        let slot = self.find_region(stag, pd)?;
        let Some(Object::Region(region)) = self.objects.get_mut(slot) else {
            return Err(RegFault::NotFound);
        };
        if region.windows > 0 {
            return Err(RegFault::HasWindows);
        }
        let access = change.access.unwrap_or(region.access);
        let (va, len, range) = match change.memory {
            Some(memory) => memory,
            None => (region.va, region.len, region.range.clone()),
        };
        region.fill(access, va, len, range)?;
        region.key = change.key.unwrap_or(region.key);
        region.pd = change.pd.unwrap_or(region.pd);
        self.objects.renew(slot);
        Ok(())
    }

    /// Takes a region back and gives its memory up. Refused while windows are bound.
    pub fn deregister(&mut self, stag: u32, pd: PdId) -> Result<HostRange, RegFault> {
        let slot = self.find_region(stag, pd)?;
        // rule: roce-135
        match self.objects.get(slot) {
            Some(Object::Region(region)) if region.windows > 0 => return Err(RegFault::HasWindows),
            _ => {}
        }
        match self.objects.remove(split(stag).0) {
            Some(Object::Region(region)) => Ok(region.range),
            _ => Err(RegFault::NotFound),
        }
    }

    /// How many regions and windows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True without regions and windows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    #[inline]
    pub(super) fn region(&self, slot: Slot) -> Option<&Region> {
        match self.objects.get(slot)? {
            Object::Region(region) => Some(region),
            Object::Window(_) => None,
        }
    }

    pub(super) fn insert(&mut self, index: u32, object: Object) -> Result<(), RegFault> {
        if index == 0 {
            return Err(RegFault::ZeroIndex);
        }
        if index >= MAX_MR {
            return Err(TableFault::OutOfRange.into());
        }
        self.objects.insert(index, object)?;
        Ok(())
    }

    /// The region that a command names by its whole key.
    fn find_region(&self, stag: u32, pd: PdId) -> Result<Slot, RegFault> {
        let (index, key) = split(stag);
        match self.objects.lookup(index) {
            Some((slot, Object::Region(region))) if region.key == key && index != 0 => {
                if region.pd == pd {
                    Ok(slot)
                } else {
                    Err(RegFault::BadPd)
                }
            }
            _ => Err(RegFault::NotFound),
        }
    }
}

#[cfg(test)]
mod tests;
