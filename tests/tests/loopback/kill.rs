//! kill -9 of a peer process in the middle of traffic: nothing hangs, and the rest goes on.
//!
//! | who dies | what the survivor sees |
//! |---|---|
//! | responder | oldest request `RetryExcErr`, all others `WrFlushErr` in order, receives flushed |
//! | requester | nothing until it sends itself; then the same, a half received message included |
//!
//! Other connections of the device go on meanwhile, and a peer reborn on the address is served.

use crate::common::*;
use crate::peer::{self, Introduction, MESSAGE, Peer, impatient};
use srdma_verbs::{Cq, Mr, PreparedQp, Qp, QpState, QpType, WcOpcode, WcStatus, WrId};
use std::collections::VecDeque;
use std::time::Duration;

const WAYS: [Sockets; 3] = [
    Sockets::DEFAULT,
    Sockets {
        gso: false,
        gro: false,
        small: true,
    },
    Sockets {
        gso: true,
        gro: false,
        small: true,
    },
];

/// Queue pairs to one peer, each with queues of its own for sends and receives.
pub(crate) struct Link {
    pub(crate) peer: Peer,
    pub(crate) qps: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) qp: Qp,
    sends: Cq,
    receives: Cq,
    outstanding: VecDeque<u64>,
    next: u64,
}

pub(crate) fn link(side: &Side, memory: &Mr, mut peer: Peer, receives: usize) -> Link {
    let cq = || side.ctx.create_cq(256).build().unwrap();
    let cqs: Vec<(Cq, Cq)> = peer.intro.endpoints.iter().map(|_| (cq(), cq())).collect();
    let prepared: Vec<PreparedQp> = cqs
        .iter()
        .map(|(sends, recvs)| {
            let builder = side.pd.create_qp(QpType::Rc);
            let builder = builder.send_cq(sends).recv_cq(recvs);
            impatient(builder).build().unwrap()
        })
        .collect();
    for qp in &prepared {
        let mut batch = qp.post_recv();
        for id in 0..receives {
            batch.recv(WrId(id as u64)).local(memory.sge(..MESSAGE));
        }
        batch.ring().unwrap();
    }
    let ours: Introduction = peer::introduce(&prepared, memory);
    let qps = peer::connect_all(prepared, &peer.intro);
    peer.meet(&ours);
    let qps = qps
        .into_iter()
        .zip(cqs)
        .map(|(qp, (sends, receives))| Line {
            qp,
            sends,
            receives,
            outstanding: VecDeque::new(),
            next: 0,
        })
        .collect();
    Link { peer, qps }
}

impl Line {
    /// Fills the queue with requests of all kinds, and takes what completed; how many that were.
    fn pump(&mut self, memory: &Mr, theirs: &Introduction) -> u64 {
        let mut completed = 0;
        let mut poll = self.sends.poll();
        while let Some(wc) = poll.next() {
            assert_eq!(Some(wc.wr_id().0), self.outstanding.pop_front(), "order");
            let wc = wc.to_completion();
            assert!(wc.is_ok(), "{wc:?}");
            completed += 1;
        }
        drop(poll);
        if self.outstanding.len() <= 24 {
            let mut batch = self.qp.post_send();
            for _ in 0..8 {
                let id = WrId(self.next);
                let (addr, rkey) = (theirs.addr, theirs.rkey());
                match self.next % 4 {
                    0 => drop(
                        batch
                            .write(id)
                            .local(memory.sge(..100_000))
                            .remote(addr, rkey)
                            .signaled(),
                    ),
                    1 => drop(batch.send(id).local(memory.sge(..5000)).signaled()),
                    2 => drop(
                        batch
                            .read(id)
                            .local(memory.sge(1 << 20..(1 << 20) + 70_000))
                            .remote(addr, rkey)
                            .signaled(),
                    ),
                    _ => drop(
                        batch
                            .fetch_add(id, 1)
                            .local(memory.sge(2 << 20..(2 << 20) + 8))
                            .remote(addr + (3 << 20), rkey)
                            .signaled(),
                    ),
                }
                self.outstanding.push_back(self.next);
                self.next += 1;
            }
            batch.ring().unwrap();
        }
        completed
    }

    /// Takes everything that is outstanding from a living peer.
    pub(crate) fn drain(&mut self) {
        while let Some(id) = self.outstanding.pop_front() {
            assert_eq!(done(&self.sends).wr_id().0, id);
        }
    }

    /// The end of a connection whose peer died with `receives` of ours posted.
    pub(crate) fn mourn(&mut self, receives: usize) {
        assert!(!self.outstanding.is_empty());
        let mut failed = false;
        while let Some(id) = self.outstanding.pop_front() {
            let wc = next(&self.sends);
            assert_eq!(wc.wr_id().0, id, "order: {wc:?}");
            match (failed, wc.status()) {
                // Acknowledged before the end.
                (false, WcStatus::Success) => {}
                (false, WcStatus::RetryExcErr) => failed = true,
                (true, WcStatus::WrFlushErr) => {}
                (_, status) => panic!("{status} after failure {failed}: {wc:?}"),
            }
        }
        if !failed {
            // The peer was quick and acknowledged everything before its end.
            let mut batch = self.qp.post_send();
            batch.send(WrId(self.next));
            batch.ring().unwrap();
            assert_eq!(next(&self.sends).status(), WcStatus::RetryExcErr);
        }
        until("the error state", || self.qp.state() == QpState::Err);
        let mut flushed = 0;
        while flushed < receives {
            let wc = next(&self.receives);
            assert_eq!(wc.status(), WcStatus::WrFlushErr, "{wc:?}");
            flushed += 1;
        }
        // What is posted afterwards is flushed as well.
        let mut batch = self.qp.post_send();
        batch.nop(WrId(9999));
        batch.ring().unwrap();
        let mut batch = self.qp.post_recv();
        batch.recv(WrId(9998));
        batch.ring().unwrap();
        assert_flushed(&self.sends, [9999]);
        assert_flushed(&self.receives, [9998]);
        assert_quiet(&self.sends);
        assert_quiet(&self.receives);
    }
}

