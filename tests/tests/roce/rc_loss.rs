//! Loss, duplication and reordering between two devices.                [RoCEv2 2.6, 2.7, 3.3]

use srdma_core::qp::attr::QpState;
use srdma_core::wire::NakCode;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::pair::{Fate, Pair, Way};
use srdma_tests::rig::{Rig, SQ_PSN, brief_wcs};
use srdma_tests::wire_dsl::{ack, nak};

/// A mixed script: SEND, WRITE, READ, atomic, each of several packets where it can be.
fn work(pair: &mut Pair) {
    pair.ma.fill(0, 64 * 1024, 1);
    pair.mb.fill(1 << 19, 64 * 1024, 2);
    let (qa, key) = (pair.qa, pair.mb.rkey());
    for _ in 0..2 {
        pair.b.recv(pair.qb, &[pair.mb.sge(0, 10_000)]);
        pair.a.send(qa, &[pair.ma.sge(0, 10_000)]);
        pair.a
            .write(qa, &[pair.ma.sge(0, 10_000)], pair.mb.at(16_384), key);
        pair.a.read(
            qa,
            &[pair.ma.sge(1 << 17, 10_000)],
            pair.mb.at(1 << 19),
            key,
        );
        let local = (pair.ma.at(1 << 18), pair.ma.lkey());
        pair.a.fetch_add(qa, local, pair.mb.at(1 << 18), key, 1);
    }
}

/// How long one retry covers the answers to one loss, if there is no ACK timeout.
const PAID_NS: u64 = 60_000_000;

#[track_caller]
fn all_done(pair: &mut Pair, what: &str) {
    let done = brief_wcs(&pair.a.poll());
    let expected: Vec<_> = (0..8).map(|n| ('s', n, None)).collect();
    assert_eq!(done, expected, "{what}");
    let done = brief_wcs(&pair.b.poll());
    assert_eq!(done, [('r', 0, None), ('r', 1, None)], "{what}");
    let sent = pair.ma.read(0, 10_000);
    assert_eq!(pair.mb.read(0, 10_000), sent, "{what}");
    assert_eq!(pair.mb.read(16_384, 10_000), sent, "{what}");
    assert_eq!(
        pair.ma.read(1 << 17, 10_000),
        pair.mb.read(1 << 19, 10_000),
        "{what}"
    );
    assert_eq!(pair.mb.word(1 << 18), 2, "{what}: the atomics, once each");
    assert_eq!(pair.ma.word(1 << 18), 1, "{what}");
    assert_eq!(pair.a.state(pair.qa), QpState::Rts);
    assert_eq!(pair.b.state(pair.qb), QpState::Rts);
}

/// Two devices that go back, two that keep what came out of order, one of each, and two that keep
/// it and know that the other is of their kind.
fn mixes() -> [Pair; 5] {
    let spec = QpSpec::default();
    let (new, keeping) = (Node::new, Node::keeping);
    let (a, b) = ("10.0.0.1", "10.0.0.2");
    [
        Pair::new(),
        Pair::keeping(&spec),
        Pair::of(new(a), keeping(b), &spec),
        Pair::of(keeping(a), new(b), &spec),
        Pair::keeping(&spec.clone().own_kind()),
    ]
}

#[test]
fn nothing_is_sent_twice_without_loss() {
    for mut pair in mixes() {
        work(&mut pair);
        pair.run();
        all_done(&mut pair, "no loss");
        assert_eq!(pair.count[Way::ToB as usize], 2 * (10 + 10 + 1 + 1));
        let counters = pair.a.hca.counters();
        assert_eq!(
            (counters.ack_timeouts, counters.completer_retry_err),
            (0, 0)
        );
    }
}

#[test]
fn any_single_loss_is_recovered() {
    // proves: roce-148
    let total = {
        let mut pair = Pair::new();
        work(&mut pair);
        pair.run();
        pair.count
    };
    for way in [Way::ToB, Way::ToA] {
        for n in 0..total[way as usize] {
            for (mix, mut pair) in mixes().into_iter().enumerate() {
                pair.lose(way, n);
                work(&mut pair);
                pair.run();
                all_done(&mut pair, &format!("mix {mix} without packet {n} {way:?}"));
            }
        }
    }
}

