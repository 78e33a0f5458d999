//! Regions, windows, shared receive queues, domains, and how objects hold each other.

use crate::common::*;
use srdma_verbs::{
    Access, BindInfo, Buffer, MwType, QpState, QpType, Reason, Rereg, WcOpcode, WcStatus, WrId,
};

#[test]
fn regions_refuse_contradictions_and_copies_out_of_range() {
    // proves: roce-134
    let a = Side::new(config());
    let refused = a.pd.register(vec![0; 8], Access::REMOTE_WRITE).unwrap_err();
    assert!(matches!(refused.reason(), Reason::Access(_)));
    assert_eq!(refused.errno(), libc::EINVAL);
    let mr = a.mr(16);
    assert!(mr.write(9, &[0; 8]).is_err() && mr.read(usize::MAX, &mut [0]).is_err());
    assert!(mr.load(4, core::sync::atomic::Ordering::Relaxed).is_err());
    let empty = a.mr(0);
    assert_eq!((empty.len(), empty.to_vec(0, 9).unwrap().len()), (0, 0));
}

#[test]
fn a_dropped_region_takes_its_key_along() {
    let p = pair(QpType::Rc);
    let source = p.a.mr(8);
    let target = p.b.mr(8);
    let (addr, rkey) = (target.addr(), target.rkey());
    drop(target);
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(addr, rkey)
        .signaled();
    batch.ring().unwrap();
    assert_eq!(next(&p.a.cq).status(), WcStatus::RemAccessErr);
}

#[test]
fn reregistering_changes_rights_and_key() {
    let p = pair(QpType::Rc);
    let source = p.a.pattern(8, 5);
    let mut target = p.b.mr(8);
    let old = target.rkey();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let other = Buffer::zeroed(8).unwrap();
    target
        .rereg(Rereg::new().access(rights).buffer(&other))
        .unwrap();
    assert_ne!(old, target.rkey());
    let mut batch = p.qa.post_send();
    let (addr, rkey) = (target.addr(), target.rkey());
    batch
        .write(WrId(1))
        .local(source.sge(..))
        .remote(addr, rkey)
        .signaled();
    batch
        .read(WrId(2))
        .local(source.sge(..))
        .remote(addr, rkey)
        .signaled();
    batch.ring().unwrap();
    assert_eq!(done(&p.a.cq).wr_id(), WrId(1));
    assert_eq!(
        next(&p.a.cq).status(),
        WcStatus::RemAccessErr,
        "reading was not among the rights"
    );
    assert_eq!(target.to_vec(0, 8).unwrap(), pattern(8, 5));
    assert!(
        target
            .rereg(Rereg::new().access(Access::REMOTE_ATOMIC))
            .is_err()
    );
}

#[test]
fn zero_based_and_shifted_addresses() {
    let p = pair(QpType::Rc);
    let source = p.a.pattern(16, 3);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let zero =
        p.b.pd
            .register(vec![0; 16], all | Access::ZERO_BASED)
            .unwrap();
    let shifted =
        p.b.pd
            .register_at(vec![0; 16], 0x7000_0000_0000_0000, all)
            .unwrap();
    assert_eq!((zero.addr(), shifted.addr()), (0, 0x7000_0000_0000_0000));
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(1))
        .local(source.sge(0..8))
        .remote(8, zero.rkey());
    batch
        .write(WrId(2))
        .local(source.sge(8..16))
        .remote(shifted.addr() + 1, shifted.rkey())
        .signaled();
    batch.ring().unwrap();
    done(&p.a.cq);
    assert_eq!(zero.to_vec(8, 8).unwrap(), &pattern(16, 3)[..8]);
    assert_eq!(shifted.to_vec(1, 8).unwrap(), &pattern(16, 3)[8..]);
}

#[test]
fn type_2_windows_bind_open_and_close() {
    let p = pair(QpType::Rc);
    let source = p.a.pattern(8, 1);
    let target = p.b.mr(64);
    let mw = p.b.pd.alloc_mw(MwType::Two).unwrap();
    let rkey = mw.next_rkey();
    let mut batch = p.qb.post_send();
    let info = BindInfo::new(&target, 16..32, Access::REMOTE_WRITE);
    batch.bind_mw(WrId(1), &mw, &info, rkey).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&p.b.cq).opcode(), WcOpcode::BindMw);
    mw.set_rkey(rkey);
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(2))
        .local(source.sge(..))
        .remote(target.addr() + 24, rkey)
        .signaled();
    batch.ring().unwrap();
    done(&p.a.cq);
    assert_eq!(target.to_vec(24, 8).unwrap(), pattern(8, 1));

    let busy = target.rkey();
    let mut batch = p.qb.post_send();
    batch.local_inv(WrId(3), rkey).signaled();
    batch.ring().unwrap();
    assert_eq!(done(&p.b.cq).opcode(), WcOpcode::LocalInv);
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(4))
        .local(source.sge(..))
        .remote(target.addr() + 24, rkey)
        .signaled();
    batch.ring().unwrap();
    assert_eq!(next(&p.a.cq).status(), WcStatus::RemAccessErr);
    assert_eq!(busy, target.rkey());
}

