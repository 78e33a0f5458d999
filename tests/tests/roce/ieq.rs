//! Packets out of order: kept, served in their turn, given up; and what the peer is told.
//! [E810 8.6.4, RoCEv2 6.2]

use srdma_core::hca::HcaConfig;
use srdma_core::hw::CqpCmd;
use srdma_core::limits::{IEQ_BUFFERS, IEQ_HELD_PER_QP, IEQ_HOLD_NS, IEQ_WINDOW};
use srdma_core::puda::{IeqMode, ReorderStats};
use srdma_core::qp::attr::QpState;
use srdma_tests::node::{Node, QpSpec, pattern, required};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{
    Frame, answers, fetch_add, read_request, send_first, send_last, send_middle, send_only,
    write_only,
};

const NAK: u8 = 0x60;
const MTU: usize = 1024;
const US: u64 = 1_000;

/// A device that keeps packets.
fn keeping() -> Rig {
    Rig::on(Node::keeping("10.0.0.1"), &QpSpec::default())
}

fn stats(rig: &Rig) -> ReorderStats {
    let stats = rig.node.hca.ieq_stats(rig.qp).expect("there is one");
    // proves: ieq-4 (what went in came out, or is here)
    let gone = stats.fpdu_processed + stats.discarded;
    assert_eq!(stats.out_of_order, gone + stats.list_len);
    let (free, held) = rig.node.hca.ieq_buffers();
    assert_eq!((free + held, held as u64), (IEQ_BUFFERS, stats.list_len));
    stats
}

/// SEND `n` of a series, each into a buffer of its own.
fn nth(n: u32) -> Frame {
    send_only(RQ_PSN + n, &pattern(40, n.to_le_bytes()[0])).ack()
}

#[test]
fn what_came_early_is_served_in_its_turn() {
    // proves: ieq-1, ieq-2, ieq-6, ieq-9
    let mut rig = keeping();
    for n in 0..4 {
        rig.recv(64 * n, 64);
    }
    for n in [3, 1, 2] {
        assert!(rig.hear(nth(n)).is_empty());
        assert!(rig.poll().is_empty(), "nothing happens before its turn");
        assert!(rig.mem.read(0, 256).iter().all(|byte| *byte == 0));
    }
    assert_eq!(stats(&rig).list_len, 3);
    let heard = rig.hear(nth(0));
    assert_eq!(
        answers(&heard),
        [(0x11, RQ_PSN + 3, 0x1f)],
        "one answer for all"
    );
    assert_eq!(heard[0].msn(), Some(4));
    let done: Vec<_> = rig.poll().iter().map(|wc| (wc.wr_id, wc.cqe.len)).collect();
    assert_eq!(done, [(0, 40), (1, 40), (2, 40), (3, 40)]);
    for n in 0..4usize {
        assert_eq!(rig.mem.read(64 * n, 40), pattern(40, n.to_le_bytes()[0]));
    }
    let stats = stats(&rig);
    assert_eq!((stats.out_of_order, stats.fpdu_processed), (3, 3));
    assert_eq!((stats.pmode_count, stats.list_max), (1, 3));
    assert_eq!(rig.counter("sent_naks"), 0);
}

#[test]
fn an_answer_is_due_even_if_the_last_one_did_not_ask() {
    // proves: ieq-9
    let mut rig = keeping();
    rig.recv(0, 4096);
    let bytes = pattern(2 * MTU + 10, 1);
    rig.tell(send_middle(RQ_PSN + 1, &bytes[MTU..2 * MTU]));
    let heard = rig.hear(send_first(RQ_PSN, &bytes[..MTU]));
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 1, 0x1f)]);
    let heard = rig.hear(send_last(RQ_PSN + 2, &bytes[2 * MTU..]).ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 2, 0x1f)]);
    assert_eq!(rig.mem.read(0, bytes.len()), bytes);
}

