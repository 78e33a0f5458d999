//! READ and atomic responses that come ahead of their turn, at a requester that keeps them.
//!                                                                      [RoCEv2 2.8, 6.3]

use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{Node, QpSpec, pattern};
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{Frame, Heard, ack, atomic_ack, read_response};

const MTU: usize = 1024;
const FROM: u64 = 0x10_0000;

fn keeping(spec: &QpSpec) -> Rig {
    Rig::on(Node::keeping("10.0.0.1"), spec)
}

/// A READ of `packets` packets, asked for.
fn reading(spec: &QpSpec, packets: usize) -> (Rig, Vec<u8>) {
    let mut rig = keeping(spec);
    let sge = rig.mem.sge(0, u32::try_from(packets * MTU).unwrap());
    rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
    assert_eq!(rig.transmit().len(), 1);
    (rig, pattern(packets * MTU, 7))
}

fn response(data: &[u8], n: usize) -> Frame {
    let packets = data.len() / MTU;
    let bytes = &data[n * MTU..(n + 1) * MTU];
    let psn = SQ_PSN + u32::try_from(n).unwrap();
    read_response(psn, n == 0, n + 1 == packets, bytes)
}

/// First packet and number of packets of each READ that is heard.
fn asked(heard: &[Heard]) -> Vec<(u32, u32)> {
    let one = |heard: &Heard| {
        assert_eq!(heard.op(), 0x0c);
        let (at, reth) = (heard.psn() - SQ_PSN, heard.head.reth.unwrap());
        assert_eq!(reth.addr, FROM + u64::from(at) * MTU as u64);
        (at, reth.len / 1024)
    };
    heard.iter().map(one).collect()
}

#[test]
fn only_what_is_missing_is_asked_for_again() {
    // proves: roce-70, roce-73
    for own in [false, true] {
        let spec = if own {
            QpSpec::default().own_kind()
        } else {
            QpSpec::default()
        };
        let (mut rig, data) = reading(&spec, 12);
        for n in [0, 1, 2, 4, 5, 8, 9, 11] {
            rig.tell(response(&data, n));
        }
        rig.node.advance(10_000);
        if own {
            assert_eq!(asked(&rig.transmit()), [(3, 1), (6, 2), (10, 1)]);
        } else {
            // Some responders answer nothing before the part that they answered last.
            assert_eq!(asked(&rig.transmit()), [(3, 1)]);
            let heard = rig.hear(response(&data, 3));
            assert_eq!(asked(&heard), [(6, 2)]);
        }
        for n in if own { 3..8 } else { 6..8 } {
            if n == 3 || n > 5 {
                rig.tell(response(&data, n));
            }
        }
        rig.transmit();
        assert!(rig.poll().is_empty());
        rig.tell(response(&data, 10));
        assert_eq!(rig.done(), [('s', 0, None)]);
        assert_eq!(rig.mem.read(0, 12 * MTU), data);
        assert_eq!(rig.counter("responses_ahead"), 5);
        assert_eq!(rig.counter("retransmitted_pkts"), 3);
        assert!(rig.transmit().is_empty());
    }
}

#[test]
fn a_late_response_is_waited_for() {
    // proves: roce-145
    let (mut rig, data) = reading(&QpSpec::default(), 3);
    rig.tell(response(&data, 0));
    assert!(rig.hear(response(&data, 2)).is_empty(), "it may be late");
    rig.node.advance(3_000);
    rig.tell(response(&data, 1));
    assert_eq!(rig.done(), [('s', 0, None)]);
    rig.node.advance(1_000_000_000);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.counter("retransmitted_pkts"), 0);
}

#[test]
fn what_is_acknowledged_behind_a_hole_is_remembered() {
    // proves: roce-48
    let mut rig = keeping(&QpSpec::default());
    rig.send(0, 4);
    let sge = rig.mem.sge(1024, 2048);
    rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
    rig.send(0, 4);
    let local = (rig.mem.at(8), rig.mem.lkey());
    rig.node.fetch_add(rig.qp, local, FROM, Rkey(0x99), 1);
    rig.send(0, 4);
    rig.transmit();
    rig.tell(atomic_ack(SQ_PSN + 4, 77));
    rig.tell(ack(SQ_PSN + 5));
    assert_eq!(rig.done(), [('s', 0, None)], "what was before the READ");
    rig.node.advance(10_000);
    let heard = rig.transmit();
    assert_eq!(heard.len(), 1, "nothing else: {heard:?}");
    assert_eq!((heard[0].op(), heard[0].psn()), (0x0c, SQ_PSN + 1));
    rig.tell(read_response(SQ_PSN + 1, true, false, &[1; MTU]));
    rig.tell(read_response(SQ_PSN + 2, false, true, &[2; MTU]));
    let done: Vec<_> = (1..5).map(|n| ('s', n, None)).collect();
    assert_eq!(rig.done(), done);
    assert_eq!(rig.mem.word(8), 77);
    rig.node.advance(1_000_000_000);
    assert!(rig.transmit().is_empty());
}

