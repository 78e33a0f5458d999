//! Devices on a wire in memory, and on sockets that lose packets.

use crate::common::*;
use srdma_verbs::{
    Clock, DeviceConfig, FaultConfig, ManualClock, Mtu, QpState, QpType, WcOpcode, WcStatus,
    WireLink, WireMode, WrId,
};
use std::net::SocketAddr;
use std::sync::Arc;

struct Wired {
    clock: ManualClock,
    links: [Arc<WireLink>; 2],
    sides: [Side; 2],
}

fn wired() -> Wired {
    let clock = ManualClock::new();
    let addrs: [SocketAddr; 2] = ["10.0.0.1:50000", "10.0.0.2:50001"].map(|a| a.parse().unwrap());
    let links = addrs.map(|addr| WireLink::new(&[addr], 1024, false));
    let sides = [0, 1].map(|n| {
        let config = DeviceConfig::new().addr(addrs[n].ip()).background(false);
        Side::new(config.wire(Arc::clone(&links[n]), Clock::manual(&clock)))
    });
    Wired {
        clock,
        links,
        sides,
    }
}

impl Wired {
    /// Carries at most `limit` datagrams from each side to the other.
    fn carry(&self, limit: usize) -> usize {
        let mut carried = 0;
        for (from, to) in [(0, 1), (1, 0)] {
            for _ in 0..limit {
                let Some(datagram) = self.links[from].take() else {
                    break;
                };
                self.links[to].deliver(datagram);
                carried += 1;
            }
        }
        carried
    }
}

#[test]
fn time_stands_still_until_it_is_moved() {
    let w = wired();
    let [a, b] = &w.sides;
    let (qa, _qb) = connect(&a.qp(QpType::Rc).mtu(Mtu::B256), &b.qp(QpType::Rc));
    let (source, target) = (a.pattern(1000, 7), b.mr(1000));
    let mut batch = qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(target.addr(), target.rkey())
        .signaled();
    batch.ring().unwrap();
    // The first transmission is lost as a whole.
    let mut lost = 0;
    while w.links[0].take().is_some() {
        lost += 1;
    }
    assert_eq!(lost, 4);
    for _ in 0..10 {
        assert!(a.cq.poll().next().is_none());
        assert_eq!(w.carry(10), 0, "nothing is sent again before its time");
    }
    until("the retransmission", || {
        w.clock.advance(10_000_000);
        w.carry(100);
        assert!(b.cq.poll().next().is_none());
        w.carry(100);
        a.cq.poll().next().is_some_and(|wc| wc.is_ok())
    });
    assert_eq!(target.to_vec(0, 1000).unwrap(), pattern(1000, 7));
}

#[test]
fn a_receive_held_for_half_a_message_goes_back_to_its_shared_queue() {
    let w = wired();
    let [a, b] = &w.sides;
    let srq = b.pd.create_srq(8).build().unwrap();
    let (source, memory) = (a.mr(1000), b.mr(1000));
    for round in 0..40u64 {
        let (qa, qb) = connect(
            &a.qp(QpType::Rc).mtu(Mtu::B256),
            &b.qp(QpType::Rc).srq(&srq),
        );
        let mut batch = srq.post_recv();
        batch.recv(WrId(round)).local(memory.sge(..));
        batch.ring().unwrap();
        let mut batch = qa.post_send();
        batch.send(WrId(1)).local(source.sge(..));
        batch.ring().unwrap();
        assert_eq!(w.carry(1), 1, "the first of four packets");
        assert!(b.cq.poll().next().is_none());
        if round % 2 == 0 {
            qb.destroy().unwrap();
        } else {
            use srdma_verbs::QpAttr;
            qb.modify(&QpAttr::to(QpState::Reset)).unwrap();
        }
        while w.links[0].take().is_some() {}
        assert!(b.cq.poll().next().is_none(), "nobody hears of it");
        assert!(b.ctx.try_async_event().is_err());
    }
    let room = srq.query().max_wr;
    let mut batch = srq.post_recv();
    for id in 0..u64::from(room) {
        batch.recv(WrId(id)).local(memory.sge(..));
    }
    batch.ring().unwrap();
}