#[test]
fn the_peer_is_told_once_and_not_before_the_wait_is_over() {
    // proves: ieq-5, roce-86
    let mut rig = keeping();
    rig.recv(0, 64);
    rig.recv(64, 64);
    assert!(rig.hear(nth(1)).is_empty());
    rig.node.advance(4 * US);
    assert!(rig.transmit().is_empty(), "it may only be late");
    rig.node.advance(US);
    let nak = [(0x11, RQ_PSN, NAK)];
    assert_eq!(answers(&rig.transmit()), nak);
    // More that comes is no reason to say it again, nor is time, for a while.
    for n in 2..20 {
        rig.node.advance(20 * US);
        assert!(rig.hear(nth(n)).is_empty());
    }
    // The NAK may have been lost.
    rig.node.advance(2_000 * US);
    assert_eq!(answers(&rig.transmit()), nak);
    rig.node.advance(3_000 * US);
    assert!(rig.transmit().is_empty(), "less and less often");
    rig.node.advance(2_000 * US);
    assert_eq!(answers(&rig.transmit()), nak);
    assert_eq!(rig.counter("sent_naks"), 3);
}

#[test]
fn a_late_packet_draws_no_nak_and_teaches_patience() {
    // proves: ieq-5, roce-145
    let mut rig = keeping();
    for n in 0..32 {
        rig.recv(64 * n, 64);
    }
    // The first is taken for lost; the next ones, as late as it, are waited for.
    for round in 0..8 {
        assert!(rig.hear(nth(2 * round + 1)).is_empty());
        rig.node.advance(30 * US);
        let told = answers(&rig.transmit());
        rig.tell(nth(2 * round));
        let heard = answers(&rig.transmit());
        assert_eq!(heard, [(0x11, RQ_PSN + 2 * round + 1, 0x1f)]);
        if round == 0 {
            assert_eq!(told, [(0x11, RQ_PSN, NAK)]);
            // It was only late: the copy that the NAK asked for comes as well.
            rig.hear(nth(0));
        } else {
            assert!(told.is_empty(), "round {round}: {told:?}");
        }
    }
    assert_eq!(rig.counter("sent_naks"), 1);
    assert_eq!(stats(&rig).discarded, 0);
}

#[test]
fn each_hole_is_told_of_by_itself_and_only_when_it_is_the_next() {
    // proves: ieq-5
    let mut rig = keeping();
    for n in 0..8 {
        rig.recv(64 * n, 64);
    }
    for n in [1, 2, 4, 5] {
        rig.tell(nth(n));
    }
    rig.node.advance(10 * US);
    assert_eq!(answers(&rig.transmit()), [(0x11, RQ_PSN, NAK)]);
    // The second hole is as old as the first: there is nothing to wait for.
    let heard = answers(&rig.hear(nth(0)));
    assert_eq!(heard, [(0x11, RQ_PSN + 3, NAK)]);
    assert_eq!(answers(&rig.hear(nth(3))), [(0x11, RQ_PSN + 5, 0x1f)]);
    assert_eq!(rig.done().len(), 6);
}

#[test]
fn a_peer_that_sends_everything_again_finds_duplicates_and_few_naks() {
    // proves: ieq-5, ieq-6, roce-149
    let mut rig = keeping();
    for n in 0..40 {
        rig.recv(64 * n, 64);
    }
    for n in (0..40).filter(|n| ![5, 6, 20].contains(n)) {
        rig.tell(nth(n));
    }
    rig.transmit();
    rig.node.advance(100 * US);
    assert_eq!(answers(&rig.transmit()), [(0x11, RQ_PSN + 5, NAK)]);
    // As rxe: everything from there on, in order, packet by packet.
    let mut naks = 0;
    let mut last = 0;
    for n in 5..40 {
        rig.node.advance(2 * US);
        for (_, psn, syndrome) in answers(&rig.hear(nth(n))) {
            naks += u32::from(syndrome == NAK);
            last = psn;
        }
    }
    assert_eq!(last, RQ_PSN + 39);
    assert!(naks <= 1, "one hole was left: {naks}");
    let done = rig.done();
    assert_eq!(done.len(), 40, "each once");
    assert_eq!(done.last(), Some(&('r', 39, None)));
    let stats = stats(&rig);
    assert_eq!(stats.fpdu_processed, stats.out_of_order);
}

