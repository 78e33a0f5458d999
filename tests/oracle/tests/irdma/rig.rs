//! One queue pair of the oracle, and the device's ends of its rings.

use fastrand::Rng;
use srdma_core::hw::{CqeInfo, SqCmd, SqOp, WqeBuf};
use srdma_core::num::{Psn, Qpn};
use srdma_core::ring::{CqProducer, CqShadow, RqConsumer, SqConsumer};
use srdma_oracle::wr::{Limits, Wr};
use srdma_oracle::{Caps, OracleCq, OracleQp, Polled, Refused, Status};
use std::collections::VecDeque;

pub(crate) const QPN: u32 = 0x00ab_cdef;

/// The seed of a test, and its numbers.
pub(crate) fn rng(test: &str, default: u64) -> Rng {
    let given = std::env::var("SRDMA_SEED").ok();
    let seed = given.map_or(default, |text| text.parse().expect("a number"));
    println!("{test}: seed {seed}");
    Rng::with_seed(seed)
}

/// Caps that make the largest WQEs possible.
pub(crate) const WIDE: Caps = Caps {
    send_wrs: 16,
    send_sges: 13,
    recv_wrs: 15,
    recv_sges: 13,
    inline: 101,
};

/// A work request in the ring, with the quantum that its WQE starts at.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) wr: Wr,
    pub(crate) index: u32,
}

pub(crate) struct Rig {
    pub(crate) qp: OracleQp,
    pub(crate) cq: OracleCq,
    pub(crate) sq: SqConsumer,
    pub(crate) rq: RqConsumer,
    pub(crate) cqes: CqProducer,
    /// Posted, not read by the device.
    pub(crate) posted: VecDeque<Posted>,
    /// Read by the device, not completed.
    pub(crate) running: VecDeque<Posted>,
    pub(crate) next_id: u64,
    pub(crate) wrs: u64,
    pub(crate) wraps: u32,
    pub(crate) nops: u64,
    wqe: WqeBuf,
    cmd: SqCmd,
}

impl Rig {
    pub(crate) fn new(caps: Caps, cq_size: u32, wide: bool) -> Self {
        let qp = OracleQp::new(QPN, caps);
        let mut cq = OracleCq::new(77, cq_size, wide);
        cq.attach(&qp);
        let shadow = CqShadow::new(cq.shadow().clone()).unwrap();
        let cqes = CqProducer::new(cq.words(), cq_size, wide, shadow, cq_size / 2).unwrap();
        Self {
            sq: SqConsumer::new(qp.sq(), qp.sq_quanta()).unwrap(),
            rq: RqConsumer::new(qp.rq(), qp.rq_wqes(), qp.rq_shift()).unwrap(),
            qp,
            cq,
            cqes,
            posted: VecDeque::new(),
            running: VecDeque::new(),
            next_id: 1,
            wrs: 0,
            wraps: 0,
            nops: 0,
            wqe: WqeBuf::new(),
            cmd: SqCmd::new(),
        }
    }

    /// The oracle posts a random request; false if it has no room.
    pub(crate) fn post(&mut self, rng: &mut Rng, limits: Limits) -> bool {
        let wr = Wr::random(rng, self.next_id, limits);
        self.post_this(wr)
    }

    pub(crate) fn post_this(&mut self, wr: Wr) -> bool {
        wr.build(&mut self.wqe).unwrap();
        let before = self.qp.sq_head();
        match self.qp.post(&wr, true) {
            Ok(()) => {}
            Err(Refused::FULL) => return false,
            Err(other) => panic!("{other:?} for {wr:?}"),
        }
        assert_eq!(self.qp.take_doorbell(), QPN, "the doorbell names the QP");
        let size = self.qp.sq_quanta();
        let head = self.qp.sq_head();
        self.wraps += u32::from(head < before);
        let index = (head + size - self.wqe.quanta()) % size;
        self.next_id += 1;
        self.wrs += 1;
        self.posted.push_back(Posted { wr, index });
        true
    }

    /// The device reads the next request, passing over padding; false if there is none.
    pub(crate) fn read(&mut self) -> bool {
        loop {
            let at = self.sq.index();
            let Some(parsed) = self.sq.read(&mut self.cmd) else {
                assert!(
                    self.posted.is_empty(),
                    "nothing seen of {:?}",
                    self.posted.front()
                );
                return false;
            };
            parsed.unwrap_or_else(|fault| panic!("{fault} in {:?}", self.posted.front()));
            let next = self.posted.front().expect("read no more than was posted");
            if at != next.index {
                // Padding: ends before the next WQE's chunk.
                assert_eq!(self.cmd.op, SqOp::NOP, "{at} is not {next:?}");
                assert!(!self.cmd.signaled && self.cmd.quanta == 1);
                assert!(next.index.is_multiple_of(8));
                self.nops += 1;
                self.sq.advance(&self.cmd);
                continue;
            }
            next.wr.expect(&self.cmd);
            next.wr.build(&mut self.wqe).unwrap();
            assert_eq!(u32::from(self.cmd.quanta), self.wqe.quanta(), "{next:?}");
            self.sq.advance(&self.cmd);
            let done = self.posted.pop_front().unwrap();
            self.running.push_back(done);
            return true;
        }
    }

    /// The device completes the oldest signaled request, and the oracle hears of it; false if none.
    pub(crate) fn complete(&mut self) -> bool {
        let Some(at) = self
            .running
            .iter()
            .position(|posted| posted.wr.flags.signaled)
        else {
            return false;
        };
        let done = self.running.drain(..=at).next_back().unwrap();
        let cqe = self.success(&done);
        self.cqes.push(&cqe).unwrap();
        let polled = self.cq.poll().unwrap();
        self.expect_success(&done, &polled);
        assert_eq!(self.cq.poll(), Err(Refused::EMPTY));
        true
    }

    /// The completion of a request.
    pub(crate) fn success(&self, done: &Posted) -> CqeInfo {
        CqeInfo {
            sq: true,
            op: done.wr.op().0,
            qpn: Qpn::new(QPN),
            context: self.qp.context(),
            wqe_index: u16::try_from(done.index).unwrap(),
            psn: Psn::new(0x00fe_dcba),
            ..CqeInfo::default()
        }
    }

    /// What the oracle makes of it.
    pub(crate) fn expect_success(&self, done: &Posted, polled: &Polled) {
        assert_eq!(polled.wr_id, done.wr.id, "{done:?}\n{polled:?}");
        assert_eq!(polled.status, Status::Success, "{polled:?}");
        assert_eq!((polled.qpn, polled.context), (QPN, self.qp.context()));
        assert!(polled.sq && !polled.error && !polled.solicited && polled.imm.is_none());
        assert_eq!((polled.op, polled.psn), (done.wr.op().0, 0x00fe_dcba));
        assert_eq!(polled.bytes, done.wr.bytes(), "{done:?}");
        let size = self.qp.sq_quanta();
        let mut wqe = WqeBuf::new();
        done.wr.build(&mut wqe).unwrap();
        assert_eq!(self.qp.sq_tail(), (done.index + wqe.quanta()) % size);
    }
}
