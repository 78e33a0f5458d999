//! Two devices whose programs are the oracle: what it posts arrives, and it hears of it.
//!
//! ```text
//! memory of each side    [ source ][ target of WRITEs ][ receives ][ read by the peer ]
//!                        each area in slots of three pages
//! ```
//!
//! Slots are taken in turn, and there are more of them than requests under way.

use crate::node::{Node, join};
use crate::rig::{WIDE, rng};
use fastrand::Rng;
use srdma_core::hw::cqp::{AllocStag, CqpCmd, StagKind};
use srdma_core::hw::wqe::{ReadWr, RemoteAddr, SendWr, WrFlags, WriteWr};
use srdma_core::mem::{Access, Bind, Sge};
use srdma_core::num::Rkey;
use srdma_oracle::wr::{Payload, Work, Wr};
use srdma_oracle::{Caps, Polled, Refused, Status};
use std::collections::VecDeque;

const PAGE: usize = 4096;
const SLOT: usize = 3 * PAGE;
const SLOTS: usize = 48;
const AREA: usize = SLOT * SLOTS;
const SOURCE: usize = 0;
const TARGET: usize = AREA;
const RECEIVE: usize = 2 * AREA;
const READ: usize = 3 * AREA;
const UNDER_WAY: usize = 40;
const CQ_SIZE: u32 = 128;

/// What a request is checked by once it is done: these bytes stand there, at the peer or here.
#[derive(Debug)]
struct Pending {
    wr: Wr,
    at_peer: bool,
    at: usize,
    bytes: Vec<u8>,
}

/// What a receive of the peer will report.
#[derive(Debug)]
struct Message {
    len: usize,
    /// Of a SEND.
    bytes: Option<Vec<u8>>,
    imm: Option<u32>,
    solicited: bool,
}

struct Side {
    node: Node,
    sent: u64,
    /// Posted and not completed, in order.
    pending: VecDeque<Pending>,
    /// Slots of posted receives, in order.
    receives: VecDeque<u64>,
    received: u64,
    /// What the peer has sent and this side has not got.
    coming: VecDeque<Message>,
    wraps: [u32; 3],
    armed: Option<bool>,
    events: u64,
}

fn slot(area: usize, number: u64) -> usize {
    area + SLOT * (usize::try_from(number).unwrap() % SLOTS)
}

impl Side {
    fn new(number: u8, rng: &mut Rng, wide: bool) -> Self {
        let caps = Caps {
            send_sges: 3,
            recv_sges: 3,
            ..WIDE
        };
        let node = Node::new(number, 4 * AREA, (CQ_SIZE, wide), caps);
        let mut bytes = vec![0; AREA];
        rng.fill(&mut bytes);
        node.write(READ, &bytes);
        Self {
            node,
            sent: 0,
            pending: VecDeque::new(),
            receives: VecDeque::new(),
            received: 0,
            coming: VecDeque::new(),
            wraps: [0; 3],
            armed: None,
            events: 0,
        }
    }

    /// Random bytes in the source slot, in up to three pages, and the fragments that name them.
    fn scatter(&self, rng: &mut Rng, area: usize, fill: bool) -> (Vec<Sge>, Vec<u8>) {
        let (mut sges, mut all) = (Vec::new(), Vec::new());
        for page in 0..rng.usize(1..=3) {
            let most = if rng.bool() { PAGE } else { 64 };
            let (at, len) = (slot(area, self.sent) + page * PAGE, rng.usize(1..=most));
            let mut bytes = vec![0; len];
            if fill {
                rng.fill(&mut bytes);
                self.node.write(at, &bytes);
            }
            sges.push(self.node.sge(at, len));
            all.extend(bytes);
        }
        (sges, all)
    }

    fn payload(&self, rng: &mut Rng) -> (Payload, Vec<u8>) {
        if rng.bool() {
            let mut bytes = vec![0; rng.usize(0..=101)];
            rng.fill(&mut bytes);
            return (Payload::Inline(bytes.clone()), bytes);
        }
        if rng.u8(..16) == 0 {
            return (Payload::Sges(Vec::new()), Vec::new());
        }
        let (sges, bytes) = self.scatter(rng, SOURCE, true);
        (Payload::Sges(sges), bytes)
    }

