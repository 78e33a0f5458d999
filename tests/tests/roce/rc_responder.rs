//! The responder of a reliable connection: order, refusals, receives.   [RoCEv2 3]

use srdma_core::hw::AeCode;
use srdma_core::num::Msn;
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{
    answers, fetch_add, read_request, send_first, send_last, send_middle, send_only, write_first,
    write_last_imm, write_middle, write_only, write_only_imm,
};

const MTU: usize = 1024;
#[test]
fn a_send_is_placed_completed_and_acknowledged() {
    let mut rig = Rig::rc();
    rig.recv(64, 100);
    let heard = rig.hear(send_only(RQ_PSN, b"hello").ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN, 0x1f)]);
    assert_eq!(heard[0].msn(), Some(1));
    let wc = rig.poll()[0];
    assert_eq!((wc.wr_id, wc.status, wc.cqe.len), (0, None, 5));
    assert_eq!(rig.mem.read(64, 5), b"hello");
}

#[test]
fn a_gap_draws_one_nak_and_changes_nothing() {
    // proves: roce-86, roce-87
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    let nak = [(0x11, RQ_PSN, 0x60)];
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN + 2, b"two").ack())), nak);
    assert!(rig.hear(send_only(RQ_PSN + 3, b"three").ack()).is_empty());
    assert!(rig.hear(send_only(RQ_PSN + 1, b"one").ack()).is_empty());
    assert!(rig.poll().is_empty());
    // The NAK may have been lost: it is repeated after a while, when something comes.
    rig.node.advance(1_100_000);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN + 4, b"four").ack())),
        nak
    );
    assert!(rig.hear(send_only(RQ_PSN + 5, b"five").ack()).is_empty());
    // Nothing was changed, and the next gap is a gap of its own.
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN, b"zero").ack())),
        [(0x11, RQ_PSN, 0x1f)]
    );
    assert_eq!(rig.done(), [('r', 0, None)]);
    let nak = [(0x11, RQ_PSN + 1, 0x60)];
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN + 2, b"two").ack())), nak);
}

#[test]
fn a_nak_comes_after_what_is_due_before_it() {
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.tell(read_request(RQ_PSN, rig.mem.at(0), rig.mem.rkey(), 3000));
    rig.tell(send_only(RQ_PSN + 3, b"three").ack());
    rig.tell(send_only(RQ_PSN + 5, b"five").ack());
    let heard = answers(&rig.transmit());
    let psns: Vec<u32> = heard.iter().map(|(_, psn, _)| *psn).collect();
    assert_eq!(psns, [RQ_PSN, RQ_PSN + 1, RQ_PSN + 2, RQ_PSN + 4]);
    assert_eq!(
        heard[3].2, 0x60,
        "the NAK stands for the acknowledgement too"
    );
}

#[test]
fn a_duplicate_send_is_acknowledged_and_not_executed() {
    // proves: roce-88, roce-149
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.recv(64, 64);
    rig.hear(send_only(RQ_PSN, b"first").ack());
    rig.hear(write_only(RQ_PSN + 1, rig.mem.at(128), rig.mem.rkey(), b"data").ack());
    rig.poll();
    rig.mem.write(0, b"other");
    rig.mem.write(128, b"else");
    for frame in [
        send_only(RQ_PSN, b"first").ack(),
        write_only(RQ_PSN + 1, rig.mem.at(128), rig.mem.rkey(), b"data").ack(),
        send_only(RQ_PSN.wrapping_sub(1), b"before"),
    ] {
        let heard = rig.hear(frame);
        assert_eq!(answers(&heard), [(0x11, RQ_PSN + 1, 0x1f)]);
        assert_eq!(heard[0].msn(), Some(2));
    }
    assert_eq!(rig.mem.read(0, 5), b"other");
    assert_eq!(rig.mem.read(128, 4), b"else");
    assert!(rig.poll().is_empty());
}

#[test]
fn a_burst_of_duplicates_draws_an_acknowledgement_after_the_last() {
    // proves: roce-89
    let mut rig = Rig::rc();
    for n in 0..4 {
        rig.recv(0, 64);
        rig.hear(send_only(RQ_PSN + n, b"x").ack());
    }
    for n in 0..4 {
        rig.tell(send_only(RQ_PSN + n, b"x").ack());
    }
    let heard = answers(&rig.transmit());
    assert_eq!(heard.last(), Some(&(0x11, RQ_PSN + 3, 0x1f)));
    assert!(rig.transmit().is_empty());
}

