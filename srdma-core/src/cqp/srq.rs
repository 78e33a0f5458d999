//! Commands on shared receive queues.                                   [E810 2.6]

use super::status::{Outcome, Refusal};
use super::{Control, check};
use crate::hw::cqp::{CqpMinor, ModifySrq, SrqCmd};
use crate::hw::shadow::SHADOW_WORDS;
use crate::limits::{MAX_SRQ, MAX_SRQ_QUANTA};
use crate::num::SrqId;
use crate::obj::srq::{Srq, SrqSpec, XrcUse};
use crate::ring::{RqConsumer, SrqShadow};

impl Control<'_> {
    pub(super) fn create_srq(&mut self, cmd: &SrqCmd) -> Outcome {
        check(cmd.id.0 < MAX_SRQ, CqpMinor::INVALID_ID)?;
        check(cmd.shift <= 3, CqpMinor::INVALID_COMMAND)?;
        let possible = cmd.wqes > 0 && cmd.wqes <= MAX_SRQ_QUANTA >> cmd.shift;
        check(possible && cmd.limit < cmd.wqes, CqpMinor::INVALID_COMMAND)?;
        let words = self.ring(cmd.addr, cmd.wqes, 32 << cmd.shift, 32)?;
        let shadow = self.ring(cmd.shadow_addr, 1, 8 * SHADOW_WORDS, 64)?;
        let xrc = match cmd.xrc {
            Some(home) => {
                let cq = self.cqs.slot(home.cq);
                let cq = cq.ok_or(Refusal(CqpMinor::INVALID_ID))?;
                let xrcd = home.xrcd;
                Some(XrcUse { xrcd, cq })
            }
            None => None,
        };
        let srq = Srq::new(SrqSpec {
            id: cmd.id,
            pd: cmd.pd,
            context: cmd.context,
            ring: RqConsumer::new(words, cmd.wqes, cmd.shift)?,
            shadow: SrqShadow::new(shadow)?,
            entries: cmd.wqes,
            limit: cmd.limit,
            xrc,
        });
        self.hold_pd(cmd.pd)?;
        self.srqs.insert(srq).map_err(|fault| {
            self.release_pd(cmd.pd);
            Refusal::from(fault)
        })?;
        if let Some(home) = xrc {
            self.cqs.add_user(home.cq);
        }
        Ok(())
    }

    pub(super) fn modify_srq(&mut self, cmd: &ModifySrq) -> Outcome {
        let slot = self
            .srqs
            .slot(cmd.id)
            .ok_or(Refusal(CqpMinor::INVALID_ID))?;
        let shift = self.srqs.get(slot).map_or(0, Srq::shift);
        let moved = match cmd.ring {
            Some(ring) => {
                let possible = ring.wqes <= MAX_SRQ_QUANTA >> shift;
                check(possible, CqpMinor::INVALID_COMMAND)?;
                let words = self.ring(ring.addr, ring.wqes, 32 << shift, 32)?;
                let shadow = self.ring(ring.shadow_addr, 1, 8 * SHADOW_WORDS, 64)?;
                Some((words, shadow, ring.wqes))
            }
            None => None,
        };
        let srq = self
            .srqs
            .get_mut(slot)
            .ok_or(Refusal(CqpMinor::INVALID_ID))?;
        if let Some((words, shadow, wqes)) = moved {
            let fits = srq.move_to(words, wqes, SrqShadow::new(shadow)?)?;
            return check(fits, CqpMinor::INVALID_STATE);
        }
        check(srq.set_limit(cmd.limit), CqpMinor::INVALID_COMMAND)
    }

    pub(super) fn destroy_srq(&mut self, id: SrqId) -> Outcome {
        let slot = self.srqs.slot(id).ok_or(Refusal(CqpMinor::INVALID_ID))?;
        let users = self.srqs.get(slot).map_or(0, Srq::users);
        check(users == 0, CqpMinor::IN_USE)?;
        if let Some(srq) = self.srqs.remove(id) {
            self.release_pd(srq.pd());
            if let Some(home) = srq.xrc() {
                self.cqs.remove_user(home.cq);
            }
        }
        Ok(())
    }
}
