//! Executing a request that passed every check but the target's: place, read, swap.

use super::recv::RecvDone;
use super::reply::{Answer, Replay};
use super::{Fault, Message};
use crate::hca::ctx::Ctx;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::limits::MAX_MSG_BYTES;
use crate::mem::{Access, AtomicStep, Claim, KeyFault};
use crate::num::Psn;
use crate::qp::Qp;
use crate::qp::flush::Cause;
use crate::qp::window::packets_of;
use crate::wire::{Feth, Packet, Position, Reth, Verb};

/// The rights that a FLUSH needs, of the queue pair as of the region.  [RoCEv2 3.6]
pub(super) fn flush_rights(packet: &Packet<'_>) -> Result<Access, Fault> {
    match packet.feth().map_or(0, |feth| feth.placement) {
        Feth::GLOBAL => Ok(Access::FLUSH_GLOBAL),
        Feth::PERSISTENT => Ok(Access::FLUSH_PERSISTENT),
        3 => Ok(Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT)),
        _ => Err(Fault::Invalid(AeCode::RDMAP_ROE_UNEXPECTED_OPCODE)),
    }
}

fn access(fault: KeyFault) -> Fault {
    Fault::Access(AeCode(fault.ae_code()))
}

impl Qp {
    /// Does what the packet asks for, and notes the response that is due.
    pub(super) fn execute(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        match packet.info().verb {
            Verb::Send => self.execute_send(ctx, packet)?,
            Verb::Write => self.execute_write(ctx, packet)?,
            Verb::ReadRequest => return self.execute_read(ctx, packet),
            Verb::CompareSwap | Verb::FetchAdd => return self.execute_atomic(ctx, packet),
            Verb::AtomicWrite => return self.execute_atomic_write(ctx, packet),
            Verb::Flush => return self.execute_flush(ctx, packet),
            _ => return Err(Fault::Drop),
        }
        self.rsp.epsn = packet.psn().add(1);
        if packet.info().position == Position::First {
            self.rsp.first = packet.psn();
        }
        if packet.info().position.ends() {
            let counters = &mut *ctx.counters;
            if packet.info().verb == Verb::Send {
                counters.rdma_recvs += 1;
            } else {
                counters.inbound_writes += 1;
            }
            // rule: roce-114
            self.rsp.msn = self.rsp.msn.next();
        }
        if self.id.kind.is_reliable() {
            if packet.ack_req() {
                self.ack_due(ctx);
            } else if packet.info().position.ends() {
                self.rsp.replies.ack.owe_late(ctx.now);
                if !self.ack_late_queued {
                    self.ack_late_queued = true;
                    ctx.acks_late.push_back(self.id.slot);
                }
            }
        }
        Ok(())
    }

    /// An acknowledgement of everything before the expected PSN is due.
    pub(crate) fn ack_due(&mut self, ctx: &mut Ctx<'_>) {
        ctx.counters.ack_deferred += u64::from(self.rsp.replies.ack.is_due());
        self.rsp.replies.ack.owe();
        self.make_ready_for_ack(ctx);
    }

    fn execute_send(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let done = match self.rsp.message {
            Some(Message::Send { done }) => done,
            _ => 0,
        };
        let bytes = packet.payload();
        self.place_recv(ctx, done, bytes)?;
        let done = done + bytes.len() as u64;
        if done > MAX_MSG_BYTES {
            return Err(Fault::Invalid(AeCode::WQE_INVALID_PARAMETER));
        }
        if !packet.info().position.ends() {
            self.rsp.message = Some(Message::Send { done });
            return Ok(());
        }
        self.rsp.message = None;
        let invalidated = packet.ieth();
        if let Some(key) = invalidated
            && let Err(fault) = ctx
                .regions
                .remote_invalidate(key, self.domain(), self.id.qpn)
        {
            self.refuse_invalidate(ctx, packet, AeCode(fault.ae_code()));
            return Ok(());
        }
        let len = u32::try_from(done).unwrap_or(u32::MAX);
        self.complete_recv(ctx, packet, RecvDone { len, invalidated })
    }

    /// The data arrived, but its key cannot be invalidated: the peer gets its acknowledgement, and
    /// this side stops.                                                [RoCEv2 3.9 row 12]
    // rule: roce-113
    fn refuse_invalidate(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, ae: AeCode) {
        self.rsp.epsn = packet.psn().add(1);
        self.rsp.msn = self.rsp.msn.next();
        self.ack_due(ctx);
        self.rq_error(ctx, Cause::new(FlushCode::REM_INV_REQ, ae), AeSource::RQ);
    }

    /// What the peer names, checked; `None` for no bytes, whose key and address are not looked at.
    pub(super) fn claim(
        &self,
        ctx: &Ctx<'_>,
        reth: &Reth,
        need: Access,
    ) -> Result<Option<Claim>, Fault> {
        if reth.len == 0 {
            return Ok(None);
        }
        let (pd, len) = (self.domain(), u64::from(reth.len));
        let grant = ctx
            .regions
            .check_remote(reth.rkey, pd, self.id.qpn, need, reth.addr, len)
            .map_err(access)?;
        Ok(Some(grant.claim()))
    }

