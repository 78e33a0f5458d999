//! The measuring scripts of `benches`, each in small: they run, and say what they must.
//!
//! Figures are not judged. Without python3 there is nothing to run, and the tests say so.

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

use common::{Folder, is_installed, json_lines};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a script with our program; `None` if that cannot be.
fn script(name: &str, options: &[&str], path: Option<&Path>) -> Option<Output> {
    if !is_installed("python3") {
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Itself, since what is found under the name may be a script that needs a shell.
    let itself = ["-c", "import sys; print(sys.executable)"];
    let found = Command::new("python3").args(itself).output().unwrap();
    let python = String::from_utf8(found.stdout).unwrap();
    let mut command = Command::new(python.trim());
    command.arg(root.join("benches").join(name));
    command
        .args(["--cli", env!("CARGO_BIN_EXE_srdma-cli")])
        .args(options);
    command.env_remove("SRDMA_DEVICES").env("SRDMA_CONFIG", "");
    if let Some(path) = path {
        command.env("PATH", path);
    }
    Some(command.stdin(Stdio::null()).output().unwrap())
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{errors}");
    text.into_owned()
}

#[test]
fn the_table_of_goals_has_every_row_with_a_goal_and_counts_them() {
    let folder = Folder::new();
    let file = folder.join("suite.json");
    let rows = [
        r#"{"group":"a","row":"SEND","figure":4.5e9,"unit":"B/s","limit":5e9,"ratio":0.9,"#,
        r#""spread":[0.8,0.95],"rounds":5,"dropped":0.0,"goal":"≥ 0.85","holds":true}"#,
        "\n",
        r#"{"group":"a","row":"READ","figure":6500.0,"unit":"ns","limit":4000.0,"ratio":1.625,"#,
        r#""spread":[1.6,1.7],"rounds":5,"dropped":3.0,"goal":"≤ 1.50","holds":false}"#,
        "\n",
        r#"{"group":"b","row":"1 %","figure":1.0,"unit":"B/s","rounds":5}"#,
        "\n",
        r#"{"group":"c","row":"ib_x","unit":"ns","rounds":0,"goal":"≤ 1.00","skipped":"no | x"}"#,
        "\n",
    ];
    std::fs::write(&file, rows.concat()).unwrap();
    let words = [file.to_str().unwrap(), "--date", "2001-02-03"];
    let Some(output) = script("table", &words, None) else {
        return;
    };
    let text = said(&output);
    for line in [
        "| a: SEND | 4.50 GB/s | 5.00 GB/s | 0.90 (0.80–0.95) | ≥ 0.85 | holds |",
        "| a: READ | 6.50 µs | 4.00 µs | 1.62 (1.60–1.70) | ≤ 1.50 | missed (3 packets lost) |",
        "| c: ib_x | – | – | – |  | skipped: no / x |",
    ] {
        assert!(
            text.lines().any(|had| had == line),
            "{line} is not in {text}"
        );
    }
    let flat = text.replace('\n', " ");
    assert!(flat.contains("1 goals hold, 1 are missed, 1 rows have no figure."));
    assert!(
        text.contains("2001-02-03") && !text.contains("1 %"),
        "{text}"
    );
}

/// Rows of `benches/beside`, measured as briefly as can be.
fn beside(rows: &str, path: Option<&Path>) -> Option<Output> {
    let options = [
        "--runs",
        "1",
        "--duration",
        "0.02",
        "--only",
        rows,
        "--json",
    ];
    script("beside", &options, path)
}

#[test]
fn what_is_not_installed_is_named_and_the_rest_is_measured() {
    let folder = Folder::new();
    let Some(output) = beside("bandwidth, 64 KiB, SEND", Some(folder.path())) else {
        return;
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for program in [
        "iperf3",
        "ucx_perftest",
        "fi_pingpong",
        "qperf",
        "sockperf",
        "ib_send_bw",
    ] {
        assert!(
            errors.contains(&format!("skipped: {program} is not installed")),
            "{errors}"
        );
    }
    let rows = json_lines(&said(&output));
    assert!((1..=2).contains(&rows.len()), "{rows:?}");
    for row in rows {
        let ours = &row["families"]["srdma"];
        assert!(ours["figure"].as_f64() > Some(0.0), "{row} {errors}");
        assert_eq!(row["ahead"], "srdma");
    }
}

#[test]
fn those_that_are_installed_stand_beside_srdma() {
    let Some(output) = beside("bandwidth, 4 KiB, WRITE", None) else {
        return;
    };
    for row in json_lines(&said(&output)) {
        for (family, program) in [("TCP", "iperf3"), ("UCX, tcp", "ucx_perftest")] {
            if is_installed(program) {
                assert!(
                    row["families"][family]["figure"].as_f64() > Some(0.0),
                    "{row}"
                );
            }
        }
        // That of the kernel's device is a constant.
        let beside = row["beside"].as_str().unwrap();
        assert_eq!(row["families"]["rxe"]["figure"].as_f64(), Some(1.2e9));
        assert!(
            row["ratio"].as_f64() > Some(0.0) && beside != "srdma",
            "{row}"
        );
    }
}

#[test]
fn a_short_soak_finds_nothing_and_what_is_wrong_is_told() {
    let Some(output) = script("soak", &["--seconds", "4"], None) else {
        return;
    };
    let text = said(&output);
    assert!(
        text.contains("nothing stopped, was wrong or leaked"),
        "{text}"
    );
    // A fault that never comes, and less memory than nothing.
    let faults = "drop nth=4000000000";
    let wrong = ["--seconds", "1", "--faults", faults, "--bound=-1000000000"];
    let output = script("soak", &wrong, None).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    for why in [
        "SEND: client: rules say drop, and it has not happened",
        "READ: server: pss has grown",
    ] {
        assert!(text.contains(why), "{text}");
    }
}
