//! A tiny block device over RDMA, served by callbacks, in the manner of NVMe over fabrics.
//!
//! ```text
//! host     command capsule ── SEND ──────────────────► controller
//!          [ buffer ] ◄────── WRITE, or READ ─────────── [ blocks ]
//!          slot done ◄─────── response, SEND ────────── command done
//! ```
//!
//! Nobody polls: the controller's queue runs its closures in softirq context, the host's comes from
//! the pool. Run it with `cargo run --release -p srdma-verbs --example callbacks`.

use srdma_verbs::{
    Access, CqPool, DeviceConfig, ManagedCq, Mr, Pd, PollContext, Qp, QpType, Result, Rkey,
    WcStatus, WrCqe,
};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

const BLOCK: usize = 512;
const BLOCKS: usize = 64;
/// Commands that may be outstanding.
const SLOTS: usize = 16;
/// Completions that each side may have waiting.
const ENTRIES: u32 = 128;
const COMMANDS: usize = 2_000;
/// Bytes of a command: slot, operation, block, address, key.
const CAPSULE: usize = 32;
const WRITE: u64 = 1;

fn open(last: u8) -> Result<srdma_verbs::Context> {
    let [a, b, ..] = std::process::id().to_le_bytes();
    DeviceConfig::new()
        .addr(Ipv4Addr::new(127, a, b, last).into())
        .open()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes
        .get(8 * at..8 * at + 8)
        .and_then(|word| word.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}

/// Serves commands; everything happens in closures.
struct Controller {
    qp: OnceLock<Qp>,
    blocks: Mr,
    capsules: Mr,
    /// One closure for each receive, and one for all that needs no further step.
    receives: OnceLock<Vec<WrCqe>>,
    quiet: OnceLock<WrCqe>,
}

impl Controller {
    fn start(pd: &Pd, cq: &ManagedCq) -> Result<Arc<Self>> {
        let controller = Arc::new(Self {
            qp: OnceLock::new(),
            blocks: pd.register(vec![0; BLOCK * BLOCKS], Access::LOCAL_WRITE)?,
            capsules: pd.register(vec![0; CAPSULE * SLOTS], Access::LOCAL_WRITE)?,
            receives: OnceLock::new(),
            quiet: OnceLock::new(),
        });
        let mut receives = Vec::new();
        for slot in 0..SLOTS {
            let me = Arc::downgrade(&controller);
            receives.push(cq.register(move |_, wc| {
                if let Some(me) = me.upgrade().filter(|_| wc.is_ok()) {
                    me.command(slot)
                        .unwrap_or_else(|error| eprintln!("{error}"));
                }
            })?);
        }
        let _ = controller.receives.set(receives);
        let _ = controller.quiet.set(cq.register(|_, _| {})?);
        Ok(controller)
    }

    fn receive(&self, slot: usize) -> Result<()> {
        let (Some(qp), Some(receives)) = (self.qp.get(), self.receives.get()) else {
            return Ok(());
        };
        let mut batch = qp.post_recv();
        if let Some(cqe) = receives.get(slot) {
            let capsule = CAPSULE * slot..CAPSULE * (slot + 1);
            batch.recv(cqe.wr_id()).local(self.capsules.sge(capsule));
        }
        batch.ring()
    }

    /// A command came in: moves the data and answers, in one batch.
    fn command(&self, slot: usize) -> Result<()> {
        let (Some(qp), Some(quiet)) = (self.qp.get(), self.quiet.get()) else {
            return Ok(());
        };
        let capsule = self.capsules.to_vec(CAPSULE * slot, CAPSULE)?;
        let (tag, addr) = (word(&capsule, 0), word(&capsule, 2));
        let (operation, block) = (tag >> 56, usize::try_from(tag >> 16 & 0xffff));
        let rkey = Rkey(u32::try_from(word(&capsule, 3)).unwrap_or(0));
        let place = BLOCK * (block.unwrap_or(0) % BLOCKS);
        let local = self.blocks.sge(place..place + BLOCK);
        self.receive(slot)?;
        let (quiet, answer) = (quiet.wr_id(), (tag & 0xffff).to_le_bytes());
        let mut batch = qp.post_send();
        if operation == WRITE {
            // What the host has; the answer waits until it is here.
            batch.read(quiet).local(local).remote(addr, rkey);
            batch.send(quiet).inline(&answer).fence().signaled();
        } else {
            batch.write(quiet).local(local).remote(addr, rkey);
            batch.send(quiet).inline(&answer).signaled();
        }
        batch.ring()
    }
}

/// Hands out slots, and gets them back from closures.
struct Host {
    qp: Qp,
    buffers: Mr,
    answers: Mr,
    done: WrCqe,
    receives: Vec<WrCqe>,
    free: Receiver<usize>,
}

impl Host {
    fn receive(&self, slot: usize) -> Result<()> {
        let mut batch = self.qp.post_recv();
        if let Some(cqe) = self.receives.get(slot) {
            batch
                .recv(cqe.wr_id())
                .local(self.answers.sge(8 * slot..8 * slot + 8));
        }
        batch.ring()
    }

    /// Waits for a slot, then starts a command in it.
    fn submit(&self, operation: u64, block: usize, fill: u8) -> Result<usize> {
        let slot = self.free.recv().unwrap_or(0);
        let place = BLOCK * slot;
        if operation == WRITE {
            self.buffers.write(place, &[fill; BLOCK])?;
        }
        self.receive(slot)?;
        let tag = operation << 56 | (block as u64) << 16 | slot as u64;
        let mut capsule = [0; CAPSULE];
        let words = [
            tag,
            0,
            self.buffers.addr() + place as u64,
            self.buffers.rkey().0.into(),
        ];
        for (bytes, word) in capsule.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut batch = self.qp.post_send();
        batch.send(self.done.wr_id()).inline(&capsule).signaled();
        batch.ring()?;
        Ok(slot)
    }
}

fn receives(cq: &ManagedCq, freed: &Sender<usize>) -> Result<Vec<WrCqe>> {
    (0..SLOTS)
        .map(|slot| {
            let freed = freed.clone();
            cq.register(move |_, wc| {
                assert!(wc.is_ok(), "{}", wc.status());
                // The receiver goes first only when the program ends.
                let _ = freed.send(slot);
            })
        })
        .collect()
}

fn main() -> Result<()> {
    let (here, there) = (open(2)?, open(3)?);
    let (pd, peer_pd) = (here.alloc_pd()?, there.alloc_pd()?);
    let pool: CqPool = here.cq_pool();
    let cq = pool.get(ENTRIES, None, PollContext::UnboundWorkqueue)?;
    let peer_cq = there
        .create_managed_cq(ENTRIES)
        .poll_context(PollContext::Softirq)
        .adaptive(true)
        .build()?;
    let qp = pd
        .create_qp(QpType::Rc)
        .send_cq(cq.cq())
        .recv_cq(cq.cq())
        .build()?;
    let peer = peer_pd
        .create_qp(QpType::Rc)
        .send_cq(peer_cq.cq())
        .recv_cq(peer_cq.cq())
        .build()?;
    let (ours, theirs) = (qp.endpoint(), peer.endpoint());
    let (qp, peer) = (qp.connect(&theirs)?, peer.connect(&ours)?);

    let controller = Controller::start(&peer_pd, &peer_cq)?;
    let _ = controller.qp.set(peer.clone());
    for slot in 0..SLOTS {
        controller.receive(slot)?;
    }
    let (freed, free) = channel();
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let host = Host {
        buffers: pd.register(vec![0; BLOCK * SLOTS], all)?,
        answers: pd.register(vec![0; 8 * SLOTS], Access::LOCAL_WRITE)?,
        // The last answer may be here before the acknowledgement of what it answers: drained.
        done: cq.register(|_, wc| {
            let fine = wc.is_ok() || wc.status() == WcStatus::WrFlushErr;
            assert!(fine, "{}", wc.status());
        })?,
        receives: receives(&cq, &freed)?,
        qp,
        free,
    };
    for slot in 0..SLOTS {
        let _ = freed.send(slot);
    }
    for number in 0..COMMANDS {
        host.submit(WRITE, number % BLOCKS, number.to_le_bytes()[0])?;
    }
    // One after the other: what was written last is read back.
    let slots: Vec<usize> = host.free.iter().take(SLOTS).collect();
    let _ = slots.iter().try_for_each(|slot| freed.send(*slot));
    for block in 0..BLOCKS {
        let slot = host.submit(0, block, 0)?;
        let back: Vec<usize> = host.free.iter().take(SLOTS).collect();
        let last = (COMMANDS - 1) - (COMMANDS - 1 - block) % BLOCKS;
        let found = host.buffers.to_vec(BLOCK * slot, BLOCK)?;
        assert!(
            found.iter().all(|byte| *byte == last.to_le_bytes()[0]),
            "block {block}"
        );
        let _ = back.iter().try_for_each(|slot| freed.send(*slot));
    }
    // Nothing is outstanding afterwards, and no closure runs any more.
    host.qp.drain()?;
    peer.drain()?;
    println!("{COMMANDS} blocks written, {BLOCKS} read back and compared");
    println!("controller: {:?}", peer_cq.stats());
    println!("host:       {:?}", cq.stats());
    Ok(())
}
