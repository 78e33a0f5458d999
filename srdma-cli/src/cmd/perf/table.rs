//! The table of `perf`: which measurements, and printing them as they come.

use super::case::{Case, Mode, Op};
use super::client::Client;
use super::options::{ClientArgs, TableArgs};
use super::row::{Limits, Row};
use super::server::Listening;
use crate::child::{Child, Place};
use crate::cmd::DeviceArgs;
use crate::cmd::limit::Setup;
use crate::error::{CliError, Result};
use crate::out::{self, Progress};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long the server may take to start.
const STARTING: Duration = Duration::from_secs(20);
/// Time for each limit.
pub(super) const LIMIT: Duration = Duration::from_millis(500);
/// Packet size of a limit, if the table has no other.
const MTU: u16 = 4096;

/// Everything that the table shows.
fn cases(duration: Duration, mtu: Option<u16>) -> Vec<Case> {
    const ALL: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];
    let case = |op, mode| Case {
        mtu,
        ..Case::new(op, mode, duration)
    };
    let mut cases = Vec::new();
    for events in [false, true] {
        cases.extend(ALL.map(|op| case(op, Mode::Lat).events(events)));
    }
    for size in [64 << 10, 1 << 20] {
        cases.extend([Op::Send, Op::Write, Op::Read].map(|op| case(op, Mode::Bw).sized(size)));
    }
    cases.extend(ALL.map(|op| case(op, Mode::Rate)));
    cases
}

/// `perf`: both processes on this machine, and the limits of the same run.
pub(super) fn local(args: &TableArgs) -> Result<()> {
    let mut cases = cases(Duration::from_secs_f64(args.duration), args.mtu);
    cases.retain(|case| case.events || !args.events);
    check(args, &cases)?;
    let (_server, listening) = start_server(Place::Here, args.remote, &args.device)?;
    let host = listening.addr.to_string();
    let mut client = Client::open(&host, Some(args.local), &args.device)?;
    let limits = Limits::new(Setup {
        local: args.local,
        remote: args.remote,
        mtu: args.mtu.unwrap_or(MTU),
        duration: LIMIT.min(Duration::from_secs_f64(args.duration)),
        sockets: args.device.sockets,
        places: [Place::Here; 2],
    });
    if !args.json {
        out::line(heading(args));
    }
    print(&mut client, &cases, Some(limits), args.json)?;
    if !args.json {
        out::line(LEGEND);
    }
    Ok(())
}

/// Finds what cannot work before anything is started.
fn check(args: &TableArgs, cases: &[Case]) -> Result<()> {
    let (local, remote) = (args.local, args.remote);
    if local.is_ipv4() != remote.is_ipv4() {
        let text = format!("{local} and {remote} are not of one family");
        return Err(CliError::Usage(text));
    }
    if local == remote {
        let text = format!("--local and --remote are both {local}: each process needs its own");
        return Err(CliError::Usage(text));
    }
    cases
        .iter()
        .try_for_each(|case| case.check().map_err(CliError::Usage))
}

/// What the last two columns say.
const LEGEND: &str = "
bare UDP: sockets alone, in the same run (`perf limit`). ratio: srdma / bare UDP; of bandwidth and
rate more is better, of round trips (p50) less.";

/// Where the figures come from.
fn heading(args: &TableArgs) -> String {
    let (local, remote) = (args.local, args.remote);
    let told = std::env::var("SRDMA_WIRE").is_ok_and(|word| word.trim() == "bridge");
    let way = if args.device.bridge || told {
        ", through memory that they share"
    } else {
        ""
    };
    format!(
        "{}; two processes, {local} to {remote}{way}",
        out::machine()
    )
}

/// `perf client`: one measurement, or the table, against a server somewhere else.
pub(super) fn remote(args: &ClientArgs) -> Result<()> {
    let case = args.case();
    if let Some(case) = &case {
        case.check().map_err(CliError::Usage)?;
    }
    let mut client = Client::open(&args.host, args.address, &args.device)?;
    let cases = match case {
        Some(case) => vec![case],
        None => cases(Duration::from_secs_f64(args.duration), args.mtu),
    };
    print(&mut client, &cases, None, args.json)
}

/// Measures and prints, one line after the other.
fn print(
    client: &mut Client,
    cases: &[Case],
    mut limits: Option<Limits>,
    json: bool,
) -> Result<()> {
    let progress = Progress::new(cases.len() as u64);
    let mut last: Option<Row> = None;
    for case in cases {
        let name = format!("{:?} {:?}", case.op, case.mode).to_lowercase();
        progress.now(name.clone());
        let limit = limits.as_mut().map(|limits| limits.of(case)).transpose()?;
        let figures = client.measure(case).map_err(|error| CliError::Case {
            case: format!("{name} of {} bytes", case.size),
            source: Box::new(error),
        })?;
        let row = Row::new(case, figures, limit);
        progress.step();
        if json {
            progress.line(row.json()?);
        } else {
            if last.is_none_or(|last| row.differs(&last)) {
                progress.line(format_args!("\n{}", row.heading()));
            }
            progress.line(row.text());
        }
        last = Some(row);
    }
    Ok(())
}

/// Starts a server process for one client, and waits until it listens.
pub(super) fn start_server(
    place: Place,
    addr: IpAddr,
    device: &DeviceArgs,
) -> Result<(Child, Listening)> {
    let listen = SocketAddr::new(addr, 0).to_string();
    let mut args: Vec<String> = ["perf", "server", "--child", "--once", "--listen"]
        .map(str::to_owned)
        .into();
    args.push(listen);
    args.extend(device.to_args());
    let mut server = Child::start_at(place, "server", &args)?;
    let listening = server.hear(STARTING)?;
    Ok((server, listening))
}
