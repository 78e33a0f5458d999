//! The device writes completions, the oracle reads them: every form, every place in the ring.

use crate::rig::{Posted, QPN, Rig, WIDE, rng};
use fastrand::Rng;
use srdma_core::hw::wqe::WrFlags;
use srdma_core::hw::{CqeInfo, FlushCode, Major};
use srdma_core::mem::HostBuf;
use srdma_core::num::{Psn, Qpn};
use srdma_core::ring::{CqConsumer, CqProducer, CqShadow};
use srdma_oracle::wr::{Limits, Work, Wr};
use srdma_oracle::{Polled, Refused, Status};
use std::collections::VecDeque;

/// Majors that the oracle does not know.
const UNKNOWN: [u16; 7] = [0x0002, 0x7fff, 0x8000, 0xf000, 0xf001, 0xfffe, 0xffff];

fn random_error(rng: &mut Rng) -> Option<(Major, u16)> {
    (rng.u8(..8) == 0).then(|| (Major(UNKNOWN[rng.usize(..UNKNOWN.len())]), rng.u16(..)))
}

/// Any receive completion.
fn random_recv(rng: &mut Rng, rig: &Rig) -> CqeInfo {
    CqeInfo {
        sq: false,
        op: rng.u8(..64),
        qpn: Qpn::new(QPN),
        context: rig.qp.context(),
        wqe_index: rig.rq.wqe_index(),
        len: rng.u32(..),
        psn: Psn::new(rng.u32(..)),
        peer: rng.u32(..),
        stag_or_ipv4: rng.bool(),
        solicited: rng.bool(),
        error: random_error(rng),
        imm: rng.bool().then(|| rng.u32(..)),
        mac: rng
            .bool()
            .then(|| rng.u64(..).to_be_bytes()[..6].try_into().unwrap()),
        vlan: rng.bool().then(|| rng.u16(..)),
        srq_wr_id: None,
        srqn: 0,
        timestamp: None,
    }
}

/// What the oracle makes of a completion. What it leaves at the last one's value is not compared.
fn expected(cqe: &CqeInfo, wr_id: u64, bytes: u32) -> Polled {
    let (major, minor) = cqe.error.map_or((0, 0), |(major, minor)| (major.0, minor));
    let ok = cqe.error.is_none();
    Polled {
        wr_id,
        context: cqe.context,
        sq: cqe.sq,
        op: match (cqe.sq, cqe.imm) {
            (true, _) => cqe.op,
            (false, imm) => 0x3e + u8::from(imm.is_some()),
        },
        bytes,
        psn: cqe.psn.value(),
        qpn: QPN,
        ud_source: cqe.peer,
        inv_stag: (cqe.stag_or_ipv4 && !cqe.sq).then_some(cqe.peer),
        ipv4: cqe.stag_or_ipv4,
        solicited: cqe.solicited,
        error: !ok,
        status: if ok { Status::Success } else { Status::Unknown },
        major,
        minor,
        imm: cqe.imm,
        mac: cqe.mac,
        vlan: cqe.vlan,
    }
}

/// Work of both queues, and the oracle's answers that are owed.
struct Storm {
    rig: Rig,
    rng: Rng,
    /// Posted receives.
    recvs: VecDeque<u64>,
    /// Completions that were written and not polled.
    waiting: VecDeque<Polled>,
    polled: u32,
    full: u32,
    laps: u32,
    at_wrap: u32,
}

impl Storm {
    /// Puts work into both queues.
    fn supply(&mut self) {
        for _ in 0..self.rng.u8(1..12) {
            self.rig.post(&mut self.rng, Limits::ALL);
        }
        while self.rig.read() {}
        while self.rig.qp.recv(self.rig.next_id, &[]).is_ok() {
            self.recvs.push_back(self.rig.next_id);
            self.rig.next_id += 1;
        }
    }

