//! XRC: domains and their files, initiators, targets and their handles, shared receive queues.

use crate::common::*;
use core::time::Duration;
use srdma_verbs::{
    AsyncKind, Context, Cq, Element, Pd, Qp, QpAttr, QpState, QpType, Reason, Srq, SrqId, WcOpcode,
    WcStatus, WrId, Xrcd, XrcdOpen,
};
use std::os::fd::AsFd;

/// A domain on `b` with one XRC queue of `b`'s protection domain, and a connection to a target.
struct Xrc {
    a: Side,
    b: Side,
    xrcd: Xrcd,
    srq: Srq,
    srq_cq: Cq,
    initiator: Qp,
    target: Qp,
}

fn xrc() -> Xrc {
    let (a, b) = sides();
    let xrcd = b.ctx.open_xrcd().unwrap();
    let srq_cq = b.ctx.create_cq(64).build().unwrap();
    let srq = xrc_srq(&b.pd, &xrcd, &srq_cq);
    let (initiator, target) = join(&a, &xrcd);
    Xrc {
        a,
        b,
        xrcd,
        srq,
        srq_cq,
        initiator,
        target,
    }
}

fn xrc_srq(pd: &Pd, xrcd: &Xrcd, cq: &Cq) -> Srq {
    pd.create_srq(16).xrcd(xrcd).cq(cq).build().unwrap()
}

fn join(a: &Side, xrcd: &Xrcd) -> (Qp, Qp) {
    let initiator = a.pd.create_qp(QpType::XrcSend).send_cq(&a.cq);
    connect(&initiator, &xrcd.create_qp())
}

fn send(qp: &Qp, srq: SrqId, id: u64, bytes: &[u8]) {
    let mut batch = qp.post_send();
    batch.send(WrId(id)).inline(bytes).xrc_srqn(srq).signaled();
    batch.ring().unwrap();
}

#[test]
fn every_operation_works() {
    // proves: xrc-4, xrc-5, xrc-7
    let x = xrc();
    let (source, target) = (x.a.pattern(30_000, 3), x.b.mr(60_000));
    let mut batch = x.srq.post_recv();
    batch.recv(WrId(1)).local(target.sge(0..30_000));
    batch.recv(WrId(2));
    batch.ring().unwrap();
    let srqn = x.srq.id();
    let there = target.addr() + 30_000;
    let mut batch = x.initiator.post_send();
    batch
        .send_imm(WrId(10), 77)
        .local(source.sge(..))
        .xrc_srqn(srqn)
        .signaled();
    batch
        .write_imm(WrId(11), 78)
        .local(source.sge(..))
        .remote(there, target.rkey())
        .xrc_srqn(srqn)
        .signaled();
    batch.ring().unwrap();
    assert_eq!(done(&x.a.cq).wr_id(), WrId(10));
    assert_eq!(done(&x.a.cq).opcode(), WcOpcode::RdmaWrite);
    for (id, opcode, imm) in [(1, WcOpcode::Recv, 77), (2, WcOpcode::RecvRdmaWithImm, 78)] {
        let wc = done(&x.srq_cq);
        assert_eq!(
            (wc.wr_id(), wc.opcode(), wc.imm()),
            (WrId(id), opcode, Some(imm))
        );
        assert_eq!((wc.qp_num(), wc.byte_len()), (x.target.qp_num(), 30_000));
    }
    assert_eq!(target.to_vec(0, 30_000).unwrap(), pattern(30_000, 3));
    assert_eq!(target.to_vec(30_000, 30_000).unwrap(), pattern(30_000, 3));

    let back = x.a.mr(30_000);
    let word = x.a.mr(16);
    let mut batch = x.initiator.post_send();
    batch
        .read(WrId(12))
        .local(back.sge(..))
        .remote(there, target.rkey())
        .xrc_srqn(srqn)
        .signaled();
    batch
        .atomic_write(WrId(13), 5_u64.to_ne_bytes())
        .remote(target.addr(), target.rkey())
        .xrc_srqn(srqn)
        .signaled();
    batch
        .fetch_add(WrId(14), 4)
        .local(word.sge(0..8))
        .remote(target.addr(), target.rkey())
        .xrc_srqn(srqn)
        .signaled();
    batch
        .compare_swap(WrId(15), 9, 1)
        .local(word.sge(8..16))
        .remote(target.addr(), target.rkey())
        .xrc_srqn(srqn)
        .signaled();
    batch.nop(WrId(16)).signaled();
    batch.ring().unwrap();
    for id in 12..=16 {
        assert_eq!(done(&x.a.cq).wr_id(), WrId(id));
    }
    assert_eq!(back.to_vec(0, 30_000).unwrap(), pattern(30_000, 3));
    let words = [5_u64.to_ne_bytes(), 9_u64.to_ne_bytes()].concat();
    assert_eq!(word.to_vec(0, 16).unwrap(), words);
    assert_eq!(target.to_vec(0, 8).unwrap(), 1_u64.to_ne_bytes());
    assert_quiet(&x.b.cq);
}

