//! A storm: random operations on two devices over a bad network, and an oracle that knows what
//! memory and completions must hold.
//!
//! ```text
//! device A                          device B
//!   QP k ── SEND WRITE READ CAS … ──► region k   [ writes | constants | counters | words ]
//! ```
//!
//! Every byte is checked: receives when they complete, READs and atomics against the oracle when
//! they complete, the whole region when the queue pair has drained. The same seed gives the same
//! storm and the same network.

use crate::fabric::{Fabric, FabricConfig};
use fastrand::Rng;
use srdma_net::clock::{Clock, ManualClock};
use srdma_verbs::{
    Access, Completion, Context, Cq, DeviceConfig, Mr, Pd, Qp, QpType, Result, WrId,
};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Bytes of each part of a region that WRITEs change.
const WRITES: usize = 48 * 1024;
/// Bytes that never change, for READs.
const CONSTANTS: usize = 48 * 1024;
/// Counters of atomics, eight bytes each.
const COUNTERS: usize = 8;
/// Words of ATOMIC WRITE.
const WORDS: usize = 8;
const REGION: usize = WRITES + CONSTANTS + 8 * (COUNTERS + WORDS);
/// Largest message.
const MAX_LEN: usize = 20_000;
/// Operations outstanding on a queue pair.
const DEPTH: usize = 32;
/// Receives posted.
const RECVS: usize = 24;

/// What kind of storm.
#[derive(Clone, Copy, Debug)]
pub struct StormConfig {
    /// Operations to complete, over all queue pairs.
    pub operations: u64,
    /// Queue pairs.
    pub qps: usize,
    /// The network.
    pub network: FabricConfig,
    /// IPv6 instead of IPv4.
    pub v6: bool,
}

/// What a storm did.
#[derive(Clone, Copy, Debug, Default)]
pub struct StormReport {
    /// Operations completed.
    pub operations: u64,
    /// Bytes checked.
    pub bytes: u64,
    /// Packets of both devices.
    pub packets: u64,
    /// Times that a requester went back.
    pub retries: u64,
}

#[derive(Debug)]
enum Expect {
    Done,
    Read {
        slot: usize,
        len: usize,
        from: usize,
    },
    Atomic {
        slot: usize,
        old: u64,
    },
}

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    imm: Option<u32>,
    /// A WRITE with immediate: the payload is in the region.
    write: bool,
}

/// One direction: a requester on A, its region and receives on B, and the oracle of both.
struct Lane {
    qp: Qp,
    peer: Qp,
    cq: Cq,
    peer_cq: Cq,
    local: Mr,
    region: Mr,
    inbox: Mr,
    oracle: Vec<u8>,
    expected: VecDeque<(u64, Expect)>,
    messages: VecDeque<Message>,
    recvs: VecDeque<u64>,
    next_id: u64,
    next_recv: u64,
    done: u64,
}

/// Two devices, their network, and the lanes between them.
struct World {
    clock: ManualClock,
    fabric: Fabric,
    a: Context,
    b: Context,
    lanes: Vec<Lane>,
    rng: Rng,
    report: StormReport,
}

/// Runs one storm.
///
/// # Panics
///
/// If any byte, completion or status is not what the oracle says, or nothing moves any more.
pub fn run(config: &StormConfig) -> Result<StormReport> {
    let mut world = World::new(config)?;
    let per_lane = config.operations / config.qps as u64;
    let mut idle = 0u32;
    loop {
        let mut moved = false;
        let mut open = false;
        for index in 0..world.lanes.len() {
            moved |= world.post(index, per_lane)?;
            moved |= world.reap(index)?;
            open |= world
                .lanes
                .get(index)
                .is_some_and(|lane| lane.done < per_lane);
        }
        if !open {
            break;
        }
        moved |= world.fabric.step();
        if moved {
            idle = 0;
            continue;
        }
        idle += 1;
        assert!(idle < 100_000, "nothing moves any more");
        let limit = [world.a.next_deadline(), world.b.next_deadline()]
            .into_iter()
            .flatten()
            .min();
        assert!(world.fabric.advance(limit), "nothing is due any more");
    }
    world.finish()?;
    Ok(world.report)
}

