//! `srdma-cli`, as the sources are: built if need be, by the cargo that runs the tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The program: of a quick test in its profile, of others as users have it.
///
/// # Panics
///
/// If it does not build.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build).clone()
}

#[allow(clippy::expect_used, reason = "a test fails by panicking")]
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.ancestors().nth(2).expect("cargo made its folders");
    let target = profile.parent().expect("cargo made its folders");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--locked"])
        .current_dir(crate::source::root())
        .env("CARGO_TARGET_DIR", target);
    let quick = profile.ends_with("debug");
    if !quick {
        build.arg("--release");
    }
    let built = build.status().expect("cargo runs");
    assert!(built.success(), "srdma-cli does not build");
    let folder = if quick { "debug" } else { "release" };
    target.join(folder).join("srdma-cli")
}
