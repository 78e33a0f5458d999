//! Completion queues with both ends: events of the pass, gating, moderation, overrun, resize.

use super::*;
use crate::hw::shadow::SHADOW_WORDS;
use crate::hw::{AeCode, AeSource, Aeqe, Ceqe, FlushCode, Major};
use crate::mem::HostBuf;
use crate::num::{MsixVector, Qpn};
use crate::obj::{ArmModel, Moderation, Slot};
use crate::ring::{Consumer, CqConsumer, CqShadow};
use crate::time::Instant;

const CEQ: CeqId = CeqId(0);
const VECTOR: MsixVector = MsixVector(1);
const T0: Instant = Instant(0);

/// Device and driver of some CQs on one CEQ.
struct Rig {
    events: Events,
    cqs: CqTable,
    ceq: Consumer<Ceqe>,
    aeq: Consumer<Aeqe>,
}

/// The driver's end of one CQ.
struct End {
    id: CqId,
    slot: Slot,
    ring: CqConsumer,
}

fn words(count: usize) -> HostWords {
    HostBuf::new(count * 8).unwrap().words()
}

impl Rig {
    fn new(model: ArmModel) -> Self {
        let mut events = Events::new(2);
        let (ceq, aeq) = (words(64), words(64));
        events.create_ceq(CEQ, VECTOR, ceq.clone(), 64).unwrap();
        events.create_aeq(MsixVector(0), aeq.clone(), 32).unwrap();
        events.enable_vector(VECTOR);
        Self {
            events,
            cqs: CqTable::new(model),
            ceq: Consumer::new(ceq, 64).unwrap(),
            aeq: Consumer::new(aeq, 32).unwrap(),
        }
    }

    fn cq(&mut self, id: u32, size: u32, check_overflow: bool) -> End {
        let (ring, shadow) = (words(size as usize * 4), words(SHADOW_WORDS));
        let shadow = CqShadow::new(shadow).unwrap();
        self.events.attach_cq(CEQ).unwrap();
        let producer =
            CqProducer::new(ring.clone(), size, false, shadow.clone(), size / 2).unwrap();
        let id = CqId(id);
        let cq = Cq::new(CqSpec {
            id,
            producer,
            ceq: Some(CEQ),
            cookie: cookie(id),
            check_overflow,
            wide: false,
            timestamps: false,
        });
        let slot = self.cqs.insert(cq).unwrap();
        End {
            id,
            slot,
            ring: CqConsumer::new(ring, size, false, shadow).unwrap(),
        }
    }

    fn post(&mut self, end: &End, cqe: &CqeInfo) -> Result<(), Overrun> {
        self.cqs.post(&mut self.events, end.slot, cqe, T0)
    }

    fn arm(&mut self, end: &End, solicited_only: bool) -> bool {
        end.ring.shadow().arm(solicited_only);
        self.cqs.arm(&mut self.events, end.id, T0)
    }

    /// Closes a pass; the CQs whose events the handler of the vector takes, without acknowledging.
    fn close(&mut self, now: Instant) -> Vec<u64> {
        self.cqs.settle(&mut self.events, now);
        let mut cookies = Vec::new();
        while self.events.poll_interrupt(now).is_some() {
            cookies.extend(core::iter::from_fn(|| self.ceq.pop()).map(|ceqe| ceqe.cookie));
        }
        cookies
    }

    /// The same, with CQ_ACK for each and the vector enabled.
    fn pass(&mut self, now: Instant) -> Vec<u64> {
        let cookies = self.close(now);
        for cookie in &cookies {
            let id = CqId(u32::try_from(cookie >> 8).unwrap());
            self.cqs.ack(&mut self.events, id, now);
        }
        self.events.enable_vector(VECTOR);
        cookies
    }
}

fn cookie(id: CqId) -> u64 {
    u64::from(id.0) << 8
}

fn plain() -> CqeInfo {
    CqeInfo {
        qpn: Qpn::new(7),
        ..CqeInfo::default()
    }
}

fn solicited() -> CqeInfo {
    CqeInfo {
        solicited: true,
        ..plain()
    }
}

fn failed(sq: bool) -> CqeInfo {
    CqeInfo::flush(sq, Qpn::new(7), 1, 0, FlushCode::GENERAL)
}

#[test]
fn truth_table_through_the_rings() {
    // proves: roce-119
    let write_imm = CqeInfo {
        imm: Some(1),
        ..solicited()
    };
    let send = CqeInfo {
        sq: true,
        ..plain()
    };
    for (cqe, when_solicited) in [
        (send, false),
        (plain(), false),
        (solicited(), true),
        (write_imm, true),
        (failed(true), true),
        (failed(false), true),
    ] {
        for (armed, event) in [
            (None, false),
            (Some(true), when_solicited),
            (Some(false), true),
        ] {
            let mut rig = Rig::new(ArmModel::Strict);
            let mut end = rig.cq(3, 16, true);
            if let Some(solicited_only) = armed {
                rig.arm(&end, solicited_only);
            }
            rig.post(&end, &cqe).unwrap();
            assert_eq!(!rig.pass(T0).is_empty(), event, "{cqe:?} armed {armed:?}");
            assert_eq!(end.ring.peek().map(|seen| seen.qpn), Some(Qpn::new(7)));
        }
    }
}

