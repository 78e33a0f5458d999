//! Arming by the program: what meets it, what is there already, and the three models of a device.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{Access, ArmModel, Cq, DeviceConfig, Qp, QpAttr, QpState, QpType, Reason, WrId};

/// `b`, a device of some model, receives into a queue with a channel, and sends from another.
fn watched_by(config: DeviceConfig) -> Watched {
    watched(Side::new(config), 0)
}

#[test]
fn an_arm_without_a_poll_between_is_an_arm() {
    // proves: event-21
    let t = watched_by(config());
    t.cq.arm(false).unwrap();
    for _ in 0..4 {
        t.message();
        t.event();
        t.no_event();
        t.cq.arm(false).unwrap();
        t.no_event();
    }
    assert_eq!(t.cq.pending(), 4);
}

#[test]
fn successful_sends_do_not_meet_a_solicited_arm_and_failed_ones_do() {
    // proves: event-10, event-12
    let (a, b) = (Side::new(config()), Side::new(config()));
    let channel = a.ctx.create_comp_channel().unwrap();
    let cq = a.ctx.create_cq(64).on_channel(&channel).build().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc).send_cq(&cq), &b.qp(QpType::Rc));
    let send = |qp: &Qp| {
        let mut batch = qp.post_send();
        batch.send(WrId(2)).signaled().solicited();
        batch.ring().unwrap();
    };
    receive(&qb, 1);
    cq.arm(true).unwrap();
    send(&qa);
    done(&cq);
    assert!(channel.try_get().unwrap_err().is_would_block());
    // A WRITE into memory that the peer does not give: the NAK completes it in error.
    let (source, target) = (a.mr(8), b.pd.register(vec![0; 8], Access::LOCAL_WRITE));
    let target = target.unwrap();
    write(&qa, 3, &source, &target);
    let event = channel.wait_for(Duration::from_secs(60));
    assert_eq!(event.unwrap().cq(), &cq);
    assert!(!next(&cq).is_ok());
}

#[test]
fn a_queue_without_a_channel_may_be_armed() {
    // proves: event-25
    let t = watched_by(config());
    t.b.cq.arm(false).unwrap();
    t.b.cq.arm(true).unwrap();
    send(&t.qb, 1);
    t.qb.modify(&QpAttr::to(QpState::Err)).unwrap();
    until("the flush", || t.b.cq.pending() != 0);
    t.no_event();
}

#[test]
fn a_completion_vector_that_is_not_there_is_refused() {
    // proves: event-26
    let side = Side::new(config());
    let vectors = side.ctx.query_device().comp_vectors;
    for vector in [0, vectors - 1] {
        assert!(side.ctx.create_cq(4).comp_vector(vector).build().is_ok());
    }
    for vector in [vectors, u16::MAX] {
        let refused = side.ctx.create_cq(4).comp_vector(vector).build();
        let error = refused.unwrap_err();
        assert!(matches!(error.reason(), Reason::Range { .. }), "{error}");
    }
}

#[test]
fn a_strict_device_says_nothing_of_what_is_there() {
    let t = watched_by(config().arm_model(ArmModel::Strict));
    t.message();
    t.cq.arm(false).unwrap();
    t.no_event();
    assert_eq!(t.b.ctx.counters().arms_missed, 0);
    done(&t.cq);
    t.message();
    t.event();
}

#[test]
fn a_comparing_device_tells_at_once_and_once() {
    let t = watched_by(config().arm_model(ArmModel::Compare));
    t.message();
    t.cq.arm(true).unwrap();
    t.no_event();
    t.cq.arm(false).unwrap();
    t.event();
    t.cq.arm(false).unwrap();
    t.no_event();
    done(&t.cq);
}

#[test]
fn a_reporting_device_counts_what_was_missed() {
    let t = watched_by(config().arm_model(ArmModel::Report));
    t.message();
    t.cq.arm(false).unwrap();
    t.no_event();
    assert_eq!(t.b.ctx.counters().arms_missed, 1);
    done(&t.cq);
    t.cq.arm(false).unwrap();
    assert_eq!(t.b.ctx.counters().arms_missed, 1);
}

/// Queues with events under way are destroyed while another one on the same vector goes on.
#[test]
fn queues_that_come_and_go_disturb_nobody() {
    // proves: event-76, event-77
    use std::sync::atomic::{AtomicBool, Ordering};
    const COMERS: u32 = 200;
    let (a, b) = (Side::new(config()), Side::new(config()));
    let over = AtomicBool::new(false);
    let watch = |qps: (&Qp, &Qp), own: &Cq, cq: &Cq| {
        cq.arm(false).unwrap();
        receive(qps.1, 1);
        send(qps.0, 2);
        done(own);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let own = a.ctx.create_cq(16).build().unwrap();
            for comer in 0..COMERS {
                let channel = b.ctx.create_comp_channel().unwrap();
                let cq = b.ctx.create_cq(16).on_channel(&channel).build().unwrap();
                let (qa, qb) = connect(
                    &a.qp(QpType::Rc).send_cq(&own),
                    &b.qp(QpType::Rc).recv_cq(&cq),
                );
                watch((&qa, &qb), &own, &cq);
                if comer % 2 == 0 {
                    drop(channel.wait());
                }
                qb.destroy().unwrap();
                cq.destroy().unwrap();
                assert!(channel.try_get().is_err(), "nobody hears of the dead");
                qa.destroy().unwrap();
            }
            over.store(true, Ordering::SeqCst);
        });
        let channel = b.ctx.create_comp_channel().unwrap();
        let cq = b.ctx.create_cq(16).on_channel(&channel).build().unwrap();
        let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).recv_cq(&cq));
        while !over.load(Ordering::SeqCst) {
            watch((&qa, &qb), &a.cq, &cq);
            let event = channel.wait_for(Duration::from_secs(60));
            assert_eq!(event.unwrap().cq(), &cq);
            done(&cq);
        }
    });
}
