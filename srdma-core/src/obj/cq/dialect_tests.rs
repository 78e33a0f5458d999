//! Completion queues with both ends in the words of other NICs: arms, events, full event queues.

use super::*;
use crate::hw::dialect::{Arming, Dialect, EqName, mlx5};
use crate::hw::{Aeqe, Ceqe};
use crate::mem::HostBuf;
use crate::num::{MsixVector, Qpn};
use crate::obj::ArmModel;
use crate::ring::{CommandsDone, Consumer, CqConsumer, CqShadow, Entry};
use crate::time::Instant;

const OTHERS: [Dialect; 2] = [Dialect::Mlx5, Dialect::Hns];
const VECTOR: MsixVector = MsixVector(1);
const T0: Instant = Instant(0);
const NAME: EqName = EqName::Completions(0);

fn words(bytes: usize) -> HostWords {
    HostBuf::new(bytes).unwrap().words()
}

struct Rig {
    dialect: Dialect,
    events: Events,
    cqs: CqTable,
    ceq: Consumer<Ceqe>,
}

struct End {
    id: CqId,
    slot: crate::obj::Slot,
    ring: CqConsumer,
    arming: Arming,
}

impl Rig {
    /// With a CEQ of `entries`.
    fn new(dialect: Dialect, entries: u32) -> Self {
        let mut events = Events::speaking(dialect, 2);
        let memory = words(Ceqe::ring_bytes(dialect, entries));
        let ceq = Consumer::speaking(dialect, memory.clone(), entries).unwrap();
        events
            .create_ceq(CeqId(0), VECTOR, memory, entries)
            .unwrap();
        events.enable_vector(VECTOR);
        Self {
            dialect,
            events,
            cqs: CqTable::new(ArmModel::Compare),
            ceq,
        }
    }

    fn cq(&mut self, id: u32) -> End {
        let (size, ring) = (16, words(16 * 64));
        let shadow = CqShadow::speaking(self.dialect, words(64)).unwrap();
        let consumer = CqConsumer::new(ring.clone(), size, false, shadow.clone()).unwrap();
        let producer = CqProducer::new(ring, size, false, shadow, size / 2).unwrap();
        self.events.attach_cq(CeqId(0)).unwrap();
        let cq = Cq::new(CqSpec {
            id: CqId(id),
            producer,
            ceq: Some(CeqId(0)),
            cookie: id.into(),
            check_overflow: true,
            wide: false,
            timestamps: false,
        });
        End {
            id: CqId(id),
            slot: self.cqs.insert(cq).unwrap(),
            ring: consumer,
            arming: Arming::new(self.dialect),
        }
    }

    fn post(&mut self, end: &End, solicited: bool) {
        let cqe = CqeInfo {
            op: 4,
            qpn: Qpn::new(7),
            solicited,
            ..CqeInfo::default()
        };
        self.cqs.post(&mut self.events, end.slot, &cqe, T0).unwrap();
    }

    fn arm(&mut self, end: &mut End, solicited_only: bool) {
        assert!(end.arming.ask(solicited_only));
        end.ring.ask(end.id.0, &end.arming, solicited_only);
        self.ring(end);
    }

    /// The doorbell alone: late, or once more.
    fn ring(&mut self, end: &End) {
        self.cqs.arm(&mut self.events, end.id, T0);
    }

    /// Closes a pass; the CQs that the handler of the vector finds, with its doorbell.
    fn pass(&mut self) -> Vec<u64> {
        self.cqs.settle(&mut self.events, T0);
        let mut found = Vec::new();
        while self.events.poll_interrupt(T0).is_some() {
            found.extend(core::iter::from_fn(|| self.ceq.pop()).map(|ceqe| ceqe.cookie));
            self.ceq.ring_doorbell(NAME, true);
            self.events.enable_vector(VECTOR);
        }
        found
    }
}

fn poll(end: &mut End) {
    while let Some(info) = end.ring.peek() {
        end.ring.advance(info.extended());
    }
}

#[test]
fn one_event_for_each_arm_and_number() {
    // proves: event-74
    for dialect in OTHERS {
        let mut rig = Rig::new(dialect, 64);
        let mut end = rig.cq(3);
        for round in 0..12 {
            rig.post(&end, false);
            assert_eq!(rig.pass(), [], "{dialect} {round}: nobody asked");
            poll(&mut end);
            // Three requests for one event, one of them weaker.
            rig.arm(&mut end, false);
            rig.arm(&mut end, true);
            rig.arm(&mut end, false);
            rig.post(&end, false);
            rig.post(&end, false);
            assert_eq!(rig.pass(), [3], "{dialect} {round}");
            // The doorbells of before come late; and the program asks before it has fetched.
            rig.ring(&end);
            rig.arm(&mut end, false);
            rig.post(&end, true);
            assert_eq!(
                rig.pass(),
                [],
                "{dialect} {round}: of an event that was sent"
            );
            assert!(!end.arming.fetched());
            poll(&mut end);
        }
    }
}

