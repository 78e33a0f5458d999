//! `srdma-cli perf` on two hosts: starting both sides, and what they say.

use serde_json::Value;
use srdma_tests::netns::Namespace;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Packets of a host after which traffic is under way.
const UNDER_WAY: u64 = 500;

/// A server on one host. Ended when dropped.
pub(crate) struct Host {
    child: Child,
    addr: String,
}

impl Host {
    /// Starts a server on `addr` and waits until it listens.
    pub(crate) fn server(host: &Namespace, program: &Path, addr: &str, way: &[&str]) -> Self {
        let listen = if addr.contains(':') {
            format!("[{addr}]:0")
        } else {
            format!("{addr}:0")
        };
        let mut child = host
            .command(program)
            .args(["perf", "server", "--child", "--once", "--listen", &listen])
            .args(way)
            // It ends when this closes: with us.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let addr = said["addr"].as_str().unwrap().to_owned();
        Self { child, addr }
    }

    /// A client of this server.
    pub(crate) fn client(
        &self,
        host: &Namespace,
        program: &Path,
        ours: &str,
        way: &[&str],
    ) -> Client {
        let mut command = host.command(program);
        command
            .args(["perf", "client", &self.addr, "--address", ours, "--json"])
            .args(way)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Client { command }
    }

    /// Serves a client to its end; what it measured.
    pub(crate) fn serve(
        &self,
        host: &Namespace,
        program: &Path,
        ours: &str,
        way: &[&str],
        seconds: &str,
    ) -> Vec<Value> {
        let mut client = self.client(host, program, ours, way);
        let output = client.command.args(["--duration", seconds]).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn end(&mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the server ended with {status}");
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only if it has ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that is still to be started.
pub(crate) struct Client {
    command: Command,
}

impl Client {
    /// Starts it.
    pub(crate) fn spawn(mut self) -> Child {
        self.command.spawn().unwrap()
    }

    /// Starts it, and waits until packets flow on its host.
    pub(crate) fn spawn_and_wait_for_traffic(self, host: &Namespace) -> Child {
        let before = packets(host);
        let mut client = self.spawn();
        while packets(host) < before + UNDER_WAY {
            if let Some(status) = client.try_wait().unwrap() {
                let mut text = String::new();
                let errors = client.stderr.as_mut().unwrap();
                errors.read_to_string(&mut text).unwrap();
                panic!("the client ended early, {status}: {text}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        client
    }
}

/// Packets that the cable's end on `host` has sent and received.
fn packets(host: &Namespace) -> u64 {
    let mut command = host.command(Path::new("cat"));
    let statistics = "/sys/class/net/cable/statistics/";
    let output =
        command.args(["rx_packets", "tx_packets"].map(|name| format!("{statistics}{name}")));
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    text.lines()
        .map(|line| line.trim().parse::<u64>().unwrap_or(0))
        .sum()
}
