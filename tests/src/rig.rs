//! One device and a scripted peer: the script says every packet that the device hears.
//!
//! ```text
//! let mut rig = Rig::rc();
//! let answer = rig.hear(send_only(0x200, b"hello").ack());
//! assert_eq!(answers(&answer), [(0x11, 0x200, 0x1f)]);
//! ```

#![allow(
    clippy::missing_panics_doc,
    clippy::needless_pass_by_value,
    reason = "a harness fails loudly, and scripts give packets away"
)]

use crate::node::{Mem, Node, QpSpec, Wc};
use crate::wire_dsl::{Frame, Heard};
use srdma_core::hca::Acks;
use srdma_core::hw::{AeCode, HwQpType};
use srdma_core::num::Qpn;
use srdma_core::qp::attr::QpState;
use std::net::SocketAddr;

/// PSN of the first request that a rig's queue pair sends.
pub const SQ_PSN: u32 = 0x100;
/// PSN of the first request that it expects.
pub const RQ_PSN: u32 = 0x200;

/// A device with one queue pair, and the peer that the script plays.
#[derive(Debug)]
pub struct Rig {
    /// The device.
    pub node: Node,
    /// Its queue pair.
    pub qp: Qpn,
    /// 64 KiB with every right.
    pub mem: Mem,
    /// Where the peer's packets come from.
    pub peer: SocketAddr,
}

impl Rig {
    /// A reliable connection with the defaults of [`QpSpec`].
    #[must_use]
    pub fn rc() -> Self {
        Self::with(&QpSpec::default())
    }

    /// An unreliable connection.
    #[must_use]
    pub fn uc() -> Self {
        Self::with(&QpSpec {
            kind: HwQpType::UC,
            ..QpSpec::default()
        })
    }

    /// A datagram queue pair.
    #[must_use]
    pub fn ud() -> Self {
        Self::with(&QpSpec {
            kind: HwQpType::UD,
            ..QpSpec::default()
        })
    }

    /// A queue pair of this kind, in RTS.
    #[must_use]
    pub fn with(spec: &QpSpec) -> Self {
        Self::on(Node::new("10.0.0.1"), spec)
    }

    /// A queue pair of this kind on a device that is there.
    #[must_use]
    pub fn on(mut node: Node, spec: &QpSpec) -> Self {
        let mem = node.mem(64 * 1024);
        let qp = node.connected(spec);
        let peer = SocketAddr::new(spec.peer, 0xc123);
        Self {
            node,
            qp,
            mem,
            peer,
        }
    }

    /// Goes on with another queue pair with the defaults, on the same device and memory.
    pub fn renew(&mut self) {
        self.qp = self.node.connected(&QpSpec::default());
    }

    /// The peer sends a packet; nothing is sent back yet.
    pub fn tell(&mut self, frame: Frame) {
        self.node.inject(self.peer, self.qp, &frame);
    }

    /// The peer sends a packet; what the device sends then.
    pub fn hear(&mut self, frame: Frame) -> Vec<Heard> {
        self.tell(frame);
        self.node.transmit()
    }

    /// Whatever the device has to send.
    pub fn transmit(&mut self) -> Vec<Heard> {
        self.node.transmit()
    }

    /// One batch, of which `runs` runs leave.
    pub fn transmit_some(&mut self, runs: usize) -> Vec<Heard> {
        self.node
            .transmit_some(runs, Acks::Send)
            .unwrap_or_default()
    }

    /// Posts a receive into bytes `offset..offset + len` of the memory.
    pub fn recv(&mut self, offset: u64, len: u32) {
        let sge = self.mem.sge(offset, len);
        self.node.recv(self.qp, &[sge]);
    }

    /// Posts a signaled SEND of bytes of the memory.
    pub fn send(&mut self, offset: u64, len: u32) -> u32 {
        let sge = self.mem.sge(offset, len);
        self.node.send(self.qp, &[sge])
    }

    /// Completions.
    pub fn poll(&mut self) -> Vec<Wc> {
        self.node.poll()
    }

    /// Request number and status of each completion.
    pub fn done(&mut self) -> Vec<Done> {
        brief_wcs(&self.poll())
    }

    /// Codes of the asynchronous events.
    pub fn aes(&mut self) -> Vec<AeCode> {
        self.node.aes().iter().map(|event| event.code).collect()
    }

    /// The state of the queue pair.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.node.state(self.qp)
    }

    /// A named counter of the device.
    #[must_use]
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.node.hca.counters();
        let found = counters.iter().find(|(known, _)| *known == name);
        found.map_or_else(|| unknown(name), |(_, value)| value)
    }
}

#[track_caller]
#[allow(clippy::panic, reason = "a harness fails loudly")]
fn unknown(name: &str) -> u64 {
    panic!("no counter is called {name}")
}

/// A completion in short: queue, request number, flush code (none for success).
pub type Done = (char, u64, Option<u16>);

/// Completions in short.
#[must_use]
pub fn brief_wcs(wcs: &[Wc]) -> Vec<Done> {
    wcs.iter()
        .map(|wc| {
            let queue = if wc.sq { 's' } else { 'r' };
            (queue, wc.wr_id, wc.status.map(|code| code.0))
        })
        .collect()
}
