//! Posting work and taking completions, as a driver does.
//!
//! A completion of the send queue stands for everything before it; a flush entry stands for all
//! that is left in its queue, the first with the cause. [E810 3.5]

use super::qp::{Posted, RQ_SHIFT, Wc};
use super::{CQ, Node, PD};
use srdma_core::hca::board::Doorbell;
use srdma_core::hw::cqe::FlushCode;
use srdma_core::hw::cqp::CreateAh;
use srdma_core::hw::wqe::{ReadWr, RemoteAddr, SendWr, UdTarget, WqeBuf, WrFlags, WriteWr};
use srdma_core::hw::{CqeInfo, CqpCmd, Sge};
use srdma_core::num::{AhId, CqId, Lkey, Qkey, Qpn, Rkey};
use srdma_core::obj::ah::AddressVector;
use std::net::IpAddr;

impl Node {
    // ---- posting -----------------------------------------------------------------------

    /// Posts a send WQE and rings. Gives its index in the ring.
    pub fn post(&mut self, qpn: Qpn, wqe: &WqeBuf) -> u32 {
        let index = self.post_quietly(qpn, wqe);
        self.ring_sq(qpn);
        index
    }

    /// Posts a send WQE.
    pub fn post_quietly(&mut self, qpn: Qpn, wqe: &WqeBuf) -> u32 {
        let end = self.qps.get_mut(&qpn.value()).unwrap();
        let slot = end.sq.push(wqe).expect("room in the send queue");
        end.sends.push_back(Posted {
            index: slot.index,
            after: slot.index + wqe.quanta(),
            wr_id: end.next_send,
        });
        end.next_send += 1;
        slot.index
    }

    /// Quanta of the send queue and entries of the receive queue that are free.
    #[must_use]
    pub fn room(&self, qpn: Qpn) -> (u32, u32) {
        let end = self.qps.get(&qpn.value()).unwrap();
        (end.sq.free(), end.rq.free())
    }

    /// Rings the send queue's doorbell.
    pub fn ring_sq(&mut self, qpn: Qpn) {
        self.hca.ring(self.now, Doorbell::Sq(qpn));
    }

    /// The words of a send queue, to spoil them.
    #[must_use]
    pub fn sq_words(&self, qpn: Qpn) -> srdma_core::mem::HostWords {
        self.qps.get(&qpn.value()).unwrap().sq_buf.words()
    }

    /// SEND, signaled.
    pub fn send(&mut self, qpn: Qpn, sges: &[Sge]) -> u32 {
        let mut wqe = WqeBuf::new();
        let wr = SendWr {
            flags: WrFlags::SIGNALED,
            ..SendWr::default()
        };
        wqe.send(&wr, sges).unwrap();
        self.post(qpn, &wqe)
    }

    /// WRITE, signaled.
    pub fn write(&mut self, qpn: Qpn, sges: &[Sge], addr: u64, rkey: Rkey) -> u32 {
        let mut wqe = WqeBuf::new();
        let wr = WriteWr {
            flags: WrFlags::SIGNALED,
            remote: RemoteAddr { addr, rkey },
            ..WriteWr::default()
        };
        wqe.write(&wr, sges).unwrap();
        self.post(qpn, &wqe)
    }

    /// READ, signaled.
    pub fn read(&mut self, qpn: Qpn, sges: &[Sge], addr: u64, rkey: Rkey) -> u32 {
        let mut wqe = WqeBuf::new();
        let wr = ReadWr {
            flags: WrFlags::SIGNALED,
            remote: RemoteAddr { addr, rkey },
            ..ReadWr::default()
        };
        wqe.read(&wr, sges).unwrap();
        self.post(qpn, &wqe)
    }

    /// FETCH_ADD, signaled.
    pub fn fetch_add(
        &mut self,
        qpn: Qpn,
        local: (u64, Lkey),
        addr: u64,
        rkey: Rkey,
        add: u64,
    ) -> u32 {
        let mut wqe = WqeBuf::new();
        wqe.fetch_add(WrFlags::SIGNALED, local, RemoteAddr { addr, rkey }, add);
        self.post(qpn, &wqe)
    }

