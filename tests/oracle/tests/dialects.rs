//! The dialects of mlx5 and hns against their own drivers' code.       [events 4.5, 4.6, 4.8]
//!
//! The code polls completions that our device wrote, and our device reads the requests and records
//! that the code wrote; what our own driver half does beside it is the same, bit for bit.
//!
//! What it cannot judge: how a device answers requests. Event queues are the kernel's.
//!
//! Every test prints its seed; `SRDMA_SEED=n` sets another.

#![cfg(test)]

/// The line that the gate looks for: past the capture of the test harness.
#[test]
fn oracles_are_there_or_say_why() {
    use std::io::Write;
    let line = match srdma_oracle::OTHERS_STATUS {
        "linked" => "the oracles of mlx5 and hns are linked".to_owned(),
        why => format!("skip: no oracles of mlx5 and hns: {why}"),
    };
    writeln!(std::io::stderr(), "{line}").expect("a line on stderr");
}

#[cfg(oracle_others)]
mod judged {
    use fastrand::Rng;
    use srdma_core::hw::dialect::{Arming, Dialect};
    use srdma_core::hw::{CqeInfo, FlushCode, Major, SqOp};
    use srdma_core::mem::{HostBuf, HostWords};
    use srdma_core::num::Qpn;
    use srdma_core::ring::{CqConsumer, CqOverflow, CqProducer, CqShadow};
    use srdma_oracle::{DriverCq, Wc};

    const CQN: u32 = 0x0012_3456;
    const QPN: u32 = 0x00ab_cdef;
    const SIZE: u32 = 8;
    /// The word of the area that stands for the register.
    const REGISTER: usize = 1;

    fn judge(dialect: Dialect) -> DriverCq {
        match dialect {
            Dialect::Mlx5 => DriverCq::mlx5(CQN, SIZE, QPN),
            _ => DriverCq::hns(CQN, SIZE, QPN),
        }
    }

    /// A ring that our device writes and two drivers read: the judge, and ours beside it.
    struct Bench {
        dialect: Dialect,
        judge: DriverCq,
        device: CqProducer,
        ours: CqConsumer,
        /// Our driver's own record and register.
        area: HostWords,
        arming: Arming,
        sends: u16,
        receives: u64,
    }

    fn bench(dialect: Dialect) -> Bench {
        let judge = judge(dialect);
        let shadow = CqShadow::speaking(dialect, judge.area()).unwrap();
        let device = CqProducer::new(judge.words(), SIZE, false, shadow, SIZE).unwrap();
        let area = HostBuf::new(64).unwrap().words();
        let own = CqShadow::speaking(dialect, area.clone()).unwrap();
        let ours = CqConsumer::new(judge.words(), SIZE, false, own).unwrap();
        Bench {
            dialect,
            judge,
            device,
            ours,
            area,
            arming: Arming::new(dialect),
            sends: 0,
            receives: 0,
        }
    }

    fn rng(test: &str) -> Rng {
        let given = std::env::var("SRDMA_SEED").ok();
        let seed = given.map_or(0x5eed, |text| text.parse().expect("a number"));
        println!("{test}: seed {seed}");
        Rng::with_seed(seed)
    }

    /// What a work request was, and `enum ibv_wc_opcode`.
    const SENDS: [(SqOp, u32); 7] = [
        (SqOp::SEND, 0),
        (SqOp::SEND_INV, 0),
        (SqOp::WRITE, 1),
        (SqOp::READ, 2),
        (SqOp::COMPARE_SWAP, 3),
        (SqOp::FETCH_ADD, 4),
        (SqOp::BIND_MW, 5),
    ];
    /// BTH opcode of a receive: SEND, SEND and WRITE with immediate, SEND with invalidate.
    const RECEIVES: [(u8, u32, u32); 4] = [
        (0x04, 128, 0),
        (0x05, 128, Wc::WITH_IMM),
        (0x0b, 129, Wc::WITH_IMM),
        (0x17, 128, Wc::WITH_INV),
    ];
    /// Why a request failed, and `enum ibv_wc_status`.
    const ERRORS: [(FlushCode, u32); 12] = [
        (FlushCode::LOC_LEN, 1),
        (FlushCode::LOC_QP_OP, 2),
        (FlushCode::PROT, 4),
        (FlushCode::GENERAL, 5),
        (FlushCode::MW_BIND, 6),
        (FlushCode::BAD_RESP, 7),
        (FlushCode::REM_INV_REQ, 9),
        (FlushCode::REM_ACCESS, 10),
        (FlushCode::REM_OP, 11),
        (FlushCode::RETRY_EXC, 12),
        (FlushCode::RNR_RETRY_EXC, 13),
        (FlushCode::FATAL, 16),
    ];