#[test]
fn one_event_for_many_completions() {
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 64, true);
    rig.arm(&end, false);
    rig.arm(&end, false);
    for _ in 0..5 {
        rig.post(&end, &plain()).unwrap();
    }
    assert_eq!(rig.pass(T0), [cookie(end.id)]);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.pass(T0), [], "disarmed");
}

#[test]
fn an_arm_that_overtakes_its_doorbell_is_seen_when_the_pass_closes() {
    // proves: e810-26
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 16, true);
    // The driver arms and polls in vain; the doorbell is not taken before the next pass.
    end.ring.shadow().arm(false);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.pass(T0), [cookie(end.id)]);
    rig.cqs.arm(&mut rig.events, end.id, T0);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.pass(T0), [], "the late doorbell is no second arm");
}

#[test]
fn arm_models() {
    for (model, event, reported) in [
        (ArmModel::Strict, false, false),
        (ArmModel::Report, false, true),
        (ArmModel::Compare, true, false),
    ] {
        let mut rig = Rig::new(model);
        let mut end = rig.cq(3, 16, true);
        rig.post(&end, &solicited()).unwrap();
        rig.post(&end, &plain()).unwrap();
        assert_eq!(rig.pass(T0), []);
        assert_eq!(rig.arm(&end, true), reported);
        assert_eq!(
            !rig.pass(T0).is_empty(),
            event,
            "{model:?}: a solicited one waits"
        );
        rig.arm(&end, false);
        assert_eq!(rig.pass(T0), [], "{model:?}: that event covered both");
        rig.post(&end, &plain()).unwrap();
        assert_eq!(rig.pass(T0), [cookie(end.id)]);
        while end.ring.peek().is_some() {
            end.ring.advance(false);
        }
        assert!(!rig.arm(&end, false));
        assert_eq!(rig.pass(T0), [], "{model:?}: nothing unread");
    }
}

#[test]
fn a_second_event_waits_until_the_first_is_taken() {
    // proves: e810-21
    // proves: e810-29
    let mut rig = Rig::new(ArmModel::Strict);
    let (end, other) = (rig.cq(3, 16, true), rig.cq(4, 16, true));
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.close(T0), [cookie(end.id)]);
    rig.arm(&end, false);
    rig.arm(&other, false);
    rig.post(&end, &plain()).unwrap();
    rig.post(&other, &plain()).unwrap();
    rig.cqs.settle(&mut rig.events, T0);
    assert_eq!(
        rig.ceq.pop().map(|ceqe| ceqe.cookie),
        Some(cookie(other.id))
    );
    assert_eq!(
        rig.ceq.peek(),
        None,
        "armed before the acknowledgement, held until it"
    );
    rig.cqs.ack(&mut rig.events, end.id, T0);
    assert_eq!(rig.ceq.pop().map(|ceqe| ceqe.cookie), Some(cookie(end.id)));
}

#[test]
fn enabling_the_vector_stands_for_acknowledgements() {
    // proves: e810-28
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 16, true);
    for _ in 0..200 {
        rig.arm(&end, false);
        rig.post(&end, &plain()).unwrap_or(());
        assert_eq!(rig.close(T0), [cookie(end.id)]);
        rig.events.enable_vector(VECTOR);
        let head = rig.cqs.get(end.slot).unwrap().producer.index();
        end.ring.shadow().store_head(head, head);
    }
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.close(T0).len(), 1);
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.close(T0), [], "held");
    rig.events.enable_vector(VECTOR);
    assert_eq!(
        rig.close(T0),
        [cookie(end.id)],
        "the drain had taken the first"
    );
}

#[test]
fn moderation_delays_and_never_cancels() {
    // proves: event-37
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 64, true);
    let moderation = Moderation {
        count: 8,
        period_ns: 1_000,
    };
    assert!(rig.cqs.moderate(end.id, moderation));
    rig.arm(&end, false);
    for _ in 0..7 {
        rig.post(&end, &plain()).unwrap();
        assert_eq!(rig.pass(T0), []);
    }
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.pass(T0), [cookie(end.id)], "the eighth");
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    assert_eq!(rig.cqs.next_deadline(), Some(Instant(1_000)));
    rig.cqs.handle_timeout(&mut rig.events, Instant(999));
    assert_eq!(rig.pass(Instant(999)), []);
    rig.cqs.handle_timeout(&mut rig.events, Instant(1_000));
    assert_eq!(rig.pass(Instant(1_000)), [cookie(end.id)], "the period");
    assert_eq!(rig.cqs.next_deadline(), None);
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    rig.post(&end, &failed(true)).unwrap();
    assert_eq!(
        rig.pass(Instant(1_000)),
        [cookie(end.id)],
        "an error does not wait"
    );
    assert_eq!(rig.cqs.next_deadline(), None);
}

