//! The oracle arms, the device raises events: exact words, one event for each new sequence.

use crate::rig::{QPN, Rig, WIDE, rng};
use srdma_core::hca::events::Events;
use srdma_core::hw::{CqeInfo, Major};
use srdma_core::mem::HostBuf;
use srdma_core::num::{CeqId, CqId, MsixVector, Qpn};
use srdma_core::obj::arm::{ArmModel, Armed};
use srdma_core::obj::cq::{Cq, CqSpec, CqTable};
use srdma_core::obj::table::Slot;
use srdma_core::ring::{CqProducer, CqShadow};
use srdma_core::time::Instant;
use srdma_oracle::OracleCq;

const ID: CqId = CqId(77);
const CEQ: CeqId = CeqId(1);
const NOW: Instant = Instant(1);

/// A device's tables with one CQ, which is the oracle's.
struct Device {
    table: CqTable,
    events: Events,
    slot: Slot,
}

impl Device {
    fn new(cq: &OracleCq) -> Self {
        let mut events = Events::new(2);
        let ceq = HostBuf::new(8 * 8).unwrap();
        events
            .create_ceq(CEQ, MsixVector(1), ceq.words(), 8)
            .unwrap();
        events.attach_cq(CEQ).unwrap();
        let shadow = CqShadow::new(cq.shadow().clone()).unwrap();
        let producer = CqProducer::new(cq.words(), cq.size(), false, shadow, 2).unwrap();
        let mut table = CqTable::new(ArmModel::Strict);
        let spec = CqSpec {
            id: ID,
            producer,
            ceq: Some(CEQ),
            cookie: 0x1000,
            check_overflow: true,
            wide: false,
            timestamps: false,
        };
        let slot = table.insert(Cq::new(spec)).unwrap();
        Self {
            table,
            events,
            slot,
        }
    }

    /// The doorbell of an arm, as the oracle wrote it.
    fn doorbell(&mut self, number: u32) {
        self.table.arm(&mut self.events, CqId(number), NOW);
    }

    fn ack(&mut self) {
        self.table.ack(&mut self.events, ID, NOW);
    }

    fn events(&self) -> u64 {
        self.events.stats().ceqes
    }
}

#[test]
fn arm_words_and_doorbells_are_those_of_the_specification() {
    // proves: e810-18
    // proves: e810-19
    let mut cq = OracleCq::new(ID.0, 8, false);
    let steps = [
        (false, 0x1c000),
        (true, 0x28000),
        (false, 0x3c000),
        (true, 0x8000),
        (false, 0x1c000),
    ];
    let ours = HostBuf::new(64).unwrap();
    let shadow = CqShadow::new(ours.words()).unwrap();
    for (solicited, word) in steps {
        cq.arm(solicited);
        shadow.arm(solicited);
        assert_eq!(cq.shadow().load(4), word);
        assert_eq!(ours.words().load(4), word, "ours too");
        assert_eq!(cq.take_doorbell(), ID.0);
    }
    for (count, select) in [(3, 3), (1, 4), (0x3ffb, 0x3fff), (2, 1)] {
        cq.retire(count);
        shadow.retire(count);
        assert_eq!(cq.shadow().load(4), 0x1c000 | select);
        assert_eq!(ours.words().load(4), cq.shadow().load(4), "ours too");
        assert_eq!(cq.take_doorbell(), 0, "no doorbell");
    }
}

/// A receive completion, after which the pass closes; the oracle polls it.
fn complete(rig: &mut Rig, device: &mut Device, id: u64, solicited: bool, failed: bool) {
    rig.qp.recv(id, &[]).unwrap();
    let cqe = CqeInfo {
        qpn: Qpn::new(QPN),
        context: rig.qp.context(),
        wqe_index: rig.rq.wqe_index(),
        solicited,
        error: failed.then_some((Major::DRIVER, 1)),
        ..CqeInfo::default()
    };
    rig.rq.advance();
    let (table, events) = (&mut device.table, &mut device.events);
    table.post(events, device.slot, &cqe, NOW).unwrap();
    table.settle(events, NOW);
    assert_eq!(rig.cq.poll().unwrap().wr_id, id);
}

/// What the rules of arming say: what is armed, and what became of the last event.
#[derive(Default)]
struct Model {
    any: bool,
    solicited: bool,
    unacked: bool,
    held: bool,
    events: u64,
    /// The kind of the newest arm word that the device has not looked at, and how many there were.
    unseen: Option<(bool, u8)>,
}

impl Model {
    fn arm(&mut self, solicited_only: bool) {
        let before = self.unseen.map_or(0, |(_, count)| count);
        self.unseen = Some((solicited_only, before + 1));
    }

    fn look(&mut self) {
        if let Some((solicited_only, _)) = self.unseen.take() {
            self.any |= !solicited_only;
            self.solicited = true;
        }
    }

