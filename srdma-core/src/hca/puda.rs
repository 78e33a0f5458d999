//! The device's end of the driver's exception queue: what goes there, and what comes back.
//!
//! ```text
//! receive ─► exception ─► RQ of the queue, a CQE         (at once: the bytes are at hand)
//! pass    ─► MOVED, GONE ─► the same                     (at its end: once for each queue pair)
//! doorbell ─► SQ of the queue ─► the queue pair that a packet is for
//! ```
//!
//! What it does not do: decide what is an exception (`qp/responder`, `hca/rx.rs`), or keep
//! anything.                                                           [E810 8.6]

use super::Hca;
use crate::hw::aeqe::{AeCode, AeSource};
use crate::hw::cqe::FlushCode;
use crate::hw::ieq::IeqClass;
use crate::num::{Psn, Qpn};
use crate::obj::table::Slot;
use crate::puda::ieq::Exception;
use crate::qp::attr::{QpState, QpType};
use crate::qp::flush::Cause;
use crate::rx::RxMeta;
use crate::time::Instant;
use crate::wire::Packet;

impl Hca {
    /// The packet that was just handled goes to the driver, if it turned out to be an exception.
    #[inline]
    pub(super) fn capture(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>) {
        if let Some(what) = self.dev.ieq.at_hand.take() {
            if self.deliver_exception(now, &what, Some((meta, packet.bytes()))) {
                self.dev.counters.ieq_captured += 1;
            } else {
                self.dev.counters.ieq_no_rx_bufs += 1;
            }
        }
    }

    /// A copy for who looks on of something that is dropped here.
    // rule: puda-9
    #[cold]
    pub(super) fn tap(&mut self, now: Instant, meta: &RxMeta, class: IeqClass, bytes: &[u8]) {
        let dev = &mut self.dev;
        if !dev.ieq.captures() || !dev.ieq.may_tap(now, &mut dev.counters) {
            return;
        }
        let &[.., d0, d1, d2] = bytes.first_chunk::<8>().unwrap_or(&[0; 8]);
        let &[.., p0, p1, p2] = bytes.first_chunk::<12>().unwrap_or(&[0; 12]);
        let what = Exception {
            class,
            qpn: Qpn::from_be_bytes([d0, d1, d2]),
            psn: Psn::from_be_bytes([p0, p1, p2]),
            epoch: 0,
        };
        if self.deliver_exception(now, &what, Some((meta, bytes))) {
            self.dev.counters.ieq_tapped += 1;
        } else {
            self.dev.counters.ieq_capture_dropped += 1;
        }
    }

    fn deliver_exception(
        &mut self,
        now: Instant,
        what: &Exception,
        packet: Option<(&RxMeta, &[u8])>,
    ) -> bool {
        let queue = self.dev.ieq.queue.and_then(|slot| self.qps.get_mut(slot));
        queue.is_some_and(|queue| queue.on_exception(&mut self.dev.ctx(now), what, packet))
    }

    /// Tells the driver whose expectation moved while it holds something, and whose packets it may
    /// forget. What finds no buffer is told at the end of a later pass.
    #[inline]
    pub(super) fn tell_ieq(&mut self, now: Instant) {
        if !self.dev.ieq.moved.is_empty() || !self.dev.ieq.gone.is_empty() {
            self.tell_ieq_now(now);
        }
    }

    #[cold]
    fn tell_ieq_now(&mut self, now: Instant) {
        if self.dev.ieq.queue.is_none() {
            self.dev.ieq.moved.clear();
            self.dev.ieq.gone.clear();
            return;
        }
        let mut moved = core::mem::take(&mut self.dev.ieq.moved);
        moved.retain(|slot| {
            let Some(qp) = self.qps.get_mut(*slot) else {
                return false;
            };
            let Some((captured, epsn)) = qp.expectation() else {
                return false;
            };
            if epsn.since(captured.top) > 0 {
                qp.forget_captured(&mut self.dev.ctx(now));
                return false;
            }
            let what = Exception {
                class: IeqClass::MOVED,
                qpn: qp.id.qpn,
                psn: epsn,
                epoch: captured.epoch,
            };
            !self.deliver_exception(now, &what, None)
        });
        self.dev.ieq.moved = moved;
        let mut gone = core::mem::take(&mut self.dev.ieq.gone);
        gone.dedup();
        gone.retain(|qpn| {
            let what = Exception {
                class: IeqClass::GONE,
                qpn: *qpn,
                psn: Psn::default(),
                epoch: 0,
            };
            !self.deliver_exception(now, &what, None)
        });
        self.dev.ieq.gone = gone;
    }

    /// What the driver sent on the exception queue comes back in: at most a ring of it.
    // rule: ieq-14
    pub(super) fn take_back(&mut self, now: Instant, queue: Slot) {
        let size = match self.qps.get_mut(queue) {
            Some(qp) if qp.state == QpState::Rts => qp.sq_size(),
            Some(qp) if qp.state == QpState::Err => {
                qp.ring_in_error(&mut self.dev.ctx(now));
                return;
            }
            _ => return,
        };
        // The queue pair whose packets come now, and whether it was served any.
        let (mut turn, mut served) = (None, false);
        for _ in 0..size {
            let fetched = self
                .qps
                .get_mut(queue)
                .and_then(|qp| qp.fetch_returned(&mut self.dev.ctx(now)));
            let Some((qpn, epoch)) = fetched else { break };
            let target = self.qps.find(qpn.value()).filter(|slot| *slot != queue);
            if turn != target {
                self.end_return(now, turn, served);
                (turn, served) = (target, false);
            }
            let bytes = core::mem::take(&mut self.dev.ieq.scratch);
            match target.and_then(|slot| self.qps.get_mut(slot)) {
                Some(qp) => {
                    served |= qp.on_returned(&mut self.dev.ctx(now), epoch, &bytes);
                }
                None if bytes.is_empty() => {}
                None => {
                    self.dev.counters.ieq_returned += 1;
                    self.dev.counters.ieq_discarded += 1;
                }
            }
            self.dev.ieq.scratch = bytes;
        }
        self.end_return(now, turn, served);
    }

    fn end_return(&mut self, now: Instant, turn: Option<Slot>, served: bool) {
        if let Some(qp) = turn.and_then(|slot| self.qps.get_mut(slot)) {
            if served {
                qp.after_returned(&mut self.dev.ctx(now));
            }
            qp.set_timer(&mut self.timers);
        }
    }

    /// A packet with a wrong ICRC seems to be for a reliable queue pair and from its peer. Too many
    /// in a row end it, where that is wanted.                         [E810 8.6.3]
    // rule: puda-10
    #[cold]
    pub(super) fn blame(&mut self, now: Instant, meta: &RxMeta, packet: &Packet<'_>) {
        if !self.dev.ieq.blames() {
            return;
        }
        let Some(slot) = self.qps.find(packet.dest().value()) else {
            return;
        };
        let Some(qp) = self.qps.get_mut(slot) else {
            return;
        };
        let peers = qp.conn.remote_ip == Some(meta.source.ip());
        let fits = peers && qp.conn.local_ip == Some(meta.local) && qp.id.kind == QpType::Rc;
        if qp.can_receive() && fits && self.dev.ieq.blame(qp.id.qpn) {
            self.dev.counters.ieq_latched += 1;
            let cause = Cause::new(FlushCode::REM_OP, AeCode::LLP_RECEIVED_MPA_CRC_ERROR);
            qp.rq_error(&mut self.dev.ctx(now), cause, AeSource::RQ);
            qp.set_timer(&mut self.timers);
        }
    }
}