/// Lets so many requests through on every queue pair of both links.
pub(crate) fn traffic(links: &mut [&mut Link], memory: &Mr, count: u64) {
    let mut idle = 0;
    let mut left: Vec<Vec<u64>> = links.iter().map(|l| vec![count; l.qps.len()]).collect();
    while left.iter().flatten().any(|left| *left > 0) {
        let mut any = false;
        for (link, left) in links.iter_mut().zip(&mut left) {
            for (line, left) in link.qps.iter_mut().zip(left) {
                let done = line.pump(memory, &link.peer.intro);
                *left = left.saturating_sub(done);
                any |= done > 0;
            }
        }
        idle = if any { 0 } else { idle + 1 };
        assert!(idle < 30_000, "traffic stalled: {left:?}");
        if idle > 1000 {
            std::thread::sleep(Duration::from_millis(1));
        } else if !any {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_responder_dies() {
    for sockets in WAYS {
        let side = Side::new(sockets.on(address()));
        let memory = side.pattern(peer::MEMORY, 1);
        let (doomed_at, living_at) = (address(), address());
        let start = |at, qps| link(&side, &memory, Peer::start("serve", at, sockets, qps), 10);
        let (mut doomed, mut living) = (start(doomed_at, 4), start(living_at, 2));
        for _ in 0..3 {
            traffic(&mut [&mut doomed, &mut living], &memory, 200);
            doomed.peer.kill();
            for line in &mut doomed.qps {
                line.mourn(10);
            }
            // Those who live are served meanwhile and afterwards, and so is a newcomer.
            traffic(&mut [&mut living], &memory, 100);
            doomed = start(doomed_at, 4);
        }
        traffic(&mut [&mut doomed, &mut living], &memory, 100);
        for link in [&mut doomed, &mut living] {
            link.qps.iter_mut().for_each(Line::drain);
        }
    }
}

#[test]
fn a_requester_dies() {
    for sockets in WAYS {
        let side = Side::new(sockets.on(address()));
        let memory = side.mr(peer::MEMORY);
        let sender_at = address();
        let mut living = {
            let peer = Peer::start("serve", address(), sockets, 1);
            link(&side, &memory, peer, 1)
        };
        for _ in 0..3 {
            let peer = Peer::start("send", sender_at, sockets, 2);
            let mut dying = link(&side, &memory, peer, 32);
            for got in 0..100 {
                let line = &dying.qps[got % 2];
                let wc = done(&line.receives);
                assert_eq!(wc.opcode(), WcOpcode::Recv);
                assert_eq!(wc.byte_len() as usize, MESSAGE);
                let mut batch = line.qp.post_recv();
                batch.recv(wc.wr_id()).local(memory.sge(..MESSAGE));
                batch.ring().unwrap();
            }
            dying.peer.kill();
            let expected = pattern(MESSAGE, 5);
            assert!(memory.to_vec(0, MESSAGE).unwrap() == expected);
            traffic(&mut [&mut living], &memory, 50);
            for line in &mut dying.qps {
                // What came before the end.
                let mut posted = 32;
                while let Some(wc) = line.receives.poll().next() {
                    assert!(wc.to_completion().is_ok());
                    posted -= 1;
                }
                assert_eq!(line.qp.state(), QpState::Rts, "a silent peer is no failure");
                line.pump(&memory, &dying.peer.intro);
                line.mourn(posted);
            }
        }
        living.qps.iter_mut().for_each(Line::drain);
    }
}

/// A survivor that sleeps on its channel is woken by the failure.
#[test]
fn a_sleeper_hears_of_the_death() {
    let side = Side::new(Sockets::DEFAULT.on(address()));
    let memory = side.pattern(peer::MEMORY, 1);
    let mut peer = Peer::start("serve", address(), Sockets::DEFAULT, 1);
    let channel = side.ctx.create_comp_channel().unwrap();
    let cq = side.ctx.create_cq(64).on_channel(&channel).build().unwrap();
    let builder = side.pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq);
    let prepared = vec![impatient(builder).build().unwrap()];
    let ours = peer::introduce(&prepared, &memory);
    let qps = peer::connect_all(prepared, &peer.intro);
    peer.meet(&ours);
    peer.kill();
    let mut batch = qps[0].post_recv();
    batch.recv(WrId(3)).local(memory.sge(..));
    batch.ring().unwrap();
    let mut batch = qps[0].post_send();
    for id in [1, 2] {
        batch.send(WrId(id)).local(memory.sge(..100));
    }
    cq.arm(false).unwrap();
    batch.ring().unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = channel.wait_for(Duration::from_secs(60));
        assert!(event.is_some(), "no event within a minute; seen {seen:?}");
        cq.arm(false).unwrap();
        let mut poll = cq.poll();
        while let Some(wc) = poll.next() {
            seen.push((wc.wr_id().0, wc.status()));
        }
    }
    seen.sort_by_key(|(id, _)| *id);
    assert_eq!(
        seen,
        [
            (1, WcStatus::RetryExcErr),
            (2, WcStatus::WrFlushErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
}