    /// A request, how it is checked here, and what it makes the peer report.
    fn make(&self, rng: &mut Rng, peer: &Self) -> (Work, Pending, Option<Message>) {
        let flags = WrFlags::default();
        let pending = |at_peer, at, bytes| Pending {
            wr: nop(0),
            at_peer,
            at,
            bytes,
        };
        let imm = rng.bool().then(|| rng.u32(..));
        let solicited = rng.bool();
        let target = slot(TARGET, self.sent);
        let remote = |at: usize| RemoteAddr {
            addr: peer.node.mem.addr() + at as u64,
            rkey: peer.node.rkey(),
        };
        match rng.u8(..8) {
            0..3 => {
                let (payload, bytes) = self.payload(rng);
                let send = SendWr {
                    flags,
                    solicited,
                    imm,
                    ..SendWr::default()
                };
                let message = Message {
                    len: bytes.len(),
                    bytes: Some(bytes),
                    imm,
                    solicited,
                };
                (
                    Work::Send(send, payload),
                    pending(true, 0, Vec::new()),
                    Some(message),
                )
            }
            3..6 => {
                let (payload, bytes) = self.payload(rng);
                let write = WriteWr {
                    flags,
                    solicited,
                    imm,
                    remote: remote(target),
                };
                let message = imm.map(|_| Message {
                    len: bytes.len(),
                    bytes: None,
                    imm,
                    solicited,
                });
                (
                    Work::Write(write, payload),
                    pending(true, target, bytes),
                    message,
                )
            }
            6 => {
                let (sges, zeros) = self.scatter(rng, SOURCE, false);
                let at = READ + rng.usize(..AREA - zeros.len());
                let read = ReadWr {
                    flags,
                    remote: remote(at),
                    local_inv: false,
                };
                let bytes = peer.node.read(at, zeros.len());
                (Work::Read(read, sges), pending(false, 0, bytes), None)
            }
            _ => (Work::Nop, pending(true, 0, Vec::new()), None),
        }
    }

    fn post(&mut self, rng: &mut Rng, peer: &mut Self) {
        if self.pending.len() >= UNDER_WAY {
            return;
        }
        let (work, mut pending, message) = self.make(rng, peer);
        let flags = WrFlags {
            signaled: rng.u8(..3) > 0 || self.pending.len() + 1 == UNDER_WAY,
            read_fence: rng.u8(..8) == 0 && work != Work::Nop,
            local_fence: false,
        };
        pending.wr = Wr {
            id: self.sent,
            flags,
            work,
        };
        let head = self.node.qp.sq_head();
        self.node.qp.post(&pending.wr, true).unwrap();
        self.wraps[0] += u32::from(self.node.qp.sq_head() < head);
        self.sent += 1;
        self.pending.push_back(pending);
        peer.coming.extend(message);
    }

    /// Receives of three pages, the last page first.
    fn post_receives(&mut self, rng: &mut Rng) {
        for _ in 0..rng.u8(..16) {
            let at = slot(RECEIVE, self.received);
            let pages = [2, 1, 0].map(|page| self.node.sge(at + page * PAGE, PAGE));
            match self.node.qp.recv(self.received, &pages) {
                Ok(()) => self.receives.push_back(self.received),
                Err(fault) => return assert_eq!(fault, Refused::FULL),
            }
            self.received += 1;
            self.wraps[1] += u32::from(self.node.qp.rq_head() == 0);
        }
    }

    /// Everything up to the request that completed is done.
    fn on_send(&mut self, polled: &Polled, peer: &Self) {
        loop {
            let done = self.pending.pop_front().expect("something was under way");
            self.check(&done, peer);
            if done.wr.id == polled.wr_id {
                assert!(done.wr.flags.signaled);
                assert_eq!((polled.op, polled.bytes), (done.wr.op().0, done.wr.bytes()));
                return;
            }
            assert!(!done.wr.flags.signaled, "{done:?} was left out");
        }
    }

