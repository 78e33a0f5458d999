//! A peer that closes while work is outstanding: 100 ms for the owner.  [E810 5.4, 8.6.7]

use srdma_core::hca::CLOSE_NS;
use srdma_core::hw::AeCode;
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::rig::Rig;

const TOLD: [AeCode; 1] = [AeCode::RDMAP_ROE_BAD_LLP_CLOSE];

/// The peer has closed; a receive is posted.
fn closing() -> Rig {
    let mut rig = Rig::rc();
    rig.recv(0, 64);
    assert!(rig.node.hca.bad_close(rig.node.now, rig.qp));
    assert_eq!(rig.aes(), TOLD);
    assert_eq!(rig.state(), QpState::Rts);
    rig
}

#[test]
fn an_owner_that_does_nothing_has_it_ended() {
    // proves: irq-3
    assert_eq!(CLOSE_NS, 100_000_000);
    let mut rig = closing();
    rig.node.advance(CLOSE_NS - 1);
    assert!(rig.aes().is_empty() && rig.done().is_empty());
    assert_eq!(rig.state(), QpState::Rts);
    rig.node.advance(1);
    assert_eq!(rig.aes(), [AeCode::RESET_SENT]);
    assert_eq!(rig.state(), QpState::Err);
    assert_eq!(rig.done().len(), 1, "the receive is flushed");
    rig.node.advance(10 * CLOSE_NS);
    assert!(rig.aes().is_empty());
    assert!(rig.node.hca.bad_close(rig.node.now, rig.qp));
    assert!(rig.aes().is_empty(), "it has ended");
}

#[test]
fn a_further_close_neither_tells_nor_prolongs() {
    // proves: irq-3
    let mut rig = closing();
    rig.node.advance(CLOSE_NS / 2);
    assert!(rig.node.hca.bad_close(rig.node.now, rig.qp));
    assert!(rig.aes().is_empty());
    rig.node.advance(CLOSE_NS / 2);
    assert_eq!(rig.aes(), [AeCode::RESET_SENT]);
}

#[test]
fn an_owner_that_stops_it_hears_no_more() {
    // proves: irq-3
    for to in [QpState::Err, QpState::Reset] {
        let mut rig = closing();
        assert!(rig.node.modify(rig.qp, to, AttrMask::NONE));
        if to == QpState::Reset {
            // It lives again when the time would have been over.
            rig.node.connect(rig.qp);
        }
        let before = rig.state();
        rig.node.advance(2 * CLOSE_NS);
        assert!(rig.aes().is_empty(), "{to:?}");
        assert_eq!(rig.state(), before);
    }
}

#[test]
fn a_queue_pair_that_is_gone_is_left_alone() {
    // proves: irq-3
    let mut rig = closing();
    let old = rig.qp;
    rig.renew();
    rig.node.ok(srdma_core::hw::CqpCmd::DestroyQp(old));
    assert!(!rig.node.hca.bad_close(rig.node.now, old));
    rig.node.advance(2 * CLOSE_NS);
    assert!(rig.aes().is_empty());
    assert_eq!(rig.state(), QpState::Rts);
}
