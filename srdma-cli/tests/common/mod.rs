//! What the tests of the program share: running it, and reading what it says.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A guard against hanging, not a measure of anything.
const HANG: Duration = Duration::from_secs(120);

/// The program, with no settings of the user who runs the tests.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srdma-cli"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("SRDMA_DEVICES").env("SRDMA_CONFIG", "");
    command.env_remove("SRDMA_WIRE");
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the program, which must succeed; returns what it printed.
pub(crate) fn srdma(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// One value a line.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A loopback address that no other test uses, in this process or another.
pub(crate) fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed) & 0x3f;
    let low = (std::process::id() << 6 | next) & 0x3f_ffff;
    std::net::Ipv4Addr::from(0x7f80_0000 | low).to_string()
}

/// A folder of its own. Removed when dropped, with all that is in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let test = std::env::current_exe().unwrap();
        let test = test.file_name().unwrap().to_string_lossy();
        let name = format!("srdma-{test}-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What is there under this name, or may be.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// There is such a program; else a line says that a test is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let there = found.unwrap().status.success();
    if !there {
        println!("skip: {program} is not installed");
    }
    there
}

/// Waits for something that comes in the end.
pub(crate) fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < HANG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process exists and is no zombie.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !stat.is_empty() && state != Some('Z')
}

/// The program at work; killed when dropped.
pub(crate) struct Background {
    child: Child,
    /// Where a server listens.
    pub(crate) host: String,
}

impl Background {
    /// Starts the program.
    pub(crate) fn start(args: &[&str]) -> Self {
        let child = command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self {
            child: child.unwrap(),
            host: String::new(),
        }
    }

    /// Starts a server on `address`, and waits until it listens.
    pub(crate) fn server(address: &str, options: &[&str]) -> Self {
        let listen = format!("{address}:0");
        let args = ["perf", "server", "--listen", &listen];
        let mut server = Self::start(&[&args[..], options].concat());
        let mut line = String::new();
        let mut out = BufReader::new(server.child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let host = line.split_whitespace().find(|word| word.contains(address));
        server.host = host.unwrap().trim_end_matches(';').to_owned();
        // What it says later is read, so that it never waits for us.
        std::thread::spawn(move || out.read_to_string(&mut line));
        server
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end; returns the status and what was said on standard error.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut errors = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        (status.unwrap(), errors)
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.map_or(0, Iterator::count)
    }

    /// Processes that it has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let pid = self.child.id();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
