//! Peer processes: this test program once more, with a role in its environment.
//!
//! ```text
//! parent                               child
//!   │ ROLE, ADDR, SOCKETS  ─────────────►│ opens its device
//!   │◄────────────── @ endpoints, memory │
//!   │ endpoints, memory  ───────────────►│ connects
//!   │◄───────────────────────── @ ready  │ … until killed, or until its input closes
//! ```
//!
//! A child's lines begin with `@`, so that what the test runner prints is told apart. A child ends
//! with its parent, however that ends.

use crate::common::*;
use serde::{Deserialize, Serialize};
use srdma_verbs::{PreparedQp, Qp, QpBuilder, QpEndpoint, QpType, Rkey, WrId};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::LazyLock;

pub(crate) const ROLE: &str = "SRDMA_TEST_ROLE";
const ADDR: &str = "SRDMA_TEST_ADDR";
const SOCKETS: &str = "SRDMA_TEST_SOCKETS";
const QPS: &str = "SRDMA_TEST_QPS";

/// Memory that each side opens to the other.
pub(crate) const MEMORY: usize = 4 << 20;
/// Length of a SEND of the sending child: several packets.
pub(crate) const MESSAGE: usize = 300_000;

/// What this process is to play; `None` in the parent.
pub(crate) fn role() -> Option<&'static str> {
    static MINE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(ROLE).ok());
    MINE.as_deref()
}

/// One side, as the other must know it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) endpoints: Vec<QpEndpoint>,
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl Introduction {
    pub(crate) fn rkey(&self) -> Rkey {
        Rkey(self.rkey)
    }
}

/// Short timeouts, so that a dead peer is noticed soon: 33 ms, six times. Shorter ones take a
/// living peer for dead where other programs keep it from running.
pub(crate) fn impatient<'a>(builder: QpBuilder<'a>) -> QpBuilder<'a> {
    builder.timeout(13).retry_cnt(5)
}

/// A child process. Killed when dropped.
pub(crate) struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) intro: Introduction,
}

impl Peer {
    /// Starts a child that plays `role` on `addr`, with so many queue pairs.
    pub(crate) fn start(role: &str, addr: IpAddr, sockets: Sockets, qps: usize) -> Self {
        let mut child = command(role, addr, sockets, qps).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let intro = serde_json::from_str(&hear(&mut lines)).unwrap();
        Self {
            child,
            lines,
            intro,
        }
    }

    /// Starts a child that plays `role` as another user, and gives up what it says at last.
    pub(crate) fn confess(role: &str, addr: IpAddr, user: u32) -> String {
        let mut child = command(role, addr, Sockets::DEFAULT, 0);
        let said = child.uid(user).gid(user).output().unwrap();
        let mut output = BufReader::new(&said.stdout[..]);
        hear(&mut output)
    }

