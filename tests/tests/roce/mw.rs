//! Windows and keys that come and go.                                   [RoCEv2 4.4, 4.5]

use srdma_core::hw::CqpCmd;
use srdma_core::hw::cqp::{DeallocStag, StagKind};
use srdma_core::hw::wqe::{WqeBuf, WrFlags};
use srdma_core::mem::{Access, Bind};
use srdma_core::num::Rkey;
use srdma_core::qp::attr::{AttrMask, QpState};
use srdma_tests::node::{ALL, Mem, PD};
use srdma_tests::rig::{RQ_PSN, Rig};
use srdma_tests::wire_dsl::{answers, send_inv, write_only};

pub(crate) fn bind_to(mem: &Mem, window: u32, offset: u64, len: u64, type1: bool) -> Bind {
    Bind {
        window,
        parent: mem.stag,
        va: mem.at(offset),
        len,
        access: Access::REMOTE_WRITE.union(Access::REMOTE_READ),
        zero_based: false,
        type1,
    }
}

/// Posts a bind and gives its status.
pub(crate) fn bind(rig: &mut Rig, bind: &Bind) -> Option<u16> {
    let mut wqe = WqeBuf::new();
    wqe.bind_mw(WrFlags::SIGNALED, bind);
    rig.node.post(rig.qp, &wqe);
    rig.transmit();
    rig.done()[0].2
}

fn invalidate(rig: &mut Rig, stag: u32) -> Option<u16> {
    let mut wqe = WqeBuf::new();
    wqe.local_invalidate(WrFlags::SIGNALED, stag);
    rig.node.post(rig.qp, &wqe);
    rig.transmit();
    rig.done()[0].2
}

/// The peer writes a byte; true if it was taken.
fn writes(rig: &mut Rig, psn: u32, at: u64, key: u32) -> bool {
    let heard = answers(&rig.hear(write_only(psn, at, Rkey(key), b"x").ack()));
    assert!(heard[0].2 == 0x1f || heard[0].2 == 0x62, "{heard:?}");
    heard[0].2 == 0x1f
}

#[test]
fn a_window_opens_its_range_only() {
    // proves: roce-137
    for kind in [StagKind::Mw1, StagKind::Mw2] {
        for (offset, fits) in [(4095, false), (4096, true), (8191, true), (8192, false)] {
            let mut rig = Rig::rc();
            let window = rig.node.mw(kind);
            let how = bind_to(&rig.mem, window, 4096, 4096, kind == StagKind::Mw1);
            assert_eq!(bind(&mut rig, &how), None);
            let at = rig.mem.at(offset);
            assert_eq!(
                writes(&mut rig, RQ_PSN, at, window),
                fits,
                "{kind:?} {offset}"
            );
        }
    }
}

#[test]
fn a_type_2_window_is_for_the_queue_pair_that_bound_it() {
    // proves: roce-136
    for (kind, shared) in [(StagKind::Mw1, true), (StagKind::Mw2, false)] {
        let mut rig = Rig::rc();
        let window = rig.node.mw(kind);
        let how = bind_to(&rig.mem, window, 0, 64, kind == StagKind::Mw1);
        assert_eq!(bind(&mut rig, &how), None);
        let at = rig.mem.at(0);
        assert!(writes(&mut rig, RQ_PSN, at, window));
        rig.renew();
        assert_eq!(writes(&mut rig, RQ_PSN, at, window), shared, "{kind:?}");
    }
}

#[test]
fn a_bind_changes_the_key() {
    // proves: roce-138
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw1);
    let how = bind_to(&rig.mem, window, 0, 64, true);
    assert_eq!(bind(&mut rig, &how), None);
    let next = Bind {
        window: window + 1,
        ..how
    };
    assert_eq!(bind(&mut rig, &next), None);
    let at = rig.mem.at(0);
    assert!(writes(&mut rig, RQ_PSN, at, window + 1));
    assert!(!writes(&mut rig, RQ_PSN + 1, at, window), "the old key");

    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    let how = bind_to(&rig.mem, window, 0, 64, false);
    assert_eq!(bind(&mut rig, &how), None);
    assert_eq!(invalidate(&mut rig, window), None);
    let next = Bind {
        window: window + 1,
        ..how
    };
    assert_eq!(bind(&mut rig, &next), None);
    let at = rig.mem.at(0);
    assert!(writes(&mut rig, RQ_PSN, at, window + 1));
    assert_eq!(bind(&mut rig, &how), Some(9), "bound already");
}

#[test]
fn a_type_1_window_is_not_invalidated() {
    // proves: roce-139, e810-12
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw1);
    let how = bind_to(&rig.mem, window, 0, 64, true);
    assert_eq!(bind(&mut rig, &how), None);
    assert_eq!(invalidate(&mut rig, window), Some(4), "LOC_QP_OP");
    assert_eq!(rig.state(), QpState::Err);

    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw1);
    let how = bind_to(&rig.mem, window, 0, 64, true);
    assert_eq!(bind(&mut rig, &how), None);
    rig.recv(0, 64);
    rig.hear(send_inv(RQ_PSN, b"x", Rkey(window)).ack());
    assert_eq!(rig.done(), [('r', 0, Some(10))]);

    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw1);
    let how = Bind {
        zero_based: true,
        ..bind_to(&rig.mem, window, 0, 64, true)
    };
    assert_eq!(bind(&mut rig, &how), Some(9));
}

