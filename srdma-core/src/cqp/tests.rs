//! Control commands through the rings: bring-up, order, wrap, refusals, garbage.

use super::*;
use crate::hw::cqp::{
    AllocStag, CqCmd, CqpCompletion, CreateAeq, CreateAh, CreateCeq, DeallocStag, ModifySrq, RegMr,
    SrqCmd, StagKind,
};
use crate::mem::{Access, HostBuf};
use crate::num::{AhId, CeqId, CqId, MsixVector, SrqId};
use crate::obj::{AddressVector, ArmModel};
use crate::ring::{Consumer, CqConsumer, CqShadow, CqpWqe, Producer};
use crate::time::Instant;
use proptest::prelude::*;

const T0: Instant = Instant(0);
const CONTEXT: u64 = 0xc09;
const PD: PdId = PdId(3);
const OK: CqpMinor = CqpMinor::NONE;

/// A device without queue pairs, and the driver's ends of its control queue.
struct Rig {
    host: HostMap,
    regions: MrTable,
    cqs: CqTable,
    srqs: SrqTable,
    pds: PdTable,
    ahs: AhTable,
    mcast: McastTable,
    events: Events,
    counters: Counters,
    cqp: Cqp,
    commands: Producer<CqpWqe>,
    ccq: CqConsumer,
    /// Memory for everything else: rings at `place`.
    memory: u64,
}

/// Bytes of the memory for rings, and of one place in it.
const MEMORY: usize = 1 << 20;
const PLACE: u64 = 1 << 14;

impl Rig {
    /// Brought up to a CCQ of 8 entries behind a CQP of 4 commands.
    fn new() -> Self {
        let mut host = HostMap::new();
        let [commands, ccq, shadow, memory] = [4 * 64, 8 * 32, 64, MEMORY].map(|bytes| {
            let buf = HostBuf::new(bytes).unwrap();
            host.insert_ring(buf.clone());
            buf
        });
        let driver_shadow = CqShadow::new(shadow.words()).unwrap();
        let mut rig = Self {
            host,
            regions: MrTable::new(),
            cqs: CqTable::new(ArmModel::Strict),
            srqs: SrqTable::new(),
            pds: PdTable::new(),
            ahs: AhTable::new(),
            mcast: McastTable::new(),
            events: Events::new(2),
            counters: Counters::default(),
            cqp: Cqp::new(commands.words(), 4, CONTEXT).unwrap(),
            commands: Producer::new(commands.words(), 4, 3).unwrap(),
            ccq: CqConsumer::new(ccq.words(), 8, false, driver_shadow).unwrap(),
            memory: memory.addr(),
        };
        let create = CqCmd {
            id: CqId(0),
            ceq: Some(CeqId(0)),
            cookie: 0xcc0,
            size: 8,
            threshold: 4,
            addr: ccq.addr(),
            shadow_addr: shadow.addr(),
            check_overflow: true,
            wide: false,
            timestamps: false,
        };
        assert_eq!(rig.run(CqpCmd::CreateCq(create)), OK);
        rig
    }

    const fn place(&self, index: u64) -> u64 {
        self.memory + index * PLACE
    }

    fn push(&mut self, cmd: CqpCmd) {
        self.commands.try_push(CqpWqe(cmd.encode())).unwrap();
    }

    /// The doorbell. Queue pair commands are answered with the low bits of their QPN.
    fn doorbell(&mut self) -> usize {
        let mut count = 0;
        while let Some(fetched) = self.cqp.fetch(&mut self.cqs) {
            let mut control = Control {
                host: &mut self.host,
                regions: &mut self.regions,
                cqs: &mut self.cqs,
                srqs: &mut self.srqs,
                pds: &mut self.pds,
                ahs: &mut self.ahs,
                mcast: &mut self.mcast,
                events: &mut self.events,
                counters: &mut self.counters,
            };
            let status = match &fetched.cmd {
                Err(_) => Fetched::meaningless(),
                Ok(cmd) => match control.dispatch(cmd) {
                    Dispatch::Done(status) => status,
                    Dispatch::Qp(QpCommand::Attach(cmd)) => control.attach(&cmd),
                    Dispatch::Qp(QpCommand::Suspend(qpn)) => CqpStatus::OK.with_value(qpn.value()),
                    Dispatch::Qp(_) => CqpStatus::refused(CqpMinor::INVALID_STATE),
                },
            };
            self.cqp
                .complete(&mut self.cqs, &mut self.events, &fetched, status, T0);
            count += 1;
        }
        count
    }

