//! What programs see does not depend on whether packets cross shared memory.
//!
//! All tests of this program but those that compare dialects run once more with
//! `SRDMA_WIRE=bridge`.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{Path, Qkey, QpType, WcOpcode, WireMode, WrId};

const VARIABLE: &str = "SRDMA_WIRE";

#[test]
// proves: bridge-1
fn everything_passes_over_the_bridge() {
    if std::env::var_os(VARIABLE).is_some() {
        // This is the child, or whoever runs the tests has chosen.
        return;
    }
    again(&[(VARIABLE, "bridge")]);
}

fn on_the_bridge() -> Side {
    Side::new(config().wire_mode(WireMode::Bridge))
}

fn counter(side: &Side, name: &str) -> u64 {
    let counters = side.ctx.link_counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.map_or(0, |(_, value)| *value)
}

/// A message each way, and a long WRITE and READ.
fn talk(a: &Side, b: &Side) {
    const LEN: usize = 300_000;
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    for (from, to, cq) in [(&qa, &qb, &b.cq), (&qb, &qa, &a.cq)] {
        receive(to, 1);
        send(from, 2);
        let mut seen = [
            done(cq).opcode(),
            done(if cq == &a.cq { &b.cq } else { &a.cq }).opcode(),
        ];
        seen.sort_by_key(|opcode| *opcode != WcOpcode::Recv);
        assert_eq!(seen, [WcOpcode::Recv, WcOpcode::Send]);
    }
    let (source, target, back) = (a.pattern(LEN, 9), b.mr(LEN), a.mr(LEN));
    write(&qa, 3, &source, &target);
    let mut batch = qa.post_send();
    let read = batch.read(WrId(4)).local(back.sge(..));
    let _ = read.remote(target.addr(), target.rkey()).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&a.cq).wr_id(), WrId(4));
    assert!(back.to_vec(0, LEN).unwrap() == pattern(LEN, 9));
}

#[test]
fn both_cross_if_both_want_to() {
    // proves: bridge-1
    let (a, b) = (on_the_bridge(), on_the_bridge());
    talk(&a, &b);
    for side in [&a, &b] {
        let crossed = counter(side, "bridge_tx_packets");
        assert!(crossed > 70, "{crossed} packets crossed");
        assert!(counter(side, "bridge_rx_records") > 0);
        // Those before the other was found.
        assert!(counter(side, "socket_tx_packets") < 5);
    }
}

#[test]
fn one_that_does_not_want_to_is_reached_by_socket() {
    // proves: bridge-2
    for mode in [WireMode::Own, WireMode::Plain] {
        let (a, b) = (on_the_bridge(), Side::new(config().wire_mode(mode)));
        talk(&a, &b);
        assert_eq!(counter(&a, "bridge_tx_packets"), 0, "{mode:?}");
        assert!(counter(&a, "socket_tx_packets") > 70);
        assert_eq!(counter(&b, "bridge_tx_packets"), 0);
    }
}

#[test]
fn a_sleeper_hears_of_every_datagram() {
    // proves: bridge-4
    // Nobody sends a datagram again, so one that wakes nobody is missing for good.
    const KEY: Qkey = Qkey(7);
    let (a, b) = (on_the_bridge(), on_the_bridge());
    let channel = b.ctx.create_comp_channel().unwrap();
    let cq = b.ctx.create_cq(64).on_channel(&channel).build().unwrap();
    let qa = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let qb = b.qp(QpType::Ud).recv_cq(&cq).build().unwrap();
    let qb = qb.activate_ud(KEY).unwrap();
    let to = b.ctx.query_gid(1, 0).unwrap();
    let ah = a.pd.create_ah(Path::new(to, 0)).unwrap();
    let area = b.mr(40);
    for round in 0..5000 {
        let mut batch = qb.post_recv();
        batch.recv(WrId(round)).local(area.sge(..));
        batch.ring().unwrap();
        cq.arm(false).unwrap();
        // Before, while or after the device falls asleep.
        for _ in 0..round * 37 % 3000 {
            std::hint::spin_loop();
        }
        let mut batch = qa.post_send();
        batch.send(WrId(1)).to(&ah, qb.qp_num(), KEY).signaled();
        batch.ring().unwrap();
        let event = channel.wait_for(Duration::from_secs(60));
        assert_eq!(event.unwrap().cq(), &cq, "round {round}");
        assert_eq!(done(&cq).wr_id(), WrId(round));
        done(&a.cq);
    }
    assert!(counter(&a, "bridge_tx_knocks") > 0, "it slept");
}
