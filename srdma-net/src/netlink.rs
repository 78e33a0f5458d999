//! Hears that interfaces or addresses of this machine changed.
//!
//! ```text
//! kernel ── route netlink: link, IPv4 address, IPv6 address ──► Watch ──► "look again"
//! ```
//!
//! What the messages say is thrown away: whoever hears looks at everything anew, so a message that
//! is lost for want of room tells as much as one that came. The socket costs nothing while nothing
//! changes.

use crate::sys::netlink;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};

/// Messages that are thrown away in one look; more of them make another look.
const MESSAGES: usize = 256;

/// A socket that is readable after a change.
#[derive(Debug)]
pub(crate) struct Watch(File);

impl Watch {
    /// Hears from now on.
    pub(crate) fn open() -> io::Result<Self> {
        netlink::watch_links_and_addresses().map(|fd| Self(File::from(fd)))
    }

    /// Throws away what has come; true if anything had, or was lost.
    pub(crate) fn take(&self) -> bool {
        let mut message = [0; 512];
        for taken in 0..MESSAGES {
            match (&self.0).read(&mut message) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Ok(0) | Err(_) => return taken != 0,
            }
        }
        true
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_heard_while_nothing_changes_and_nobody_waits() {
        let watch = Watch::open().unwrap();
        // Other tests may make interfaces meanwhile; in the end it is quiet, or the loop is long.
        while watch.take() {}
        assert!(watch.as_raw_fd() >= 0);
    }
}
