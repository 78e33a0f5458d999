//! `devinfo`: the devices of this machine, their limits and addresses.

use crate::error::{CliError, Result};

/// `devinfo`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct DevinfoArgs {
    /// One JSON object a device
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &DevinfoArgs) -> Result<()> {
    let _ = args.json;
    Err(CliError::Usage("`devinfo` is not built yet".to_owned()))
}
