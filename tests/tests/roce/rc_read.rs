//! READ: requests and responses, at both ends.                          [RoCEv2 2.8, 3.6]

use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::Opcode;
use srdma_tests::node::{ALL, PD, QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{
    Heard, ack, aeth, answers, brief, fetch_add, read_request, read_response, send_only,
};

const MTU: usize = 1024;

fn bytes(heard: &[Heard]) -> Vec<u8> {
    heard.iter().flat_map(|h| h.payload.clone()).collect()
}

// ---- responder -------------------------------------------------------------------------

#[test]
fn responses_have_the_labels_of_their_places() {
    // proves: roce-116
    let mut rig = Rig::rc();
    let data = rig.mem.fill(0, 4096, 3);
    let mut psn = RQ_PSN;
    for (len, ops) in [
        (0, vec![0x10]),
        (1, vec![0x10]),
        (MTU, vec![0x10]),
        (MTU + 1, vec![0x0d, 0x0f]),
        (2 * MTU, vec![0x0d, 0x0f]),
        (2 * MTU + 1, vec![0x0d, 0x0e, 0x0f]),
    ] {
        let size = u32::try_from(len).unwrap();
        let heard = rig.hear(read_request(psn, rig.mem.at(0), rig.mem.rkey(), size));
        let expected: Vec<(u8, u32)> = ops.into_iter().zip(psn..).collect();
        assert_eq!(brief(&heard), expected, "{len} bytes");
        assert_eq!(bytes(&heard), data[..len]);
        for one in &heard {
            assert!(!one.head.bth.ack_req && !one.head.bth.solicited);
            assert_eq!(one.syndrome(), (one.op() != 0x0e).then_some(0x1f));
        }
        psn += u32::try_from(heard.len()).unwrap();
    }
}

#[test]
fn a_duplicate_read_reads_again_from_where_it_asks() {
    // proves: roce-90, roce-117
    let mut rig = Rig::rc();
    rig.mem.fill(0, 4096, 1);
    let len = 3 * 1024 + 10;
    rig.hear(read_request(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), len));
    let data = rig.mem.fill(0, 4096, 2);
    for (skip, ops) in [
        (0, vec![0x0d, 0x0e, 0x0e, 0x0f]),
        (1, vec![0x0d, 0x0e, 0x0f]),
        (2, vec![0x0d, 0x0f]),
        (3, vec![0x10]),
    ] {
        let (psn, from) = (RQ_PSN + skip, 1024 * skip);
        let again = read_request(psn, rig.mem.at(from.into()), rig.mem.rkey(), len - from);
        let heard = rig.hear(again);
        let expected: Vec<(u8, u32)> = ops.into_iter().zip(psn..).collect();
        assert_eq!(brief(&heard), expected);
        assert_eq!(bytes(&heard), data[from as usize..len as usize]);
    }
    // It was served once: the next request is the one after its last response.
    rig.recv(0, 64);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN + 4, b"x").ack()))[0].2,
        0x1f
    );
}

#[test]
fn a_duplicate_read_of_a_part_ends_where_it_asks() {
    let mut rig = Rig::rc();
    let data = rig.mem.fill(0, 8192, 1);
    rig.hear(read_request(
        RQ_PSN,
        rig.mem.at(0),
        rig.mem.rkey(),
        5 * 1024,
    ));
    let part = read_request(RQ_PSN + 1, rig.mem.at(1024), rig.mem.rkey(), 2048);
    let heard = rig.hear(part);
    assert_eq!(brief(&heard), [(0x0d, RQ_PSN + 1), (0x0f, RQ_PSN + 2)]);
    assert_eq!(bytes(&heard), data[1024..3072]);
}

#[test]
fn a_duplicate_read_of_anything_else_is_dropped() {
    // proves: roce-91
    let mut rig = Rig::rc();
    let other = rig.node.mem(4096);
    rig.hear(read_request(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 2048));
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for frame in [
        read_request(RQ_PSN - 1, at, key, 2048),
        read_request(RQ_PSN, at, other.rkey(), 2048),
        read_request(RQ_PSN, other.at(0), other.rkey(), 2048),
        read_request(RQ_PSN, at + 1, key, 2048),
        read_request(RQ_PSN, at - 1, key, 2048),
        read_request(RQ_PSN, at, key, 2049),
        read_request(RQ_PSN + 1, at, key, 1024),
        read_request(RQ_PSN + 1, at + 1024, key, 1025),
        read_request(RQ_PSN, at, key, 1 << 31),
        fetch_add(RQ_PSN, at, key, 1),
        fetch_add(RQ_PSN + 1, at, key, 1),
    ] {
        assert!(rig.hear(frame.clone()).is_empty(), "{frame:?}");
    }
    assert_eq!(rig.mem.word(0), 0, "nothing was added");
    assert_eq!(rig.state(), QpState::Rts);
    assert_eq!(rig.hear(read_request(RQ_PSN, at, key, 2048)).len(), 2);
}

