//! The control queue of the device: commands in order, each answered before the next.

use super::{Device, Hca};
use crate::cqp::{Control, CqpStatus, Dispatch, Fetched, QpCommand, Refusal};
use crate::hw::cqp::CqpMinor;
use crate::time::Instant;

impl Device {
    /// What commands about anything but queue pairs get.
    pub(super) fn control(&mut self) -> Control<'_> {
        Control {
            host: &mut self.host,
            regions: &mut self.regions,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            pds: &mut self.pds,
            ahs: &mut self.ahs,
            mcast: &mut self.mcast,
            events: &mut self.events,
            counters: &mut self.counters,
        }
    }
}

impl Hca {
    /// Executes what stands in the control queue: at most a ring of it, so that a driver that keeps
    /// writing cannot hold the device.
    pub(super) fn run_cqp(&mut self, now: Instant) {
        let Some(mut cqp) = self.cqp.take() else {
            return;
        };
        for _ in 0..cqp.size() {
            let Some(fetched) = cqp.fetch(&mut self.dev.cqs) else {
                break;
            };
            let status = match &fetched.cmd {
                Ok(cmd) => match self.dev.control().dispatch(cmd) {
                    Dispatch::Done(status) => status,
                    Dispatch::Qp(command) => self.run_qp_command(&command, now),
                },
                Err(_) => Fetched::meaningless(),
            };
            if !status.is_ok() {
                self.dev.counters.cqp_errors += 1;
            }
            let device = &mut self.dev;
            cqp.complete(&mut device.cqs, &mut device.events, &fetched, status, now);
        }
        self.cqp = Some(cqp);
    }

    fn run_qp_command(&mut self, command: &QpCommand, now: Instant) -> CqpStatus {
        let done = |outcome: Result<(), Refusal>| match outcome {
            Ok(()) => CqpStatus::OK,
            Err(Refusal(minor)) => CqpStatus::refused(minor),
        };
        match command {
            QpCommand::Create(cmd) => done(self.create_qp(cmd)),
            QpCommand::Modify(cmd) => done(self.modify_qp(cmd, now)),
            QpCommand::Destroy(qpn) => done(self.destroy_qp(*qpn, now)),
            QpCommand::Suspend(qpn) => done(self.suspend_qp(*qpn, now)),
            QpCommand::Resume(qpn) => done(self.resume_qp(*qpn, now)),
            QpCommand::Attach(cmd) => {
                if self.qps.find(cmd.qpn.value()).is_none() {
                    return CqpStatus::refused(CqpMinor::INVALID_ID);
                }
                self.dev.control().attach(cmd)
            }
            QpCommand::Flush(cmd) => match self.flush_qp(cmd, now) {
                Ok(minor) => CqpStatus::remark(minor),
                Err(Refusal(minor)) => CqpStatus::refused(minor),
            },
        }
    }
}

/// What a flush found, as its minor code tells it.                    [E810 6.4]
pub(super) const fn flushed(sq: bool, rq: bool) -> CqpMinor {
    match (sq, rq) {
        (false, false) => CqpMinor::NONE,
        (false, true) => CqpMinor::FLUSHED_RQ,
        (true, false) => CqpMinor::FLUSHED_SQ,
        (true, true) => CqpMinor::FLUSHED_BOTH,
    }
}