    /// Tells the child about us; it connects and begins.
    pub(crate) fn meet(&mut self, ours: &Introduction) {
        let mut line = serde_json::to_string(ours).unwrap();
        line.push('\n');
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        assert_eq!(hear(&mut self.lines), "ready");
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only if it was killed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(role: &str, addr: IpAddr, sockets: Sockets, qps: usize) -> Command {
    let Sockets { gso, gro, small } = sockets;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "peer::child", "--nocapture"])
        .env(ROLE, role)
        .env(ADDR, addr.to_string())
        .env(SOCKETS, format!("{gso} {gro} {small}"))
        .env(QPS, qps.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// What a child says next.
fn hear(lines: &mut impl BufRead) -> String {
    loop {
        let mut line = String::new();
        let len = lines.read_line(&mut line).unwrap();
        assert_ne!(len, 0, "the child has ended");
        if let Some((_, said)) = line.split_once('@') {
            return said.trim().to_owned();
        }
    }
}

/// Introduces `qps` to a peer, with memory of ours.
pub(crate) fn introduce(qps: &[PreparedQp], mr: &srdma_verbs::Mr) -> Introduction {
    Introduction {
        endpoints: qps.iter().map(PreparedQp::endpoint).collect(),
        addr: mr.addr(),
        rkey: mr.rkey().0,
    }
}

pub(crate) fn connect_all(qps: Vec<PreparedQp>, theirs: &Introduction) -> Vec<Qp> {
    qps.into_iter()
        .zip(&theirs.endpoints)
        .map(|(qp, peer)| qp.connect(peer).unwrap())
        .collect()
}

/// What a child runs; nothing in the parent.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let var = |name| std::env::var(name).unwrap();
    let flags: Vec<bool> = var(SOCKETS)
        .split(' ')
        .map(|flag| flag.parse().unwrap())
        .collect();
    let [gso, gro, small] = flags[..] else {
        panic!("{flags:?}")
    };
    let sockets = Sockets { gso, gro, small };
    if role == "intrude" {
        let opened = sockets.on(var(ADDR).parse().unwrap()).open();
        return say(&opened.unwrap_err().to_string());
    }
    let side = Side::new(sockets.on(var(ADDR).parse().unwrap()));
    let mr = side.pattern(MEMORY, 5);
    let count: usize = var(QPS).parse().unwrap();
    let qps: Vec<PreparedQp> = (0..count)
        .map(|_| side.qp(QpType::Rc).build().unwrap())
        .collect();
    say(&serde_json::to_string(&introduce(&qps, &mr)).unwrap());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let theirs: Introduction = serde_json::from_str(&line).unwrap();
    std::thread::spawn(|| {
        // Nothing more is said: reading ends when the parent does.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let qps = connect_all(qps, &theirs);
    match role {
        "brief" => brief(&side, &qps, &mr, &theirs),
        "serve" => serve(&side, &qps, &mr),
        "send" => send(&side, &qps, &mr, &theirs),
        other => panic!("no role {other}"),
    }
}

fn say(text: &str) {
    println!("@{text}");
    std::io::stdout().flush().unwrap();
}

/// Receives for ever.
fn serve(side: &Side, qps: &[Qp], mr: &srdma_verbs::Mr) {
    let post = |at: usize, count: usize| {
        let mut batch = qps[at].post_recv();
        for _ in 0..count {
            batch.recv(WrId(at as u64)).local(mr.sge(..8192));
        }
        batch.ring().unwrap();
    };
    (0..qps.len()).for_each(|at| post(at, 64));
    say("ready");
    loop {
        if let Some(wc) = wait(&side.cq) {
            post(wc.wr_id().0 as usize, 1);
        }
    }
}

/// Writes once, and ends.
fn brief(side: &Side, qps: &[Qp], mr: &srdma_verbs::Mr, theirs: &Introduction) {
    for qp in qps {
        let mut batch = qp.post_send();
        let write = batch.write(WrId(1)).local(mr.sge(..100_000));
        write.remote(theirs.addr, theirs.rkey()).signaled();
        batch.ring().unwrap();
        done(&side.cq);
    }
    say("ready");
}

/// Sends and writes for ever: eight requests outstanding on each queue pair.
fn send(side: &Side, qps: &[Qp], mr: &srdma_verbs::Mr, theirs: &Introduction) {
    say("ready");
    let post = |at: usize| {
        let mut batch = qps[at].post_send();
        batch
            .write(WrId(at as u64))
            .local(mr.sge(..100_000))
            .remote(theirs.addr, theirs.rkey());
        batch
            .send(WrId(at as u64))
            .local(mr.sge(..MESSAGE))
            .signaled();
        batch.ring().unwrap();
    };
    for at in 0..qps.len() {
        (0..4).for_each(|_| post(at));
    }
    loop {
        if let Some(wc) = wait(&side.cq) {
            assert!(wc.is_ok(), "{wc:?}");
            post(wc.wr_id().0 as usize);
        }
    }
}