    // rule: roce-99
    // rule: roce-100
    // rule: roce-103
    // rule: roce-104
    fn execute_write(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let (claim, len, done) = match (self.rsp.message, packet.reth()) {
            (Some(Message::Write { claim, len, done }), _) => (claim, len, done),
            (_, Some(reth)) => {
                if u64::from(reth.len) > MAX_MSG_BYTES {
                    return Err(Fault::Invalid(AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP));
                }
                let claim = self.claim(ctx, &reth, Access::REMOTE_WRITE)?;
                (claim, reth.len, 0)
            }
            _ => return Err(Fault::Drop),
        };
        let bytes = packet.payload();
        let ends = packet.info().position.ends();
        let after = done + bytes.len() as u64;
        // The payloads add up to the announced length, at the last packet and not before.
        if after > u64::from(len) || ends != (after == u64::from(len)) {
            return Err(Fault::Invalid(AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP));
        }
        if let (Some(claim), false) = (&claim, bytes.is_empty()) {
            let grant = ctx
                .regions
                .renew(claim, done, bytes.len())
                .map_err(access)?;
            grant.place(0, bytes).map_err(access)?;
        }
        if !ends {
            self.rsp.message = Some(Message::Write {
                claim,
                len,
                done: after,
            });
            return Ok(());
        }
        self.rsp.message = None;
        if packet.info().has_imm {
            // rule: roce-108
            return self.complete_recv(
                ctx,
                packet,
                RecvDone {
                    len,
                    invalidated: None,
                },
            );
        }
        Ok(())
    }

    fn execute_read(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let Some(reth) = packet.reth() else {
            return Err(Fault::Drop);
        };
        if u64::from(reth.len) > MAX_MSG_BYTES {
            return Err(Fault::Invalid(AeCode::ROE_INVALID_RDMA_READ_REQUEST));
        }
        let claim = self.claim(ctx, &reth, Access::REMOTE_READ)?;
        let psn = packet.psn();
        let packets = packets_of(reth.len, self.conn.mtu);
        self.rsp.msn = self.rsp.msn.next();
        self.rsp.epsn = psn.add(packets);
        ctx.counters.inbound_reads += 1;
        self.answer(
            ctx,
            psn,
            packets,
            Answer::Read {
                claim,
                addr: reth.addr,
                rkey: reth.rkey,
                len: reth.len,
            },
        );
        Ok(())
    }

    // rule: roce-111
    // rule: roce-112
    fn execute_atomic(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let Some(eth) = packet.atomic_eth() else {
            return Err(Fault::Drop);
        };
        let grant = ctx
            .regions
            .check_remote(
                eth.rkey,
                self.domain(),
                self.id.qpn,
                Access::REMOTE_ATOMIC,
                eth.addr,
                8,
            )
            .map_err(access)?;
        if !eth.addr.is_multiple_of(8) {
            return Err(Fault::Invalid(AeCode::ATOMIC_ALIGNMENT));
        }
        let step = if packet.info().verb == Verb::FetchAdd {
            AtomicStep::FetchAdd(eth.swap_add)
        } else {
            AtomicStep::CompareSwap {
                expected: eth.compare,
                new: eth.swap_add,
            }
        };
        let Some(original) = grant.atomic(step).map_err(access)? else {
            return Err(Fault::Invalid(AeCode::ATOMIC_ALIGNMENT));
        };
        self.finish_single(ctx, packet.psn(), Answer::Atomic { original });
        Ok(())
    }

    fn execute_atomic_write(
        &mut self,
        ctx: &mut Ctx<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let Some(reth) = packet.reth() else {
            return Err(Fault::Drop);
        };
        let Ok(bytes) = <[u8; 8]>::try_from(packet.payload()) else {
            return Err(Fault::Invalid(AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP));
        };
        if reth.len != 8 {
            return Err(Fault::Invalid(AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP));
        }
        let grant = ctx
            .regions
            .check_remote(
                reth.rkey,
                self.domain(),
                self.id.qpn,
                Access::REMOTE_WRITE,
                reth.addr,
                8,
            )
            .map_err(access)?;
        let step = AtomicStep::Store(u64::from_ne_bytes(bytes));
        if !reth.addr.is_multiple_of(8) || grant.atomic(step).map_err(access)?.is_none() {
            return Err(Fault::Invalid(AeCode::ATOMIC_ALIGNMENT));
        }
        self.finish_single(ctx, packet.psn(), Answer::Empty);
        Ok(())
    }

    /// FLUSH: data is placed before anything is acknowledged, and this device has no memory that
    /// would outlive the process, so a permitted flush is done when it is seen.
    fn execute_flush(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>) -> Result<(), Fault> {
        let Some(reth) = packet.reth() else {
            return Err(Fault::Drop);
        };
        let need = flush_rights(packet)?;
        let whole = packet
            .feth()
            .is_some_and(|feth| feth.selectivity == Feth::REGION);
        let (key, pd, qpn) = (reth.rkey, self.domain(), self.id.qpn);
        if whole {
            ctx.regions.check_whole(key, pd, qpn, need)
        } else {
            let len = u64::from(reth.len);
            let range = ctx.regions.check_remote(key, pd, qpn, need, reth.addr, len);
            range.map(drop)
        }
        .map_err(access)?;
        self.finish_single(ctx, packet.psn(), Answer::Empty);
        Ok(())
    }

    fn finish_single(&mut self, ctx: &mut Ctx<'_>, psn: Psn, answer: Answer) {
        ctx.counters.inbound_atomics += 1;
        self.rsp.msn = self.rsp.msn.next();
        self.rsp.epsn = psn.add(1);
        self.answer(ctx, psn, 1, answer);
    }

    fn answer(&mut self, ctx: &mut Ctx<'_>, psn: Psn, packets: u32, answer: Answer) {
        self.rsp
            .replies
            .push(Replay::new(psn, packets, self.rsp.msn, answer));
        self.make_ready(ctx);
    }
}
