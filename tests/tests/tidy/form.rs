//! Form: lines, sizes, file headers, open ends, words, comment style.
//!
//! What it does not do: formatting (rustfmt) and idioms (clippy).

use super::{expect_none, tree};
use srdma_tests::source::{Finding, SourceFile, is_word, words};
use std::collections::BTreeMap;

const MAX_FILE_LINES: usize = 500;
const MAX_FN_LINES: usize = 70;
const MAX_COLUMNS: usize = 100;
const RATCHET: &str = include_str!("ratchet.txt");

/// Words that mark unfinished work. Written in two parts, so that this file passes itself.
const OPEN_ENDS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    "todo!",
    "unimplemented!",
];

/// Words of the workshop, which say nothing to a reader of the project.
const SHOP_WORDS: [&str; 4] = [
    concat!("sub", "agent"),
    concat!("/wo", "rk/"),
    concat!("cla", "ude"),
    concat!("LL", "M"),
];

/// Tabs and blanks at line ends, in any text.
fn blanks(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        if line.contains('\t') {
            found.push(file.finding(index, "a tab"));
        }
        if line.ends_with([' ', '\r']) {
            found.push(file.finding(index, "a blank at the end of the line"));
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        found.push(file.finding_whole("the file ends with exactly one line end"));
    }
    found
}

/// Columns of Rust lines; a table or picture in a comment may be wider.
fn columns(file: &SourceFile) -> Vec<Finding> {
    let wide = |line: &str| {
        let text = line
            .trim_start()
            .trim_start_matches(['/', '!'])
            .trim_start();
        let drawn = text.starts_with('|') || text.contains(['│', '─']);
        let table = line.trim_start().starts_with("//") && drawn;
        line.chars().count() > MAX_COLUMNS && !table
    };
    let lines = file.text.lines().enumerate().filter(|(_, line)| wide(line));
    lines
        .map(|(index, _)| file.finding(index, "more than 100 columns"))
        .collect()
}

/// Each Rust file says first what it is.
fn header(file: &SourceFile) -> Vec<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let said = first
        .strip_prefix("//! ")
        .is_some_and(|text| text.trim().len() >= 6);
    if said {
        Vec::new()
    } else {
        vec![file.finding(0, "open with `//!` and say what this is")]
    }
}

/// No unfinished work in code or comments.
fn open_ends(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        for word in OPEN_ENDS {
            if words(&line.code, word)
                .chain(words(&line.comment, word))
                .next()
                .is_some()
            {
                found.push(file.finding(index, format!("unfinished: `{word}`")));
            }
        }
    }
    found
}

/// No words of the workshop, in any text.
fn shop_words(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let lower = line.to_lowercase();
        for word in SHOP_WORDS {
            let hit = match word {
                w if w.starts_with('/') => line
                    .match_indices(w)
                    .any(|(at, _)| !line[..at].ends_with(is_word)),
                w if w.to_lowercase() == w => lower.contains(w),
                w => words(line, w).next().is_some(),
            };
            if hit {
                found.push(file.finding(index, format!("a word of the workshop: `{word}`")));
            }
        }
    }
    found
}

/// Comments state, they do not shout: no exclamation mark at the end of a sentence.
fn shouts(file: &SourceFile) -> Vec<Finding> {
    let shouted = |comment: &str| {
        let text = comment.trim_start_matches('/').trim_start_matches('!');
        text.match_indices('!').any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = &text[at + 1..];
            let ends = after.is_empty() || after.starts_with(' ');
            before.is_some_and(char::is_alphabetic) && ends && !after.trim_start().starts_with('{')
        })
    };
    let lines = file
        .lines
        .iter()
        .enumerate()
        .filter(|(_, line)| shouted(&line.comment));
    lines
        .map(|(index, _)| file.finding(index, "an exclamation mark ends a sentence"))
        .collect()
}

/// A function and the lines of code in its body, as clippy counts them.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    body: usize,
}

fn functions(file: &SourceFile) -> Vec<Function> {
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        for at in words(&line.code, "fn") {
            let rest = line.code[at + 2..].trim_start();
            let name: String = rest
                .chars()
                .take_while(|&c| is_word(c) || c == '$')
                .collect();
            if name.is_empty() {
                continue;
            }
            if let Some(body) = body_lines(file, index, at) {
                found.push(Function {
                    name,
                    line: index,
                    body,
                });
            }
        }
    }
    found
}

