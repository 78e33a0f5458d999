//! Event queues: drained by the handlers of their interrupt vectors.    [E810 4.2, 4.4, 5.2]
//!
//! ```text
//! vector   CEQ k ─► CQ_ACK ─► completion event of the CQ's channel
//!          AEQ ─► what happened to whom ─► asynchronous event of the context
//!          drain what it serves, enable it again (the device looks once more)
//! ```
//!
//! A handler runs on whatever thread ran the pass, maybe deep inside a verbs call. So it takes no
//! lock that a call holds while it drives the device: only those of this file and of event queues.

use super::Driver;
use super::alloc::RingMem;
use super::engine::Doorbell;
use super::ids::lock;
use super::puda::PudaKind;
use super::shared::{CqShared, QpShared, SrqShared, qpn_of};
use crate::async_event::{AsyncKind, AsyncRecord, Subject};
use crate::context::ContextInner;
use srdma_core::hw::{AeCode, AeSource, Aeqe, Ceqe, EventClass, FlushCode, HwQpState};
use srdma_core::num::{CeqId, MsixVector};
use srdma_core::qp::attr::{QpState, QpType};
use srdma_core::ring::Consumer;
use srdma_core::trace::{self, Kind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Entries of each completion event queue: as many CQs may report to it, so a device has no more.
pub(crate) const CEQ_ENTRIES: u32 = 65_536;
/// Completion queues of a program: one entry is the control queue's.
pub(crate) const MAX_CQ: u32 = CEQ_ENTRIES - 1;
const _: () = assert!(2 + MAX_CQ < srdma_core::limits::MAX_CQ);
/// Entries of the asynchronous event queue.
pub(crate) const AEQ_ENTRIES: u32 = 4096;

/// The event queues and everybody who may be named in them.
#[derive(Debug)]
pub(crate) struct Irq {
    ceqs: Vec<Mutex<Consumer<Ceqe>>>,
    aeq: Mutex<Consumer<Aeqe>>,
    cqs: Mutex<HashMap<u64, Arc<CqShared>>>,
    qps: Mutex<HashMap<u32, Arc<QpShared>>>,
    srqs: Mutex<HashMap<u32, Arc<SrqShared>>>,
    contexts: Mutex<Vec<Weak<ContextInner>>>,
    _mem: RingMem,
}

impl Irq {
    pub(crate) fn new(ceqs: Vec<Consumer<Ceqe>>, aeq: Consumer<Aeqe>, mem: RingMem) -> Self {
        Self {
            ceqs: ceqs.into_iter().map(Mutex::new).collect(),
            aeq: Mutex::new(aeq),
            cqs: Mutex::default(),
            qps: Mutex::default(),
            srqs: Mutex::default(),
            contexts: Mutex::default(),
            _mem: mem,
        }
    }

    /// Completion event queues.
    pub(crate) fn ceqs(&self) -> usize {
        self.ceqs.len()
    }

    pub(crate) fn add_context(&self, context: &Arc<ContextInner>) {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|context| context.strong_count() != 0);
        contexts.push(Arc::downgrade(context));
    }

    pub(crate) fn add_cq(&self, cq: &Arc<CqShared>) {
        lock(&self.cqs).insert(cq.cookie, Arc::clone(cq));
    }

    pub(crate) fn remove_cq(&self, cookie: u64) {
        lock(&self.cqs).remove(&cookie);
        // Entries that still name it must not find a later one.       [E810 4.3]
        // rule: event-77
        for ceq in &self.ceqs {
            lock(ceq)
                .rewrite_pending(|entry| (entry.cookie == cookie).then_some(Ceqe { cookie: 0 }));
        }
        self.settle();
    }

    /// Waits for a handler of asynchronous events that may have found what was just removed, so
    /// that its records can be purged afterwards. Not for handlers, which remove nothing.
    fn settle(&self) {
        drop(lock(&self.aeq));
    }

    pub(crate) fn add_qp(&self, qp: &Arc<QpShared>) {
        lock(&self.qps).insert(qp.qpn.value(), Arc::clone(qp));
    }

    pub(crate) fn remove_qp(&self, qp: &QpShared) {
        lock(&self.qps).remove(&qp.qpn.value());
        self.settle();
    }

    pub(crate) fn add_srq(&self, srq: &Arc<SrqShared>) {
        lock(&self.srqs).insert(srq.id.value(), Arc::clone(srq));
    }

    pub(crate) fn remove_srq(&self, srq: &SrqShared) {
        lock(&self.srqs).remove(&srq.id.value());
        self.settle();
    }

    /// Tells every context of the device.
    fn broadcast(&self, kind: AsyncKind, subject: &Subject) {
        let contexts: Vec<_> = lock(&self.contexts)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for context in contexts {
            context.events.push(AsyncRecord {
                kind,
                subject: subject.clone(),
            });
        }
    }
}

