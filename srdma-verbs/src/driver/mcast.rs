//! Multicast groups: which queue pairs hear which address.
//!
//! The device has the groups; here is only who is in one, so that destroying such a queue pair can
//! be refused before anything happens.

use super::Driver;
use super::ids::lock;
use crate::error::Reason;
use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::McastCmd;
use srdma_core::num::Qpn;
use std::collections::HashSet;
use std::net::IpAddr;

/// Members of the groups of a device.
#[derive(Debug, Default)]
pub(crate) struct Groups(HashSet<(IpAddr, Qpn)>);

impl Driver {
    /// Lets a queue pair hear a group. Attaching twice is once.
    pub(crate) fn attach_mcast(&self, group: IpAddr, qpn: Qpn) -> Result<(), Reason> {
        let mut groups = lock(&self.groups);
        if !groups.0.contains(&(group, qpn)) {
            self.exec(&CqpCmd::McastCreate(McastCmd { qpn, group }))?;
            groups.0.insert((group, qpn));
        }
        Ok(())
    }

    /// A queue pair leaves a group.
    pub(crate) fn detach_mcast(&self, group: IpAddr, qpn: Qpn) -> Result<(), Reason> {
        let mut groups = lock(&self.groups);
        if !groups.0.contains(&(group, qpn)) {
            return Err(Reason::Endpoint);
        }
        self.exec(&CqpCmd::McastDestroy(McastCmd { qpn, group }))?;
        groups.0.remove(&(group, qpn));
        Ok(())
    }

    /// True if the queue pair is in some group.
    // rule: roce-141
    pub(crate) fn in_mcast(&self, qpn: Qpn) -> bool {
        lock(&self.groups)
            .0
            .iter()
            .any(|(_, member)| *member == qpn)
    }

    /// Takes a queue pair out of every group; for one whose owner dropped it.
    pub(crate) fn leave_all_mcast(&self, qpn: Qpn) {
        let joined: Vec<IpAddr> = {
            let groups = lock(&self.groups);
            groups
                .0
                .iter()
                .filter(|(_, member)| *member == qpn)
                .map(|(addr, _)| *addr)
                .collect()
        };
        for group in joined {
            // Refused only by a device that is gone.
            let _ = self.detach_mcast(group, qpn);
        }
    }
}