    fn completion(&mut self) -> Option<CqpCompletion> {
        let done = self.ccq.peek_control()?;
        self.ccq.advance(false);
        self.commands.release(1);
        Some(done)
    }

    fn run(&mut self, cmd: CqpCmd) -> CqpMinor {
        self.push(cmd);
        assert_eq!(self.doorbell(), 1);
        let completion = self.completion().unwrap();
        assert_eq!(completion.context, CONTEXT);
        assert_eq!(completion.is_ok(), completion.minor == OK, "{completion:?}");
        completion.minor
    }

    fn ceq(&mut self, id: u16, vector: u16) -> CqpMinor {
        let addr = self.place(u64::from(id));
        self.run(CqpCmd::CreateCeq(CreateCeq {
            id: CeqId(id),
            entries: 16,
            addr,
            vector: MsixVector(vector),
        }))
    }

    const fn cq_cmd(&self, id: u32) -> CqCmd {
        CqCmd {
            id: CqId(id),
            ceq: Some(CeqId(0)),
            cookie: 0x100,
            size: 16,
            threshold: 8,
            addr: self.place(8),
            shadow_addr: self.place(9),
            check_overflow: true,
            wide: false,
            timestamps: false,
        }
    }

    const fn srq_cmd(&self, id: u32) -> SrqCmd {
        SrqCmd {
            id: SrqId(id),
            pd: PD,
            context: 1,
            wqes: 64,
            shift: 1,
            addr: self.place(10),
            shadow_addr: self.place(11),
            limit: 0,
            xrc: None,
        }
    }

    fn reg(&mut self, stag: u32, len: u64) -> CqpMinor {
        let pbl = self.host.insert_region(HostBuf::new(4096).unwrap().range());
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        self.run(CqpCmd::RegMr(RegMr {
            stag,
            pd: PD,
            va: 0x1000,
            len,
            access,
            pbl,
        }))
    }
}

#[test]
fn commands_complete_in_order_across_laps() {
    let mut rig = Rig::new();
    for lap in 0..40_u32 {
        for n in 0..3 {
            rig.push(CqpCmd::SuspendQp(Qpn::new(lap * 3 + n)));
        }
        assert_eq!(rig.doorbell(), 3);
        for n in 0..3 {
            let done = rig.completion().unwrap();
            assert_eq!((done.value, done.minor), (lap * 3 + n, OK));
            // The CCQ's creation was command 0.
            assert_eq!(u32::from(done.wqe_index), (1 + lap * 3 + n) % 4);
        }
        assert!(rig.completion().is_none());
    }
    assert_eq!(rig.cqp.tail().tail, (1 + 40 * 3) % 4);
    assert_eq!(rig.counters.cqp_commands, 1 + 40 * 3);
}

#[test]
fn a_full_ccq_stops_fetching_until_it_is_read() {
    let mut rig = Rig::new();
    let mut done = 0;
    // A driver that takes commands for done without reading the CCQ.
    for n in 0..9 {
        rig.commands.release(1);
        if rig
            .commands
            .try_push(CqpWqe(CqpCmd::SuspendQp(Qpn::new(n)).encode()))
            .is_ok()
        {
            done += rig.doorbell();
        }
    }
    assert_eq!(done, 7, "as many as an 8 entry CQ holds");
    let first = rig.completion().unwrap();
    assert_eq!(first.value, 0);
    assert_eq!(rig.doorbell(), 1, "one read, one more");
}