#[test]
fn reads_and_atomics_wait_for_their_turn_too() {
    // proves: ieq-1, ieq-6
    let mut rig = keeping();
    rig.mem.write(512, &7u64.to_ne_bytes());
    let (addr, key) = (rig.mem.at(512), rig.mem.rkey());
    rig.tell(fetch_add(RQ_PSN + 4, addr, key, 1));
    rig.tell(read_request(RQ_PSN + 1, rig.mem.at(0), key, 3 * 1024));
    rig.tell(fetch_add(RQ_PSN + 4, addr, key, 1));
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.mem.word(512), 7);
    let heard = rig.hear(write_only(RQ_PSN, rig.mem.at(0), key, b"first").ack());
    let psns: Vec<u32> = heard.iter().map(|h| h.psn()).collect();
    let expected: Vec<u32> = (1..5).map(|n| RQ_PSN + n).collect();
    assert_eq!(psns[..4], expected, "after the WRITE, in order: {psns:?}");
    assert_eq!(&heard[0].payload[..5], b"first");
    assert_eq!(rig.mem.word(512), 8, "once");
    assert_eq!(stats(&rig).dup_held, 1);
}

#[test]
fn what_is_too_far_ahead_or_too_much_is_not_kept() {
    // proves: ieq-3, roce-155
    let mut rig = keeping();
    let cap = u32::try_from(IEQ_HELD_PER_QP).unwrap();
    for n in 0..cap + 50 {
        rig.tell(nth(n + 1));
    }
    rig.tell(nth(IEQ_WINDOW + 1));
    assert_eq!(
        answers(&rig.transmit()),
        [(0x11, RQ_PSN, NAK)],
        "full: at once"
    );
    let stats = stats(&rig);
    assert_eq!(stats.list_len, IEQ_HELD_PER_QP as u64);
    assert_eq!((stats.no_rx_bufs, stats.bad_seq_num), (50, 1));
}

#[test]
fn a_peer_that_never_fills_its_holes_ties_up_bounded_memory_for_a_bounded_time() {
    // proves: ieq-4, ieq-7, roce-155
    let mut node = Node::keeping("10.0.0.1");
    let specs = (0..20).map(|_| QpSpec::default());
    let qps: Vec<_> = specs.map(|spec| node.connected(&spec)).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut rig = Rig::on(node, &QpSpec::default());
    let peer = rig.peer;
    for _ in 0..20_000 {
        let qp = qps[rng.usize(0..qps.len())];
        rig.node.inject(peer, qp, &nth(rng.u32(1..2000)));
    }
    let (free, held) = rig.node.hca.ieq_buffers();
    assert_eq!(free + held, IEQ_BUFFERS);
    assert!(free > 0, "some stay for others");
    rig.transmit();
    // The device still works, and lets go in time.
    rig.recv(0, 64);
    assert_eq!(answers(&rig.hear(nth(0))), [(0x11, RQ_PSN, 0x1f)]);
    for _ in 0..200 {
        rig.node.advance(IEQ_HOLD_NS / 100);
        rig.transmit();
    }
    assert_eq!(rig.node.hca.ieq_buffers(), (IEQ_BUFFERS, 0));
    let counters = rig.node.hca.counters();
    assert_eq!(counters.ieq_out_of_order, counters.ieq_discarded);
    assert!(counters.sent_naks < 20 * 12, "{} NAKs", counters.sent_naks);
}

