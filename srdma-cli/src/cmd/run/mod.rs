//! `run` and `env`: unmodified programs on srdma.
//!
//! ```text
//! srdma-cli run -- PROGRAM ARGS
//!    │ shared libraries found or unpacked, and called as programs ask for them   library.rs
//!    │ files that programs read in /sys and /dev, written                        tree.rs
//!    │ can PROGRAM be reached by the loader? if not, a warning                   reach.rs
//!    │ variables set                                                             variables.rs
//!    └ exec: no process of ours remains, so signals and exit status are PROGRAM's own
//! ```
//!
//! Directories are private to the user and named by what is in them (`place.rs`): a second run with
//! the same devices uses them again, so nothing has to be cleaned up behind a program.

mod library;
mod place;
mod reach;
mod tree;
mod variables;

use crate::error::{CliError, Result};
use crate::out;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the variables are made of.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct SetupArgs {
    /// Do not show files of /sys/class/infiniband and /dev/infiniband (no path shim)
    #[arg(long)]
    no_shim: bool,
    /// Faults of network and device, as in "seed=7; drop 1%; out corrupt 0.1%", or @FILE
    #[arg(long, value_name = "RULES")]
    faults: Option<String>,
    /// To devices of this machine that are on the bridge too, packets cross memory that both share,
    /// and no socket (SRDMA_WIRE=bridge)
    #[arg(long)]
    bridge: bool,
}

/// `run`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    setup: SetupArgs,
    /// Say nothing about programs that cannot be reached
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// `env`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    setup: SetupArgs,
}

/// Becomes the program; returns only if that fails.
pub(crate) fn run(args: &RunArgs) -> Result<()> {
    let mut command = program(args)?;
    let source = command.exec();
    Err(cannot_start(&command, source))
}

/// The error for a program that did not start.
pub(crate) fn cannot_start(command: &Command, source: std::io::Error) -> CliError {
    CliError::Exec {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    }
}

/// Bytes of libsrdma.so that a program loads.
pub(crate) fn library_size() -> Option<u64> {
    library::loaded()
}

/// Prints the variables as a shell sets them.
pub(crate) fn env(args: &EnvArgs) -> Result<()> {
    for (name, value) in prepare(&args.setup, true)? {
        out::line(format_args!("export {name}={}", variables::quote(&value)));
    }
    Ok(())
}

/// The program of `args`, ready to be started.
pub(crate) fn program(args: &RunArgs) -> Result<Command> {
    let Some((program, rest)) = args.program.split_first() else {
        return Err(CliError::Usage("there is no program".to_owned()));
    };
    let variables = prepare(&args.setup, !args.quiet)?;
    if !args.quiet {
        for obstacle in reach::obstacles(program) {
            warn(&obstacle);
        }
    }
    let mut command = Command::new(program);
    command.args(rest).envs(variables);
    Ok(command)
}

/// Makes what the program needs; returns the variables that lead there.
fn prepare(args: &SetupArgs, warns: bool) -> Result<Vec<(&'static str, OsString)>> {
    let devices = srdma_verbs::offered_devices()?;
    if warns {
        for device in devices.iter().filter(|device| device.addrs.is_empty()) {
            let name = &device.name;
            warn(format_args!(
                "device {name} has no address: its interface is missing or not set up"
            ));
        }
    }
    let place = place::Place::open()?;
    let libraries = library::install(&place)?;
    let tree = (!args.no_shim)
        .then(|| place.fill("tree", &tree::items(&devices)))
        .transpose()?;
    place.sweep();
    let mut list = variables::list(&place, &libraries, tree.as_deref());
    if let Some(rules) = &args.faults {
        srdma_verbs::check_faults(rules).map_err(CliError::Usage)?;
        list.push(("SRDMA_FAULTS", rules.into()));
    }
    if args.bridge {
        list.push(("SRDMA_WIRE", "bridge".into()));
    }
    Ok(list)
}

fn warn(text: impl std::fmt::Display) {
    eprintln!("srdma-cli: warning: {text}");
}
