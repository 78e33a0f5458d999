//! The list of what may be skipped.

use serde::Deserialize;

/// `skips.toml`, which explains its fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipList {
    pub(crate) version: String,
    pub(crate) tests: usize,
    leave_out: Vec<LeaveOut>,
    skip: Vec<Skips>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaveOut {
    why: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    starts: Vec<String>,
}

/// Tests that are skipped for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Skips {
    pub(crate) why: String,
    pub(crate) says: Vec<String>,
    pub(crate) unless: Option<Thing>,
    tests: Vec<String>,
}

/// What a host may have, and then tests run that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Thing {
    /// Set aside, of 2 MiB.
    #[serde(rename = "huge pages")]
    HugePages,
}

impl SkipList {
    pub(crate) fn load() -> Self {
        Self::parse(include_str!("skips.toml"))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let list: Self = toml::from_str(text).unwrap();
        let reasons = list.skip.iter().map(|skips| &skips.why);
        for why in reasons.chain(list.leave_out.iter().map(|files| &files.why)) {
            assert!(!why.trim().is_empty(), "a skip needs a reason");
        }
        list
    }

    /// Every test that may be skipped.
    pub(crate) fn skips(&self) -> impl Iterator<Item = (&str, &Skips)> {
        self.skip
            .iter()
            .flat_map(|skips| skips.tests.iter().map(move |test| (test.as_str(), skips)))
    }

    /// What is known of the skip of `test`.
    pub(crate) fn find(&self, test: &str) -> Option<&Skips> {
        self.skips()
            .find_map(|(name, skips)| (name == test).then_some(skips))
    }

    /// True if the tests of this file do not run.
    pub(crate) fn leaves_out(&self, file: &str) -> bool {
        self.leave_out.iter().any(|out| {
            out.files.iter().any(|name| name == file)
                || out.starts.iter().any(|start| file.starts_with(start))
        })
    }
}