    /// What a judge must say of an entry; flags are of receives only.
    struct Verdict {
        wr_id: u64,
        status: u32,
        opcode: Option<u32>,
        byte_len: Option<u32>,
        flags: Option<u32>,
        imm: Option<u32>,
        src_qp: Option<u32>,
    }

    impl Bench {
        /// Asks the judge, and brings the register to where our device looks for it.
        fn arm_judge(&mut self, solicited_only: bool) {
            let word = self.judge.arm(solicited_only);
            self.judge.area().store(REGISTER, word);
        }

        fn send(&mut self, rng: &mut Rng) -> (CqeInfo, Verdict) {
            let (op, opcode) = SENDS[rng.usize(..SENDS.len())];
            self.sends = self.sends.wrapping_add(rng.u16(1..5));
            let (len, error) = (rng.u32(..1 << 31), rng.u8(..4) == 0);
            let (code, status) = ERRORS[rng.usize(..ERRORS.len())];
            let info = CqeInfo {
                sq: true,
                op: op.0,
                qpn: Qpn::new(QPN),
                context: rng.u64(..),
                wqe_index: self.sends,
                len,
                error: error.then_some((Major::FLUSH, code.0)),
                ..CqeInfo::default()
            };
            // The driver of mlx5 binds by changing a key, and does not know the opcode of a bind.
            let known = op != SqOp::BIND_MW || self.dialect == Dialect::Hns;
            let verdict = Verdict {
                wr_id: 0x1000 + u64::from(self.sends % 256),
                status: if error { status } else { 0 },
                opcode: (known && !error).then_some(opcode),
                byte_len: (op == SqOp::READ && !error).then_some(len),
                flags: None,
                imm: None,
                src_qp: None,
            };
            (info, verdict)
        }

        fn receive(&mut self, rng: &mut Rng) -> (CqeInfo, Verdict) {
            let (op, opcode, flags) = RECEIVES[rng.usize(..RECEIVES.len())];
            let (len, key, error) = (rng.u32(..1 << 31), rng.u32(1..), rng.u8(..4) == 0);
            let (code, status) = ERRORS[rng.usize(..ERRORS.len())];
            let place = self.receives % 256;
            self.receives += 1;
            let inval = flags == Wc::WITH_INV && !error;
            // A SEND may be a datagram.
            let source = (op < 0x06 && !error && rng.bool()).then(|| rng.u32(1..1 << 24));
            let grh = source.map_or(0, |_| Wc::GRH);
            let imm = (flags == Wc::WITH_IMM && !error).then_some(key);
            let info = CqeInfo {
                op: if error { 0x04 } else { op },
                qpn: Qpn::new(QPN),
                context: rng.u64(..),
                wqe_index: rng.u16(..),
                len,
                peer: if inval { key } else { source.unwrap_or(0) },
                stag_or_ipv4: inval || source.is_some() && rng.bool(),
                imm,
                solicited: rng.bool(),
                error: error.then_some((Major::FLUSH, code.0)),
                ..CqeInfo::default()
            };
            let verdict = Verdict {
                wr_id: 0x2000 + place,
                status: if error { status } else { 0 },
                opcode: (!error).then_some(opcode),
                byte_len: (!error).then_some(len),
                flags: (!error).then_some(flags | grh),
                imm: imm.map(u32::to_be).or_else(|| inval.then_some(key)),
                src_qp: source,
            };
            (info, verdict)
        }

        /// Both drivers read the next entry.
        fn read(&mut self, info: &CqeInfo, verdict: &Verdict) {
            let what = format!("{} {info:?}", self.dialect);
            let read = self.ours.peek().expect("an entry");
            assert_eq!(read, *info, "{what}");
            self.ours.advance(read.extended());
            let wc = self.judge.poll().expect("an entry");
            let told = (wc.wr_id, wc.status, wc.qpn);
            assert_eq!(told, (verdict.wr_id, verdict.status, QPN), "{what}");
            let same = |told: u32, wanted: Option<u32>| {
                assert!(wanted.is_none_or(|wanted| wanted == told), "{what}: {wc:?}");
            };
            same(wc.opcode, verdict.opcode);
            same(wc.byte_len, verdict.byte_len);
            same(wc.flags, verdict.flags);
            same(wc.imm, verdict.imm);
            same(wc.src_qp, verdict.src_qp);
            let minor = info.error.map(|(_, minor)| u32::from(minor));
            same(wc.vendor_err, minor);
        }

