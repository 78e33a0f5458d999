//! Every operation, with every combination of GSO and GRO.

use crate::common::*;
use core::sync::atomic::Ordering;
use srdma_verbs::{Completion, QpType, WcOpcode, WrId};

const SIZES: [usize; 8] = [0, 1, 7, 64, 4096, 4097, 65_536, 1_000_003];

#[test]
fn writes_and_reads_of_all_sizes() {
    for offloads in OFFLOADS {
        let p = pair_with(QpType::Rc, offloads);
        for (n, size) in SIZES.into_iter().enumerate() {
            let source = p.a.pattern(size, n as u8);
            let target = p.b.mr(size);
            let mut batch = p.qa.post_send();
            batch
                .write(WrId(n as u64))
                .local(source.sge(..))
                .remote(target.addr(), target.rkey())
                .signaled();
            batch.ring().unwrap();
            let wc = done(&p.a.cq);
            assert_eq!((wc.wr_id().0, wc.opcode()), (n as u64, WcOpcode::RdmaWrite));
            assert_eq!(wc.byte_len() as usize, size);
            assert_eq!(
                target.to_vec(0, size).unwrap(),
                pattern(size, n as u8),
                "{offloads:?}"
            );

            let back = p.a.mr(size);
            let mut batch = p.qa.post_send();
            batch
                .read(WrId(100))
                .local(back.sge(..))
                .remote(target.addr(), target.rkey())
                .signaled();
            batch.ring().unwrap();
            assert_eq!(done(&p.a.cq).opcode(), WcOpcode::RdmaRead);
            assert_eq!(
                back.to_vec(0, size).unwrap(),
                pattern(size, n as u8),
                "{offloads:?}"
            );
        }
        assert_quiet(&p.b.cq);
    }
}

#[test]
fn sends_scatter_and_gather() {
    for offloads in OFFLOADS {
        let p = pair_with(QpType::Rc, offloads);
        let source = p.a.pattern(50_000, 9);
        let target = p.b.mr(50_000);
        let mut batch = p.qb.post_recv();
        batch.recv(WrId(5)).local(target.sge(..));
        batch.ring().unwrap();
        let mut batch = p.qa.post_send();
        batch
            .send(WrId(6))
            .local(source.sge(0..10))
            .local(source.sge(10..30_001))
            .local(source.sge(30_001..30_001))
            .local(source.sge(30_001..50_000))
            .signaled();
        batch.ring().unwrap();
        let wc = done(&p.b.cq);
        assert_eq!((wc.wr_id(), wc.opcode()), (WrId(5), WcOpcode::Recv));
        assert_eq!((wc.byte_len(), wc.imm()), (50_000, None));
        assert_eq!(
            target.to_vec(0, 50_000).unwrap(),
            pattern(50_000, 9),
            "{offloads:?}"
        );
        assert_eq!(done(&p.a.cq).wr_id(), WrId(6));
    }
}

#[test]
fn immediates_inline_and_invalidate() {
    for offloads in OFFLOADS {
        let p = pair_with(QpType::Rc, offloads);
        let target = p.b.mr(256);
        let mut batch = p.qb.post_recv();
        for id in 1..=3 {
            batch.recv(WrId(id)).local(target.sge(0..100));
        }
        batch.ring().unwrap();
        let window = p.b.mr(64);
        let mut batch = p.qa.post_send();
        batch.send_imm(WrId(1), 0xdead_beef).inline(b"inline");
        batch
            .write_imm(WrId(2), 7)
            .inline(&pattern(60, 1))
            .remote(target.addr() + 128, target.rkey())
            .solicited();
        batch.send(WrId(3)).signaled();
        batch.ring().unwrap();
        let first = done(&p.b.cq);
        assert_eq!((first.imm(), first.byte_len()), (Some(0xdead_beef), 6));
        assert_eq!(target.to_vec(0, 6).unwrap(), b"inline");
        let second = done(&p.b.cq);
        assert_eq!(second.opcode(), WcOpcode::RecvRdmaWithImm);
        assert_eq!((second.imm(), second.wr_id()), (Some(7), WrId(2)));
        assert!(second.is_solicited());
        assert_eq!(target.to_vec(128, 60).unwrap(), pattern(60, 1));
        assert_eq!(
            (done(&p.b.cq).byte_len(), done(&p.a.cq).wr_id()),
            (0, WrId(3))
        );
        drop(window);
    }
}

