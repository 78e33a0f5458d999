//! Failures: their completions on both sides, flush order, states, wrong calls.

use crate::common::*;
use srdma_verbs::{
    Access, Ah, AttrError, AttrMask, Completion, Mr, Mtu, Path, Psn, Qp, QpAttr, QpState, QpType,
    Reason, Rkey, Sge, WcStatus, WrId,
};
use std::sync::atomic::{AtomicBool, Ordering};

fn statuses(count: usize, mut next: impl FnMut() -> Completion) -> Vec<(u64, WcStatus)> {
    (0..count)
        .map(|_| next())
        .map(|wc| (wc.wr_id().0, wc.status()))
        .collect()
}

#[test]
fn a_bad_key_fails_first_and_the_rest_is_flushed_in_order() {
    // proves: roce-133
    let p = pair(QpType::Rc);
    let (source, target) = (p.a.pattern(100, 1), p.b.mr(100));
    let mut batch = p.qa.post_recv();
    for id in 50..53 {
        batch.recv(WrId(id)).local(source.sge(..));
    }
    batch.ring().unwrap();
    let mut batch = p.qa.post_send();
    let addr = target.addr();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(addr, target.rkey());
    batch
        .write(WrId(2))
        .local(source.sge(..))
        .remote(addr, Rkey(target.rkey().value() ^ 1));
    batch
        .write(WrId(3))
        .local(source.sge(..))
        .remote(addr, target.rkey());
    batch
        .write(WrId(4))
        .local(source.sge(..))
        .remote(addr, target.rkey())
        .signaled();
    batch.ring().unwrap();
    let mut all = statuses(6, || next(&p.a.cq));
    let receives: Vec<_> = all.extract_if(.., |(id, _)| *id >= 50).collect();
    assert_eq!(
        all,
        [
            (2, WcStatus::RemAccessErr),
            (3, WcStatus::WrFlushErr),
            (4, WcStatus::WrFlushErr)
        ]
    );
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(receives, [(50, flushed), (51, flushed), (52, flushed)]);
    assert_eq!(p.qa.state(), QpState::Err);
    until("the peer fails too", || p.qb.state() == QpState::Err);
    assert_eq!(
        target.to_vec(0, 100).unwrap(),
        pattern(100, 1),
        "the first one was carried out"
    );
}

#[test]
fn local_faults_name_the_request() {
    let p = pair(QpType::Rc);
    let (source, target) = (p.a.mr(100), p.b.mr(100));
    let beyond = Sge {
        len: 101,
        ..source.sge(..)
    };
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(8))
        .local(beyond)
        .remote(target.addr(), target.rkey());
    batch.ring().unwrap();
    let wc = next(&p.a.cq);
    assert_eq!((wc.wr_id(), wc.status()), (WrId(8), WcStatus::LocProtErr));
    assert_ne!(wc.vendor_err(), 0);
}

#[test]
fn what_is_posted_after_the_failure_is_flushed_too() {
    let p = pair(QpType::Rc);
    let memory = p.a.mr(64);
    p.qa.modify(&QpAttr::to(QpState::Err)).unwrap();
    for round in 0..3 {
        let mut batch = p.qa.post_send();
        batch.send(WrId(10 * round)).inline(b"x");
        batch.send(WrId(10 * round + 1)).inline(b"y").signaled();
        batch.ring().unwrap();
        assert_flushed(&p.a.cq, &[10 * round, 10 * round + 1]);
        let mut batch = p.qa.post_recv();
        batch.recv(WrId(10 * round + 2)).local(memory.sge(..));
        batch.recv(WrId(10 * round + 3)).local(memory.sge(..));
        batch.ring().unwrap();
        assert_flushed(&p.a.cq, &[10 * round + 2, 10 * round + 3]);
    }
    assert_quiet(&p.a.cq);
}