#[test]
fn a_window_is_closed_by_the_peer_with_send_invalidate() {
    let p = pair(QpType::Rc);
    let target = p.b.mr(64);
    let mw = p.b.pd.alloc_mw(MwType::Two).unwrap();
    let rkey = mw.next_rkey();
    let mut batch = p.qb.post_recv();
    batch.recv(WrId(1)).local(target.sge(..));
    batch.ring().unwrap();
    let mut batch = p.qb.post_send();
    batch.bind_mw(
        WrId(2),
        &mw,
        &BindInfo::new(&target, 0..64, Access::REMOTE_READ),
        rkey,
    );
    batch.nop(WrId(3)).signaled();
    batch.ring().unwrap();
    done(&p.b.cq);
    mw.set_rkey(rkey);
    let mut batch = p.qa.post_send();
    batch.send_inv(WrId(4), rkey).inline(b"done").signaled();
    batch.ring().unwrap();
    let wc = done(&p.b.cq);
    assert_eq!(wc.invalidated(), Some(rkey));
    assert!(wc.flags().contains(srdma_verbs::WcFlags::WITH_INV));
    done(&p.a.cq);
    // Its region can go now.
    drop(mw);
    target.dereg().unwrap();
}

#[test]
fn type_1_windows_change_their_key_with_each_bind() {
    // proves: roce-135
    // proves: roce-138
    let p = pair(QpType::Rc);
    let source = p.a.pattern(8, 9);
    let target = p.b.mr(64);
    let mw = p.b.pd.alloc_mw(MwType::One).unwrap();
    let info = BindInfo::new(&target, 0..32, Access::REMOTE_WRITE);
    let first = mw.bind(&p.qb, WrId(1), &info, true).unwrap();
    done(&p.b.cq);
    let second = mw.bind(&p.qb, WrId(2), &info, true).unwrap();
    done(&p.b.cq);
    assert!(first != second && mw.rkey() == second);
    let mut batch = p.qa.post_send();
    batch
        .write(WrId(3))
        .local(source.sge(..))
        .remote(target.addr(), second)
        .signaled();
    batch
        .write(WrId(4))
        .local(source.sge(..))
        .remote(target.addr(), first)
        .signaled();
    batch.ring().unwrap();
    done(&p.a.cq);
    assert_eq!(next(&p.a.cq).status(), WcStatus::RemAccessErr);
    let refused = target.dereg().unwrap_err();
    assert_eq!(refused.errno(), libc::EBUSY, "{refused}");
}

#[test]
fn two_queue_pairs_take_from_a_shared_receive_queue() {
    let a = Side::new(config());
    let b = Side::new(config());
    let srq = b.pd.create_srq(32).build().unwrap();
    assert!(srq.query().max_wr >= 32);
    let (q1, r1) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).srq(&srq));
    let (q2, r2) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).srq(&srq));
    let memory = b.mr(64 * 32);
    let mut own = r1.post_recv();
    own.recv(WrId(1));
    assert!(matches!(
        own.ring().unwrap_err().reason(),
        Reason::SharedReceives
    ));
    assert!(matches!(srq.destroy().unwrap_err().reason(), Reason::Busy));
    for round in 0..20u64 {
        let mut batch = srq.post_recv();
        for id in 0..8 {
            batch
                .recv(WrId(100 * round + id))
                .local(memory.sge(64 * id as usize..64 * (id as usize + 1)));
        }
        batch.ring().unwrap();
        for (n, qp) in [&q1, &q2, &q1, &q2, &q2, &q2, &q1, &q1]
            .into_iter()
            .enumerate()
        {
            let mut batch = qp.post_send();
            batch
                .send_imm(WrId(n as u64), n as u32)
                .inline(&[n as u8; 20])
                .signaled();
            batch.ring().unwrap();
            done(&a.cq);
            let wc = done(&b.cq);
            assert_eq!(
                (wc.wr_id().0, wc.imm()),
                (100 * round + n as u64, Some(n as u32))
            );
            let receiver = if qp == &q1 { &r1 } else { &r2 };
            assert_eq!(wc.qp_num(), receiver.qp_num());
            assert_eq!(memory.to_vec(64 * n, 20).unwrap(), [n as u8; 20]);
        }
    }
    drop((r1, r2));
    srq.destroy().unwrap();
    assert!(srq.post_recv().ring().is_err());
}

