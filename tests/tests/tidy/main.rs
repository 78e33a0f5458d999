//! The tree is tidy: sizes, headers, `unsafe`, crate graph, documents, licences.
//!
//! | module | what it looks at |
//! |---|---|
//! | `form` | lines, file and function sizes, file headers, words, comment style |
//! | `reach` | every Rust file belongs to a crate |
//! | `corners` | where `unsafe` stands and how it is explained; that core does no I/O |
//! | `graph` | manifests: who may depend on whom, versions, licences of dependencies |
//! | `papers` | titles and links of documents, the Rust version in README |
//!
//! Each check has a test on a bad snippet beside it, so that it is seen to fail. Sizes above the
//! limits stand in `ratchet.txt`, which may only shrink. What rustfmt and clippy check is not here.

#![cfg(test)]

mod corners;
mod form;
mod graph;
mod papers;
mod reach;

use srdma_tests::source::{self, Finding, SourceFile};

fn tree() -> Vec<SourceFile> {
    source::tree().expect("the source tree is readable")
}

/// Fails with every finding, one a line.
#[track_caller]
fn expect_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        list.is_empty(),
        "{} finding(s):\n{}\n",
        list.len(),
        list.join("\n")
    );
}