#[test]
fn everything_doubled_is_done_once() {
    // proves: roce-149
    for mut pair in mixes() {
        pair.hook(|_, _, _| Fate::Twice);
        work(&mut pair);
        pair.run();
        all_done(&mut pair, "everything twice");
    }
}

#[test]
fn chance_is_survived() {
    // proves: roce-148, roce-149, ieq-12
    for seed in 0..500usize {
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut pair = mixes().into_iter().nth(seed % 5).unwrap();
        pair.hook(move |_, _, _| match rng.u32(..1000) {
            0..50 => Fate::Drop,
            50..100 => Fate::Twice,
            100..150 => Fate::Late(rng.u64(1..100_000)),
            _ => Fate::Deliver,
        });
        work(&mut pair);
        pair.run();
        all_done(&mut pair, &format!("seed {seed}"));
    }
}

#[test]
fn silence_ends_in_the_last_retry() {
    // proves: roce-59
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 3,
        ..QpSpec::default()
    });
    rig.recv(0, 64);
    for _ in 0..3 {
        rig.send(0, 4);
    }
    assert_eq!(rig.transmit().len(), 3);
    for retry in 0..3 {
        rig.node.advance(4 * 67_108_864);
        assert_eq!(rig.transmit().len(), 3, "retry {retry}");
    }
    rig.node.advance(4 * 67_108_864);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.state(), QpState::Err);
    let done = rig.done();
    let sends: Vec<_> = done.iter().filter(|wc| wc.0 == 's').collect();
    assert_eq!(
        sends,
        [&('s', 0, Some(8)), &('s', 1, Some(1)), &('s', 2, Some(1))]
    );
    assert!(done.contains(&('r', 0, Some(1))));
    let event = rig.node.aes()[0];
    assert_eq!((event.code.0, event.source.0), (0x50a, 5));
}

#[test]
fn the_time_out_is_between_once_and_four_times_its_value() {
    let mut rig = Rig::rc();
    rig.send(0, 4);
    rig.transmit();
    rig.node.advance(67_108_863);
    assert!(rig.transmit().is_empty(), "not before its time");
    rig.node.advance(3 * 67_108_864);
    assert_eq!(rig.transmit().len(), 1);
}

#[test]
fn no_time_out_waits_for_ever() {
    // proves: roce-60
    let mut rig = Rig::with(&QpSpec {
        timeout: 0,
        retry_cnt: 0,
        ..QpSpec::default()
    });
    rig.send(0, 4);
    rig.transmit();
    rig.node.advance(1 << 50);
    assert!(rig.transmit().is_empty());
    assert_eq!(rig.state(), QpState::Rts);
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done(), [('s', 0, None)]);
}

#[test]
fn progress_reloads_the_retries() {
    // proves: roce-61
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 1,
        ..QpSpec::default()
    });
    for n in 0..4 {
        rig.send(0, 4);
        rig.transmit();
        rig.node.advance(4 * 67_108_864);
        assert_eq!(rig.transmit().len(), 1);
        rig.tell(ack(SQ_PSN + n));
    }
    assert_eq!(rig.state(), QpState::Rts);
    assert_eq!(rig.done().len(), 4);
}

#[test]
fn naks_without_progress_use_up_the_retries() {
    // proves: roce-59
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 2,
        timeout: 0,
        ..QpSpec::default()
    });
    rig.send(0, 4);
    rig.transmit();
    for _ in 0..2 {
        rig.node.advance(PAID_NS);
        assert_eq!(rig.hear(nak(SQ_PSN, NakCode::PSN_SEQUENCE)).len(), 1);
    }
    rig.node.advance(PAID_NS);
    rig.tell(nak(SQ_PSN, NakCode::PSN_SEQUENCE));
    assert_eq!(rig.done(), [('s', 0, Some(8))]);
}

