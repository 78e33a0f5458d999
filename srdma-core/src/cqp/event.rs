//! Commands on event queues.                                            [E810 7.2]

use super::status::Outcome;
use super::{Control, check};
use crate::hw::cqp::{CqpMinor, CreateAeq, CreateCeq};
use crate::hw::{Aeqe, Ceqe};
use crate::limits::{MAX_AEQE, MAX_CEQE};
use crate::ring::Entry;

/// Alignment of both kinds.                                            [E810 1.7]
const ALIGN: u64 = 256;

impl Control<'_> {
    pub(super) fn create_ceq(&mut self, cmd: &CreateCeq) -> Outcome {
        check(
            (1..=MAX_CEQE).contains(&cmd.entries),
            CqpMinor::INVALID_COMMAND,
        )?;
        let bytes = Ceqe::ring_bytes(self.events.dialect(), cmd.entries);
        let words = self.ring(cmd.addr, 1, bytes, ALIGN)?;
        Ok(self
            .events
            .create_ceq(cmd.id, cmd.vector, words, cmd.entries)?)
    }

    pub(super) fn create_aeq(&mut self, cmd: &CreateAeq) -> Outcome {
        check(
            (1..=MAX_AEQE).contains(&cmd.entries),
            CqpMinor::INVALID_COMMAND,
        )?;
        let bytes = Aeqe::ring_bytes(self.events.dialect(), cmd.entries);
        let words = self.ring(cmd.addr, 1, bytes, ALIGN)?;
        Ok(self.events.create_aeq(cmd.vector, words, cmd.entries)?)
    }
}
