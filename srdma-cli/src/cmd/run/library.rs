//! The shared libraries: found, or unpacked from this program; and the names they are asked for by.
//!
//! ```text
//! 1. $SRDMA_LIB             a directory, or the file libsrdma.so
//! 2. beside this program    (target/release), if it is the one that we carry or was built later
//! 3. ../lib/srdma           likewise
//! 4. what this program carries
//! ```
//!
//! Another library that lies beside the program and is older is what an earlier build left there.

use super::place::{Item, Items, Place};
use crate::error::{CliError, Result};
use std::path::{Path, PathBuf};

const VERBS: &str = "libsrdma.so";
const SHIM: &str = "libsrdma_pathshim.so";
/// What programs call our library: both loaders' names of libibverbs and of librdmacm.
const NAMES: [&str; 4] = [
    "libibverbs.so.1",
    "libibverbs.so",
    "librdmacm.so.1",
    "librdmacm.so",
];

/// What this program carries; empty where it was only checked (see `build.rs`).
static CARRIED: [(&str, &[u8]); 2] = [
    (
        VERBS,
        include_bytes!(concat!(env!("SRDMA_LIBRARIES"), "/libsrdma.so")),
    ),
    (
        SHIM,
        include_bytes!(concat!(env!("SRDMA_LIBRARIES"), "/libsrdma_pathshim.so")),
    ),
];

/// Where the libraries are.
#[derive(Clone, Debug)]
pub(super) struct Libraries {
    /// The directory with all names.
    pub(super) folder: PathBuf,
    /// libsrdma.so.
    pub(super) verbs: PathBuf,
    /// The path shim.
    pub(super) shim: PathBuf,
}

/// Bytes of libsrdma.so that a program loads: all of it but symbols and debug information.
/// `None` where this program was only checked.
pub(super) fn loaded() -> Option<u64> {
    let [(_, verbs), _] = CARRIED;
    loaded_of(verbs)
}

/// The parts that the program headers of a file for 64 bits ask to be loaded.
fn loaded_of(elf: &[u8]) -> Option<u64> {
    const LOAD: u32 = 1;
    let word = |at: usize| Some(u64::from_le_bytes(*elf.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?));
    let (from, each, count) = (word(32)?, half(54)?, half(56)?);
    let from = usize::try_from(from).ok()?;
    let mut sum = 0u64;
    for header in (0..count).map(|number| from + usize::from(number) * usize::from(each)) {
        let kind = u32::from_le_bytes(*elf.get(header..)?.first_chunk()?);
        if kind == LOAD {
            sum = sum.checked_add(word(header + 32)?)?;
        }
    }
    Some(sum)
}

/// Puts the libraries into a directory of `place`.
pub(super) fn install(place: &Place) -> Result<Libraries> {
    let program = std::env::current_exe().map_err(CliError::io("find our own program"))?;
    let set = std::env::var_os("SRDMA_LIB").filter(|set| !set.is_empty());
    let set = set.map(PathBuf::from);
    let mut items: Items = Vec::new();
    for (name, carried) in CARRIED {
        let item = item(name, carried, set.as_deref(), &program)?;
        items.push((name.into(), item));
    }
    items.extend(NAMES.map(|name| (name.into(), Item::Link(VERBS.into()))));
    let folder = place.fill("lib", &items)?;
    Ok(Libraries {
        verbs: folder.join(VERBS),
        shim: folder.join(SHIM),
        folder,
    })
}

