//! Every rule that we owe has code and a test, or an excuse.
//!
//! ```text
//! docs/requirements.toml   the rules: id, source, text, built or why not
//! // rule: roce-41         in code: here it is implemented
//! // proves: roce-41       in a test: here it is shown
//! ratchet.txt              built rules that still lack one of the two; it may only shrink
//! ```
//!
//! A comment may name several ids, parted by commas. `SRDMA_UPDATE=1` takes ids off the ratchet
//! that lack nothing any more; nothing ever puts one on. The coverage table is printed
//! (`cargo test -p srdma-tests --test requirements -- --nocapture`).
//! What this does not do: judge whether a test really proves its rule.

#![cfg(test)]

use serde::Deserialize;
use srdma_tests::source::{Finding, SourceFile, root, tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const RATCHET: &str = "tests/tests/requirements/ratchet.txt";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    id: String,
    source: String,
    text: String,
    built: bool,
    why: Option<String>,
}

/// How often each id is named by code and by tests.
#[derive(Debug, Default)]
struct Named {
    rule: BTreeMap<String, usize>,
    proves: BTreeMap<String, usize>,
}

/// What is wrong with the rules themselves.
fn check_rules(rules: &[Rule]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for rule in rules {
        if !seen.insert(&rule.id) {
            wrong.push(format!("{}: stands twice", rule.id));
        }
        if rule.built == rule.why.is_some() {
            wrong.push(format!(
                "{}: `why` belongs to rules that are not built",
                rule.id
            ));
        }
        if rule.source.is_empty() || !rule.text.ends_with('.') {
            wrong.push(format!(
                "{}: give a source, and a text that is a sentence",
                rule.id
            ));
        }
    }
    wrong
}

/// The ids after `key` in a comment; `None` without the key.
fn ids<'a>(comment: &'a str, key: &str) -> Option<Vec<&'a str>> {
    let text = comment.trim().trim_start_matches(['/', '!']).trim_start();
    let rest = text.strip_prefix(key)?.split('(').next()?;
    let words = rest.split([',', ' ']).filter(|word| !word.is_empty());
    Some(
        words
            .map(|word| word.trim_end_matches(['.', ';']))
            .collect(),
    )
}

/// Collects what the comments of a file name, and objects to unknown ids.
fn read(file: &SourceFile, known: &BTreeSet<&str>, named: &mut Named) -> Vec<Finding> {
    let mut found = Vec::new();
    for (index, line) in file.lines.iter().enumerate() {
        for key in ["rule:", "proves:"] {
            let Some(ids) = ids(&line.comment, key) else {
                continue;
            };
            if ids.is_empty() {
                found.push(file.finding(index, format!("`{key}` without an id")));
            }
            for id in ids {
                if !known.contains(id) {
                    found.push(file.finding(index, format!("`{key}` names unknown id `{id}`")));
                }
                let counts = if key == "rule:" {
                    &mut named.rule
                } else {
                    &mut named.proves
                };
                *counts.entry(id.to_owned()).or_default() += 1;
            }
        }
    }
    found
}

/// Built rules that lack code or a test, and what they lack.
fn lacking(rules: &[Rule], named: &Named) -> BTreeMap<String, &'static str> {
    let lack = |rule: &Rule| match (
        named.rule.contains_key(&rule.id),
        named.proves.contains_key(&rule.id),
    ) {
        (true, true) => None,
        (true, false) => Some("a test"),
        (false, true) => Some("code"),
        (false, false) => Some("code and a test"),
    };
    let built = rules.iter().filter(|rule| rule.built);
    built
        .filter_map(|rule| Some((rule.id.clone(), lack(rule)?)))
        .collect()
}

/// What the ratchet objects to: a lack that is not listed, a listed id that lacks nothing.
fn against(lacking: &BTreeMap<String, &str>, listed: &BTreeSet<&str>) -> Vec<String> {
    let more = lacking
        .iter()
        .filter(|(id, _)| !listed.contains(id.as_str()));
    let more = more.map(|(id, what)| format!("{id} lacks {what}"));
    let stale = listed.iter().filter(|id| !lacking.contains_key(**id));
    let stale = stale.map(|id| format!("{id} lacks nothing: take it off {RATCHET}"));
    more.chain(stale).collect()
}

fn ratchet_ids(text: &str) -> BTreeSet<&str> {
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect()
}

