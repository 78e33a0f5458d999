//! Verbs programs of the system under `run`: they find our devices, by the library and by files.
//!
//! A program that is not installed is skipped with a message; `tests/run` installs them.

#![allow(
    clippy::tests_outside_test_module,
    reason = "all of this file is a test"
)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use common::{Folder, address, command, is_installed};
use std::process::Output;

/// Where directories of this test go.
struct Cache(Folder);

impl Cache {
    /// What `program` says; `None` if it is not here.
    fn run(&self, devices: &str, program: &str, args: &[&str]) -> Option<String> {
        if !is_installed(program) {
            return None;
        }
        let mut run = command(&["run", "--", program]);
        run.args(args).env("XDG_CACHE_HOME", self.0.path());
        run.env("SRDMA_DEVICES", devices).env_remove("SRDMA_LIB");
        let output = run.output().unwrap();
        assert!(output.status.success(), "{program}: {}", said(&output));
        Some(said(&output))
    }
}

fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

#[test]
fn devices_are_listed_in_their_order() {
    let cache = Cache(Folder::new());
    let devices = format!("host2={},host1={}", address(), address());
    let Some(text) = cache.run(&devices, "ibv_devices", &[]) else {
        return;
    };
    let names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.ends_with(&["host2", "host1"]), "{text}");
}

#[test]
fn loopback_alone_is_offered() {
    let cache = Cache(Folder::new());
    let Some(text) = cache.run("", "ibv_devices", &[]) else {
        return;
    };
    assert_eq!(
        text.lines().count(),
        3,
        "two lines of a table's head, and srdma0: {text}"
    );
    assert!(text.contains("srdma0"), "{text}");
}

#[test]
fn devinfo_agrees_with_the_files() {
    let cache = Cache(Folder::new());
    let devices = format!("both={}+{}", address(), address());
    let Some(text) = cache.run(&devices, "ibv_devinfo", &["-v"]) else {
        return;
    };
    // The library says the one, a file the other.
    for line in [
        "PORT_ACTIVE (4)",
        "active_mtu:\t\t4096 (5)",
        "board_id:\t\t\tsrdma",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
        line.unwrap_or_default().trim().to_owned()
    };
    let at = "/sys/class/infiniband/both";
    for (key, file) in [("node_guid:", "node_guid"), ("fw_ver:", "fw_ver")] {
        let shown = cache
            .run(&devices, "cat", &[&format!("{at}/{file}")])
            .unwrap();
        assert_eq!(value(key), shown.trim(), "{file}");
    }
    for index in 0..2 {
        let file = format!("{at}/ports/1/gids/{index}");
        let gid = cache.run(&devices, "cat", &[&file]).unwrap();
        // The program prints a mapped address as an address.
        let last: Vec<_> = gid.trim().rsplit(':').take(2).collect();
        let number = |at: usize| u16::from_str_radix(last.get(at).unwrap(), 16).unwrap();
        let [[a, b], [c, d]] = [number(1).to_be_bytes(), number(0).to_be_bytes()];
        assert!(
            text.contains(&format!("::ffff:{a}.{b}.{c}.{d}")),
            "{gid}: {text}"
        );
    }
}
