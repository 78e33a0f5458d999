//! What Debian packages link against libibverbs loads, and programs that need one side only.

use crate::place::{Host, address};
use crate::run::{self, Running};
use std::path::PathBuf;
use std::process::Command;

/// Folders of programs and of libraries.
const FOLDERS: [&str; 4] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/libibverbs",
];

/// Files that name `library` as needed, in installed packages.
fn linked(library: &str) -> Vec<PathBuf> {
    let needle = library.as_bytes();
    let files = FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok());
    let mut found: Vec<_> = files
        .flatten()
        .filter_map(|entry| entry.ok()?.path().canonicalize().ok())
        .filter(|file| file.is_file() && !is(file, library))
        .filter(|file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes.starts_with(b"\x7fELF")
                && bytes.windows(needle.len()).any(|window| window == needle)
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Is `file` that library itself?
fn is(file: &std::path::Path, library: &str) -> bool {
    let stem = library.split('.').next().unwrap_or(library);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(&format!("{stem}.so"))
}

/// By the library path alone, every symbol of every file that needs libibverbs or librdmacm is
/// found at once.
#[test]
fn everything_linked_to_us_loads() {
    if !run::is_installed("ibv_devinfo") {
        println!("skip: nothing of libibverbs is installed");
        return;
    }
    let host = Host::local("here", &address());
    let mut files = linked("libibverbs.so.1");
    files.extend(linked("librdmacm.so.1"));
    files.sort();
    files.dedup();
    assert!(files.len() > 20, "{files:?}");
    let words: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let list = words.join(" ");
    let script = format!(
        "unset LD_PRELOAD; export LD_BIND_NOW=1
        for f in {list}; do echo \"== $f\"; ldd -r \"$f\" 2>&1; done"
    );
    let mut shell = Running::start(host.command(&["sh", "-c", &script]));
    shell.finish().unwrap();
    let said = shell.said();
    let (mut file, mut ours, mut bad) = ("", 0, Vec::new());
    for line in said.lines() {
        if let Some(next) = line.strip_prefix("== ") {
            file = next;
        }
        // A library of plug-ins names what its program has; that is not ours to have.
        let about_us = line.contains("ibv_") || line.contains("rdma_") || line.contains("IBVERBS");
        if (line.contains("undefined symbol") && about_us) || line.contains("not found") {
            bad.push(format!("{file}: {line}"));
        }
        ours += usize::from(line.contains("libibverbs.so.1 =>") && line.contains("srdma"));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    println!(
        "{} files, {ours} of them find libibverbs.so.1 with us",
        files.len()
    );
    assert!(ours > 20, "ours is not what they find: {said}");
}

#[test]
fn devices_are_listed_and_described() {
    if !run::is_installed("ibv_devinfo") {
        println!("skip: ibverbs-utils is not installed");
        return;
    }
    let host = Host::local("mine", &address());
    for words in [
        &["ibv_devices"][..],
        &["ibv_devinfo", "-v"],
        &["ibv_devinfo", "-l"],
    ] {
        let mut program = Running::start(host.command(words));
        program.finish().unwrap();
        assert!(program.said().contains("mine"), "{}", program.said());
    }
}

/// It opens the device and sleeps until something happens; SIGINT ends it.
#[test]
fn asyncwatch_waits() {
    if !run::is_installed("ibv_asyncwatch") {
        println!("skip: ibverbs-utils is not installed");
        return;
    }
    let host = Host::local("mine", &address());
    // Who runs in the background of a script ignores SIGINT, and so would what it starts.
    let words = [
        "env",
        "--default-signal=INT",
        "stdbuf",
        "-oL",
        "ibv_asyncwatch",
    ];
    let mut program = Running::start(host.command(&words));
    program.says("mine: async event FD").unwrap();
    assert!(program.ended().is_none(), "{}", program.said());
    let mut signal = Command::new("kill");
    signal.args(["-INT", &program.id().to_string()]);
    assert!(signal.status().unwrap().success());
    assert!(program.wait().is_some(), "it does not end");
}