        /// The records of both say that so much was read.
        fn check_records(&self) {
            let (ours, theirs) = (self.area.load(0), self.judge.area().load(0));
            // The other half of mlx5's is of requests.
            let mask = 0xffff_ffff;
            assert_eq!(ours & mask, theirs & mask, "{}", self.dialect);
        }
    }

    #[test]
    fn completions_are_those_that_the_drivers_read() {
        // proves: event-70
        let mut rng = rng("completions");
        for dialect in [Dialect::Mlx5, Dialect::Hns] {
            let mut bench = bench(dialect);
            let mut full = 0;
            for _ in 0..4000 {
                let mut there = Vec::new();
                for _ in 0..rng.u32(..SIZE + 2) {
                    let (info, verdict) = if there.len() == SIZE as usize - 1 {
                        assert_eq!(bench.device.push(&CqeInfo::default()), Err(CqOverflow));
                        full += 1;
                        break;
                    } else if rng.bool() {
                        bench.send(&mut rng)
                    } else {
                        bench.receive(&mut rng)
                    };
                    // Room is known by the record that the judge wrote.
                    bench.device.push(&info).expect("room");
                    there.push((info, verdict));
                }
                for (info, verdict) in &there {
                    bench.read(info, verdict);
                }
                assert!(bench.ours.peek().is_none(), "{dialect}");
                assert_eq!(bench.judge.poll(), None, "{dialect}");
                bench.check_records();
            }
            assert!(full > 0, "the ring was full at times");
            println!("{dialect}: {} entries", bench.judge.state().0);
        }
    }

    #[test]
    fn an_entry_of_the_other_lap_is_there_for_nobody() {
        // proves: event-70
        let mut rng = rng("laps");
        for dialect in [Dialect::Mlx5, Dialect::Hns] {
            let mut bench = bench(dialect);
            let (word, bit) = match dialect {
                Dialect::Mlx5 => (7, 56),
                _ => (0, 7),
            };
            for entry in 0..4 * SIZE {
                let (info, verdict) = bench.receive(&mut rng);
                bench.device.push(&info).expect("room");
                let at = (entry % SIZE) as usize * 8 + word;
                let words = bench.judge.words();
                let there = words.load(at);
                words.store(at, there ^ 1 << bit);
                assert!(bench.ours.peek().is_none(), "{dialect} {entry}");
                assert_eq!(bench.judge.poll(), None, "{dialect} {entry}");
                words.store(at, there);
                bench.read(&info, &verdict);
            }
        }
    }

    #[test]
    fn requests_and_registers_are_those_that_the_drivers_write() {
        // proves: event-72
        // proves: event-78
        // proves: event-74
        let mut rng = rng("requests");
        for dialect in [Dialect::Mlx5, Dialect::Hns] {
            let mut bench = bench(dialect);
            for round in 0..2000 {
                let (info, verdict) = bench.receive(&mut rng);
                bench.device.push(&info).expect("room");
                bench.read(&info, &verdict);
                // A weaker request for one event is merged by ours, and not by theirs.
                let kinds: &[bool] = match rng.u8(..4) {
                    0 => &[],
                    1 => &[true],
                    2 => &[false],
                    _ => &[true, false],
                };
                for &solicited in kinds {
                    bench.arm_judge(solicited);
                    let _ = bench.arming.ask(solicited);
                    bench.ours.ask(CQN, &bench.arming, solicited);
                    let theirs = bench.judge.area();
                    let (ours, what) = (&bench.area, format!("{dialect} {round}"));
                    assert_eq!(ours.load(0), theirs.load(0), "{what}: record");
                    assert_eq!(ours.load(REGISTER), theirs.load(REGISTER), "{what}");
                    let request = bench.device.request(CQN).expect("a request");
                    let (read, sn) = bench.judge.state();
                    assert_eq!(request.seq, u64::from(sn % 4), "{what}");
                    assert_eq!((request.next, request.solicited), (!solicited, true));
                    let (ci, modulus) = request.read.expect("an index");
                    assert_eq!(ci, read % modulus, "{what}");
                    assert_eq!(bench.device.written_since(&request), Some(0));
                }
                if !kinds.is_empty() {
                    bench.judge.event();
                    let _ = bench.arming.fetched();
                }
            }
        }
    }

    /// A weaker request that theirs writes over a stronger one reads as the weaker.
    #[test]
    fn the_drivers_do_not_merge() {
        for dialect in [Dialect::Mlx5, Dialect::Hns] {
            let mut bench = bench(dialect);
            bench.arm_judge(false);
            bench.arm_judge(true);
            let request = bench.device.request(CQN).expect("a request");
            assert!(!request.next, "{dialect}: the device keeps the stronger");
        }
    }
}