#[test]
fn half_the_range_back_is_a_duplicate() {
    // proves: e810-33
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.hear(send_only(RQ_PSN, b"x").ack());
    let half = (RQ_PSN + 1).wrapping_sub(1 << 23) & 0x00ff_ffff;
    assert_eq!(
        answers(&rig.hear(send_only(half, b"x").ack())),
        [(0x11, RQ_PSN, 0x1f)]
    );
    let ahead = half.wrapping_sub(1) & 0x00ff_ffff;
    assert_eq!(
        answers(&rig.hear(send_only(ahead, b"x").ack())),
        [(0x11, RQ_PSN + 1, 0x60)]
    );
}

#[test]
fn psns_wrap_at_the_responder() {
    // proves: roce-41
    let mut rig = Rig::with(&QpSpec {
        rq_psn: 0x00ff_fffe,
        ..QpSpec::default()
    });
    for psn in [0x00ff_fffe, 0x00ff_ffff, 0, 1] {
        rig.recv(0, 64);
        assert_eq!(
            answers(&rig.hear(send_only(psn, b"x").ack())),
            [(0x11, psn, 0x1f)]
        );
    }
    assert_eq!(
        answers(&rig.hear(send_only(0x00ff_ffff, b"x").ack())),
        [(0x11, 1, 0x1f)]
    );
    assert_eq!(rig.poll().len(), 4);
}

#[test]
fn the_message_number_counts_messages() {
    // proves: roce-114
    let mut rig = Rig::rc();
    rig.mem.write(0, &[0; 8]);
    rig.recv(0, 4096);
    let gap = rig.hear(send_only(RQ_PSN + 9, b"x").ack());
    assert_eq!(gap[0].msn(), Some(0), "none is complete");
    rig.tell(send_first(RQ_PSN, &[1; MTU]).ack());
    assert_eq!(rig.transmit()[0].msn(), Some(0), "still none");
    assert_eq!(
        rig.hear(send_last(RQ_PSN + 1, b"x").ack())[0].msn(),
        Some(1)
    );
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    assert_eq!(
        rig.hear(fetch_add(RQ_PSN + 2, at, key, 1))[0].msn(),
        Some(2)
    );
    assert_eq!(
        rig.hear(read_request(RQ_PSN + 3, at, key, 8))[0].msn(),
        Some(3)
    );
    assert_eq!(
        rig.hear(write_only(RQ_PSN + 4, at, key, b"x").ack())[0].msn(),
        Some(4)
    );
    assert_eq!(Msn::new(0x00ff_ffff).next(), Msn::new(0));
}

#[test]
fn one_acknowledgement_stands_for_a_pass() {
    let mut rig = Rig::rc();
    for n in 0..5 {
        rig.recv(0, 64);
        rig.tell(send_only(RQ_PSN + n, b"x").ack());
    }
    let heard = rig.transmit();
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 4, 0x1f)]);
    // proves: roce-23
    assert_eq!(heard[0].syndrome(), Some(0x1f));
    assert!(rig.transmit().is_empty());
}

#[test]
fn without_a_receive_the_peer_waits() {
    // proves: roce-105, roce-106, e810-27
    let mut rig = Rig::rc();
    let rnr = [(0x11, RQ_PSN, 0x20 | 12)];
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"zero").ack())), rnr);
    for ns in [0, 2_000_000] {
        rig.node.advance(ns);
        assert!(
            rig.hear(send_only(RQ_PSN + 1, b"one").ack()).is_empty(),
            "no NAK now"
        );
    }
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN, b"zero").ack())),
        rnr,
        "still none"
    );
    assert_eq!(rig.state(), QpState::Rts);
    // A receive is found without a doorbell.
    rig.recv(0, 64);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN, b"zero").ack())),
        [(0x11, RQ_PSN, 0x1f)]
    );
    assert_eq!(rig.done(), [('r', 0, None)]);
    assert!(rig.aes().is_empty());
}

#[test]
fn write_with_immediate_takes_a_receive_at_its_last_packet() {
    // proves: roce-107, roce-108, roce-17
    let mut rig = Rig::rc();
    let (at, key) = (rig.mem.at(4096), rig.mem.rkey());
    let data = pattern(2 * MTU + 100, 1);
    let imm = [0xde, 0xad, 0xbe, 0xef];
    let len = u32::try_from(data.len()).unwrap();
    rig.tell(write_first(RQ_PSN, at, key, len, &data[..MTU]));
    rig.tell(write_middle(RQ_PSN + 1, &data[MTU..2 * MTU]));
    let last = write_last_imm(RQ_PSN + 2, &data[2 * MTU..], imm).ack();
    assert_eq!(
        answers(&rig.hear(last.clone())),
        [(0x11, RQ_PSN + 2, 0x20 | 12)]
    );
    rig.recv(0, 64);
    assert_eq!(
        answers(&rig.hear(last)),
        [(0x11, RQ_PSN + 2, 0x1f)],
        "only that one again"
    );
    let wc = rig.poll()[0];
    assert_eq!((wc.status, wc.cqe.len, wc.cqe.op), (None, len, 0x09));
    assert_eq!(wc.cqe.imm.map(u32::to_be_bytes), Some(imm));
    assert_eq!(rig.mem.read(4096, data.len()), data);

    rig.recv(0, 0);
    rig.hear(write_only_imm(RQ_PSN + 3, at, key, b"four", imm).ack());
    let wc = rig.poll()[0];
    assert_eq!((wc.cqe.len, wc.cqe.op), (4, 0x0b));
}

