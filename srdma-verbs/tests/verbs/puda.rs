//! The driver's own queues on sockets, with whatever threads there are: management datagrams to and
//! fro, and packets out of order through the driver.                    [E810 8]

use crate::common::*;
use srdma_verbs::{
    FaultConfig, Gid, IeqMode, MAD_BYTES, Mad, MadSender, Path, PudaKind, QpType, Qpn, WrId,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CM: u8 = 0x07;

fn count(mad: &Mad) -> u64 {
    u64::from_be_bytes(*mad.bytes.last_chunk().unwrap())
}

fn counted(mut bytes: [u8; MAD_BYTES], count: u64) -> [u8; MAD_BYTES] {
    bytes[248..].copy_from_slice(&count.to_be_bytes());
    bytes
}

/// Every answer is one more than its question, and asks for the next.
#[test]
fn handlers_talk_to_each_other() {
    // proves: puda-7, puda-4
    const ROUNDS: u64 = 2000;
    let (a, b) = (config().open().unwrap(), config().open().unwrap());
    let reached = Arc::new(AtomicU64::new(0));
    let handler = || {
        let reached = Arc::clone(&reached);
        Arc::new(move |mad: &Mad, sender: &MadSender| {
            reached.fetch_max(count(mad), Ordering::SeqCst);
            if count(mad) < ROUNDS {
                let next = counted(mad.bytes, count(mad) + 1);
                // Without room this conversation ends, and another begins.
                let _ = sender.send(&mad.path, mad.source, &next);
            }
        })
    };
    let agent = a.handle_mads(CM, handler()).unwrap();
    let _other = b.handle_mads(CM, handler()).unwrap();
    let there = Path::new(Gid::from(b.addrs()[0]), 0);
    let mut bytes = [0; MAD_BYTES];
    bytes[..2].copy_from_slice(&[1, CM]);
    until("the conversation to end", || {
        let before = reached.load(Ordering::SeqCst);
        if before == ROUNDS {
            return true;
        }
        // Datagrams may be lost: then it goes on from where it was.
        let go_on = counted(bytes, before + 1);
        let sent = agent.sender().send(&there, Qpn::GSI, &go_on);
        let stats = (a.puda_stats(PudaKind::Ilq), b.puda_stats(PudaKind::Ilq));
        assert!(sent.is_ok(), "{sent:?} at {before}: {stats:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
        false
    });
    let said = srdma_net::stats::ask_all().concat();
    assert!(said.contains("\"ilq_pkt_rcvd\":"), "{said}");
    // Conversations that were begun anew may still go on.
    // proves: puda-1
    until("every buffer to come back", || {
        a.drive();
        b.drive();
        [&a, &b].into_iter().all(|ctx| {
            let stats = ctx.puda_stats(PudaKind::Ilq);
            let here = stats.available + stats.posted;
            assert_eq!(stats.total, here + stats.sending, "{stats:?}");
            stats.total == here
        })
    });
}

/// Several threads send over a network that reorders and loses, while the driver sorts.
#[test]
fn the_driver_sorts_while_threads_post_and_poll() {
    // proves: ieq-15, ieq-12, puda-1, puda-12
    const MESSAGES: u64 = 300;
    const LEN: usize = 3000;
    let rules = "in reorder=200us 5%; in drop 1%; in duplicate 1%";
    let side = || {
        let faults = rules.parse::<FaultConfig>().unwrap();
        Side::new(config().ieq(IeqMode::Capture).fault(faults))
    };
    let (a, b) = (side(), side());
    std::thread::scope(|scope| {
        for seed in 0..3u8 {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                let (from, to) = if seed == 1 { (b, a) } else { (a, b) };
                let send_cq = from.ctx.create_cq(64).build().unwrap();
                let recv_cq = to.ctx.create_cq(64).build().unwrap();
                let sender = from.qp(QpType::Rc).send_cq(&send_cq).recv_cq(&send_cq);
                let receiver = to.qp(QpType::Rc).send_cq(&recv_cq).recv_cq(&recv_cq);
                let (qs, qr) = connect(&sender, &receiver);
                let source = from.pattern(LEN, seed);
                let target = to.mr(8 * LEN);
                let slot = |n: u64| (n % 8) as usize * LEN;
                let recv = |n: u64| {
                    let mut batch = qr.post_recv();
                    let at = slot(n);
                    batch.recv(WrId(n)).local(target.sge(at..at + LEN));
                    batch.ring().unwrap();
                };
                (0..8).for_each(recv);
                let mut sent = 0;
                for n in 0..MESSAGES {
                    while sent < MESSAGES && sent < n + 8 {
                        let mut batch = qs.post_send();
                        batch.send(WrId(sent)).local(source.sge(..)).signaled();
                        batch.ring().unwrap();
                        sent += 1;
                    }
                    assert_eq!(done(&send_cq).wr_id(), WrId(n));
                    assert_eq!(done(&recv_cq).wr_id(), WrId(n));
                    assert_eq!(target.to_vec(slot(n), LEN).unwrap(), pattern(LEN, seed));
                    target.write(slot(n), &[0; LEN]).unwrap();
                    recv(n + 8);
                }
            });
        }
    });
    for ctx in [&a.ctx, &b.ctx] {
        let c = ctx.counters();
        assert!(c.ieq_captured > 0, "{c:?}");
        let placed = c.ieq_dropped + c.ieq_captured + c.ieq_bad_seq_num + c.ieq_no_rx_bufs;
        assert_eq!(c.ieq_total, placed, "{c:?}");
        let stats = ctx.puda_stats(PudaKind::Ieq);
        let buffers = stats.available + stats.posted + stats.sending + stats.held;
        assert_eq!(stats.total, buffers, "{stats:?}");
        let ended = stats.returned + stats.discarded + stats.dup_held + stats.no_room + stats.stale;
        assert_eq!(stats.captured, ended + stats.held, "{stats:?}");
    }
}