    fn complete(&mut self, special: bool) {
        let wanted = |model: &Self| model.any || model.solicited && special;
        if !wanted(self) {
            // Nobody asked so far: the device looks at the word before the pass closes.
            self.look();
        }
        self.held |= wanted(self);
        self.fire();
    }

    fn fire(&mut self) {
        if self.held && !self.unacked {
            *self = Self {
                unacked: true,
                events: self.events + 1,
                unseen: self.unseen,
                ..Self::default()
            };
        }
    }
}

/// Arms with late doorbells, stale doorbells, completions and acknowledgements in any order. The
/// sequence has two bits, so the device must see one of any four arms: the test sees to that.
#[test]
fn each_new_sequence_fires_once() {
    // proves: e810-17
    let (mut arms, mut fired) = (0, 0);
    for seed in 500..560 {
        let mut rng = rng("arm", seed);
        let mut rig = Rig::new(WIDE, 16, false);
        let mut device = Device::new(&rig.cq);
        let mut model = Model::default();
        for id in 0..2000 {
            match rng.u8(..6) {
                0 => {
                    let solicited = rng.bool();
                    rig.cq.arm(solicited);
                    model.arm(solicited);
                    arms += 1;
                    let number = rig.cq.take_doorbell();
                    assert_eq!(number, ID.0);
                    if rng.bool() || model.unseen.is_some_and(|(_, count)| count == 3) {
                        device.doorbell(number);
                        model.look();
                    }
                }
                1 => {
                    // Late, or stale if the device has seen the word.
                    device.doorbell(ID.0);
                    model.look();
                }
                2 => device.doorbell(ID.0 + 1),
                3 => {
                    device.ack();
                    model.unacked = false;
                    model.fire();
                }
                _ => {
                    let (solicited, failed) = (rng.u8(..4) == 0, rng.u8(..8) == 0);
                    complete(&mut rig, &mut device, id, solicited, failed);
                    model.complete(solicited || failed);
                }
            }
            assert_eq!(device.events(), model.events, "seed {seed}, step {id}");
        }
        fired += device.events();
    }
    println!("{arms} arms, {fired} events");
    assert!(fired > 0);
}

#[test]
fn a_solicited_arm_waits_for_a_solicited_completion() {
    let mut rig = Rig::new(WIDE, 16, false);
    let mut device = Device::new(&rig.cq);
    let armed = |device: &Device| device.table.get(device.slot).unwrap().armed();
    complete(&mut rig, &mut device, 1, true, false);
    assert_eq!(device.events(), 0, "not armed");
    for (events, failed) in [(1, false), (2, true), (3, false), (4, true), (5, false)] {
        rig.cq.arm(true);
        assert_eq!(armed(&device), Armed::Nothing, "not seen yet");
        let number = rig.cq.take_doorbell();
        device.doorbell(number);
        assert_eq!(armed(&device), Armed::Solicited);
        for id in 2..5 {
            complete(&mut rig, &mut device, id, false, false);
            device.doorbell(number);
        }
        assert_eq!(device.events(), events - 1, "none was solicited");
        complete(&mut rig, &mut device, 5, !failed, failed);
        assert_eq!(device.events(), events);
        complete(&mut rig, &mut device, 6, true, true);
        assert_eq!(
            (device.events(), armed(&device)),
            (events, Armed::Nothing),
            "one an arm"
        );
        device.ack();
    }
    assert_eq!(device.events(), 5);
}

/// A new buffer: the device goes on there, and takes the head only once the oracle has retired
/// the old one.
#[test]
fn resizing_keeps_the_arm_and_the_order() {
    let mut rng = rng("arm, resize", 600);
    let mut rig = Rig::new(WIDE, 8, false);
    let mut next = 0;
    for round in 1..200 {
        let size = rng.u32(4..40);
        for _ in 0..rng.u8(1..60) {
            rig.qp.recv(next, &[]).unwrap();
            let cqe = CqeInfo {
                context: rig.qp.context(),
                wqe_index: rig.rq.wqe_index(),
                imm: rng.bool().then_some(5),
                ..CqeInfo::default()
            };
            rig.rq.advance();
            rig.cqes.push(&cqe).unwrap();
            let polled = rig.cq.poll().unwrap();
            assert_eq!((polled.wr_id, polled.imm), (next, cqe.imm));
            next += 1;
        }
        rig.cq.arm(rng.bool());
        let arm = rig.cq.shadow().load(4) >> 14;
        let words = rig.cq.resize(size);
        rig.cqes.switch(words, size).unwrap();
        rig.cq.retire(1);
        assert_eq!(rig.cq.shadow().load(4) & 0x3fff, round);
        assert_eq!(rig.cq.shadow().load(4) >> 14, arm, "the arm stays");
    }
    println!("{next} completions over 199 resizes");
}