#[test]
fn ccq_completions_raise_events_on_ceq_0() {
    let mut rig = Rig::new();
    assert_eq!(rig.ceq(0, 1), OK);
    rig.events.enable_vector(MsixVector(1));
    rig.ccq.shadow().arm_control();
    rig.cqs.arm(&mut rig.events, CqId(0), T0);
    assert_eq!(rig.run(CqpCmd::Nop), OK);
    rig.cqs.settle(&mut rig.events, T0);
    assert_eq!(rig.events.poll_interrupt(T0), Some(MsixVector(1)));
    let words = rig.host.words(rig.place(0), 16 * 8).unwrap();
    let mut ceq = Consumer::<crate::hw::Ceqe>::new(words, 16).unwrap();
    assert_eq!(ceq.pop().map(|ceqe| ceqe.cookie), Some(0xcc0));
}

#[test]
fn event_queues() {
    let mut rig = Rig::new();
    assert_eq!(rig.ceq(0, 1), OK);
    assert_eq!(rig.ceq(0, 1), CqpMinor::EXISTS);
    assert_eq!(rig.ceq(1, 2), CqpMinor::INVALID_COMMAND, "no such vector");
    let mut aeq = CreateAeq {
        entries: 64,
        addr: rig.place(5),
        vector: MsixVector(0),
    };
    aeq.addr += 8;
    assert_eq!(
        rig.run(CqpCmd::CreateAeq(aeq)),
        CqpMinor::INVALID_MEMORY,
        "alignment"
    );
    aeq.addr = 1 << 40;
    assert_eq!(
        rig.run(CqpCmd::CreateAeq(aeq)),
        CqpMinor::INVALID_MEMORY,
        "not promised"
    );
    aeq.addr = rig.place(5);
    assert_eq!(
        rig.run(CqpCmd::CreateAeq(CreateAeq { entries: 0, ..aeq })),
        CqpMinor::INVALID_COMMAND
    );
    assert_eq!(rig.run(CqpCmd::CreateAeq(aeq)), OK);
    assert_eq!(rig.run(CqpCmd::CreateAeq(aeq)), CqpMinor::EXISTS);
    let cq = rig.cq_cmd(3);
    assert_eq!(rig.run(CqpCmd::CreateCq(cq)), OK);
    assert_eq!(rig.run(CqpCmd::DestroyCeq(CeqId(0))), CqpMinor::IN_USE);
    assert_eq!(rig.run(CqpCmd::DestroyCq(CqId(3))), OK);
    assert_eq!(rig.run(CqpCmd::DestroyCeq(CeqId(0))), OK);
    assert_eq!(rig.run(CqpCmd::DestroyCeq(CeqId(0))), CqpMinor::INVALID_ID);
    assert_eq!(rig.run(CqpCmd::DestroyAeq), OK);
    assert_eq!(rig.run(CqpCmd::DestroyAeq), CqpMinor::INVALID_ID);
}

#[test]
fn completion_queues() {
    let mut rig = Rig::new();
    let cq = rig.cq_cmd(3);
    assert_eq!(
        rig.run(CqpCmd::CreateCq(cq)),
        CqpMinor::INVALID_ID,
        "no such CEQ"
    );
    assert_eq!(rig.ceq(0, 1), OK);
    assert_eq!(
        rig.run(CqpCmd::CreateCq(CqCmd { size: 1, ..cq })),
        CqpMinor::INVALID_COMMAND
    );
    let huge = CqCmd {
        size: crate::limits::MAX_CQE,
        ..cq
    };
    assert_eq!(rig.run(CqpCmd::CreateCq(huge)), CqpMinor::INVALID_MEMORY);
    assert_eq!(rig.run(CqpCmd::CreateCq(cq)), OK);
    assert_eq!(rig.run(CqpCmd::CreateCq(cq)), CqpMinor::EXISTS);
    assert_eq!(
        rig.run(CqpCmd::CreateCq(CqCmd { id: CqId(0), ..cq })),
        CqpMinor::EXISTS
    );
    let resize = CqCmd {
        size: 32,
        addr: rig.place(12),
        ..cq
    };
    assert_eq!(rig.run(CqpCmd::ModifyCq(resize)), OK);
    let wide = CqCmd {
        wide: true,
        ..resize
    };
    assert_eq!(rig.run(CqpCmd::ModifyCq(wide)), CqpMinor::INVALID_COMMAND);
    let slot = rig.cqs.slot(CqId(3)).unwrap();
    assert!(rig.cqs.add_user(slot));
    assert_eq!(rig.run(CqpCmd::DestroyCq(CqId(3))), CqpMinor::IN_USE);
    rig.cqs.remove_user(slot);
    assert_eq!(rig.run(CqpCmd::DestroyCq(CqId(3))), OK);
    assert_eq!(rig.run(CqpCmd::DestroyCq(CqId(3))), CqpMinor::INVALID_ID);
    assert_eq!(rig.run(CqpCmd::ModifyCq(resize)), CqpMinor::INVALID_ID);
    rig.push(CqpCmd::DestroyCq(CqId(0)));
    assert_eq!(rig.doorbell(), 1);
    assert!(rig.completion().is_none(), "polled by the register");
    assert_eq!(rig.cqp.tail().last_error.minor, CqpMinor::INVALID_ID);
}