#[test]
fn objects_hold_what_they_need() {
    let p = pair(QpType::Rc);
    assert!(matches!(
        p.a.cq.destroy().unwrap_err().reason(),
        Reason::Busy
    ));
    assert!(matches!(
        p.a.pd.clone().dealloc().unwrap_err().reason(),
        Reason::Busy
    ));
    p.qa.destroy().unwrap();
    assert!(matches!(
        p.qa.destroy().unwrap_err().reason(),
        Reason::Destroyed
    ));
    assert!(p.qa.post_send().ring().is_err());
    p.a.cq.destroy().unwrap();
    let refused = p.a.qp(QpType::Rc).build().unwrap_err();
    assert!(matches!(refused.reason(), Reason::Destroyed), "{refused}");
    // Another device's objects do not fit.
    let foreign =
        p.b.pd
            .create_qp(QpType::Rc)
            .send_cq(&p.a.cq)
            .recv_cq(&p.b.cq);
    assert!(matches!(
        foreign.build().unwrap_err().reason(),
        Reason::Foreign
    ));
    assert_eq!(p.qb.state(), QpState::Rts);
}

#[test]
fn a_hundred_queue_pairs_come_and_go() {
    let a = Side::new(config());
    let b = Side::new(config());
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..100 {
        let (qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
        assert!(
            numbers.insert(qa.qp_num()),
            "numbers are not used again soon"
        );
        receive(&qb, 1);
        send(&qa, 2);
        // Destroyed with completions unread: nobody hears of them.
        drop((qa, qb));
    }
    assert_quiet(&a.cq);
    assert_quiet(&b.cq);
}

#[test]
fn completion_queues_grow_and_shrink_under_traffic() {
    let p = pair(QpType::Rc);
    for round in 0..6u64 {
        let mut batch = p.qa.post_send();
        for id in 0..20 {
            batch.nop(WrId(100 * round + id)).signaled();
        }
        batch.ring().unwrap();
        p.a.cq
            .resize(if round % 2 == 0 { 600 } else { 40 })
            .unwrap();
        let mut batch = p.qa.post_send();
        for id in 20..40 {
            batch.nop(WrId(100 * round + id)).signaled();
        }
        batch.ring().unwrap();
        for id in 0..40 {
            assert_eq!(done(&p.a.cq).wr_id().0, 100 * round + id);
        }
    }
    assert!(p.a.cq.resize(0).is_err() && p.a.cq.resize(u32::MAX).is_err());
}

#[test]
fn opening_twice_gives_one_device() {
    let config = config();
    let (one, two) = (config.clone().open().unwrap(), config.open().unwrap());
    assert!(one.same_device(&two));
    let attr = one.query_device();
    assert_eq!(
        (attr.max_qp_wr, attr.max_sge, attr.max_inline),
        (4063, 13, 101)
    );
    assert!(one.query_port(2).is_err() && one.query_pkey(1, 1).is_err());
    let gid = one.query_gid(1, 0).unwrap();
    assert_eq!(gid.addr(), one.addrs()[0]);
    assert!(one.query_gid(1, 5).unwrap().is_zero() && one.query_gid(1, 99).is_err());
    let addr = one.addrs()[0].to_string();
    let more = srdma_verbs::DeviceConfig::new().addr(one.addrs()[0]);
    let more = more.addr("127.0.0.99".parse().unwrap()).open().unwrap();
    assert!(!more.same_device(&one), "another set is another device");
    drop((one, two, more));
    // The port is free again, however often.
    for _ in 0..20 {
        srdma_verbs::open(&addr).unwrap();
    }
    assert!(
        srdma_verbs::devices()
            .unwrap()
            .iter()
            .any(|device| device.name == "srdma0")
    );
    let missing = srdma_verbs::open("no such device").unwrap_err();
    assert_eq!(missing.errno(), libc::ENODEV);
}

#[test]
fn a_window_ends_before_its_region() {
    // proves: roce-137
    for addr in [7, 32] {
        let p = pair(QpType::Rc);
        let source = p.a.mr(8);
        let target = p.b.mr(64);
        let mw = p.b.pd.alloc_mw(MwType::Two).unwrap();
        let rkey = mw.next_rkey();
        let mut batch = p.qb.post_send();
        let info = BindInfo::new(&target, 8..36, Access::REMOTE_WRITE);
        batch.bind_mw(WrId(1), &mw, &info, rkey).signaled();
        batch.ring().unwrap();
        done(&p.b.cq);
        let mut batch = p.qa.post_send();
        let remote = target.addr() + addr;
        batch
            .write(WrId(2))
            .local(source.sge(..))
            .remote(remote, rkey)
            .signaled();
        batch.ring().unwrap();
        assert_eq!(next(&p.a.cq).status(), WcStatus::RemAccessErr, "{addr}");
    }
}

#[test]
fn an_empty_shared_queue_is_not_ready() {
    // proves: roce-120
    let (a, b) = sides();
    let srq = b.pd.create_srq(4).build().unwrap();
    let (qa, _qb) = connect(
        &a.qp(QpType::Rc).rnr_retry(1),
        &b.qp(QpType::Rc).srq(&srq).min_rnr_timer(1),
    );
    send(&qa, 1);
    assert_eq!(next(&a.cq).status(), WcStatus::RnrRetryExcErr);
    assert_quiet(&b.cq);
}