/// Lines of code between the braces of the function that starts at `column` of line `index`.
fn body_lines(file: &SourceFile, index: usize, column: usize) -> Option<usize> {
    let (mut brackets, mut braces, mut body) = (0_i32, 0_i32, 0);
    for (n, line) in file.lines.iter().enumerate().skip(index) {
        let code = if n == index {
            &line.code[column..]
        } else {
            &line.code
        };
        body += usize::from(braces > 0 && !code.trim().is_empty());
        for c in code.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                ';' if brackets == 0 && braces == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces <= 0 {
                        return Some(body.saturating_sub(1));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Sizes over the limit, as `path lines` or `path fn name`, with the size.
fn oversizes(file: &SourceFile) -> BTreeMap<String, usize> {
    let mut over = BTreeMap::new();
    let lines = file.text.lines().count();
    if lines > MAX_FILE_LINES {
        over.insert(format!("{} lines", file.path), lines);
    }
    for function in functions(file).iter().filter(|f| f.body > MAX_FN_LINES) {
        over.insert(format!("{} fn {}", file.path, function.name), function.body);
    }
    over
}

/// Sizes against the ratchet: what is listed may shrink only, and leaves the list when it fits.
fn sizes(over: &BTreeMap<String, usize>, ratchet: &str) -> Vec<Finding> {
    let mut listed = BTreeMap::new();
    for line in ratchet
        .lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
    {
        let entry = line
            .rsplit_once(' ')
            .and_then(|(what, n)| Some((what, n.parse().ok()?)));
        let (what, size): (&str, usize) = entry.unwrap_or((line, 0));
        listed.insert(what.to_owned(), size);
    }
    let mut found = Vec::new();
    let mut object = |what: &str, text: String| {
        found.push(Finding {
            path: what.to_owned(),
            line: 0,
            what: text,
        });
    };
    for (what, &size) in over {
        match listed.get(what) {
            None => object(what, format!("{size} is over the limit: split it")),
            Some(&limit) if size > limit => object(what, format!("grew from {limit} to {size}")),
            Some(&limit) if size < limit => object(what, format!("shrank: list {size}")),
            Some(_) => {}
        }
    }
    for what in listed.keys().filter(|what| !over.contains_key(*what)) {
        object(
            what,
            "is within the limit: take it off the ratchet".to_owned(),
        );
    }
    found
}

fn all(check: fn(&SourceFile) -> Vec<Finding>, rust_only: bool) {
    let files = tree();
    let files = files.iter().filter(|file| !rust_only || file.is_rust());
    expect_none(&files.flat_map(check).collect::<Vec<_>>());
}

fn bad(check: fn(&SourceFile) -> Vec<Finding>, text: &str) -> usize {
    check(&SourceFile::new("x.rs", text)).len()
}

#[test]
fn no_tabs_and_trailing_blanks() {
    all(blanks, false);
    assert_eq!(bad(blanks, "a\tb\nc \nd\r\n"), 3);
    assert_eq!(bad(blanks, "no end"), 1);
    assert_eq!(bad(blanks, "fine\n"), 0);
}

#[test]
fn lines_fit_in_100_columns() {
    all(columns, true);
    assert_eq!(bad(columns, &"x".repeat(101)), 1);
    assert_eq!(bad(columns, &format!("//! | {} |", "x".repeat(101))), 0);
    assert_eq!(bad(columns, &"x".repeat(100)), 0);
}

#[test]
fn files_open_with_what_they_are() {
    all(header, true);
    assert_eq!(bad(header, "use x;\n"), 1);
    assert_eq!(bad(header, "//! x.rs\n"), 1);
    assert_eq!(bad(header, "//! What this file is about.\n"), 0);
}

#[test]
fn nothing_is_left_open() {
    all(open_ends, true);
    for word in OPEN_ENDS {
        assert_eq!(bad(open_ends, &format!("// {word} later\n")), 1, "{word}");
        assert_eq!(bad(open_ends, &format!("{word}();\n")), 1, "{word}");
        assert_eq!(
            bad(open_ends, &format!("let x = \"{word}\";\n")),
            0,
            "{word}"
        );
    }
}

#[test]
fn no_words_of_the_workshop() {
    all(shop_words, false);
    for word in SHOP_WORDS {
        assert_eq!(bad(shop_words, &format!("// by {word}\n")), 1, "{word}");
    }
    assert_eq!(bad(shop_words, "// a framework/of parts\n"), 0);
}

#[test]
fn comments_do_not_shout() {
    all(shouts, true);
    assert_eq!(bad(shouts, "// Never do this!\n/// Stop! Now.\n"), 2);
    assert_eq!(
        bad(shouts, "//! assert!(x), `panic!`, x! { y }.\nlet a = !b;\n"),
        0
    );
}

#[test]
fn sizes_are_within_the_limits() {
    let over = tree()
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(oversizes)
        .collect();
    expect_none(&sizes(&over, RATCHET));
}

#[test]
fn sizes_over_the_limits_are_found() {
    let body = "    x();\n".repeat(71);
    let text = format!("fn a(x: [u8; 3]);\nfn long() {{\n    // why\n{body}}}\nfn b() {{ c() }}\n");
    let file = SourceFile::new("x.rs", &text);
    let count = |name: &str, line, body| Function {
        name: name.into(),
        line,
        body,
    };
    assert_eq!(functions(&file), [count("long", 1, 71), count("b", 75, 0)]);
    let over = oversizes(&file);
    assert_eq!(over, BTreeMap::from([("x.rs fn long".to_owned(), 71)]));
    assert_eq!(sizes(&over, "").len(), 1, "not listed");
    assert_eq!(sizes(&over, "x.rs fn long 71\n").len(), 0, "listed");
    assert_eq!(sizes(&over, "x.rs fn long 70\n").len(), 1, "grew");
    assert_eq!(sizes(&over, "x.rs fn long 72\n").len(), 1, "shrank");
    assert_eq!(
        sizes(&BTreeMap::new(), "x.rs fn long 71\n").len(),
        1,
        "fits again"
    );
    let long = SourceFile::new("y.rs", &"\n".repeat(501));
    assert_eq!(
        oversizes(&long),
        BTreeMap::from([("y.rs lines".to_owned(), 501)])
    );
}