#[test]
fn reset_forgets_and_the_queue_pair_lives_again() {
    // proves: roce-131
    let a = Side::new(config());
    let b = Side::new(config());
    let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    let target = b.mr(64);
    for round in 0..3u8 {
        for qp in [&qa, &qb] {
            qp.modify(&QpAttr::to(QpState::Err)).unwrap();
            let mut batch = qp.post_recv();
            batch.recv(WrId(1)).local(target.sge(..));
            let _ = batch.ring();
            qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
            assert_eq!(qp.state(), QpState::Reset);
            let mut batch = qp.post_recv();
            batch.recv(WrId(2));
            // proves: roce-132
            assert!(matches!(
                batch.ring().unwrap_err().reason(),
                Reason::State(QpState::Reset)
            ));
        }
        assert_quiet(&a.cq);
        assert_quiet(&b.cq);
        let psns = [Psn::new(100 + u32::from(round)), Psn::new(0xff_ffff)];
        for (qp, other, mine, theirs, side) in [
            (&qa, &qb, psns[0], psns[1], &b),
            (&qb, &qa, psns[1], psns[0], &a),
        ] {
            let gid = side.ctx.query_gid(1, 0).unwrap();
            let init = QpAttr::to(QpState::Init)
                .pkey_index(0)
                .port(1)
                .access(Access::REMOTE);
            qp.modify(&init).unwrap();
            let rtr = QpAttr::to(QpState::Rtr)
                .path(Path::new(gid, 0))
                .path_mtu(Mtu::B1024)
                .dest_qp(other.qp_num())
                .rq_psn(theirs)
                .max_dest_rd_atomic(4)
                .min_rnr_timer(1);
            qp.modify(&rtr).unwrap();
            let rts = QpAttr::to(QpState::Rts)
                .timeout(14)
                .retry_cnt(7)
                .rnr_retry(7)
                .sq_psn(mine)
                .max_rd_atomic(4);
            qp.modify(&rts).unwrap();
            assert_eq!(qp.query().used_path_mtu(), Mtu::B1024);
        }
        let source = a.pattern(5000, round);
        let sink = b.mr(5000);
        let mut batch = qa.post_send();
        batch
            .write(WrId(9))
            .local(source.sge(..))
            .remote(sink.addr(), sink.rkey())
            .signaled();
        batch.ring().unwrap();
        assert_eq!(done(&a.cq).wr_id(), WrId(9));
        assert_eq!(sink.to_vec(0, 5000).unwrap(), pattern(5000, round));
    }
}

#[test]
fn modify_names_missing_and_extra_attributes() {
    // proves: roce-129
    // proves: roce-130
    let a = Side::new(config());
    let qp = a.qp(QpType::Rc).build_reset().unwrap();
    let attributes = |attr: &QpAttr| match qp.modify(attr).unwrap_err().reason() {
        Reason::Attr(AttrError::Attributes { missing, extra, .. }) => (*missing, *extra),
        other => panic!("{other}"),
    };
    let none = AttrMask::NONE;
    let init = QpAttr::to(QpState::Init).pkey_index(0);
    assert_eq!(
        attributes(&init),
        (AttrMask::PORT | AttrMask::ACCESS_FLAGS, none)
    );
    let init = init.port(1).access(Access::REMOTE_READ);
    assert_eq!(attributes(&init.timeout(1)), (none, AttrMask::TIMEOUT));
    assert_eq!(qp.state(), QpState::Reset);
    qp.modify(&init).unwrap();
    let error = qp.modify(&QpAttr::to(QpState::Rts)).unwrap_err();
    assert!(matches!(
        error.reason(),
        Reason::Attr(AttrError::NoTransition { .. })
    ));
    assert_eq!(
        error.to_string(),
        "modify_qp: a RC queue pair does not go from INIT to RTS"
    );
    assert_eq!((error.verb(), error.errno()), ("modify_qp", libc::EINVAL));
    assert_eq!(qp.state(), QpState::Init);
    assert_eq!(qp.query().allowed_access(), Access::REMOTE_READ);
}

