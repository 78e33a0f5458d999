//! Settings of an engine.

use crate::clock::Clock;
use crate::fault::FaultConfig;
use crate::wire_link::WireLink;
use srdma_core::hca::HcaConfig;
use std::net::IpAddr;
use std::sync::Arc;

/// What carries the packets.
#[derive(Debug)]
#[non_exhaustive]
pub enum Transport {
    /// UDP sockets of the kernel.
    Udp,
    /// A wire in memory, for simulated networks.
    Wire(Arc<WireLink>),
}

/// Settings of an engine.
#[derive(Debug)]
#[non_exhaustive]
pub struct EngineConfig {
    /// What traces and counters call the device; its addresses if empty.
    pub name: String,
    /// Local addresses, in GID table order.
    pub addrs: Vec<IpAddr>,
    /// Interfaces whose further addresses become the device's too.
    pub interfaces: Vec<String>,
    /// Segmentation offload on send, where the kernel has it.
    pub gso: bool,
    /// Merged buffers on receive, where the kernel has it.
    pub gro: bool,
    /// Receive buffer of the sockets in bytes of the kernel's accounting; `None` for as much as it
    /// allows.
    pub rcvbuf_cap: Option<u32>,
    /// To devices of this machine that want it too, packets go through shared memory.
    pub bridge: bool,
    /// Faults injected into what is received.
    pub fault: Option<FaultConfig>,
    /// What carries the packets.
    pub transport: Transport,
    /// Where time comes from.
    pub clock: Clock,
    /// The device. Its addresses and budgets are filled in here.
    pub hca: HcaConfig,
    /// Run a background thread. Without one, somebody has to drive.
    pub background: bool,
}

impl EngineConfig {
    /// The name, or the addresses.
    pub(crate) fn display_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let addrs: Vec<_> = self.addrs.iter().map(ToString::to_string).collect();
        if addrs.is_empty() {
            "wire".to_owned()
        } else {
            addrs.join("+")
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            addrs: Vec::new(),
            interfaces: Vec::new(),
            gso: true,
            gro: true,
            rcvbuf_cap: None,
            bridge: false,
            fault: None,
            transport: Transport::Udp,
            clock: Clock::system(),
            hca: HcaConfig::default(),
            background: true,
        }
    }
}
