//! Does the kernel send what the ICRC was computed for: IP ID 0 and DF?
//!
//! ```text
//! send one datagram → the socket's error queue returns a copy of the frame → read its IP header
//! ```
//!
//! Works without privileges while sysctl `net.core.tstamp_allow_data` is 1, the default. For
//! `doctor` and tests; opening a device does not wait for it.        [RoCEv2 7.6 TX 4]

use crate::error::NetError;
use crate::socket::{SocketConfig, open_tx};
use crate::sys::sockopt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Flags of `SO_TIMESTAMPING`: software stamps at the scheduler, with an id, with the packet.
#[allow(clippy::cast_possible_wrap, reason = "three low bits")]
const STAMPS: libc::c_int = (libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID) as libc::c_int;
/// How long to wait for the copy; it is there at once, or never.
const WAIT_MS: libc::c_int = 100;
/// What the probe carries, to be found again in the frame.
const MARK: &[u8; 16] = b"srdma self test.";

/// The IP header that a packet of ours leaves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentHeader {
    /// IPv4 identification; zero for IPv6, which has none.
    pub id: u16,
    /// "Don't fragment"; always true for IPv6.
    pub dont_fragment: bool,
}

impl SentHeader {
    /// The ICRC that we compute will fit.
    #[must_use]
    pub const fn fits_icrc(self) -> bool {
        self.id == 0 && self.dont_fragment
    }
}

/// Sends one datagram from `local` to `target` and reads the header that it left with; `None` if
/// the kernel returns no copy. `target` gets 16 bytes that are no RoCEv2 packet.
pub fn sent_header(local: IpAddr, target: SocketAddr) -> Result<Option<SentHeader>, NetError> {
    let io = |source| NetError::Io {
        local,
        what: "look at a sent packet",
        source,
    };
    let (socket, _) = open_tx(local, &SocketConfig::default())?;
    let fd = socket.as_fd();
    sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, STAMPS).map_err(io)?;
    socket.send_to(MARK, &target.into()).map_err(io)?;
    sockopt::wait_error(fd, WAIT_MS).map_err(io)?;
    let mut frame = [0; 256];
    let Ok(len) = sockopt::recv_error_copy(fd, &mut frame) else {
        return Ok(None);
    };
    Ok(parse(frame.get(..len).unwrap_or_default()))
}

/// Finds the IP header in front of the mark.
fn parse(frame: &[u8]) -> Option<SentHeader> {
    let payload = frame
        .windows(MARK.len())
        .position(|window| window == MARK)?;
    let headers = frame.get(..payload)?;
    // UDP is eight bytes; in front of it stand 20 bytes of IPv4 or 40 of IPv6.
    let udp = headers.len().checked_sub(8)?;
    if let Some(ip) = udp.checked_sub(20).and_then(|at| headers.get(at..udp))
        && let [0x45, _, _, _, id0, id1, flags, ..] = ip
        && ip.get(9) == Some(&17)
    {
        let id = u16::from_be_bytes([*id0, *id1]);
        return Some(SentHeader {
            id,
            dont_fragment: flags & 0x40 != 0,
        });
    }
    let ip = headers.get(udp.checked_sub(40)?..udp)?;
    let is_v6 = ip.first()? >> 4 == 6;
    is_v6.then_some(SentHeader {
        id: 0,
        dont_fragment: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn data_sockets_send_id_zero_and_df() {
        // proves: roce-4
        let v4: IpAddr = Ipv4Addr::LOCALHOST.into();
        let v6: IpAddr = Ipv6Addr::LOCALHOST.into();
        for local in [v4, v6] {
            let target = SocketAddr::new(local, 9);
            match sent_header(local, target) {
                Ok(Some(header)) => assert!(header.fits_icrc(), "{local}: {header:?}"),
                Ok(None) => eprintln!("{local}: the kernel returns no copies; not checked"),
                Err(error) => assert!(local == v6, "{error}"),
            }
        }
    }

    #[test]
    fn headers_are_found_by_the_mark() {
        let mut frame = vec![0; 14];
        frame.extend([
            0x45, 0, 0, 44, 0x12, 0x34, 0x00, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
        ]);
        frame.extend([0; 8]);
        frame.extend(MARK);
        let want = SentHeader {
            id: 0x1234,
            dont_fragment: false,
        };
        assert_eq!(parse(&frame), Some(want));
        assert!(!want.fits_icrc());
        assert_eq!(parse(&frame[20..]), None);
        assert_eq!(parse(&[]), None);
    }
}
