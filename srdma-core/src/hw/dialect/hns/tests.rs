//! Every bit of the hns dialect, written down from the specification.  [events 4.8]

use super::cqe;
use super::eqe::{self, EQE, EventType};
use super::*;
use crate::hw::dialect::tests::{SYNDROMES, port_down, refused_access};
use crate::hw::{CqeInfo, Polarity, SqOp};
use crate::num::Qpn;

#[test]
fn a_receive_stands_where_the_table_says() {
    // proves: event-70
    let info = CqeInfo {
        op: 0x0b,
        qpn: Qpn::new(0x12_3456),
        context: 0x1122_3344_5566_7788,
        wqe_index: 0x0abc,
        len: 0xdead_beef,
        solicited: true,
        imm: Some(0xcafe_f00d),
        srqn: 0x00c0_ffee,
        srq_wr_id: Some(5),
        timestamp: Some(6),
        ..CqeInfo::default()
    };
    let words = cqe::encode(&info);
    assert_eq!(
        words,
        [
            // Opcode 0 is WRITE with immediate; bit 6: a receive.
            0xcafe_f00d << 32 | 0x0abc << 16 | 1 << 6,
            0x12_3456 << 32 | 0x00c0_ffee,
            0xdead_beef,
            0,
            info.context,
            5,
            6,
            0b111,
        ]
    );
    assert_eq!(cqe::decode(&words), info);
}

#[test]
fn a_datagram_names_its_sender() {
    let info = CqeInfo {
        op: 0x25,
        qpn: Qpn::new(2),
        len: 41,
        peer: 0x00ab_cdef,
        imm: Some(7),
        ..CqeInfo::default()
    };
    let words = cqe::encode(&info);
    assert_eq!(words[0], 7 << 32 | 1 << 6 | 2);
    assert_eq!(words[3], 1 << 62 | 0x00ab_cdef << 32 | 3 << 16, "IPv6");
    assert_eq!(cqe::decode(&words), CqeInfo { op: 0x05, ..info });
    let v4 = CqeInfo {
        stag_or_ipv4: true,
        ..info
    };
    assert_eq!(cqe::encode(&v4)[3] >> 16 & 3, 2);
    assert!(cqe::decode(&cqe::encode(&v4)).stag_or_ipv4);
}

#[test]
fn a_send_that_invalidates_names_the_key() {
    let info = CqeInfo {
        op: 0x17,
        qpn: Qpn::new(2),
        peer: 0x1234_5678,
        stag_or_ipv4: true,
        ..CqeInfo::default()
    };
    let words = cqe::encode(&info);
    assert_eq!(words[0], 0x1234_5678 << 32 | 1 << 6 | 3);
    assert_eq!(cqe::decode(&words), info);
}

#[test]
fn errors_have_a_status() {
    for (code, status) in SYNDROMES {
        let info = CqeInfo::flush(true, Qpn::new(9), 5, 3, code);
        let words = cqe::encode(&info);
        assert_eq!(
            words[0],
            3 << 16 | u64::from(status) << 8 | 3,
            "opcode 3 is WRITE"
        );
        assert_eq!(words[1], u64::from(code.0) << 56 | 9 << 32);
        assert_eq!(cqe::decode(&words), info);
    }
}

#[test]
fn requests_keep_what_verbs_call_them() {
    for (op, number) in [
        (SqOp::SEND, 0),
        (SqOp::SEND_INV, 1),
        (SqOp::WRITE, 3),
        (SqOp::READ, 5),
        (SqOp::COMPARE_SWAP, 6),
        (SqOp::FETCH_ADD, 7),
        (SqOp::LOCAL_INVALIDATE, 0xb),
        (SqOp::BIND_MW, 0xc),
        (SqOp::ATOMIC_WRITE, 0x1e),
        (SqOp::NOP, 0x1f),
    ] {
        let info = CqeInfo {
            sq: true,
            op: op.0,
            ..CqeInfo::default()
        };
        let words = cqe::encode(&info);
        assert_eq!(words[0], number);
        assert_eq!(cqe::decode(&words).op, op.0);
    }
}

