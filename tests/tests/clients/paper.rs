//! The tables of `docs/drop-in.md`: programs as `table.rs` has them, and what each exported symbol
//! does, as the sources of `srdma-verbs/capi` say. `SRDMA_UPDATE=1` writes them.

use crate::table::TABLE;
use srdma_tests::source;
use std::collections::BTreeMap;
use std::fmt::Write;

const PAPER: &str = "docs/drop-in.md";
const SOURCES: [&str; 3] = ["exports.rs", "exports_cm.rs", "exports_private.rs"];
/// Where a list of names is broken.
const WIDTH: usize = 96;

/// The table of programs.
fn programs() -> String {
    let mut text =
        String::from("| program | transports | options, each line a run |\n|---|---|---|\n");
    for row in TABLE {
        let options: Vec<_> = row.options.iter().map(|line| format!("`{line}`")).collect();
        let transports = row.transports.join(", ");
        let _ = writeln!(
            text,
            "| `{}` | {transports} | {} |",
            row.program,
            options.join(", ")
        );
    }
    text
}

/// What a symbol does, by the function that it jumps to.
fn kind(path: &str, source: &str) -> &'static str {
    match path {
        "unsupported::verb"
        | "unsupported::object"
        | "unsupported::descriptor"
        | "cm::socket"
        | "qp::ece" => "answer `EOPNOTSUPP`",
        "unsupported::ignored" | "unsupported::name" | "cm::nothing" | "cm::port" => {
            "do nothing, since there is nothing to do"
        }
        "cm::call" | "cm::object" => "answer `ENOSYS`: there is no connection manager",
        _ if source == "exports_private.rs" => "supported, private to rdma-core",
        _ => "supported",
    }
}

/// Every exported symbol, by what it does.
fn symbols() -> String {
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let folder = source::root().join("srdma-verbs/capi/src");
    for name in SOURCES {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        // Each private node has a symbol of its own by which drivers announce themselves.
        let register = text
            .lines()
            .filter_map(|line| line.strip_prefix("private!(")?.strip_suffix(");"));
        let register = register.filter_map(|line| line.split_whitespace().last());
        lists
            .entry(kind("unsupported::ignored", name))
            .or_default()
            .extend(register.map(str::to_owned));
        for part in text.split(" = crate::").collect::<Vec<_>>().windows(2) {
            let (before, after) = (part[0], part[1]);
            let symbol = before.rsplit(|c: char| c.is_whitespace()).next().unwrap();
            let path = after.split(',').next().unwrap();
            // What a macro names stands above.
            if !symbol.starts_with('$') {
                let list = lists.entry(kind(path, name)).or_default();
                list.push(symbol.to_owned());
            }
        }
    }
    let mut text = String::new();
    for (kind, mut symbols) in lists {
        symbols.sort();
        symbols.dedup();
        let _ = write!(text, "**{} symbols {kind}**:", symbols.len());
        let mut column = WIDTH;
        for (at, symbol) in symbols.iter().enumerate() {
            let end = if at + 1 == symbols.len() { "." } else { "," };
            let gap = if column + symbol.len() + 4 > WIDTH {
                "\n"
            } else {
                " "
            };
            column = if gap == "\n" { 0 } else { column + 1 };
            let _ = write!(text, "{gap}`{symbol}`{end}");
            column += symbol.len() + 3;
        }
        text.push_str("\n\n");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// `paper` with `text` between the marks of `name`.
fn put(paper: &str, name: &str, text: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name}: begin"),
        format!("<!-- {name}: end -->"),
    );
    let (head, rest) = paper.split_once(&begin).expect("the paper has the marks");
    let (mark, rest) = rest.split_once("-->\n").expect("the mark ends");
    let (_, tail) = rest.split_once(&end).expect("the paper has both marks");
    format!("{head}{begin}{mark}-->\n\n{text}\n{end}{tail}")
}

#[test]
fn the_paper_says_what_is_run_and_exported() {
    let path = source::root().join(PAPER);
    let old = std::fs::read_to_string(&path).unwrap();
    let new = put(&put(&old, "programs", &programs()), "symbols", &symbols());
    if std::env::var_os("SRDMA_UPDATE").is_some() {
        std::fs::write(&path, &new).unwrap();
        return;
    }
    assert!(
        old == new,
        "{PAPER} is out of step; SRDMA_UPDATE=1 writes its tables"
    );
}

#[test]
fn symbols_are_sorted_by_what_they_do() {
    let text = symbols();
    let list = |kind: &str| {
        let (_, rest) = text.split_once(&format!("symbols {kind}**")).unwrap();
        rest.split("\n\n").next().unwrap().to_owned()
    };
    for (symbol, kind) in [
        ("`ibv_reg_mr`", "supported"),
        ("`ibv_get_pkey_index`", "supported"),
        ("`ibv_reg_dmabuf_mr`", "answer `EOPNOTSUPP`"),
        (
            "`rdma_connect`",
            "answer `ENOSYS`: there is no connection manager",
        ),
    ] {
        assert!(list(kind).contains(symbol), "{symbol} is not {kind}");
    }
}
