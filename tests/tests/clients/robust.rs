//! The same programs, killed, crowded, and with no privilege.

use crate::place::{Host, SETPRIV, WITH_US, address};
use crate::run::{self, Running, free_port, serve, visit};
use srdma_tests::program::program;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Nobody, on every Linux.
const NOBODY: &str = "65534";

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// How many devices have blocks of numbers on `addr`.
fn taken(addr: &str) -> usize {
    let blocks = srdma_net::share::taken(addr.parse().unwrap()).unwrap();
    let mut ports: Vec<u16> = blocks.into_iter().map(|(_, port)| port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.len()
}

/// A server and its client, under way.
struct Pair {
    server: Running,
    client: Running,
}

impl Pair {
    fn start(host: &Host, line: &[String]) -> Self {
        let port = free_port();
        let server = serve(host, line, port).unwrap();
        let client = visit(host, line, port, "127.0.0.1");
        Self { server, client }
    }
}

/// Three pairs write on one address; one process is killed, the one at the door among them.
#[test]
fn whoever_is_killed_the_others_go_on() {
    if !run::is_installed("ib_write_bw") {
        println!("skip: perftest is not installed");
        return;
    }
    let addr = address();
    let host = Host::local("here", &addr);
    let line = words("stdbuf -oL ib_write_bw -F -D 4");
    for victim in ["server at the door", "client", "last server"] {
        let mut pairs: Vec<Pair> = (0..3).map(|_| Pair::start(&host, &line)).collect();
        for pair in &mut pairs {
            // It prints the peer's address when both are connected.
            pair.client.says("remote address").unwrap();
        }
        std::thread::sleep(Duration::from_millis(700));
        let mut doomed = match victim {
            "last server" => pairs.remove(2),
            // The first process of an address has its door.
            _ => pairs.remove(0),
        };
        for pair in &mut pairs {
            assert!(
                pair.client.ended().is_none(),
                "{}",
                pair.client.report("ended")
            );
        }
        let mut widow = if victim == "client" {
            doomed.client.kill();
            doomed.server
        } else {
            doomed.server.kill();
            doomed.client
        };
        for pair in &mut pairs {
            pair.client
                .finish()
                .unwrap_or_else(|text| panic!("{victim}: {text}"));
            pair.server
                .finish()
                .unwrap_or_else(|text| panic!("{victim}: {text}"));
        }
        let Some(status) = widow.wait() else {
            panic!("{victim}: {}", widow.report("does not notice"));
        };
        assert!(
            !status.success(),
            "{victim}: {}",
            widow.report("ended well")
        );
        assert_eq!(taken(&addr), 0, "{victim}: blocks are left");
    }
}

/// Processes come and go, one after another.
#[test]
fn two_hundred_one_after_another() {
    if !run::is_installed("ibv_devinfo") {
        println!("skip: ibverbs-utils is not installed");
        return;
    }
    let addr = address();
    let host = Host::local("here", &addr);
    for round in 0..200 {
        if round % 8 == 0 {
            let mut pair = Pair::start(&host, &words("ibv_rc_pingpong -g 0 -c -n 20"));
            pair.client.finish().unwrap();
            pair.server.finish().unwrap();
        } else {
            Running::start(host.command(&["ibv_devinfo"]))
                .finish()
                .unwrap();
        }
    }
    assert_eq!(taken(&addr), 0);
}

/// Sixteen pairs at once, and as many that only look.
#[test]
fn thirty_two_at_once() {
    if !run::is_installed("ibv_devinfo") {
        println!("skip: ibverbs-utils is not installed");
        return;
    }
    let addr = address();
    let host = Host::local("here", &addr);
    let mut looking: Vec<Running> = (0..32)
        .map(|_| Running::start(host.command(&["ibv_devinfo", "-v"])))
        .collect();
    for program in &mut looking {
        program.finish().unwrap();
    }
    let mut pairs: Vec<Pair> = (0..16)
        .map(|_| Pair::start(&host, &words("ibv_rc_pingpong -g 0 -c -e -n 500")))
        .collect();
    for pair in &mut pairs {
        pair.client.finish().unwrap();
        pair.server.finish().unwrap();
    }
    assert_eq!(taken(&addr), 0);
}

/// A copy of our program where everybody can reach it. Removed when dropped.
struct Copied(PathBuf);

impl Copied {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("srdma-nobody-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&folder, open).unwrap();
        std::fs::copy(program(), folder.join("srdma-cli")).unwrap();
        Self(folder)
    }

    /// `line` run by nobody, who may lock 64 KiB of memory.
    fn command(&self, devices: &str, line: &str) -> Command {
        let run = self.0.join("srdma-cli");
        let script = format!("ulimit -l 64; exec {} run --quiet -- {line}", run.display());
        let mut command = Command::new(SETPRIV);
        command
            .args(WITH_US)
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .args(["sh", "-c", &script])
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("SRDMA_DEVICES", devices)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// True if other users can be played.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let ours = std::fs::metadata("/proc/self").unwrap();
    if ours.uid() != 0 {
        println!("skip: not root, so nobody else can be played");
    }
    ours.uid() == 0
}

#[test]
fn an_unprivileged_user_needs_nothing() {
    if !is_root() || !run::is_installed("ib_write_bw") || !run::is_installed("ibv_devinfo") {
        return;
    }
    let copied = Copied::new();
    let devices = format!("here={}", address());
    for line in [
        "ibv_rc_pingpong -g 0 -c -s 4194304 -n 10",
        "ibv_ud_pingpong -g 0 -c -e",
        "ib_write_bw -F -n 2000 -s 1048576",
        "ib_send_bw -F -c UC -n 2000",
    ] {
        let port = free_port();
        let served = format!("{line} -p {port}");
        let mut server = Running::start(copied.command(&devices, &served));
        server.listens(port).unwrap();
        let visiting = format!("{served} 127.0.0.1");
        let mut client = Running::start(copied.command(&devices, &visiting));
        client.finish().unwrap();
        server.finish().unwrap();
    }
}

#[test]
fn a_second_user_is_told_whose_address_it_is() {
    if !is_root() || !run::is_installed("ibv_rc_pingpong") {
        return;
    }
    let copied = Copied::new();
    let addr = address();
    let host = Host::local("here", &addr);
    let line = words("ibv_rc_pingpong -g 0");
    let _server = serve(&host, &line, free_port()).unwrap();
    let devices = format!("here={addr}");
    let mut intruder = Running::start(copied.command(&devices, "ibv_devinfo"));
    let status = intruder.wait().expect("it hangs");
    let said = intruder.said();
    assert!(!status.success(), "{said}");
    for word in ["user root", "cannot share", "4791", &addr] {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}
