//! The local queue: what arrives at queue pair 1, and the driver's own datagrams from there.
//!
//! ```text
//! classes handled, no program has QP 1 ─► the queue exists
//! CQ event ─► drain ─► arm ─► drain ─► replenish ─► handlers, no lock held ─► replies
//! send ─► buffer: BTH, DETH, MAD ─► address handle there? ─► SQ
//!                                   └─ not yet: made by the control queue, sends wait
//! ```
//!
//! What came is taken off before any receive is posted again, so one event costs at most a ring of
//! datagrams, however many a peer sends: what finds no receive is dropped by the device.
//! [E810 8.6.2]

use super::super::Driver;
use super::super::cmd::Later;
use super::super::ids::{IdPool, lock, random};
use super::ahs::Handles;
use super::pool::Buf;
use super::queue::{Done, Outgoing, Queue};
use super::shape::Shape;
use super::{PudaKind, PudaStats};
use crate::error::Reason;
use crate::mad::{MAD_BYTES, Mad, MadHandler, MadSender};
use crate::path::Path;
use core::sync::atomic::{AtomicU32, Ordering};
use srdma_core::num::{Psn, Qkey, Qpn};
use srdma_core::obj::ah::AddressVector;
use srdma_core::obj::notify::Moderation;
use srdma_core::qp::attr::QpType;
use srdma_core::wire::{Bth, Deth, Opcode, Packet};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// The Q_Key of queue pair 1 everywhere.                              [IBTA 3.5.3]
const GSI_QKEY: Qkey = Qkey(0x8001_0000);
/// Receives that are posted.
const RECEIVES: u32 = 256;
/// Datagrams that may wait or be on their way out.
const SENDS: u32 = 512;
/// Bytes of a buffer: 40 in front, headers, a MAD, and the ICRC are 320.   [E810 8.6.2]
const BUFFER: u32 = 1024;
/// Events come no closer together, so that a flood leaves those who run the device time for data.
const EVENT_GAP_NS: u32 = 50_000;
/// Bytes in front of a packet.
const AREA: usize = 40;

const SHAPE: Shape = Shape {
    kind: PudaKind::Ilq,
    qp_type: QpType::Gsi,
    qkey: GSI_QKEY,
    sq_quanta: 512,
    rq_wqes: RECEIVES,
    bufs: (RECEIVES + SENDS, BUFFER),
};

/// The queue while it exists.
#[derive(Debug)]
struct Running {
    queue: Queue,
    handles: Handles,
    psn: Psn,
    /// What brings a failed send queue back.
    revival: Option<Later>,
}

/// When the queue exists.
#[derive(Debug, Default)]
struct Life {
    classes: usize,
    /// Programs have queue pair 1.
    programs: usize,
}

/// The local queue and the table of handlers.
#[derive(Default)]
pub(crate) struct Ilq {
    /// Held while the queue is made or taken back; never by event handlers.
    life: Mutex<Life>,
    running: Mutex<Option<Running>>,
    handlers: Mutex<HashMap<u8, Arc<MadHandler>>>,
    counts: Mutex<Counts>,
    /// Events that came since somebody began to serve them; 0 while nobody does.
    events: AtomicU32,
}

/// What is counted beside the queue itself; it outlives the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Datagrams that were no MAD.
    malformed: u64,
    /// MADs of a class that nobody handles.
    unclaimed: u64,
    /// What queues counted that are gone.
    past: PudaStats,
}

impl Ilq {
    /// What was counted, and where the buffers are.
    pub(super) fn stats(&self) -> PudaStats {
        let counts = *lock(&self.counts);
        let mut stats = counts.past;
        if let Some(running) = &*lock(&self.running) {
            stats.add(&PudaStats::of(&running.queue));
        }
        stats.rcvd_pkt_err += counts.malformed;
        stats.unclaimed += counts.unclaimed;
        stats
    }

    /// An address handle was made, or could not be.
    pub(crate) fn ah_made(&self, id: srdma_core::num::AhId, done: bool) {
        if let Some(running) = lock(&self.running).as_mut() {
            running.handles.made(id, done);
            running.pump();
        }
    }

    /// The queue may send again.
    pub(crate) fn revived(&self) {
        if let Some(running) = lock(&self.running).as_mut() {
            running.queue.revived();
            running.pump();
        }
    }

