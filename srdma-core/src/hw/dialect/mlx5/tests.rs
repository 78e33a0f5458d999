//! Every byte of the mlx5 dialect, written down from the specification. [events 4.1-4.6]

use super::cqe::{self, CqeOpcode};
use super::eqe::{EQE, Eqe, EventType};
use super::*;
use crate::hw::dialect::tests::{SYNDROMES, port_down, refused_access};
use crate::hw::dialect::{EntryWords, SlotWords, ValidBit};
use crate::hw::{AeCode, AeSource, Aeqe, CqeInfo, FlushCode, Polarity, SqOp};
use crate::num::Qpn;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Checks bytes at offsets, and that all others are zero.
fn expect(words: &SlotWords, parts: &[(usize, &[u8])]) {
    let mut expected = [0u8; 64];
    for (at, part) in parts {
        expected[*at..at + part.len()].copy_from_slice(part);
    }
    assert_eq!(bytes(words), expected);
}

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
        ..CqeInfo::default()
    };
    let words = cqe::encode(&info);
    expect(
        &words,
        &[
            (8, &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]),
            (36, &[0xca, 0xfe, 0xf0, 0x0d]),
            (44, &[0xde, 0xad, 0xbe, 0xef]),
            (57, &[0x12, 0x34, 0x56]),
            (60, &[0x0a, 0xbc]),
            (63, &[0x12]),
        ],
    );
    assert_eq!(cqe::decode(&words), info);
}

#[test]
fn a_datagram_names_its_sender() {
    let info = CqeInfo {
        op: 0x24,
        qpn: Qpn::new(2),
        context: 1,
        len: 41,
        peer: 0x00ab_cdef,
        stag_or_ipv4: true,
        timestamp: Some(0x0102_0304_0506_0708),
        ..CqeInfo::default()
    };
    let words = cqe::encode(&info);
    expect(
        &words,
        &[
            (1, &[1]),
            (15, &[1]),
            // One header, IPv4, the QPN.
            (24, &[0x12, 0xab, 0xcd, 0xef]),
            (47, &[41]),
            (48, &[1, 2, 3, 4, 5, 6, 7, 8]),
            (59, &[2]),
            (63, &[0x20]),
        ],
    );
    let read = cqe::decode(&words);
    assert_eq!(read, CqeInfo { op: 0x04, ..info });
    let v6 = CqeInfo {
        stag_or_ipv4: false,
        ..info
    };
    assert_eq!(bytes(&cqe::encode(&v6))[24], 0x11, "IPv6");
    assert!(!cqe::decode(&cqe::encode(&v6)).stag_or_ipv4);
}

#[test]
fn errors_have_a_syndrome() {
    for (code, syndrome) in SYNDROMES {
        let info = CqeInfo::flush(true, Qpn::new(9), 5, 3, code);
        let words = cqe::encode(&info);
        let vendor = u8::try_from(code.0).unwrap();
        expect(
            &words,
            &[
                (15, &[5]),
                (54, &[vendor, syndrome]),
                (56, &[0x08, 0, 0, 9]),
                (61, &[3]),
                (63, &[0xd0]),
            ],
        );
        assert_eq!(cqe::decode(&words), info);
    }
}

#[test]
fn an_error_from_a_shared_queue_keeps_its_wr_id_and_time() {
    let info = CqeInfo {
        srq_wr_id: Some(0x1122_3344_5566_7788),
        srqn: 0x00c0_ffee,
        timestamp: Some(77),
        ..CqeInfo::flush(false, Qpn::new(9), 5, 0, FlushCode::GENERAL)
    };
    let words = cqe::encode(&info);
    expect(
        &words,
        &[
            (1, &[1]),
            (4, &[0x11, 0x22, 0x33, 0x44]),
            (15, &[5]),
            (31, &[77]),
            (33, &[0xc0, 0xff, 0xee]),
            (40, &[0x55, 0x66, 0x77, 0x88]),
            (54, &[1, 0x05]),
            (59, &[9]),
            (63, &[0xe0]),
        ],
    );
    assert_eq!(cqe::decode(&words), CqeInfo { op: 4, ..info });
}