#[test]
fn a_part_that_is_lost_again_is_asked_for_again() {
    let (mut rig, data) = reading(&QpSpec::default().own_kind(), 8);
    for n in [0, 2, 3] {
        rig.tell(response(&data, n));
    }
    rig.node.advance(10_000);
    assert_eq!(asked(&rig.transmit()), [(1, 1)]);
    // These left before the part was asked for.
    for n in [4, 5, 6, 7] {
        assert!(rig.hear(response(&data, n)).is_empty());
    }
    // This one was asked for behind it, and so it is lost.
    let sge = rig.mem.sge(32 * 1024, 8);
    rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
    rig.transmit();
    rig.tell(read_response(SQ_PSN + 8, true, true, &[0; 8]));
    rig.node.advance(10_000);
    assert_eq!(asked(&rig.transmit()), [(1, 1)]);
    // Without any such sign it is asked for after a while.
    rig.node.advance(10_000_000);
    assert_eq!(asked(&rig.transmit()).first(), Some(&(1, 1)));
    rig.tell(response(&data, 1));
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None)]);
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn what_does_not_fit_waits_for_its_turn_to_be_judged() {
    // proves: roce-76
    let (mut rig, data) = reading(&QpSpec::default(), 4);
    rig.tell(read_response(SQ_PSN + 2, false, false, &[9; 1020]));
    assert!(rig.poll().is_empty());
    for n in [0, 1] {
        rig.tell(response(&data, n));
    }
    assert_eq!(rig.state(), QpState::Rts);
    rig.tell(read_response(SQ_PSN + 2, false, false, &[9; 1020]));
    assert_eq!(rig.done(), [('s', 0, Some(12))], "BAD_RESP");
}

#[test]
fn what_goes_to_one_place_gets_there_in_order() {
    for atomic in [false, true] {
        let mut rig = keeping(&QpSpec::default().own_kind());
        for n in 0..3u32 {
            let local = (rig.mem.at(8), rig.mem.lkey());
            if atomic {
                rig.node.fetch_add(rig.qp, local, FROM, Rkey(0x99), 1);
            } else {
                let sge = rig.mem.sge(8 + n as usize as u64, 8);
                rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
            }
        }
        assert_eq!(rig.transmit().len(), 3);
        let answer = |n: u32| {
            if atomic {
                atomic_ack(SQ_PSN + n, u64::from(n) + 1)
            } else {
                read_response(SQ_PSN + n, true, true, &[u8::try_from(n).unwrap() + 1; 8])
            }
        };
        for n in [2, 1] {
            rig.tell(answer(n));
        }
        // What comes last is told by whole packets, or waits for its turn.
        let there = if atomic { 3 } else { 0 };
        assert_eq!(rig.mem.word(8), there);
        rig.node.advance(10_000);
        let heard = rig.transmit();
        assert_eq!(heard.first().map(Heard::psn), Some(SQ_PSN));
        for n in 0..3 {
            rig.tell(answer(n));
        }
        assert_eq!(rig.done().len(), 3);
        let last = if atomic { 3 } else { 0x0303_0303_0303_0201 };
        assert_eq!(rig.mem.word(8), last);
    }
}

#[test]
fn a_copy_of_what_is_there_changes_nothing() {
    // proves: roce-74
    let (mut rig, data) = reading(&QpSpec::default(), 4);
    rig.tell(response(&data, 2));
    rig.tell(read_response(SQ_PSN + 2, false, false, &[9; MTU]));
    for n in [0, 1, 3] {
        rig.tell(response(&data, n));
    }
    assert_eq!(rig.done(), [('s', 0, None)]);
    assert_eq!(rig.mem.read(0, 4 * MTU), data);
}

#[test]
fn responses_that_never_come_use_up_the_time_outs() {
    // proves: roce-59
    let mut rig = keeping(&QpSpec {
        retry_cnt: 3,
        ..QpSpec::default()
    });
    let sge = rig.mem.sge(0, 8);
    rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
    rig.send(0, 4);
    rig.transmit();
    let mut seconds = 0;
    while rig.state() == QpState::Rts && seconds < 100 {
        for _ in 0..100 {
            rig.node.advance(10_000_000);
            rig.hear(ack(SQ_PSN + 1));
        }
        seconds += 1;
    }
    assert_eq!(rig.done(), [('s', 0, Some(8)), ('s', 1, Some(1))]);
}

#[test]
fn a_lost_request_for_a_part_that_did_not_leave_is_repeated() {
    let (mut rig, data) = reading(&QpSpec::default().own_kind(), 8);
    for n in [0, 2, 4, 7] {
        rig.tell(response(&data, n));
    }
    rig.node.advance(10_000);
    assert!(rig.transmit_some(0).is_empty());
    assert_eq!(asked(&rig.transmit()), [(1, 1), (3, 1), (5, 2)]);
}

#[test]
fn the_later_of_two_reads_into_one_place_stays() {
    let mut rig = keeping(&QpSpec::default().own_kind());
    let sge = rig.mem.sge(0, 3072);
    for _ in 0..2 {
        rig.node.read(rig.qp, &[sge], FROM, Rkey(0x99));
    }
    rig.transmit();
    // All of the first but its second packet, then all of the second, then what was missing.
    for n in [0u32, 2, 3, 4, 5, 1] {
        let (first, last) = (n % 3 == 0, n % 3 == 2);
        let fill = u8::try_from(n).unwrap() + 1;
        rig.tell(read_response(SQ_PSN + n, first, last, &[fill; MTU]));
    }
    assert_eq!(rig.done(), [('s', 0, None), ('s', 1, None)]);
    let last: Vec<u8> = [4, 5, 6].into_iter().flat_map(|n| [n; MTU]).collect();
    assert_eq!(rig.mem.read(0, 3072), last);
}
