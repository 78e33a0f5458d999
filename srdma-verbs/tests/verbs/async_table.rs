//! Every asynchronous event of a queue pair: what verbs report, with what the queues flush, and the
//! state afterwards. The table is that of the data sheet, written out.       [E810 5.3, 5.5]

use crate::common::*;
use core::time::Duration;
use srdma_core::hca::Injection;
use srdma_core::hw::AeCode;
use srdma_verbs::{AsyncKind, Element, QpState, QpType, WcStatus, WrId};

/// Codes that leave the queue pair as it is, and what verbs report.
const NEWS: [(u16, Option<AsyncKind>); 9] = [
    (0x0202, Some(AsyncKind::QpReqErr)),
    (0x0508, None),
    (0x050c, None),
    (0x050e, Some(AsyncKind::CommEst)),
    (0x0520, None),
    (0x0603, None),
    (0x0900, Some(AsyncKind::SqDrained)),
    (0x0901, None),
    (0x0910, Some(AsyncKind::QpLastWqeReached)),
];

/// Codes of completion queues, shared receive queues, the port, the device; the peer's close, which
/// has a test of its own; and none.
const OTHERS: [u16; 10] = [
    0x0000, 0x0203, 0x0209, 0x020f, 0x0503, 0x0702, 0x0920, 0x0921, 0x0922, 0x0b0b,
];

/// Codes that the peer's requests are to blame for, though the flush code is a general one.
const REQUESTS: [u16; 8] = [
    0x0207, 0x0208, 0x0221, 0x0222, 0x0223, 0x0312, 0x0313, 0x0314,
];

/// What the failed queue flushes with first, and what verbs report.
fn end_of(code: u16) -> (WcStatus, AsyncKind) {
    use AsyncKind::{QpAccessErr, QpFatal, QpReqErr};
    match code {
        0x0102..=0x010a | 0x011c => (WcStatus::LocProtErr, QpAccessErr),
        0x0133 | 0x020a => (WcStatus::LocQpOpErr, QpFatal),
        0x0305 => (WcStatus::LocLenErr, QpReqErr),
        0x0132 | 0x0134 | 0x0135 | 0x0303 => (WcStatus::LocLenErr, QpFatal),
        0x0112 | 0x020d => (WcStatus::RemAccessErr, QpAccessErr),
        0x0114 | 0x0118 | 0x0119 | 0x011b => (WcStatus::MwBindErr, QpAccessErr),
        0x050a => (WcStatus::RetryExcErr, QpFatal),
        0x0208 | 0x0911 => (WcStatus::RemInvReqErr, QpReqErr),
        0x0316 | 0x0505 | 0x0507 | 0x020e => (WcStatus::RemOpErr, QpFatal),
        0x050f => (WcStatus::RnrRetryExcErr, QpFatal),
        0x0700 | 0x0703..=0x0705 => (WcStatus::FatalErr, QpFatal),
        _ if REQUESTS.contains(&code) => (WcStatus::WrFlushErr, QpReqErr),
        _ => (WcStatus::WrFlushErr, QpFatal),
    }
}

#[test]
fn every_code_has_its_event_flush_code_and_state() {
    // proves: event-56, irq-1
    let (a, b) = sides();
    let mut ended = 0;
    for code in AeCode::ALL {
        if OTHERS.contains(&code.0) {
            continue;
        }
        let (_qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
        let mut batch = qb.post_recv();
        batch.recv(WrId(1));
        batch.recv(WrId(2));
        batch.ring().unwrap();
        let injected = Injection::Async {
            qpn: qb.qp_num(),
            code: *code,
        };
        assert!(b.ctx.inject(injected), "{code:?}");
        let news = NEWS.iter().find(|(known, _)| *known == code.0);
        let (kind, end) = match news {
            Some((_, kind)) => (*kind, None),
            None => {
                let (status, kind) = end_of(code.0);
                (Some(kind), Some(status))
            }
        };
        match kind {
            None => assert!(b.ctx.try_async_event().is_err(), "{code:?}"),
            Some(kind) => {
                let event = b.ctx.async_event_within(Duration::from_secs(60));
                let event = event.unwrap_or_else(|| panic!("{code:?}"));
                assert_eq!(event.kind(), kind, "{code:?}");
                assert!(matches!(event.element(), Element::Qp(qp) if *qp == qb));
            }
        }
        let Some(status) = end else {
            assert_eq!(qb.state(), QpState::Rts, "{code:?}");
            assert!(b.cq.poll().next().is_none(), "{code:?}");
            qb.destroy().unwrap();
            continue;
        };
        assert_eq!(qb.state(), QpState::Err, "{code:?}");
        let first = next(&b.cq);
        assert_eq!(
            (first.status(), first.wr_id()),
            (status, WrId(1)),
            "{code:?}"
        );
        let second = next(&b.cq);
        assert_eq!(
            (second.status(), second.wr_id()),
            (WcStatus::WrFlushErr, WrId(2)),
            "{code:?}"
        );
        assert!(b.ctx.try_async_event().is_err(), "{code:?}: told once");
        ended += 1;
    }
    assert_eq!(ended, AeCode::ALL.len() - NEWS.len() - OTHERS.len());
}

#[test]
fn what_nobody_read_goes_with_its_queue_pair() {
    // proves: event-47
    let (a, b) = sides();
    let (_qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    let (_qc, qd) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    let code = AeCode::LLP_CONNECTION_ESTABLISHED;
    for qp in [&qb, &qd, &qb] {
        let qpn = qp.qp_num();
        assert!(b.ctx.inject(Injection::Async { qpn, code }));
    }
    // Does not wait for anybody.
    qb.destroy().unwrap();
    let event = b.ctx.wait_async_event();
    assert!(matches!(event.element(), Element::Qp(qp) if *qp == qd));
    drop(event);
    assert!(b.ctx.try_async_event().is_err());
}

#[test]
fn an_error_of_a_queue_that_is_gone_is_nobodys() {
    // proves: event-75
    let (a, b) = sides();
    let cq = b.ctx.create_cq(4).build().unwrap();
    let (_qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc).recv_cq(&cq));
    let overrun = Injection::RecvCqOverflow(qb.qp_num());
    assert!(b.ctx.inject(overrun));
    qb.destroy().unwrap();
    cq.destroy().unwrap();
    assert!(b.ctx.try_async_event().is_err(), "went with both");
    assert!(!b.ctx.inject(Injection::CqOverflow(cq.id())));
    // Others are served as before.
    let (_qc, qd) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    let (qpn, code) = (qd.qp_num(), AeCode::LLP_CONNECTION_ESTABLISHED);
    assert!(b.ctx.inject(Injection::Async { qpn, code }));
    assert_eq!(b.ctx.wait_async_event().kind(), AsyncKind::CommEst);
}

#[test]
fn codes_of_other_objects_are_not_a_queue_pairs() {
    let (a, b) = sides();
    let (_qa, qb) = connect(&a.qp(QpType::Rc), &b.qp(QpType::Rc));
    let qpn = qb.qp_num();
    for code in [0, 0x209, 0x20f, 0x920, 0x921, 0x922, 0xb0b].map(AeCode) {
        assert!(!b.ctx.inject(Injection::Async { qpn, code }), "{code:?}");
    }
    let code = AeCode::CQ_OPERATION_ERROR;
    assert!(b.ctx.inject(Injection::Async { qpn, code }));
    let next = || b.ctx.wait_async_event().kind();
    assert_eq!([next(), next()], [AsyncKind::CqErr, AsyncKind::QpFatal]);
}
