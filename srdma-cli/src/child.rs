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
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

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
        let program = std::env::current_exe().map_err(CliError::io("find our own program"))?;
        let mut process = Command::new(program)
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
