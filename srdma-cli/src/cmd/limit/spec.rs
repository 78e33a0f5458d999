//! What the processes of `perf limit` tell each other.
//!
//! ```text
//! parent ── Spec ──► receiver ── Ready ──► parent ── Spec with Ready ──► sender ── Report ──► parent
//! ```

use crate::cmd::SocketArgs;
use crate::error::{CliError, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Full packets, segmented and merged, with CRC and placement.
    Bulk,
    /// Small packets, one a call.
    Single,
    /// Small packets, many a call.
    Many,
    /// Two pumps as `Bulk`, one in each direction, at the same time.
    Opposed,
    /// Ping-pong, spinning.
    Spin,
    /// Ping-pong, blocking.
    Block,
}

impl Kind {
    /// Every limit.
    pub(crate) const ALL: [Self; 6] = [
        Self::Bulk,
        Self::Opposed,
        Self::Single,
        Self::Many,
        Self::Spin,
        Self::Block,
    ];

    /// Its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "gso_gro_pump",
            Self::Opposed => "opposed_pumps",
            Self::Single => "one_packet_pump",
            Self::Many => "segment_pump",
            Self::Spin => "spinning_ping_pong",
            Self::Block => "blocking_ping_pong",
        }
    }

    /// Its name for people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Bulk => "GSO/GRO pump with CRC and one copy",
            Self::Opposed => "two such pumps, opposed",
            Self::Single => "one-packet pump, 64 B",
            Self::Many => "64-packet GSO/GRO pump, 64 B",
            Self::Spin => "ping-pong, 64 B, both sides spinning",
            Self::Block => "ping-pong, 64 B, both sides blocking",
        }
    }

    /// Full packets: what counts is bytes.
    pub(crate) const fn is_heavy(self) -> bool {
        matches!(self, Self::Bulk | Self::Opposed)
    }

    /// One way, not there and back.
    pub(crate) const fn is_pump(self) -> bool {
        !matches!(self, Self::Spin | Self::Block)
    }
}

/// Which of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    Send,
    Receive,
}

/// What a process is to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) kind: Kind,
    pub(super) role: Role,
    pub(super) local: IpAddr,
    /// The receiver, for the sender.
    pub(super) peer: Option<Ready>,
    pub(super) mtu: u16,
    pub(super) duration_ns: u64,
    pub(super) sockets: SocketArgs,
}

/// What the receiver says when it receives.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) addr: SocketAddr,
    /// Its receive buffer, in bytes of the kernel's accounting.
    pub(super) rx_buffer: u32,
}

/// What the sender found.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Packets that arrived, or round trips, in the measured time.
    pub(crate) packets: u64,
    /// Payload of each, in bytes.
    pub(crate) payload: u32,
    /// The measured time.
    pub(crate) elapsed_ns: u64,
    /// Packets that did not arrive.
    pub(crate) lost: u64,
    /// Packets that arrived damaged.
    pub(crate) bad: u64,
    /// Round-trip times.
    pub(crate) rtt_ns: Option<Rtt>,
}

impl Report {
    /// Packets a second.
    pub(crate) fn packets_per_sec(&self) -> f64 {
        crate::cmd::per_sec(self.packets, self.elapsed_ns)
    }

    /// Payload bytes a second.
    pub(crate) fn bytes_per_sec(&self) -> f64 {
        self.packets_per_sec() * f64::from(self.payload)
    }
}

/// Percentiles of a round trip, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rtt {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
}

impl From<&Histogram<u64>> for Rtt {
    fn from(times: &Histogram<u64>) -> Self {
        Self {
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            p999: times.value_at_quantile(0.999),
        }
    }
}

/// The hidden subcommand's arguments.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct BareArgs {
    /// What to do, as JSON
    spec: String,
}

impl Spec {
    /// The arguments that hand this to a child.
    pub(super) fn to_args(self) -> Result<Vec<String>> {
        let json =
            serde_json::to_string(&self).map_err(|_| CliError::garbled("program", "spec"))?;
        Ok(vec!["bare".to_owned(), json])
    }

    /// Reads it back.
    pub(super) fn from_args(args: &BareArgs) -> Result<Self> {
        serde_json::from_str(&args.spec)
            .map_err(|_| CliError::garbled("parent process", &args.spec))
    }

    /// The receiver, of a sender.
    pub(super) fn peer(&self) -> Result<Ready> {
        self.peer
            .ok_or_else(|| CliError::Usage("a sender needs a receiver".to_owned()))
    }
}
