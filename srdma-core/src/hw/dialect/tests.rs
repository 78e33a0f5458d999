//! What is true of every dialect.

use super::*;
use crate::hw::{AeCode, AeSource, Aeqe, CqeInfo, FlushCode, HwQpState, SqOp};
use crate::num::Qpn;
use crate::ring::Entry;
use proptest::prelude::*;

/// What mlx5 and hns call errors, written down from the specification.    [events 4.6, 4.8]
pub(super) const SYNDROMES: [(FlushCode, u8); 11] = [
    (FlushCode::LOC_LEN, 0x01),
    (FlushCode::LOC_QP_OP, 0x02),
    (FlushCode::PROT, 0x04),
    (FlushCode::GENERAL, 0x05),
    (FlushCode::MW_BIND, 0x06),
    (FlushCode::BAD_RESP, 0x10),
    (FlushCode::REM_INV_REQ, 0x12),
    (FlushCode::REM_ACCESS, 0x13),
    (FlushCode::REM_OP, 0x14),
    (FlushCode::RETRY_EXC, 0x15),
    (FlushCode::RNR_RETRY_EXC, 0x16),
];

/// A remote access without a right to it.
pub(super) fn refused_access() -> Aeqe {
    Aeqe {
        code: AeCode::AMP_BAD_PD,
        source: AeSource::INBOUND,
        id: 0x00ab_cdef,
        state: HwQpState::ERROR,
        ..Aeqe::default()
    }
}

/// The port has gone down.
pub(super) fn port_down() -> Aeqe {
    Aeqe {
        code: AeCode::PORT_DOWN,
        id: 1,
        ..Aeqe::default()
    }
}

#[test]
fn names_go_there_and_back() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::named(dialect.name()), Some(dialect));
        assert_eq!(dialect.to_string(), dialect.name());
    }
    assert_eq!(Dialect::named("e811"), None);
}

#[test]
fn queues_have_room_for_what_is_asked() {
    assert_eq!(Dialect::Mlx5.cq_slots(4), Some(8));
    assert_eq!(Dialect::Hns.cq_slots(3), Some(4));
    assert_eq!(Dialect::Mlx5.cq_slots(1), Some(4));
    assert_eq!(Dialect::Mlx5.cq_slots(1 << 24), None);
    assert_eq!(Dialect::Hns.cq_slots(u32::MAX), None);
}

#[test]
fn every_event_of_ours_keeps_its_meaning() {
    // proves: dialect-2
    let sources = [
        AeSource::NONE,
        AeSource::RQ,
        AeSource::SQ,
        AeSource::INBOUND,
    ];
    for code in (0..0x1000).map(AeCode).filter(|code| code.name().is_some()) {
        for source in sources {
            let event = Aeqe {
                code,
                source,
                id: 0x7_1234,
                context: 0x7_1234,
                state: HwQpState::ERROR,
                ..Aeqe::default()
            };
            let port = matches!(
                code,
                AeCode::PORT_ACTIVE | AeCode::PORT_DOWN | AeCode::GID_CHANGE
            );
            let event = if port { Aeqe { id: 1, ..event } } else { event };
            for dialect in Dialect::ALL {
                let words = event.encode(dialect);
                let read = <Aeqe as Entry>::decode(&words, dialect);
                assert_eq!(
                    read.report(),
                    event.report(),
                    "{dialect} {code:?} {source:?}"
                );
                if code != AeCode::ADAPTER_CATASTROPHIC {
                    assert_eq!(read.id, event.id, "{dialect} {code:?}");
                }
                let of_qp = !event.is_cq() && !port && code != AeCode::ADAPTER_CATASTROPHIC;
                if of_qp {
                    assert_eq!(read.state, HwQpState::ERROR, "{dialect} {code:?}");
                }
            }
        }
    }
}

#[test]
fn arming_counts_events_but_in_the_e810s_dialect() {
    // proves: event-74
    for (dialect, first) in [(Dialect::Mlx5, 0), (Dialect::Hns, 1)] {
        let mut arming = Arming::new(dialect);
        assert_eq!(arming.sn(), first);
        assert!(arming.ask(false) && arming.ask(true) && arming.ask(false));
        assert_eq!((arming.sn(), arming.is_armed()), (first, true));
        for next in 1..6 {
            assert!(!arming.fetched(), "nothing to be asked again");
            assert_eq!(arming.sn(), (first + next) & 3);
        }
        assert!(!arming.is_armed());
    }
    let mut arming = Arming::new(Dialect::E810);
    assert!(arming.ask(false) && arming.ask(false));
    assert!(!arming.ask(true), "put off until the event was fetched");
    assert!(arming.fetched() && arming.is_armed());
    assert!(!arming.fetched() && !arming.is_armed());
}

prop_compose! {
    /// A completion that a reliable queue pair can have.
    fn any_info()(
        sq: bool, op in 0..10usize, qpn in 1u32..1 << 24, context: u64, wqe_index in 0u16..0x8000,
        len: u32, key: u32, recv in 0..4usize, solicited: bool, code in 1u16..=12,
        failed: bool, wr_id: Option<u64>, srqn in 1u32..1 << 24, time: Option<u64>,
    ) -> CqeInfo {
        const SENDS: [SqOp; 10] = [
            SqOp::SEND, SqOp::SEND_INV, SqOp::WRITE, SqOp::READ, SqOp::COMPARE_SWAP,
            SqOp::FETCH_ADD, SqOp::BIND_MW, SqOp::LOCAL_INVALIDATE, SqOp::ATOMIC_WRITE, SqOp::NOP,
        ];
        let qpn = Qpn::new(qpn);
        let common = CqeInfo {
            qpn, context, wqe_index, solicited, timestamp: time, ..CqeInfo::default()
        };
        if sq {
            let op = SENDS[op].0;
            let error = failed.then_some((crate::hw::Major::FLUSH, code));
            return CqeInfo { sq, op, error, ..common };
        }
        let srqn = if wr_id.is_some() { srqn } else { 0 };
        let srq = CqeInfo { srq_wr_id: wr_id, srqn, len, ..common };
        if failed {
            return CqeInfo { op: 4, error: Some((crate::hw::Major::FLUSH, code)), ..srq };
        }
        match recv {
            0 => CqeInfo { op: 0x0b, imm: Some(key), ..srq },
            1 => CqeInfo { op: 0x05, imm: Some(key), ..srq },
            2 => CqeInfo { op: 0x17, peer: key, stag_or_ipv4: true, ..srq },
            _ => CqeInfo { op: 0x04, ..srq },
        }
    }
}

proptest! {
    #[test]
    fn completions_decode_back(info in any_info()) {
        let read = mlx5::cqe::decode(&mlx5::cqe::encode(&info));
        // A failed receive says nothing of what it was.
        let silent = info.error.is_some() && !info.sq;
        let told = |read: CqeInfo| {
            let op = if silent { info.op } else { read.op };
            CqeInfo { op, ..read }
        };
        prop_assert_eq!(told(read), info);
        prop_assert_eq!(told(hns::cqe::decode(&hns::cqe::encode(&info))), info);
    }

    #[test]
    fn odd_words_are_read_without_harm(words: [u64; 8]) {
        let _ = mlx5::cqe::decode(&words);
        let _ = hns::cqe::decode(&words);
        for dialect in Dialect::ALL {
            let _ = <Aeqe as Entry>::decode(&words, dialect).report();
            let _ = <crate::hw::Ceqe as Entry>::decode(&words, dialect);
        }
    }
}