#[test]
fn receives_come_back_for_ever() {
    let x = xrc();
    let room = x.srq.query().max_wr;
    for round in 0..5 * u64::from(room) {
        let mut batch = x.srq.post_recv();
        batch.recv(WrId(round));
        batch.ring().unwrap();
        send(&x.initiator, x.srq.id(), round, b"");
        assert_eq!(done(&x.srq_cq).wr_id(), WrId(round));
        done(&x.a.cq);
    }
}

#[test]
fn requests_choose_among_queues_and_targets_share_them() {
    let x = xrc();
    let other_cq = x.b.ctx.create_cq(16).build().unwrap();
    let other = xrc_srq(&x.b.pd, &x.xrcd, &other_cq);
    let (second, second_target) = join(&x.a, &x.xrcd);
    for srq in [&x.srq, &other] {
        let mut batch = srq.post_recv();
        batch.recv(WrId(1));
        batch.recv(WrId(2));
        batch.ring().unwrap();
    }
    for (n, (qp, target)) in [(&x.initiator, &x.target), (&second, &second_target)]
        .into_iter()
        .enumerate()
    {
        for (srq, cq) in [(&x.srq, &x.srq_cq), (&other, &other_cq)] {
            send(qp, srq.id(), 5, b"");
            let wc = done(cq);
            assert_eq!(
                (wc.wr_id(), wc.qp_num()),
                (WrId(n as u64 + 1), target.qp_num())
            );
            done(&x.a.cq);
        }
    }
}

#[test]
fn a_wrong_queue_is_refused_and_told() {
    // proves: xrc-2
    let x = xrc();
    let basic = x.b.pd.create_srq(4).build().unwrap();
    send(&x.initiator, basic.id(), 1, b"x");
    assert_eq!(next(&x.a.cq).status(), WcStatus::RemInvReqErr);
    let event = loop {
        let event = x.b.ctx.async_event_within(Duration::from_secs(20)).unwrap();
        if event.kind() != AsyncKind::CommEst {
            break event;
        }
    };
    assert_eq!(event.kind(), AsyncKind::QpReqErr);
    assert!(matches!(event.element(), Element::Qp(qp) if *qp == x.target));
    assert_eq!(x.target.state(), QpState::Err);
}

