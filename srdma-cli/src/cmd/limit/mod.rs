//! `perf limit`: what bare UDP sockets reach on this machine, with the kernel features that we use.
//!
//! | limit | what the two processes do |
//! |---|---|
//! | bulk | segmented sends, merged receives, a CRC on both sides, one copy to its place |
//! | opposed | two of them, one in each direction; each process sends and receives |
//! | single | 64-byte payloads, one system call for each packet on each side |
//! | many | the same packets, 64 a send |
//! | spin | 64 bytes there and back, both sides looking all the time |
//! | block | the same, both sides asleep in between |
//!
//! The honest ceiling for what the device does on the same sockets. It knows nothing of packets,
//! queues, keys or retries: credit keeps the sender from overrunning the receiver's buffer, and
//! that is all.

mod pingpong;
mod pump;
mod spec;

pub(crate) use spec::{BareArgs, Kind, Report, Rtt};

use crate::child::{self, Child, Place};
use crate::error::{CliError, Result};
use crate::out::{self, Progress};
use crate::units;
use serde::Serialize;
use spec::{Ready, Role, Spec};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How long a process may take beyond what it was asked to measure.
const PATIENCE: Duration = Duration::from_secs(20);

/// `perf limit`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct LimitArgs {
    /// Address of the sending process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDR")]
    local: IpAddr,
    /// Address of the receiving process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), value_name = "ADDR")]
    remote: IpAddr,
    /// Payload of a full packet in bytes
    #[arg(long, default_value_t = 4096, value_name = "BYTES",
          value_parser = clap::value_parser!(u16).range(64..=4096))]
    mtu: u16,
    /// The pump with CRC and one copy alone, with packets of 64 bytes up to a full one
    #[arg(long)]
    by_size: bool,
    /// Seconds for each limit
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS",
          value_parser = crate::cmd::seconds)]
    duration: f64,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sockets: crate::cmd::SocketArgs,
}

/// What is needed to measure limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Address of the sending process.
    pub(crate) local: IpAddr,
    /// Address of the receiving process.
    pub(crate) remote: IpAddr,
    /// Payload of a full packet.
    pub(crate) mtu: u16,
    /// For each limit.
    pub(crate) duration: Duration,
    /// Offloads and buffers.
    pub(crate) sockets: crate::cmd::SocketArgs,
    /// Where the sending and the receiving process run.
    pub(crate) places: [Place; 2],
}

/// Payloads of `--by-size`; the full one follows.
const SIZES: [u16; 3] = [64, 256, 1024];

/// Runs the command.
pub(crate) fn run(args: &LimitArgs) -> Result<()> {
    let setup = Setup {
        local: args.local,
        remote: args.remote,
        mtu: args.mtu,
        duration: Duration::from_secs_f64(args.duration),
        sockets: args.sockets,
        places: [Place::Here; 2],
    };
    let sizes = SIZES.iter().filter(|size| **size < args.mtu);
    let sizes = sizes.chain([&args.mtu]).map(|size| (Kind::Bulk, *size));
    let wanted: Vec<_> = if args.by_size {
        sizes.collect()
    } else {
        Kind::ALL.map(|kind| (kind, args.mtu)).into()
    };
    let progress = Progress::new(wanted.len() as u64);
    if !args.json {
        let (local, remote) = (args.local, args.remote);
        out::line(format_args!(
            "bare UDP sockets on this machine, {local} to {remote}"
        ));
    }
    for (kind, mtu) in wanted {
        progress.now(kind.title());
        let report = measure(kind, &Setup { mtu, ..setup })?;
        progress.step();
        if args.json {
            out::line(json(kind, &report)?);
        } else {
            out::line(text(kind, &report));
        }
    }
    Ok(())
}

/// Measures one limit: starts both processes, and ends them.
pub(crate) fn measure(kind: Kind, setup: &Setup) -> Result<Report> {
    if setup.local.is_ipv4() != setup.remote.is_ipv4() {
        let (local, remote) = (setup.local, setup.remote);
        let text = format!("{local} and {remote} are not of one family");
        return Err(CliError::Usage(text));
    }
    let mut spec = Spec {
        kind,
        role: Role::Receive,
        local: setup.remote,
        peer: None,
        mtu: setup.mtu,
        duration_ns: u64::try_from(setup.duration.as_nanos()).unwrap_or(u64::MAX),
        sockets: setup.sockets,
    };
    let [here, there] = setup.places;
    let mut receiver = Child::start_at(there, "receiving", &spec.to_args()?)?;
    let ready: Ready = receiver.hear(PATIENCE)?;
    spec.role = Role::Send;
    spec.local = setup.local;
    spec.peer = Some(ready);
    let mut sender = Child::start_at(here, "sending", &spec.to_args()?)?;
    let report: Report = sender.hear(setup.duration + PATIENCE)?;
    if report.bad > 0 {
        return Err(CliError::Damaged {
            what: kind.title(),
            bad: report.bad,
        });
    }
    if report.packets == 0 {
        return Err(CliError::NothingArrived { what: kind.title() });
    }
    Ok(report)
}

/// The hidden subcommand: one of the two processes.
pub(crate) fn run_bare(args: &BareArgs) -> Result<()> {
    child::end_with_parent();
    let spec = Spec::from_args(args)?;
    match (spec.kind, spec.role) {
        (Kind::Spin | Kind::Block, Role::Send) => pingpong::ask(&spec),
        (Kind::Spin | Kind::Block, Role::Receive) => pingpong::answer(&spec),
        (Kind::Opposed, Role::Send) => pump::oppose(&spec),
        (Kind::Opposed, Role::Receive) => pump::face(&spec),
        (_, Role::Send) => pump::send(&spec),
        (_, Role::Receive) => pump::receive(&spec),
    }
}

/// One limit as a JSON object.
fn json(kind: Kind, report: &Report) -> Result<String> {
    #[derive(Serialize)]
    struct Line {
        limit: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes_per_sec: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        msgs_per_sec: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rtt_ns: Option<Rtt>,
        lost: u64,
    }
    let pump = kind.is_pump();
    let line = Line {
        limit: kind.name(),
        payload: pump.then_some(report.payload),
        bytes_per_sec: kind.is_heavy().then(|| report.bytes_per_sec()),
        msgs_per_sec: pump.then(|| report.packets_per_sec()),
        rtt_ns: report.rtt_ns,
        lost: report.lost,
    };
    serde_json::to_string(&line).map_err(|_| CliError::garbled("program", "json"))
}

/// One limit for people.
fn text(kind: Kind, report: &Report) -> String {
    let figure = match (kind, report.rtt_ns) {
        (Kind::Bulk | Kind::Opposed, _) => {
            let rate = units::bytes_per_sec(report.bytes_per_sec());
            format!("{rate} in packets of {} B", report.payload)
        }
        (_, Some(rtt)) => {
            let [p50, p99, p999] = [rtt.p50, rtt.p99, rtt.p999].map(units::nanos);
            format!("p50 {p50}, p99 {p99}, p99.9 {p999}")
        }
        (_, None) => units::msgs_per_sec(report.packets_per_sec()),
    };
    let lost = match report.lost {
        0 => String::new(),
        lost => format!("  ({lost} packets lost)"),
    };
    format!("{:44} {figure}{lost}", kind.title())
}