    /// A completion event: everything that is there. Gives what handlers have to see, and what the
    /// control queue has to do.
    fn take(&self, addrs: &[IpAddr]) -> (Vec<Mad>, Option<Later>) {
        let mut mads = Vec::new();
        let mut malformed = 0;
        let mut running = lock(&self.running);
        let Some(running) = running.as_mut() else {
            return (mads, None);
        };
        // rule: puda-11
        running.drain(addrs, &mut mads, &mut malformed);
        running.queue.arm();
        running.drain(addrs, &mut mads, &mut malformed);
        running.queue.replenish();
        running.pump();
        lock(&self.counts).malformed += malformed;
        (mads, running.revival.take())
    }
}

impl Running {
    fn drain(&mut self, addrs: &[IpAddr], mads: &mut Vec<Mad>, malformed: &mut u64) {
        while let Some(done) = self.queue.next() {
            match done {
                Done::Received(buf, cqe) => {
                    match self.mad(&buf, cqe.len, addrs) {
                        Some(mad) => mads.push(mad),
                        None => *malformed += 1,
                    }
                    self.queue.pool.put(buf);
                }
                Done::Sent(ah) => self.handles.done(ah),
                Done::SendsLost(handles) => {
                    for ah in handles {
                        self.handles.done(ah);
                    }
                    self.revival = Some(Later::Revive(self.queue.revival()));
                }
                Done::Failed => {}
            }
        }
    }

    fn mad(&self, buf: &Buf, len: u32, addrs: &[IpAddr]) -> Option<Mad> {
        let len = (len.min(BUFFER) as usize).checked_sub(AREA)?;
        let mut area = [0; AREA];
        let mut bytes = [0; BUFFER as usize - AREA];
        let bytes = bytes.get_mut(..len)?;
        self.queue.pool.read(buf, 0, &mut area);
        self.queue.pool.read(buf, AREA, bytes);
        let packet = Packet::parse(bytes).ok()?;
        let target = sent_to(&area)?;
        let index = addrs.iter().position(|addr| *addr == target)?;
        Some(Mad {
            bytes: packet.payload().try_into().ok()?,
            source: packet.deth()?.source,
            path: Path::reply_to(&area, u8::try_from(index).ok()?)?,
        })
    }

    fn pump(&mut self) {
        let handles = &self.handles;
        for ah in self.queue.pump(|ah| handles.readiness(ah)) {
            self.handles.done(ah);
        }
    }

    fn send(&mut self, ids: &IdPool, av: &AddressVector, dest: Qpn, mad: &[u8; MAD_BYTES]) -> Sent {
        if self.queue.outgoing() >= SENDS as usize {
            self.queue.pool.alloc_fail += 1;
            return Sent {
                later: Vec::new(),
                went: false,
            };
        }
        let (ah, later) = self.handles.find(ids, av);
        let Some(ah) = ah else {
            return Sent { later, went: false };
        };
        let Some(buf) = self.queue.pool.take() else {
            self.handles.done(ah);
            return Sent { later, went: false };
        };
        let bth = Bth::new(Opcode::UD_SEND_ONLY, dest, self.psn).to_bytes();
        let deth = Deth {
            qkey: GSI_QKEY,
            source: Qpn::GSI,
        };
        let bytes = [&bth[..], &deth.to_bytes(), mad].concat();
        self.psn = self.psn.add(1);
        self.queue.pool.write(&buf, &bytes);
        self.queue.send(Outgoing {
            buf: Some(buf),
            at: 0,
            len: 20 + 256,
            ah,
            dest: Qpn::default(),
            qkey: Qkey(0),
            l4_len: 5,
        });
        self.pump();
        Sent { later, went: true }
    }
}

/// Whose turn it is to serve events; over when this is dropped, also by a handler that panics.
struct Turn<'a>(&'a AtomicU32);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// What became of a send, and what the control queue has to do for it.
struct Sent {
    later: Vec<Later>,
    went: bool,
}

/// The address that a datagram was sent to, by the area in front of it.
fn sent_to(area: &[u8; AREA]) -> Option<IpAddr> {
    let [first, ..] = *area;
    if first >> 4 == 6 {
        return Some(IpAddr::from(*area.last_chunk::<16>()?));
    }
    Some(IpAddr::from(*area.last_chunk::<4>()?))
}

impl Driver {
    /// The local queue has completions. One thread at a time serves them; events that come
    /// meanwhile, also from within a handler, are its matter.
    // rule: puda-11
    pub(super) fn on_ilq(self: &Arc<Self>) {
        let ilq = &self.puda.ilq;
        if ilq.events.fetch_add(1, Ordering::SeqCst) != 0 {
            return;
        }
        let turn = Turn(&ilq.events);
        loop {
            let seen = ilq.events.load(Ordering::SeqCst);
            self.serve_mads();
            if ilq.events.fetch_sub(seen, Ordering::SeqCst) == seen {
                core::mem::forget(turn);
                return;
            }
        }
    }

