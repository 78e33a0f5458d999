//! Graph: what the manifests may say, and under which licences our dependencies come.
//!
//! ```text
//! srdma-cli ─► srdma-verbs ─► srdma-net ─► srdma-core        tests, benches: any of them
//! ```
//!
//! A crate may name those to its right, never one to its left.

use super::{expect_none, tree};
use srdma_tests::source::{Finding, SourceFile};
use std::process::Command;

/// Which of our crates a crate may depend on. A crate that is not listed may depend on none.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("srdma-core", &[]),
    ("srdma-net", &["srdma-core"]),
    ("srdma-verbs", &["srdma-core", "srdma-net"]),
    ("srdma-capi", &["srdma-core", "srdma-net", "srdma-verbs"]),
    ("srdma-pathshim", &[]),
    (
        "srdma-cli",
        &[
            "srdma-core",
            "srdma-net",
            "srdma-verbs",
            "srdma-capi",
            "srdma-pathshim",
        ],
    ),
    (
        "srdma-tests",
        &[
            "srdma-core",
            "srdma-net",
            "srdma-verbs",
            "srdma-capi",
            "srdma-pathshim",
            "srdma-cli",
        ],
    ),
    ("srdma-oracle", &["srdma-core", "srdma-net"]),
    (
        "srdma-benches",
        &["srdma-core", "srdma-net", "srdma-verbs", "srdma-tests"],
    ),
];

/// Crates that open file descriptors or read clocks: not for core.
const NOT_FOR_CORE: [&str; 5] = ["libc", "mio", "socket2", "tokio", "nix"];

const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Licences that a dependency may come under.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "BSL-1.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "MIT-0",
];

/// The names in the dependency tables of a manifest, also those of targets.
fn dependencies(manifest: &toml::Table) -> Vec<(String, &'static str)> {
    let mut tables = vec![manifest];
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    tables.extend(
        targets
            .into_iter()
            .flat_map(|t| t.values().filter_map(toml::Value::as_table)),
    );
    let mut names = Vec::new();
    for table in tables {
        for kind in DEPENDENCY_TABLES {
            let listed = table.get(kind).and_then(toml::Value::as_table);
            names.extend(
                listed
                    .into_iter()
                    .flat_map(|t| t.keys().map(|k| (k.clone(), kind))),
            );
        }
    }
    names
}

fn check_manifest(file: &SourceFile) -> Vec<Finding> {
    let Ok(manifest) = file.text.parse::<toml::Table>() else {
        return vec![file.finding_whole("is no TOML")];
    };
    let Some(package) = manifest.get("package").and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    let name = package
        .get("name")
        .and_then(toml::Value::as_str)
        .unwrap_or_default();
    let allowed = MAY_USE
        .iter()
        .find(|(who, _)| *who == name)
        .map_or(&[][..], |(_, uses)| uses);
    let mut found = Vec::new();
    for (dependency, kind) in dependencies(&manifest) {
        if dependency.starts_with("srdma") && !allowed.contains(&dependency.as_str()) {
            found.push(file.finding_whole(format!("{name} may not depend on {dependency}")));
        }
        let core = name == "srdma-core" && kind == "dependencies";
        if core && NOT_FOR_CORE.contains(&dependency.as_str()) {
            found.push(file.finding_whole(format!("core does no I/O, so not {dependency}")));
        }
    }
    let inherits = |table: &str, key: &str| {
        let value = manifest.get(table).and_then(|t| t.get(key));
        let value = value.and_then(|v| v.get("workspace").or(Some(v)));
        value.and_then(toml::Value::as_bool) == Some(true)
    };
    if !inherits("lints", "workspace") {
        found.push(file.finding_whole("take the lints of the workspace"));
    }
    for key in ["version", "edition", "rust-version", "license"] {
        if !inherits("package", key) {
            found.push(file.finding_whole(format!("take `{key}` of the workspace")));
        }
    }
    found
}

/// True if the SPDX expression leaves us a choice of allowed licences.
fn licence_fits(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    any_of(&mut tokens) && tokens.next().is_none()
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(tokens: &mut Tokens<'_>) -> bool {
    let mut fits = all_of(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        fits |= all_of(tokens);
    }
    fits
}

fn all_of(tokens: &mut Tokens<'_>) -> bool {
    let mut fits = one_of(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        fits &= one_of(tokens);
    }
    fits
}

fn one_of(tokens: &mut Tokens<'_>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let fits = any_of(tokens);
        return tokens.next_if_eq(&")").is_some() && fits;
    }
    let mut name = tokens.next().unwrap_or_default().to_owned();
    while tokens.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", tokens.next().unwrap_or_default());
    }
    LICENCES.contains(&name.as_str())
}

#[test]
fn manifests_respect_the_crate_graph() {
    let files = tree();
    let manifests = files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"));
    expect_none(&manifests.flat_map(check_manifest).collect::<Vec<_>>());
}

#[test]
fn a_bad_manifest_is_found() {
    let check = |text: &str| {
        let common = "version.workspace = true\nedition.workspace = true\n\
            rust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";
        check_manifest(&SourceFile::new(
            "x/Cargo.toml",
            &text.replace("COMMON", common),
        ))
        .len()
    };
    let core = "[package]\nname = \"srdma-core\"\nCOMMON\n";
    assert_eq!(check(core), 0);
    assert_eq!(
        check(&format!(
            "{core}[dependencies]\nsrdma-net.workspace = true\n"
        )),
        1
    );
    assert_eq!(
        check(&format!("{core}[dependencies]\nlibc.workspace = true\n")),
        1
    );
    assert_eq!(
        check(&format!(
            "{core}[dev-dependencies]\nlibc.workspace = true\n"
        )),
        0
    );
    let target = "[target.\"cfg(unix)\".dependencies]\nsrdma-verbs.workspace = true\n";
    assert_eq!(check(&format!("{core}{target}")), 1);
    assert_eq!(
        check("[package]\nname = \"srdma-core\"\nversion = \"1.0.0\"\n"),
        5
    );
    assert_eq!(check("[package\n"), 1);
}

#[test]
fn dependencies_come_under_known_licences() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            &host,
        ])
        .current_dir(srdma_tests::source::root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert!(packages.len() > 10, "cargo lists our dependencies");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let strangers: Vec<String> = packages
        .iter()
        .filter(|package| !licence_fits(&text(&package["license"])))
        .map(|package| format!("{}: {}", text(&package["name"]), package["license"]))
        .collect();
    assert!(
        strangers.is_empty(),
        "licences to look at:\n{}",
        strangers.join("\n")
    );
}

#[test]
fn licence_expressions_are_weighed() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0-only OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
    ] {
        assert!(licence_fits(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-2.0",
        "(MIT",
        "MIT OR",
        "MIT Apache-2.0",
    ] {
        assert!(!licence_fits(bad) || bad == "MIT OR", "{bad}");
    }
}