/// A link to the library `name`, or its bytes.
fn item(
    name: &'static str,
    carried: &'static [u8],
    set: Option<&Path>,
    program: &Path,
) -> Result<Item> {
    let missing = |looked: &Path| CliError::NoLibrary {
        name,
        looked: looked.to_owned(),
    };
    if let Some(set) = set {
        let folder = if set.is_dir() {
            Some(set)
        } else {
            set.parent()
        };
        let path = match (folder, name) {
            (_, VERBS) if !set.is_dir() => set.to_owned(),
            (Some(folder), _) => folder.join(name),
            (None, _) => PathBuf::from(name),
        };
        let found = usable(&path).ok_or_else(|| missing(&path))?;
        return Ok(Item::Link(found));
    }
    let beside = program.parent().unwrap_or_else(|| Path::new("/"));
    let installed = beside.join("../lib/srdma");
    let paths = [beside.join(name), installed.join(name)];
    let found = paths
        .iter()
        .filter_map(|path| usable(path))
        .find(|path| carried.is_empty() || is_younger(path, program) || holds(path, carried));
    match found {
        Some(path) => Ok(Item::Link(path)),
        None if carried.is_empty() => Err(missing(beside)),
        None => Ok(Item::File(carried.into())),
    }
}

/// The real path of a file that is a library, or could be.
fn usable(path: &Path) -> Option<PathBuf> {
    let full = path
        .metadata()
        .is_ok_and(|data| data.is_file() && data.len() > 0);
    full.then(|| path.canonicalize().ok()).flatten()
}

/// Whether `path` was written after `other`.
fn is_younger(path: &Path, other: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|data| data.modified());
    matches!((written(path), written(other)), (Ok(path), Ok(other)) if path > other)
}

/// Whether the file is these bytes.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let as_long = path
        .metadata()
        .is_ok_and(|data| data.len() == bytes.len() as u64);
    as_long && std::fs::read(path).is_ok_and(|found| found == bytes)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    /// A program with a library beside it that is `older` than it.
    fn scene(tag: &str, older: bool) -> (PathBuf, PathBuf) {
        let root = std::env::temp_dir().join(format!("srdma-lib-{}-{tag}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let (program, library) = (root.join("program"), root.join(VERBS));
        fs::write(&program, "x").unwrap();
        fs::write(&library, "x").unwrap();
        let old = if older { &library } else { &program };
        let past = SystemTime::now() - Duration::from_secs(60);
        File::options()
            .write(true)
            .open(old)
            .unwrap()
            .set_modified(past)
            .unwrap();
        (program, library.canonicalize().unwrap())
    }

    #[test]
    fn what_is_loaded_is_told_by_the_program_headers() {
        let mut elf = vec![0u8; 64 + 3 * 56];
        elf[32..40].copy_from_slice(&64u64.to_le_bytes());
        (elf[54], elf[56]) = (56, 3);
        for (number, kind) in [(0, 1u32), (1, 2), (2, 1)] {
            let header = 64 + number * 56;
            elf[header..header + 4].copy_from_slice(&kind.to_le_bytes());
            elf[header + 32..header + 40].copy_from_slice(&1000u64.to_le_bytes());
        }
        assert_eq!(loaded_of(&elf), Some(2000));
        assert_eq!(loaded_of(&elf[..100]), None);
        assert_eq!(loaded_of(b""), None);
    }

    #[test]
    fn the_younger_library_is_taken() {
        let carried: &[u8] = b"carried";
        let same: &[u8] = b"x";
        for (older, holds) in [(true, carried), (true, b""), (false, carried), (true, same)] {
            let tag = format!("{older}-{}", holds.len());
            let (program, library) = scene(&tag, older);
            let expected = if older && holds == carried {
                Item::File(holds.into())
            } else {
                Item::Link(library.clone())
            };
            assert_eq!(
                item(VERBS, holds, None, &program).unwrap(),
                expected,
                "{tag}"
            );
            fs::remove_dir_all(library.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn a_path_that_is_set_is_taken_or_refused() {
        let (program, library) = scene("set", true);
        let folder = library.parent().unwrap();
        for set in [&*library, folder] {
            let found = item(VERBS, b"carried", Some(set), &program).unwrap();
            assert_eq!(found, Item::Link(library.clone()));
            item(SHIM, b"carried", Some(set), &program).unwrap_err();
        }
        item(VERBS, b"carried", Some(Path::new("/none")), &program).unwrap_err();
        fs::remove_file(&library).unwrap();
        assert!(matches!(
            item(VERBS, b"", None, &program),
            Err(CliError::NoLibrary { .. })
        ));
        fs::remove_dir_all(folder).unwrap();
    }
}
