//! Looks for driver code as Debian packs it, and links it into the tests if it is there.
//!
//! ```text
//! libirdma-rdmav34.a                  there, of version 44  ──► cfg(oracle), linked
//! libmlx5.a and libhns-rdmav34.a      there, of version 44  ──► cfg(oracle_others), linked
//!     (libibverbs-dev)                else                  ──► a warning; tests say "skip"
//! ```
//!
//! The archives are linked into test programs only; nothing of them goes into a library of ours.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// A library as a linker names it, and a symbol of the version whose structures we know.
type Archive = (&'static str, &'static [u8]);

/// Intel's.                                                            [E810 10.1]
const INTEL: [Archive; 1] = [("irdma-rdmav34", b"rdmacore44_0_irdma_uk_qp_init")];
/// Those of the other dialects.                                        [events 4]
const OTHERS: [Archive; 2] = [
    ("mlx5", b"rdmacore44_0_mlx5_arm_cq"),
    ("hns-rdmav34", b"rdmacore44_0_hns_roce_u_hw_v2"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(oracle, oracle_others)");
    link("oracle", "ORACLE_STATUS", &INTEL);
    link("oracle_others", "OTHERS_STATUS", &OTHERS);
}

/// Links all of them and sets `cfg`, or says in `status` why not.
fn link(cfg: &str, status: &str, archives: &[Archive]) {
    match archives.iter().map(find).collect::<Result<Vec<_>, _>>() {
        Ok(folders) => {
            println!("cargo::rustc-cfg={cfg}");
            for ((name, _), folder) in archives.iter().zip(folders) {
                println!("cargo::rustc-link-search=native={}", folder.display());
                println!("cargo::rustc-link-lib=static:-bundle={name}");
            }
            println!("cargo::rustc-env={status}=linked");
        }
        Err(why) => {
            println!("cargo::warning={cfg} is not linked: {why}");
            println!("cargo::rustc-env={status}={why}");
            // Look again next time: a package brings files that are older than this build.
            println!("cargo::rerun-if-changed=no-such-file");
        }
    }
}

/// The folder of the archive, or why it cannot be used.
fn find((name, symbol): &Archive) -> Result<PathBuf, String> {
    let target = env::var("TARGET").unwrap_or_default();
    if target != "x86_64-unknown-linux-gnu" {
        return Err(format!(
            "its structures are those of x86-64 Linux, not {target}"
        ));
    }
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    for folder in folders.map(Path::new) {
        let archive = folder.join(format!("lib{name}.a"));
        println!("cargo::rerun-if-changed={}", archive.display());
        let Ok(bytes) = fs::read(&archive) else {
            continue;
        };
        if !bytes.windows(symbol.len()).any(|part| part == *symbol) {
            return Err(format!("{} is not of rdma-core 44", archive.display()));
        }
        return Ok(folder.to_owned());
    }
    Err(format!(
        "no lib{name}.a here; install Debian's libibverbs-dev"
    ))
}
