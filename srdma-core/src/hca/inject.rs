//! Mishaps on purpose: what goes wrong in a device, brought about for tests of programs.
//!
//! Each injection takes the path of the real mishap from the place where that begins, so what
//! follows (CQEs, AEQEs, NAKs, states) is the device's own and not made up here.

use super::Hca;
use crate::hw::HwQpState;
use crate::hw::aeqe::{AeCode, AeSource, Aeqe};
use crate::num::{CqId, Qpn};
use crate::obj::port::LinkState;
use crate::obj::table::Slot;
use crate::qp::flush::Cause;
use crate::time::Instant;

/// A mishap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Injection {
    /// The completion queue overruns.
    CqOverflow(CqId),
    /// The queue where receives of this queue pair complete overruns.
    RecvCqOverflow(Qpn),
    /// An asynchronous event of a queue pair. Codes of errors also end its work, as an E810's do;
    /// those of completion queues overrun the one where its receives complete. Nothing happens for
    /// codes of other objects.
    Async {
        /// Whose.
        qpn: Qpn,
        /// What.
        code: AeCode,
    },
    /// The next message that needs a receive of this queue pair finds none.
    NotReady(Qpn),
    /// The whole device fails: every queue pair ends in error.
    DeviceFatal,
    /// The link goes down, or up.
    Port {
        /// Up.
        up: bool,
    },
}

/// Events that leave a queue pair as it is.
const HARMLESS: [AeCode; 8] = [
    AeCode::LLP_SYN_RECEIVED,
    AeCode::QP_SUSPEND_COMPLETE,
    AeCode::LLP_CONNECTION_ESTABLISHED,
    AeCode::LAST_WQE_REACHED,
    AeCode::LLP_DOUBT_REACHABILITY,
    AeCode::RESOURCE_EXHAUSTION,
    AeCode::RESET_NOT_SENT,
    AeCode::CQP_DEFERRED_COMPLETE,
];

impl Hca {
    /// Brings a mishap about; false if there is nothing that it could happen to.
    pub fn inject(&mut self, now: Instant, what: Injection) -> bool {
        let done = match what {
            Injection::CqOverflow(id) => match self.dev.cqs.slot(id) {
                Some(slot) => self.overflow(slot),
                None => false,
            },
            Injection::RecvCqOverflow(qpn) => {
                let cq = self.qps.by_number(qpn.value()).map(|qp| qp.id.recv_cq);
                cq.is_some_and(|slot| self.overflow(slot))
            }
            Injection::Async { qpn, code } => self.inject_async(now, qpn, code),
            Injection::NotReady(qpn) => {
                let slot = self.qps.find(qpn.value());
                let qp = slot.and_then(|slot| self.qps.get_mut(slot));
                qp.map(|qp| qp.rsp.recv.refuse_next = true).is_some()
            }
            Injection::DeviceFatal => {
                self.fail_everything(now);
                true
            }
            Injection::Port { up } => {
                let state = if up {
                    LinkState::Active
                } else {
                    LinkState::Down
                };
                self.follow_link(state);
                true
            }
        };
        if done && crate::trace::on() {
            crate::trace::named(crate::trace::Kind::INJECTED, 0, &format!("{what:?}"));
        }
        done
    }

    fn overflow(&mut self, cq: Slot) -> bool {
        self.dev.cqs.overflow(&mut self.dev.events, cq)
    }

    fn inject_async(&mut self, now: Instant, qpn: Qpn, code: AeCode) -> bool {
        match code {
            AeCode::NONE => return false,
            AeCode::CQ_OPERATION_ERROR | AeCode::LCE_CQ_CATASTROPHIC => {
                return self.inject(now, Injection::RecvCqOverflow(qpn));
            }
            AeCode::RDMAP_ROE_BAD_LLP_CLOSE | AeCode::LLP_FIN_RECEIVED => {
                return self.bad_close(now, qpn);
            }
            // Of other objects than queue pairs.
            _ if !(Aeqe {
                code,
                ..Aeqe::default()
            })
            .is_qp() =>
            {
                return false;
            }
            _ => {}
        }
        let Some(slot) = self.qps.find(qpn.value()) else {
            return false;
        };
        let Some(qp) = self.qps.get_mut(slot) else {
            return false;
        };
        let mut ctx = self.dev.ctx(now);
        if HARMLESS.contains(&code) {
            qp.raise(&mut ctx, code, AeSource::NONE, 0);
        } else {
            let (flush, _) = code.class();
            qp.rq_error(&mut ctx, Cause::new(flush, code), AeSource::INBOUND);
        }
        self.timers.set(slot, &mut qp.timer, qp.req.deadline());
        true
    }

    // rule: event-55
    fn fail_everything(&mut self, now: Instant) {
        self.dev.events.raise_ae(&Aeqe {
            code: AeCode::ADAPTER_CATASTROPHIC,
            source: AeSource::NONE,
            id: 0,
            context: 0,
            state: HwQpState::INVALID,
            wqe_index: 0,
            overflow: false,
        });
        for (slot, _, qp) in self.qps.iter_mut() {
            qp.fail_with_device(&mut self.dev.ctx(now));
            self.timers.set(slot, &mut qp.timer, qp.req.deadline());
        }
    }
}
