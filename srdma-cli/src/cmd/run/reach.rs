//! Which programs the loader's variables cannot reach.
//!
//! ```text
//! "#!/usr/bin/env python3"   → the interpreter is looked at in its place
//! ELF, no PT_INTERP          no loader: static
//! ELF, other class/machine   the loader is another, or another libc (musl)
//! set-id bit, capabilities   the loader ignores our variables
//! ```
//!
//! Only what can be known before the start is said. A file that cannot be read is not judged.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Scripts whose interpreter is a script; the kernel follows no more.
const SCRIPTS: usize = 5;
/// Bytes of a script's first line that the kernel reads.
const LINE: usize = 256;
/// Program headers of an executable that are looked at.
const HEADERS: u16 = 256;
/// Bytes of a 64-bit ELF header, and of one program header.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// The path of the loader is in a segment of this type.
const PT_INTERP: u32 = 3;

/// Why a program is not reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// It has no loader.
    Static(PathBuf),
    /// It is for another machine or word size.
    Machine(PathBuf),
    /// Its C library is another.
    Libc(PathBuf, String),
    /// It runs as somebody else.
    SetId(PathBuf),
    /// It gains capabilities.
    Capabilities(PathBuf),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = match self {
            Self::Static(path) => (
                path,
                "is linked statically, so no library can be put before it",
            ),
            Self::Machine(path) => (
                path,
                "is for another kind of processor than srdma was built for",
            ),
            Self::Libc(path, loader) => {
                let path = path.display();
                return write!(
                    f,
                    "{path} needs glibc to be reached, but is loaded by {loader}"
                );
            }
            Self::SetId(path) => (
                path,
                "has a set-user-ID or set-group-ID bit, for which the loader ignores srdma; run \
                 it as its owner, or run a copy without the bit",
            ),
            Self::Capabilities(path) => (
                path,
                "has file capabilities, for which the loader ignores srdma; run a copy without \
                 them (`getcap` shows them)",
            ),
        };
        write!(f, "{} {why}", path.display())
    }
}

/// What stands between us and `program`, as the shell would find it.
pub(super) fn obstacles(program: &OsStr) -> Vec<Obstacle> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let Some(path) = look_up(program, &search) else {
        return Vec::new();
    };
    let mut found = BTreeSet::new();
    judge(&path, &search, SCRIPTS, &mut found);
    found.into_iter().collect()
}

/// The file that `program` names.
fn look_up(program: &OsStr, search: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let executable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0)
    };
    std::env::split_paths(search)
        .map(|folder| folder.join(program))
        .find(executable)
}

fn judge(path: &Path, search: &OsStr, scripts: usize, found: &mut BTreeSet<Obstacle>) {
    let Ok(file) = File::open(path) else {
        return;
    };
    let mut start = [0; LINE];
    let len = file.read_at(&mut start, 0).unwrap_or(0);
    let start = start.get(..len).unwrap_or_default();
    if let Some(line) = start.strip_prefix(b"#!") {
        // A script's own bits and capabilities mean nothing to the kernel.
        let interpreter = interpreter(line).and_then(|program| look_up(program, search));
        if let Some(path) = interpreter.filter(|_| scripts > 0) {
            judge(&path, search, scripts - 1, found);
        }
        return;
    }
    found.extend(privileges(path, &file));
    if start.starts_with(b"\x7fELF") {
        found.extend(loader(path, &file, start));
    }
}

/// The program that a script's first line names; behind `env`, the one that `env` starts.
fn interpreter(line: &[u8]) -> Option<&OsStr> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    if first.rsplit(|byte| *byte == b'/').next() != Some(b"env") {
        return Some(OsStr::from_bytes(first));
    }
    // Options of `env`, and variables that it sets.
    let plain = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    words.find(plain).map(OsStr::from_bytes)
}

/// Does it run with more rights than we have? Then the loader ignores the variables.
fn privileges(path: &Path, file: &File) -> Option<Obstacle> {
    let data = file.metadata().ok()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if changes_id(&data, user.as_raw(), group.as_raw()) {
        return Some(Obstacle::SetId(path.to_owned()));
    }
    // Root has them all, and gains nothing.
    let mut room = [0u8; 64];
    let capable = rustix::fs::fgetxattr(file, "security.capability", &mut room[..]);
    (!user.is_root() && capable.is_ok()).then(|| Obstacle::Capabilities(path.to_owned()))
}

fn changes_id(data: &Metadata, user: u32, group: u32) -> bool {
    let mode = data.mode();
    let sets_user = mode & 0o4000 != 0 && data.uid() != user;
    // Without the group's right to execute, the bit means something else.
    let sets_group = mode & 0o2010 == 0o2010 && data.gid() != group;
    sets_user || sets_group
}

/// What the ELF header says about who loads the program.
fn loader(path: &Path, file: &File, start: &[u8]) -> Option<Obstacle> {
    let machine = || Some(Obstacle::Machine(path.to_owned()));
    let ours = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    // Class 2: 64 bits; data 1: little-endian.
    let (Some([2, 1]), Some(start)) = (start.get(4..6), start.get(..HEADER)) else {
        return machine();
    };
    if half(start, 18)? != ours {
        return machine();
    }
    let (offset, count) = (long(start, 32)?, half(start, 56)?.min(HEADERS));
    if usize::from(half(start, 54)?) != PROGRAM_HEADER {
        return None;
    }
    let mut table = vec![0; usize::from(count) * PROGRAM_HEADER];
    file.read_exact_at(&mut table, offset).ok()?;
    let interp = table
        .chunks_exact(PROGRAM_HEADER)
        .find(|header| word(header, 0) == Some(PT_INTERP));
    let Some(header) = interp else {
        return Some(Obstacle::Static(path.to_owned()));
    };
    let len = usize::try_from(long(header, 32)?)
        .unwrap_or(usize::MAX)
        .min(LINE);
    let mut name = vec![0; len];
    file.read_exact_at(&mut name, long(header, 8)?).ok()?;
    let name = String::from_utf8_lossy(&name)
        .trim_end_matches('\0')
        .to_owned();
    name.contains("ld-musl")
        .then(|| Obstacle::Libc(path.to_owned(), name))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
