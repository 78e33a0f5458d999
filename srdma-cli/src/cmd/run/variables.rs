//! The variables that lead a program to us.
//!
//! ```text
//! LD_LIBRARY_PATH  our libibverbs.so.1 and librdmacm.so.1 are found first
//! LD_PRELOAD       also by programs with a path or a copy of their own; and the path shim
//! SRDMA_SYSFS      where the path shim leads
//! OMPI_MCA_…       Open MPI takes UCX for a device that it does not know
//! ```
//!
//! What the user has set stays: in front in the preload list, where tools want to stand (a
//! sanitizer, a tracer), behind ours in the path. Setting everything twice changes nothing.

use super::library::Libraries;
use super::place::Place;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What Open MPI compares devices and transports with; "any" fits all.
const OPEN_MPI: [&str; 2] = [
    "OMPI_MCA_opal_common_ucx_devices",
    "OMPI_MCA_opal_common_ucx_tls",
];

/// Names and values.
pub(super) fn list(
    place: &Place,
    libraries: &Libraries,
    tree: Option<&Path>,
) -> Vec<(&'static str, OsString)> {
    let ours = |entry: &OsStr| place.holds(Path::new(entry));
    let folder = libraries.folder.as_os_str();
    let mut preload = vec![libraries.verbs.as_os_str()];
    let mut list = Vec::new();
    if let Some(tree) = tree {
        preload.push(libraries.shim.as_os_str());
        list.push(("SRDMA_SYSFS", tree.as_os_str().to_owned()));
    }
    let path = set("LD_LIBRARY_PATH");
    let path = entries(&path, b":;").filter(|entry| !ours(entry));
    list.push(("LD_LIBRARY_PATH", join([folder].into_iter().chain(path))));
    let before = set("LD_PRELOAD");
    let before = entries(&before, b": ").filter(|entry| !ours(entry) && !entry.is_empty());
    list.push(("LD_PRELOAD", join(before.chain(preload))));
    let unset = OPEN_MPI.into_iter().filter(|name| set(name).is_empty());
    list.extend(unset.map(|name| (name, "any".into())));
    list
}

fn set(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_default()
}

/// The entries of a list that the loader splits at `marks`; an empty list has none.
fn entries<'a>(list: &'a OsStr, marks: &'static [u8]) -> impl Iterator<Item = &'a OsStr> {
    let bytes = list.as_bytes();
    let parts = bytes
        .split(|byte| marks.contains(byte))
        .map(OsStr::from_bytes);
    parts.filter(move |_| !bytes.is_empty())
}

fn join<'a>(parts: impl Iterator<Item = &'a OsStr>) -> OsString {
    let parts: Vec<_> = parts.map(OsStr::as_bytes).collect();
    OsString::from_vec(parts.join(&b':'))
}

/// A word of a POSIX shell.
pub(super) fn quote(value: &OsStr) -> String {
    format!("'{}'", value.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_as_the_loader_does() {
        let split = |text: &'static str, marks| -> Vec<_> {
            entries(OsStr::new(text), marks)
                .map(|entry| entry.to_str().unwrap_or(""))
                .collect()
        };
        assert_eq!(split("", b":"), Vec::<&str>::new());
        assert_eq!(split("/a:/b", b":;"), ["/a", "/b"]);
        assert_eq!(
            split("/a::/b", b":;"),
            ["/a", "", "/b"],
            "an empty one is this directory"
        );
        assert_eq!(split("/a /b:/c", b": "), ["/a", "/b", "/c"]);
        let joined = join(["/a", "/b"].into_iter().map(OsStr::new));
        assert_eq!(joined, "/a:/b");
    }

    #[test]
    fn shells_take_values_as_they_are() {
        assert_eq!(quote(OsStr::new("/a:/b c")), "'/a:/b c'");
        assert_eq!(quote(OsStr::new("it's $x")), r"'it'\''s $x'");
    }
}
