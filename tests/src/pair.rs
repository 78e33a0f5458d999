//! Two devices, joined by a link that a script can spoil, with a virtual clock.
//!
//! ```text
//! a ─► hook ─► latency ─► b        hook: (packet, direction, number) → Fate
//! a ◄─ latency ◄─ hook ◄─ b
//! ```
//!
//! `run` moves packets and steps the clock to whatever comes next until nothing is left to happen.
//! What this does not do: chance; a script that wants chance brings its seed.

#![allow(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a harness fails loudly"
)]

use crate::node::{Mem, Node, QpSpec};
use crate::wire_dsl::Heard;
use srdma_core::num::Qpn;
use srdma_core::time::Instant;
use srdma_net::wire_link::Datagram;
use std::collections::VecDeque;
use std::fmt;

/// Bytes of Ethernet, IP and UDP around a packet on a link.
const FRAMING: u64 = 66;

/// What becomes of a packet on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "scripts make them")]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Twice,
    /// It arrives so many nanoseconds later than it should.
    Late(u64),
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there are two")]
pub enum Way {
    /// From a to b.
    ToB,
    /// From b to a.
    ToA,
}

/// A script's say in what becomes of packets: the packet, its way, and its number on that way.
pub type Hook = Box<dyn FnMut(&Heard, Way, usize) -> Fate>;

/// Two devices and a link.
pub struct Pair {
    /// One device.
    pub a: Node,
    /// The other.
    pub b: Node,
    /// Its queue pair.
    pub qa: Qpn,
    /// The other's.
    pub qb: Qpn,
    /// 1 MiB of memory of a.
    pub ma: Mem,
    /// Of b.
    pub mb: Mem,
    /// Nanoseconds that the link takes.
    pub latency: u64,
    /// Picoseconds that each byte takes on the link, one packet after the other; 0 for none.
    pub byte_ps: u64,
    /// Packets sent so far, to b and to a.
    pub count: [usize; 2],
    /// When each way is free again.
    free: [Instant; 2],
    hook: Hook,
    wire: VecDeque<(Instant, Way, Datagram)>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("a", &self.a)
            .field("b", &self.b)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// Two connected queue pairs with the defaults of [`QpSpec`].
    #[must_use]
    pub fn new() -> Self {
        Self::with(&QpSpec::default())
    }

    /// Two connected queue pairs on devices that keep packets out of order.
    #[must_use]
    pub fn keeping(spec: &QpSpec) -> Self {
        Self::of(Node::keeping("10.0.0.1"), Node::keeping("10.0.0.2"), spec)
    }

    /// Two connected queue pairs of this kind; addresses, numbers and PSNs are filled in.
    #[must_use]
    pub fn with(spec: &QpSpec) -> Self {
        Self::of(Node::new("10.0.0.1"), Node::new("10.0.0.2"), spec)
    }

    /// Connects queue pairs of this kind on two devices.
    #[must_use]
    pub fn of(a: Node, b: Node, spec: &QpSpec) -> Self {
        Self::join(a, b, spec, spec)
    }

    /// Connects queue pairs on two devices that differ in kind; PSNs are those of the first.
    #[must_use]
    pub fn join(mut a: Node, mut b: Node, of_a: &QpSpec, of_b: &QpSpec) -> Self {
        let (ma, mb) = (a.mem(1 << 20), b.mem(1 << 20));
        let (qa, qb) = connect(&mut a, &mut b, of_a, of_b);
        Self {
            a,
            b,
            qa,
            qb,
            ma,
            mb,
            latency: 10_000,
            byte_ps: 0,
            count: [0; 2],
            free: [Instant(0); 2],
            hook: Box::new(|_, _, _| Fate::Deliver),
            wire: VecDeque::new(),
        }
    }

    /// One more connection of the two devices.
    pub fn more(&mut self, of_a: &QpSpec, of_b: &QpSpec) -> (Qpn, Qpn) {
        connect(&mut self.a, &mut self.b, of_a, of_b)
    }

    /// Gives the link another script.
    pub fn hook(&mut self, hook: impl FnMut(&Heard, Way, usize) -> Fate + 'static) {
        self.hook = Box::new(hook);
    }