    fn serve_mads(self: &Arc<Self>) {
        let ilq = &self.puda.ilq;
        let (mads, later) = ilq.take(&self.addrs);
        if let Some(later) = later {
            self.exec_later(later);
        }
        let sender = MadSender::new(self);
        for mad in &mads {
            // rule: puda-7
            let handler = lock(&ilq.handlers).get(&mad.class()).map(Arc::clone);
            match handler {
                Some(handler) => handler(mad, &sender),
                None => lock(&ilq.counts).unclaimed += 1,
            }
        }
    }

    /// Sends a MAD from queue pair 1. Also for event handlers: nothing is waited for.
    pub(crate) fn send_mad(
        &self,
        av: &AddressVector,
        dest: Qpn,
        mad: &[u8; MAD_BYTES],
    ) -> Result<(), Reason> {
        let sent = match lock(&self.puda.ilq.running).as_mut() {
            Some(running) => running.send(&self.ids.ah, av, dest, mad),
            None => return Err(Reason::Busy),
        };
        for later in sent.later {
            self.exec_later(later);
        }
        // Whoever runs the device sees the doorbell, at the latest in this pass.
        self.engine.drive_posted();
        if sent.went {
            Ok(())
        } else {
            Err(Reason::Exhausted)
        }
    }

    /// Enters a handler; the first makes the queue.
    pub(crate) fn handle_mads(&self, class: u8, handler: Arc<MadHandler>) -> Result<(), Reason> {
        let ilq = &self.puda.ilq;
        let mut life = lock(&ilq.life);
        {
            let mut handlers = lock(&ilq.handlers);
            if handlers.contains_key(&class) {
                return Err(Reason::Busy);
            }
            handlers.insert(class, handler);
        }
        life.classes += 1;
        let adjusted = self.adjust_ilq(&life);
        if adjusted.is_err() {
            life.classes -= 1;
            lock(&ilq.handlers).remove(&class);
        }
        adjusted
    }

    /// Takes a handler out; the last takes the queue along.
    pub(crate) fn unhandle_mads(&self, class: u8) {
        let mut life = lock(&self.puda.ilq.life);
        if lock(&self.puda.ilq.handlers).remove(&class).is_some() {
            life.classes -= 1;
            // Taking a queue back does not fail.
            let _ = self.adjust_ilq(&life);
        }
    }

    /// A program makes queue pair 1: the local queue steps aside.
    // rule: puda-8
    pub(crate) fn program_takes_gsi(&self) {
        let mut life = lock(&self.puda.ilq.life);
        life.programs += 1;
        let _ = self.adjust_ilq(&life);
    }

    /// It is gone again, or was not made.
    pub(crate) fn program_leaves_gsi(&self) {
        let mut life = lock(&self.puda.ilq.life);
        life.programs -= 1;
        // Without it there are no MADs, which their senders must survive anyway.
        let _ = self.adjust_ilq(&life);
    }

    /// Makes the queue, or takes it back, as `life` wants it.
    fn adjust_ilq(&self, life: &Life) -> Result<(), Reason> {
        let ilq = &self.puda.ilq;
        let wanted = life.classes > 0 && life.programs == 0;
        let exists = lock(&ilq.running).is_some();
        if wanted && !exists {
            let queue = Queue::create(self, SHAPE)?;
            *lock(&ilq.running) = Some(Running {
                queue,
                handles: Handles::default(),
                psn: Psn::new(random()),
                revival: None,
            });
            let moderation = Moderation {
                count: 0,
                period_ns: EVENT_GAP_NS,
            };
            self.engine
                .with(|hca| hca.moderate_cq(PudaKind::Ilq.cq(), moderation));
        }
        // Event handlers take that lock, and commands let them run.
        let unwanted = if wanted {
            None
        } else {
            lock(&ilq.running).take()
        };
        if let Some(running) = unwanted {
            let mut stats = PudaStats::of(&running.queue);
            stats.forget_buffers();
            lock(&ilq.counts).past.add(&stats);
            let ids = running.handles.ids();
            running.queue.destroy(self);
            for id in ids {
                self.exec_later(Later::DestroyAh(id));
            }
        }
        Ok(())
    }
}
