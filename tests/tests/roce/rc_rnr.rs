//! Receivers that are not ready, seen by the requester.                 [RoCEv2 2.6]

use srdma_core::qp::attr::QpState;
use srdma_core::wire::NakCode;
use srdma_tests::node::QpSpec;
use srdma_tests::pair::Pair;
use srdma_tests::rig::{Rig, SQ_PSN};
use srdma_tests::wire_dsl::{ack, nak, rnr_nak};

fn rig(rnr_retry: u8) -> Rig {
    Rig::with(&QpSpec {
        rnr_retry,
        ..QpSpec::default()
    })
}

#[test]
fn the_requester_waits_as_long_as_it_is_told() {
    // proves: roce-56, roce-62
    for (timer, us) in [(0, 655_360), (1, 10), (12, 640), (31, 491_520)] {
        let mut rig = rig(7);
        rig.send(0, 4);
        rig.send(0, 4);
        rig.transmit();
        assert!(rig.hear(rnr_nak(SQ_PSN, timer)).is_empty());
        rig.send(0, 4);
        assert!(rig.transmit().is_empty(), "nothing leaves while waiting");
        rig.node.advance(us * 1000 - 1);
        assert!(rig.transmit().is_empty(), "timer {timer}");
        assert!(
            rig.hear(nak(SQ_PSN, NakCode::PSN_SEQUENCE)).is_empty(),
            "nor for a NAK"
        );
        rig.node.advance(1);
        let heard = rig.transmit();
        assert_eq!(heard.len(), 3, "timer {timer}");
        assert_eq!(heard[0].psn(), SQ_PSN);
    }
}

#[test]
fn an_rnr_nak_acknowledges_what_was_before() {
    let mut rig = rig(7);
    rig.send(0, 4);
    rig.send(0, 4);
    rig.transmit();
    rig.tell(rnr_nak(SQ_PSN + 1, 1));
    assert_eq!(rig.done(), [('s', 0, None)]);
    rig.node.advance(10_000);
    assert_eq!(rig.transmit()[0].psn(), SQ_PSN + 1);
}

#[test]
fn retries_are_counted_and_seven_is_for_ever() {
    // proves: roce-57, roce-58
    for count in 0..7 {
        let mut rig = rig(count);
        rig.send(0, 4);
        rig.send(0, 4);
        rig.transmit();
        for _ in 0..count {
            rig.tell(rnr_nak(SQ_PSN, 1));
            assert_eq!(rig.state(), QpState::Rts);
            rig.node.advance(10_000);
            assert_eq!(rig.transmit().len(), 2);
        }
        rig.tell(rnr_nak(SQ_PSN, 1));
        assert_eq!(rig.state(), QpState::Err);
        assert_eq!(rig.done(), [('s', 0, Some(11)), ('s', 1, Some(1))]);
        let event = rig.node.aes()[0];
        assert_eq!((event.code.0, event.source.0), (0x50f, 5));
    }
    let mut rig = rig(7);
    rig.send(0, 4);
    rig.transmit();
    for _ in 0..100 {
        rig.tell(rnr_nak(SQ_PSN, 1));
        rig.node.advance(10_000);
        assert_eq!(rig.transmit().len(), 1);
    }
}

#[test]
fn progress_reloads_the_count() {
    // proves: roce-61
    let mut rig = rig(1);
    for n in 0..4 {
        rig.send(0, 4);
        rig.transmit();
        rig.tell(rnr_nak(SQ_PSN + n, 1));
        rig.node.advance(10_000);
        assert_eq!(rig.transmit().len(), 1);
        rig.tell(ack(SQ_PSN + n));
    }
    assert_eq!(rig.state(), QpState::Rts);
}

#[test]
fn waiting_costs_no_other_retries() {
    let mut rig = Rig::with(&QpSpec {
        retry_cnt: 0,
        timeout: 1,
        ..QpSpec::default()
    });
    rig.send(0, 4);
    rig.transmit();
    rig.tell(rnr_nak(SQ_PSN, 0));
    rig.node.advance(600_000_000);
    assert_eq!(rig.state(), QpState::Rts, "no time-out while waiting");
    rig.node.advance(100_000_000);
    assert_eq!(rig.transmit().len(), 1);
}

#[test]
fn a_late_receive_is_filled() {
    let mut pair = Pair::new();
    let data = pair.ma.fill(0, 3000, 1);
    pair.a.send(pair.qa, &[pair.ma.sge(0, 3000)]);
    pair.run_for(50_000_000);
    assert!(pair.a.poll().is_empty());
    pair.b.recv(pair.qb, &[pair.mb.sge(0, 3000)]);
    pair.run();
    assert_eq!(pair.a.poll().len(), 1);
    assert_eq!(pair.b.poll()[0].cqe.len, 3000);
    assert_eq!(pair.mb.read(0, 3000), data);
}
