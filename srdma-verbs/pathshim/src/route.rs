//! Which paths are ours, and where they lead.
//!
//! ```text
//! /sys/class/infiniband*/…    TREE/class/infiniband*/…
//! /sys/class/misc/rdma_cm/…   TREE/class/misc/rdma_cm/…
//! /dev/infiniband/…           TREE/dev/infiniband/…
//! ```
//!
//! Repeated slashes count as one. A path that leaves its folder by `..` is not ours.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Bytes of a path with its zero.
pub(crate) const PATH_MAX: usize = 4096;
/// Bytes of the tree's own path; leaves room for what stands behind it.
const ROOT_MAX: usize = PATH_MAX / 2;

/// The tree's path: set once, before it has a length, and never changed.
static ROOT: [AtomicU8; ROOT_MAX] = [const { AtomicU8::new(0) }; ROOT_MAX];
static ROOT_LEN: AtomicUsize = AtomicUsize::new(0);

/// A path that leads into the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route<'a> {
    /// A folder of the tree.
    folder: &'static [u8],
    /// The rest, as the program wrote it.
    rest: &'a [u8],
}

/// Tells where the tree is; false, and nothing changes, if that is no usable path or was told.
pub(crate) fn set_root(path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let usable = path.first() == Some(&b'/') && path.len() <= ROOT_MAX;
    if !usable || ROOT_LEN.load(Ordering::Acquire) != 0 {
        return false;
    }
    for (to, from) in ROOT.iter().zip(path) {
        to.store(*from, Ordering::Relaxed);
    }
    ROOT_LEN.store(path.len(), Ordering::Release);
    true
}

/// Where `path` leads; `None` if it is not ours.
pub(crate) fn find(path: &[u8]) -> Option<Route<'_>> {
    // Most paths end here.
    if !matches!(path, [b'/', b's' | b'd' | b'/', ..]) {
        return None;
    }
    let route = find_folder(path)?;
    stays_inside(route.rest).then_some(route)
}

fn find_folder(path: &[u8]) -> Option<Route<'_>> {
    if let Some(rest) = below(path, b"dev").and_then(|rest| below(rest, b"infiniband")) {
        return Some(Route {
            folder: b"/dev/infiniband",
            rest,
        });
    }
    let class = below(below(path, b"sys")?, b"class")?;
    if let Some(rest) = below(class, b"misc").and_then(|rest| below(rest, b"rdma_cm")) {
        return Some(Route {
            folder: b"/class/misc/rdma_cm",
            rest,
        });
    }
    let rest = skip_slashes(class)?.strip_prefix(b"infiniband")?;
    Some(Route {
        folder: b"/class/infiniband",
        rest,
    })
}

/// What follows slashes and the whole word `name`.
fn below<'a>(path: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = skip_slashes(path)?.strip_prefix(name)?;
    matches!(rest.first(), None | Some(b'/')).then_some(rest)
}

/// What follows one slash or several.
fn skip_slashes(path: &[u8]) -> Option<&[u8]> {
    let mut rest = path.strip_prefix(b"/")?;
    while let Some(more) = rest.strip_prefix(b"/") {
        rest = more;
    }
    Some(rest)
}

/// No `..` leads out of the folder that the first word of `rest` belongs to.
fn stays_inside(rest: &[u8]) -> bool {
    // The folder itself is one step deep.
    let mut depth = 1u32;
    for word in rest.split(|byte| *byte == b'/').skip(1) {
        match word {
            b"" | b"." => {}
            b".." if depth <= 1 => return false,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

impl Route<'_> {
    /// Writes the path in the tree with its zero; false if there is no tree or no room.
    pub(crate) fn write(&self, room: &mut [u8; PATH_MAX]) -> bool {
        let len = ROOT_LEN.load(Ordering::Acquire);
        let total = len + self.folder.len() + self.rest.len();
        if len == 0 || total >= PATH_MAX {
            return false;
        }
        let root = ROOT
            .iter()
            .take(len)
            .map(|byte| byte.load(Ordering::Relaxed));
        let tail = self.folder.iter().chain(self.rest).copied().chain([0]);
        for (to, from) in room.iter_mut().zip(root.chain(tail)) {
            *to = from;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(path: &str) -> Option<String> {
        let route = find(path.as_bytes())?;
        let text = [route.folder, route.rest].concat();
        Some(String::from_utf8(text).expect("as it was given"))
    }

    #[test]
    fn our_paths_lead_into_the_tree() {
        for (path, to) in [
            ("/sys/class/infiniband", "/class/infiniband"),
            ("/sys/class/infiniband/", "/class/infiniband/"),
            (
                "/sys/class/infiniband/srdma0/ports/1",
                "/class/infiniband/srdma0/ports/1",
            ),
            (
                "/sys/class/infiniband_verbs/uverbs0",
                "/class/infiniband_verbs/uverbs0",
            ),
            (
                "/sys/class/misc/rdma_cm/abi_version",
                "/class/misc/rdma_cm/abi_version",
            ),
            ("/dev/infiniband", "/dev/infiniband"),
            ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0"),
            ("//sys///class//infiniband//a", "/class/infiniband//a"),
            (
                "/sys/class/infiniband/a/device/../..",
                "/class/infiniband/a/device/../..",
            ),
        ] {
            assert_eq!(goes(path).as_deref(), Some(to), "{path}");
        }
    }

    #[test]
    fn other_paths_are_left_alone() {
        for path in [
            "",
            "/",
            "//",
            "/s",
            "/sys",
            "/sys/class",
            "/sys/class/",
            "/sys/class/net/infiniband",
            "/sys/classy/infiniband",
            "/sys/class/misc/rdma_cmx",
            "/dev/infiniband0",
            "/dev/null",
            "sys/class/infiniband",
            "/x/sys/class/infiniband",
            "/sys/class/infiniband/..",
            "/sys/class/infiniband/a/../../net/eth0",
            "/dev/infiniband/../null",
        ] {
            assert_eq!(goes(path), None, "{path}");
        }
    }

    #[test]
    fn paths_are_written_whole_or_not_at_all() {
        let mut room = [1; PATH_MAX];
        let device = find(b"/dev/infiniband/uverbs0").expect("ours");
        assert!(!device.write(&mut room), "no tree yet");
        assert!(!set_root(b"relative"));
        assert!(!set_root(&[b'/'; ROOT_MAX + 2]));
        assert!(set_root(b"/run/tree/"));
        assert!(!set_root(b"/other"), "it is told once");
        assert!(device.write(&mut room));
        let text: Vec<u8> = room.iter().copied().take_while(|byte| *byte != 0).collect();
        assert_eq!(text, b"/run/tree/dev/infiniband/uverbs0");
        let long = [&b"/sys/class/infiniband/"[..], &[b'x'; PATH_MAX]].concat();
        assert!(!find(&long).expect("ours").write(&mut room));
    }
}