#[test]
fn only_the_last_requests_can_be_asked_again() {
    // proves: roce-93
    let mut rig = Rig::with(&QpSpec {
        ird: 4,
        ..QpSpec::default()
    });
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for n in 0..6 {
        rig.hear(read_request(RQ_PSN + n, at, key, 8));
    }
    for n in 0..6 {
        let heard = rig.hear(read_request(RQ_PSN + n, at, key, 8));
        assert_eq!(heard.len(), usize::from(n >= 2), "request {n}");
    }
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let mut rig = Rig::with(&QpSpec {
        ird: 2,
        ..QpSpec::default()
    });
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for n in 0..3 {
        rig.tell(read_request(RQ_PSN + n, at, key, 8));
    }
    let heard = answers(&rig.transmit());
    assert_eq!(heard.last(), Some(&(0x11, RQ_PSN + 2, 0x61)));
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn no_acknowledgement_overtakes_a_response() {
    // proves: roce-115
    let mut rig = Rig::rc();
    let big = rig.node.mem(1 << 20);
    rig.recv(0, 64);
    rig.tell(read_request(RQ_PSN, big.at(0), big.rkey(), 1 << 20));
    rig.tell(send_only(RQ_PSN + 1024, b"x").ack());
    let mut last = RQ_PSN;
    for heard in rig.transmit() {
        if heard.op() == 0x11 {
            assert_eq!(last, RQ_PSN + 1023, "after all responses");
        }
        last = heard.psn();
    }
    assert_eq!(last, RQ_PSN + 1024, "and it comes");
}

#[test]
fn a_duplicate_read_ends_the_responses_in_progress() {
    let mut rig = Rig::rc();
    let big = rig.node.mem(1 << 23);
    rig.tell(read_request(RQ_PSN, big.at(0), big.rkey(), 1 << 23));
    let first = rig.transmit_some(usize::MAX);
    assert!(first.len() < 8192, "not all in one batch");
    rig.tell(read_request(
        RQ_PSN + 8,
        big.at(8 * 1024),
        big.rkey(),
        (1 << 23) - 8192,
    ));
    let heard = rig.transmit_some(usize::MAX);
    assert_eq!(brief(&heard)[0], (0x0d, RQ_PSN + 8));
    assert!(heard.windows(2).all(|two| two[1].psn() == two[0].psn() + 1));
}

#[test]
fn memory_taken_away_ends_a_read() {
    // proves: roce-118
    let mut rig = Rig::rc();
    let big = rig.node.mem(1 << 23);
    rig.tell(read_request(RQ_PSN, big.at(0), big.rkey(), 1 << 23));
    let sent = rig.transmit_some(usize::MAX);
    rig.node.dereg(&big);
    let heard = rig.transmit();
    let next = sent.last().unwrap().psn() + 1;
    assert_eq!(answers(&heard), [(0x11, next, 0x62)]);
    assert_eq!(rig.state(), QpState::Err);
    assert!(rig.transmit().is_empty());
}

#[test]
fn responses_that_did_not_leave_are_sent_again() {
    let mut rig = Rig::rc();
    let data = rig.mem.fill(0, 10_000, 5);
    rig.tell(read_request(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 10_000));
    assert!(rig.transmit_some(0).is_empty());
    assert_eq!(
        rig.transmit_some(1).len(),
        2,
        "the second is shorter and ends the run"
    );
    let mut all = data[..2 * MTU].to_vec();
    let rest = rig.transmit();
    assert_eq!(rest[0].psn(), RQ_PSN + 2);
    assert_eq!(rest[0].op(), 0x0e, "the stream goes on");
    all.extend(bytes(&rest));
    assert_eq!(all, data);
}

// ---- requester -------------------------------------------------------------------------

fn read(rig: &mut Rig, len: u32) {
    let sge = rig.mem.sge(0, len);
    rig.node.read(rig.qp, &[sge], 0x1000, Rkey(0x99));
}

#[test]
fn a_read_reserves_the_numbers_of_its_responses() {
    // proves: roce-43
    for (len, packets) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (5000, 5)] {
        let mut rig = Rig::rc();
        read(&mut rig, len);
        rig.send(0, 4);
        let heard = rig.transmit();
        assert_eq!(
            brief(&heard),
            [(0x0c, SQ_PSN), (0x04, SQ_PSN + packets)],
            "{len}"
        );
        let reth = heard[0].head.reth.unwrap();
        assert_eq!((reth.addr, reth.rkey, reth.len), (0x1000, Rkey(0x99), len));
    }
}