#[test]
fn shared_receive_queues() {
    let mut rig = Rig::new();
    let srq = rig.srq_cmd(7);
    for bad in [
        SrqCmd { wqes: 48, ..srq },
        SrqCmd { wqes: 0, ..srq },
        SrqCmd { limit: 64, ..srq },
    ] {
        assert_eq!(
            rig.run(CqpCmd::CreateSrq(bad)),
            CqpMinor::INVALID_COMMAND,
            "{bad:?}"
        );
    }
    assert!(rig.pds.is_empty());
    assert_eq!(rig.run(CqpCmd::CreateSrq(srq)), OK);
    assert_eq!(rig.run(CqpCmd::CreateSrq(srq)), CqpMinor::EXISTS);
    assert_eq!(rig.pds.users(PD), Some(1));
    let limit = |limit| {
        CqpCmd::ModifySrq(ModifySrq {
            id: SrqId(7),
            limit,
            ring: None,
        })
    };
    assert_eq!(rig.run(limit(10)), OK);
    assert_eq!(rig.run(limit(64)), CqpMinor::INVALID_COMMAND);
    let slot = rig.srqs.slot(SrqId(7)).unwrap();
    assert_eq!(rig.srqs.get(slot).map(crate::obj::Srq::limit), Some(10));
    assert!(rig.srqs.add_user(slot));
    assert_eq!(rig.run(CqpCmd::DestroySrq(SrqId(7))), CqpMinor::IN_USE);
    rig.srqs.remove_user(slot);
    assert_eq!(rig.run(CqpCmd::DestroySrq(SrqId(7))), OK);
    assert_eq!(rig.run(CqpCmd::DestroySrq(SrqId(7))), CqpMinor::INVALID_ID);
    assert!(rig.pds.is_empty(), "the domain goes with its last user");
}

#[test]
fn regions_windows_and_handles() {
    let mut rig = Rig::new();
    assert_eq!(rig.reg(0x500 << 8 | 1, 4096), OK);
    assert_eq!(rig.reg(0x500 << 8 | 2, 4096), CqpMinor::EXISTS);
    assert_eq!(
        rig.reg(0x501 << 8, 4097),
        CqpMinor::INVALID_MEMORY,
        "longer than the memory"
    );
    assert_eq!(rig.reg(1, 4096), CqpMinor::INVALID_ID, "index 0");
    let gone = RegMr {
        stag: 0x600 << 8,
        pd: PD,
        va: 0,
        len: 1,
        access: Access::LOCAL_READ,
        pbl: crate::mem::PblIndex(99),
    };
    assert_eq!(
        rig.run(CqpCmd::RegMr(gone)),
        CqpMinor::INVALID_MEMORY,
        "no such memory"
    );
    let window = AllocStag {
        stag: 0x502 << 8 | 9,
        pd: PD,
        kind: StagKind::Mw2,
    };
    assert_eq!(rig.run(CqpCmd::AllocStag(window)), OK);
    assert_eq!(rig.run(CqpCmd::AllocStag(window)), CqpMinor::EXISTS);
    let av = AddressVector::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let ah = CreateAh {
        id: AhId(4),
        pd: PD,
        av,
    };
    assert_eq!(rig.run(CqpCmd::CreateAh(ah)), OK);
    assert_eq!(rig.run(CqpCmd::CreateAh(ah)), CqpMinor::EXISTS);
    assert_eq!(rig.pds.users(PD), Some(3));
    let free = |stag, kind| CqpCmd::DeallocStag(DeallocStag { stag, pd: PD, kind });
    assert_eq!(
        rig.run(free(0x500 << 8 | 2, StagKind::Mr)),
        CqpMinor::INVALID_ID,
        "other key"
    );
    assert_eq!(rig.run(free(0x500 << 8 | 1, StagKind::Mr)), OK);
    assert_eq!(rig.run(free(0x502 << 8 | 9, StagKind::Mw2)), OK);
    assert_eq!(rig.run(CqpCmd::DestroyAh(AhId(4))), OK);
    assert_eq!(rig.run(CqpCmd::DestroyAh(AhId(4))), CqpMinor::INVALID_ID);
    assert!(rig.pds.is_empty());
}

