//! rdma-core's own test suite, unmodified, on `libsrdma.so`.
//!
//! ```text
//! Debian's rdma-core ─ its tests, unpacked ─┐
//! Debian's python3-pyverbs ─────────────────┼─► srdma-cli run -- python3 runner.py ─► report
//! skips.toml: what may be skipped, and why ─┴──────────────────────────────► judge ◄──┘
//! ```
//!
//! The suite runs over IPv4 and over IPv6, as a user without privileges and with 64 KiB of memory
//! to lock, and several times at once on one address. What fails, hangs, is skipped for a reason
//! that nobody looked at, or stands in the list without need, fails here. The suite comes from its
//! package and stays there, since its licence is another one.
//!
//! gate: pyverbs

#![cfg(test)]

mod judge;
mod list;
mod suite;

use list::SkipList;
use srdma_tests::source;
use std::net::{IpAddr, Ipv6Addr};
use suite::{Kit, User};

/// How often it runs at once on one address.
const AT_ONCE: usize = 3;

/// Runs the suite `times` at once; fails with all that is wrong.
fn run(address: IpAddr, user: User, times: usize) {
    let Some(kit) = Kit::find() else {
        println!("skip: rdma-core's tests or python3-pyverbs are not installed");
        return;
    };
    let list = SkipList::load();
    let runs: Vec<_> = (0..times)
        .map(|_| kit.start(&list, address, user))
        .collect();
    let mut wrong = Vec::new();
    for run in runs {
        let (report, said) = run.end();
        let findings = judge::judge(&report, &list, kit.is_reviewed(&list), &judge::host());
        println!("{}", report.summary());
        if !findings.is_empty() {
            println!("{said}");
        }
        wrong.extend(findings);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn passes_over_ipv4() {
    run(suite::address(), User::Same, 1);
}

#[test]
fn passes_over_ipv6() {
    run(Ipv6Addr::LOCALHOST.into(), User::Same, 1);
}

#[test]
fn passes_several_times_at_once_on_one_address() {
    run(suite::address(), User::Same, AT_ONCE);
}

#[test]
fn passes_without_privileges() {
    if suite::is_root() {
        run(suite::address(), User::Nobody, 1);
    } else {
        println!("the other tests of this file have no privileges already");
    }
}

#[test]
fn documents_tell_how_many_pass() {
    let list = SkipList::load();
    let skipped = list.skips().count();
    let told = format!(
        "{} pass, {skipped} are skipped, 0 fail",
        list.tests - skipped
    );
    let text = std::fs::read_to_string(source::root().join("docs/drop-in.md")).unwrap();
    assert!(text.contains(&told), "docs/drop-in.md should say: {told}");
}
