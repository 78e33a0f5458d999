//! Programs of perftest on the drop-in library, beside our own measurement of the same.
//!
//! Server and client are two devices of this machine under one name, as two hosts would be. The
//! client's table has one line of figures, of which a column is taken.

use super::sample::{Metric, Missing, Sample};
use crate::error::CliError;
use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a measurement is tried.
const TRIES: u32 = 3;
/// Between two looks at whether it listens or has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Iterations in a second of measuring: about what this takes on a slow machine.
const BIG: f64 = 3000.0;
const SMALL: f64 = 100_000.0;

/// One program, and what it measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    name: &'static str,
    size: u32,
    depth: Option<u32>,
    metric: Metric,
}

impl Program {
    /// Bytes a second, with `depth` requests outstanding.
    pub(super) const fn bandwidth(name: &'static str, size: u32, depth: u32) -> Self {
        Self {
            name,
            size,
            depth: Some(depth),
            metric: Metric::Bytes,
        }
    }

    /// A round trip.
    pub(super) const fn latency(name: &'static str, size: u32) -> Self {
        Self {
            name,
            size,
            depth: None,
            metric: Metric::P50,
        }
    }

    fn args(&self, port: u16, duration: Duration) -> Vec<String> {
        let rate = if self.metric == Metric::Bytes {
            BIG
        } else {
            SMALL
        };
        let count = (rate * duration.as_secs_f64()).max(100.0);
        let mut args: Vec<String> = ["-F", "-c", "RC", "-n"].map(str::to_owned).into();
        args.push(format!("{count:.0}"));
        args.extend(["-s".to_owned(), self.size.to_string()]);
        args.extend(["-p".to_owned(), port.to_string()]);
        if let Some(depth) = self.depth {
            args.extend(["-t".to_owned(), depth.to_string()]);
        }
        args
    }

    /// The figure in what the client says.
    fn figure(&self, said: &str) -> Option<f64> {
        let mut rows = said.lines().filter_map(|row| {
            let numbers: Result<Vec<f64>, _> = row.split_whitespace().map(str::parse).collect();
            numbers.ok().filter(|numbers| numbers.len() >= 4)
        });
        let row = rows.next()?;
        // bytes, iterations, peak, average [MiB/s] or bytes, iterations, least, most, typical [µs]
        if self.metric == Metric::Bytes {
            return row.get(3).map(|average| average * f64::from(1 << 20));
        }
        // A READ comes back, and its time is that of a round trip; others show half of one.
        let ways = if self.name == "ib_read_lat" { 1.0 } else { 2.0 };
        row.get(4).map(|typical| typical * ways * 1000.0)
    }
}

/// Runs both sides, and again if one fails: on a busy machine perftest may not be able to tell how
/// fast the clock runs, and then ends; or somebody takes the port first.
pub(super) fn measure(
    program: &Program,
    addrs: [IpAddr; 2],
    duration: Duration,
) -> Result<Sample, Missing> {
    for _ in 1..TRIES {
        match run(program, addrs, duration) {
            Err(Missing::Failed(_)) => {}
            other => return other,
        }
    }
    run(program, addrs, duration)
}

fn run(
    program: &Program,
    [local, remote]: [IpAddr; 2],
    duration: Duration,
) -> Result<Sample, Missing> {
    let port = free_port().map_err(CliError::io("find a free TCP port"))?;
    let args = program.args(port, duration);
    let mut server = Running::start(program, remote, &args)?;
    server.listens(port)?;
    let mut args = args;
    args.push(remote.to_string());
    let client = Running::start(program, local, &args)?;
    let said = client.finish()?;
    server.finish()?;
    let figure = program.figure(&said);
    let figure = figure.ok_or_else(|| Missing::Failed(format!("no figures in: {said}")))?;
    Ok(Sample::default().with(program.metric, figure))
}

/// A TCP port that nobody has.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// One side. Ended when dropped.
struct Running {
    process: Child,
    name: &'static str,
}

impl Running {
    fn start(program: &Program, addr: IpAddr, args: &[String]) -> Result<Self, Missing> {
        let name = program.name;
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
            return Err(Missing::Skipped(format!(
                "{name} (perftest) is not installed"
            )));
        }
        let ours = std::env::current_exe().map_err(CliError::io("find our own program"))?;
        let started = Command::new(ours)
            .args(["run", "--quiet", "--", name])
            .args(args)
            .env("SRDMA_DEVICES", format!("srdma0={addr}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let process = started.map_err(CliError::io("start a process"))?;
        Ok(Self { process, name })
    }

    fn ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Waits until it listens on `port`.
    fn listens(&mut self, port: u16) -> Result<(), Missing> {
        let wanted = format!(":{port:04X}");
        let start = Instant::now();
        while start.elapsed() < PATIENCE && !self.ended() {
            let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
            if tables.iter().flatten().any(|table| listens(table, &wanted)) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(Missing::Failed(format!("{} does not listen", self.name)))
    }

    /// Waits for a good end; what it said.
    fn finish(mut self) -> Result<String, Missing> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && !self.ended() {
            std::thread::sleep(LOOK);
        }
        let failed = |text: &str| Missing::Failed(format!("{} {text}", self.name));
        match self.process.try_wait() {
            Ok(Some(status)) if status.success() => {}
            Ok(Some(status)) => return Err(failed(&format!("ended with {status}"))),
            _ => return Err(failed("does not end")),
        }
        // A table of one line fits a pipe, so it has not waited for us to read.
        let mut said = String::new();
        if let Some(mut out) = self.process.stdout.take() {
            let read = std::io::Read::read_to_string(&mut out, &mut said);
            read.map_err(CliError::io("read what a program says"))?;
        }
        Ok(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// There is a line for a listening socket on this port.
fn listens(table: &str, port: &str) -> bool {
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(port)) && words.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_tables() {
        let table = "---\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec] \n \
                     1048576    300              4300.11            4000.00   0.004000\n---\n";
        let program = Program::bandwidth("ib_write_bw", 1 << 20, 16);
        assert_eq!(program.figure(table), Some(4000.0 * 1_048_576.0));
        let table = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n \
                     64 1000 3.90 60.11 4.50 4.70 0.40 6.10 60.11\n";
        assert_eq!(
            Program::latency("ib_send_lat", 64).figure(table),
            Some(9000.0)
        );
        assert_eq!(
            Program::latency("ib_read_lat", 64).figure(table),
            Some(4500.0)
        );
        assert_eq!(Program::latency("ib_read_lat", 64).figure("no table"), None);
    }

    #[test]
    fn a_listening_socket_is_told_from_others() {
        let line = |state| format!("   0: 00000000:4965 00000000:0000 {state} 00000000:00000000");
        assert!(listens(&line("0A"), ":4965"));
        assert!(!listens(&line("01"), ":4965"));
        assert!(!listens(&line("0A"), ":4966"));
    }
}