#[test]
fn a_program_that_ends_has_acknowledged_what_did_not_ask_for_it() {
    let w = wired();
    let [a, b] = &w.sides;
    for destroys in [true, false] {
        let [qa, qb] = [a, b].map(|side| side.qp(QpType::Rc).build().unwrap());
        let (ours, theirs) = (qa.endpoint(), qb.endpoint());
        // Only a process of our kind says how much its socket holds; a wire is none.
        let theirs = serde_json::to_string(&theirs).unwrap();
        let theirs = theirs.replace(r#""rx_buffer":0"#, r#""rx_buffer":65536"#);
        let theirs = serde_json::from_str(&theirs).unwrap();
        let (qa, qb) = (qa.connect(&theirs), qb.connect(&ours));
        let (qa, qb) = (qa.unwrap(), qb.unwrap());
        let (source, memory) = (a.mr(64), b.mr(64));
        // The first one is asked for, since nothing is measured yet; the second is not.
        for (id, signaled) in [(1, true), (2, false)] {
            let mut batch = qb.post_recv();
            batch.recv(WrId(id)).local(memory.sge(..));
            batch.ring().unwrap();
            let mut batch = qa.post_send();
            let wr = batch.send(WrId(id)).local(source.sge(..));
            drop(if signaled { wr.signaled() } else { wr });
            batch.ring().unwrap();
            w.clock.advance(1000);
            w.carry(10);
            assert!(b.cq.poll().next().is_some_and(|wc| wc.is_ok()));
            let answers = w.carry(10);
            assert_eq!(answers, usize::from(signaled));
            assert_eq!(a.cq.poll().next().is_some(), signaled);
        }
        // The end of the queue pair, or the last call of a program that leaves it as it is.
        if destroys {
            qb.destroy().unwrap();
        } else {
            assert!(b.ctx.drive());
        }
        assert_eq!(w.carry(10), 1, "acknowledged first; destroyed: {destroys}");
        w.clock.advance(1_000_000_000);
        assert!(a.cq.poll().next().is_none());
        assert_eq!(w.carry(10), 0, "nothing to ask for");
    }
}

#[test]
fn a_network_that_loses_and_damages_costs_only_time() {
    for seed in 1..=3 {
        println!("seed {seed}");
        let fault = FaultConfig {
            loss: 0.02,
            duplicate: 0.02,
            reorder: 0.02,
            corrupt: 0.01,
            seed,
            ..FaultConfig::default()
        };
        let (a, b) = (
            Side::new(config().fault(fault.clone())),
            Side::new(config().fault(fault)),
        );
        let (qa, qb) = connect(
            &a.qp(QpType::Rc).timeout(13).mtu(Mtu::B1024),
            &b.qp(QpType::Rc).timeout(13),
        );
        let source = a.pattern(40_000, 5);
        let (target, inbox) = (b.mr(40_000), b.mr(40_000));
        let back = a.mr(40_000);
        for round in 0..40u64 {
            let len = 1 + (round as usize * 997) % 40_000;
            let mut batch = qb.post_recv();
            batch.recv(WrId(round)).local(inbox.sge(..));
            batch.ring().unwrap();
            let mut batch = qa.post_send();
            let (addr, rkey) = (target.addr(), target.rkey());
            batch
                .write(WrId(1))
                .local(source.sge(..len))
                .remote(addr, rkey);
            batch.send(WrId(2)).local(source.sge(..len));
            batch
                .read(WrId(3))
                .local(back.sge(..len))
                .remote(addr, rkey)
                .signaled();
            batch.ring().unwrap();
            let wc = loop {
                if let Some(wc) = a.cq.poll().next() {
                    break wc.to_completion();
                }
                let _ = b.ctx.try_async_event();
            };
            assert_eq!(
                (wc.status(), wc.opcode()),
                (WcStatus::Success, WcOpcode::RdmaRead)
            );
            assert_eq!(done(&b.cq).byte_len() as usize, len);
            for memory in [&target, &inbox, &back] {
                assert_eq!(memory.to_vec(0, len).unwrap(), pattern(40_000, 5)[..len]);
            }
        }
    }
}

#[test]
fn on_a_plain_wire_an_endpoint_tells_nothing_more() {
    // proves: wire-1
    for (mode, plain) in [(WireMode::Own, false), (WireMode::Plain, true)] {
        let a = Side::new(config().wire_mode(mode));
        let b = Side::new(config());
        let prepared = a.qp(QpType::Rc).build().unwrap();
        let said = serde_json::to_string(&prepared.endpoint()).unwrap();
        assert_eq!(said.contains(r#""rx_buffer":0"#), plain, "{said}");
        drop(prepared);
        let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
        for (from, to, cq) in [(&qa, &qb, &b.cq), (&qb, &qa, &a.cq)] {
            receive(to, 1);
            send(from, 2);
            done(cq);
        }
    }
}