#[test]
fn the_owner_of_an_entry_is_one_on_the_first_lap() {
    // proves: event-70
    assert!(cqe::is_ready(1 << 7, Polarity::ONE));
    assert!(!cqe::is_ready(1 << 7, Polarity::ZERO));
    assert!(cqe::is_ready(0, Polarity::ZERO) && !cqe::is_ready(0, Polarity::ONE));
    assert_eq!((EQE.valid.bit, EQE.valid.first, EQE.fresh), (31, true, 0));
}

#[test]
fn records_and_registers() {
    // proves: event-78
    assert_eq!(record_read(0, 0x0112_3456), 0x12_3456);
    let cq = [0x00ab_cdef, 16];
    let word = arm_word(0, cq, 2, 0x0112_3456, true);
    // arm_sn 2, solicited, the index modulo twice the depth, CQ_NTR, the queue.
    let bits = 2 << 57 | 1 << 56 | 0x16 << 32 | 4 << 24 | 0x00ab_cdef;
    assert_eq!(word.bits(), bits);
    assert_eq!(arm_word(0, cq, 2, 3, false).bits() >> 56 & 1, 0, "any");
    let request = arm_request(bits, cq).unwrap();
    assert_eq!((request.seq, request.read), (2, Some((0x16, 32))));
    assert!(!request.next && request.solicited);
    assert_eq!(arm_request(bits, [1, 16]), None, "another queue's");
    let index_only = bits & !(0xf << 24) | 3 << 24;
    assert_eq!(arm_request(index_only, cq), None, "no arm");
    assert_eq!(arm_request(0, [0, 16]), None, "never written");
}

#[test]
fn a_weaker_request_takes_nothing_back() {
    // proves: dialect-1
    let any = arm_word(0, [3, 8], 1, 5, false).bits();
    assert!(!arm_word(any, [3, 8], 1, 6, true).solicited());
    assert!(arm_word(any, [3, 8], 2, 6, true).solicited());
}

#[test]
fn events_stand_where_the_table_says() {
    let words = eqe::encode_ce(0x12_3456);
    assert_eq!(words, [0x12_3456, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(eqe::decode_ce(&words), 0x12_3456);
    let words = eqe::encode_ae(&refused_access());
    assert_eq!(words, [0x00ab_cdef << 32 | 0x07, 6, 0, 0, 0, 0, 0, 0]);
    assert_eq!(eqe::encode_ae(&port_down())[0], 1 << 32 | 1 << 8 | 0x0f);
    for (event, number) in [
        (EventType::COMM_EST, 0x03),
        (EventType::SQ_DRAINED, 0x04),
        (EventType::WQ_CATAS, 0x05),
        (EventType::INV_REQ_LOCAL_WQ, 0x06),
        (EventType::LOCAL_WQ_ACCESS, 0x07),
        (EventType::SRQ_LIMIT, 0x08),
        (EventType::SRQ_LAST_WQE, 0x09),
        (EventType::SRQ_CATAS, 0x0a),
        (EventType::CQ_OVERFLOW, 0x0c),
        (EventType::PORT_CHANGE, 0x0f),
        (EventType::MB, 0x13),
        (EventType::FLR, 0x15),
    ] {
        assert_eq!(event, EventType(number));
    }
}

#[test]
fn doorbells_of_event_queues() {
    // proves: event-71
    let eq = EqName::Completions(5);
    let armed = eq_doorbell(eq, 16, 37, true);
    assert_eq!(armed, 5 << 32 | 3 << 16 | 5, "37 modulo 32");
    assert_eq!(eq_doorbell(eq, 16, 37, false), 5 << 32 | 2 << 16 | 5);
    let other = eq_doorbell(EqName::Async, 16, 1, true);
    assert_eq!(other, 1 << 32 | 1 << 16);
    assert_eq!(eq_progress(eq, 16, 30, armed), Some(7));
    assert_eq!(eq_progress(EqName::Async, 16, 0, armed), None);
    assert_eq!(eq_progress(EqName::Async, 16, 0, other), Some(1));
    assert_eq!(eq_progress(EqName::Async, 16, 0, 0), None, "never written");
    let beyond = 32 << 32 | 3 << 16 | 5;
    assert_eq!(eq_progress(eq, 16, 0, beyond), None, "no such index");
}
