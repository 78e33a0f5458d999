//! One queue pair of a storm: what it posts, and the oracle that knows what must come of it.
//!
//! What it does not do: decide when to post, or move packets (the storm does).

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a harness fails loudly; its numbers are small"
)]

use fastrand::Rng;
use srdma_verbs::{Access, Completion, Context, Cq, Mr, Pd, Qp, QpType, Result, WrId};
use std::collections::VecDeque;

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
pub(super) struct Lane {
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

impl Lane {
    pub(super) fn new(from: (&Context, &Pd), to: (&Context, &Pd), rng: &mut Rng) -> Result<Self> {
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

    /// Operations completed.
    pub(super) const fn done(&self) -> u64 {
        self.done
    }

    /// True while a receive is still on its way.
    pub(super) fn owes_receives(&self) -> bool {
        !self.messages.is_empty()
    }

    /// How many operations may be posted now, of `per_lane` in all.
    pub(super) fn room(&self, per_lane: u64) -> u64 {
        let left = per_lane.saturating_sub(self.next_id);
        left.min(DEPTH.saturating_sub(self.expected.len()) as u64)
    }

    /// Completions of the requester.
    pub(super) fn poll(&self, done: &mut [Completion]) -> usize {
        self.cq.poll_into(done)
    }

    /// Completions of the peer's receives.
    pub(super) fn poll_peer(&self, done: &mut [Completion]) -> usize {
        self.peer_cq.poll_into(done)
    }

    /// Compares the whole region; how many bytes that were.
    pub(super) fn check_region(&self) -> Result<u64> {
        let got = self.region.to_vec(0, REGION)?;
        assert_eq!(got, self.oracle, "memory differs");
        Ok(REGION as u64)
    }

    pub(super) fn post_recvs(&mut self) -> Result<bool> {
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

    pub(super) fn post_one(&mut self, rng: &mut Rng) -> Result<()> {
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

    fn post_read(&self, rng: &mut Rng, id: u64, slot: usize, len: usize) -> Result<Expect> {
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

    pub(super) fn check_done(&mut self, completion: &Completion) -> Result<u64> {
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

    pub(super) fn check_recv(&mut self, completion: &Completion) -> Result<u64> {
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
