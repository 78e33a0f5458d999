//! Where registries are: one folder per user, one file per network namespace and address.
//!
//! ```text
//! /dev/shm/srdma-1000/4026531840-127.0.0.1     or below /tmp, where there is no /dev/shm
//!                └user     └netns     └address
//! ```
//!
//! The folder depends on nothing that differs between the terminals of a user, so environment
//! variables have no say. It must be the user's own, and open to nobody else.

use super::registry;
use crate::bridge;
use crate::error::NetError;
use crate::sys::lock::user;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the folder may be, in this order.
const BASES: [&str; 2] = ["/dev/shm", "/tmp"];
/// Registries that are looked at for being left behind, each time a device is opened …
const SWEPT: usize = 64;
/// … and files in all.
const LOOKED_AT: usize = 1024;
/// How all links to yards of the bridge end.
const BRIDGE: &str = ".bridge";

/// The folder of this user, and the network namespace of this thread.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
    netns: u64,
    /// Whose process numbers links to memory are read with; 0 where that cannot be known.
    pidns: u64,
}

impl Place {
    /// `None` where files cannot be had: then addresses are not shared.
    pub(super) fn find() -> Result<Option<Self>, NetError> {
        let Ok(netns) = std::fs::metadata("/proc/thread-self/ns/net") else {
            return Ok(None);
        };
        let pidns = std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        for base in BASES {
            let folder = Path::new(base).join(format!("srdma-{}", user()));
            if let Some(folder) = prepare(folder)? {
                let netns = netns.ino();
                return Ok(Some(Self {
                    folder,
                    netns,
                    pidns,
                }));
            }
        }
        Ok(None)
    }

    /// The folder of this user.
    pub(super) fn folder(self) -> PathBuf {
        self.folder
    }

    /// The file of an address.
    pub(super) fn file(&self, addr: IpAddr) -> PathBuf {
        self.folder.join(format!("{}-{addr}", self.netns))
    }

    /// Where the bridge to a port of an address is entered.
    pub(super) fn bridge_link(&self, at: SocketAddr) -> PathBuf {
        let (netns, addr, port) = (self.netns, at.ip(), at.port());
        let name = format!("{netns}-{addr}-{port}{}", self.bridge_ending());
        self.folder.join(name)
    }

    /// How the links to yards of the bridge end that we can follow.
    fn bridge_ending(&self) -> String {
        format!(".{}{BRIDGE}", self.pidns)
    }

    /// Removes what killed processes left behind.
    pub(super) fn sweep(&self) {
        let Ok(files) = std::fs::read_dir(&self.folder) else {
            return;
        };
        let (mut swept, ours) = (0, self.bridge_ending());
        for file in files.flatten().take(LOOKED_AT) {
            let path = file.path();
            let name = path.to_string_lossy();
            if name.ends_with(BRIDGE) {
                let leads = std::fs::read_link(&path).ok();
                let dead = name.ends_with(&ours) && bridge::is_dead(&path);
                // Whoever has the port by now may have put another one there.
                if dead && std::fs::read_link(&path).ok() == leads {
                    let _ = std::fs::remove_file(&path);
                }
            } else if swept < SWEPT {
                registry::sweep(&path);
                swept += 1;
            }
        }
    }
}

/// Makes the folder, or checks it. `None`: there can be none here.
fn prepare(folder: PathBuf) -> Result<Option<PathBuf>, NetError> {
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Ok(None),
        _ => {}
    }
    let Ok(about) = std::fs::symlink_metadata(&folder) else {
        return Ok(None);
    };
    if is_private(&about) {
        Ok(Some(folder))
    } else {
        Err(NetError::RegistryUnsafe { path: folder })
    }
}

fn is_private(about: &Metadata) -> bool {
    about.is_dir() && about.uid() == user() && about.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_reach_is_refused() {
        let base = std::env::temp_dir().join(format!("srdma-place-{}", std::process::id()));
        let folder = prepare(base.clone()).unwrap().unwrap();
        assert!(prepare(base.clone()).unwrap().is_some(), "a second look");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o750)).unwrap();
        let error = prepare(base.clone()).unwrap_err();
        assert!(
            error.to_string().contains(base.to_str().unwrap()),
            "{error}"
        );
        std::fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/", &base).unwrap();
        assert!(prepare(base.clone()).is_err(), "a link is no folder");
        std::fs::remove_file(&base).unwrap();
        assert!(prepare(base.join("nowhere")).unwrap().is_none());
    }
}
