//! `perf`: how fast data moves, beside what bare sockets can do.
//!
//! ```text
//! perf            a server process on one loopback address, a client on another, a table
//! perf server     waits for clients           perf client HOST    measures against it
//! perf limit      bare UDP sockets (cmd::limit)
//! perf suite      every figure that has a goal
//! ```
//!
//! | file | what |
//! |---|---|
//! | `options`, `case` | what can be asked for |
//! | `table`, `row` | which measurements, how they are printed and compared |
//! | `client`, `server`, `control` | the two sides and their conversation |
//! | `rig` | queue pairs and memory of one measurement |
//! | `stream`, `latency` | the loops that move data |
//! | `suite` | rows with goals, and a page with plots |

mod case;
mod client;
mod control;
mod latency;
mod options;
mod rig;
mod row;
mod server;
mod stream;
pub(crate) mod suite;
mod table;

use crate::cmd::limit;
use crate::error::Result;
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
    /// Measure every figure that has a goal, beside what bare sockets do in the same run
    Suite(suite::SuiteArgs),
}

/// Runs the command.
pub(crate) fn run(args: &PerfArgs) -> Result<()> {
    match &args.command {
        Some(PerfCommand::Limit(args)) => limit::run(args),
        Some(PerfCommand::Suite(args)) => suite::run(args),
        Some(PerfCommand::Server(args)) => server::run(args),
        Some(PerfCommand::Client(args)) => table::remote(args),
        None => table::local(&args.table),
    }
}
