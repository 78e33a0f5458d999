//! Link step of `libsrdma.so`: names the version nodes that the trampolines of `exports` stand in.
//!
//! ```text
//! rustc's own script   anonymous; hides everything that is not exported
//! nodes.map            declares nodes and nothing else; `.symver` puts the symbols into them
//! ```
//!
//! Two scripts of different kinds are more than GNU ld takes, so rust-lld is named here, whatever
//! the default of the target is.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nodes of libibverbs, each the successor of the one before.
const VERBS: [&str; 15] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17",
];
/// The last one.
const VERBS_LAST: &str = "1.18";
/// Private nodes, by the release of rdma-core that introduced them.
const PRIVATE: [&str; 5] = ["34", "57", "59", "64", "65"];
/// Nodes of librdmacm.
const CM: [&str; 6] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let script = out.join("nodes.map");
    if let Err(error) = fs::write(&script, nodes()) {
        println!("cargo::error=cannot write {}: {error}", script.display());
    }
    let arg = |text: String| println!("cargo::rustc-cdylib-link-arg={text}");
    arg(format!("-Wl,--version-script={}", script.display()));
    arg("-Wl,-soname,libibverbs.so.1".to_owned());
    // Its threads outlive a dlclose.
    arg("-Wl,-z,nodelete".to_owned());
    if let Some(linker) = bundled_linker() {
        arg(format!("-B{}", linker.display()));
        arg("-fuse-ld=lld".to_owned());
    }
}

/// The version script.
fn nodes() -> String {
    let mut text = String::new();
    let verbs: Vec<&str> = VERBS.into_iter().chain([VERBS_LAST]).collect();
    chain(&mut text, "IBVERBS_", &verbs);
    for node in PRIVATE {
        let _ = writeln!(text, "IBVERBS_PRIVATE_{node} {{ }};");
    }
    chain(&mut text, "RDMACM_", &CM);
    text
}

fn chain(text: &mut String, prefix: &str, nodes: &[&str]) {
    let mut before = String::new();
    for node in nodes {
        let _ = writeln!(text, "{prefix}{node} {{ }}{before};");
        before = format!(" {prefix}{node}");
    }
}

/// The folder of the linker that comes with the compiler, in the form that gcc looks for.
fn bundled_linker() -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC")?;
    let host = env::var("HOST").ok()?;
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let folder = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin/gcc-ld");
    folder.is_dir().then_some(folder)
}
