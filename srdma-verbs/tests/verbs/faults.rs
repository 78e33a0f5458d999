//! Faults on purpose: the network's are survived, the device's are what programs are told of.

use crate::common::*;
use core::time::Duration;
use srdma_core::hw::AeCode;
use srdma_verbs::{
    AsyncKind, Context, DeviceFault, FaultConfig, Injection, QpState, QpType, WcStatus, WrId,
};

/// Two connected sides, the first with these rules.
fn pair_under(rules: &str) -> Pair {
    let a = Side::new(config().fault(rules.parse::<FaultConfig>().unwrap()));
    let b = Side::new(config());
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    Pair { a, b, qa, qb }
}

/// `count` messages from `b` to `a`, each different.
fn messages(p: &Pair, count: u64, len: usize) {
    for n in 0..count {
        let (source, target) = (p.b.pattern(len, n as u8), p.a.mr(len));
        let mut batch = p.qa.post_recv();
        batch.recv(WrId(n)).local(target.sge(..));
        batch.ring().unwrap();
        let mut batch = p.qb.post_send();
        batch.send(WrId(n)).local(source.sge(..)).signaled();
        batch.ring().unwrap();
        done(&p.b.cq);
        done(&p.a.cq);
        assert_eq!(target.to_vec(0, len).unwrap(), pattern(len, n as u8));
    }
}

fn counter(ctx: &Context, name: &str) -> u64 {
    ctx.counters().named(name).unwrap()
}

/// The next asynchronous event, letting the device run.
fn event(ctx: &Context) -> AsyncKind {
    let mut kind = None;
    until("an asynchronous event", || {
        kind = ctx.try_async_event().ok().map(|event| event.kind());
        kind.is_some()
    });
    kind.unwrap()
}

#[test]
fn what_a_network_does_to_both_directions_is_survived() {
    let rules = "seed=11; drop 5%; duplicate 5%; corrupt 3%; reorder=200us 5%; \
                 out drop 5%; out duplicate 5%; out corrupt 3%; out reorder=200us 5%; \
                 out drop nth=1; drop nth=2";
    let p = pair_under(rules);
    messages(&p, 20, 20_000);
    assert!(counter(&p.b.ctx, "retransmitted_pkts") > 0);
    let out = FaultConfig::default();
    p.a.ctx.set_faults(Some(&out));
    // Under the rules hardly ten messages pass without; in a good network some may be asked for
    // twice all the same, if the processor is crowded.
    let mut passes = (0..20).map(|_| {
        let before = counter(&p.b.ctx, "retransmitted_pkts");
        messages(&p, 5, 100);
        counter(&p.b.ctx, "retransmitted_pkts") == before
    });
    assert!(passes.any(|good| good), "good again");
}

#[test]
fn what_waits_for_its_turn_stays_where_it_came_in() {
    // proves: ieq-2
    const LEN: usize = 1 << 20;
    const PART: usize = LEN / 64;
    let p = pair_under("delay=50ms nth=3 op=RC_WRITE_MIDDLE");
    let (source, target) = (p.b.pattern(LEN, 5), p.a.mr(LEN));
    for _ in 0..3 {
        // Messages behind the one with the hole cannot begin before their turn.
        let mut batch = p.qb.post_send();
        for from in (0..LEN).step_by(PART) {
            let part = source.sge(from..from + PART);
            let write = batch.write(WrId(from as u64)).local(part);
            let write = write.remote(target.addr() + from as u64, target.rkey());
            if from + PART == LEN {
                write.signaled();
            }
        }
        batch.ring().unwrap();
        done(&p.b.cq);
        assert!(target.to_vec(0, LEN).unwrap() == pattern(LEN, 5));
        target.write(0, &vec![0; LEN]).unwrap();
    }
    assert!(counter(&p.a.ctx, "ieq_out_of_order") > 0);
    let counters = p.a.ctx.link_counters();
    let kept = counters
        .iter()
        .filter(|(name, _)| name.ends_with("_rx_kept"));
    assert!(kept.map(|(_, kept)| kept).sum::<u64>() > 0, "{counters:?}");
}

#[test]
fn a_missing_receive_is_asked_for_again() {
    let p = pair_under("rnr nth=2 op=RC_SEND*");
    messages(&p, 3, 64);
    assert_eq!(counter(&p.a.ctx, "send_rnr_err"), 1);
    assert_eq!(counter(&p.b.ctx, "rcvd_rnr_err"), 1);
}

#[test]
fn a_device_that_stands_still_or_is_cut_off_comes_back() {
    let p = pair_under("stall=20ms nth=3; port-down=20ms nth=20");
    messages(&p, 30, 64);
    p.a.ctx
        .disturb(DeviceFault::PortDown(Duration::from_millis(10)));
    messages(&p, 2, 64);
}

#[test]
fn events_of_a_queue_pair_come_as_codes_say() {
    let p = pair_under("ae=AMP_BOUNDS_VIOLATION nth=2 op=RC_SEND_ONLY");
    messages(&p, 1, 64);
    send(&p.qb, 1);
    assert_eq!(event(&p.a.ctx), AsyncKind::QpAccessErr);
    until("the queue pair is in error", || {
        p.qa.state() == QpState::Err
    });
    let qpn = p.qb.qp_num();
    let code = AeCode::LLP_CONNECTION_ESTABLISHED;
    assert!(p.b.ctx.inject(Injection::Async { qpn, code }));
    assert_eq!(event(&p.b.ctx), AsyncKind::CommEst);
    assert_ne!(p.qb.state(), QpState::Err, "this one is harmless");
    let nobody = srdma_core::num::Qpn::new(0xff_fff0);
    assert!(!p.b.ctx.inject(Injection::NotReady(nobody)));
}

#[test]
fn a_queue_that_overruns_takes_its_queue_pairs_along() {
    let p = pair_under("cq-overflow nth=1 op=RC_SEND_ONLY");
    send(&p.qb, 1);
    assert_eq!(event(&p.a.ctx), AsyncKind::CqErr);
    assert_eq!(event(&p.a.ctx), AsyncKind::QpFatal);
    assert!(
        !p.a.ctx.inject(Injection::RecvCqOverflow(p.qa.qp_num())),
        "only once"
    );
}

#[test]
fn a_device_that_fails_says_so_and_flushes() {
    let p = pair(QpType::Rc);
    receive(&p.qa, 7);
    // proves: event-55
    assert!(p.a.ctx.inject(Injection::DeviceFatal));
    assert_eq!(event(&p.a.ctx), AsyncKind::DeviceFatal);
    let completion = next(&p.a.cq);
    assert_eq!(
        (completion.status(), completion.wr_id()),
        (WcStatus::WrFlushErr, WrId(7))
    );
}