#[test]
fn a_read_completes_with_its_last_byte() {
    // proves: roce-71
    let data = pattern(2500, 4);
    let mut rig = Rig::rc();
    let sges = [rig.mem.sge(0, 1000), rig.mem.sge(8192, 1500)];
    rig.node.read(rig.qp, &sges, 0x1000, Rkey(0x99));
    rig.transmit();
    rig.tell(read_response(SQ_PSN, true, false, &data[..1024]));
    rig.tell(read_response(SQ_PSN + 1, false, false, &data[1024..2048]));
    assert!(rig.poll().is_empty());
    rig.tell(read_response(SQ_PSN + 2, false, true, &data[2048..]));
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert_eq!(rig.mem.read(0, 1000), data[..1000]);
    assert_eq!(rig.mem.read(8192, 1500), data[1000..]);
}

#[test]
fn a_gap_is_asked_again_at_once() {
    // proves: roce-70, roce-71, roce-72, roce-73
    let data = pattern(4096, 4);
    for labels in [[true, false, false], [false, false, false]] {
        let mut rig = Rig::rc();
        read(&mut rig, 4096);
        rig.transmit();
        rig.tell(read_response(SQ_PSN, true, false, &data[..1024]));
        let heard = rig.hear(read_response(SQ_PSN + 2, false, false, &data[2048..3072]));
        assert_eq!(brief(&heard), [(0x0c, SQ_PSN + 1)]);
        let reth = heard[0].head.reth.unwrap();
        assert_eq!(
            (reth.addr, reth.len),
            (0x1000 + 1024, 3072),
            "what is missing"
        );
        assert!(
            rig.hear(read_response(SQ_PSN + 3, false, true, &data[3072..]))
                .is_empty()
        );
        // rxe begins the answer with MIDDLE, others with FIRST.
        rig.tell(read_response(
            SQ_PSN + 1,
            labels[0],
            false,
            &data[1024..2048],
        ));
        rig.tell(read_response(
            SQ_PSN + 2,
            labels[1],
            false,
            &data[2048..3072],
        ));
        assert!(rig.poll().is_empty());
        rig.tell(read_response(SQ_PSN + 3, labels[2], true, &data[3072..]));
        assert_eq!(rig.done(), [('s', 0, None)]);
        assert_eq!(rig.mem.read(0, 4096), data);
    }
}

#[test]
fn a_read_is_never_asked_for_again_from_an_earlier_place() {
    // proves: roce-73
    let data = pattern(4096, 4);
    let mut rig = Rig::rc();
    read(&mut rig, 4096);
    rig.transmit();
    let mut starts = vec![];
    for n in 0..4_u32 {
        rig.node.advance(70_000_000); // A time-out.
        for heard in rig.transmit() {
            assert_eq!(heard.op(), 0x0c);
            starts.push(heard.psn());
        }
        let at = n as usize * MTU;
        rig.tell(read_response(
            SQ_PSN + n,
            n == 0,
            n == 3,
            &data[at..at + MTU],
        ));
    }
    assert_eq!(starts, [SQ_PSN, SQ_PSN + 1, SQ_PSN + 2, SQ_PSN + 3]);
    assert_eq!(rig.done(), [('s', 0, None)]);
}

#[test]
fn a_duplicate_response_counts_once() {
    // proves: roce-74, roce-149
    let data = pattern(2048, 4);
    let mut rig = Rig::rc();
    read(&mut rig, 2048);
    rig.transmit();
    rig.tell(read_response(SQ_PSN, true, false, &data[..1024]));
    rig.tell(read_response(SQ_PSN, true, false, &[0xff; 1024]));
    assert_eq!(rig.mem.read(0, 1024), data[..1024]);
    rig.tell(read_response(SQ_PSN + 1, false, true, &data[1024..]));
    rig.tell(read_response(SQ_PSN + 1, false, true, &[0xff; 1024]));
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert_eq!(rig.mem.read(0, 2048), data);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn an_acknowledgement_does_not_complete_a_read() {
    // proves: roce-48
    let mut rig = Rig::rc();
    rig.send(0, 4);
    read(&mut rig, 1024);
    rig.send(0, 4);
    rig.transmit();
    let heard = rig.hear(ack(SQ_PSN + 2));
    assert_eq!(rig.done(), [('s', 0, None)], "what was before the READ");
    assert_eq!(
        heard[0].op(),
        0x0c,
        "its response was lost: {:?}",
        brief(&heard)
    );
    assert_eq!(heard[0].psn(), SQ_PSN + 1);
    rig.tell(read_response(SQ_PSN + 1, true, true, &[1; 1024]));
    rig.tell(ack(SQ_PSN + 2));
    assert_eq!(rig.done(), [('s', 1, None), ('s', 2, None)]);
}

#[test]
fn a_response_acknowledges_what_was_before() {
    // proves: roce-49
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.send(0, 2000);
    read(&mut rig, 8);
    rig.transmit();
    rig.tell(read_response(SQ_PSN + 3, true, true, &[1; 8]));
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None), ('s', 2, None)]);
}

