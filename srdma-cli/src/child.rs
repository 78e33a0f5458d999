//! Processes that we start from our own program, and talk with in JSON lines.
//!
//! ```text
//! parent                                   child (same binary, hidden subcommand)
//!   │ stdin  (kept open, nothing said) ───────►│ ends when it closes
//!   │◄─────────────── stdout: one JSON value a line │
//! ```
//!
//! A child ends when its parent goes, however it goes: the pipe closes with it. The parent ends its
//! children by id, waits for them, and waits for no line longer than it says.

use crate::error::{CliError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two looks at whether a child has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Where a child runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where we do.
    #[default]
    Here,
    /// In the network of another process; among its users and mounts as well, if `user`.
    Beside {
        /// The other process.
        pid: u32,
        /// It has namespaces of users and mounts for itself.
        user: bool,
    },
}

impl Place {
    /// A command that runs `program` there, as the process that is started.
    pub(crate) fn command(self, program: &OsStr) -> Command {
        let Self::Beside { pid, user } = self else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--net"]);
        if user {
            command.args(["--user", "--mount", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command
    }
}

/// A child and what it says. Ended when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
    role: &'static str,
}

impl Child {
    /// Starts our own program with `args`; `role` is its name in errors.
    pub(crate) fn start(role: &'static str, args: &[String]) -> Result<Self> {
        Self::start_at(Place::Here, role, args)
    }

    /// The same, at a place.
    pub(crate) fn start_at(place: Place, role: &'static str, args: &[String]) -> Result<Self> {
        let program = std::env::current_exe().map_err(CliError::io("find our own program"))?;
        let mut process = place
            .command(program.as_os_str())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(CliError::io("start a process"))?;
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            // Ends with the child's end of the pipe, so nobody has to wait for it.
            std::thread::spawn(move || {
                for line in BufReader::new(stdout)
                    .lines()
                    .map_while(core::result::Result::ok)
                {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            process,
            lines,
            role,
        })
    }

    /// The next value that the child says.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T> {
        let role = self.role;
        match self.lines.recv_timeout(within) {
            Ok(line) => serde_json::from_str(&line).map_err(|_| CliError::garbled(role, &line)),
            Err(RecvTimeoutError::Timeout) => Err(CliError::ChildSilent { role, within }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// Waits for its end, which must be a good one. A child that takes longer is ended.
    pub(crate) fn finish(mut self, within: Duration) -> Result<()> {
        let role = self.role;
        let start = Instant::now();
        while start.elapsed() < within {
            match self.process.try_wait() {
                Ok(None) => std::thread::sleep(LOOK),
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let status = status.to_string();
                    return Err(CliError::ChildEnded { role, status });
                }
                Err(source) => return Err(CliError::io("wait for a process")(source)),
            }
        }
        Err(CliError::ChildSilent { role, within })
    }

    /// The error for a child that closed its output.
    fn ended(&mut self) -> CliError {
        // A child that closed its output without ending is ended here.
        std::thread::sleep(Duration::from_millis(20));
        let status = match self.process.try_wait() {
            Ok(Some(status)) => status.to_string(),
            _ => "still running".to_owned(),
        };
        CliError::ChildEnded {
            role: self.role,
            status,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if the child has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Child: ends this process when the parent's end of our input closes.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let mut input = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while input.read(&mut bytes).is_ok_and(|len| len > 0) {}
        std::process::exit(0);
    });
}

/// Child: says one value to the parent.
pub(crate) fn say<T: Serialize>(value: &T) -> Result<()> {
    let mut line =
        serde_json::to_string(value).map_err(|_| CliError::garbled("program", "json"))?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .map_err(CliError::io("write to the parent process"))
}
