//! Commands on address handles.                                         [E810 2.8]

use super::Control;
use super::status::{Outcome, Refusal};
use crate::hw::cqp::CreateAh;
use crate::num::AhId;

impl Control<'_> {
    pub(super) fn create_ah(&mut self, cmd: &CreateAh) -> Outcome {
        self.hold_pd(cmd.pd)?;
        self.ahs.create(cmd.id, cmd.pd, cmd.av).map_err(|fault| {
            self.release_pd(cmd.pd);
            Refusal::from(fault)
        })
    }

    pub(super) fn destroy_ah(&mut self, id: AhId) -> Outcome {
        let pd = self.ahs.destroy(id)?;
        self.release_pd(pd);
        Ok(())
    }
}