    /// Loses exactly the `n`-th packet (from 0, counted from here on) on `way`.
    pub fn lose(&mut self, way: Way, n: usize) {
        let n = n + self.count[way as usize];
        self.hook(move |_, on, number| {
            if on == way && number == n {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
    }

    /// The present time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.a.now
    }

    /// Runs until nothing more will happen, at most 100 virtual seconds.
    pub fn run(&mut self) {
        self.run_for(100_000_000_000);
    }

    /// Runs for so many virtual nanoseconds, or until nothing more will happen.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now().after(ns);
        for _ in 0..10_000_000 {
            self.send();
            let next = self.next();
            let Some(at) = next.filter(|at| *at <= end) else {
                if next.is_some() {
                    self.set_time(end);
                }
                return;
            };
            self.set_time(at.max(self.now()));
            self.arrive();
        }
        assert_eq!(
            self.now(),
            end,
            "the devices never come to rest: {:?}",
            self.count
        );
    }

    /// Goes on to whatever comes next.
    pub fn step(&mut self) {
        self.send();
        if let Some(at) = self.next() {
            self.set_time(at.max(self.now()));
            self.arrive();
        }
    }

    /// When something comes next.
    fn next(&self) -> Option<Instant> {
        let arrivals = self.wire.front().map(|(at, ..)| *at);
        let timers = [&self.a, &self.b].map(|node| node.hca.poll_timeout());
        timers.into_iter().chain([arrivals]).flatten().min()
    }

    fn set_time(&mut self, now: Instant) {
        self.a.now = now;
        self.b.now = now;
    }

    fn send(&mut self) {
        for way in [Way::ToB, Way::ToA] {
            let node = match way {
                Way::ToB => &mut self.a,
                Way::ToA => &mut self.b,
            };
            let sent = node.transmit();
            node.interrupts();
            for heard in sent {
                let number = self.count[way as usize];
                self.count[way as usize] += 1;
                let datagram = heard.datagram.clone();
                let bytes = datagram.bytes.len() as u64 + FRAMING;
                let left = self.free[way as usize].max(self.a.now);
                let left = left.after(bytes * self.byte_ps / 1000);
                self.free[way as usize] = left;
                let at = left.after(self.latency);
                match (self.hook)(&heard, way, number) {
                    Fate::Deliver => self.launch(at, way, datagram),
                    Fate::Drop => {}
                    Fate::Twice => {
                        self.launch(at, way, datagram.clone());
                        self.launch(at, way, datagram);
                    }
                    Fate::Late(ns) => self.launch(at.after(ns), way, datagram),
                }
            }
        }
    }

    /// Puts a packet on the link, which stays in the order of arrivals.
    fn launch(&mut self, at: Instant, way: Way, datagram: Datagram) {
        let later = self.wire.iter().rev().take_while(|(on, ..)| *on > at);
        let place = self.wire.len() - later.count();
        self.wire.insert(place, (at, way, datagram));
    }

    /// Delivers what is due, and calls the devices whose time has come.
    fn arrive(&mut self) {
        let now = self.now();
        while let Some((_, way, datagram)) = self.wire.pop_front_if(|(at, ..)| *at <= now) {
            match way {
                Way::ToB => self.b.receive(&datagram),
                Way::ToA => self.a.receive(&datagram),
            }
        }
        for node in [&mut self.a, &mut self.b] {
            node.interrupts();
            if node.hca.poll_timeout().is_some_and(|at| at <= now) {
                node.hca.handle_timeout(now);
            }
        }
    }
}

fn connect(a: &mut Node, b: &mut Node, of_a: &QpSpec, of_b: &QpSpec) -> (Qpn, Qpn) {
    let (sq_psn, rq_psn) = (of_a.sq_psn, of_a.rq_psn);
    let qa = a.create(&QpSpec {
        peer: b.ip,
        ..of_a.clone()
    });
    let qb = b.create(&QpSpec {
        peer: a.ip,
        sq_psn: rq_psn,
        rq_psn: sq_psn,
        ..of_b.clone()
    });
    a.spec_mut(qa).peer_qpn = qb.value();
    b.spec_mut(qb).peer_qpn = qa.value();
    a.connect(qa);
    b.connect(qb);
    (qa, qb)
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}