    /// UD SEND, signaled.
    pub fn send_ud(&mut self, qpn: Qpn, ah: AhId, dest: u32, qkey: u32, sges: &[Sge]) -> u32 {
        let mut wqe = WqeBuf::new();
        let wr = SendWr {
            flags: WrFlags::SIGNALED,
            ud: Some(UdTarget {
                ah,
                qkey: Qkey(qkey),
                dest: Qpn::new(dest),
            }),
            ..SendWr::default()
        };
        wqe.send(&wr, sges).unwrap();
        self.post(qpn, &wqe)
    }

    /// An address handle for a target.
    pub fn ah(&mut self, target: IpAddr) -> AhId {
        let id = AhId(self.fresh_id());
        let av = AddressVector::new(target, self.ip);
        self.ok(CqpCmd::CreateAh(CreateAh { id, pd: PD, av }));
        id
    }

    /// Posts a receive.
    pub fn recv(&mut self, qpn: Qpn, sges: &[Sge]) {
        let end = self.qps.get_mut(&qpn.value()).unwrap();
        let mut wqe = WqeBuf::new();
        wqe.recv(sges, None).unwrap();
        let index = end.rq.push(&wqe).expect("room in the receive queue");
        end.recvs.push_back(Posted {
            index: index << RQ_SHIFT,
            after: index + 1,
            wr_id: end.next_recv,
        });
        end.next_recv += 1;
    }

    // ---- completions -------------------------------------------------------------------

    /// Everything in [`CQ`], as a driver reports it.
    pub fn poll(&mut self) -> Vec<Wc> {
        self.poll_cq(CQ)
    }

    /// Everything in a CQ, as a driver reports it.
    pub fn poll_cq(&mut self, id: CqId) -> Vec<Wc> {
        let mut done = Vec::new();
        for cqe in self.cqes(id) {
            self.expand(&cqe, &mut done);
        }
        done
    }

    /// The bare entries of a CQ. Requests they stand for stay posted.
    pub fn cqes(&mut self, id: CqId) -> Vec<CqeInfo> {
        let ring = &mut self.cqs.get_mut(&id.0).unwrap().ring;
        let mut all = Vec::new();
        while let Some(cqe) = ring.peek() {
            ring.advance(cqe.extended());
            all.push(cqe);
        }
        all
    }

    fn expand(&mut self, cqe: &CqeInfo, done: &mut Vec<Wc>) {
        let wc = |wr_id, status| Wc {
            qpn: cqe.qpn,
            sq: cqe.sq,
            wr_id,
            status,
            cqe: *cqe,
        };
        if let Some(wr_id) = cqe.srq_wr_id {
            done.push(wc(wr_id, cqe.flush_code()));
            return;
        }
        let Some(end) = self.qps.get_mut(&cqe.qpn.value()) else {
            return;
        };
        let queue = if cqe.sq {
            &mut end.sends
        } else {
            &mut end.recvs
        };
        let (mut last, mut first) = (None, true);
        if let Some(code) = cqe.flush_code() {
            for posted in queue.drain(..) {
                let told = if first { code } else { FlushCode::GENERAL };
                done.push(wc(posted.wr_id, Some(told)));
                (last, first) = (Some(posted), false);
            }
        } else {
            let at = queue
                .iter()
                .position(|posted| posted.index == u32::from(cqe.wqe_index))
                .expect("a completion names a request that was posted");
            let posted = queue.drain(..=at).next_back().unwrap();
            done.push(wc(posted.wr_id, None));
            last = Some(posted);
        }
        match last {
            Some(posted) if cqe.sq => end.sq.release_to(posted.after),
            Some(posted) => end.rq.release_to(posted.after),
            None => {}
        }
    }

    /// Arms a CQ and rings.
    pub fn arm(&mut self, id: CqId, solicited_only: bool) {
        self.cqs
            .get(&id.0)
            .unwrap()
            .ring
            .shadow()
            .arm(solicited_only);
        self.hca.ring(self.now, Doorbell::Cq(id));
    }
}
