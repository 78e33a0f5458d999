//! Two hosts on this machine, joined by a cable of Ethernet's MTU: what a path MTU of 1024 takes.
//!
//! ```text
//! we ── unshare --net [--user] ── a: 10.77.0.1 ═══ veth, 1500 ═══ b: 10.77.0.2
//! ```
//!
//! A process of each host keeps it alive, and ends when its input closes: with us. Root needs no
//! namespace of users; others are given one, where the kernel lets them. There they are called
//! root, so they have a `/dev/shm` for themselves: root's own devices must not meet theirs.

use crate::child::Place;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};

/// The MTU of the cable.
const MTU: &str = "1500";

/// The two hosts. They go when this is dropped.
#[derive(Debug)]
pub(super) struct Cable {
    hosts: [Host; 2],
}

impl Cable {
    /// Addresses of its ends.
    pub(super) const ADDRS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
    ];

    /// Makes both hosts; says why not, if that is forbidden.
    pub(super) fn lay() -> Result<Self, String> {
        let user = !rustix::process::geteuid().is_root();
        let mut unshare = Command::new("unshare");
        unshare.arg("--net");
        if user {
            unshare.args(["--user", "--map-root-user", "--mount"]);
        }
        let first = Host::open(unshare, user)?;
        if user {
            first.run("mount", &["-t", "tmpfs", "srdma", "/dev/shm"])?;
        }
        // The second belongs to the first one's users, so that those may set up both.
        let mut unshare = first.place().command(OsStr::new("unshare"));
        unshare.arg("--net");
        let second = Host::open(unshare, user)?;
        let pid = second.keeper.id().to_string();
        first.ip(&[
            "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &pid,
        ])?;
        let hosts = [first, second];
        for (host, addr) in hosts.iter().zip(Self::ADDRS) {
            let addr = format!("{addr}/24");
            host.ip(&["link", "set", "lo", "up"])?;
            host.ip(&["addr", "add", &addr, "dev", "cable"])?;
            host.ip(&["link", "set", "cable", "mtu", MTU, "up"])?;
        }
        Ok(Self { hosts })
    }

    /// Where programs of the two hosts run.
    pub(super) fn places(&self) -> [Place; 2] {
        self.hosts.each_ref().map(Host::place)
    }
}

/// One host, for as long as its keeper lives.
#[derive(Debug)]
struct Host {
    keeper: Child,
    user: bool,
}

impl Host {
    /// Starts a keeper: `cat`, which repeats a line when it is there.
    fn open(mut unshare: Command, user: bool) -> Result<Self, String> {
        let started = unshare
            .args(["--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let keeper = started.map_err(|error| format!("no program `unshare`: {error}"))?;
        let mut host = Self { keeper, user };
        let said = host.echo();
        if said.as_deref() == Some("here\n") {
            return Ok(host);
        }
        let mut text = String::new();
        if let Some(errors) = host.keeper.stderr.take() {
            // Its end is the end of the program.
            let _ = BufReader::new(errors).read_line(&mut text);
        }
        Err(format!("network namespaces are forbidden: {}", text.trim()))
    }

    fn echo(&mut self) -> Option<String> {
        let input = self.keeper.stdin.as_mut()?;
        input.write_all(b"here\n").ok()?;
        input.flush().ok()?;
        let mut said = String::new();
        let output = self.keeper.stdout.as_mut()?;
        BufReader::new(output).read_line(&mut said).ok()?;
        Some(said)
    }

    fn place(&self) -> Place {
        Place::Beside {
            pid: self.keeper.id(),
            user: self.user,
        }
    }

    fn ip(&self, args: &[&str]) -> Result<(), String> {
        self.run("ip", args)
    }

    /// Runs a program on this host to its good end.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let mut command = self.place().command(OsStr::new(program));
        let done = command.args(args).output();
        let done = done.map_err(|error| format!("no program `nsenter`: {error}"))?;
        if done.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&done.stderr);
        Err(format!("{program} {}: {}", args.join(" "), text.trim()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only if it has ended before.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