impl World {
    fn new(config: &StormConfig) -> Result<Self> {
        let clock = ManualClock::new();
        let mut fabric = Fabric::new(config.network, &clock);
        let mut device = |last: u8| -> Result<Context> {
            let ip: IpAddr = if config.v6 {
                IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)])
            } else {
                IpAddr::from([10, 0, 0, last])
            };
            let link = fabric.attach(&[SocketAddr::new(ip, 0xc000 + u16::from(last))]);
            DeviceConfig::new()
                .addr(ip)
                .wire(link, Clock::manual(&clock))
                .background(false)
                .open()
        };
        let (a, b) = (device(1)?, device(2)?);
        let mut rng = Rng::with_seed(config.network.seed);
        let (pd_a, pd_b) = (a.alloc_pd()?, b.alloc_pd()?);
        let mut lanes = Vec::new();
        for index in 0..config.qps {
            // Every other lane goes the other way, so that both devices do everything.
            let lane = if index % 2 == 0 {
                Lane::new((&a, &pd_a), (&b, &pd_b), &mut rng)?
            } else {
                Lane::new((&b, &pd_b), (&a, &pd_a), &mut rng)?
            };
            lanes.push(lane);
        }
        let report = StormReport::default();
        Ok(Self {
            clock,
            fabric,
            a,
            b,
            lanes,
            rng,
            report,
        })
    }

    fn post(&mut self, index: usize, per_lane: u64) -> Result<bool> {
        let rng = &mut self.rng;
        let Some(lane) = self.lanes.get_mut(index) else {
            return Ok(false);
        };
        let mut any = false;
        // Receives come late now and then, so that senders meet an empty queue.
        if rng.u32(0..8) != 0 {
            any |= lane.post_recvs()?;
        }
        let left = per_lane.saturating_sub(lane.next_id);
        let room = DEPTH.saturating_sub(lane.expected.len()) as u64;
        let batch = room.min(left).min(rng.u64(0..6));
        for _ in 0..batch {
            lane.post_one(rng)?;
            any = true;
        }
        Ok(any)
    }

    fn reap(&mut self, index: usize) -> Result<bool> {
        let Some(lane) = self.lanes.get_mut(index) else {
            return Ok(false);
        };
        let mut done = [Completion::EMPTY; 16];
        let got = lane.cq.poll_into(&mut done);
        for completion in done.iter().take(got) {
            self.report.bytes += lane.check_done(completion)?;
            self.report.operations += 1;
        }
        let received = lane.peer_cq.poll_into(&mut done);
        for completion in done.iter().take(received) {
            self.report.bytes += lane.check_recv(completion)?;
        }
        Ok(got + received > 0)
    }

    /// Drains receives that are still on their way, and compares memory.
    fn finish(&mut self) -> Result<()> {
        let until = self.clock.now().after(10_000_000_000);
        while self.lanes.iter().any(|lane| !lane.messages.is_empty()) {
            for index in 0..self.lanes.len() {
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.post_recvs()?;
                }
                self.reap(index)?;
            }
            if !self.fabric.step() {
                assert!(self.clock.now() < until, "receives are missing");
                let limit = [self.a.next_deadline(), self.b.next_deadline()];
                self.fabric.advance(limit.into_iter().flatten().min());
            }
        }
        for lane in &self.lanes {
            assert_eq!(
                lane.region.to_vec(0, REGION)?,
                lane.oracle,
                "memory differs"
            );
            self.report.bytes += REGION as u64;
        }
        for counters in [self.a.counters(), self.b.counters()] {
            self.report.packets += counters.sent_pkts;
            self.report.retries +=
                counters.completer_retry_err + counters.ack_timeouts + counters.implied_nak;
        }
        Ok(())
    }
}

impl Lane {
    fn new(from: (&Context, &Pd), to: (&Context, &Pd), rng: &mut Rng) -> Result<Self> {
        let cq = from.0.create_cq(4 * DEPTH as u32).build()?;
        let peer_cq = to.0.create_cq(4 * RECVS as u32).build()?;
        let mtus = srdma_verbs::Mtu::ALL;
        let mtu = mtus[rng.usize(0..mtus.len())];
        let depth = [1, 2, 4, 16][rng.usize(0..4)];
        let build = |pd: &Pd, cq: &Cq| {
            pd.create_qp(QpType::Rc)
                .send_cq(cq)
                .recv_cq(cq)
                .max_send_wr(2 * DEPTH as u32)
                .max_recv_wr(2 * RECVS as u32)
                .max_send_sge(4)
                .max_recv_sge(2)
                .max_inline(101)
                .mtu(mtu)
                .min_rnr_timer(1)
                .rd_atomic(depth)
                .build()
        };
        let (qp, peer) = (build(from.1, &cq)?, build(to.1, &peer_cq)?);
        let (mine, theirs) = (qp.endpoint(), peer.endpoint());
        let (qp, peer) = (qp.connect(&theirs)?, peer.connect(&mine)?);
        let oracle: Vec<u8> = (0..REGION).map(|_| rng.u8(..)).collect();
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        Ok(Self {
            local: from
                .1
                .register(vec![0; DEPTH * MAX_LEN], Access::LOCAL_WRITE)?,
            region: to.1.register(oracle.clone(), all)?,
            inbox: to
                .1
                .register(vec![0; RECVS * MAX_LEN], Access::LOCAL_WRITE)?,
            qp,
            peer,
            cq,
            peer_cq,
            oracle,
            expected: VecDeque::new(),
            messages: VecDeque::new(),
            recvs: VecDeque::new(),
            next_id: 0,
            next_recv: 0,
            done: 0,
        })
    }

