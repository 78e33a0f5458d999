//! What to measure: operation, mode and sizes, as options and as JSON.

use crate::cmd::{DeviceArgs, seconds};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Port on which a server waits for clients, if none is given.
pub(crate) const CONTROL_PORT: u16 = 18_791;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// SEND into posted receives
    Send,
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// Compare-and-swap (lat), fetch-and-add (rate)
    Atomic,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Bytes a second
    Bw,
    /// Round-trip time
    Lat,
    /// Messages a second
    Rate,
}

/// One measurement, as client and server agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) mode: Mode,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Queue pairs.
    pub(crate) qps: u32,
    /// Requests outstanding on each.
    pub(crate) depth: u32,
    /// Largest path MTU; what the ports carry, if not given.
    pub(crate) mtu: Option<u16>,
    /// Sleep until an event comes, instead of polling.
    pub(crate) events: bool,
    pub(crate) duration_ns: u64,
}

/// Most bytes of buffers on one side.
const MAX_MEMORY: u64 = 4 << 30;
/// Most queue pairs of a measurement.
const MAX_QPS: u32 = 1024;
/// Most requests outstanding on one queue pair.
const MAX_DEPTH: u32 = 2048;
/// Longest measurement.
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Least buffer: small messages walk through it.
const MIN_BUFFER: u32 = 4096;

impl Case {
    /// With the usual numbers.
    pub(crate) fn new(op: Op, mode: Mode, duration: Duration) -> Self {
        let size = match (op, mode) {
            (Op::Atomic, _) => 8,
            (_, Mode::Bw) => 1 << 20,
            (_, Mode::Lat | Mode::Rate) => 64,
        };
        Self {
            op,
            mode,
            size,
            qps: 1,
            depth: usual_depth(mode, size),
            mtu: None,
            events: false,
            duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// With messages of `size` bytes, and the depth that is usual for it.
    pub(crate) const fn sized(mut self, size: u32) -> Self {
        self.size = size;
        self.depth = usual_depth(self.mode, size);
        self
    }

    /// Sleeping or polling.
    pub(crate) const fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// How long to measure.
    pub(crate) const fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns)
    }

    /// Requests that are posted together; the last of them reports completion.
    pub(crate) const fn batch(&self) -> u32 {
        let batch = match self.size {
            0..=4096 => 32,
            4097..=131_072 => 4,
            _ => 1,
        };
        let quarter = self.depth / 4;
        match (quarter < batch, quarter) {
            (true, 0) => 1,
            (true, quarter) => quarter,
            (false, _) => batch,
        }
    }

    /// Bytes of the buffer of one queue pair: whole messages, at least a page of them.
    pub(crate) const fn buffer(&self) -> u32 {
        self.slots() * self.size
    }

    /// Messages that fit the buffer; they are used one after the other, again and again.
    pub(crate) const fn slots(&self) -> u32 {
        if matches!(self.op, Op::Atomic) || self.size >= MIN_BUFFER || self.size == 0 {
            1
        } else {
            MIN_BUFFER / self.size
        }
    }

    /// Says why this cannot be measured. Servers ask too: what a client says is input.
    pub(crate) fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: u32, low: u32, high: u32| {
            let fits = (low..=high).contains(&value);
            fits.then_some(())
                .ok_or_else(|| format!("{name} must be {low} to {high}, not {value}"))
        };
        range("size", self.size, 1, 1 << 30)?;
        range("qps", self.qps, 1, MAX_QPS)?;
        range("depth", self.depth, 1, MAX_DEPTH)?;
        if let Some(mtu) = self.mtu
            && ![256, 512, 1024, 2048, 4096].contains(&mtu)
        {
            return Err(format!(
                "mtu must be 256, 512, 1024, 2048 or 4096, not {mtu}"
            ));
        }
        if self.duration() > MAX_DURATION || self.duration_ns == 0 {
            return Err("duration must be more than nothing and at most an hour".to_owned());
        }
        if u64::from(self.size) * u64::from(self.qps) > MAX_MEMORY {
            return Err("size times qps is more than 4 GiB of buffers".to_owned());
        }
        match (self.op, self.mode) {
            (Op::Atomic, Mode::Bw) => {
                Err("atomics move eight bytes: measure their rate or latency".to_owned())
            }
            (Op::Atomic, _) if self.size != 8 => Err("atomics have eight bytes".to_owned()),
            (Op::Write, Mode::Lat) if self.size < 8 => {
                Err("a WRITE ping-pong needs messages of at least eight bytes".to_owned())
            }
            (_, Mode::Lat) if self.qps != 1 => Err("latency is measured on one QP".to_owned()),
            _ => Ok(()),
        }
    }
}

const fn usual_depth(mode: Mode, size: u32) -> u32 {
    match (mode, size) {
        (Mode::Lat, _) => 64,
        (Mode::Rate, _) => 512,
        (Mode::Bw, 0..=131_072) => 64,
        (Mode::Bw, _) => 16,
    }
}

