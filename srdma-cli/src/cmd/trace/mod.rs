//! `trace`: an unmodified program under `run`, and what happens inside of it, as it happens.
//!
//! ```text
//! PROGRAM and its children ─ append lines ─► a private file ─ followed ─► sorted by time ─► shown
//!                          └ append packets ─► --pcap FILE
//! ```
//!
//! Lines go to standard output, where the program's own go too; `--output` gives them a file of
//! their own. Our status is the program's.

mod merge;

use super::run::{self, RunArgs};
use crate::error::{CliError, Result};
use merge::Merger;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// How often to look at the file.
const PERIOD: Duration = Duration::from_millis(20);

/// `trace`.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct TraceArgs {
    /// One JSON value a line
    #[arg(long)]
    json: bool,
    /// Also write packets to this file, in pcapng, for Wireshark and tshark. They are then what the
    /// specification has, and nothing of our own (SRDMA_WIRE=plain), unless SRDMA_WIRE is set or
    /// --bridge given
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write lines to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// Runs the program and shows it; the status to end with.
pub(crate) fn run(args: &TraceArgs) -> Result<ExitCode> {
    let mut command = run::program(&args.run)?;
    let folder = Folder::new().map_err(CliError::io("make a directory for the trace"))?;
    let lines = folder.0.join("lines");
    let mut file = File::create_new(&lines).map_err(CliError::io("make a file for the trace"))?;
    drop(file);
    file = File::open(&lines).map_err(CliError::io("read the trace"))?;
    let out: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout()),
        Some(path) => {
            let made = File::create(path).map_err(CliError::io("write the output file"))?;
            Box::new(made)
        }
    };
    let mut variable = lines.into_os_string();
    if args.json {
        variable.push(",json");
    }
    command.env("SRDMA_TRACE", variable);
    if let Some(path) = &args.pcap {
        let path = fresh(path).map_err(CliError::io("write the capture"))?;
        command.env("SRDMA_PCAP", path);
        // Who reads it knows what the specification has.
        let told = command.get_envs().any(|(name, _)| name == "SRDMA_WIRE");
        if !told && std::env::var_os("SRDMA_WIRE").is_none() {
            command.env("SRDMA_WIRE", "plain");
        }
    }
    let child = command.spawn();
    let mut child = child.map_err(|source| run::cannot_start(&command, source))?;
    srdma_net::trace::outlive_interrupts();
    let mut merger = Merger::new(out);
    let status = loop {
        let ended = child
            .try_wait()
            .map_err(CliError::io("wait for the program"))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .map_err(CliError::io("read the trace"))?;
        let more = merger.feed(&text, ended.is_some());
        if let Some(status) = ended {
            break status;
        }
        if more {
            std::thread::sleep(PERIOD);
        } else {
            // Nobody reads what we say; the program goes on.
            break child.wait().map_err(CliError::io("wait for the program"))?;
        }
    };
    Ok(code(status))
}

/// An empty file, by a path that children in other directories can use.
fn fresh(path: &Path) -> io::Result<PathBuf> {
    File::create(path)?;
    std::path::absolute(path)
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A directory of ours alone; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let name = format!("srdma-trace-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = DirBuilder::new();
        let builder = builder.mode(0o700);
        match builder.create(&path) {
            // Left behind by a process that had our number, and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&path)?;
                builder.create(&path)?;
            }
            made => made?,
        }
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Somebody else has cleaned up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
