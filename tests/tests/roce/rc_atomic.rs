//! Atomics, ATOMIC WRITE, FLUSH: done once, answered as often as asked. [RoCEv2 3.3, 3.6]

use srdma_core::hw::wqe::{RemoteAddr, WqeBuf, WrFlags};
use srdma_core::mem::Access;
use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpState;
use srdma_core::wire::Feth;
use srdma_tests::node::QpSpec;
use srdma_tests::pair::{Fate, Pair};
use srdma_tests::rig::{RQ_PSN, Rig, SQ_PSN};
use srdma_tests::wire_dsl::{
    answers, atomic_ack, atomic_write, brief, compare_swap, fetch_add, flush, read_request,
    read_response,
};

#[test]
fn a_duplicate_atomic_gives_the_same_answer_and_does_nothing() {
    // proves: roce-92, roce-149
    let mut rig = Rig::rc();
    rig.mem.write(0, &7_u64.to_ne_bytes());
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for _ in 0..3 {
        let heard = rig.hear(fetch_add(RQ_PSN, at, key, 5));
        assert_eq!(answers(&heard), [(0x12, RQ_PSN, 0x1f)]);
        assert_eq!(heard[0].head.atomic_ack, Some(7));
        assert_eq!(rig.mem.word(0), 12);
    }
    for _ in 0..3 {
        let heard = rig.hear(compare_swap(RQ_PSN + 1, at, key, 12, 99));
        assert_eq!(heard[0].head.atomic_ack, Some(12));
        assert_eq!(rig.mem.word(0), 99);
    }
    let heard = rig.hear(compare_swap(RQ_PSN + 2, at, key, 12, 1));
    assert_eq!(heard[0].head.atomic_ack, Some(99));
    assert_eq!(rig.mem.word(0), 99, "does not compare");
    let heard = rig.hear(fetch_add(RQ_PSN, at, key, 5));
    assert_eq!(heard[0].head.atomic_ack, Some(7), "still known");
}

