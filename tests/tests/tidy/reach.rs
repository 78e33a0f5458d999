//! Reach: every Rust file is part of a crate, so the compiler and the lints see it.
//!
//! Programs that a compile-fail test feeds to the compiler (`ui/`, `compile_fail/`) are left out.

use super::{expect_none, tree};
use srdma_tests::source::{Finding, SourceFile, is_word, words};
use std::collections::{BTreeMap, BTreeSet};

/// A file that cargo finds by itself or a manifest names.
fn is_root(path: &str, named: &BTreeSet<String>) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let above = |folder: &str| {
        ["bin", "tests", "examples", "benches"]
            .iter()
            .any(|kind| folder.rsplit('/').next() == Some(kind))
    };
    let crate_root = folder.ends_with("src") && (name == "lib.rs" || name == "main.rs");
    let nested = name == "main.rs" && folder.rsplit_once('/').is_some_and(|(up, _)| above(up));
    crate_root || nested || above(folder) || name == "build.rs" || named.contains(path)
}

/// Files that a module file names by `mod x;` or `include!("x")`.
fn named_by(file: &SourceFile, root: bool) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let stem = name.trim_end_matches(".rs");
    let base = if root || stem == "mod" {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        for at in words(&line.code, "mod") {
            let rest = line.code[at + 3..].trim_start();
            let child: String = rest.chars().take_while(|&c| is_word(c)).collect();
            if rest[child.len()..].trim_start().starts_with(';') {
                found.push(format!("{base}/{child}.rs"));
                found.push(format!("{base}/{child}/mod.rs"));
            }
        }
        let raw = file.text.lines().nth(index).unwrap_or_default();
        let quoted = raw
            .split_once('"')
            .and_then(|(_, rest)| rest.split_once('"'));
        if line.code.contains("include!(") || line.code.contains("#[path") {
            found.extend(quoted.map(|(target, _)| join(folder, target)));
        }
    }
    found
}

/// `folder/target` with `..` taken out.
fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// `path = "…"` of targets in manifests.
fn named_by_manifests(files: &[SourceFile]) -> BTreeSet<String> {
    let manifests = files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"));
    let paths = manifests.flat_map(|file| {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let lines = file
            .text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("path = \""));
        lines.map(move |rest| join(folder, rest.trim_end_matches('"')))
    });
    paths.collect()
}

fn unreached(files: &[SourceFile]) -> Vec<Finding> {
    let named = named_by_manifests(files);
    let skip = |path: &str| path.contains("/ui/") || path.contains("/compile_fail/");
    let rust = files
        .iter()
        .filter(|file| file.is_rust() && !skip(&file.path));
    let rust: BTreeMap<&str, &SourceFile> = rust.map(|file| (file.path.as_str(), file)).collect();
    let mut todo: Vec<&str> = rust
        .keys()
        .copied()
        .filter(|path| is_root(path, &named))
        .collect();
    let mut seen: BTreeSet<&str> = todo.iter().copied().collect();
    while let Some(path) = todo.pop() {
        for child in named_by(rust[path], is_root(path, &named)) {
            if let Some((&child, _)) = rust.get_key_value(child.as_str())
                && seen.insert(child)
            {
                todo.push(child);
            }
        }
    }
    let lost = rust
        .values()
        .filter(|file| !seen.contains(file.path.as_str()));
    lost.map(|file| file.finding_whole("no crate holds this file: name it by `mod`"))
        .collect()
}

#[test]
fn every_file_is_in_a_crate() {
    expect_none(&unreached(&tree()));
}

#[test]
fn a_lost_file_is_found() {
    let files = [
        SourceFile::new("a/src/lib.rs", "mod b;\n// mod lost;\n"),
        SourceFile::new(
            "a/src/b.rs",
            "pub mod c;\n#[path = \"../odd.rs\"]\nmod odd;\n",
        ),
        SourceFile::new("a/src/b/c.rs", ""),
        SourceFile::new("a/odd.rs", ""),
        SourceFile::new("a/src/lost.rs", ""),
        SourceFile::new("a/src/c.rs", ""),
        SourceFile::new("a/tests/t/main.rs", ""),
        SourceFile::new("a/examples/e.rs", ""),
        SourceFile::new("a/Cargo.toml", "[lib]\npath = \"other.rs\"\n"),
        SourceFile::new("a/other.rs", ""),
    ];
    let lost: Vec<String> = unreached(&files).into_iter().map(|f| f.path).collect();
    assert_eq!(lost, ["a/src/c.rs", "a/src/lost.rs"]);
}
