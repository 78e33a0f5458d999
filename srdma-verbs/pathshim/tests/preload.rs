//! The library in front of a C program that looks at paths in every way there is.
//!
//! The test compiles `probe.c`, makes a tree, and compares what the program sees through the
//! library with what it sees without. It needs a C compiler, as `tests/run` says.

#![allow(
    clippy::tests_outside_test_module,
    reason = "all of this file is a test"
)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lines of the probe that say what other paths do.
const STRANGERS: [&str; 6] = ["mode", "null", "empty", "proc", "missing", "dlerror"];
/// Ways to look at a path.
const WAYS: usize = 40;

/// A folder of this test; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("srdma-pathshim-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A tree with one file in each place that leads into it.
    fn tree(&self) -> PathBuf {
        let tree = self.0.join("tree");
        for folder in [
            "class/infiniband/srdma0",
            "class/misc/rdma_cm",
            "dev/infiniband",
        ] {
            let folder = tree.join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("file"), "seen\n").unwrap();
        }
        tree
    }

    fn probe(&self) -> PathBuf {
        let program = self.0.join("probe");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probe.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut compile = Command::new(compiler);
        compile
            .args(["-w", "-O1", "-o"])
            .arg(&program)
            .arg(source)
            .arg("-ldl");
        assert!(compile.status().unwrap().success(), "probe.c compiles");
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The shared library, which cargo puts beside the test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libsrdma_pathshim.so");
    assert!(library.exists(), "{}", library.display());
    library
}

/// What the probe says, as (way, answer).
fn look(probe: &Path, file: &str, tree: Option<&Path>) -> Vec<(String, String)> {
    let (folder, _) = file.rsplit_once('/').unwrap();
    let mut command = Command::new(probe);
    command.args([file, folder]).env("LD_PRELOAD", library());
    command.env_remove("SRDMA_SYSFS");
    if let Some(tree) = tree {
        command.env("SRDMA_SYSFS", tree);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (way, answer) = line.split_once(' ').unwrap();
        (way.to_owned(), answer.to_owned())
    };
    text.lines().map(line).collect()
}

fn stranger(way: &str) -> bool {
    STRANGERS.contains(&way)
}

#[test]
fn every_way_leads_into_the_tree() {
    let folder = Folder::new();
    let (tree, probe) = (folder.tree(), folder.probe());
    for file in [
        "/sys/class/infiniband/srdma0/file",
        "//sys//class/misc/rdma_cm/file",
        "/dev/infiniband/file",
    ] {
        let answers = look(&probe, file, Some(&tree));
        for (way, answer) in &answers {
            assert_eq!(answer, "yes", "{way} of {file}");
        }
        assert_eq!(answers.len(), WAYS + STRANGERS.len());
    }
}

#[test]
fn without_a_tree_nothing_changes() {
    let folder = Folder::new();
    let (tree, probe) = (folder.tree(), folder.probe());
    let none = "/sys/class/infiniband/srdma0/file";
    for (tree, file) in [
        (None, none),
        (Some(Path::new("relative")), none),
        (Some(&*tree), "/dev/infinibands/file"),
        (Some(&*tree), "/sys/class/infiniband/../nothing/file"),
    ] {
        for (way, answer) in look(&probe, file, tree) {
            let expected = if stranger(&way) {
                "yes"
            } else {
                "No such file or directory"
            };
            assert_eq!(answer, expected, "{way} of {file}");
        }
    }
}

#[test]
fn a_plain_file_is_seen_as_it_is() {
    let folder = Folder::new();
    let (tree, probe) = (folder.tree(), folder.probe());
    let file = tree.join("dev/infiniband/file");
    for (way, answer) in look(&probe, file.to_str().unwrap(), Some(&tree)) {
        assert_eq!(answer, "yes", "{way}");
    }
}

#[test]
fn shells_and_their_tools_see_the_tree() {
    let folder = Folder::new();
    let tree = folder.tree();
    let script = "cd / && ls /sys/class/infiniband && cat /sys/class/infiniband/srdma0/file \
        && test -r /dev/infiniband/file && read x < /sys/class/infiniband/srdma0/file && echo $x";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .env("LD_PRELOAD", library())
        .env("SRDMA_SYSFS", &tree);
    let output = shell.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        text,
        "srdma0\nseen\nseen\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
