//! Packets from the middle of a message that come ahead of their turn: their payload goes to its
//! place at once, and everything else waits.
//! [E810 8.6.4, RoCEv2 6.3]

use srdma_core::num::Rkey;
use srdma_core::puda::ReorderStats;
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{Node, QpSpec, pattern};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{
    Frame, answers, send_first, send_last, send_middle, send_only, write_first, write_last,
    write_middle,
};

pub(super) const MTU: usize = 1024;

pub(super) fn keeping() -> Rig {
    Rig::on(Node::keeping("10.0.0.1"), &QpSpec::default())
}

pub(super) fn stats(rig: &Rig) -> ReorderStats {
    rig.node.hca.ieq_stats(rig.qp).expect("there is one")
}

/// Packet `n` of a message of `bytes`.
fn send_part(n: usize, bytes: &[u8]) -> Frame {
    let psn = RQ_PSN + u32::try_from(n).expect("a few");
    let part = &bytes[n * MTU..bytes.len().min((n + 1) * MTU)];
    match (n, (n + 1) * MTU < bytes.len()) {
        (0, _) => send_first(psn, part),
        (_, true) => send_middle(psn, part),
        _ => send_last(psn, part).ack(),
    }
}

/// The same of a WRITE.
fn write_part(n: usize, (addr, rkey): (u64, Rkey), bytes: &[u8]) -> Frame {
    let psn = RQ_PSN + u32::try_from(n).expect("a few");
    let part = &bytes[n * MTU..bytes.len().min((n + 1) * MTU)];
    let len = u32::try_from(bytes.len()).expect("short");
    match (n, (n + 1) * MTU < bytes.len()) {
        (0, _) => write_first(psn, addr, rkey, len, part),
        (_, true) => write_middle(psn, part),
        _ => write_last(psn, part).ack(),
    }
}

#[test]
fn the_middle_of_a_write_is_placed_at_once_and_its_end_last() {
    // proves: ieq-17
    let mut rig = keeping();
    let to = (rig.mem.at(0), rig.mem.rkey());
    let bytes = pattern(5 * MTU + 100, 7);
    rig.tell(write_part(0, to, &bytes));
    for n in [3, 5, 2] {
        rig.tell(write_part(n, to, &bytes));
    }
    let seen = rig.mem.read(0, bytes.len());
    let part = |n: usize| n * MTU..bytes.len().min((n + 1) * MTU);
    for n in [0, 2, 3] {
        assert_eq!(seen[part(n)], bytes[part(n)], "packet {n}");
    }
    for n in [1, 4, 5] {
        assert!(seen[part(n)].iter().all(|byte| *byte == 0), "packet {n}");
    }
    assert_eq!(
        (rig.counter("requests_ahead"), stats(&rig).list_len),
        (2, 3)
    );
    assert_eq!(
        rig.node.hca.ieq_buffers().1,
        1,
        "only the end takes a buffer"
    );
    rig.tell(write_part(1, to, &bytes));
    let heard = rig.hear(write_part(4, to, &bytes));
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 5, 0x1f)]);
    assert_eq!(rig.mem.read(0, bytes.len()), bytes);
    let stats = stats(&rig);
    assert_eq!((stats.out_of_order, stats.fpdu_processed), (3, 3));
    assert_eq!(rig.node.hca.ieq_buffers().1, 0);
}

#[test]
fn a_copy_of_what_is_placed_changes_nothing() {
    // proves: ieq-17
    let mut rig = keeping();
    let to = (rig.mem.at(0), rig.mem.rkey());
    let bytes = pattern(4 * MTU, 1);
    rig.tell(write_part(0, to, &bytes));
    rig.tell(write_part(2, to, &bytes));
    let other = pattern(4 * MTU, 99);
    rig.tell(write_part(2, to, &other));
    rig.tell(write_part(1, to, &bytes));
    let heard = rig.hear(write_part(3, to, &bytes));
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 3, 0x1f)]);
    assert_eq!(rig.mem.read(0, bytes.len()), bytes);
    assert_eq!(stats(&rig).dup_held, 1);
}

#[test]
fn the_middle_of_a_send_is_placed_behind_a_hole_of_one() {
    // proves: ieq-17
    let mut rig = keeping();
    rig.recv(0, 16 * 1024);
    let bytes = pattern(9 * MTU, 3);
    for n in [0, 2, 4, 7] {
        rig.tell(send_part(n, &bytes));
    }
    let seen = rig.mem.read(0, bytes.len());
    for n in [2, 4] {
        let part = n * MTU..(n + 1) * MTU;
        assert_eq!(seen[part.clone()], bytes[part], "packet {n}");
    }
    // Between 4 and 7 one message may have ended and another begun.
    assert!(seen[7 * MTU..8 * MTU].iter().all(|byte| *byte == 0));
    assert_eq!(rig.node.hca.ieq_buffers().1, 1);
    for n in [1, 3, 5, 6, 8] {
        rig.tell(send_part(n, &bytes));
    }
    let done: Vec<_> = rig.poll().iter().map(|wc| (wc.wr_id, wc.cqe.len)).collect();
    assert_eq!(done, [(0, 9 * 1024)]);
    assert_eq!(rig.mem.read(0, bytes.len()), bytes);
}

