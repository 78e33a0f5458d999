//! Packets ahead of their turn that the driver keeps: what the device notes of them, and what it
//! does with those that come back.
//!
//! ```text
//!   ahead ─► noted: epoch, farthest PSN ─► exception queue
//!   expected packet came ─► MOVED ─► the driver gives back what follows ─► served, or given up
//!   reset, refusal, too long ─► GONE, and whatever comes back later is refused by its epoch
//! ```
//!
//! Gates that a packet passed on its way in are not asked again; those from the PSN on are.
//! [E810 8.6.4]

use super::ud::{GRH, network_header};
use crate::hca::ctx::Ctx;
use crate::hw::cqe::CqeInfo;
use crate::hw::ieq::{IEQ_INFO_AT, IEQ_PACKET_AT, IeqClass, IeqInfo};
use crate::limits::{IEQ_HOLD_NS, IEQ_WINDOW};
use crate::num::Psn;
use crate::puda::ieq::{Captured, Exception};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::qp::responder::Fault;
use crate::rx::RxMeta;
use crate::wire::Packet;

impl Qp {
    /// A request ahead of its turn goes to the driver, unless it is too far ahead.
    ///
    /// True if it is known already whether the expected packet is missing.
    // rule: ieq-13
    pub(super) fn capture_early(&mut self, ctx: &mut Ctx<'_>, psn: Psn, ahead: u32) -> bool {
        if ahead > IEQ_WINDOW {
            ctx.counters.ieq_bad_seq_num += 1;
            return true;
        }
        let captured = self.captured.get_or_insert_with(|| Captured {
            epoch: ctx.ieq.next_epoch(),
            top: psn,
            since: ctx.now,
            asked: false,
        });
        if psn.since(captured.top) > 0 {
            captured.top = psn;
        }
        ctx.ieq.at_hand = Some(Exception {
            class: IeqClass::OOO,
            qpn: self.id.qpn,
            psn,
            epoch: captured.epoch,
        });
        !captured.asked
    }

    /// The expected packet is here: what the driver holds may follow it.
    pub(super) fn note_moved(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(captured) = self.captured.as_mut() {
            captured.since = ctx.now;
            captured.asked = true;
            self.rsp.unsettled = true;
            ctx.ieq.note_moved(self.id.slot);
        }
    }

    /// What the driver is told of this queue pair's expectation; `None` if it need not know.
    pub(crate) fn expectation(&self) -> Option<(Captured, Psn)> {
        Some((self.captured?, self.rsp.epsn))
    }

    /// What the driver holds is of no use any more.
    // rule: ieq-8
    pub(crate) fn forget_captured(&mut self, ctx: &mut Ctx<'_>) {
        if self.captured.take().is_some() {
            ctx.ieq.gone.push(self.id.qpn);
        }
    }

    /// A hole that nothing fills is not waited for any longer.
    // rule: ieq-7
    pub(crate) fn expire_captured(&mut self, ctx: &mut Ctx<'_>) {
        let held = self
            .captured
            .map(|captured| captured.since.after(IEQ_HOLD_NS));
        if held.is_some_and(|until| until <= ctx.now) {
            self.forget_captured(ctx);
        }
    }

    /// The driver gives a packet back, of an epoch that it had; without a packet it says that it
    /// has nothing for the expected PSN. True if a packet was served.
    // rule: ieq-14
    pub(crate) fn on_returned(&mut self, ctx: &mut Ctx<'_>, epoch: u32, bytes: &[u8]) -> bool {
        let alive = self.can_receive();
        let captured = self.captured.as_mut().filter(|held| held.epoch == epoch);
        let ours = alive && captured.is_some();
        if let Some(captured) = captured {
            captured.asked = false;
        }
        if bytes.is_empty() {
            // rule: ieq-5
            if ours && self.rsp.nak_sent.is_none() && !self.rsp.rnr_pending {
                self.rsp.unsettled = true;
                self.tell_hole(ctx);
            }
            return false;
        }
        ctx.counters.ieq_returned += 1;
        let packet = Packet::parse(bytes).ok().filter(|packet| {
            let turn = packet.psn() == self.rsp.epsn && packet.dest() == self.id.qpn;
            ours && turn && !packet.info().is_response
        });
        let Some(packet) = packet else {
            ctx.counters.ieq_discarded += 1;
            return false;
        };
        ctx.counters.ieq_reinjected += 1;
        if let Err(fault) = self.serve(ctx, &packet) {
            self.refuse(ctx, &packet, fault);
            self.discard_early(ctx);
        }
        true
    }

    /// Everything that came back at once was served.
    pub(crate) fn after_returned(&mut self, ctx: &mut Ctx<'_>) {
        let Some(captured) = self.captured else {
            return;
        };
        // rule: ieq-9
        self.ack_due(ctx);
        if self.rsp.epsn.since(captured.top) > 0 {
            self.forget_captured(ctx);
        } else {
            // What follows may have come to the driver meanwhile.
            self.note_moved(ctx);
        }
    }

    /// Puts an exception into the next buffer of this queue, the driver's exception queue. False:
    /// there is none.
    // rule: puda-5
    pub(crate) fn on_exception(
        &mut self,
        ctx: &mut Ctx<'_>,
        what: &Exception,
        packet: Option<(&RxMeta, &[u8])>,
    ) -> bool {
        match self.put_exception(ctx, what, packet) {
            Ok(()) => true,
            Err(Fault::Overrun) => {
                self.cq_overrun(ctx);
                false
            }
            Err(_) => false,
        }
    }

    fn put_exception(
        &mut self,
        ctx: &mut Ctx<'_>,
        what: &Exception,
        packet: Option<(&RxMeta, &[u8])>,
    ) -> Result<(), Fault> {
        if self.state != QpState::Rts {
            return Err(Fault::Drop);
        }
        if !self.rsp.recv.taken {
            self.take_recv(ctx)?;
        }
        let (bytes, ecn) = match packet {
            Some((meta, bytes)) => (bytes, meta.tclass & 3),
            None => (&[][..], 0),
        };
        let len = IEQ_PACKET_AT + bytes.len();
        if len as u64 > self.rsp.recv.room {
            return Err(Fault::TooLong);
        }
        let info = IeqInfo {
            class: what.class,
            opcode: bytes.first().copied().unwrap_or(0),
            ecn,
            qpn: what.qpn,
            psn: what.psn,
            epoch: what.epoch,
            at: ctx.now,
        };
        let header = packet.map_or([0; GRH], |(meta, bytes)| {
            network_header(meta, bytes.len(), 0)
        });
        self.place_recv(ctx, 0, &header)?;
        self.place_recv(ctx, IEQ_INFO_AT as u64, &info.encode())?;
        self.place_recv(ctx, IEQ_PACKET_AT as u64, bytes)?;
        let cqe = CqeInfo {
            qpn: self.id.qpn,
            context: self.id.cookie,
            wqe_index: self.rsp.recv.index,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            psn: what.psn,
            peer: what.qpn.value(),
            stag_or_ipv4: packet.is_some_and(|(meta, _)| meta.local.is_ipv4()),
            ..CqeInfo::default()
        };
        self.post_recv_cqe(ctx, cqe)
    }
}