#[test]
fn a_malformed_response_ends_the_requester() {
    // proves: roce-76
    for (first, last, len) in [
        (true, true, 1020),
        (true, true, 1028),
        (true, false, 512),
        (true, true, 0),
        (false, false, 1024 + 4),
    ] {
        let mut rig = Rig::rc();
        read(&mut rig, 2048);
        rig.transmit();
        rig.tell(read_response(SQ_PSN, first, last, &vec![0; len]));
        assert_eq!(rig.done(), [('s', 0, Some(12))], "{len}: BAD_RESP");
        assert_eq!(rig.state(), QpState::Err);
        let event = rig.node.aes()[0];
        assert_eq!((event.code.0, event.source.0), (0x316, 5));
    }
    // With a refusal in it.
    let mut rig = Rig::rc();
    read(&mut rig, 8);
    rig.transmit();
    let syndrome = srdma_core::wire::Syndrome::RnrNak { timer: 1 };
    rig.tell(aeth(
        Opcode::RC_READ_RESP_ONLY,
        SQ_PSN,
        syndrome,
        0,
        &[0; 8],
    ));
    assert_eq!(rig.done(), [('s', 0, Some(12))]);
    // Of a SEND.
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.transmit();
    rig.tell(read_response(SQ_PSN, true, true, b""));
    assert_eq!(rig.done(), [('s', 0, Some(12))]);
}

#[test]
fn a_sink_that_cannot_take_the_data_is_our_own_fault() {
    let mut rig = Rig::rc();
    let read_only = rig.node.mem_with(4096, ALL.without(ALL), PD);
    rig.node
        .read(rig.qp, &[read_only.sge(0, 16)], 0x1000, Rkey(0x99));
    rig.transmit();
    rig.tell(read_response(SQ_PSN, true, true, &[1; 16]));
    assert_eq!(rig.done(), [('s', 0, Some(2))], "PROT");
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(rig.node.aes()[0].source.0, 5);
}

#[test]
fn outstanding_requests_stay_within_what_was_agreed() {
    // proves: roce-63
    let mut rig = Rig::with(&QpSpec {
        ord: 2,
        ..QpSpec::default()
    });
    for _ in 0..3 {
        read(&mut rig, 8);
    }
    rig.send(0, 4);
    assert_eq!(brief(&rig.transmit()), [(0x0c, SQ_PSN), (0x0c, SQ_PSN + 1)]);
    rig.tell(read_response(SQ_PSN, true, true, &[0; 8]));
    let heard = brief(&rig.transmit());
    assert_eq!(heard, [(0x0c, SQ_PSN + 2), (0x04, SQ_PSN + 3)]);
}

#[test]
fn a_long_read_is_asked_for_in_parts() {
    let mut rig = Rig::rc();
    let big = rig.node.mem(1 << 20);
    rig.node
        .read(rig.qp, &[big.sge(0, 1 << 20)], 0x10_0000, Rkey(0x99));
    let mut next = SQ_PSN;
    let mut asked = 0;
    while asked < 1 << 20 {
        let requests = rig.transmit();
        assert!(!requests.is_empty(), "after {asked} bytes");
        for request in requests {
            let reth = request.head.reth.unwrap();
            assert_eq!(request.psn(), next);
            assert_eq!(reth.addr, 0x10_0000 + u64::from(asked));
            let packets = reth.len.div_ceil(1024);
            for n in 0..packets {
                let (first, last) = (n == 0, n + 1 == packets);
                rig.tell(read_response(next + n, first, last, &[7; 1024]));
            }
            next += packets;
            asked += reth.len;
        }
    }
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert_eq!(big.read(0, 1 << 20), vec![7; 1 << 20]);
}

#[test]
fn a_read_of_half_the_range_is_answered() {
    let mut rig = Rig::with(&QpSpec {
        mtu: 256,
        ..QpSpec::default()
    });
    let huge = rig.node.mem(1 << 31);
    rig.tell(read_request(RQ_PSN, huge.at(0), huge.rkey(), 1 << 31));
    let heard = rig.transmit_some(usize::MAX);
    assert_eq!(brief(&heard[..2]), [(0x0d, RQ_PSN), (0x0e, RQ_PSN + 1)]);
    assert!(heard.iter().all(|h| h.payload.len() == 256));
}
