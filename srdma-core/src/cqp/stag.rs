//! Commands on regions and windows.                                     [E810 7.2]
//!
//! Each object holds its protection domain. The memory of a region is entered in the [`HostMap`] by
//! the driver half and named by index; a refused REG_MR leaves it there.
//!
//! [`HostMap`]: crate::mem::HostMap

use super::Control;
use super::status::{Outcome, Refusal};
use crate::hw::cqp::{AllocStag, CqpMinor, DeallocStag, RegMr, StagKind};
use crate::mem::RegFault;
use crate::num::PdId;

impl Control<'_> {
    pub(super) fn alloc_stag(&mut self, cmd: &AllocStag) -> Outcome {
        let (index, key) = split(cmd.stag);
        self.hold_pd(cmd.pd)?;
        let made = match cmd.kind {
            StagKind::Mr => self.regions.alloc_mr(index, key, cmd.pd),
            StagKind::Mw1 => self.regions.alloc_mw(index, key, cmd.pd, true),
            StagKind::Mw2 => self.regions.alloc_mw(index, key, cmd.pd, false),
        };
        made.map_err(|fault| self.refuse_stag(cmd.pd, fault))
    }

    pub(super) fn register(&mut self, cmd: &RegMr) -> Outcome {
        let range = self
            .host
            .region(cmd.pbl)
            .cloned()
            .ok_or(Refusal(CqpMinor::INVALID_MEMORY))?;
        let (index, key) = split(cmd.stag);
        self.hold_pd(cmd.pd)?;
        match self
            .regions
            .register(index, key, cmd.pd, cmd.access, cmd.va, cmd.len, range)
        {
            Ok(()) => {
                self.host.remove_region(cmd.pbl);
                Ok(())
            }
            Err(fault) => Err(self.refuse_stag(cmd.pd, fault)),
        }
    }

    pub(super) fn dealloc_stag(&mut self, cmd: &DeallocStag) -> Outcome {
        match cmd.kind {
            StagKind::Mr => self.regions.deregister(cmd.stag, cmd.pd).map(drop)?,
            StagKind::Mw1 | StagKind::Mw2 => self.regions.dealloc_mw(cmd.stag, cmd.pd)?,
        }
        self.release_pd(cmd.pd);
        Ok(())
    }

    fn refuse_stag(&mut self, pd: PdId, fault: RegFault) -> Refusal {
        self.release_pd(pd);
        fault.into()
    }
}

/// Index and key byte of a stag.
const fn split(stag: u32) -> (u32, u8) {
    let [key, ..] = stag.to_le_bytes();
    (stag >> 8, key)
}