#[test]
fn the_middle_of_another_message_is_not_placed_in_this_one() {
    // proves: ieq-17
    let mut rig = keeping();
    rig.recv(0, 8192);
    rig.recv(8192, 8192);
    let (one, two) = (pattern(2 * MTU, 1), pattern(3 * MTU, 2));
    rig.tell(send_part(0, &one));
    // The end of the one and the beginning of the other are missing.
    rig.tell(send_middle(RQ_PSN + 3, &two[MTU..2 * MTU]));
    assert!(rig.mem.read(MTU, 3 * MTU).iter().all(|byte| *byte == 0));
    rig.tell(send_last(RQ_PSN + 4, &two[2 * MTU..]).ack());
    rig.tell(send_last(RQ_PSN + 1, &one[MTU..]));
    rig.tell(send_first(RQ_PSN + 2, &two[..MTU]));
    let done: Vec<_> = rig.poll().iter().map(|wc| wc.cqe.len).collect();
    assert_eq!(done, [2 * 1024, 3 * 1024]);
    assert_eq!(rig.mem.read(0, one.len()), one);
    assert!(rig.mem.read(one.len(), 1024).iter().all(|byte| *byte == 0));
    assert_eq!(rig.mem.read(8192, two.len()), two);
}

#[test]
fn what_was_placed_for_a_message_that_ended_before_does_not_count() {
    // proves: ieq-17
    let mut rig = keeping();
    rig.recv(0, 8192);
    rig.recv(8192, 8192);
    let bytes = pattern(3 * MTU, 1);
    rig.tell(send_part(0, &bytes));
    rig.tell(send_part(2, &pattern(4 * MTU, 2)));
    assert_eq!(rig.counter("requests_ahead"), 1);
    // A peer that keeps the rules would not end it here.
    rig.tell(send_last(RQ_PSN + 1, &bytes[..10]).ack());
    assert_eq!(stats(&rig).list_len, 0);
    rig.tell(send_only(RQ_PSN + 2, b"two").ack());
    let done: Vec<_> = rig.poll().iter().map(|wc| wc.cqe.len).collect();
    assert_eq!(done, [1034, 3]);
    assert_eq!(rig.mem.read(8192, 3), b"two");
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn a_middle_packet_where_the_last_should_be_is_not_placed() {
    // proves: ieq-17
    let mut rig = keeping();
    let to = (rig.mem.at(0), rig.mem.rkey());
    let bytes = pattern(4 * MTU, 7);
    rig.tell(write_part(0, to, &bytes));
    rig.tell(write_part(2, to, &bytes));
    rig.tell(write_middle(RQ_PSN + 3, &bytes[3 * MTU..]));
    assert_eq!(rig.counter("requests_ahead"), 1);
    assert!(rig.mem.read(3 * MTU, MTU).iter().all(|byte| *byte == 0));
    let heard = rig.hear(write_part(1, to, &bytes));
    assert_eq!(answers(&heard).last(), Some(&(0x11, RQ_PSN + 3, 0x61)));
    assert_eq!(rig.state(), QpState::Err);
}

#[test]
fn nothing_is_placed_beyond_what_the_message_names_or_its_buffer_holds() {
    // proves: ieq-17
    let mut rig = keeping();
    let to = (rig.mem.at(0), rig.mem.rkey());
    let bytes = pattern(3 * MTU, 1);
    rig.tell(write_part(0, to, &bytes));
    // The third packet of three is its last, whatever it says.
    rig.tell(write_middle(RQ_PSN + 2, &bytes[2 * MTU..]));
    rig.tell(write_middle(RQ_PSN + 9, &bytes[2 * MTU..]));
    rig.tell(write_middle(RQ_PSN + 4, &bytes[..10]));
    assert!(rig.mem.read(MTU, 12 * MTU).iter().all(|byte| *byte == 0));
    assert_eq!(rig.counter("requests_ahead"), 0);

    let mut rig = keeping();
    rig.recv(0, 2 * 1024);
    rig.tell(send_part(0, &bytes));
    rig.tell(send_middle(RQ_PSN + 2, &bytes[2 * MTU..]));
    assert!(rig.mem.read(MTU, 4 * MTU).iter().all(|byte| *byte == 0));
    assert_eq!(
        (rig.counter("requests_ahead"), stats(&rig).list_len),
        (0, 0)
    );
}