#[test]
fn atomics_return_what_was_there() {
    let p = pair(QpType::Rc);
    let word = p.b.mr(64);
    let old = p.a.mr(64);
    word.store(8, 40, Ordering::Relaxed).unwrap();
    let mut batch = p.qa.post_send();
    batch
        .fetch_add(WrId(1), 2)
        .local(old.sge(0..8))
        .remote(word.addr() + 8, word.rkey());
    batch
        .compare_swap(WrId(2), 42, u64::MAX)
        .local(old.sge(8..16))
        .remote(word.addr() + 8, word.rkey());
    batch
        .compare_swap(WrId(3), 0, 1)
        .local(old.sge(16..24))
        .remote(word.addr() + 8, word.rkey())
        .signaled();
    batch
        .atomic_write(WrId(4), 77u64.to_le_bytes())
        .remote(word.addr() + 16, word.rkey());
    batch.nop(WrId(5)).fence().signaled();
    batch.ring().unwrap();
    let wc = done(&p.a.cq);
    assert_eq!(
        (wc.wr_id(), wc.opcode(), wc.byte_len()),
        (WrId(3), WcOpcode::CompSwap, 8)
    );
    let wc = done(&p.a.cq);
    assert_eq!((wc.wr_id(), wc.opcode()), (WrId(5), WcOpcode::Nop));
    let seen: Vec<u64> = (0..3)
        .map(|n| old.load(8 * n, Ordering::Relaxed).unwrap())
        .collect();
    assert_eq!(seen, [40, 42, u64::MAX]);
    assert_eq!(word.load(8, Ordering::Relaxed).unwrap(), u64::MAX);
    until("the atomic write", || {
        let _ = p.b.cq.poll().next();
        word.load(16, Ordering::Relaxed).unwrap().to_le_bytes() == 77u64.to_le_bytes()
    });
}

#[test]
fn unreliable_connections_write_and_send() {
    for offloads in OFFLOADS {
        let p = pair_with(QpType::Uc, offloads);
        let source = p.a.pattern(20_000, 3);
        let target = p.b.mr(20_000);
        let receive = p.b.mr(20_000);
        let mut batch = p.qb.post_recv();
        batch.recv(WrId(1)).local(receive.sge(..));
        batch.ring().unwrap();
        let mut batch = p.qa.post_send();
        batch
            .write(WrId(2))
            .local(source.sge(..))
            .remote(target.addr(), target.rkey());
        batch.send_imm(WrId(3), 33).local(source.sge(..)).signaled();
        batch.ring().unwrap();
        assert_eq!(done(&p.a.cq).wr_id(), WrId(3));
        assert_eq!(done(&p.b.cq).imm(), Some(33));
        assert_eq!(receive.to_vec(0, 20_000).unwrap(), pattern(20_000, 3));
        assert_eq!(target.to_vec(0, 20_000).unwrap(), pattern(20_000, 3));
    }
}

#[test]
fn rings_wrap_under_a_stream_of_small_sends() {
    let p = pair(QpType::Rc);
    let target = p.b.mr(64);
    let (total, window) = (5000u64, 32);
    let (mut posted, mut sent, mut received, mut receives) = (0, 0, 0, 0);
    for _ in 0..40_000_000u64 {
        if receives - received < 48 && receives < total {
            let mut batch = p.qb.post_recv();
            batch.recv(WrId(receives)).local(target.sge(..));
            batch.ring().unwrap();
            receives += 1;
            continue;
        }
        if posted - sent < window && posted < receives {
            let mut batch = p.qa.post_send();
            batch
                .send(WrId(posted))
                .inline(&posted.to_le_bytes())
                .signaled();
            batch.ring().unwrap();
            posted += 1;
            continue;
        }
        for wc in [p.a.cq.poll().next().map(|wc| wc.to_completion())]
            .into_iter()
            .flatten()
        {
            assert_eq!((wc.is_ok(), wc.wr_id().0), (true, sent));
            sent += 1;
        }
        for wc in [p.b.cq.poll().next().map(|wc| wc.to_completion())]
            .into_iter()
            .flatten()
        {
            assert_eq!(
                (wc.is_ok(), wc.wr_id().0, wc.byte_len()),
                (true, received, 8)
            );
            received += 1;
        }
        if received == total && sent == total {
            return;
        }
    }
    panic!("{sent} sent, {received} received of {total}");
}

#[test]
fn a_post_that_waits_for_others_leaves_though_its_thread_does_not_come_back() {
    let p = pair(QpType::Rc);
    let mr = p.a.pattern(64, 1);
    let target = p.b.mr(64);
    let send = |count: u64| {
        let mut batch = p.qa.post_send();
        for n in 0..count {
            batch.send(WrId(n)).local(mr.sge(..)).signaled();
        }
        batch.ring().unwrap();
    };
    let joined = || {
        let all = p.a.ctx.link_counters();
        all.iter()
            .find(|(name, _)| *name == "posts_joined")
            .unwrap()
            .1
    };
    let mut rounds = 0;
    // Several completions at once, soon after a pass, and the background thread out of the way:
    // where others use the processors, not the first time.
    while joined() < 3 {
        rounds += 1;
        assert!(rounds < 1000, "posts never wait");
        let mut batch = p.qb.post_recv();
        for n in 0..9 {
            batch.recv(WrId(n)).local(target.sge(..));
        }
        batch.ring().unwrap();
        for _ in 0..100 {
            assert!(p.a.cq.poll().next().is_none());
        }
        send(8);
        for _ in 0..8 {
            done(&p.b.cq);
        }
        let mut room = [Completion::EMPTY; 16];
        let mut got = 0;
        while got < 8 {
            got += p.a.cq.poll_into(&mut room);
        }
        send(1);
        // This thread does nothing on its device: somebody else has to.
        done(&p.b.cq);
        done(&p.a.cq);
    }
}