#[test]
fn batches_that_cannot_be_written_post_nothing() {
    let p = pair(QpType::Rc);
    let memory = p.a.mr(64);
    let mut batch = p.qa.post_send();
    batch.nop(WrId(1)).signaled();
    batch.write(WrId(2)).inline(&[0; 102]).remote(0, Rkey(0));
    let error = batch.ring().unwrap_err();
    assert!(matches!(error.reason(), Reason::Range { .. }), "{error}");
    let mut batch = p.qa.post_send();
    batch.nop(WrId(3)).signaled();
    batch.write(WrId(4)).local(memory.sge(..));
    assert!(matches!(
        batch.ring().unwrap_err().reason(),
        Reason::IncompleteWr
    ));
    let mut batch = p.qa.post_send();
    for _ in 0..5 {
        batch.nop(WrId(5)).signaled();
    }
    drop(batch);
    assert_quiet(&p.a.cq);
    let mut batch = p.qa.post_send();
    batch.nop(WrId(6)).signaled();
    batch.send(WrId(7)).locals(vec![memory.sge(..); 9]);
    let (posted, error) = batch.ring_valid();
    assert!(posted == 1 && error.is_err());
    assert_eq!(done(&p.a.cq).wr_id(), WrId(6));
    assert_quiet(&p.a.cq);

    let mut full = p.qa.post_send();
    for id in 0..10_000 {
        full.nop(WrId(id));
    }
    let (posted, error) = full.ring_valid();
    assert!(matches!(error.unwrap_err().reason(), Reason::Full));
    assert!(posted >= p.qa.caps().max_send_wr as usize, "{posted}");
}

#[test]
fn a_short_receive_fails_on_both_sides() {
    let p = pair(QpType::Rc);
    let memory = p.b.mr(64);
    let mut batch = p.qb.post_recv();
    batch.recv(WrId(1)).local(memory.sge(0..10));
    batch.recv(WrId(2)).local(memory.sge(..));
    batch.ring().unwrap();
    let mut batch = p.qa.post_send();
    batch.send(WrId(3)).inline(b"eleven bytes").signaled();
    batch.ring().unwrap();
    assert_eq!(
        statuses(2, || next(&p.b.cq)),
        [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]
    );
    assert_eq!(next(&p.a.cq).status(), WcStatus::RemInvReqErr);
    assert!(
        p.b.ctx.try_async_event().is_err(),
        "the completion said it all"
    );
}

#[test]
fn nobody_answers_a_peer_that_is_gone() {
    let p = pair(QpType::Rc);
    let (a, b) = (p.a, p.b);
    p.qa.destroy().unwrap();
    let (qa, qb) = connect(&a.qp(QpType::Rc).timeout(4).retry_cnt(2), &b.qp(QpType::Rc));
    qb.destroy().unwrap();
    let mut batch = qa.post_send();
    batch.send(WrId(1)).inline(b"hello").signaled();
    batch.send(WrId(2)).inline(b"hello");
    batch.ring().unwrap();
    assert_eq!(
        statuses(2, || next(&a.cq)),
        [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]
    );
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_sender() {
    let a = Side::new(config());
    let b = Side::new(config());
    let (qa, qb) = connect(
        &a.qp(QpType::Rc).rnr_retry(2),
        &b.qp(QpType::Rc).min_rnr_timer(1),
    );
    let mut batch = qa.post_send();
    batch.send(WrId(1)).inline(b"hello").signaled();
    batch.ring().unwrap();
    let wc = loop {
        let _ = b.cq.poll().next();
        if let Some(wc) = a.cq.poll().next() {
            break wc.to_completion();
        }
    };
    assert_eq!(wc.status(), WcStatus::RnrRetryExcErr);
    assert_eq!(qb.state(), QpState::Rts);
}

#[test]
fn sends_wait_for_a_queue_pair_that_may_send() {
    // proves: roce-80
    let a = Side::new(config());
    let qp = a.qp(QpType::Ud).build_reset().unwrap();
    let refuses = |state: QpState| {
        assert_eq!(qp.state(), state);
        let mut batch = qp.post_send();
        batch.nop(WrId(1)).signaled();
        let error = batch.ring().unwrap_err();
        assert!(matches!(error.reason(), Reason::State(found) if *found == state));
    };
    refuses(QpState::Reset);
    let init = QpAttr::to(QpState::Init).pkey_index(0).port(1);
    qp.modify(&init.qkey(srdma_verbs::Qkey(5))).unwrap();
    refuses(QpState::Init);
    qp.modify(&QpAttr::to(QpState::Rtr)).unwrap();
    refuses(QpState::Rtr);
    qp.modify(&QpAttr::to(QpState::Rts).sq_psn(Psn::new(1)))
        .unwrap();
    let mut batch = qp.post_send();
    batch.nop(WrId(2)).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&a.cq).wr_id(), WrId(2));
    qp.modify(&QpAttr::to(QpState::Err)).unwrap();
    let mut batch = qp.post_send();
    batch.nop(WrId(3));
    batch.ring().unwrap();
    assert_flushed(&a.cq, &[3]);
}