    fn check(&self, done: &Pending, peer: &Self) {
        if let Work::Read(_, sges) = &done.wr.work {
            let part = |sge: &Sge| {
                let at = usize::try_from(sge.addr - self.node.mem.addr()).unwrap();
                self.node.read(at, sge.len as usize)
            };
            let got: Vec<u8> = sges.iter().flat_map(part).collect();
            assert!(got == done.bytes, "READ {} brought other bytes", done.wr.id);
        } else if done.at_peer {
            let got = peer.node.read(done.at, done.bytes.len());
            assert!(got == done.bytes, "WRITE {} is not there", done.wr.id);
        }
    }

    fn on_receive(&mut self, polled: &Polled) {
        let number = self.receives.pop_front().expect("a receive was posted");
        let message = self.coming.pop_front().expect("a message was sent");
        assert_eq!(polled.wr_id, number);
        assert_eq!(
            (polled.imm, polled.solicited),
            (message.imm, message.solicited)
        );
        let op = 0x3e + u8::from(message.imm.is_some());
        assert_eq!((polled.op, polled.inv_stag), (op, None));
        assert_eq!(polled.bytes as usize, message.len);
        if let Some(bytes) = message.bytes {
            let at = slot(RECEIVE, number);
            let pages = [2, 1, 0].map(|page| self.node.read(at + page * PAGE, PAGE));
            assert!(
                pages.concat()[..bytes.len()] == bytes,
                "receive {number} has other bytes"
            );
        }
    }

    /// Polls until empty, and holds the events against what was polled.
    fn poll(&mut self, rng: &mut Rng, peer: &Self) {
        let (mut any, mut special) = (false, false);
        loop {
            let head = self.node.cq.head();
            let polled = match self.node.cq.poll() {
                Ok(polled) => polled,
                Err(fault) => break assert_eq!(fault, Refused::EMPTY),
            };
            self.wraps[2] += u32::from(self.node.cq.head() < head);
            assert_eq!(polled.status, Status::Success, "{polled:?}");
            assert_eq!(polled.qpn, self.node.qp.qpn());
            (any, special) = (true, special || polled.solicited);
            if polled.sq {
                self.on_send(&polled, peer);
            } else {
                self.on_receive(&polled);
            }
        }
        let fires = self
            .armed
            .is_some_and(|solicited| if solicited { special } else { any });
        if fires {
            self.armed = None;
            self.events += 1;
            self.node.acknowledge();
        }
        assert_eq!(
            self.node.hca.counters().ceqes,
            self.events,
            "one event for each arm"
        );
        if self.armed.is_none() && rng.bool() {
            let solicited = rng.bool();
            self.node.cq.arm(solicited);
            self.node.doorbells();
            self.armed = Some(solicited);
        }
    }
}

const fn nop(id: u64) -> Wr {
    Wr {
        id,
        flags: WrFlags::SIGNALED,
        work: Work::Nop,
    }
}

fn connected(rng: &mut Rng, wide: bool) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(1, rng, wide), Side::new(2, rng, wide));
    a.node.connect(&b.node);
    b.node.connect(&a.node);
    (a, b)
}

fn turn(a: &mut Side, b: &mut Side, rng: &mut Rng) {
    join(&mut a.node, &mut b.node);
    a.poll(rng, b);
    b.poll(rng, a);
}

#[test]
fn two_devices_serve_programs_of_the_oracle() {
    // proves: e810-8
    // proves: e810-31
    for seed in 700..708 {
        let mut rng = rng("end to end", seed);
        let (mut a, mut b) = connected(&mut rng, seed % 2 == 1);
        let wrapped = |side: &Side| side.wraps.iter().all(|wraps| *wraps >= 12);
        while !wrapped(&a) || !wrapped(&b) {
            for _ in 0..rng.u8(1..20) {
                a.post(&mut rng, &mut b);
                b.post(&mut rng, &mut a);
            }
            a.post_receives(&mut rng);
            b.post_receives(&mut rng);
            turn(&mut a, &mut b, &mut rng);
        }
        for side in [&mut a, &mut b] {
            let wr = nop(side.sent);
            side.node.qp.post(&wr, true).unwrap();
            side.pending.push_back(Pending {
                wr,
                at_peer: true,
                at: 0,
                bytes: Vec::new(),
            });
        }
        while !(a.pending.is_empty() && b.pending.is_empty()) {
            a.post_receives(&mut rng);
            b.post_receives(&mut rng);
            turn(&mut a, &mut b, &mut rng);
        }
        assert!(a.coming.is_empty() && b.coming.is_empty());
        for side in [&a, &b] {
            let (sq, rq, cq) = (side.wraps[0], side.wraps[1], side.wraps[2]);
            let (sent, received, events) = (side.sent, side.received, side.events);
            println!("{sent} requests, {received} receives, {events} events");
            println!("wraps: SQ {sq}, RQ {rq}, CQ {cq}");
        }
        flush(&mut a, &mut b);
    }
}