#[test]
fn a_slow_peer_is_not_given_up_before_a_silent_one() {
    // proves: roce-59
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 1,
        ..QpSpec::default()
    });
    rig.send(0, 4);
    rig.transmit();
    // Answers to what was sent at first, which sat in a socket while the peer had no processor.
    let mut answered = 0;
    for _ in 0..60 {
        rig.node.advance(1_000_000);
        answered += rig.hear(nak(SQ_PSN, NakCode::PSN_SEQUENCE)).len();
    }
    assert!(answered > 3, "{answered}");
    assert_eq!(rig.state(), QpState::Rts);
    rig.tell(ack(SQ_PSN));
    assert_eq!(rig.done(), [('s', 0, None)]);
}

#[test]
fn an_acknowledgement_overtakes_what_is_sent_again() {
    let mut rig = Rig::rc();
    for _ in 0..4 {
        rig.send(0, 4);
    }
    rig.transmit();
    rig.tell(nak(SQ_PSN, NakCode::PSN_SEQUENCE));
    rig.tell(ack(SQ_PSN + 2));
    let heard = rig.transmit();
    assert_eq!(heard.len(), 1, "the rest need not be sent again");
    assert_eq!(heard[0].psn(), SQ_PSN + 3);
    assert_eq!(rig.done().len(), 3);
}

#[test]
fn a_lost_nak_is_repeated() {
    let mut pair = Pair::new();
    let mut seen = 0;
    pair.hook(move |heard, way, n| {
        if way == Way::ToB && n == 3 {
            return Fate::Drop;
        }
        if heard.syndrome() == Some(0x60) {
            seen += 1;
            if seen == 1 {
                return Fate::Drop;
            }
        }
        Fate::Deliver
    });
    work(&mut pair);
    pair.run();
    all_done(&mut pair, "first NAK lost");
}

#[test]
fn a_long_way_does_not_use_up_the_retries() {
    // proves: roce-53
    for measured in [false, true] {
        let mut pair = Pair::new();
        pair.latency = 20_000_000;
        if measured {
            pair.b.recv(pair.qb, &[]);
            pair.a.send(pair.qa, &[]);
            pair.run();
        }
        let first = pair.count[Way::ToB as usize];
        // A slow link: packets arrive one after the other, for 10 ms after the loss.
        pair.hook(move |_, way, n| match (way, n.checked_sub(first)) {
            (Way::ToB, Some(0)) => Fate::Drop,
            (Way::ToB, Some(n @ 1..100)) => Fate::Late(100_000 * n as u64),
            _ => Fate::Deliver,
        });
        let memory = pair.mb.sge(0, 100 * 1024);
        pair.b.recv(pair.qb, &[memory]);
        pair.a.send(pair.qa, &[pair.ma.sge(0, 100 * 1024)]);
        pair.run();
        let statuses: Vec<_> = pair.a.poll().iter().map(|wc| wc.status).collect();
        assert_eq!(statuses.last(), Some(&None), "{statuses:?}");
        assert!(
            pair.a.hca.counters().completer_retry_err <= 2,
            "one loss, one answer"
        );
    }
}

#[test]
fn responses_that_never_come_use_up_the_retries() {
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 3,
        timeout: 0,
        ..QpSpec::default()
    });
    let sge = rig.mem.sge(0, 8);
    rig.node
        .read(rig.qp, &[sge], 0x1000, srdma_core::num::Rkey(0x99));
    rig.send(0, 4);
    rig.transmit();
    for _ in 0..3 {
        rig.node.advance(PAID_NS);
        assert!(!rig.hear(ack(SQ_PSN + 1)).is_empty());
    }
    rig.node.advance(PAID_NS);
    rig.tell(ack(SQ_PSN + 1));
    assert_eq!(rig.done(), [('s', 0, Some(8)), ('s', 1, Some(1))]);
}
