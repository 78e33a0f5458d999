//! Settings of a device, fixed when it is made.

use crate::hw::Dialect;
use crate::limits;
use crate::obj::arm::ArmModel;
use crate::obj::port::{LinkState, Mtu, Port};
use crate::puda::IeqMode;
use std::net::IpAddr;

/// One local address of the port, with the UDP source port that its packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddr {
    /// The address; its GID is the address itself, IPv4 mapped into IPv6.
    pub ip: IpAddr,
    /// Source port of everything sent from it (0xC000..=0xFFFF).       [RoCEv2 1.1]
    pub source_port: u16,
}

/// Settings of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HcaConfig {
    /// Local addresses, in GID table order.
    pub addrs: Vec<LocalAddr>,
    /// Largest path MTU of the port, payload bytes: a power of two, 256..=4096.
    pub max_mtu: u16,
    /// State of the link at the start.
    pub link: LinkState,
    /// Node GUID.
    pub guid: u64,
    /// MSI-X vectors: one for the AEQ, the others for CEQs.
    pub vectors: u16,
    /// Bytes of a peer's socket memory that our packets may hold.
    pub peer_budget: u32,
    /// Bytes of our own socket memory that READ responses may hold.
    pub read_budget: u32,
    /// Receive buffer of our own sockets, as peers are told; 0 if not known.
    pub rx_buffer: u32,
    /// Peers of our own kind are treated as any other: nothing is on the wire but what the
    /// specification has.
    pub plain_wire: bool,
    /// What arming does about completions that are already there.
    pub arm_model: ArmModel,
    /// Whose words completions and events are in.
    pub dialect: Dialect,
    /// Addresses of this machine are shared by several processes, each on a UDP port of its own:
    /// whoever drives the device answers lookups.
    pub shared: bool,
    /// What becomes of packets that arrive out of order.
    pub ieq: IeqMode,
    /// Longest wait for a packet that may only be late before the peer is told that it is missing,
    /// in nanoseconds; 0 to tell at once.
    pub ieq_gap_ns: u64,
    /// Consecutive packets with a wrong ICRC that end the reliable queue pair they seem to be for;
    /// 0 for never. Whoever can damage packets on the way can end connections with it. [E810 8.6.3]
    pub icrc_limit: u32,
}

impl Default for HcaConfig {
    fn default() -> Self {
        Self {
            addrs: Vec::new(),
            max_mtu: 4096,
            link: LinkState::Active,
            guid: 0,
            vectors: 5,
            peer_budget: limits::DEFAULT_RMEM,
            read_budget: limits::DEFAULT_RMEM,
            rx_buffer: 0,
            plain_wire: false,
            arm_model: ArmModel::Strict,
            dialect: Dialect::E810,
            shared: false,
            ieq: IeqMode::default(),
            ieq_gap_ns: 200_000,
            icrc_limit: 0,
        }
    }
}

impl HcaConfig {
    /// The port that these settings describe. Addresses beyond the table's size are left out.
    pub(crate) fn port(&self) -> Port {
        let mtu = Mtu::at_most(usize::from(self.max_mtu)).unwrap_or(Mtu::B256);
        let mut port = Port::new(mtu);
        for addr in &self.addrs {
            let _ = port.gids.add(addr.ip, addr.source_port);
        }
        port.set_link(self.link);
        port
    }
}