/// Rules by family: built, with code, with a test, with both.
fn coverage(rules: &[Rule], named: &Named) -> String {
    let mut rows: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    for rule in rules {
        let family = rule.id.rsplit_once('-').map_or("", |(family, _)| family);
        let (code, test) = (
            named.rule.contains_key(&rule.id),
            named.proves.contains_key(&rule.id),
        );
        for row in [family, "all"] {
            let counts = rows.entry(row).or_default();
            let marks = [true, rule.built, code, test, rule.built && code && test];
            for (count, mark) in counts.iter_mut().zip(marks) {
                *count += usize::from(mark);
            }
        }
    }
    let mut table = String::from("| family | rules | built | code | test | both |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for (family, [rules, built, code, test, both]) in rows {
        let _ = writeln!(
            table,
            "| {family} | {rules} | {built} | {code} | {test} | {both} |"
        );
    }
    table
}

fn rules() -> Vec<Rule> {
    let path = root().join("docs/requirements.toml");
    let text = std::fs::read_to_string(path).expect("readable");
    toml::from_str::<Rules>(&text)
        .expect("well-formed rules")
        .rule
}

#[test]
fn rules_are_well_formed() {
    let rules = rules();
    assert_eq!(check_rules(&rules), Vec::<String>::new());
    let count = |family: &str| {
        rules
            .iter()
            .filter(|rule| rule.id.starts_with(family))
            .count()
    };
    assert_eq!(
        (count("roce-"), count("e810-"), count("xrc-")),
        (164, 35, 10),
        "a rule is never taken away"
    );
}

#[test]
fn every_built_rule_has_code_and_a_test() {
    let rules = rules();
    let known: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    let mut named = Named::default();
    let files = tree().expect("readable");
    let unknown: Vec<String> = files
        .iter()
        .flat_map(|file| read(file, &known, &mut named))
        .map(|finding| finding.to_string())
        .collect();
    println!("{}", coverage(&rules, &named));
    assert!(unknown.is_empty(), "\n{}\n", unknown.join("\n"));

    let lacking = lacking(&rules, &named);
    let path = root().join(RATCHET);
    let text = std::fs::read_to_string(&path).expect("readable");
    if std::env::var_os("SRDMA_UPDATE").is_some() {
        let keep = |line: &&str| line.starts_with('#') || lacking.contains_key(line.trim());
        let kept: String = text
            .lines()
            .filter(keep)
            .flat_map(|line| [line, "\n"])
            .collect();
        std::fs::write(&path, kept).expect("writable");
        return;
    }
    let wrong = against(&lacking, &ratchet_ids(&text));
    assert!(
        wrong.is_empty(),
        "\n{}\n(SRDMA_UPDATE=1 takes off what lacks nothing)\n",
        wrong.join("\n")
    );
}

#[test]
fn what_is_wrong_is_found() {
    let rule = |id: &str, built, why: Option<&str>| Rule {
        id: id.to_owned(),
        source: "IBTA 9".to_owned(),
        text: "It works.".to_owned(),
        built,
        why: why.map(str::to_owned),
    };
    let rules = [
        rule("a-1", true, None),
        rule("a-2", true, None),
        rule("a-3", false, Some("no")),
    ];
    assert_eq!(check_rules(&rules).len(), 0);
    assert_eq!(
        check_rules(&[rule("a-1", true, None), rule("a-1", false, None)]).len(),
        2
    );

    let known = BTreeSet::from(["a-1", "a-2", "a-3"]);
    let mut named = Named::default();
    let text = "// rule: a-1, a-2\nf(); // proves: a-1 (edges)\nlet s = \"// rule: b-1\";\n";
    assert!(read(&SourceFile::new("x.rs", text), &known, &mut named).is_empty());
    let text = "// rule: a-9\n/// proves:\n";
    assert_eq!(
        read(
            &SourceFile::new("x.rs", text),
            &known,
            &mut Named::default()
        )
        .len(),
        2
    );

    let lacking = lacking(&rules, &named);
    assert_eq!(lacking, BTreeMap::from([("a-2".to_owned(), "a test")]));
    assert_eq!(against(&lacking, &ratchet_ids("# why\na-2\n")).len(), 0);
    assert_eq!(against(&lacking, &ratchet_ids("")), ["a-2 lacks a test"]);
    assert_eq!(
        against(&lacking, &ratchet_ids("a-1\na-2\n")).len(),
        1,
        "stale"
    );
    assert!(coverage(&rules, &named).contains("| a | 3 | 2 | 2 | 1 | 1 |"));
}
