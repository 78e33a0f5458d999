//! A private place for what programs are shown: directories that are named by their content.
//!
//! ```text
//! $XDG_CACHE_HOME/srdma, ~/.cache/srdma or /tmp/srdma-UID      0700, ours
//!    lib-3f1a….2/    libsrdma.so, libibverbs.so.1 → libsrdma.so, …
//!    tree-90bc….4e/  class/infiniband/…, dev/infiniband/…
//! ```
//!
//! A directory is made under another name and renamed when it is whole, so that runs at the same
//! time, also on several machines with one home, never see half of one. What a cleaner took out is
//! put back by the next run. Directories that no run has used for a month go.

use crate::error::{CliError, Result};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a directory may lie unused.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Begins the name of a directory that is not whole.
const UNFINISHED: &str = ".new-";

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A directory.
    Folder,
    /// A file of these bytes.
    File(std::borrow::Cow<'static, [u8]>),
    /// A symbolic link.
    Link(PathBuf),
}

/// Paths below a directory, folders before what is in them.
pub(super) type Items = Vec<(PathBuf, Item)>;

/// The place of this user.
#[derive(Clone, Debug)]
pub(super) struct Place {
    root: PathBuf,
}

impl Place {
    /// Finds or makes the place.
    pub(super) fn open() -> Result<Self> {
        let owner = rustix::process::geteuid().as_raw();
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let mut last = None;
        for root in candidates(variable, owner) {
            match claim(&root, owner) {
                Ok(()) => return Ok(Self { root }),
                Err(source) => last = Some((root, source)),
            }
        }
        let (path, source) =
            last.unwrap_or_else(|| (PathBuf::new(), io::ErrorKind::NotFound.into()));
        Err(CliError::Place { path, source })
    }

    /// A place at `root`, for tests.
    #[cfg(test)]
    pub(super) const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Whether `path` is in it.
    pub(super) fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// The directory of these items, made if it is not there.
    pub(super) fn fill(&self, kind: &str, items: &[(PathBuf, Item)]) -> Result<PathBuf> {
        let path = self.root.join(format!("{kind}-{}", name_of(items)));
        self.try_fill(&path, items)
            .map_err(|source| CliError::Place {
                path: path.clone(),
                source,
            })?;
        Ok(path)
    }

    fn try_fill(&self, path: &Path, items: &[(PathBuf, Item)]) -> io::Result<()> {
        if !path.is_dir() {
            let started = self.root.join(format!("{UNFINISHED}{}", unique()));
            let made = make(&started, items).and_then(|()| fs::rename(&started, path));
            if made.is_err() {
                // Half of it is of no use to anybody.
                let _ = fs::remove_dir_all(&started);
            }
            match made {
                // Another run was quicker.
                Err(_) if path.is_dir() => {}
                made => made?,
            }
        }
        for (name, item) in items {
            let path = path.join(name);
            if !is_there(&path, item) {
                mend(&path, item)?;
            }
        }
        // Says that it was used. On a file system without times it goes after a month.
        let _ = File::open(path).and_then(|dir| dir.set_modified(SystemTime::now()));
        Ok(())
    }

    /// Removes what has not been used for long. Whatever cannot be removed stays.
    pub(super) fn sweep(&self) {
        let entries = fs::read_dir(&self.root);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let ours = ["lib-", "tree-", UNFINISHED];
            let modified = entry.metadata().and_then(|data| data.modified());
            let unused = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEEP));
            if unused && ours.iter().any(|prefix| name.starts_with(prefix)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Where the place may be, best first. The loader splits lists at some characters, so paths with
/// them do not do.
fn candidates(
    variable: impl Fn(&'static str) -> Option<PathBuf>,
    owner: u32,
) -> impl Iterator<Item = PathBuf> {
    let cache = variable("XDG_CACHE_HOME");
    let home = variable("HOME").map(|home| home.join(".cache"));
    let temp = Some(std::env::temp_dir().join(format!("srdma-{owner}")));
    let in_cache = [cache, home]
        .into_iter()
        .flatten()
        .map(|path| path.join("srdma"));
    in_cache
        .chain(temp)
        .filter(|path| path.is_absolute() && is_plain(path))
}

/// The loader takes the path as it is written.
pub(super) fn is_plain(path: &Path) -> bool {
    let special = |c: char| c.is_whitespace() || matches!(c, ':' | ';' | '$');
    path.to_str().is_some_and(|text| !text.contains(special))
}

/// Makes `root` if need be; an error if others could write there, or libraries cannot be run there.
fn claim(root: &Path, owner: u32) -> io::Result<()> {
    if let Some(above) = root.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(above)?;
    }
    match folder(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let data = fs::symlink_metadata(root)?;
    let refused = |why: &str| {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            why.to_owned(),
        ))
    };
    if !data.is_dir() || data.uid() != owner {
        return refused("it belongs to somebody else");
    }
    if data.mode() & 0o777 != 0o700 {
        fs::set_permissions(root, Permissions::from_mode(0o700))?;
    }
    let mount = rustix::fs::statvfs(root)?;
    if mount.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        return refused("its file system is mounted noexec");
    }
    // A file system that can be written to, and has room.
    let trial = root.join(format!("{UNFINISHED}{}", unique()));
    folder(&trial)?;
    fs::remove_dir(&trial)
}

fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// A name that no other run uses now.
fn unique() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.unwrap_or_default().subsec_nanos();
    format!("{}-{nanos:08x}", std::process::id())
}

fn put(path: &Path, item: &Item) -> io::Result<()> {
    match item {
        Item::Folder => folder(path),
        Item::File(bytes) => fs::write(path, bytes),
        Item::Link(target) => symlink(target, path),
    }
}