#[test]
fn an_atomic_that_is_no_longer_known_is_dropped() {
    // proves: roce-93
    let mut rig = Rig::with(&QpSpec {
        ird: 2,
        ..QpSpec::default()
    });
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for n in 0..3 {
        rig.hear(fetch_add(RQ_PSN + n, at, key, 1));
    }
    assert!(rig.hear(fetch_add(RQ_PSN, at, key, 1)).is_empty());
    assert_eq!(rig.hear(fetch_add(RQ_PSN + 1, at, key, 1)).len(), 1);
    assert_eq!(rig.mem.word(0), 3);
    // Something else was asked with that number.
    assert!(rig.hear(read_request(RQ_PSN + 1, at, key, 8)).is_empty());
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn flush_and_atomic_write_are_answered_by_an_empty_response() {
    // proves: roce-22
    let mut rig = Rig::rc();
    let (at, key) = (rig.mem.at(0), rig.mem.rkey());
    for _ in 0..2 {
        let heard = rig.hear(atomic_write(RQ_PSN, at, key, *b"atomicwr"));
        assert_eq!(answers(&heard), [(0x10, RQ_PSN, 0x1f)]);
        assert!(heard[0].payload.is_empty());
        assert_eq!(rig.mem.read(0, 8), b"atomicwr", "not swapped");
    }
    rig.mem.write(0, &[0; 8]);
    rig.hear(atomic_write(RQ_PSN, at, key, *b"atomicwr"));
    assert_eq!(rig.mem.word(0), 0, "a duplicate writes nothing");
    for _ in 0..2 {
        let heard = rig.hear(flush(RQ_PSN + 1, at, key, 4096));
        assert_eq!(answers(&heard), [(0x10, RQ_PSN + 1, 0x1f)]);
        assert!(heard[0].payload.is_empty());
    }
}

#[test]
fn the_old_value_is_written_in_the_hosts_order() {
    // proves: roce-75
    let mut rig = Rig::rc();
    let local = (rig.mem.at(64), rig.mem.lkey());
    rig.node.fetch_add(rig.qp, local, 0x1000, Rkey(0x99), 3);
    let heard = rig.transmit();
    assert_eq!(brief(&heard), [(0x14, SQ_PSN)]);
    let eth = heard[0].head.atomic.unwrap();
    assert_eq!(
        (eth.addr, eth.rkey, eth.swap_add, eth.compare),
        (0x1000, Rkey(0x99), 3, 0)
    );
    rig.tell(atomic_ack(SQ_PSN, 0x0102_0304_0506_0708));
    assert_eq!(rig.mem.word(64), 0x0102_0304_0506_0708);
    assert_eq!(rig.done(), [('s', 0, None)]);

    let mut wqe = WqeBuf::new();
    let remote = RemoteAddr {
        addr: 0x1008,
        rkey: Rkey(0x99),
    };
    wqe.compare_swap(WrFlags::SIGNALED, local, remote, 11, 22);
    rig.node.post(rig.qp, &wqe);
    let eth = rig.transmit()[0].head.atomic.unwrap();
    assert_eq!((eth.compare, eth.swap_add), (11, 22));
    rig.tell(atomic_ack(SQ_PSN + 1, 11));
    assert_eq!(rig.mem.word(64), 11);
}

#[test]
fn an_answer_of_another_kind_is_malformed() {
    // proves: roce-76
    let mut rig = Rig::rc();
    let local = (rig.mem.at(64), rig.mem.lkey());
    rig.node.fetch_add(rig.qp, local, 0x1000, Rkey(0x99), 3);
    rig.transmit();
    rig.tell(read_response(SQ_PSN, true, true, &[0; 8]));
    assert_eq!(rig.done(), [('s', 0, Some(12))]);
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.transmit();
    rig.tell(atomic_ack(SQ_PSN, 5));
    assert_eq!(rig.done(), [('s', 0, Some(12))]);
}

#[test]
fn atomics_of_several_queue_pairs_add_up() {
    // proves: roce-112
    let mut pair = Pair::new();
    let (qa, qb) = (pair.qa, pair.qb);
    let shared = (pair.mb.at(0), pair.mb.rkey());
    // b has a second queue pair's worth of atomics on the same word: its own, to itself by a.
    for n in 0..200 {
        let local = (pair.ma.at(8 * n), pair.ma.lkey());
        pair.a.fetch_add(qa, local, shared.0, shared.1, 1);
        let local = (pair.mb.at(4096 + 8 * n), pair.mb.lkey());
        pair.b
            .fetch_add(qb, local, pair.ma.at(1 << 16), pair.ma.rkey(), 1);
    }
    pair.run();
    assert_eq!(pair.mb.word(0), 200);
    assert_eq!(pair.ma.word(1 << 16), 200);
    let mut seen: Vec<u64> = (0..200).map(|n| pair.ma.word(8 * n)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<u64>>(), "each value once");
}

#[test]
fn atomics_are_done_once_whatever_is_lost_or_doubled() {
    // proves: roce-148, roce-149
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        let mut lost = 0;
        pair.hook(move |_, _, _| match rng.u8(..) {
            0..=25 if lost < 1000 => {
                lost += 1;
                Fate::Drop
            }
            26..=50 => Fate::Twice,
            51..=60 => Fate::Late(50_000),
            _ => Fate::Deliver,
        });
        for n in 0..100 {
            let local = (pair.ma.at(8 * n), pair.ma.lkey());
            let (at, key) = (pair.mb.at(0), pair.mb.rkey());
            pair.a.fetch_add(pair.qa, local, at, key, 1);
        }
        pair.run();
        assert_eq!(pair.mb.word(0), 100, "seed {seed}");
        assert_eq!(pair.a.poll().len(), 100, "seed {seed}");
        let seen: Vec<u64> = (0..100).map(|n| pair.ma.word(8 * n)).collect();
        assert_eq!(seen, (0..100).collect::<Vec<u64>>(), "seed {seed}");
    }
}

#[test]
fn a_flush_needs_the_rights_of_what_it_asks() {
    let (global, both) = (
        Access::FLUSH_GLOBAL,
        Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT),
    );
    let ask = |qp: Access, placement: u8, selectivity: u8, at: Option<u64>| {
        let mut rig = Rig::with(&QpSpec {
            access: qp,
            ..QpSpec::default()
        });
        let at = at.unwrap_or_else(|| rig.mem.at(0));
        let mut frame = flush(RQ_PSN, at, rig.mem.rkey(), 64);
        frame.head.feth = Some(Feth {
            placement,
            selectivity,
        });
        rig.hear(frame)[0].syndrome().unwrap()
    };
    assert_eq!(ask(global, 1, 0, None), 0x1f);
    assert_eq!(ask(global, 2, 0, None), 0x61, "the queue pair forbids it");
    assert_eq!(ask(global, 3, 0, None), 0x61);
    assert_eq!(ask(both, 2, 0, None), 0x62, "the region forbids it");
    assert_eq!(ask(both, 0, 0, None), 0x61, "nothing to do");
    assert_eq!(ask(global, 1, 0, Some(0)), 0x62, "out of range");
    assert_eq!(
        ask(global, 1, 1, Some(0)),
        0x1f,
        "the whole region has no range"
    );
}
