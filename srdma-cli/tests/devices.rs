//! Devices that the user names: by a variable, by a file, and what is said about mistakes.

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

use common::{Folder, address, command, json_lines};
use serde_json::Value;
use std::process::Command;

fn devinfo(set: impl FnOnce(&mut Command)) -> (Vec<Value>, String) {
    let mut command = command(&["devinfo", "--json"]);
    set(&mut command);
    let output = command.output().unwrap();
    let lines = json_lines(&String::from_utf8(output.stdout).unwrap());
    (lines, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_variable_names_devices() {
    let (a, b, c) = (address(), address(), address());
    let value = format!("one={a}, two={b}+{c},gone=nosuch0");
    let (lines, _) = devinfo(|command| {
        command.env("SRDMA_DEVICES", &value);
    });
    let names: Vec<_> = lines
        .iter()
        .map(|line| line["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["one", "two", "gone"]);
    assert_eq!(lines[0]["state"], "active");
    assert_eq!(lines[0]["mtu"], 4096);
    assert_eq!(lines[1]["addrs"], serde_json::json!([b, c]));
    assert_eq!(lines[1]["gids"].as_array().unwrap().len(), 2);
    let error = lines[2]["error"].as_str().unwrap();
    assert!(error.contains("interface does not exist"), "{error}");
}

#[test]
fn a_file_names_devices_and_the_variable_wins() {
    let (a, b) = (address(), address());
    let text = format!("[[device]]\nname = \"filed\"\non = \"{a}\"\nreceive_buffer = 65536\n");
    let folder = Folder::new();
    let file = folder.join("good.toml");
    std::fs::write(&file, &text).unwrap();
    let (lines, errors) = devinfo(|command| {
        command.env("SRDMA_CONFIG", &file);
    });
    assert_eq!(lines.len(), 1, "{errors}");
    assert_eq!(lines[0]["name"], "filed");
    let (lines, _) = devinfo(|command| {
        command.env("SRDMA_CONFIG", &file);
        command.env("SRDMA_DEVICES", format!("var={b}"));
    });
    assert_eq!(lines[0]["name"], "var");
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new();
    let file = folder.join("bad.toml");
    std::fs::write(&file, "[[device]]\nname = \"a\"\non = \"lo\"\nspeed = 9\n").unwrap();
    let (lines, errors) = devinfo(|command| {
        command.env("SRDMA_CONFIG", &file);
    });
    assert!(lines.is_empty());
    let path = file.to_str().unwrap();
    assert!(
        errors.contains(path) && errors.contains("speed"),
        "{errors}"
    );
    for (value, says) in [
        ("a=lo,b", "`b`"),
        ("a=1.2.3.4/5", "`1.2.3.4/5`"),
        ("a=", "`a=`"),
    ] {
        let (lines, errors) = devinfo(|command| {
            command.env("SRDMA_DEVICES", value);
        });
        assert!(
            lines.is_empty() && errors.contains(says),
            "{value}: {errors}"
        );
    }
    let (_, errors) = devinfo(|command| {
        command.env("SRDMA_CONFIG", "/nonexistent/x");
    });
    assert!(errors.contains("/nonexistent/x"), "{errors}");
}
