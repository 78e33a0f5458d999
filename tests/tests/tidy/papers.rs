//! Papers: documents have one title and no dead links, and what stands twice agrees.

use super::{expect_none, tree};
use srdma_tests::source::{Finding, SourceFile, is_ext, root};
use std::path::Path;

/// The lines of a document outside of fenced code, with their index.
fn prose(file: &SourceFile) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index, line));
        }
    }
    lines
}

/// A document has one title, and it comes first.
fn titles(file: &SourceFile) -> Vec<Finding> {
    let titles = prose(file)
        .iter()
        .filter(|(_, line)| line.starts_with("# "))
        .count();
    if titles == 1 && file.text.starts_with("# ") {
        return Vec::new();
    }
    vec![file.finding_whole(format!("{titles} titles, or not on the first line"))]
}

/// Relative links whose target does not exist.
fn dead_links(file: &SourceFile, root: &Path) -> Vec<Finding> {
    let folder = root.join(&file.path);
    let folder = folder.parent().unwrap_or(root);
    let mut found = Vec::new();
    for (index, line) in prose(file) {
        for target in line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split('#').next().unwrap_or_default();
            let outside = path.contains("://") || path.starts_with("mailto:");
            if !path.is_empty() && !outside && !folder.join(path).exists() {
                found.push(file.finding(index, format!("dead link: {target}")));
            }
        }
    }
    found
}

/// Every `Rust 1.x` in a text.
fn rust_versions(text: &str) -> Vec<String> {
    let rest = text.split("Rust ").skip(1);
    let versions = rest.map(|rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    versions.filter(|version| version.contains('.')).collect()
}

#[test]
fn documents_have_one_title() {
    let files = tree();
    let docs = files.iter().filter(|file| is_ext(&file.path, "md"));
    expect_none(&docs.flat_map(titles).collect::<Vec<_>>());
    let check = |text: &str| titles(&SourceFile::new("x.md", text)).len();
    assert_eq!(check("# One\n\n# Two\n"), 1);
    assert_eq!(check("No title\n"), 1);
    assert_eq!(check("\n# Late\n"), 1);
    assert_eq!(check("# One\n```sh\n# a comment\n```\n## Part\n"), 0);
}

#[test]
fn links_are_alive() {
    let (files, root) = (tree(), root());
    let docs = files.iter().filter(|file| is_ext(&file.path, "md"));
    expect_none(
        &docs
            .flat_map(|file| dead_links(file, &root))
            .collect::<Vec<_>>(),
    );
    let check = |text: &str| dead_links(&SourceFile::new("docs/x.md", text), &root).len();
    assert_eq!(
        check("[a](nowhere.md) and [b](../Cargo.toml), [c](https://x.org/y), [d](#e)"),
        1
    );
}

#[test]
fn readme_names_the_rust_version() {
    let text = |path: &str| std::fs::read_to_string(root().join(path)).expect("readable");
    let manifest: toml::Table = text("Cargo.toml").parse().expect("TOML");
    let wanted = manifest["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("a version");
    let said = rust_versions(&text("README.md"));
    assert!(!said.is_empty(), "README says which Rust it needs");
    for version in said {
        assert_eq!(version, wanted, "README and Cargo.toml differ");
    }
    assert_eq!(
        rust_versions("Rust 1.90 or Rust 1.2.3. Rust is"),
        ["1.90", "1.2.3"]
    );
}

/// The first Rust example of a crate's documentation, as a reader sees it.
fn shown_example(source: &str) -> String {
    let doc = source.lines().map_while(|line| line.strip_prefix("//!"));
    let doc = doc.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let body = doc.skip_while(|line| *line != "```rust").skip(1);
    let body = body.take_while(|line| *line != "```");
    let shown = body.filter(|line| *line != "#" && !line.starts_with("# "));
    shown.collect::<Vec<_>>().join("\n")
}

#[test]
fn readme_shows_the_example_that_is_tested() {
    let text = |path: &str| std::fs::read_to_string(root().join(path)).expect("readable");
    let example = shown_example(&text("srdma-verbs/src/lib.rs"));
    assert!(example.contains("post_send"), "{example}");
    assert!(
        text("README.md").contains(&format!("```rust\n{example}\n```")),
        "README has another example than srdma-verbs/src/lib.rs, which has:\n{example}"
    );
    let doc =
        "//! ```text\n//! x\n//! ```\n//!\n//! ```rust\n//! # y\n//! a\n//!\n//! b\n//! ```\n";
    assert_eq!(shown_example(doc), "a\n\nb");
}

#[test]
fn both_licence_texts_are_there() {
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(name).exists(), "{name} is missing");
    }
}
