//! What a run is worth: its report against the list.

use crate::list::{SkipList, Thing};
use serde::Deserialize;
use std::collections::BTreeMap;

/// How a test went.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    Started,
    Passed,
    Skipped,
    Failed,
}

/// A line of the report.
#[derive(Debug, Deserialize)]
struct Line {
    test: String,
    how: How,
    why: String,
}

/// How each test went, and how the run ended.
#[derive(Debug)]
pub(crate) struct Report {
    tests: BTreeMap<String, (How, String)>,
    /// `None`: it did not end.
    success: Option<bool>,
}

impl Report {
    /// `success`: what the exit status says, if it ended.
    pub(crate) fn parse(lines: &str, success: Option<bool>) -> Self {
        let mut tests = BTreeMap::new();
        for line in lines.lines() {
            // The last line of a run that was killed may be cut off.
            let Ok(Line { test, how, why }) = serde_json::from_str(line) else {
                continue;
            };
            let name = test.strip_prefix("tests.").unwrap_or(&test).to_owned();
            let went: &mut (How, String) =
                tests.entry(name).or_insert((How::Started, String::new()));
            if went.0 != How::Failed {
                *went = (how, why);
            }
        }
        Self { tests, success }
    }

    fn count(&self, how: &How) -> usize {
        self.tests.values().filter(|(went, _)| went == how).count()
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} tests: {} passed, {} skipped, {} failed, {} did not end",
            self.tests.len(),
            self.count(&How::Passed),
            self.count(&How::Skipped),
            self.count(&How::Failed),
            self.count(&How::Started),
        )
    }
}

/// What this host has of the things that tests ask for.
pub(crate) fn host() -> Vec<Thing> {
    const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let pages = std::fs::read_to_string(PAGES).unwrap_or_default();
    let pages: u64 = pages.trim().parse().unwrap_or(0);
    if pages == 0 {
        Vec::new()
    } else {
        vec![Thing::HugePages]
    }
}

/// What is wrong with a run. `reviewed`: the list was made for this version of the suite, so skips
/// count, too. `has`: things of the host.
pub(crate) fn judge(
    report: &Report,
    list: &SkipList,
    reviewed: bool,
    has: &[Thing],
) -> Vec<String> {
    let mut wrong = Vec::new();
    match report.success {
        None => wrong.push("the suite hangs".to_owned()),
        Some(false) if report.count(&How::Failed) == 0 => {
            wrong.push("the suite ended with an error, and no test did".to_owned());
        }
        Some(_) => {}
    }
    for (test, (how, why)) in &report.tests {
        match how {
            How::Started => wrong.push(format!("{test} did not end")),
            How::Failed => wrong.push(format!("{test} failed: {why}")),
            How::Skipped if reviewed => match list.find(test) {
                None => wrong.push(format!("{test} is skipped: {why}")),
                Some(skips) if !skips.says.iter().any(|says| why.contains(says)) => wrong.push(
                    format!("{test} is skipped, but not because {}: {why}", skips.why),
                ),
                Some(skips) if skips.unless.is_some_and(|thing| has.contains(&thing)) => {
                    wrong.push(format!(
                        "{test} is skipped, but what it needs is there: {why}"
                    ));
                }
                Some(_) => {}
            },
            How::Skipped | How::Passed => {}
        }
    }
    if !reviewed {
        return wrong;
    }
    for (test, skips) in list.skips() {
        let here = skips.unless.is_some_and(|thing| has.contains(&thing));
        match report.tests.get(test) {
            None => wrong.push(format!("{test} is on the list, but did not run")),
            Some((How::Passed, _)) if !here => {
                wrong.push(format!("{test} passes: take it off the list"));
            }
            Some(_) => {}
        }
    }
    if report.tests.len() != list.tests {
        let (ran, all) = (report.tests.len(), list.tests);
        wrong.push(format!("{ran} tests ran, and there are {all}"));
    }
    wrong
}