const KEY: srdma_verbs::Qkey = srdma_verbs::Qkey(5);

/// A queue pair that sends datagrams to itself, memory, and the same with a key that is none.
fn datagrams() -> (Side, Qp, Ah, Mr, Sge) {
    let a = Side::new(config());
    let qp = a.qp(QpType::Ud).build().unwrap().activate_ud(KEY).unwrap();
    let to = Path::new(a.ctx.query_gid(1, 0).unwrap(), 0);
    let ah = a.pd.create_ah(to).unwrap();
    let memory = a.mr(64);
    let bad = Sge {
        lkey: srdma_verbs::Lkey(memory.lkey().value() ^ 1),
        ..memory.sge(..)
    };
    (a, qp, ah, memory, bad)
}

#[test]
fn a_datagram_queue_pair_recovers_from_a_local_error() {
    // proves: roce-82
    let (a, qp, ah, memory, bad) = datagrams();
    let key = KEY;
    let mut batch = qp.post_recv();
    batch.recv(WrId(9)).local(memory.sge(..));
    batch.ring().unwrap();
    let mut batch = qp.post_send();
    batch.send(WrId(1)).local(bad).to(&ah, qp.qp_num(), key);
    batch.send(WrId(2)).inline(b"x").to(&ah, qp.qp_num(), key);
    batch.ring().unwrap();
    let first = next(&a.cq);
    assert_eq!(first.status(), WcStatus::LocProtErr);
    assert_flushed(&a.cq, &[2]);
    assert_eq!(qp.state(), QpState::Sqe);
    qp.modify(&QpAttr::to(QpState::Rts)).unwrap();
    let mut batch = qp.post_send();
    batch
        .send(WrId(3))
        .inline(b"again")
        .to(&ah, qp.qp_num(), key)
        .signaled();
    batch.ring().unwrap();
    let mut ids = [done(&a.cq).wr_id().0, done(&a.cq).wr_id().0];
    ids.sort_unstable();
    assert_eq!(
        ids,
        [3, 9],
        "sent, and received by the queue that never stopped"
    );
}

#[test]
fn whoever_saw_a_failed_completion_finds_the_state_that_goes_with_it() {
    let (a, qp, ah, _memory, bad) = datagrams();
    let key = KEY;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Drives the device, so that the completion comes while another thread is in the pass.
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                a.ctx.drive();
            }
        });
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..2000 {
                let mut batch = qp.post_send();
                batch.send(WrId(round)).local(bad).to(&ah, qp.qp_num(), key);
                batch.ring().unwrap();
                assert_eq!(next(&a.cq).status(), WcStatus::LocProtErr);
                assert_eq!(qp.state(), QpState::Sqe, "round {round}");
                qp.modify(&QpAttr::to(QpState::Rts)).unwrap();
            }
        }));
        ended.store(true, Ordering::Relaxed);
        rounds.unwrap();
    });
}
