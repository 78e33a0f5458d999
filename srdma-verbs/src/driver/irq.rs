//! Event queues: drained by the handlers of their interrupt vectors.    [E810 4.2, 4.4, 5.2]
//!
//! ```text
//! vector   CEQ k ─► CQ_ACK ─► completion event of the CQ's channel
//!          AEQ ─► what happened to whom ─► asynchronous event of the context
//!          drain what it serves, enable it again (the device looks once more)
//! ```
//!
//! In dialects whose event queues have doorbells, these stand for CQ_ACK and for the count of taken
//! AEQEs, and enable the vector; a long drain says in between how far it is.
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
use core::sync::atomic::Ordering;
use srdma_core::hw::dialect::EqName;
use srdma_core::hw::dialect::mlx5::EQ_SPARE;
use srdma_core::hw::{Aeqe, Ceqe, HwQpState, Report};
use srdma_core::num::{CeqId, MsixVector};
use srdma_core::qp::attr::{QpState, QpType};
use srdma_core::ring::{CommandsDone, Consumer};
use srdma_core::trace::{self, Kind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Entries after which a drain says how far it is.                     [events 4.1]
const BUDGET: u64 = 128;
const _: () = assert!(BUDGET <= EQ_SPARE as u64);

/// The event queues and everybody who may be named in them.
#[derive(Debug)]
pub(crate) struct Irq {
    ceqs: Vec<Mutex<Consumer<Ceqe>>>,
    aeq: Mutex<Consumer<Aeqe>>,
    /// Completed commands (mlx5).
    commands: Option<Mutex<Consumer<CommandsDone>>>,
    cqs: Mutex<HashMap<u64, Arc<CqShared>>>,
    qps: Mutex<HashMap<u32, Arc<QpShared>>>,
    srqs: Mutex<HashMap<u32, Arc<SrqShared>>>,
    contexts: Mutex<Vec<Weak<ContextInner>>>,
    _mem: RingMem,
}

impl Irq {
    pub(crate) fn new(
        ceqs: Vec<Consumer<Ceqe>>,
        aeq: Consumer<Aeqe>,
        commands: Option<Consumer<CommandsDone>>,
        mem: RingMem,
    ) -> Self {
        Self {
            ceqs: ceqs.into_iter().map(Mutex::new).collect(),
            aeq: Mutex::new(aeq),
            commands: commands.map(Mutex::new),
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
        // This waits for a handler of asynchronous events, as `settle` does.
        lock(&self.aeq).rewrite_pending(|event| {
            let (id, context) = (0, 0);
            (event.is_cq() && event.context == cookie).then_some(Aeqe {
                id,
                context,
                ..event
            })
        });
    }

    /// True if event queues of commands are there.
    pub(crate) const fn has_commands(&self) -> bool {
        self.commands.is_some()
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

    // rule: event-75
    fn on_cq_error(&self, event: &Aeqe) {
        // One that is gone was told of before it went.
        let cq = lock(&self.cqs).get(&event.context).map(Arc::clone);
        if let Some(cq) = cq {
            tell(&cq.ctx, AsyncKind::CqErr, Subject::Cq(Arc::clone(&cq)));
        }
    }

    fn on_srq_event(&self, event: &Aeqe, kind: AsyncKind) {
        let srq = lock(&self.srqs).get(&event.id).map(Arc::clone);
        if let Some(srq) = srq {
            tell(&srq.ctx, kind, Subject::Srq(Arc::clone(&srq)));
        }
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
        let acks = !self.dialect.has_eq_doorbell();
        let name = EqName::Completions(u16::try_from(index).unwrap_or(u16::MAX));
        if let Some(ceq) = self.irq.ceqs.get(index) {
            let mut ceq = lock(ceq);
            while let Some(entry) = ceq.pop() {
                if ceq.unannounced() >= BUDGET {
                    ceq.ring_doorbell(name, false);
                }
                let cq = lock(&self.irq.cqs).get(&entry.cookie).map(Arc::clone);
                if let Some(cq) = cq {
                    trace::object(Kind::CEQE_READ, cq.id.value(), 0);
                    if acks {
                        self.engine.ring(Doorbell::CqAck(cq.id));
                    }
                    if let Some(channel) = &cq.channel {
                        channel.fifo.push(Arc::clone(&cq));
                    }
                    if let Some(handler) = &cq.handler {
                        cq.told.fetch_add(1, Ordering::AcqRel);
                        handler.0();
                    }
                } else if let Some(kind) = PudaKind::of_cookie(self.dialect, entry.cookie) {
                    if acks {
                        self.engine.ring(Doorbell::CqAck(kind.cq()));
                    }
                    puda.push(kind);
                } else if acks && entry.cookie == super::cmd::ccq_cookie(self.dialect) {
                    self.engine.ring(Doorbell::CqAck(super::cmd::CCQ));
                }
            }
            ceq.ring_doorbell(name, true);
        }
        puda
    }

    /// Takes the events that the device has written, so that states here are those there: the
    /// device tells of a failure before the completions that it causes. Whoever has seen one of
    /// these therefore finds the new state. Cost: a lock and a load if there is none.
    pub(crate) fn hear(&self) {
        // A thread that is taking an event holds the lock until the state is set.
        let waits = lock(&self.irq.aeq).peek().is_some();
        if waits {
            self.drain_aeq();
        }
    }

    /// Takes every asynchronous event that is there, and those of commands.  [E810 5.2]
    pub(crate) fn drain_aeq(&self) {
        self.drain_commands();
        let mut failed = Vec::new();
        let mut taken = 0;
        {
            let mut aeq = lock(&self.irq.aeq);
            while let Some(event) = aeq.pop() {
                taken += 1;
                self.on_event(&event, &mut failed);
                if aeq.unannounced() >= BUDGET {
                    aeq.ring_doorbell(EqName::Async, false);
                }
            }
            aeq.ring_doorbell(EqName::Async, true);
        }
        if taken != 0 && !self.dialect.has_eq_doorbell() {
            self.engine.ring(Doorbell::AeqAck { entries: taken });
        }
        for qp in failed {
            // Receives that were posted while the queue pair failed.
            if qp.rq.as_ref().is_some_and(|rq| rq.used() != 0) {
                self.flush_later(qp.qpn);
            }
        }
    }

    /// Takes the events of commands: whoever gave one reads its completion itself.
    fn drain_commands(&self) {
        if let Some(commands) = &self.irq.commands {
            let mut commands = lock(commands);
            while commands.pop().is_some() {}
            commands.ring_doorbell(EqName::Commands, true);
        }
    }

    fn on_event(&self, event: &Aeqe, failed: &mut Vec<Arc<QpShared>>) {
        let broadcast = |kind, subject| self.irq.broadcast(kind, &subject);
        let port = || Subject::Port(u8::try_from(event.id).unwrap_or_default());
        match event.report() {
            Report::CqError => self.irq.on_cq_error(event),
            Report::SrqLimit => self.irq.on_srq_event(event, AsyncKind::SrqLimitReached),
            Report::SrqError => self.irq.on_srq_event(event, AsyncKind::SrqErr),
            Report::DeviceFatal => broadcast(AsyncKind::DeviceFatal, Subject::Device),
            Report::PortActive => broadcast(AsyncKind::PortActive, port()),
            Report::PortDown => broadcast(AsyncKind::PortErr, port()),
            Report::GidChange => broadcast(AsyncKind::GidChange, port()),
            report => self.on_qp_event(event, report, failed),
        }
    }

    fn on_qp_event(&self, event: &Aeqe, report: Report, failed: &mut Vec<Arc<QpShared>>) {
        let qpn = if self.dialect.names_by_number() {
            event.id
        } else {
            qpn_of(event.context).value()
        };
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
        if let Some(kind) = qp_event(report) {
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

/// The asynchronous event that a report on a queue pair is.
const fn qp_event(report: Report) -> Option<AsyncKind> {
    Some(match report {
        Report::SqDrained => AsyncKind::SqDrained,
        Report::CommEst => AsyncKind::CommEst,
        Report::LastWqe => AsyncKind::QpLastWqeReached,
        Report::Request => AsyncKind::QpReqErr,
        Report::Access => AsyncKind::QpAccessErr,
        Report::Fatal => AsyncKind::QpFatal,
        _ => return None,
    })
}
