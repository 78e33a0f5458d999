//! Shared receive queues: order, the limit once per arming, faulty entries, garbage.

use super::*;
use crate::hw::shadow::SHADOW_WORDS;
use crate::hw::{Sge, WqeBuf};
use crate::mem::{HostBuf, HostWords};
use crate::num::{Lkey, MsixVector};
use crate::ring::{Consumer, RqProducer};

const SIZE: u32 = 16;

struct Rig {
    events: Events,
    aeq: Consumer<Aeqe>,
    srq: Srq,
    driver: RqProducer,
    shadow: SrqShadow,
}

fn words(count: usize) -> HostWords {
    HostBuf::new(count * 8).unwrap().words()
}

impl Rig {
    fn new(limit: u32) -> Self {
        let (ring, shadow, aeq) = (words(SIZE as usize * 4), words(SHADOW_WORDS), words(64));
        let mut events = Events::new(1);
        events.create_aeq(MsixVector(0), aeq.clone(), 32).unwrap();
        let shadow = SrqShadow::new(shadow).unwrap();
        let srq = Srq::new(SrqSpec {
            id: SrqId(5),
            pd: PdId(1),
            context: 0x77,
            ring: RqConsumer::new(ring.clone(), SIZE, 0).unwrap(),
            shadow: shadow.clone(),
            entries: SIZE,
            limit,
            xrc: None,
        });
        let aeq = Consumer::new(aeq, 32).unwrap();
        let driver = RqProducer::new(ring, SIZE, 0).unwrap();
        Self {
            events,
            aeq,
            srq,
            driver,
            shadow,
        }
    }

    fn post(&mut self, wr_id: u64) {
        let mut wqe = WqeBuf::new();
        wqe.recv(
            &[Sge {
                addr: 0x1000,
                len: 64,
                lkey: Lkey(0x100),
            }],
            Some(wr_id),
        )
        .unwrap();
        self.driver.push(&wqe).unwrap();
        self.shadow.store_head(self.driver.head());
    }

    fn take(&mut self) -> Option<u64> {
        let mut cmd = RqCmd::default();
        match self.srq.take(&mut self.events, &mut cmd) {
            Taken::Entry { .. } => Some(cmd.wr_id),
            _ => None,
        }
    }

    fn limits(&mut self) -> usize {
        core::iter::from_fn(|| self.aeq.pop())
            .filter(|event| event.code == AeCode::SRQ_LIMIT && event.context == 0x77)
            .count()
    }
}

#[test]
fn entries_come_in_order_across_laps() {
    // proves: e810-27
    let mut rig = Rig::new(0);
    assert_eq!(rig.take(), None);
    for lap in 0..5 {
        for n in 0..11 {
            rig.post(lap * 100 + n);
        }
        assert_eq!(rig.srq.remaining(), 11);
        for n in 0..11 {
            assert_eq!(rig.take(), Some(lap * 100 + n));
        }
        assert_eq!(
            (rig.take(), rig.srq.remaining()),
            (None, 0),
            "looked at each time"
        );
        rig.driver.release_to(rig.driver.head());
    }
    assert_eq!(rig.limits(), 0);
}

#[test]
fn limit_fires_once_per_arming() {
    // proves: roce-120
    let mut rig = Rig::new(0);
    for n in 0..8 {
        rig.post(n);
    }
    assert!(rig.srq.set_limit(5));
    for expected in [0, 0, 0, 1, 0, 0] {
        rig.take().unwrap();
        assert_eq!(rig.limits(), expected, "fewer than five left");
    }
    assert_eq!(rig.srq.limit(), 0, "disarmed by the event");
    assert!(rig.srq.set_limit(1));
    rig.take().unwrap();
    assert_eq!(rig.limits(), 0);
    rig.take().unwrap();
    assert_eq!(rig.limits(), 1);
    assert!(rig.srq.set_limit(3));
    assert_eq!(
        (rig.take(), rig.limits()),
        (None, 1),
        "an empty queue tells, too"
    );
    assert!(!rig.srq.set_limit(SIZE), "out of reach");
}

#[test]
fn faulty_entries_are_consumed_and_failure_is_told_once() {
    let mut rig = Rig::new(0);
    let raw = words(SIZE as usize * 4);
    raw.store(3, 1 << 63 | 15 << 38);
    rig.srq.ring = RqConsumer::new(raw, SIZE, 0).unwrap();
    let mut cmd = RqCmd::default();
    let taken = rig.srq.take(&mut rig.events, &mut cmd);
    assert!(
        matches!(taken, Taken::Faulty { wqe_index: 0, .. }),
        "{taken:?}"
    );
    assert_eq!(rig.srq.take(&mut rig.events, &mut cmd), Taken::Empty);
    rig.srq.fail(&mut rig.events);
    rig.srq.fail(&mut rig.events);
    assert_eq!(
        rig.aeq.pop().map(|event| event.code),
        Some(AeCode::SRQ_CATASTROPHIC_ERROR)
    );
    assert_eq!(rig.aeq.pop(), None);
}

#[test]
fn a_wild_head_is_no_index() {
    let mut rig = Rig::new(3);
    rig.post(1);
    for head in [SIZE, u32::MAX, 1 << 31] {
        rig.shadow.store_head(head);
        assert_eq!(rig.srq.remaining(), 0);
    }
    assert_eq!(rig.take(), Some(1));
}
