//! Instruction counts of the data path, each within its budget.
//!
//! ```text
//! test ── valgrind --tool=callgrind ──► this program again, as a workload (`work.rs`)
//!   └──◄─ counts by function (`callgrind.rs`) ─── beside `budgets.toml`
//! ```
//!
//! Time on a shared machine proves nothing; instructions on a wire in memory, with a clock that
//! stands still, are the same each time but for what the processor makes libc choose. A figure
//! over its budget fails. One far below it is printed: then the budget should follow. In a debug
//! build there is nothing to compare with. `SRDMA_UPDATE=1` writes budgets of what was counted and
//! a tenth.
//!
//! gate: counts

#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod callgrind;
mod work;

use callgrind::Counts;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use work::{Work, workload};

/// Budgets: instructions of a phase for one message, by workload.
type Budgets = BTreeMap<String, BTreeMap<String, u64>>;

fn budgets_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counts/budgets.toml")
}

/// Instructions of each phase for one message.
fn phases(counts: &Counts, work: &Work) -> BTreeMap<String, u64> {
    let of = |name: &str| counts.inclusive(name);
    let copied = counts.between("responder", "memcpy") + counts.between("responder", "memmove");
    let place = of("4Part5place") + copied;
    // What a thread does for the device while it posts or polls is no part of either.
    let posted = of("drive_posted") + of("drive_joined");
    for (name, count) in [
        ("drive_posted or drive_joined", posted),
        ("drive_polling", of("drive_polling")),
        ("poll_transmit", of("poll_transmit")),
        ("handle_datagram", of("handle_datagram")),
    ] {
        assert!(count > 0, "{name} is no function of its own any more");
    }
    let all = [
        ("post", of("count_post") - posted),
        ("poll", of("count_poll") - of("drive_polling")),
        ("emit", of("poll_transmit")),
        ("receive", of("handle_datagram") - place),
        ("place", place),
    ];
    all.map(|(name, count)| (name.to_owned(), count / work.messages()))
        .into()
}

/// Runs a workload under valgrind.
fn count(work: &Work) -> Counts {
    let out = std::env::temp_dir().join(format!("srdma-counts-{}", std::process::id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--demangle=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "work_under_valgrind",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(work::ROLE, work.name())
        .output();
    let run = run.unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    Counts::read(&text)
}

#[test]
fn work_under_valgrind() {
    if let Ok(name) = std::env::var(work::ROLE) {
        workload(Work::ALL.iter().find(|work| work.name() == name).unwrap());
    }
}

#[test]
fn instructions_are_within_their_budgets() {
    if std::env::var(work::ROLE).is_ok() {
        return;
    }
    if cfg!(debug_assertions) {
        println!("skip: budgets are those of optimized builds");
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skip: valgrind is not installed");
        return;
    }
    let text = std::fs::read_to_string(budgets_path()).unwrap_or_default();
    let budgets: Budgets = toml::from_str(&text).unwrap();
    let mut counted = Budgets::new();
    let mut over = Vec::new();
    for work in &Work::ALL {
        let phases = phases(&count(work), work);
        for (phase, count) in &phases {
            let budget = budgets
                .get(work.name())
                .and_then(|all| all.get(phase))
                .copied();
            let budget = budget.unwrap_or(0);
            println!("{:12} {phase:8} {count:>9} of {budget:>9}", work.name());
            assert!(*count > 0, "{} {phase}: nothing was counted", work.name());
            if *count > budget {
                over.push(format!("{} {phase}: {count}, budget {budget}", work.name()));
            } else if *count * 10 < budget * 8 {
                println!("{:12} {phase:8} is far below: SRDMA_UPDATE=1", work.name());
            }
        }
        counted.insert(work.name().to_owned(), phases);
    }
    if std::env::var("SRDMA_UPDATE").is_ok_and(|set| set == "1") {
        let with_room = counted.iter().map(|(name, phases)| {
            let phases = phases
                .iter()
                .map(|(phase, count)| (phase, count + count / 10 + 1));
            (name, phases.collect::<BTreeMap<_, _>>())
        });
        let text = toml::to_string(&with_room.collect::<BTreeMap<_, _>>()).unwrap();
        let head =
            "# Instructions of a phase for one message, at most. Made by SRDMA_UPDATE=1.\n\n";
        std::fs::write(budgets_path(), format!("{head}{text}")).unwrap();
        return;
    }
    assert!(over.is_empty(), "over budget: {}", over.join("; "));
}