/// What is left in the queues of a failed queue pair completes in order, as flushed.
fn flush(a: &mut Side, b: &mut Side) {
    while a.node.qp.recv(a.received, &[]).is_ok() {
        a.receives.push_back(a.received);
        a.received += 1;
    }
    a.node.fail();
    let first = a.sent + 1;
    for id in first..first + 9 {
        let work = Work::Send(SendWr::default(), Payload::Inline(vec![1; 50]));
        let flags = WrFlags::default();
        a.node.qp.post(&Wr { id, flags, work }, true).unwrap();
    }
    join(&mut a.node, &mut b.node);
    let mut sends = first..first + 9;
    while let Ok(polled) = a.node.cq.poll() {
        assert_eq!(polled.status, Status::Flushed);
        let wanted = if polled.sq {
            sends.next()
        } else {
            a.receives.pop_front()
        };
        assert_eq!(Some(polled.wr_id), wanted);
    }
    assert!(sends.next().is_none() && a.receives.is_empty());
}

/// A window is opened by the oracle's BIND, used by the peer, and closed by its SEND with
/// invalidate or by the oracle's own LOCAL_INV, in turn.
#[test]
fn windows_open_and_close_by_the_oracles_hand() {
    let mut rng = rng("end to end, windows", 710);
    let (mut a, mut b) = connected(&mut rng, false);
    let index = 0x77 << 8;
    a.node.command(&CqpCmd::AllocStag(AllocStag {
        stag: index,
        pd: Node::pd(),
        kind: StagKind::Mw2,
    }));
    for round in 0..200u64 {
        let window = index | u32::try_from(round).unwrap();
        let at = slot(TARGET, round);
        let bind = Bind {
            window,
            parent: a.node.stag,
            va: a.node.mem.addr() + at as u64,
            len: PAGE as u64,
            access: Access::REMOTE_WRITE,
            zero_based: false,
            type1: false,
        };
        one(&mut a, &mut b, round, Work::Bind(bind));
        let bytes = round.to_le_bytes().repeat(8);
        let write = WriteWr {
            remote: RemoteAddr {
                addr: bind.va + 64,
                rkey: Rkey(window),
            },
            ..WriteWr::default()
        };
        one(
            &mut b,
            &mut a,
            round,
            Work::Write(write, Payload::Inline(bytes.clone())),
        );
        assert_eq!(a.node.read(at + 64, 64), bytes);
        if round % 2 == 0 {
            one(&mut a, &mut b, round, Work::Invalidate(window));
            continue;
        }
        a.node.qp.recv(round, &[]).unwrap();
        let send = SendWr {
            inv: Some(Rkey(window)),
            solicited: true,
            ..SendWr::default()
        };
        one(
            &mut b,
            &mut a,
            round,
            Work::Send(send, Payload::Sges(Vec::new())),
        );
        let polled = a.node.cq.poll().unwrap();
        assert_eq!((polled.wr_id, polled.inv_stag), (round, Some(window)));
        assert!(!polled.sq && polled.solicited);
    }
}

/// One signaled request that completes well.
fn one(side: &mut Side, peer: &mut Side, id: u64, work: Work) {
    let flags = WrFlags::SIGNALED;
    let wr = Wr { id, flags, work };
    side.node.qp.post(&wr, true).unwrap();
    join(&mut side.node, &mut peer.node);
    let polled = side.node.cq.poll().unwrap();
    assert_eq!((polled.wr_id, polled.op), (id, wr.op().0));
    assert_eq!(polled.status, Status::Success, "{polled:?}");
}