impl Driver {
    /// Handler of a vector: completions first.                        [E810 4.7]
    pub(crate) fn on_vector(self: &Arc<Self>, vector: MsixVector, ceq: Option<CeqId>, aeq: bool) {
        let puda = ceq.map_or_else(Vec::new, |ceq| self.drain_ceq(usize::from(ceq.0)));
        if aeq {
            self.drain_aeq();
        }
        self.engine.ring(Doorbell::Irq(vector));
        for kind in puda {
            self.on_puda(kind);
        }
    }

    /// Takes every completion event that is there; gives the privileged queues that are to be
    /// served.
    // rule: event-18, event-76
    fn drain_ceq(&self, index: usize) -> Vec<PudaKind> {
        let mut puda = Vec::new();
        if let Some(ceq) = self.irq.ceqs.get(index) {
            let mut ceq = lock(ceq);
            while let Some(entry) = ceq.pop() {
                let cq = lock(&self.irq.cqs).get(&entry.cookie).map(Arc::clone);
                if let Some(cq) = cq {
                    trace::object(Kind::CEQE_READ, cq.id.value(), 0);
                    self.engine.ring(Doorbell::CqAck(cq.id));
                    if let Some(channel) = &cq.channel {
                        channel.fifo.push(Arc::clone(&cq));
                    }
                    if let Some(handler) = &cq.handler {
                        handler.0();
                    }
                } else if let Some(kind) = PudaKind::of_cookie(entry.cookie) {
                    self.engine.ring(Doorbell::CqAck(kind.cq()));
                    puda.push(kind);
                } else if entry.cookie == super::cmd::CCQ_COOKIE {
                    self.engine.ring(Doorbell::CqAck(super::cmd::CCQ));
                }
            }
        }
        puda
    }

    /// Takes every asynchronous event that is there.                  [E810 5.2]
    pub(crate) fn drain_aeq(&self) {
        let mut failed = Vec::new();
        let mut taken = 0;
        {
            let mut aeq = lock(&self.irq.aeq);
            while let Some(event) = aeq.pop() {
                taken += 1;
                self.on_event(&event, &mut failed);
            }
        }
        if taken != 0 {
            self.engine.ring(Doorbell::AeqAck { entries: taken });
        }
        for qp in failed {
            // Receives that were posted while the queue pair failed.
            if qp.rq.as_ref().is_some_and(|rq| rq.used() != 0) {
                self.flush_later(qp.qpn);
            }
        }
    }

    fn on_event(&self, event: &Aeqe, failed: &mut Vec<Arc<QpShared>>) {
        if event.is_cq() {
            // One that is gone was told of before it went.
            // rule: event-75
            let cq = lock(&self.irq.cqs).get(&event.context).map(Arc::clone);
            if let Some(cq) = cq {
                tell(&cq.ctx, AsyncKind::CqErr, Subject::Cq(Arc::clone(&cq)));
            }
            return;
        }
        if let Some(kind) = srq_event(event.code) {
            let srq = lock(&self.irq.srqs).get(&event.id).map(Arc::clone);
            if let Some(srq) = srq {
                tell(&srq.ctx, kind, Subject::Srq(Arc::clone(&srq)));
            }
            return;
        }
        if event.code == AeCode::ADAPTER_CATASTROPHIC {
            self.irq.broadcast(AsyncKind::DeviceFatal, &Subject::Device);
            return;
        }
        if let Some(kind) = port_event(event.code) {
            let port = u8::try_from(event.id).unwrap_or_default();
            self.irq.broadcast(kind, &Subject::Port(port));
            return;
        }
        let qpn = qpn_of(event.context).value();
        let Some(qp) = lock(&self.irq.qps).get(&qpn).map(Arc::clone) else {
            return;
        };
        match event.state {
            HwQpState::ERROR => {
                qp.fail(QpState::Err);
                failed.push(Arc::clone(&qp));
            }
            HwQpState::SQE => qp.fail(QpState::Sqe),
            _ => {}
        }
        if let Some(kind) = qp_event(event.code, event.source) {
            tell_of_qp(kind, &qp);
        }
    }
}

/// Tells a context, if it is still open.
fn tell(ctx: &Weak<ContextInner>, kind: AsyncKind, subject: Subject) {
    if let Some(ctx) = ctx.upgrade() {
        ctx.events.push(AsyncRecord { kind, subject });
    }
}

/// Tells the context of a queue pair, or everybody who has an XRC target open.
fn tell_of_qp(kind: AsyncKind, qp: &Arc<QpShared>) {
    if qp.qp_type != QpType::XrcRecv {
        tell(&qp.ctx, kind, Subject::Qp(Arc::clone(qp)));
        return;
    }
    let opens = lock(&qp.opens).clone();
    for open in opens {
        tell(&open.ctx, kind, Subject::Opened(Arc::clone(&open)));
    }
}