    /// Completes something in either queue; false if the CQ is full.
    fn complete(&mut self) -> bool {
        let signaled = |posted: &Posted| posted.wr.flags.signaled;
        let at = self.rig.running.iter().position(signaled);
        let done = at
            .filter(|_| self.rng.bool())
            .and_then(|at| self.rig.running.get(at));
        let (cqe, wr_id, bytes) = match (done, self.recvs.front()) {
            (Some(done), _) => {
                let error = random_error(&mut self.rng);
                let cqe = CqeInfo {
                    error,
                    ..self.rig.success(done)
                };
                let bytes = if error.is_none() { done.wr.bytes() } else { 0 };
                (cqe, done.wr.id, bytes)
            }
            (None, Some(wr_id)) => {
                let cqe = random_recv(&mut self.rng, &self.rig);
                (cqe, *wr_id, cqe.len)
            }
            (None, None) => {
                self.supply();
                return true;
            }
        };
        let (before, size) = (self.rig.cqes.index(), self.rig.cqes.size());
        if self.rig.cqes.push(&cqe).is_err() {
            self.full += 1;
            return false;
        }
        let narrow = self.rig.cqes.index() != (before + 1) % size;
        self.at_wrap += u32::from(narrow && before + 1 == size);
        self.laps += u32::from(self.rig.cqes.index() < before);
        if cqe.sq {
            self.rig.running.drain(..=at.unwrap());
        } else {
            self.recvs.pop_front();
            self.rig.rq.advance();
        }
        self.waiting.push_back(expected(&cqe, wr_id, bytes));
        true
    }

    fn poll(&mut self) -> bool {
        let Some(wanted) = self.waiting.pop_front() else {
            assert_eq!(self.rig.cq.poll(), Err(Refused::EMPTY));
            return false;
        };
        assert_eq!(self.rig.cq.poll(), Ok(wanted));
        self.polled += 1;
        true
    }
}

fn storm(seed: u64, size: u32, wide: bool, laps: u32) {
    let mut storm = Storm {
        rig: Rig::new(WIDE, size, wide),
        rng: rng("consumer", seed),
        recvs: VecDeque::new(),
        waiting: VecDeque::new(),
        polled: 0,
        full: 0,
        laps: 0,
        at_wrap: 0,
    };
    while storm.laps < laps {
        storm.supply();
        if storm.rng.u8(..8) == 0 {
            while storm.complete() {}
        }
        for _ in 0..storm.rng.u32(1..=size) {
            storm.complete();
        }
        for _ in 0..storm.rng.u32(1..=size) {
            storm.poll();
        }
    }
    while storm.poll() {}
    let (polled, laps) = (storm.polled, storm.laps);
    let (full, at_wrap) = (storm.full, storm.at_wrap);
    println!(
        "{polled} completions, {laps} laps of {size}, {full} times full, {at_wrap} at the wrap"
    );
    assert_eq!(at_wrap == 0, wide);
    assert!(full > 0);
}

#[test]
fn every_form_of_completion_is_read_as_written() {
    // proves: e810-1
    // proves: e810-4
    // proves: e810-16
    for (seed, size) in [(100, 4), (101, 5), (102, 7), (103, 16), (104, 37)] {
        storm(seed, size, false, 200);
        storm(seed, size, true, 200);
    }
}

/// One flush entry for a queue stands for all its requests: the first has the cause.
#[test]
fn one_flush_entry_completes_every_send() {
    // proves: e810-7
    // proves: e810-8
    // proves: e810-32
    for seed in 200..260 {
        let mut rng = rng("consumer, flushed sends", seed);
        let mut rig = Rig::new(WIDE, 5, false);
        for _ in 0..3 {
            for _ in 0..rng.u8(1..30) {
                rig.post(&mut rng, Limits::ALL);
            }
            // Behind the last request the oracle would look for more than NOPs, past its own head.
            let (id, flags) = (rig.next_id, WrFlags::default());
            let work = Work::Invalidate(1);
            assert!(rig.post_this(Wr { id, flags, work }));
            while rig.read() {}
            for _ in 0..rng.u8(..8) {
                rig.complete();
            }
            let Some(first) = rig.running.front() else {
                continue;
            };
            let code = FlushCode(rng.u16(1..=12));
            let index = u16::try_from(first.index).unwrap();
            let cqe = CqeInfo::flush(true, Qpn::new(QPN), rig.qp.context(), index, code);
            rig.cqes.push(&cqe).unwrap();
            let flushed: Vec<Posted> = rig.running.drain(..).collect();
            // The oracle tells padding from work by the opcode alone.
            let real = flushed.iter().filter(|posted| posted.wr.work != Work::Nop);
            let mut minor = code.0;
            for posted in real {
                let polled = rig.cq.poll().unwrap();
                assert_eq!(polled.wr_id, posted.wr.id, "{posted:?}");
                assert_eq!(polled.status, Status::Flushed);
                assert_eq!((polled.major, polled.minor), (1, minor));
                assert_eq!(
                    (polled.op, polled.bytes),
                    (posted.wr.op().0, posted.wr.bytes())
                );
                minor = FlushCode::GENERAL.0;
            }
            assert_eq!(rig.cq.poll(), Err(Refused::EMPTY));
            assert_eq!(rig.qp.sq_tail(), rig.qp.sq_head(), "nothing is left");
            assert_eq!(rig.cq.head(), rig.cqes.index(), "the entry is passed");
        }
    }
}