#[test]
fn length_zero_unbinds_a_type_1_window() {
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw1);
    let how = bind_to(&rig.mem, window, 0, 64, true);
    assert_eq!(bind(&mut rig, &how), None);
    assert_eq!(bind(&mut rig, &Bind { len: 0, ..how }), None);
    let at = rig.mem.at(0);
    assert!(!writes(&mut rig, RQ_PSN, at, window));
}

#[test]
fn a_zero_based_window_counts_from_zero() {
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    let how = Bind {
        zero_based: true,
        ..bind_to(&rig.mem, window, 4096, 64, false)
    };
    assert_eq!(bind(&mut rig, &how), None);
    assert!(writes(&mut rig, RQ_PSN, 5, window));
    assert_eq!(rig.mem.read(4096 + 5, 1), b"x");
    assert!(!writes(&mut rig, RQ_PSN + 1, 64, window));
}

#[test]
fn send_with_invalidate_takes_the_key_away_and_tells() {
    // proves: roce-113
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    let how = bind_to(&rig.mem, window, 0, 64, false);
    assert_eq!(bind(&mut rig, &how), None);
    let at = rig.mem.at(0);
    assert!(writes(&mut rig, RQ_PSN, at, window));
    rig.recv(64, 64);
    let heard = rig.hear(send_inv(RQ_PSN + 1, b"done", Rkey(window)).ack());
    assert_eq!(answers(&heard), [(0x11, RQ_PSN + 1, 0x1f)]);
    let cqe = rig.poll()[0].cqe;
    assert_eq!(cqe.invalidated(), Some(Rkey(window)));
    assert_eq!((cqe.len, cqe.op), (4, 0x17));
    assert!(!writes(&mut rig, RQ_PSN + 2, at, window), "the key is gone");
}

#[test]
fn a_bound_region_is_not_taken_back() {
    // proves: roce-135
    let mut rig = Rig::rc();
    let mem = rig.node.mem(4096);
    let window = rig.node.mw(StagKind::Mw2);
    let how = bind_to(&mem, window, 0, 64, false);
    assert_eq!(bind(&mut rig, &how), None);
    let dereg = CqpCmd::DeallocStag(DeallocStag {
        stag: mem.stag,
        pd: PD,
        kind: StagKind::Mr,
    });
    rig.node.refused(dereg);
    assert_eq!(invalidate(&mut rig, window), None);
    rig.node.ok(dereg);
}

#[test]
fn a_reset_frees_the_windows_of_a_queue_pair() {
    let mut rig = Rig::rc();
    let mem = rig.node.mem(4096);
    let window = rig.node.mw(StagKind::Mw2);
    let how = bind_to(&mem, window, 0, 64, false);
    assert_eq!(bind(&mut rig, &how), None);
    assert!(rig.node.modify(rig.qp, QpState::Reset, AttrMask::NONE));
    rig.node.dereg(&mem);
}

#[test]
fn binds_are_checked() {
    let free = ALL.without(Access::MW_BIND);
    let read_only = Access::REMOTE_READ.union(Access::MW_BIND);
    for case in 0..5 {
        let mut rig = Rig::rc();
        let window = rig.node.mw(StagKind::Mw2);
        let mut how = bind_to(&rig.mem, window, 0, 64, false);
        match case {
            0 => how.parent = rig.node.mem_with(4096, free, PD).stag,
            1 => {
                let mem = rig.node.mem_with(4096, read_only, PD);
                how.parent = mem.stag;
                how.va = mem.at(0);
            }
            2 => how.va = rig.mem.at(64 * 1024 - 8),
            3 => how.len = 0,
            _ => how.type1 = true,
        }
        assert_eq!(bind(&mut rig, &how), Some(9), "case {case}");
        assert_eq!(rig.state(), QpState::Err);
        assert_eq!(rig.node.aes()[0].source.0, 5);
    }
}

#[test]
fn a_bind_takes_effect_in_its_turn() {
    let mut rig = Rig::rc();
    let window = rig.node.mw(StagKind::Mw2);
    rig.send(0, 4);
    let how = bind_to(&rig.mem, window, 0, 64, false);
    let mut wqe = WqeBuf::new();
    let flags = WrFlags {
        local_fence: true,
        ..WrFlags::SIGNALED
    };
    wqe.bind_mw(flags, &how);
    rig.node.post(rig.qp, &wqe);
    rig.transmit();
    let at = rig.mem.at(0);
    assert!(!writes(&mut rig, RQ_PSN, at, window), "not yet bound");
}