    fn post_recvs(&mut self) -> Result<bool> {
        let room = RECVS - self.recvs.len();
        if room == 0 {
            return Ok(false);
        }
        let mut batch = self.peer.post_recv();
        for _ in 0..room {
            let at = (self.next_recv as usize % RECVS) * MAX_LEN;
            let cut = at + MAX_LEN / 3;
            batch
                .recv(WrId(self.next_recv))
                .local(self.inbox.sge(at..cut))
                .local(self.inbox.sge(cut..at + MAX_LEN));
            self.recvs.push_back(self.next_recv);
            self.next_recv += 1;
        }
        batch.ring()?;
        Ok(true)
    }

    fn post_one(&mut self, rng: &mut Rng) -> Result<()> {
        let id = self.next_id;
        self.next_id += 1;
        let slot = (id as usize % DEPTH) * MAX_LEN;
        let len = random_len(rng);
        let expect = match rng.u32(0..16) {
            0..=3 => self.post_send(rng, id, slot, len)?,
            4..=7 => self.post_write(rng, id, slot, len)?,
            8..=11 => self.post_read(rng, id, slot, len)?,
            12..=13 => self.post_fetch_add(rng, id, slot)?,
            14 => self.post_compare_swap(rng, id, slot)?,
            _ => self.post_word(rng, id)?,
        };
        self.expected.push_back((id, expect));
        Ok(())
    }

    fn fill(&self, rng: &mut Rng, slot: usize, len: usize) -> Result<Vec<u8>> {
        let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        self.local.write(slot, &bytes)?;
        Ok(bytes)
    }

    fn post_send(&mut self, rng: &mut Rng, id: u64, slot: usize, len: usize) -> Result<Expect> {
        let bytes = self.fill(rng, slot, len)?;
        let imm = rng.bool().then(|| rng.u32(..));
        let mut batch = self.qp.post_send();
        let wr = match imm {
            Some(imm) => batch.send_imm(WrId(id), imm),
            None => batch.send(WrId(id)),
        };
        if len <= 101 && rng.bool() {
            wr.inline(&bytes).signaled();
        } else {
            let cut = slot + rng.usize(0..=len);
            wr.local(self.local.sge(slot..cut))
                .local(self.local.sge(cut..slot + len))
                .signaled();
        }
        batch.ring()?;
        self.messages.push_back(Message {
            bytes,
            imm,
            write: false,
        });
        Ok(Expect::Done)
    }

    fn post_write(&mut self, rng: &mut Rng, id: u64, slot: usize, len: usize) -> Result<Expect> {
        let bytes = self.fill(rng, slot, len)?;
        let at = rng.usize(0..=WRITES - len);
        self.oracle[at..at + len].copy_from_slice(&bytes);
        let (addr, rkey) = (self.region.addr() + at as u64, self.region.rkey());
        let with_imm = rng.u32(0..4) == 0;
        let mut batch = self.qp.post_send();
        if with_imm {
            let imm = rng.u32(..);
            batch
                .write_imm(WrId(id), imm)
                .local(self.local.sge(slot..slot + len))
                .remote(addr, rkey)
                .signaled();
            self.messages.push_back(Message {
                bytes,
                imm: Some(imm),
                write: true,
            });
        } else {
            batch
                .write(WrId(id))
                .local(self.local.sge(slot..slot + len))
                .remote(addr, rkey)
                .signaled();
        }
        batch.ring()?;
        Ok(Expect::Done)
    }

    fn post_read(&mut self, rng: &mut Rng, id: u64, slot: usize, len: usize) -> Result<Expect> {
        let from = WRITES + rng.usize(0..=CONSTANTS - len);
        let mut batch = self.qp.post_send();
        let cut = slot + rng.usize(0..=len);
        batch
            .read(WrId(id))
            .local(self.local.sge(slot..cut))
            .local(self.local.sge(cut..slot + len))
            .remote(self.region.addr() + from as u64, self.region.rkey())
            .signaled();
        batch.ring()?;
        Ok(Expect::Read { slot, len, from })
    }

