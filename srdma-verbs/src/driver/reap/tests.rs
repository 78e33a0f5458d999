//! The poll algorithm against entries written by the device's end of the ring.

use super::*;
use crate::driver::shared::{Receives, SrqShared, qp_context};
use crate::driver::track::{SqRecord, SqTrack};
use srdma_core::hw::Dialect;
use srdma_core::mem::HostBuf;
use srdma_core::num::{Psn, SrqId};
use srdma_core::qp::attr::QpType;
use srdma_core::ring::{CqProducer, CqShadow};
use std::sync::Weak;

struct Bench {
    device: CqProducer,
    reaper: Reaper,
}

fn bench(slots: u32) -> Bench {
    speaking(Dialect::E810, slots)
}

fn speaking(dialect: Dialect, slots: u32) -> Bench {
    let ring = HostBuf::new(slots as usize * dialect.cq_slot_bytes(false)).unwrap();
    let area = HostBuf::new(64).unwrap();
    let shadow = || CqShadow::speaking(dialect, area.words()).unwrap();
    let device = CqProducer::new(ring.words(), slots, false, shadow(), slots / 2).unwrap();
    let driver = CqConsumer::new(ring.words(), slots, false, shadow()).unwrap();
    Bench {
        device,
        reaper: Reaper::new(driver),
    }
}

fn qp(qpn: u32, qp_type: QpType) -> Arc<QpShared> {
    let receives = Receives::Own(RqTrack::new(HostBuf::new(64).unwrap().words(), 1));
    let track = SqTrack::new(HostBuf::new(16 * 512).unwrap().words());
    Arc::new(QpShared::new(
        Qpn::new(qpn),
        qp_type,
        track,
        receives,
        Weak::new(),
    ))
}

fn post_sends(qp: &QpShared, from: u32, ids: &[u64]) -> u32 {
    let mut index = from;
    for id in ids {
        let op = Some(SqOp::WRITE);
        qp.sq.put(
            index,
            SqRecord {
                wr_id: WrId(*id),
                len: 100,
                quanta: 1,
                op,
            },
        );
        index += 1;
    }
    qp.sq.publish(index);
    index
}

fn post_receives(qp: &QpShared, from: u32, ids: &[u64]) {
    let rq = qp.rq.as_ref().unwrap();
    for (at, id) in (from..).zip(ids) {
        rq.put(at, WrId(*id));
    }
    rq.publish((from + u32::try_from(ids.len()).unwrap()) % 8);
}

impl Bench {
    fn add(&mut self, qp: &Arc<QpShared>) -> u64 {
        let slot = self.reaper.add(qp);
        qp_context(qp.qpn, slot, slot)
    }

    fn next(&mut self) -> Option<Completion> {
        let mut place = Completion::EMPTY;
        self.reaper.next_into(&mut place).then_some(place)
    }

    fn drain(&mut self) -> Vec<(u64, WcStatus)> {
        let mut done = Vec::new();
        while let Some(completion) = self.next() {
            done.push((completion.wr_id.0, completion.status));
        }
        done
    }
}

fn sent(qp: &QpShared, context: u64, index: u16, op: SqOp) -> CqeInfo {
    let (qpn, wqe_index, op) = (qp.qpn, index, op.0);
    CqeInfo {
        sq: true,
        op,
        qpn,
        context,
        wqe_index,
        ..CqeInfo::default()
    }
}

#[test]
fn a_signaled_send_completes_the_unsignaled_ones_before_it() {
    let mut bench = bench(16);
    let qp = qp(0x123456, QpType::Rc);
    let context = bench.add(&qp);
    post_sends(&qp, 0, &[1, 2, 3, 4]);
    bench
        .device
        .push(&sent(&qp, context, 2, SqOp::WRITE))
        .unwrap();
    let done = bench.next().unwrap();
    assert_eq!(
        (done.wr_id, done.status, done.byte_len),
        (WrId(3), WcStatus::Success, 100)
    );
    assert_eq!((done.opcode, done.qp_num), (WcOpcode::RdmaWrite, qp.qpn));
    assert_eq!(qp.sq.tail(), 3);
    assert!(bench.next().is_none());
}