#[test]
fn one_flush_entry_completes_every_receive() {
    // proves: e810-7
    // proves: e810-8
    // proves: e810-32
    for seed in 300..340 {
        let mut rng = rng("consumer, flushed receives", seed);
        let mut rig = Rig::new(WIDE, 5, false);
        let mut next = 1;
        for _ in 0..4 {
            let count = rng.u64(1..=15);
            for id in next..next + count {
                rig.qp.recv(id, &[]).unwrap();
            }
            let code = FlushCode(rng.u16(1..=12));
            let index = rig.rq.wqe_index();
            let cqe = CqeInfo::flush(false, Qpn::new(QPN), rig.qp.context(), index, code);
            rig.cqes.push(&cqe).unwrap();
            let mut minor = code.0;
            let head = rig.cq.head();
            for id in next..next + count {
                assert_eq!(rig.cq.head(), head, "parked");
                let polled = rig.cq.poll().unwrap();
                assert_eq!((polled.wr_id, polled.sq), (id, false));
                assert_eq!(polled.status, Status::Flushed);
                assert_eq!((polled.major, polled.minor), (1, minor));
                minor = FlushCode::GENERAL.0;
                rig.rq.advance();
            }
            assert_ne!(rig.cq.head(), head, "moved with the last");
            assert_eq!(rig.cq.poll(), Err(Refused::EMPTY));
            next += count;
        }
    }
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_swallowed() {
    let mut rig = Rig::new(WIDE, 8, false);
    let flags = WrFlags::SIGNALED;
    let nop = |id| Wr {
        id,
        flags,
        work: Work::Nop,
    };
    for id in 1..=3 {
        assert!(rig.post_this(nop(id)) && rig.read());
    }
    let mut cqe = rig.success(rig.running.front().unwrap());
    rig.cqes.push(&cqe).unwrap();
    cqe.context = 0;
    rig.cqes.push(&cqe).unwrap();
    rig.qp.set_destroy_pending();
    assert_eq!(rig.cq.poll(), Err(Refused::DESTROYED), "its flag");
    assert_eq!(rig.cq.poll(), Err(Refused::DESTROYED), "no context");
    assert_eq!(rig.cq.poll(), Err(Refused::EMPTY));
    assert_eq!(rig.cq.head(), 2);
}

/// Our driver half and the oracle clean the same words.
#[test]
fn cleaning_leaves_the_oracles_words() {
    for seed in 400..440 {
        let mut rng = rng("consumer, clean", seed);
        for wide in [false, true] {
            let (size, slot) = (13, if wide { 64 } else { 32 });
            let mut rig = Rig::new(WIDE, size, wide);
            let (buf, area) = (
                HostBuf::new(size as usize * slot).unwrap(),
                HostBuf::new(64).unwrap(),
            );
            let shadow = || CqShadow::new(area.words()).unwrap();
            let mut twin = CqProducer::new(buf.words(), size, wide, shadow(), 0).unwrap();
            let mut ours = CqConsumer::new(buf.words(), size, wide, shadow()).unwrap();
            let mut both = |rig: &mut Rig, cqe: &CqeInfo| {
                let pushed = rig.cqes.push(cqe).is_ok();
                assert_eq!(twin.push(cqe).is_ok(), pushed);
                pushed
            };
            // Somewhere in the ring, then up to full.
            for id in 0..rng.u64(..40) {
                rig.qp.recv(id, &[]).unwrap();
                let cqe = random_recv(&mut rng, &rig);
                rig.rq.advance();
                assert!(both(&mut rig, &cqe));
                rig.cq.poll().unwrap();
                ours.peek().unwrap();
                ours.advance(cqe.extended());
                assert_eq!(ours.index(), rig.cq.head());
            }
            for _ in 0..rng.u8(1..20) {
                let cqe = random_recv(&mut rng, &rig);
                if !both(&mut rig, &cqe) {
                    break;
                }
            }
            rig.cq.clean(&rig.qp);
            ours.clean(rig.qp.context());
            let theirs = rig.cq.words();
            for word in 0..theirs.len() {
                assert_eq!(buf.words().load(word), theirs.load(word), "word {word}");
            }
            loop {
                match rig.cq.poll() {
                    Err(Refused::DESTROYED) => {}
                    other => break assert_eq!(other, Err(Refused::EMPTY)),
                }
            }
        }
    }
}