#[test]
fn what_does_not_fit_is_refused() {
    // proves: xrc-10
    let x = xrc();
    let unfit = |error: srdma_verbs::Error| {
        assert!(matches!(error.reason(), Reason::Xrc), "{error}");
        assert_eq!(error.errno(), libc::EINVAL);
    };
    unfit(x.b.qp(QpType::XrcRecv).build().unwrap_err());
    unfit(x.b.qp(QpType::Rc).srq(&x.srq).build().unwrap_err());
    unfit(x.b.qp(QpType::XrcSend).srq(&x.srq).build().unwrap_err());
    unfit(x.xrcd.create_qp().srq(&x.srq).build().unwrap_err());
    unfit(x.b.pd.create_srq(4).xrcd(&x.xrcd).build().unwrap_err());
    unfit(x.b.pd.create_srq(4).cq(&x.srq_cq).build().unwrap_err());
    let foreign = x.a.pd.create_srq(4).xrcd(&x.xrcd).cq(&x.a.cq).build();
    assert!(matches!(foreign.unwrap_err().reason(), Reason::Foreign));
    let without = x.a.pd.create_qp(QpType::XrcSend).build().unwrap_err();
    assert!(matches!(without.reason(), Reason::MissingCq));

    let mut batch = x.initiator.post_send();
    batch.send(WrId(1)).inline(b"x");
    assert!(matches!(
        batch.ring().unwrap_err().reason(),
        Reason::IncompleteWr
    ));
    let p = pair(QpType::Rc);
    let mut batch = p.qa.post_send();
    batch.send(WrId(1)).inline(b"x").xrc_srqn(x.srq.id());
    assert!(matches!(
        batch.ring().unwrap_err().reason(),
        Reason::IncompleteWr
    ));
    let mut batch = x.target.post_send();
    batch.send(WrId(1)).inline(b"x").xrc_srqn(x.srq.id());
    let error = batch.ring().unwrap_err();
    assert!(
        matches!(error.reason(), Reason::QpType(QpType::XrcRecv)),
        "{error}"
    );
    for qp in [&x.initiator, &x.target] {
        let mut batch = qp.post_recv();
        batch.recv(WrId(1));
        assert!(batch.ring().is_err());
    }
}

#[test]
fn objects_end_after_their_users() {
    let x = xrc();
    assert_eq!(x.srq_cq.destroy().unwrap_err().errno(), libc::EBUSY);
    assert_eq!(x.xrcd.clone().close().unwrap_err().errno(), libc::EBUSY);
    // Unread completions end with their queue.
    let mut batch = x.srq.post_recv();
    batch.recv(WrId(1));
    batch.ring().unwrap();
    send(&x.initiator, x.srq.id(), 1, b"");
    done(&x.a.cq);
    x.srq.destroy().unwrap();
    assert_quiet(&x.srq_cq);
    let Xrc {
        xrcd,
        srq,
        srq_cq,
        target,
        ..
    } = x;
    drop((srq, target));
    srq_cq.destroy().unwrap();
    xrcd.close().unwrap();
}

#[test]
fn completions_outlive_the_target() {
    // proves: xrc-8
    let x = xrc();
    let memory = x.b.mr(64);
    let mut batch = x.srq.post_recv();
    for id in 1..=3 {
        batch.recv(WrId(id)).local(memory.sge(..));
    }
    batch.ring().unwrap();
    send(&x.initiator, x.srq.id(), 1, b"one");
    done(&x.a.cq);
    x.target.destroy().unwrap();
    let number = x.target.qp_num();
    assert_eq!(done(&x.srq_cq).qp_num(), number);
    // The others serve the next target.
    let (initiator, target) = join(&x.a, &x.xrcd);
    send(&initiator, x.srq.id(), 2, b"two");
    let wc = done(&x.srq_cq);
    assert_eq!((wc.wr_id(), wc.qp_num()), (WrId(2), target.qp_num()));
}

#[test]
fn a_limit_is_told() {
    let x = xrc();
    let mut batch = x.srq.post_recv();
    batch.recv(WrId(1));
    batch.recv(WrId(2));
    batch.ring().unwrap();
    x.srq.set_limit(2).unwrap();
    send(&x.initiator, x.srq.id(), 1, b"");
    done(&x.srq_cq);
    let mut seen = vec![];
    until("the limit", || {
        seen.extend(x.b.ctx.try_async_event().map(|event| event.kind()));
        x.b.ctx.drive();
        seen.contains(&AsyncKind::SrqLimitReached)
    });
}

