//! `perf suite`: every figure that has a goal, beside what bare sockets do in the same run.
//!
//! | file | what |
//! |---|---|
//! | `plan`, `group` | what is measured, in which order, and the goals |
//! | `measure` | one measurement: its processes, and where they run |
//! | `cable`, `probe`, `perftest` | two hosts; what a process does alone; perftest's programs |
//! | `sample`, `result` | what was found, and the rows that come of it |
//! | `page`, `plot` | the page of `--html` |

mod cable;
mod group;
mod measure;
mod page;
mod perftest;
mod plan;
mod plot;
mod probe;
mod result;
mod sample;

use crate::cmd::{SocketArgs, seconds};
use crate::error::{CliError, Result};
use crate::out::{self, Progress};
use group::Group;
use measure::Bench;
use plan::Extent;
use result::{Rounds, Row};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use probe::{ProbeArgs, run as run_probe};

/// `perf suite`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct SuiteArgs {
    /// Address of the client process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDR")]
    local: IpAddr,
    /// Address of the server process
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), value_name = "ADDR")]
    remote: IpAddr,
    /// One round of short measurements, and fewer queue pairs
    #[arg(long)]
    quick: bool,
    /// Only groups whose title contains this; can be given several times
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Rounds of each group; a row shows medians
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: Option<u16>,
    /// Seconds for each measurement
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    sockets: SocketArgs,
}

impl SuiteArgs {
    fn extent(&self) -> Extent {
        let mut extent = if self.quick {
            Extent {
                duration: Duration::from_millis(150),
                rounds: 1,
                many: 2_000,
                very_many: 10_000,
            }
        } else {
            Extent {
                duration: Duration::from_millis(300),
                rounds: 5,
                many: 10_000,
                very_many: 100_000,
            }
        };
        if let Some(duration) = self.duration {
            extent.duration = Duration::from_secs_f64(duration);
        }
        if let Some(rounds) = self.rounds {
            extent.rounds = rounds.into();
        }
        extent
    }

    fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = plan::groups(&self.extent());
        let wanted = |group: &Group| {
            let mut words = self.only.iter();
            self.only.is_empty() || words.any(|words| group.title.contains(words))
        };
        let titles: Vec<_> = groups.iter().map(|group| group.title).collect();
        groups.retain(wanted);
        if groups.is_empty() {
            let text = format!(
                "no group has such a title; there are: {}",
                titles.join("; ")
            );
            return Err(CliError::Usage(text));
        }
        Ok(groups)
    }
}

/// Runs the command.
pub(crate) fn run(args: &SuiteArgs) -> Result<()> {
    if args.local == args.remote || args.local.is_ipv4() != args.remote.is_ipv4() {
        let text = "--local and --remote must be two addresses of one family".to_owned();
        return Err(CliError::Usage(text));
    }
    let groups = args.groups()?;
    let mut bench = Bench::new(
        [args.local, args.remote],
        args.extent().duration,
        args.sockets,
    );
    let steps = groups
        .iter()
        .map(|group| group.measures.len() * group.rounds);
    let progress = Progress::new(steps.sum::<usize>() as u64);
    let heading = out::machine();
    if !args.json {
        progress.line(format_args!("{heading}; {} to {}", args.local, args.remote));
    }
    let mut rows = Vec::new();
    for group in &groups {
        progress.now(group.title);
        let found = measure_group(&mut bench, group, &progress);
        let new = result::rows(group, &found);
        if !args.json {
            progress.line(format_args!("\n{}", title_line(group.title)));
        }
        for row in &new {
            progress.line(if args.json { row.json()? } else { text(row) });
        }
        rows.extend(new);
    }
    if let Some(path) = &args.html {
        let page = page::page(&heading, &rows);
        let written = std::fs::write(path, page);
        written.map_err(CliError::io("write the page"))?;
    }
    let failed = rows.iter().filter(|row| row.failed.is_some()).count();
    if !args.json {
        progress.line(summary(&rows));
    }
    match failed {
        0 => Ok(()),
        _ => Err(CliError::Usage(format!(
            "{failed} rows could not be measured"
        ))),
    }
}

/// Round by round, each measurement once a round.
fn measure_group(bench: &mut Bench, group: &Group, progress: &Progress) -> Vec<Rounds> {
    let mut found = vec![Rounds::new(); group.measures.len()];
    for _ in 0..group.rounds {
        for (measure, found) in group.measures.iter().zip(&mut found) {
            found.push(bench.measure(measure));
            progress.step();
        }
    }
    found
}

fn title_line(title: &str) -> String {
    format!(
        "{title:44} {:>12} {:>12} {:>6}  goal",
        "figure", "limit", "ratio"
    )
}

/// One row for people.
fn text(row: &Row) -> String {
    if let Some(why) = row.skipped.as_ref().or(row.failed.as_ref()) {
        let what = if row.skipped.is_some() {
            "skipped"
        } else {
            "failed"
        };
        return format!("  {:42} {what}: {why}", row.row);
    }
    let show = |value: Option<f64>| value.map_or_else(String::new, |value| row.metric.show(value));
    let ratio = row
        .ratio
        .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let goal = row.goal.as_deref().unwrap_or_default();
    let verdict = match row.holds {
        Some(true) => "holds",
        Some(false) => "missed",
        None => "",
    };
    let (figure, limit) = (show(row.figure), show(row.limit));
    let lost = match row.dropped {
        Some(lost) if lost > 0.0 => format!(" ({lost:.0} packets lost)"),
        _ => String::new(),
    };
    let line = format!(
        "  {:42} {figure:>12} {limit:>12} {ratio:>6}  {goal:7} {verdict}{lost}",
        row.row
    );
    line.trim_end().to_owned()
}

/// How many goals hold.
fn summary(rows: &[Row]) -> String {
    let count = |pick: fn(&Row) -> bool| rows.iter().filter(|row| pick(row)).count();
    let (held, missed) = (
        count(|r| r.holds == Some(true)),
        count(|r| r.holds == Some(false)),
    );
    let skipped = count(|row| row.skipped.is_some());
    format!(
        "\n{held} goals hold, {missed} are missed, {skipped} rows were skipped\n\
         limit: what it is compared with in the same round, bare sockets for most \
         (`--json` says what). ratio: figure / limit, median of rounds."
    )
}