#[test]
fn overrun_raises_one_event_and_freezes() {
    // proves: e810-25, event-39
    // proves: roce-140
    let mut rig = Rig::new(ArmModel::Strict);
    let mut end = rig.cq(3, 4, true);
    for _ in 0..3 {
        rig.post(&end, &plain()).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(rig.post(&end, &plain()), Err(Overrun));
    }
    let event = rig.aeq.pop().unwrap();
    assert_eq!(
        (event.code, event.source),
        (AeCode::CQ_OPERATION_ERROR, AeSource::CQ)
    );
    assert_eq!((event.id, event.context), (3, cookie(end.id)));
    assert_eq!(rig.aeq.pop(), None, "once");
    for _ in 0..3 {
        assert!(end.ring.peek().is_some(), "what is there can be polled");
        end.ring.advance(false);
    }
    assert_eq!(
        rig.post(&end, &plain()),
        Err(Overrun),
        "room again, but frozen"
    );
    assert!(rig.cqs.get(end.slot).unwrap().is_error());
    assert_eq!(rig.cqs.stats(), (3, 1));
}

#[test]
fn ignoring_overruns_raises_nothing() {
    // proves: event-42
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 4, false);
    for _ in 0..50 {
        rig.post(&end, &plain()).unwrap();
    }
    assert_eq!(rig.aeq.pop(), None);
}

#[test]
fn nothing_names_a_cq_that_is_gone() {
    // proves: e810-22
    let mut rig = Rig::new(ArmModel::Strict);
    let end = rig.cq(3, 16, true);
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    rig.arm(&end, false);
    rig.post(&end, &plain()).unwrap();
    assert!(rig.cqs.remove(&mut rig.events, end.slot).is_some());
    assert_eq!(
        rig.ceq.pop().map(|ceqe| ceqe.cookie),
        Some(cookie(end.id)),
        "from before"
    );
    assert_eq!(rig.post(&end, &plain()), Err(Overrun));
    rig.cqs.arm(&mut rig.events, end.id, T0);
    rig.cqs.ack(&mut rig.events, end.id, T0);
    rig.cqs.settle(&mut rig.events, T0);
    assert_eq!(rig.ceq.pop(), None);
    assert_eq!(rig.cqs.next_deadline(), None);
}

#[test]
fn resize_carries_the_arm_over() {
    let mut rig = Rig::new(ArmModel::Strict);
    let mut end = rig.cq(3, 8, true);
    rig.post(&end, &plain()).unwrap();
    rig.cqs.settle(&mut rig.events, T0);
    rig.arm(&end, false);
    let bigger = words(64 * 4);
    rig.cqs
        .get_mut(end.slot)
        .unwrap()
        .switch(bigger.clone(), 64)
        .unwrap();
    end.ring.resize(bigger, 64).unwrap();
    rig.post(&end, &failed(true)).unwrap();
    assert_eq!(rig.pass(T0), [cookie(end.id)]);
    assert_eq!(end.ring.peek().unwrap().error, None, "the old buffer first");
    end.ring.advance(false);
    assert_eq!(end.ring.peek().unwrap().error, Some((Major::FLUSH, 1)));
}

#[test]
fn garbage_in_the_shadow_harms_nobody_else() {
    let mut rig = Rig::new(ArmModel::Compare);
    let seed = 0x5eed_u64;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (end, other) = (rig.cq(3, 8, true), rig.cq(4, 1024, true));
    let shadow = words(SHADOW_WORDS);
    let wild = CqProducer::new(
        words(8 * 4),
        8,
        false,
        CqShadow::new(shadow.clone()).unwrap(),
        4,
    );
    rig.cqs.get_mut(end.slot).unwrap().producer = wild.unwrap();
    for _ in 0..500 {
        shadow.store(usize::from(rng.bool()) * 4, rng.u64(..));
        let _ = rig.post(&end, &plain());
        rig.cqs.arm(&mut rig.events, end.id, T0);
        if rng.bool() {
            rig.cqs.ack(&mut rig.events, end.id, T0);
        }
        rig.post(&other, &plain()).unwrap_or(());
        rig.close(T0);
        rig.events.enable_vector(VECTOR);
    }
    assert!(
        !rig.cqs.get(other.slot).unwrap().is_error(),
        "seed {seed:#x}"
    );
}