#[test]
fn what_is_held_goes_when_the_queue_pair_starts_over_ends_or_is_destroyed() {
    // proves: ieq-8
    for (to, state) in [
        (QpState::Reset, QpState::Reset),
        (QpState::Err, QpState::Err),
    ] {
        let mut rig = keeping();
        rig.recv(0, 64);
        rig.tell(nth(1));
        assert_eq!(stats(&rig).list_len, 1);
        let mask = required(&QpSpec::default(), QpState::Rts, to);
        assert!(rig.node.modify(rig.qp, to, mask));
        assert_eq!(rig.state(), state);
        assert_eq!(rig.node.hca.ieq_buffers(), (IEQ_BUFFERS, 0), "{to:?}");
        rig.tell(nth(0));
        assert!(!rig.mem.read(0, 40).iter().any(|byte| *byte != 0));
    }
    let mut rig = keeping();
    rig.tell(nth(1));
    rig.node.ok(CqpCmd::DestroyQp(rig.qp));
    assert_eq!(rig.node.hca.ieq_buffers(), (IEQ_BUFFERS, 0));
    rig.node.advance(IEQ_HOLD_NS);
    assert!(rig.transmit().is_empty());
}

#[test]
fn a_refusal_gives_up_what_is_behind_it() {
    // proves: ieq-8, roce-105, e810-35
    // No receive: the peer waits, and everything comes again.
    let mut rig = keeping();
    rig.recv(0, 64);
    for n in [1, 2] {
        rig.tell(nth(n));
    }
    let heard = answers(&rig.hear(nth(0)));
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].1, heard[0].2 >> 5), (RQ_PSN + 1, 1), "RNR NAK");
    let now = stats(&rig);
    assert_eq!((now.list_len, now.discarded), (0, 1));
    // While it waits nothing is kept and nothing said.
    assert!(rig.hear(nth(2)).is_empty());
    assert_eq!(stats(&rig).list_len, 0);
    rig.recv(64, 64);
    rig.recv(128, 64);
    assert_eq!(answers(&rig.hear(nth(1))), [(0x11, RQ_PSN + 1, 0x1f)]);
    assert_eq!(answers(&rig.hear(nth(2))), [(0x11, RQ_PSN + 2, 0x1f)]);
    // A fatal one ends the queue pair, with the same status as in order.
    let mut rig = keeping();
    rig.tell(nth(2));
    rig.tell(write_only(RQ_PSN + 1, 0, srdma_core::num::Rkey(0x77), b"no").ack());
    rig.recv(0, 64);
    let heard = answers(&rig.hear(nth(0)));
    assert_eq!(heard, [(0x11, RQ_PSN + 1, 0x62)]);
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(stats(&rig).discarded, 1);
}

#[test]
fn without_reordering_nothing_is_kept() {
    // proves: ieq-1
    for mode in [IeqMode::Off, IeqMode::Capture] {
        let mut config = HcaConfig::default();
        config.ieq = mode;
        let mut rig = Rig::on(Node::with("10.0.0.1", config), &QpSpec::default());
        rig.recv(0, 64);
        assert_eq!(answers(&rig.hear(nth(1))), [(0x11, RQ_PSN, NAK)]);
        assert_eq!(stats(&rig), ReorderStats::default());
        assert_eq!(answers(&rig.hear(nth(0))), [(0x11, RQ_PSN, 0x1f)]);
        assert_eq!(rig.done().len(), 1);
    }
}

#[test]
fn told_at_once_where_there_is_no_wait() {
    // proves: ieq-5
    let mut config = HcaConfig::default();
    config.ieq_gap_ns = 0;
    let mut rig = Rig::on(Node::with("10.0.0.1", config), &QpSpec::default());
    rig.recv(0, 64);
    rig.recv(64, 64);
    assert_eq!(answers(&rig.hear(nth(1))), [(0x11, RQ_PSN, NAK)]);
    assert_eq!(answers(&rig.hear(nth(0))), [(0x11, RQ_PSN + 1, 0x1f)]);
}
