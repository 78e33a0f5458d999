//! `perf`: how fast data moves, beside what bare sockets can do.
//!
//! ```text
//! perf            a server process on one loopback address, a client on another, a table
//! perf server     waits for clients           perf client HOST    measures against it
//! perf limit      bare UDP sockets (cmd::limit)
//! ```

#[allow(dead_code, reason = "the measurements use it")]
mod options;

use crate::cmd::limit;
use crate::error::{CliError, Result};
use options::{ClientArgs, ServerArgs, TableArgs};

/// `perf` and what follows it.
#[derive(clap::Args, Debug, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    command: Option<PerfCommand>,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(clap::Subcommand, Debug, Clone)]
enum PerfCommand {
    /// Wait for clients
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
    /// Measure what bare UDP sockets can do here, with the same kernel features
    Limit(limit::LimitArgs),
}

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> Result<()> {
    let unbuilt = |name: &str| {
        let text = format!("`{name}` is not built yet; `perf limit` and `doctor` are");
        Err(CliError::Usage(text))
    };
    match &args.command {
        Some(PerfCommand::Limit(args)) => limit::run(args),
        Some(PerfCommand::Server(_)) => unbuilt("perf server"),
        Some(PerfCommand::Client(args)) => match args.case().map(|case| case.check()) {
            Some(Err(text)) => Err(CliError::Usage(text)),
            _ => unbuilt("perf client"),
        },
        None => unbuilt("perf"),
    }
}