/// Events of shared receive queues.
fn srq_event(code: AeCode) -> Option<AsyncKind> {
    match code {
        AeCode::SRQ_LIMIT => Some(AsyncKind::SrqLimitReached),
        AeCode::SRQ_CATASTROPHIC_ERROR => Some(AsyncKind::SrqErr),
        _ => None,
    }
}

/// Events of the port.
const fn port_event(code: AeCode) -> Option<AsyncKind> {
    match code {
        AeCode::PORT_ACTIVE => Some(AsyncKind::PortActive),
        AeCode::PORT_DOWN => Some(AsyncKind::PortErr),
        AeCode::GID_CHANGE => Some(AsyncKind::GidChange),
        _ => None,
    }
}

/// What verbs make of an event of a queue pair.               [E810 5.5; RoCEv2 3.9]
///
/// What a completion reports is no event: errors of the send queue, and of receives that were
/// taken.
// rule: event-56, irq-1
fn qp_event(code: AeCode, source: AeSource) -> Option<AsyncKind> {
    match code {
        AeCode::QP_SUSPEND_COMPLETE => return Some(AsyncKind::SqDrained),
        AeCode::LLP_CONNECTION_ESTABLISHED => return Some(AsyncKind::CommEst),
        AeCode::LAST_WQE_REACHED => return Some(AsyncKind::QpLastWqeReached),
        // It goes on; its owner is to stop it within a moment.
        // rule: irq-3
        AeCode::RDMAP_ROE_BAD_LLP_CLOSE => return Some(AsyncKind::QpReqErr),
        AeCode::LLP_SYN_RECEIVED
        | AeCode::LLP_DOUBT_REACHABILITY
        | AeCode::RESOURCE_EXHAUSTION
        | AeCode::RESET_NOT_SENT
        | AeCode::CQP_DEFERRED_COMPLETE => return None,
        _ => {}
    }
    let (flush, class) = code.class();
    let reported = match source.class() {
        AeSource::SQ => true,
        AeSource::RQ => {
            flush == FlushCode::PROT
                || flush == FlushCode::LOC_LEN
                || code == AeCode::AMP_INVALIDATE_NO_REMOTE_ACCESS_RIGHTS
        }
        _ => false,
    };
    if reported {
        return None;
    }
    Some(match class {
        _ if is_request_fault(code) => AsyncKind::QpReqErr,
        EventClass::Access => AsyncKind::QpAccessErr,
        EventClass::Request => AsyncKind::QpReqErr,
        _ => AsyncKind::QpFatal,
    })
}

/// The peer sent what it may not: sequence, length, resources, alignment. [RoCEv2 3.9]
fn is_request_fault(code: AeCode) -> bool {
    matches!(
        code,
        AeCode::IB_RREQ_AND_Q1_FULL
            | AeCode::IB_INVALID_REQUEST
            | AeCode::INVALID_REQUEST
            | AeCode::ATOMIC_ALIGNMENT
            | AeCode::ATOMIC_MASK
            | AeCode::RDMAP_ROE_UNEXPECTED_OPCODE
            | AeCode::ROE_INVALID_RDMA_READ_REQUEST
            | AeCode::ROE_INVALID_RDMA_WRITE_OR_READ_RESP
            | AeCode::DDP_UBE_INVALID_MO
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_completion_reports_is_no_event() {
        let sources = [AeSource::SQ, AeSource(7)];
        for source in sources {
            assert_eq!(qp_event(AeCode::LLP_TOO_MANY_RETRIES, source), None);
            assert_eq!(qp_event(AeCode::AMP_BOUNDS_VIOLATION, source), None);
        }
        let long = AeCode::DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER;
        assert_eq!(qp_event(long, AeSource::RQ), None);
        assert_eq!(qp_event(AeCode::AMP_RIGHTS_VIOLATION, AeSource::RQ), None);
    }

    #[test]
    fn faults_of_the_peer_become_events() {
        for code in [
            AeCode::AMP_BOUNDS_VIOLATION,
            AeCode::AMP_BAD_PD,
            AeCode::AMP_TO_WRAP,
        ] {
            let kind = qp_event(code, AeSource::INBOUND);
            assert_eq!(kind, Some(AsyncKind::QpAccessErr), "{code:?}");
        }
        let code = AeCode::RDMAP_ROE_UNEXPECTED_OPCODE;
        assert_eq!(qp_event(code, AeSource::RQ), Some(AsyncKind::QpReqErr));
        assert_eq!(
            qp_event(AeCode::IB_RREQ_AND_Q1_FULL, AeSource::INBOUND),
            Some(AsyncKind::QpReqErr)
        );
        assert_eq!(
            qp_event(AeCode::LOCAL_QP_CATASTROPHIC, AeSource::NONE),
            Some(AsyncKind::QpFatal)
        );
    }
}
