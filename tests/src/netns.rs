//! Network namespaces: hosts of a test, made with `ip` and removed when dropped.
//!
//! ```text
//! Namespace "srdma-PID-a" ── veth ─────── veth ── Namespace "srdma-PID-b"
//!   10.x.y.1  fd00::1                                10.x.y.2  fd00::2
//! ```
//!
//! Where namespaces are forbidden the error says so, and a test may be skipped; every other failure
//! is one. Interfaces go with the namespace that they are in, and what a killed test leaves behind
//! goes with the next one that is made.

use std::path::Path;
use std::process::{Command, Output};

/// Why there is no namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// We may not make one, or there is no `ip`.
    #[error("network namespaces are forbidden: {0}")]
    Forbidden(String),
    /// `ip` failed.
    #[error("ip {args}: {text}")]
    Failed {
        /// What it was asked.
        args: String,
        /// What it said.
        text: String,
    },
}

/// A network namespace with its loopback up. Removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one; `tag` tells those of one process apart.
    pub fn new(tag: &str) -> Result<Self, NetnsError> {
        remove_orphans();
        let name = format!("srdma-{}-{tag}", std::process::id());
        match ip(&["netns", "add", &name]) {
            Ok(()) => {}
            Err(NetnsError::Failed { text, .. }) => return Err(NetnsError::Forbidden(text)),
            Err(error) => return Err(error),
        }
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside.
    pub fn ip(&self, args: &[&str]) -> Result<(), NetnsError> {
        let mut all = vec!["-n", &self.name];
        all.extend(args);
        ip(&all)
    }

    /// A command that runs `program` inside. It ends as the program does, and has its process id.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Joins two namespaces by a cable of this MTU. Each end has the addresses given.
    pub fn join(
        &self,
        other: &Self,
        mtu: u16,
        ours: &[&str],
        theirs: &[&str],
    ) -> Result<(), NetnsError> {
        let mtu = mtu.to_string();
        self.ip(&[
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            &other.name,
        ])?;
        for (end, addrs) in [(self, ours), (other, theirs)] {
            end.ip(&["link", "set", "cable", "mtu", &mtu, "up"])?;
            for addr in addrs {
                if addr.contains(':') {
                    end.ip(&["addr", "add", addr, "dev", "cable", "nodad"])?;
                } else {
                    end.ip(&["addr", "add", addr, "dev", "cable"])?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nobody to tell; the name shows whose it was.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// Removes what tests left behind that were killed: nobody has the process id in its name.
fn remove_orphans() {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else {
        return;
    };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let owner = name
            .strip_prefix("srdma-")
            .and_then(|rest| rest.split('-').next());
        let pid = owner.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another test may have been quicker.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), NetnsError> {
    let done = Command::new("ip").args(args).output();
    let done: Output = done.map_err(|error| NetnsError::Forbidden(format!("no `ip`: {error}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(NetnsError::Failed {
        args: args.join(" "),
        text: String::from_utf8_lossy(&done.stderr).trim().to_owned(),
    })
}
