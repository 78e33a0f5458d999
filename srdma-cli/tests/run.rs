//! `run` and `env` as a user calls them: variables, exit status, signals, what is shown and what is
//! warned of.
//!
//! Programs here are those that every machine has; verbs programs have tests of their own.

#![allow(
    clippy::tests_outside_test_module,
    reason = "all of this file is a test"
)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod common;

use common::{Folder, command};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A user of its own: a place for directories.
struct User(Folder);

impl User {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn cli(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("XDG_CACHE_HOME", self.0.path());
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "SRDMA_LIB"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a line of shell under `run`.
    fn shell(&self, line: &str) -> Output {
        self.cli(&["run", "--", "sh", "-c", line]).output().unwrap()
    }

    /// The directories that were made.
    fn made(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("srdma")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_exit_status_is_the_programs() {
    let user = User::new();
    for status in [0, 1, 42, 255] {
        let output = user.shell(&format!("exit {status}"));
        assert_eq!(
            output.status.code(),
            Some(status),
            "{}",
            text(&output.stderr)
        );
        assert_eq!(text(&output.stderr), "");
    }
    assert_eq!(user.shell("kill -TERM $$").status.signal(), Some(15));
}

#[test]
fn what_cannot_start_has_a_status_of_its_own() {
    let user = User::new();
    let file = user.0.join("data");
    fs::write(&file, "no program").unwrap();
    for (program, status) in [("/nonexistent/program", 127), (file.to_str().unwrap(), 126)] {
        let output = user.cli(&["run", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{program}");
        assert!(text(&output.stderr).contains(program));
    }
    let mut bad = user.cli(&["run", "true"]);
    let output = bad.env("SRDMA_DEVICES", "a=").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("SRDMA_DEVICES"));
}

#[test]
fn no_process_of_ours_remains() {
    let user = User::new();
    let mut run = user.cli(&["run", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(
        line.trim(),
        child.id().to_string(),
        "the program is the process itself"
    );
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn arguments_and_input_are_the_programs() {
    let user = User::new();
    let output = user
        .cli(&["run", "printf", "%s|", "-a", "--help", "b c"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "-a|--help|b c|");
    let output = user
        .cli(&["run", "--", "echo", "--", "x"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "-- x\n");
}

#[test]
fn the_second_run_makes_nothing() {
    let user = User::new();
    assert!(user.shell(":").status.success());
    let made = user.made();
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(user.shell(":").status.success());
    assert_eq!(user.made(), made);
    let mode = fs::metadata(user.0.join("srdma"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn runs_at_once_do_not_disturb_each_other() {
    let user = User::new();
    let line = "cat /sys/class/infiniband/srdma0/ports/1/link_layer && exit 7";
    let start = || {
        let mut run = user.cli(&["run", "--", "sh", "-c", line]);
        run.stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(|_| start()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "Ethernet\n");
    }
    assert_eq!(user.made().len(), 2);
}

#[test]
fn devices_are_shown_where_programs_look() {
    let user = User::new();
    let addr = common::address();
    let line = "cd /sys/class/infiniband && echo * && cat host9/node_type; \
        test -c /dev/infiniband/uverbs0 && test -w /dev/infiniband/uverbs0 && echo device; \
        cat /sys/class/infiniband_verbs/uverbs0/ibdev; ls /sys/class/infiniband/host9/device/net";
    let mut run = user.cli(&["run", "--", "sh", "-c", line]);
    let output = run
        .env("SRDMA_DEVICES", format!("host9={addr}"))
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "host9\n1: CA\ndevice\nhost9\nlo\n");
    let none = user
        .cli(&["run", "--no-shim", "ls", "/dev/infiniband"])
        .output()
        .unwrap();
    let real = Path::new("/dev/infiniband").exists();
    assert_eq!(
        none.status.success(),
        real,
        "without the shim all is as it is"
    );
}

#[test]
fn env_says_what_run_sets() {
    let user = User::new();
    let shown = user.cli(&["env"]).output().unwrap();
    assert!(shown.status.success());
    let script = format!("{}\nenv", text(&shown.stdout));
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap());
    let ours = |output: &[u8]| {
        let text = text(output);
        let mut lines: Vec<_> = text
            .lines()
            .filter(|line| {
                ["LD_", "SRDMA_SYSFS", "OMPI_"]
                    .iter()
                    .any(|p| line.starts_with(p))
            })
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let by_env = ours(&shell.output().unwrap().stdout);
    let by_run = ours(&user.cli(&["run", "env"]).output().unwrap().stdout);
    assert_eq!(by_env.len(), 5, "{by_env:?}");
    assert_eq!(by_env, by_run);
    // Twice is as once.
    let program = env!("CARGO_BIN_EXE_srdma-cli");
    let twice = user
        .cli(&["run", "--", program, "run", "env"])
        .output()
        .unwrap();
    assert_eq!(ours(&twice.stdout), by_run);
}

#[test]
fn the_bridge_is_for_who_asks() {
    let user = User::new();
    let said = |args: &[&str]| text(&user.cli(args).output().unwrap().stdout);
    assert!(!said(&["run", "env"]).contains("SRDMA_WIRE"));
    assert!(said(&["run", "--bridge", "env"]).contains("\nSRDMA_WIRE=bridge\n"));
    assert!(said(&["env", "--bridge"]).contains("export SRDMA_WIRE='bridge'"));
    let findings = said(&["doctor"]);
    assert!(findings.contains("share memory"), "{findings}");
}

#[test]
fn what_the_user_has_set_stays() {
    let user = User::new();
    let mut run = user.cli(&["run", "env"]);
    run.env("LD_LIBRARY_PATH", "/mine:")
        .env("OMPI_MCA_opal_common_ucx_tls", "mine");
    let text = text(&run.output().unwrap().stdout);
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_default().to_owned()
    };
    assert!(value("LD_LIBRARY_PATH").ends_with(":/mine:"), "{text}");
    assert_eq!(value("OMPI_MCA_opal_common_ucx_tls"), "mine");
    assert_eq!(value("OMPI_MCA_opal_common_ucx_devices"), "any");
}

#[test]
fn our_library_is_found_by_all_its_names() {
    let user = User::new();
    let output = user.shell("ls -L \"${LD_LIBRARY_PATH%%:*}\"");
    let names = text(&output.stdout);
    for name in [
        "libibverbs.so",
        "libibverbs.so.1",
        "librdmacm.so",
        "librdmacm.so.1",
        "libsrdma.so",
        "libsrdma_pathshim.so",
    ] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
}

#[test]
fn programs_out_of_reach_are_warned_of() {
    let user = User::new();
    let script = user.0.join("script");
    fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = user.cli(&["run"]).arg(&script).output().unwrap();
    assert_eq!(
        (output.status.code(), &*text(&output.stderr)),
        (Some(3), "")
    );
    // A program for no machine that we know: warned of, then tried all the same.
    let odd = user.0.join("odd");
    fs::write(
        &odd,
        [b"\x7fELF\x01\x01\x01".as_slice(), &[0; 100]].concat(),
    )
    .unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o755)).unwrap();
    let output = user.cli(&["run"]).arg(&odd).output().unwrap();
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("warning"),
        "{}",
        text(&output.stderr)
    );
    let output = user.cli(&["run", "--quiet"]).arg(&odd).output().unwrap();
    assert!(
        !text(&output.stderr).contains("warning"),
        "{}",
        text(&output.stderr)
    );
}
