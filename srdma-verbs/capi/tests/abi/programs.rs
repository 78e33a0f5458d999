//! Programs in C, compiled against the installed headers and run on the library.

use crate::common::{Folder, library};
use std::path::Path;
use std::process::Command;

/// Compiles a program and runs it on a device of its own; it prints what is wrong.
fn run(name: &str, host: u8) {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("not checked: the headers of libibverbs are not installed");
        return;
    }
    let folder = Folder::new(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi/programs");
    let binary = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler
        .arg(source.join(format!("{name}.c")))
        .arg("-o")
        .arg(&binary);
    compiler.args(["-Wall", "-Werror", "-ldl"]).arg(library());
    let compiled = compiler.output().unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let [a, b, ..] = std::process::id().to_le_bytes();
    let mut program = folder.command(&binary);
    program.env("SRDMA_DEVICES", format!("host=127.{a}.{b}.{host}"));
    let output = program.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
}

#[test]
fn calls_fail_as_their_manual_pages_say() {
    run("conventions", 201);
}

#[test]
fn channels_are_those_of_uverbs() {
    // proves: event-2, event-3, event-5, event-6, event-35, event-36
    run("channel", 204);
}

#[test]
fn a_child_opens_the_device_afresh() {
    run("fork", 202);
}

#[test]
fn a_program_that_ends_after_its_last_receive_has_acknowledged_it() {
    run("exit", 203);
}

#[test]
fn a_program_that_ends_in_the_middle_of_a_call_ends() {
    run("signal", 205);
}
