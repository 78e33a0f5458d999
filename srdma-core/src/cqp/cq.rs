//! Commands on completion queues.                                       [E810 7.2, 3.8]
//!
//! CQ 0 is the CCQ: it is made before CEQ 0, which keeps an entry for it. MODIFY_CQ switches to
//! another buffer; what the driver has not read stays in the old one, so nothing is lost and any
//! size will do.

use super::status::{Outcome, Refusal};
use super::{Control, check};
use crate::hw::Dialect;
use crate::hw::cqp::{CqCmd, CqpMinor};
use crate::hw::shadow::SHADOW_WORDS;
use crate::limits::{MAX_CQ, MAX_CQE};
use crate::mem::HostWords;
use crate::num::CqId;
use crate::obj::cq::{CCQ, Cq, CqSpec};
use crate::ring::{CqProducer, CqShadow};

/// Alignment of a CQ's buffer; smaller than an E810's, as a CQ may start anywhere in a page here.
const RING_ALIGN: u64 = 32;
/// Alignment of a shadow area.
const SHADOW_ALIGN: u64 = 64;

impl Control<'_> {
    pub(super) fn create_cq(&mut self, cmd: &CqCmd) -> Outcome {
        check(cmd.id.0 < MAX_CQ, CqpMinor::INVALID_ID)?;
        let words = self.cq_ring(cmd)?;
        let shadow = self.ring(cmd.shadow_addr, 1, 8 * SHADOW_WORDS, SHADOW_ALIGN)?;
        let dialect = self.dialect_of(cmd.id);
        let shadow = CqShadow::speaking(dialect, shadow)?;
        // The command has no room for the lowest bit of a cookie, which a number needs.
        let cookie = if self.events.dialect().names_by_number() {
            cmd.id.0.into()
        } else {
            cmd.cookie
        };
        let producer = CqProducer::new(words, cmd.size, cmd.wide, shadow, cmd.threshold)?;
        if cmd.id == CCQ {
            check(!cmd.wide, CqpMinor::INVALID_COMMAND)?;
            let created = self.cqs.create_ccq(self.events.dialect(), producer, cookie);
            return check(created, CqpMinor::EXISTS);
        }
        check(self.cqs.slot(cmd.id).is_none(), CqpMinor::EXISTS)?;
        if let Some(ceq) = cmd.ceq {
            self.events.attach_cq(ceq)?;
        }
        let cq = Cq::new(CqSpec {
            id: cmd.id,
            producer,
            ceq: cmd.ceq,
            cookie,
            check_overflow: cmd.check_overflow,
            wide: cmd.wide,
            timestamps: cmd.timestamps,
        });
        self.cqs.insert(cq).map(drop).map_err(|fault| {
            if let Some(ceq) = cmd.ceq {
                self.events.detach_cq(ceq, None);
            }
            Refusal::from(fault)
        })
    }

    pub(super) fn resize_cq(&mut self, cmd: &CqCmd) -> Outcome {
        let slot = self.cqs.slot(cmd.id).ok_or(Refusal(CqpMinor::INVALID_ID))?;
        let words = self.cq_ring(cmd)?;
        let cq = self
            .cqs
            .get_mut(slot)
            .ok_or(Refusal(CqpMinor::INVALID_ID))?;
        check(!cq.is_error(), CqpMinor::INVALID_STATE)?;
        check(cq.is_wide() == cmd.wide, CqpMinor::INVALID_COMMAND)?;
        Ok(cq.switch(words, cmd.size)?)
    }

    pub(super) fn destroy_cq(&mut self, id: CqId) -> Outcome {
        if id == CCQ {
            return check(self.cqs.destroy_ccq(self.events), CqpMinor::INVALID_ID);
        }
        let slot = self.cqs.slot(id).ok_or(Refusal(CqpMinor::INVALID_ID))?;
        let users = self.cqs.get(slot).map_or(0, Cq::users);
        check(users == 0, CqpMinor::IN_USE)?;
        self.cqs.remove(self.events, slot);
        Ok(())
    }

    fn dialect_of(&self, id: CqId) -> Dialect {
        self.events.dialect().of_queue(id)
    }

    fn cq_ring(&self, cmd: &CqCmd) -> Result<HostWords, Refusal> {
        let dialect = self.dialect_of(cmd.id);
        let fits = (2..=MAX_CQE).contains(&cmd.size) && dialect.cq_size_fits(cmd.size);
        check(fits, CqpMinor::INVALID_COMMAND)?;
        let slot = dialect.cq_slot_bytes(cmd.wide);
        self.ring(cmd.addr, cmd.size, slot, RING_ALIGN)
    }
}
