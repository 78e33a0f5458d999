//! Corners: where `unsafe` may stand, what its comment says, and what core keeps away from.
//!
//! What it does not do: judge whether the comment is true. That takes a reader.

use super::{expect_none, tree};
use srdma_tests::source::{Finding, SourceFile, words};

/// Files and folders that may hold `unsafe`. The reasons are in ARCHITECTURE.md.
const CORNERS: [&str; 9] = [
    "srdma-core/src/mem/host.rs",
    "srdma-core/src/mem/host/",
    "srdma-net/src/sys/",
    "srdma-verbs/src/driver/alloc.rs",
    "srdma-verbs/src/driver/alloc/",
    "srdma-verbs/capi/",
    "srdma-verbs/pathshim/",
    "tests/tests/irdma_oracle",
    "tests/oracle/",
];

/// What core must not name: it does no I/O and reads no clock.
const CORE_AVOIDS: [&str; 10] = [
    "std::fs",
    "std::io",
    "UdpSocket",
    "TcpStream",
    "std::thread::sleep",
    "std::time",
    "SystemTime",
    "std::process",
    "libc",
    "mio",
];

fn in_corner(path: &str) -> bool {
    CORNERS.iter().any(|corner| path.starts_with(corner))
}

/// `unsafe` outside of the corners.
fn strays(file: &SourceFile) -> Vec<Finding> {
    if in_corner(&file.path) {
        return Vec::new();
    }
    let lines = file.lines.iter().enumerate();
    let lines = lines.filter(|(_, line)| words(&line.code, "unsafe").next().is_some());
    lines
        .map(|(index, _)| file.finding(index, "`unsafe` outside of its corners"))
        .collect()
}

/// `unsafe` blocks, impls and extern blocks whose comment lacks a part.
fn unexplained(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        let opens = |at: usize| {
            let rest = line.code[at + "unsafe".len()..].trim_start();
            let rest = match rest.strip_prefix("extern") {
                Some(abi) => abi.trim_start().trim_start_matches('"').trim_start(),
                None => rest,
            };
            rest.is_empty() || rest.starts_with('{') || rest.starts_with("impl")
        };
        if !words(&line.code, "unsafe").any(opens) {
            continue;
        }
        let comment = comment_above(file, index).to_lowercase();
        for part in ["safety:", "why needed", "why sound"] {
            if !comment.contains(part) {
                found.push(file.finding(index, format!("the comment of `unsafe` lacks `{part}`")));
            }
        }
    }
    found
}

/// The comment of the statement that holds line `index`: on the line, and directly above.
fn comment_above(file: &SourceFile, index: usize) -> String {
    let mut parts = vec![file.lines[index].comment.clone()];
    for line in file.lines[..index].iter().rev() {
        let code = line.code.trim();
        let attribute = code.starts_with("#[") || code.starts_with("#![");
        if code.is_empty() && line.comment.is_empty() {
            break;
        }
        if !attribute && code.ends_with([';', '{', '}', ',']) {
            break;
        }
        parts.push(
            line.comment
                .trim_start_matches(['/', '!'])
                .trim()
                .to_owned(),
        );
    }
    parts.reverse();
    parts.join(" ")
}

/// Names of I/O and clocks in core.
fn io_in_core(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        for name in CORE_AVOIDS {
            if words(&line.code, name).next().is_some() {
                found
                    .push(file.finding(index, format!("core does no I/O, reads no clock: {name}")));
            }
        }
    }
    found
}

/// Files of core that are not tests, which may measure.
fn core_proper(path: &str) -> bool {
    path.starts_with("srdma-core/src/") && path.ends_with(".rs") && !path.ends_with("tests.rs")
}

fn rust(path: &str, text: &str) -> SourceFile {
    SourceFile::new(path, text)
}

#[test]
fn unsafe_stays_in_its_corners() {
    let files = tree();
    let files = files.iter().filter(|file| file.is_rust());
    expect_none(&files.flat_map(strays).collect::<Vec<_>>());

    let text = "// unsafe\n#![deny(unsafe_code)]\nlet s = \"unsafe\";\nunsafe { x() }\n";
    let stray = strays(&rust("srdma-core/src/qp/mod.rs", text));
    assert_eq!(stray.iter().map(|f| f.line).collect::<Vec<_>>(), [4]);
    assert!(strays(&rust("srdma-net/src/sys/mmsg.rs", text)).is_empty());
}

#[test]
fn every_unsafe_is_explained_twice() {
    let files = tree();
    let files = files
        .iter()
        .filter(|file| in_corner(&file.path) && file.is_rust());
    expect_none(&files.flat_map(unexplained).collect::<Vec<_>>());

    let check = |text: &str| unexplained(&rust("x.rs", text)).len();
    let good = "// SAFETY: why needed: raw. Why sound:\n// checked above.\n";
    assert_eq!(check("unsafe { x() }\n"), 3);
    assert_eq!(check("// SAFETY: checked.\nunsafe { x() }\n"), 2);
    assert_eq!(
        check("// SAFETY: why needed: raw.\nunsafe impl Send for X {}\n"),
        1
    );
    assert_eq!(
        check(&format!("{good}\nlet a = 1;\nunsafe {{ x() }}\n")),
        3,
        "too far away"
    );
    assert_eq!(check(&format!("{good}let a =\n    unsafe {{ x() }};\n")), 0);
    assert_eq!(
        check(&format!("{good}#[allow(x)]\nunsafe impl Send for X {{}}\n")),
        0
    );
    assert_eq!(check("unsafe extern \"C\" {\n"), 3);
    assert_eq!(
        check("type F = unsafe extern \"C\" fn();\npub unsafe fn f() {}\n"),
        0
    );
}

#[test]
fn core_does_no_io_and_reads_no_clock() {
    let files = tree();
    let files = files.iter().filter(|f| core_proper(&f.path));
    expect_none(&files.flat_map(io_in_core).collect::<Vec<_>>());
    assert_eq!(
        io_in_core(&rust("x.rs", "use std::time::Instant;\n")).len(),
        1
    );
    assert_eq!(
        io_in_core(&rust("x.rs", "use crate::time::Instant; // std::time\n")).len(),
        0
    );
}
