//! XRC targets: which shared receive queue a request is for, and what that means.
//!
//! ```text
//! XRCETH ─► SRQ of the target's XRC domain? ─ no ─► NAK invalid request, event
//!              │ its protection domain   keys and scatter lists are checked against it
//!              │ its entries             SENDs and immediates take them
//!              ╰ its completion queue    receives complete there, with the target's number
//! ```
//!
//! A target has no protection domain for its peer, no receive queue and no completion queue of its
//! own: every request brings all three by one number.                   [IBTA A14]

use super::Fault;
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::AeCode;
use crate::num::{PdId, SrqId};
use crate::obj::table::Slot;
use crate::qp::Qp;
use crate::qp::attr::QpType;
use crate::wire::Packet;

/// The shared receive queue that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct XrcTarget {
    pub(super) srq: Slot,
    pd: PdId,
}

impl Qp {
    /// The queue exists, is of the target's domain, and is the same for all packets of a message.
    // rule: xrc-2
    // rule: xrc-3
    #[inline]
    pub(super) fn check_xrc(&mut self, ctx: &Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        if self.id.kind != QpType::XrcRecv {
            return Ok(());
        }
        self.find_xrc(ctx, packet)
            .ok_or(Fault::Invalid(AeCode::XRC_DOMAIN_VIOLATION))
    }

    // Out of the way of all other services.
    #[cold]
    #[inline(never)]
    fn find_xrc(&mut self, ctx: &Ctx<'_>, packet: &Packet<'_>) -> Option<()> {
        let slot = ctx.srqs.slot(SrqId(packet.xrceth()?))?;
        let srq = ctx.srqs.get(slot)?;
        let ours = srq.xrc().map(|home| home.xrcd) == self.id.xrcd;
        // The middle of a message brings the number of its beginning again.
        let same = self.rsp.message.is_none() || self.rsp.xrc.is_some_and(|xrc| xrc.srq == slot);
        if !ours || !same {
            return None;
        }
        self.rsp.xrc = Some(XrcTarget {
            srq: slot,
            pd: srq.pd(),
        });
        Some(())
    }

    /// The protection domain that requests are checked against.
    // rule: xrc-4
    #[inline]
    pub(super) const fn domain(&self) -> PdId {
        match self.rsp.xrc {
            Some(xrc) => xrc.pd,
            None => self.id.pd,
        }
    }
}
