//! `srdma-cli`: measures, inspects and checks srdma on this machine, and runs programs on it.
//!
//! ```text
//! srdma-cli                    the table of `perf`
//! srdma-cli perf               the same; `perf server`, `perf client HOST`, `perf limit`,
//!                              `perf suite`
//! srdma-cli run -- PROGRAM     an unmodified verbs program; `env` prints what it takes
//! srdma-cli trace -- PROGRAM   the same, and what happens inside; `--pcap FILE`
//! srdma-cli counters           counters of running processes
//! srdma-cli devinfo            devices, limits, addresses
//! srdma-cli doctor             what this machine offers, and how to improve it
//! ```
//!
//! Each command is a module of `cmd`. Nothing here measures or prints figures.

#![forbid(unsafe_code)]

mod child;
mod cmd;
mod error;
mod out;
mod units;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser, Debug)]
#[command(
    name = "srdma-cli",
    version,
    about = "Measures, inspects and checks srdma, and runs programs on it."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure how fast data moves (a table of everything, without arguments)
    Perf(Box<cmd::perf::PerfArgs>),
    /// Run an unmodified verbs program on srdma
    Run(cmd::run::RunArgs),
    /// Run an unmodified verbs program and show what driver, device and network do
    Trace(cmd::trace::TraceArgs),
    /// Print the variables that `run` sets, for `eval "$(srdma-cli env)"`
    Env(cmd::run::EnvArgs),
    /// Show counters of running processes
    Counters(cmd::counters::CountersArgs),
    /// Show devices, their limits and addresses
    Devinfo(cmd::devinfo::DevinfoArgs),
    /// Check what this machine offers, and say how to improve it
    Doctor(cmd::doctor::DoctorArgs),
    /// One of the processes of `perf limit`
    #[command(hide = true)]
    Bare(cmd::limit::BareArgs),
    /// One of the processes of `perf suite`
    #[command(hide = true)]
    Probe(cmd::perf::suite::ProbeArgs),
}

fn main() -> ExitCode {
    let mut command = Cli::parse().command;
    if command.is_none() {
        command = Cli::parse_from(["srdma-cli", "perf"]).command;
    }
    // What a shell says of a program that it cannot start: no status that programs use.
    let runs = matches!(command, Some(Command::Run(_) | Command::Trace(_)));
    let result = match command {
        None => Ok(()),
        Some(Command::Perf(args)) => cmd::perf::run(&args),
        Some(Command::Run(args)) => cmd::run::run(&args),
        Some(Command::Trace(args)) => match cmd::trace::run(&args) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Some(Command::Env(args)) => cmd::run::env(&args),
        Some(Command::Counters(args)) => cmd::counters::run(&args),
        Some(Command::Devinfo(args)) => cmd::devinfo::run(&args),
        Some(Command::Doctor(args)) => cmd::doctor::run(&args),
        Some(Command::Probe(args)) => cmd::perf::suite::run_probe(&args),
        Some(Command::Bare(args)) => cmd::limit::run_bare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error::chain(&error));
            if runs {
                error.run_status()
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