/// An arm that reports asks whether something waits, in whatever words.
#[test]
fn what_waits_is_seen_in_every_dialect() {
    // proves: mcq-2
    for dialect in Dialect::ALL {
        let mut bench = speaking(dialect, 4);
        let qp = qp(9, QpType::Rc);
        let context = bench.add(&qp);
        for round in 0..10 {
            assert!(!bench.reaper.has_next(), "{dialect} {round}");
            post_sends(&qp, round.into(), &[round.into()]);
            let sent = sent(&qp, context, round, SqOp::WRITE);
            bench.device.push(&sent).unwrap();
            assert!(bench.reaper.has_next(), "{dialect} {round}");
            assert_eq!(bench.drain(), [(round.into(), WcStatus::Success)]);
        }
    }
}

#[test]
fn one_flush_entry_gives_the_cause_and_then_flushes() {
    // proves: roce-133
    let mut bench = bench(16);
    let qp = qp(7, QpType::Rc);
    let context = bench.add(&qp);
    post_sends(&qp, 0, &[10, 11, 12, 13, 14]);
    // 10 and 11 were done before, unsignaled; 12 failed.
    let flush = CqeInfo::flush(true, qp.qpn, context, 2, FlushCode::RETRY_EXC);
    bench.device.push(&flush).unwrap();
    let first = bench.next().unwrap();
    assert_eq!((first.wr_id.0, first.status), (12, WcStatus::RetryExcErr));
    assert_eq!(first.vendor_err, 0x0001_0008);
    let second = bench.next().unwrap();
    assert_eq!((second.wr_id.0, second.status), (13, WcStatus::WrFlushErr));
    assert_eq!(second.vendor_err, 0x0001_0001);
    // Posted while the entry is parked: completes with it.
    post_sends(&qp, 5, &[15]);
    assert_eq!(
        bench.drain(),
        [(14, WcStatus::WrFlushErr), (15, WcStatus::WrFlushErr)]
    );
    // A second flush of a queue that is empty says nothing, and is passed.
    // proves: e810-9
    let again = CqeInfo::flush(true, qp.qpn, context, 5, FlushCode::GENERAL);
    bench.device.push(&again).unwrap();
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.device.unread(), 0);
    post_sends(&qp, 6, &[16]);
    bench
        .device
        .push(&CqeInfo {
            wqe_index: 6,
            ..again
        })
        .unwrap();
    assert_eq!(bench.drain(), [(16, WcStatus::WrFlushErr)]);
}