#[test]
fn requests_keep_what_verbs_call_them() {
    for (op, number) in [
        (SqOp::SEND, 0x0a),
        (SqOp::SEND_INV, 0x01),
        (SqOp::WRITE, 0x08),
        (SqOp::READ, 0x10),
        (SqOp::COMPARE_SWAP, 0x11),
        (SqOp::FETCH_ADD, 0x12),
        (SqOp::BIND_MW, 0x18),
        (SqOp::LOCAL_INVALIDATE, 0x25),
        (SqOp::ATOMIC_WRITE, 0x3e),
        (SqOp::NOP, 0x00),
    ] {
        let info = CqeInfo {
            sq: true,
            op: op.0,
            qpn: Qpn::new(1),
            ..CqeInfo::default()
        };
        let words = cqe::encode(&info);
        assert_eq!((bytes(&words)[56], bytes(&words)[63]), (number, 0x00));
        assert_eq!(cqe::decode(&words).op, op.0);
    }
}

#[test]
fn the_owner_of_a_completion() {
    // proves: event-70
    // Software's if the opcode is not INVALID and the owner is the lap's: 0 on the first.
    let last = |op_own: u64| 1 | op_own << 56;
    for (op_own, first, second) in [
        (0x20, true, false),
        (0x21, false, true),
        (0xf0, false, false),
        (0xf1, false, false),
    ] {
        assert_eq!(cqe::is_ready(last(op_own), Polarity::ONE), first);
        assert_eq!(cqe::is_ready(last(op_own), Polarity::ZERO), second);
    }
    assert!(!cqe::is_ready(0, Polarity::ONE), "never written");
    assert_eq!(CqeOpcode::INVALID.0, 15);
}

#[test]
fn records_and_registers() {
    // proves: event-72
    let record = record_read(0, 0x0112_3456);
    assert_eq!(
        bytes(&[record]),
        [0, 0x12, 0x34, 0x56, 0, 0, 0, 0],
        "24 bits, big-endian"
    );
    assert_eq!(record_ci(record), 0x12_3456);
    let arm = arm_word(0, 0x00ab_cdef, 2, 0x0112_3456, true);
    let register = arm.bits().swap_bytes();
    assert_eq!(
        bytes(&[register]),
        [0x21, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef]
    );
    let armed = record_armed(record, arm);
    assert_eq!(
        bytes(&[armed]),
        [0, 0x12, 0x34, 0x56, 0x21, 0x12, 0x34, 0x56]
    );
    assert_eq!(record_ci(armed), 0x12_3456);
    let any = arm_word(0, 1, 3, 7, false);
    assert_eq!(
        bytes(&[any.bits().swap_bytes()]),
        [0x30, 0, 0, 7, 0, 0, 0, 1]
    );
    let request = arm_request(register, 0x00ab_cdef).unwrap();
    assert_eq!(request.seq, 2);
    assert!(!request.next && request.solicited);
    assert_eq!(request.read, Some((0x12_3456, 1 << 24)));
    assert_eq!(arm_request(register, 1), None, "another queue's");
    assert_eq!(arm_request(0, 0), None, "never written");
}

#[test]
fn a_weaker_request_takes_nothing_back() {
    // proves: dialect-1
    let any = arm_word(0, 3, 1, 5, false).bits().swap_bytes();
    assert!(!arm_word(any, 3, 1, 6, true).solicited());
    assert!(arm_word(any, 3, 2, 6, true).solicited(), "the next event's");
    let solicited = arm_word(0, 3, 1, 5, true).bits().swap_bytes();
    assert!(!arm_word(solicited, 3, 1, 6, false).solicited());
}