#[test]
fn kinds_and_promotion() {
    // proves: dialect-1
    for dialect in OTHERS {
        let mut rig = Rig::new(dialect, 64);
        let mut end = rig.cq(3);
        rig.arm(&mut end, true);
        rig.post(&end, false);
        assert_eq!(rig.pass(), [], "{dialect}: not solicited");
        poll(&mut end);
        rig.post(&end, true);
        assert_eq!(rig.pass(), [3], "{dialect}: solicited");
        end.arming.fetched();
        poll(&mut end);
        rig.arm(&mut end, true);
        rig.arm(&mut end, false);
        rig.post(&end, false);
        assert_eq!(rig.pass(), [3], "{dialect}: promoted");
        end.arming.fetched();
        poll(&mut end);
        rig.arm(&mut end, false);
        rig.arm(&mut end, true);
        rig.post(&end, false);
        assert_eq!(rig.pass(), [3], "{dialect}: not demoted");
    }
}

#[test]
fn what_is_behind_the_index_fires_at_once() {
    // proves: event-73
    for dialect in OTHERS {
        let mut rig = Rig::new(dialect, 64);
        let mut end = rig.cq(3);
        rig.post(&end, false);
        rig.pass();
        rig.arm(&mut end, true);
        assert_eq!(rig.pass(), [], "{dialect}: nothing solicited is there");
        rig.arm(&mut end, false);
        assert_eq!(rig.pass(), [3], "{dialect}: it was not read");
        end.arming.fetched();
        // An event has told of it: a later arm waits for more.
        rig.arm(&mut end, false);
        assert_eq!(rig.pass(), [], "{dialect}");
        rig.post(&end, false);
        assert_eq!(rig.pass(), [3], "{dialect}");
        end.arming.fetched();
        poll(&mut end);
        rig.arm(&mut end, false);
        assert_eq!(rig.pass(), [], "{dialect}: an equal index waits");
    }
}

#[test]
fn a_full_event_queue_holds_events_back() {
    for dialect in OTHERS {
        let mut rig = Rig::new(dialect, 2);
        let mut ends: Vec<_> = (3..8).map(|id| rig.cq(id)).collect();
        for end in &mut ends {
            rig.arm(end, false);
            rig.post(end, false);
        }
        assert_eq!(rig.pass(), [3, 4], "{dialect}: as many as there is room");
        let mut rest = Vec::new();
        for _ in 0..4 {
            rest.extend(rig.pass());
        }
        rest.sort_unstable();
        assert_eq!(rest, [5, 6, 7], "{dialect}: none is lost");
    }
}

#[test]
fn a_stale_error_finds_no_later_queue() {
    // proves: event-75
    for dialect in OTHERS {
        let mut events = Events::speaking(dialect, 1);
        let memory = words(Aeqe::ring_bytes(dialect, 2));
        let mut aeq = Consumer::<Aeqe>::speaking(dialect, memory.clone(), 2).unwrap();
        events.create_aeq(MsixVector(0), memory, 2).unwrap();
        for id in 3..7 {
            events.raise_cq_error(CqId(id), id.into());
        }
        // 3 and 4 stand in the queue, 5 and 6 wait for room, and 5 goes away.
        events.forget_cq(CqId(5));
        let mut told = Vec::new();
        for _ in 0..3 {
            told.extend(core::iter::from_fn(|| aeq.pop()).map(|event| event.id));
            aeq.ring_doorbell(EqName::Async, true);
            events.enable_vector(MsixVector(0));
        }
        assert_eq!(told, [3, 4, 6], "{dialect}");
    }
}

#[test]
fn commands_have_an_event_queue_of_their_own_in_mlx5() {
    let mut rig = Rig::new(Dialect::Mlx5, 64);
    let memory = words(CommandsDone::ring_bytes(Dialect::Mlx5, 4));
    let mut commands =
        Consumer::<CommandsDone>::speaking(Dialect::Mlx5, memory.clone(), 4).unwrap();
    let created = rig
        .events
        .create_ceq(mlx5::COMMANDS, MsixVector(0), memory, 4);
    created.unwrap();
    let shadow = CqShadow::new(words(64)).unwrap();
    let ring = words(8 * 32);
    let mut driver = CqConsumer::new(ring.clone(), 8, false, shadow.clone()).unwrap();
    let producer = CqProducer::new(ring, 8, false, shadow, 4).unwrap();
    assert!(rig.cqs.create_ccq(Dialect::Mlx5, producer, 0));
    let post = |rig: &mut Rig, wqe_index| {
        let done = crate::hw::CqpCompletion {
            wqe_index,
            ..crate::hw::CqpCompletion::decode(&[0; 4])
        };
        assert!(rig.cqs.post_ccq(&mut rig.events, &done, T0));
    };
    let arm = |rig: &mut Rig, driver: &CqConsumer| {
        driver.shadow().arm_control();
        rig.cqs.arm(&mut rig.events, CCQ, T0);
    };
    arm(&mut rig, &driver);
    post(&mut rig, 33);
    assert_eq!(rig.pass(), [], "no completion event");
    assert_eq!(commands.pop(), Some(CommandsDone(1 << 1)));
    post(&mut rig, 2);
    post(&mut rig, 4);
    arm(&mut rig, &driver);
    post(&mut rig, 5);
    assert_eq!(commands.pop(), None, "the one before was not acknowledged");
    commands.ring_doorbell(EqName::Commands, true);
    rig.events.enable_vector(MsixVector(0));
    rig.pass();
    let rest = 1 << 2 | 1 << 4 | 1 << 5;
    assert_eq!(commands.pop(), Some(CommandsDone(rest)));
    assert!(driver.peek_control().is_some());
    driver.advance(false);
}