#[test]
fn multicast_and_features() {
    let mut rig = Rig::new();
    let member = McastCmd {
        qpn: Qpn::new(9),
        group: [239, 0, 0, 1].into(),
    };
    assert_eq!(rig.run(CqpCmd::McastCreate(member)), OK);
    assert_eq!(rig.run(CqpCmd::McastCreate(member)), CqpMinor::EXISTS);
    assert_eq!(rig.run(CqpCmd::McastDestroy(member)), OK);
    assert_eq!(rig.run(CqpCmd::McastDestroy(member)), CqpMinor::INVALID_ID);
    let addr = rig.place(20);
    assert_eq!(rig.run(CqpCmd::QueryFeatures { addr, len: 64 }), OK);
    let words = rig.host.words(addr, 64).unwrap();
    let [firmware, hardware] = [0, 1].map(|index| Feature::from_bits(words.load(index)));
    assert_eq!((firmware.kind(), firmware.value() >> 32), (0, 2));
    assert_eq!((hardware.kind(), hardware.value()), (1, 2));
    let short = CqpCmd::QueryFeatures { addr, len: 4 };
    assert_eq!(rig.run(short), CqpMinor::INVALID_COMMAND);
    let wild = CqpCmd::QueryFeatures {
        addr: u64::MAX - 7,
        len: !7,
    };
    assert_eq!(rig.run(wild), CqpMinor::INVALID_MEMORY);
}

/// Eight words that are a command more often than chance would have it.
fn command_words() -> impl Strategy<Value = [u64; 8]> {
    let small = prop_oneof![any::<u64>(), 0..64_u64, Just(0), Just(u64::MAX)];
    let places = (0..64_u64).prop_map(|index| index << 58);
    let word = prop_oneof![3 => small, 2 => places];
    (prop::array::uniform8(word), 0..0x40_u64).prop_map(|(mut words, op)| {
        words[3] = words[3] & !(0x3f << 32) | op << 32;
        words
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_is_refused_and_harms_nothing(
        commands in prop::collection::vec(command_words(), 1..60),
    ) {
        let mut rig = Rig::new();
        rig.ceq(0, 1);
        let (top, memory) = (0x3f << 58, rig.memory);
        for mut words in commands {
            // Words with nothing but high bits stand for places in promised memory.
            for (index, word) in words.iter_mut().enumerate() {
                if index != 3 && *word != 0 && *word & !top == 0 {
                    *word = memory + (*word >> 58) * PLACE;
                }
            }
            rig.commands.try_push(CqpWqe(words)).unwrap();
            prop_assert_eq!(rig.doorbell(), 1);
            if CqpCmd::decode(&words) == Ok(CqpCmd::DestroyCq(CqId(0))) {
                return Ok(());
            }
            prop_assert!(rig.completion().is_some());
        }
        prop_assert_eq!(rig.run(CqpCmd::Nop), OK);
    }
}
