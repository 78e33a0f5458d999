//! The options of `perf`, `perf server` and `perf client`.
//!
//! What can be measured is said in `case.rs`.

use super::case::{Case, Mode, Op};
use crate::cmd::{DeviceArgs, seconds};
use clap::{ArgGroup, ValueEnum};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Port on which a server waits for clients, if none is given.
pub(crate) const CONTROL_PORT: u16 = 18_791;

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
    /// Only what sleeps between events
    #[arg(long)]
    pub(crate) events: bool,
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
#[command(group(ArgGroup::new("one").args(["op", "mode"]).multiple(true)))]
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
    #[arg(long, value_name = "BYTES", requires = "one")]
    pub(crate) size: Option<u32>,
    /// Queue pairs
    #[arg(long, default_value_t = 1, value_name = "N", requires = "one")]
    pub(crate) qps: u32,
    /// Requests outstanding on each queue pair
    #[arg(long, value_name = "N", requires = "one")]
    pub(crate) depth: Option<u32>,
    /// Requests that are posted together, of which the last reports its completion
    #[arg(long, value_name = "N", requires = "one")]
    pub(crate) batch: Option<u32>,
    /// Both sides send at the same time (bandwidth of WRITE); the sum counts
    #[arg(long, requires = "one")]
    pub(crate) both: bool,
    /// Largest payload of a packet, in bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Sleep until an event comes, instead of polling
    #[arg(long, requires = "one")]
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
        case.batch = self.batch;
        case.both = self.both;
        case.mtu = self.mtu;
        Some(case.events(self.events))
    }
}

/// The options of `perf client` that ask for `case`.
pub(super) fn case_args(case: &Case) -> Vec<String> {
    let name = |value: Option<clap::builder::PossibleValue>| {
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let mut args = vec![
        "--op".to_owned(),
        name(case.op.to_possible_value()),
        "--mode".to_owned(),
        name(case.mode.to_possible_value()),
    ];
    let mut number = |option: &str, value: String| args.extend([option.to_owned(), value]);
    number("--size", case.size.to_string());
    number("--qps", case.qps.to_string());
    number("--depth", case.depth.to_string());
    number("--duration", case.duration().as_secs_f64().to_string());
    if let Some(batch) = case.batch {
        number("--batch", batch.to_string());
    }
    if let Some(mtu) = case.mtu {
        number("--mtu", mtu.to_string());
    }
    let flags = [("--both", case.both), ("--events", case.events)];
    args.extend(
        flags
            .iter()
            .filter(|flag| flag.1)
            .map(|flag| flag.0.to_owned()),
    );
    args
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
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ClientArgs,
    }

    #[test]
    fn options_say_a_case_and_a_case_its_options() {
        let second = Duration::from_secs(1);
        let cases = [
            Case::new(Op::Atomic, Mode::Lat, second).events(true),
            Case::new(Op::Write, Mode::Bw, second).both_ways(),
            Case::new(Op::Send, Mode::Rate, Duration::from_millis(250))
                .many(16, 64)
                .batched(1),
            Case {
                mtu: Some(1024),
                ..Case::new(Op::Read, Mode::Bw, second).sized(65_536)
            },
        ];
        for case in cases {
            let mut words = vec!["client".to_owned(), "127.0.0.1".to_owned()];
            words.extend(case_args(&case));
            let line = Line::try_parse_from(words).unwrap();
            assert_eq!(line.args.case(), Some(case));
        }
    }

    #[test]
    fn what_the_table_does_not_heed_is_refused() {
        let parse = |words: &[&str]| Line::try_parse_from([&["client", "::1"], words].concat());
        for option in [
            "--both",
            "--events",
            "--size=64",
            "--qps=2",
            "--depth=8",
            "--batch=4",
        ] {
            let error = parse(&[option]).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("--mode"), "{option}: {error}");
            parse(&[option, "--op", "write"]).unwrap();
            parse(&[option, "--mode", "bw"]).unwrap();
        }
        let table = parse(&["--mtu=1024", "--duration=0.5", "--json"]).unwrap();
        assert_eq!(table.args.case(), None);
    }

    #[test]
    fn addresses_with_and_without_a_port() {
        assert_eq!(listen_addr("::1").unwrap().port(), CONTROL_PORT);
        assert_eq!(listen_addr("127.0.0.2:0").unwrap().port(), 0);
        listen_addr("nowhere").unwrap_err();
    }
}
