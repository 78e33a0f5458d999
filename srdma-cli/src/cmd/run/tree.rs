//! What programs read about a device past libibverbs, as files: the part of /sys and /dev that the
//! kernel would show.
//!
//! ```text
//! class/infiniband/srdma0/          node_guid, …, device/net/lo, ports/1/{state, gids/0, …}
//! class/infiniband_verbs/uverbs0/   ibdev
//! class/misc/rdma_cm/               abi_version
//! dev/infiniband/                   uverbs0, rdma_cm: character devices that say nothing
//! ```
//!
//! It says what is true when the program starts. What is not here is not known: no counters, no
//! place on a bus.

use super::place::{Item, Items};
use srdma_core::limits::MAX_GIDS;
use srdma_net::interface;
use srdma_verbs::{DeviceInfo, Gid};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The files of these devices, in the order in which programs count them.
pub(super) fn items(devices: &[DeviceInfo]) -> Items {
    let mut tree = Tree::default();
    tree.file("class/infiniband_verbs/abi_version", "6");
    tree.file("class/infiniband_mad/abi_version", "5");
    tree.file("class/misc/rdma_cm/abi_version", "4");
    tree.link("dev/infiniband/rdma_cm", "/dev/null");
    tree.folder(Path::new("class/infiniband"));
    for (index, device) in devices.iter().enumerate() {
        let node = format!("uverbs{index}");
        // A character device that can be read and written: more is not asked.
        tree.link(format!("dev/infiniband/{node}"), "/dev/null");
        tree.file(format!("class/infiniband_verbs/{node}/ibdev"), &device.name);
        tree.file(format!("class/infiniband_verbs/{node}/abi_version"), "1");
        let at = Path::new("class/infiniband").join(&device.name);
        tree.device(&at, device, &node);
        tree.port(&at.join("ports/1"), device);
    }
    tree.items
}

/// Items that are being collected.
#[derive(Default)]
struct Tree {
    items: Items,
    folders: BTreeSet<PathBuf>,
}

impl Tree {
    /// A folder and those that it is in.
    fn folder(&mut self, path: &Path) {
        if path.as_os_str().is_empty() || self.folders.contains(path) {
            return;
        }
        if let Some(above) = path.parent() {
            self.folder(above);
        }
        self.folders.insert(path.to_owned());
        self.items.push((path.to_owned(), Item::Folder));
    }

    /// A file of one line.
    fn file(&mut self, path: impl AsRef<Path>, text: &str) {
        self.put(
            path.as_ref(),
            Item::File(format!("{text}\n").into_bytes().into()),
        );
    }

    fn link(&mut self, path: impl AsRef<Path>, target: &str) {
        self.put(path.as_ref(), Item::Link(target.into()));
    }

    fn put(&mut self, path: &Path, item: Item) {
        if let Some(above) = path.parent() {
            self.folder(above);
        }
        self.items.push((path.to_owned(), item));
    }

    fn device(&mut self, at: &Path, device: &DeviceInfo, node: &str) {
        let guid = groups(&device.guid().to_be_bytes());
        for (name, text) in [
            ("node_guid", &*guid),
            ("sys_image_guid", &guid),
            ("node_type", "1: CA"),
            ("node_desc", &device.name),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hw_rev", "1"),
            ("hca_type", "srdma"),
            ("board_id", "srdma"),
        ] {
            self.file(at.join(name), text);
        }
        let below = at.join("device");
        self.folder(&below.join("infiniband").join(&device.name));
        self.folder(&below.join("infiniband_verbs").join(node));
        self.folder(&below.join("net"));
        for addr in &device.addrs {
            if let Some(interface) = interface::of(*addr) {
                self.folder(&below.join("net").join(interface.name));
            }
        }
    }

    fn port(&mut self, at: &Path, device: &DeviceInfo) {
        let up = !device.addrs.is_empty() && interface::any_up(&device.addrs);
        let either = |yes, no| if up { yes } else { no };
        for (name, text) in [
            ("state", either("4: ACTIVE", "1: DOWN")),
            ("phys_state", either("5: LinkUp", "3: Disabled")),
            ("rate", "40 Gb/sec (4X QDR)"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("lid_mask_count", "0"),
            ("cap_mask", "0x04010000"),
            ("pkeys/0", "0xffff"),
        ] {
            self.file(at.join(name), text);
        }
        for index in 0..MAX_GIDS {
            let addr = device.addrs.get(index);
            let gid = addr.map_or_else(Gid::default, |addr| Gid::from(*addr));
            self.file(at.join(format!("gids/{index}")), &groups(&gid.0));
            if let Some(addr) = addr {
                self.gid_attrs(&at.join("gid_attrs"), index, *addr);
            }
        }
    }

    fn gid_attrs(&mut self, at: &Path, index: usize, addr: IpAddr) {
        self.file(at.join(format!("types/{index}")), "RoCE v2");
        if let Some(interface) = interface::of(addr) {
            self.file(at.join(format!("ndevs/{index}")), &interface.name);
        }
    }
}

/// Bytes as the kernel prints GUIDs and GIDs: pairs in hexadecimal, colons between.
fn groups(bytes: &[u8]) -> String {
    let pairs = bytes
        .chunks(2)
        .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect());
    pairs.collect::<Vec<String>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(items: &'a Items, path: &str) -> Option<&'a str> {
        let (_, item) = items.iter().find(|(name, _)| name == Path::new(path))?;
        match item {
            Item::File(bytes) => core::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    #[test]
    fn a_device_is_shown_as_the_kernel_would() {
        let devices = srdma_verbs::devices().expect("there is loopback");
        let items = items(&devices);
        let name = &devices.first().expect("one at least").name;
        let at = format!("class/infiniband/{name}");
        let read = |path: &str| text(&items, &format!("{at}/{path}")).unwrap_or("none");
        assert_eq!(read("node_guid"), "0200:00ff:8100:0001\n");
        assert_eq!(read("ports/1/state"), "4: ACTIVE\n");
        let gid = "0000:0000:0000:0000:0000:ffff:7f00:0001\n";
        assert_eq!(read("ports/1/gids/0"), gid);
        assert_eq!(read("ports/1/gid_attrs/types/0"), "RoCE v2\n");
        assert_eq!(
            read("ports/1/gids/31"),
            format!("{}\n", ["0000"; 8].join(":"))
        );
        assert_eq!(read("ports/1/gid_attrs/types/31"), "none");
        let ndev = read("ports/1/gid_attrs/ndevs/0").trim().to_owned();
        let net = PathBuf::from(format!("{at}/device/net/{ndev}"));
        assert!(items.contains(&(net, Item::Folder)));
        assert_eq!(
            text(&items, "class/infiniband_verbs/uverbs0/ibdev"),
            Some(&*format!("{name}\n"))
        );
    }

    #[test]
    fn folders_stand_before_what_is_in_them() {
        let items = items(&srdma_verbs::devices().expect("there is loopback"));
        let mut made = BTreeSet::from([Path::new("")]);
        for (path, item) in &items {
            assert!(
                made.contains(path.parent().expect("a relative path")),
                "{path:?}"
            );
            if *item == Item::Folder {
                assert!(made.insert(path), "{path:?} is made once");
            }
        }
    }
}
