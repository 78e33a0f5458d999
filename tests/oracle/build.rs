//! Looks for Intel's driver code as Debian packs it, and links it into the tests if it is there.
//!
//! ```text
//! libirdma-rdmav34.a (libibverbs-dev)  there, of version 44  ──► cfg(oracle), linked
//!                                      else                  ──► a warning; tests say "skip"
//! ```
//!
//! The archive is linked into test programs only; nothing of it goes into a library of ours.

use std::path::PathBuf;
use std::{env, fs};

/// The library, as a linker names it.
const NAME: &str = "irdma-rdmav34";
/// A symbol of the version whose structures `ffi.rs` declares.         [E810 10.1]
const SYMBOL: &[u8] = b"rdmacore44_0_irdma_uk_qp_init";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(oracle)");
    match find() {
        Ok(folder) => {
            println!("cargo::rustc-cfg=oracle");
            println!("cargo::rustc-link-search=native={}", folder.display());
            println!("cargo::rustc-link-lib=static:-bundle={NAME}");
            println!("cargo::rustc-env=ORACLE_STATUS=linked");
        }
        Err(why) => {
            println!("cargo::warning=the Intel oracle is not linked: {why}");
            println!("cargo::rustc-env=ORACLE_STATUS={why}");
            // Look again next time: a package brings files that are older than this build.
            println!("cargo::rerun-if-changed=no-such-file");
        }
    }
}

/// The folder of the archive, or why it cannot be used.
fn find() -> Result<PathBuf, String> {
    let target = env::var("TARGET").unwrap_or_default();
    if target != "x86_64-unknown-linux-gnu" {
        return Err(format!(
            "its structures are those of x86-64 Linux, not {target}"
        ));
    }
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    for folder in folders.map(PathBuf::from) {
        let archive = folder.join(format!("lib{NAME}.a"));
        println!("cargo::rerun-if-changed={}", archive.display());
        let Ok(bytes) = fs::read(&archive) else {
            continue;
        };
        if !bytes.windows(SYMBOL.len()).any(|part| part == SYMBOL) {
            return Err(format!("{} is not of rdma-core 44", archive.display()));
        }
        return Ok(folder);
    }
    Err(format!(
        "no lib{NAME}.a here; install Debian's libibverbs-dev"
    ))
}
