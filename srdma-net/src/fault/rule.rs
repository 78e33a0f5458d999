//! Rules: what happens, and to which packets.
//!
//! A rule looks at every packet of its direction. Those that its match names are counted; of the
//! counted ones it takes the n-th, every n-th, or each by chance, and no more than `times` of them.

use core::ops::RangeInclusive;
use core::time::Duration;
use srdma_core::hca::Injection;
use srdma_core::hw::AeCode;
use srdma_core::num::Qpn;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_enums, reason = "there are no more directions")]
pub enum Direction {
    /// From the network to the device.
    #[default]
    In,
    /// From the device to the network.
    Out,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultAction {
    /// The packet disappears.
    Drop,
    /// It comes twice.
    Duplicate,
    /// It is held back by up to `ns`, by chance, so that later ones pass it.
    Reorder {
        /// At most.
        ns: u64,
    },
    /// It is held back by `ns`.
    Delay {
        /// Exactly.
        ns: u64,
    },
    /// One to three of its bits flip.
    Corrupt,
    /// Something happens to the device, just before it sees the packet.
    Device(DeviceFault),
}

/// A mishap of the device. Where it is about a queue pair, that is the one the packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The next message that needs a receive finds none.
    NotReady,
    /// The completion queue of its receives overruns.
    CqOverflow,
    /// An asynchronous event; errors end the queue pair.
    Async(AeCode),
    /// The device fails.
    Fatal,
    /// The port is down for a while: nothing comes in, and what leaves is lost.
    PortDown(Duration),
    /// The device does not look at the network for a while.
    Stall(Duration),
}

impl DeviceFault {
    /// What is brought about in the device for a packet to `qpn`; `None` if it is not there that it
    /// happens.
    #[must_use]
    pub const fn injection(self, qpn: Qpn) -> Option<Injection> {
        match self {
            Self::NotReady => Some(Injection::NotReady(qpn)),
            Self::CqOverflow => Some(Injection::RecvCqOverflow(qpn)),
            Self::Async(code) => Some(Injection::Async { qpn, code }),
            Self::Fatal => Some(Injection::DeviceFatal),
            Self::PortDown(_) | Self::Stall(_) => None,
        }
    }
}

/// Which packets a rule is about; what is not said fits all.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Match {
    /// Names of opcodes, as `RC_SEND_ONLY`; `*` stands for any letters.
    pub opcode: Option<String>,
    /// The queue pair that the packet is for.
    pub qp: Option<Qpn>,
    /// Sequence numbers.
    pub psn: Option<RangeInclusive<u32>>,
    /// Of those, the n-th only, from 1.
    pub nth: Option<u64>,
    /// Of those, every n-th.
    pub every: Option<u64>,
    /// Of those, each with this probability.
    pub chance: Option<f64>,
    /// Not more often than this.
    pub times: Option<u64>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FaultRule {
    /// Which way.
    pub direction: Direction,
    /// What happens.
    pub action: FaultAction,
    /// To which packets.
    pub to: Match,
}

impl FaultRule {
    /// It happens to everything that comes in.
    #[must_use]
    pub fn new(action: FaultAction) -> Self {
        let (direction, to) = (Direction::In, Match::default());
        Self {
            direction,
            action,
            to,
        }
    }

    /// It happens to what leaves.
    #[must_use]
    pub const fn outgoing(mut self) -> Self {
        self.direction = Direction::Out;
        self
    }

    /// By chance.
    #[must_use]
    pub const fn chance(mut self, odds: f64) -> Self {
        self.to.chance = Some(odds);
        self
    }

    /// To the n-th, from 1.
    #[must_use]
    pub const fn nth(mut self, n: u64) -> Self {
        self.to.nth = Some(n);
        self
    }

    /// To packets of these opcodes.
    #[must_use]
    pub fn opcode(mut self, pattern: &str) -> Self {
        self.to.opcode = Some(pattern.to_owned());
        self
    }

    /// To packets for this queue pair.
    #[must_use]
    pub const fn qp(mut self, qpn: Qpn) -> Self {
        self.to.qp = Some(qpn);
        self
    }

    /// To packets with these sequence numbers.
    #[must_use]
    pub const fn psn(mut self, psns: RangeInclusive<u32>) -> Self {
        self.to.psn = Some(psns);
        self
    }

    /// At most so often.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.to.times = Some(times);
        self
    }
}
