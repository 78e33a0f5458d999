//! Commands on multicast groups.                                        [E810 7.1]
//!
//! Whether the queue pair exists and hears datagrams is for the device to check, which has the
//! queue pairs; joining the group on a socket is not done here.

use super::status::{Outcome, Refusal};
use super::{Control, CqpStatus};
use crate::hw::cqp::McastCmd;

impl Control<'_> {
    /// Attaches a queue pair that the caller knows to exist.
    pub fn attach(&mut self, cmd: &McastCmd) -> CqpStatus {
        let attached = self.mcast.attach(cmd.group, cmd.qpn);
        CqpStatus::from(attached.map(drop).map_err(Refusal::from))
    }

    pub(super) fn detach(&mut self, cmd: &McastCmd) -> Outcome {
        self.mcast.detach(cmd.group, cmd.qpn)?;
        Ok(())
    }
}
