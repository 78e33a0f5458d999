//! `srdma-cli`: measures, inspects and checks srdma on this machine.
//!
//! ```text
//! srdma-cli                    the table of `perf`
//! srdma-cli perf               the same; `perf server`, `perf client HOST`, `perf limit`
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
use std::error::Error;
use std::process::ExitCode;

#[derive(Parser, Debug)]
#[command(name = "srdma-cli", version, about = "Measures, inspects and checks srdma.")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure what bare UDP sockets can do here
    Limit(cmd::limit::LimitArgs),
    /// One of the processes of `perf limit`
    #[command(hide = true)]
    Bare(cmd::limit::BareArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        None => Ok(()),
        Some(Command::Limit(args)) => cmd::limit::run(&args),
        Some(Command::Bare(args)) => cmd::limit::run_bare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprint!(": {cause}");
                source = cause.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}