const LIST: &str = r#"
    version = "44.0"
    tests = 3
    [[leave_out]]
    why = "needs what we have not"
    files = ["test_cm"]
    [[skip]]
    why = "not supported"
    says = ["not supported"]
    tests = ["test_a.A.raw"]
    [[skip]]
    why = "no such pages"
    unless = "huge pages"
    says = ["no huge pages"]
    tests = ["test_a.A.huge"]
"#;

/// The findings about three tests, each with what it said, on a host with `has`.
fn findings(went: [(&str, &str); 3], success: Option<bool>, has: &[Thing]) -> Vec<String> {
    let names = ["raw", "huge", "send"];
    let lines = names.iter().zip(went).map(|(name, (how, why))| {
        let test = format!("tests.test_a.A.{name}");
        let started = serde_json::json!({"test": test, "how": "started", "why": ""});
        let line = serde_json::json!({"test": test, "how": how, "why": why});
        format!("{started}\n{line}\n")
    });
    let report = Report::parse(&lines.collect::<String>(), success);
    judge(&report, &SkipList::parse(LIST), true, has)
}

const RAW: (&str, &str) = ("skipped", "Raw QP is not supported");
const HUGE: (&str, &str) = ("skipped", "There are no huge pages");
const PASSED: (&str, &str) = ("passed", "");

#[test]
fn what_the_list_expects_is_right() {
    assert!(findings([RAW, HUGE, PASSED], Some(true), &[]).is_empty());
    let pages = [Thing::HugePages];
    assert!(findings([RAW, PASSED, PASSED], Some(true), &pages).is_empty());
}

#[test]
fn failures_and_hangs_are_found() {
    let failed = ("failed", "EINVAL");
    let found = findings([RAW, HUGE, failed], Some(false), &[]);
    assert_eq!(found, ["test_a.A.send failed: EINVAL"]);
    let found = findings([RAW, HUGE, ("started", "")], None, &[]);
    assert_eq!(found, ["the suite hangs", "test_a.A.send did not end"]);
    let found = findings([RAW, HUGE, PASSED], Some(false), &[]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn new_skips_and_other_reasons_are_found() {
    let skipped = ("skipped", "XRC is not supported");
    let found = findings([RAW, HUGE, skipped], Some(true), &[]);
    assert_eq!(found, ["test_a.A.send is skipped: XRC is not supported"]);
    let other = ("skipped", "the device does not open");
    assert_eq!(findings([other, HUGE, PASSED], Some(true), &[]).len(), 1);
    let pages = [Thing::HugePages];
    assert_eq!(findings([RAW, HUGE, PASSED], Some(true), &pages).len(), 1);
}

#[test]
fn stale_entries_are_found() {
    let found = findings([PASSED, HUGE, PASSED], Some(true), &[]);
    assert_eq!(found, ["test_a.A.raw passes: take it off the list"]);
    assert_eq!(findings([RAW, PASSED, PASSED], Some(true), &[]).len(), 1);
    let report = Report::parse("", Some(true));
    let list = SkipList::parse(LIST);
    assert_eq!(judge(&report, &list, true, &[]).len(), 3);
    assert!(judge(&report, &list, false, &[]).is_empty());
}

#[test]
fn a_failure_is_not_undone_by_a_later_line() {
    let lines = [("failed", "a"), ("passed", "")].map(|(how, why)| {
        serde_json::json!({"test": "tests.test_a.A.send", "how": how, "why": why}).to_string()
    });
    let report = Report::parse(&lines.join("\n"), Some(false));
    let list = SkipList::parse(LIST);
    let found = judge(&report, &list, false, &[]);
    assert_eq!(found, ["test_a.A.send failed: a"]);
}

#[test]
fn files_are_left_out_by_name() {
    let list = SkipList::load();
    for (file, out) in [
        ("test_rdmacm", true),
        ("test_mlx5_dc", true),
        ("test_mr", false),
    ] {
        assert_eq!(list.leaves_out(file), out, "{file}");
    }
}
