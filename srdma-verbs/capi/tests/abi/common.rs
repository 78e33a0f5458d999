//! Where the library is, and programs that load it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that cargo built beside this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let library = folder.join("libsrdma.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// A folder with the names that programs ask for; gone when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let id = format!("srdma-abi-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(id);
        fs::create_dir_all(&folder).unwrap();
        for link in [
            "libibverbs.so.1",
            "libibverbs.so",
            "librdmacm.so.1",
            "librdmacm.so",
        ] {
            symlink(library(), folder.join(link)).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A program with the library in place of the system's.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", &self.0)
            .env("LD_PRELOAD", library());
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command prints; it must end well.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}