/// `perf` without a subcommand.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct TableArgs {
    /// Address of the client process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDR")]
    pub(crate) local: IpAddr,
    /// Address of the server process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), value_name = "ADDR")]
    pub(crate) remote: IpAddr,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: f64,
    /// Largest payload of a packet, in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// `perf server`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ServerArgs {
    /// Where to wait for clients, on TCP: an address, or an address and a port
    #[arg(long, default_value = "[::]:18791", value_name = "ADDR", value_parser = listen_addr)]
    pub(crate) listen: SocketAddr,
    /// Our address for RDMA; the one that the client reached us at, if not given
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<IpAddr>,
    /// End after one client
    #[arg(long)]
    pub(crate) once: bool,
    /// Say where we listen as JSON, and end when standard input closes
    #[arg(long, hide = true)]
    pub(crate) child: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// `perf client`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ClientArgs {
    /// The server: a name or address, with a port if it is not 18791
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// What to do; the whole table, if neither this nor --mode is given
    #[arg(long, value_enum)]
    pub(crate) op: Option<Op>,
    /// What to measure
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u32>,
    /// Queue pairs
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) qps: u32,
    /// Requests outstanding on each queue pair
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Largest payload of a packet, in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Sleep until an event comes, instead of polling
    #[arg(long)]
    pub(crate) events: bool,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: f64,
    /// Our address for RDMA; the one that reaches the server, if not given
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<IpAddr>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

impl ClientArgs {
    /// The one measurement asked for; `None` for the table.
    pub(crate) fn case(&self) -> Option<Case> {
        if self.op.is_none() && self.mode.is_none() {
            return None;
        }
        let op = self.op.unwrap_or(Op::Write);
        let mode = self.mode.unwrap_or(match op {
            Op::Atomic => Mode::Rate,
            _ => Mode::Bw,
        });
        let mut case = Case::new(op, mode, Duration::from_secs_f64(self.duration));
        if let Some(size) = self.size {
            case = case.sized(size);
        }
        case.depth = self.depth.unwrap_or(case.depth);
        case.qps = self.qps;
        case.mtu = self.mtu;
        Some(case.events(self.events))
    }
}

/// An address with or without a port.
fn listen_addr(text: &str) -> Result<SocketAddr, String> {
    let bare = text.parse::<IpAddr>();
    let with_port = bare.map(|ip| SocketAddr::new(ip, CONTROL_PORT));
    with_port
        .or_else(|_| text.parse())
        .map_err(|_| "an IP address, or ADDRESS:PORT".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(op: Op, mode: Mode) -> Case {
        Case::new(op, mode, Duration::from_secs(1))
    }

    #[test]
    fn usual_numbers_can_be_measured() {
        for op in [Op::Send, Op::Write, Op::Read, Op::Atomic] {
            for mode in [Mode::Lat, Mode::Rate, Mode::Bw] {
                let usual = case(op, mode);
                let wrong = (op, mode) == (Op::Atomic, Mode::Bw);
                assert_eq!(usual.check().is_err(), wrong, "{usual:?}");
            }
        }
        let rate = case(Op::Send, Mode::Rate);
        assert_eq!((rate.batch(), rate.slots(), rate.buffer()), (32, 64, 4096));
        let bulk = case(Op::Write, Mode::Bw);
        assert_eq!((bulk.batch(), bulk.buffer(), bulk.depth), (1, 1 << 20, 16));
        assert_eq!(bulk.sized(65_536).batch(), 4);
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let bad = [
            (
                Case {
                    size: 0,
                    ..case(Op::Send, Mode::Bw)
                },
                "size",
            ),
            (
                Case {
                    qps: 0,
                    ..case(Op::Send, Mode::Bw)
                },
                "qps",
            ),
            (
                Case {
                    qps: 2,
                    ..case(Op::Send, Mode::Lat)
                },
                "one QP",
            ),
            (
                Case {
                    depth: 1 << 20,
                    ..case(Op::Send, Mode::Bw)
                },
                "depth",
            ),
            (
                Case {
                    mtu: Some(1500),
                    ..case(Op::Send, Mode::Bw)
                },
                "mtu",
            ),
            (
                Case {
                    size: 64,
                    ..case(Op::Atomic, Mode::Rate)
                },
                "eight",
            ),
            (
                Case {
                    size: 4,
                    ..case(Op::Write, Mode::Lat)
                },
                "eight",
            ),
            (
                Case {
                    size: 1 << 30,
                    qps: 8,
                    ..case(Op::Send, Mode::Bw)
                },
                "GiB",
            ),
            (
                Case {
                    duration_ns: u64::MAX,
                    ..case(Op::Send, Mode::Bw)
                },
                "duration",
            ),
        ];
        for (case, word) in bad {
            let text = case.check().unwrap_err();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn addresses_with_and_without_a_port() {
        assert_eq!(listen_addr("::1").unwrap().port(), CONTROL_PORT);
        assert_eq!(listen_addr("127.0.0.2:0").unwrap().port(), 0);
        listen_addr("nowhere").unwrap_err();
    }
}