#[test]
fn a_message_scatters_over_its_receive() {
    let mut rig = Rig::rc();
    let sges = [
        rig.mem.sge(0, 1000),
        rig.mem.sge(8000, 1),
        rig.mem.sge(5000, 3000),
    ];
    rig.node.recv(rig.qp, &sges);
    let data = pattern(2 * MTU + 7, 9);
    rig.tell(send_first(RQ_PSN, &data[..MTU]));
    rig.tell(send_middle(RQ_PSN + 1, &data[MTU..2 * MTU]));
    assert!(rig.poll().is_empty());
    rig.hear(send_last(RQ_PSN + 2, &data[2 * MTU..]).ack());
    assert_eq!(rig.poll()[0].cqe.len, 2055);
    let mut got = rig.mem.read(0, 1000);
    got.extend(rig.mem.read(8000, 1));
    got.extend(rig.mem.read(5000, 1054));
    assert_eq!(got, data);
}

#[test]
fn the_first_request_in_rtr_is_told() {
    use srdma_tests::node::Node;
    let mut node = Node::new("10.0.0.1");
    let qp = node.create(&QpSpec::default());
    node.climb(qp, QpState::Rtr);
    let peer = "10.0.0.2:49443".parse().unwrap();
    for n in 0..2 {
        node.recv(qp, &[]);
        node.inject(peer, qp, &send_only(RQ_PSN + n, b"").ack());
        assert_eq!(node.transmit().len(), 1, "responses leave in RTR");
    }
    let codes: Vec<AeCode> = node.aes().iter().map(|event| event.code).collect();
    assert_eq!(codes, [AeCode::LLP_CONNECTION_ESTABLISHED]);
}

#[test]
fn a_nak_that_is_out_of_date_is_not_sent() {
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    rig.recv(64, 64);
    // Swapped on the way, seen in one pass.
    rig.tell(send_only(RQ_PSN + 1, b"one").ack());
    rig.tell(send_only(RQ_PSN, b"zero").ack());
    rig.tell(send_only(RQ_PSN + 1, b"one").ack());
    assert_eq!(
        answers(&rig.transmit()),
        [(0x11, RQ_PSN + 1, 0x1f)],
        "nothing is missing"
    );
    rig.tell(send_only(RQ_PSN + 2, b"two").ack());
    rig.recv(0, 64);
    assert_eq!(
        answers(&rig.hear(send_only(RQ_PSN + 2, b"two").ack())),
        [(0x11, RQ_PSN + 2, 0x1f)],
        "the receive came in time"
    );
}

#[test]
fn a_duplicate_does_not_acknowledge_an_answer_that_may_be_lost() {
    // Linux rxe takes a plain acknowledgement of an atomic's PSN for its answer, and completes it
    // without the value.
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    let (at, key) = (rig.mem.at(128), rig.mem.rkey());
    let first = [(0x11, RQ_PSN, 0x1f)];
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"send").ack())), first);
    let read = answers(&rig.hear(read_request(RQ_PSN + 1, at, key, 1500)));
    assert_eq!(read, [(0x0d, RQ_PSN + 1, 0x1f), (0x0f, RQ_PSN + 2, 0x1f)]);
    let atomic = [(0x12, RQ_PSN + 3, 0x1f)];
    let add = || fetch_add(RQ_PSN + 3, at, key, 1);
    assert_eq!(answers(&rig.hear(add())), atomic);
    // The answers were lost, and the peer begins again with what it had not heard of.
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"send").ack())), first);
    assert_eq!(answers(&rig.hear(add())), atomic);
    assert_eq!(rig.mem.word(128), 1);
    // Behind them an acknowledgement stands for all.
    let write = write_only(RQ_PSN + 4, at, key, b"data").ack();
    let all = [(0x11, RQ_PSN + 4, 0x1f)];
    assert_eq!(answers(&rig.hear(write)), all);
    assert_eq!(answers(&rig.hear(send_only(RQ_PSN, b"send").ack())), all);
}