#[test]
fn events_stand_where_the_table_says() {
    let check = |eqe: Eqe, parts: &[(usize, &[u8])]| {
        let words: EntryWords = eqe.encode();
        expect(&words, parts);
        assert_eq!(Eqe::decode(&words), eqe);
    };
    check(Eqe::completion(0x12_3456), &[(57, &[0x12, 0x34, 0x56])]);
    check(
        Eqe::commands(0x8000_0001),
        &[(1, &[0x0a]), (32, &[0x80, 0, 0, 1])],
    );
    check(
        Eqe::pages(0x0203, -2),
        &[(1, &[0x0b]), (34, &[2, 3, 0xff, 0xff, 0xff, 0xfe])],
    );
    let cq = Aeqe {
        code: AeCode::CQ_OPERATION_ERROR,
        source: AeSource::CQ,
        id: 0x12_3456,
        context: 0x12_3456,
        ..Aeqe::default()
    };
    check(
        Eqe::from_aeqe(&cq),
        &[(1, &[0x04]), (33, &[0x12, 0x34, 0x56]), (43, &[1])],
    );
    let access = refused_access();
    check(
        Eqe::from_aeqe(&access),
        &[(1, &[0x11]), (32, &[6]), (57, &[0xab, 0xcd, 0xef])],
    );
    let quiet = Aeqe {
        code: AeCode::LLP_TOO_MANY_RETRIES,
        source: AeSource::SQ,
        ..access
    };
    check(
        Eqe::from_aeqe(&quiet),
        &[(1, &[0x27]), (32, &[6, 0, 0xff, 0, 0, 0xab, 0xcd, 0xef])],
    );
    check(
        Eqe::from_aeqe(&port_down()),
        &[(1, &[0x09]), (3, &[1]), (40, &[0x10])],
    );
}

#[test]
fn events_have_the_numbers_of_the_table() {
    for (event, number) in [
        (EventType::COMP, 0x00),
        (EventType::COMM_EST, 0x02),
        (EventType::SQ_DRAINED, 0x03),
        (EventType::CQ_ERROR, 0x04),
        (EventType::WQ_CATAS, 0x05),
        (EventType::INTERNAL_ERROR, 0x08),
        (EventType::PORT_CHANGE, 0x09),
        (EventType::CMD, 0x0a),
        (EventType::PAGE_REQUEST, 0x0b),
        (EventType::WQ_INVAL_REQ, 0x10),
        (EventType::WQ_ACCESS, 0x11),
        (EventType::SRQ_CATAS, 0x12),
        (EventType::SRQ_LAST_WQE, 0x13),
        (EventType::SRQ_RQ_LIMIT, 0x14),
        (EventType::OBJECT_CHANGE, 0x27),
    ] {
        assert_eq!(event, EventType(number));
    }
}

#[test]
fn event_queues_start_with_the_owner_bit_set() {
    assert_eq!(bytes(&[EQE.fresh])[7], 1, "byte 63");
    let valid = ValidBit {
        bit: 56,
        first: false,
    };
    assert_eq!((EQE.valid, cqe::CQE_VALID), (valid, valid));
    assert!(!valid.matches(EQE.fresh, Polarity::ONE));
    assert!(valid.matches(EQE.fresh, Polarity::ZERO));
}

#[test]
fn doorbells_of_event_queues() {
    // proves: event-71
    let word = eq_doorbell(EqName::Completions(5), 0x1_0012_3456);
    assert_eq!(bytes(&[word]), [9, 0x12, 0x34, 0x56, 0, 0, 0, 0]);
    let eq = EqName::Completions(5);
    assert_eq!(eq_progress(eq, 0x12_3450, word), Some(6));
    assert_eq!(eq_progress(EqName::Async, 0, word), None, "another queue's");
    assert_eq!(eq_progress(eq, 0, 0), None, "never written");
    let wrapped = eq_doorbell(eq, 1 << 24);
    assert_eq!(eq_progress(eq, (1 << 24) - 3, wrapped), Some(3));
}