#[test]
fn receives_flush_in_order_and_the_head_waits() {
    // proves: roce-133
    let mut bench = bench(8);
    let qp = qp(9, QpType::Rc);
    let context = bench.add(&qp);
    post_receives(&qp, 0, &[1, 2, 3]);
    let done = CqeInfo {
        qpn: qp.qpn,
        context,
        op: 0x04,
        len: 5,
        ..CqeInfo::default()
    };
    bench.device.push(&done).unwrap();
    let flush = CqeInfo::flush(false, qp.qpn, context, 2, FlushCode::LOC_LEN);
    bench.device.push(&flush).unwrap();
    assert_eq!(
        bench.drain(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocLenErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(qp.rq.as_ref().unwrap().used(), 0);
    bench.device.push(&flush).unwrap();
    assert_eq!(bench.drain(), [], "nothing is left");
    assert_eq!(bench.device.unread(), 0);
}

#[test]
fn entries_find_their_queue_pair_among_many() {
    let mut bench = bench(256);
    let qps: Vec<_> = (2..50).map(|n| qp(n, QpType::Rc)).collect();
    let contexts: Vec<_> = qps.iter().map(|qp| bench.add(qp)).collect();
    for (qp, context) in qps.iter().zip(&contexts) {
        post_sends(qp, 0, &[u64::from(qp.qpn.value())]);
        bench
            .device
            .push(&sent(qp, *context, 0, SqOp::SEND))
            .unwrap();
    }
    // One is destroyed before it was polled.
    bench.reaper.clean(contexts[5], false);
    bench.reaper.remove(5);
    let expected: Vec<u64> = (2..50).filter(|n| *n != 7).collect();
    let done: Vec<u64> = bench.drain().iter().map(|(id, _)| *id).collect();
    assert_eq!(done, expected);
    let next = qp(99, QpType::Rc);
    assert_eq!(bench.reaper.add(&next), 5, "the free slot is used again");
}

#[test]
fn receives_of_a_shared_queue_bring_their_id_along() {
    let mut bench = bench(16);
    let srq = Arc::new(SrqShared::new(SrqId(3), Weak::new()));
    let track = SqTrack::new(HostBuf::new(16 * 512).unwrap().words());
    let shared = Receives::Shared(Arc::clone(&srq));
    let qp = Arc::new(QpShared::new(
        Qpn::new(77),
        QpType::Rc,
        track,
        shared,
        Weak::new(),
    ));
    let context = bench.add(&qp);
    let received = CqeInfo {
        qpn: qp.qpn,
        context,
        op: 0x0b,
        len: 64,
        imm: Some(0xabcd),
        srq_wr_id: Some(42),
        ..CqeInfo::default()
    };
    bench.device.push(&received).unwrap();
    bench.device.push(&received).unwrap();
    let done = bench.next().unwrap();
    assert_eq!(
        (done.wr_id, done.opcode),
        (WrId(42), WcOpcode::RecvRdmaWithImm)
    );
    assert_eq!((done.imm, done.byte_len), (Some(0xabcd), 64));
    assert_eq!(srq.tail(), 1);
    // Destroyed with one completion unread: its place in the shared queue is free again.
    bench.reaper.clean(context, true);
    assert_eq!(srq.tail(), 2);
    assert_eq!(bench.drain(), []);
}

#[test]
fn datagrams_name_their_source() {
    // proves: roce-122
    let mut bench = bench(16);
    let qp = qp(5, QpType::Ud);
    let context = bench.add(&qp);
    post_receives(&qp, 0, &[1]);
    let received = CqeInfo {
        qpn: qp.qpn,
        context,
        op: 0x24,
        len: 40 + 9,
        peer: 0x00ab_cdef,
        stag_or_ipv4: true,
        psn: Psn::new(3),
        ..CqeInfo::default()
    };
    bench.device.push(&received).unwrap();
    let done = bench.next().unwrap();
    assert_eq!(
        (done.src_qp, done.byte_len),
        (Some(Qpn::new(0xab_cdef)), 49)
    );
    assert!(done.flags().contains(crate::WcFlags::GRH) && done.is_ipv4());
    assert_eq!(done.invalidated, None);
}

#[test]
fn error_codes_become_statuses() {
    let status = |major: u16, minor: u16, sq: bool| {
        let error = Some((Major(major), minor));
        status_of(&CqeInfo {
            sq,
            error,
            ..CqeInfo::default()
        })
    };
    let flushes = [
        (0, WcStatus::FatalErr),
        (1, WcStatus::WrFlushErr),
        (2, WcStatus::LocProtErr),
        (3, WcStatus::RemAccessErr),
        (4, WcStatus::LocQpOpErr),
        (5, WcStatus::RemOpErr),
        (6, WcStatus::LocLenErr),
        (7, WcStatus::FatalErr),
        (8, WcStatus::RetryExcErr),
        (9, WcStatus::MwBindErr),
        (10, WcStatus::RemInvReqErr),
        (11, WcStatus::RnrRetryExcErr),
        (12, WcStatus::BadRespErr),
        (99, WcStatus::GeneralErr),
    ];
    for (minor, expected) in flushes {
        assert_eq!(status(1, minor, true), expected, "minor {minor}");
    }
    assert_eq!(status(0xfffe, 0x0108, false), WcStatus::LocProtErr);
    assert_eq!(
        status(0xe001, 0, true),
        WcStatus::Success,
        "not fatal for a datagram send"
    );
    assert_eq!(status(0x8000, 0, true), WcStatus::GeneralErr);
    assert_eq!(status_of(&CqeInfo::default()), WcStatus::Success);
}