/// A directory of these items.
fn make(path: &Path, items: &[(PathBuf, Item)]) -> io::Result<()> {
    folder(path)?;
    items
        .iter()
        .try_for_each(|(name, item)| put(&path.join(name), item))
}

/// Puts back one item; it appears whole.
fn mend(path: &Path, item: &Item) -> io::Result<()> {
    if let Item::Folder = item {
        return DirBuilder::new().recursive(true).mode(0o700).create(path);
    }
    let started = path.with_file_name(format!("{UNFINISHED}{}", unique()));
    put(&started, item)?;
    fs::rename(&started, path)
}

fn is_there(path: &Path, item: &Item) -> bool {
    match item {
        Item::Folder => path.is_dir(),
        Item::File(bytes) => fs::symlink_metadata(path)
            .is_ok_and(|data| data.is_file() && data.len() == bytes.len() as u64),
        Item::Link(target) => fs::read_link(path).is_ok_and(|known| known == *target),
    }
}

/// A name for the content: the same for the same, and hardly ever the same for another.
fn name_of(items: &[(PathBuf, Item)]) -> String {
    let mut sum = crc32fast::Hasher::new();
    let mut total = 0u64;
    for (path, item) in items {
        let (kind, bytes): (u8, &[u8]) = match item {
            Item::Folder => (0, b""),
            Item::File(bytes) => (1, bytes),
            Item::Link(target) => (2, target.as_os_str().as_encoded_bytes()),
        };
        let path = path.as_os_str().as_encoded_bytes();
        // Lengths tell where one ends and the next begins.
        sum.update(&[kind]);
        sum.update(&(path.len() as u64).to_le_bytes());
        sum.update(path);
        sum.update(&(bytes.len() as u64).to_le_bytes());
        sum.update(bytes);
        total += (path.len() + bytes.len()) as u64;
    }
    format!("{:08x}-{total:x}", sum.finalize())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn here(tag: &str) -> Place {
        let root = std::env::temp_dir().join(format!("srdma-place-{}-{tag}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Place::at(root)
    }

    fn items(text: &'static str) -> Items {
        vec![
            ("a".into(), Item::Folder),
            ("a/file".into(), Item::File(text.as_bytes().into())),
            ("link".into(), Item::Link("a/file".into())),
        ]
    }

    #[test]
    fn the_same_content_is_one_directory() {
        let place = here("same");
        let first = place.fill("tree", &items("one")).unwrap();
        assert_eq!(place.fill("tree", &items("one")).unwrap(), first);
        assert_ne!(place.fill("tree", &items("two")).unwrap(), first);
        assert_eq!(fs::read_to_string(first.join("link")).unwrap(), "one");
        let names = fs::read_dir(&place.root).unwrap().count();
        assert_eq!(names, 2, "nothing unfinished is left");
        fs::remove_dir_all(&place.root).unwrap();
    }

    #[test]
    fn what_is_missing_is_put_back() {
        let place = here("mend");
        let path = place.fill("tree", &items("one")).unwrap();
        fs::remove_dir_all(path.join("a")).unwrap();
        fs::remove_file(path.join("link")).unwrap();
        symlink("elsewhere", path.join("link")).unwrap();
        assert_eq!(place.fill("tree", &items("one")).unwrap(), path);
        assert_eq!(fs::read_to_string(path.join("link")).unwrap(), "one");
        fs::remove_dir_all(&place.root).unwrap();
    }

    #[test]
    fn what_cannot_be_made_leaves_nothing() {
        let place = here("half");
        let bad = [("a/file".into(), Item::File(b"no folder".as_slice().into()))];
        place.fill("tree", &bad).unwrap_err();
        assert_eq!(fs::read_dir(&place.root).unwrap().count(), 0);
        fs::remove_dir_all(&place.root).unwrap();
    }

    #[test]
    fn only_what_lies_unused_is_removed() {
        let place = here("sweep");
        let (old, new) = (place.root.join("tree-old"), place.root.join("tree-new"));
        let foreign = place.root.join("other");
        let past = SystemTime::now() - KEEP - Duration::from_secs(60);
        for path in [&old, &new, &foreign] {
            folder(path).unwrap();
        }
        for path in [&old, &foreign] {
            File::open(path).unwrap().set_modified(past).unwrap();
        }
        place.sweep();
        assert!(!old.exists() && new.exists() && foreign.exists());
        fs::remove_dir_all(&place.root).unwrap();
    }

    #[test]
    fn a_place_is_private_or_refused() {
        let place = here("claim");
        let owner = rustix::process::geteuid().as_raw();
        fs::set_permissions(&place.root, Permissions::from_mode(0o777)).unwrap();
        claim(&place.root, owner).unwrap();
        assert_eq!(fs::metadata(&place.root).unwrap().mode() & 0o777, 0o700);
        claim(&place.root, owner + 1).unwrap_err();
        let link = place.root.join("link");
        symlink(&place.root, &link).unwrap();
        claim(&link, owner).unwrap_err();
        fs::remove_dir_all(&place.root).unwrap();
    }

    #[test]
    fn paths_that_the_loader_would_split_are_passed_over() {
        let find = |home: &str, cache: Option<&str>| {
            let (home, cache) = (PathBuf::from(home), cache.map(PathBuf::from));
            let all = candidates(
                move |name| match name {
                    "HOME" => Some(home.clone()),
                    _ => cache.clone(),
                },
                7,
            );
            let all: Vec<_> = all.map(|path| path.display().to_string()).collect();
            all
        };
        let temp = std::env::temp_dir().join("srdma-7").display().to_string();
        assert_eq!(find("/h", None), ["/h/.cache/srdma", &temp]);
        assert_eq!(find("/h h", Some("/c")), ["/c/srdma", &temp]);
        assert_eq!(find("relative", Some("/a:b")), [&*temp]);
    }
}