#[test]
fn a_target_lives_as_long_as_a_handle_on_it() {
    let x = xrc();
    let qpn = x.target.qp_num();
    let again = x.xrcd.open_qp(qpn).unwrap();
    assert_eq!((again.qp_num(), again.qp_type()), (qpn, QpType::XrcRecv));
    assert_ne!(again, x.target, "handles differ");
    assert_eq!(again.state(), QpState::Rts);
    x.target.destroy().unwrap();
    let error = x.target.destroy().unwrap_err();
    assert!(matches!(error.reason(), Reason::Destroyed));
    let error = x.target.modify(&QpAttr::to(QpState::Err)).unwrap_err();
    assert!(matches!(error.reason(), Reason::Destroyed));
    let mut batch = x.srq.post_recv();
    batch.recv(WrId(1));
    batch.ring().unwrap();
    send(&x.initiator, x.srq.id(), 1, b"");
    assert_eq!(done(&x.srq_cq).qp_num(), qpn);
    let third = x.xrcd.open_qp(qpn).unwrap();
    drop(again);
    third.modify(&QpAttr::to(QpState::Err)).unwrap();
    drop(third);
    let gone = x.xrcd.open_qp(qpn).unwrap_err();
    assert!(matches!(gone.reason(), Reason::NoTarget));
    assert_eq!(gone.errno(), libc::EINVAL);
    let other = x.b.ctx.open_xrcd().unwrap();
    let (_initiator, target) = join(&x.a, &other);
    assert!(
        x.xrcd.open_qp(target.qp_num()).is_err(),
        "of another domain"
    );
    assert!(x.xrcd.open_qp(x.initiator.qp_num()).is_err());
}

fn domain_of(ctx: &Context, file: &std::fs::File, how: XrcdOpen) -> Xrcd {
    ctx.open_xrcd_file(file.as_fd(), how).unwrap()
}

#[test]
fn domains_are_found_by_their_file() {
    let config = config();
    let (one, two) = (config.clone().open().unwrap(), config.open().unwrap());
    let path = std::env::temp_dir().join(format!("srdma-xrcd-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let error = one
        .open_xrcd_file(file.as_fd(), XrcdOpen::Existing)
        .unwrap_err();
    assert!(matches!(error.reason(), Reason::NoXrcd));
    assert_eq!(error.errno(), libc::EAGAIN);
    let first = domain_of(&one, &file, XrcdOpen::CreateNew);
    let error = two
        .open_xrcd_file(file.as_fd(), XrcdOpen::CreateNew)
        .unwrap_err();
    assert!(matches!(error.reason(), Reason::XrcdExists));
    assert_eq!(error.errno(), libc::EINVAL);
    // Another descriptor of the same file, another context of the same device.
    let same = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = domain_of(&two, &same, XrcdOpen::Existing);
    assert_eq!(first.id(), second.id());
    assert_eq!(domain_of(&two, &same, XrcdOpen::Create).id(), first.id());
    let alone = one.open_xrcd().unwrap();
    assert_ne!(alone.id(), first.id());

    let qp = first.create_qp().build_reset().unwrap();
    let found = second.open_qp(qp.qp_num()).unwrap();
    assert_eq!(first.clone().close().unwrap_err().errno(), libc::EBUSY);
    second.create_qp().build_reset().unwrap().destroy().unwrap();
    // Each context hears of the target through its own handle.
    drop(qp);
    first.close().unwrap();
    found.destroy().unwrap();
    drop(found);
    second.close().unwrap();
    let error = one
        .open_xrcd_file(same.as_fd(), XrcdOpen::Existing)
        .unwrap_err();
    assert!(
        matches!(error.reason(), Reason::NoXrcd),
        "the last one closed it"
    );
    domain_of(&one, &same, XrcdOpen::CreateNew).close().unwrap();
}

#[test]
fn every_handle_hears_of_events() {
    let config = config();
    let a = Side::new(self::config());
    let (b, other) = (Side::new(config.clone()), config.open().unwrap());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let xrcd = domain_of(&b.ctx, &file, XrcdOpen::Create);
    let (initiator, target) = join(&a, &xrcd);
    let elsewhere = domain_of(&other, &file, XrcdOpen::Existing);
    let second = elsewhere.open_qp(target.qp_num()).unwrap();
    send(&initiator, SrqId(9999), 1, b"");
    assert_eq!(next(&a.cq).status(), WcStatus::RemInvReqErr);
    for (ctx, handle) in [(&b.ctx, &target), (&other, &second)] {
        let event = ctx.async_event_within(Duration::from_secs(20)).unwrap();
        assert_eq!(event.kind(), AsyncKind::QpReqErr);
        assert!(matches!(event.element(), Element::Qp(qp) if qp == handle));
        drop(event);
    }
    target.destroy().unwrap();
    second.destroy().unwrap();
}