    fn counter(&self, rng: &mut Rng) -> (usize, u64) {
        let at = WRITES + CONSTANTS + 8 * rng.usize(0..COUNTERS);
        let value: [u8; 8] = self.oracle[at..at + 8].try_into().unwrap_or_default();
        (at, u64::from_ne_bytes(value))
    }

    fn post_fetch_add(&mut self, rng: &mut Rng, id: u64, slot: usize) -> Result<Expect> {
        let (at, old) = self.counter(rng);
        let add = rng.u64(..);
        self.oracle[at..at + 8].copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
        let mut batch = self.qp.post_send();
        batch
            .fetch_add(WrId(id), add)
            .local(self.local.sge(slot..slot + 8))
            .remote(self.region.addr() + at as u64, self.region.rkey())
            .signaled();
        batch.ring()?;
        Ok(Expect::Atomic { slot, old })
    }

    fn post_compare_swap(&mut self, rng: &mut Rng, id: u64, slot: usize) -> Result<Expect> {
        let (at, old) = self.counter(rng);
        let (compare, swap) = (if rng.bool() { old } else { rng.u64(..) }, rng.u64(..));
        if compare == old {
            self.oracle[at..at + 8].copy_from_slice(&swap.to_ne_bytes());
        }
        let mut batch = self.qp.post_send();
        batch
            .compare_swap(WrId(id), compare, swap)
            .local(self.local.sge(slot..slot + 8))
            .remote(self.region.addr() + at as u64, self.region.rkey())
            .signaled();
        batch.ring()?;
        Ok(Expect::Atomic { slot, old })
    }

    fn post_word(&mut self, rng: &mut Rng, id: u64) -> Result<Expect> {
        let at = WRITES + CONSTANTS + 8 * (COUNTERS + rng.usize(0..WORDS));
        let value = rng.u64(..).to_ne_bytes();
        self.oracle[at..at + 8].copy_from_slice(&value);
        let mut batch = self.qp.post_send();
        batch
            .atomic_write(WrId(id), value)
            .remote(self.region.addr() + at as u64, self.region.rkey())
            .signaled();
        batch.ring()?;
        Ok(Expect::Done)
    }

    fn check_done(&mut self, completion: &Completion) -> Result<u64> {
        assert!(completion.is_ok(), "{:?} after {}", completion, self.done);
        let Some((id, expect)) = self.expected.pop_front() else {
            panic!("a completion too many: {completion:?}");
        };
        assert_eq!(completion.wr_id(), WrId(id), "completions are in order");
        self.done += 1;
        match expect {
            Expect::Done => Ok(0),
            Expect::Read { slot, len, from } => {
                let got = self.local.to_vec(slot, len)?;
                assert_eq!(
                    got,
                    self.oracle[from..from + len],
                    "READ {id} got other bytes"
                );
                Ok(len as u64)
            }
            Expect::Atomic { slot, old } => {
                let got: [u8; 8] = self.local.to_vec(slot, 8)?.try_into().unwrap_or_default();
                assert_eq!(
                    u64::from_ne_bytes(got),
                    old,
                    "atomic {id} ran other than once"
                );
                Ok(8)
            }
        }
    }

    fn check_recv(&mut self, completion: &Completion) -> Result<u64> {
        assert!(completion.is_ok(), "{completion:?}");
        let (Some(recv), Some(message)) = (self.recvs.pop_front(), self.messages.pop_front())
        else {
            panic!("a receive too many: {completion:?}");
        };
        assert_eq!(completion.wr_id(), WrId(recv), "receives are in order");
        assert_eq!(completion.imm(), message.imm);
        assert_eq!(completion.byte_len() as usize, message.bytes.len());
        if message.write {
            return Ok(0);
        }
        let at = (recv as usize % RECVS) * MAX_LEN;
        let got = self.inbox.to_vec(at, message.bytes.len())?;
        assert_eq!(got, message.bytes, "receive {recv} got other bytes");
        Ok(got.len() as u64)
    }
}

/// Mostly small, now and then several packets, sometimes nothing.
fn random_len(rng: &mut Rng) -> usize {
    match rng.u32(0..32) {
        0 => 0,
        1..=22 => rng.usize(1..=128),
        23..=28 => rng.usize(1..=2048),
        29 | 30 => rng.usize(1..=8192),
        _ => rng.usize(1..=MAX_LEN),
    }
}
