//! A counter and a lock in memory of a peer, used by several queue pairs at once.
//!
//! ```text
//! cargo run --release -p srdma-verbs --example atomics
//! ```

use core::sync::atomic::Ordering;
use srdma_verbs::{
    Access, Completion, Context, Cq, DeviceConfig, Mr, Pd, Qp, QpType, Result, Rkey, WrId,
};
use std::net::Ipv4Addr;

const CLIENTS: u64 = 3;
const ROUNDS: u64 = 500;
/// Where things are in the peer's memory.
const COUNTER: u64 = 0;
const LOCK: u64 = 8;
const GUARDED: u64 = 16;

fn open(last: u8) -> Result<Context> {
    let [a, b, ..] = std::process::id().to_le_bytes();
    DeviceConfig::new()
        .addr(Ipv4Addr::new(127, a, b, last).into())
        .open()
}

/// One client: a queue pair of its own, and eight bytes for what comes back.
struct Client {
    qp: Qp,
    cq: Cq,
    word: Mr,
    addr: u64,
    rkey: Rkey,
}

impl Client {
    fn new(ctx: &Context, pd: &Pd, peer: (&Pd, &Cq), memory: &Mr) -> Result<(Self, Qp)> {
        let cq = ctx.create_cq(16).build()?;
        let qp = pd.create_qp(QpType::Rc).send_cq(&cq).recv_cq(&cq).build()?;
        let other = peer
            .0
            .create_qp(QpType::Rc)
            .send_cq(peer.1)
            .recv_cq(peer.1)
            .build()?;
        let (ours, theirs) = (qp.endpoint(), other.endpoint());
        let (qp, other) = (qp.connect(&theirs)?, other.connect(&ours)?);
        let word = pd.register(vec![0; 8], Access::LOCAL_WRITE)?;
        Ok((
            Self {
                qp,
                cq,
                word,
                addr: memory.addr(),
                rkey: memory.rkey(),
            },
            other,
        ))
    }

    fn done(&self) -> Completion {
        loop {
            if let Some(wc) = self.cq.poll().next() {
                assert!(wc.is_ok(), "{}", wc.status());
                return wc.to_completion();
            }
        }
    }

    fn add(&self, to: u64, value: u64) -> Result<u64> {
        let mut batch = self.qp.post_send();
        let wr = batch.fetch_add(WrId(0), value).local(self.word.sge(..));
        drop(wr.remote(self.addr + to, self.rkey).signaled());
        batch.ring()?;
        self.done();
        self.word.load(0, Ordering::Acquire)
    }

    fn swap(&self, at: u64, from: u64, to: u64) -> Result<bool> {
        let mut batch = self.qp.post_send();
        let wr = batch
            .compare_swap(WrId(0), from, to)
            .local(self.word.sge(..));
        drop(wr.remote(self.addr + at, self.rkey).signaled());
        batch.ring()?;
        self.done();
        Ok(self.word.load(0, Ordering::Acquire)? == from)
    }

    /// Reads, changes and writes back a word, under the lock.
    fn guarded_increment(&self, me: u64) -> Result<()> {
        while !self.swap(LOCK, 0, me)? {
            std::thread::yield_now();
        }
        let mut batch = self.qp.post_send();
        let wr = batch.read(WrId(1)).local(self.word.sge(..));
        drop(wr.remote(self.addr + GUARDED, self.rkey).signaled());
        batch.ring()?;
        self.done();
        let value = self.word.load(0, Ordering::Acquire)? + 1;
        let mut batch = self.qp.post_send();
        batch
            .atomic_write(WrId(2), value.to_ne_bytes())
            .remote(self.addr + GUARDED, self.rkey);
        // The lock is opened after the write, by the order of the queue.
        let wr = batch.compare_swap(WrId(3), me, 0).local(self.word.sge(..));
        drop(wr.remote(self.addr + LOCK, self.rkey).signaled());
        batch.ring()?;
        self.done();
        Ok(())
    }
}

fn main() -> Result<()> {
    let (here, there) = (open(2)?, open(3)?);
    let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    let peer_cq = there.create_cq(16).build()?;
    let rights =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let memory = peer_pd.register(vec![0; 24], rights)?;

    let mut ends = Vec::new();
    let mut clients = Vec::new();
    for me in 1..=CLIENTS {
        let (client, end) = Client::new(&here, &pd, (&peer_pd, &peer_cq), &memory)?;
        ends.push(end);
        clients.push(std::thread::spawn(move || -> Result<()> {
            for _ in 0..ROUNDS {
                client.add(COUNTER, 1)?;
                client.guarded_increment(me)?;
            }
            Ok(())
        }));
    }
    for client in clients {
        client.join().unwrap_or(Ok(()))?;
    }
    let counter = memory.load(0, Ordering::Acquire)?;
    let guarded = memory.load(16, Ordering::Acquire)?;
    println!("{CLIENTS} clients, {ROUNDS} rounds: counter {counter}, guarded word {guarded}");
    assert_eq!((counter, guarded), (CLIENTS * ROUNDS, CLIENTS * ROUNDS));
    Ok(())
}
