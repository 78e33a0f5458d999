//! The suite: found in its package, unpacked, started, and waited for.

use crate::judge::Report;
use crate::list::SkipList;
use srdma_tests::{program, source};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// Where Debian's rdma-core has it, and what runs it: the Python that python3-pyverbs belongs to.
const PACKAGE: &str = "/usr/share/doc/rdma-core/tests";
const PYTHON: &str = "/usr/bin/python3";
/// Looks, a hundredth of a second apart, after which a run is taken to hang.
const PATIENCE: u32 = 11_000;
/// A user that owns nothing, and what an unprivileged user may lock, by default.
const NOBODY: &str = "65534";
const MEMLOCK: &str = "--memlock=65536:65536";

/// A loopback address that nothing else has.
pub(crate) fn address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [low, high, ..] = std::process::id().to_le_bytes();
    let last = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, 64 + (high & 0x7f), low, last).into()
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Who runs the tests.
    Same,
    /// A user without privileges.
    Nobody,
}

/// The suite, unpacked, and our program. Removed when dropped.
pub(crate) struct Kit {
    folder: PathBuf,
    version: String,
}

impl Kit {
    /// `None` if a package is missing.
    pub(crate) fn find() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let known = Command::new(PYTHON)
            .args(["-c", "import pyverbs.device"])
            .output();
        if !Path::new(PACKAGE).is_dir() || !known.is_ok_and(|known| known.status.success()) {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("srdma-pyverbs-{}-{number}", std::process::id());
        let kit = Self {
            folder: std::env::temp_dir().join(name),
            version: version(),
        };
        kit.unpack();
        Some(kit)
    }

    fn unpack(&self) {
        let tests = self.folder.join("tests");
        fs::create_dir_all(&tests).unwrap();
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(PACKAGE).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), tests.join(entry.file_name())).unwrap();
            }
        }
        let packed = |name: &str| name.ends_with(".gz");
        let names = fs::read_dir(&tests).unwrap();
        let names = names.map(|entry| entry.unwrap().path().display().to_string());
        let unpacked = Command::new("gunzip")
            .args(names.filter(|name| packed(name)))
            .status();
        assert!(unpacked.unwrap().success(), "the suite does not unpack");
        // Where another user can reach them.
        fs::copy(program::program(), self.folder.join("srdma-cli")).unwrap();
        let runner = source::root().join("tests/tests/pyverbs/runner.py");
        fs::copy(runner, self.folder.join("runner.py")).unwrap();
    }

    /// True if the list was made for this version of the package.
    pub(crate) fn is_reviewed(&self, list: &SkipList) -> bool {
        let same = self.version.starts_with(&format!("{}-", list.version));
        if !same {
            println!("rdma-core is {}: only failures count", self.version);
        }
        same
    }

    /// Modules whose tests do not run, parted by commas.
    fn left_out(&self, list: &SkipList) -> String {
        let entries = fs::read_dir(self.folder.join("tests")).unwrap();
        let names = entries.filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(name.strip_suffix(".py")?.to_owned())
        });
        let names: Vec<_> = names.filter(|name| list.leaves_out(name)).collect();
        names.join(",")
    }

    /// Starts it on a device that has `address`.
    pub(crate) fn start(&self, list: &SkipList, address: IpAddr, user: User) -> Run {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = self.folder.join(format!("run-{number}"));
        fs::create_dir(&own).unwrap();
        let cli = self.folder.join("srdma-cli");
        let mut command = match user {
            User::Same => Command::new(cli),
            User::Nobody => {
                let id: u32 = NOBODY.parse().unwrap();
                std::os::unix::fs::chown(&own, Some(id), Some(id)).unwrap();
                let mut command = Command::new("prlimit");
                command.args([MEMLOCK, "setpriv", "--reuid", NOBODY, "--regid", NOBODY]);
                command.args(["--clear-groups", "--inh-caps=-all"]).arg(cli);
                command
            }
        };
        let report = own.join("report");
        let log = File::create(own.join("log")).unwrap();
        command.args(["run", "--", PYTHON]);
        command.arg(self.folder.join("runner.py"));
        command
            .arg(&self.folder)
            .arg(&report)
            .arg(self.left_out(list));
        command.args(["--dev", "srdma0", "--port", "1", "--gid", "0"]);
        command
            .current_dir(&own)
            .env("HOME", &own)
            .env("XDG_CACHE_HOME", own.join("cache"));
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SRDMA_CONFIG", "");
        command
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env_remove("SRDMA_LIB");
        command.env("SRDMA_DEVICES", format!("srdma0={address}"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Run {
            child: command.spawn().unwrap(),
            own,
        }
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The version of the package.
fn version() -> String {
    let asked = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", "rdma-core"])
        .output();
    asked.map_or_else(
        |_| "of an unknown version".to_owned(),
        |asked| String::from_utf8_lossy(&asked.stdout).into_owned(),
    )
}

/// A run under way. Killed when dropped.
pub(crate) struct Run {
    child: Child,
    own: PathBuf,
}

impl Run {
    /// Waits for the end: the report, and what was said.
    pub(crate) fn end(mut self) -> (Report, String) {
        let mut status = None;
        for _ in 0..PATIENCE {
            status = self.child.try_wait().unwrap();
            if status.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = fs::read(self.own.join("log")).unwrap_or_default();
        let lines = fs::read_to_string(self.own.join("report")).unwrap_or_default();
        let success = status.map(|status| status.success());
        (
            Report::parse(&lines, success),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
