//! What the tests of the program share: running it, and reading what it says.

#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srdma-cli"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
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
