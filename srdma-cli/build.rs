//! Says where the shared libraries are that this program carries.
//!
//! ```text
//! target/release/build/srdma-cli-…/out   OUT_DIR
//! target/release/deps/libsrdma.so        built by cargo, as a dependency of this package
//! ```
//!
//! `cargo install` installs programs alone, so the program has the libraries inside
//! (`src/cmd/run/library.rs`). Cargo builds them as it builds any dependency, and has done so when
//! it compiles the program, which must wait for all of its dependencies. A build that only checks
//! makes no libraries; an empty file then stands for each, and the program takes it for none. That
//! file is made when this script runs: after `cargo clean -p srdma-capi`, build before checking.

use std::path::PathBuf;

/// The libraries.
const NAMES: [&str; 2] = ["libsrdma.so", "libsrdma_pathshim.so"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let Some(profile) = out.ancestors().nth(3) else {
        println!(
            "cargo::error=OUT_DIR has another form than expected: {}",
            out.display()
        );
        return;
    };
    let folder = profile.join("deps");
    for name in NAMES {
        // Never in the place of a library that is there, or is being written.
        let _ = std::fs::File::create_new(folder.join(name));
    }
    println!("cargo::rustc-env=SRDMA_LIBRARIES={}", folder.display());
}
