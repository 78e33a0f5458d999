//! The control plane: what each command does, apart from queue pairs.    [E810 7]
//!
//! ```text
//! Cqp::fetch ──► CqpCmd ──dispatch──┬─► Done(status) ───────────┐
//!                                   └─► Qp(command) ──caller──► status ──► Cqp::complete ──► CCQ
//! ```
//!
//! A command is executed as a whole or refused as a whole, and commands complete in order. Any bits
//! may stand in a command: what names no memory, no object or no possible size is refused.
//!
//! What this does *not* do: anything about queue pairs; the device that holds them does.

mod ah;
mod cq;
mod event;
mod mcast;
mod query;
mod queue;
mod srq;
mod stag;
mod status;

pub use query::Feature;
pub use queue::{Cqp, CqpTail, Fetched};
pub use status::{CqpStatus, Refusal};

use crate::hca::counters::Counters;
use crate::hca::events::Events;
use crate::hw::CqpCmd;
use crate::hw::cqp::{CqpMinor, FlushWqes, McastCmd, QpCmd};
use crate::mem::{HostMap, HostWords, MrTable};
use crate::num::{PdId, Qpn};
use crate::obj::cq::CqTable;
use crate::obj::srq::SrqTable;
use crate::obj::{AhTable, McastTable, PdTable};
use status::Outcome;

/// What control commands may touch: the device's tables, borrowed for one command.
#[derive(Debug)]
pub struct Control<'a> {
    /// Memory that commands may name.
    pub host: &'a mut HostMap,
    /// Regions and windows.
    pub regions: &'a mut MrTable,
    /// Completion queues.
    pub cqs: &'a mut CqTable,
    /// Shared receive queues.
    pub srqs: &'a mut SrqTable,
    /// Protection domains, known by their users.
    pub pds: &'a mut PdTable,
    /// Address handles.
    pub ahs: &'a mut AhTable,
    /// Multicast groups.
    pub mcast: &'a mut McastTable,
    /// Event queues.
    pub events: &'a mut Events,
    /// Counters.
    pub counters: &'a mut Counters,
}

/// A command on a queue pair, for the device to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the device serves every command")]
#[allow(missing_docs, reason = "the variants are the opcodes")]
pub enum QpCommand {
    Create(QpCmd),
    Modify(QpCmd),
    Destroy(Qpn),
    Flush(FlushWqes),
    Suspend(Qpn),
    Resume(Qpn),
    /// Once the queue pair is known to exist: [`Control::attach`].
    Attach(McastCmd),
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "done, or not done here")]
pub enum Dispatch {
    /// Executed or refused.
    Done(CqpStatus),
    /// The caller executes it and has the status.
    Qp(QpCommand),
}

impl Control<'_> {
    /// Executes a command, or hands back one that is about a queue pair.
    pub fn dispatch(&mut self, cmd: &CqpCmd) -> Dispatch {
        self.counters.cqp_commands += 1;
        let outcome = match *cmd {
            CqpCmd::CreateQp(cmd) => return Dispatch::Qp(QpCommand::Create(cmd)),
            CqpCmd::ModifyQp(cmd) => return Dispatch::Qp(QpCommand::Modify(cmd)),
            CqpCmd::DestroyQp(qpn) => return Dispatch::Qp(QpCommand::Destroy(qpn)),
            CqpCmd::FlushWqes(cmd) => return Dispatch::Qp(QpCommand::Flush(cmd)),
            CqpCmd::SuspendQp(qpn) => return Dispatch::Qp(QpCommand::Suspend(qpn)),
            CqpCmd::ResumeQp(qpn) => return Dispatch::Qp(QpCommand::Resume(qpn)),
            CqpCmd::McastCreate(cmd) => return Dispatch::Qp(QpCommand::Attach(cmd)),
            CqpCmd::CreateCq(cmd) => self.create_cq(&cmd),
            CqpCmd::ModifyCq(cmd) => self.resize_cq(&cmd),
            CqpCmd::DestroyCq(id) => self.destroy_cq(id),
            CqpCmd::CreateSrq(cmd) => self.create_srq(&cmd),
            CqpCmd::ModifySrq(cmd) => self.modify_srq(&cmd),
            CqpCmd::DestroySrq(id) => self.destroy_srq(id),
            CqpCmd::AllocStag(cmd) => self.alloc_stag(&cmd),
            CqpCmd::RegMr(cmd) => self.register(&cmd),
            CqpCmd::DeallocStag(cmd) => self.dealloc_stag(&cmd),
            CqpCmd::CreateAh(cmd) => self.create_ah(&cmd),
            CqpCmd::DestroyAh(id) => self.destroy_ah(id),
            CqpCmd::CreateCeq(cmd) => self.create_ceq(&cmd),
            CqpCmd::DestroyCeq(id) => self.events.destroy_ceq(id).map_err(Refusal::from),
            CqpCmd::CreateAeq(cmd) => self.create_aeq(&cmd),
            CqpCmd::DestroyAeq => self.events.destroy_aeq().map_err(Refusal::from),
            CqpCmd::McastDestroy(cmd) => self.detach(&cmd),
            CqpCmd::QueryFeatures { addr, len } => self.query_features(addr, len),
            CqpCmd::Nop => Ok(()),
        };
        Dispatch::Done(outcome.into())
    }

    /// Another object of the domain `pd`. A domain is there while something uses it: on an E810 the
    /// device knows domains only by the numbers in other commands.     [E810 7.1]
    pub fn hold_pd(&mut self, pd: PdId) -> Result<(), Refusal> {
        if !self.pds.exists(pd) {
            self.pds.alloc(pd)?;
        }
        Ok(self.pds.add_user(pd)?)
    }

    /// An object of the domain `pd` is gone; with the last one the domain goes.
    pub fn release_pd(&mut self, pd: PdId) {
        self.pds.remove_user(pd);
        if self.pds.users(pd) == Some(0) {
            let freed = self.pds.dealloc(pd);
            debug_assert!(freed.is_ok(), "a domain without users goes");
        }
    }

    /// `count` entries of `bytes` bytes at `addr`: in promised memory, aligned to `align`.
    fn ring(&self, addr: u64, count: u32, bytes: usize, align: u64) -> Result<HostWords, Refusal> {
        if !addr.is_multiple_of(align) {
            return Err(Refusal(CqpMinor::INVALID_MEMORY));
        }
        let bytes = (count as usize)
            .checked_mul(bytes)
            .ok_or(Refusal(CqpMinor::INVALID_MEMORY))?;
        Ok(self.host.words(addr, bytes)?)
    }
}

/// Refuses unless `holds`.
fn check(holds: bool, minor: CqpMinor) -> Outcome {
    if holds { Ok(()) } else { Err(Refusal(minor)) }
}

#[cfg(test)]
mod tests;
