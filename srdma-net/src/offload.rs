//! What the kernel takes in one send, and what its refusals mean.
//!
//! ```text
//! start        ask the kernel: 128 packets per send? else 64? else 1 (no GSO)
//! per target   a refused GSO send lowers that target to 1 for good
//! ```
//!
//! | errno of a send | meaning | what happens |
//! |---|---|---|
//! | EAGAIN, ENOBUFS | no room at the moment | `Blocked`: rewind, wait until writable |
//! | EINTR | a signal | try again |
//! | EINVAL, EMSGSIZE, EIO with GSO | the path cannot do GSO | one by one from here on |
//! | all others | refused, unreachable, too long | `Lost`: counted, the transport repairs it |
//!
//! Which limit a run was built with is the core's business: it reads [`GsoLimit`] at start.

use crate::error::NetError;
use crate::socket::{SocketConfig, open_tx};
use crate::sys::cmsg::TxOptions;
use crate::sys::mmsg::{Outgoing, SendRing};
use srdma_core::mem::host::HostBuf;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// Most packets of a run on the kernels that allow most.             [RoCEv2 7.7]
pub const GSO_PACKETS: u16 = 128;
/// Most packets of a run on older kernels.
pub const GSO_PACKETS_OLD: u16 = 64;
/// Most UDP payload of a send over IPv4: 65,535 − 20 − 8.
pub const MAX_BYTES_V4: u32 = 65_507;
/// Most UDP payload of a send over IPv6: 65,535 − 8; the IPv6 header does not count.
pub const MAX_BYTES_V6: u32 = 65_527;
/// Targets that can be remembered as being without GSO.
const MAX_LOWERED: usize = 1024;

/// Which offloads may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadConfig {
    /// Several packets in one send.
    pub gso: bool,
    /// Several packets in one receive.
    pub gro: bool,
}

impl Default for OffloadConfig {
    fn default() -> Self {
        Self {
            gso: true,
            gro: true,
        }
    }
}

/// What one GSO send may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GsoLimit {
    /// Packets.
    pub packets: u16,
    /// Bytes of UDP payload, all packets together.
    pub bytes: u32,
}

impl GsoLimit {
    /// The limit for `local`'s address family with `packets` packets per run.
    #[must_use]
    pub const fn new(local: IpAddr, packets: u16) -> Self {
        Self {
            packets,
            bytes: if local.is_ipv6() {
                MAX_BYTES_V6
            } else {
                MAX_BYTES_V4
            },
        }
    }

    /// Asks the kernel, by sending up to three small bursts to ourselves.
    // rule: roce-158
    pub fn probe(local: IpAddr) -> Result<Self, NetError> {
        let (socket, port) = open_tx(local, &SocketConfig::default())?;
        let mut ring = SendRing::new(1);
        let io = |source| NetError::Io {
            local,
            what: "probe for GSO",
            source,
        };
        for packets in [GSO_PACKETS, GSO_PACKETS_OLD, 2] {
            let memory = HostBuf::new(usize::from(packets))
                .map_err(|e| io(io::Error::new(io::ErrorKind::OutOfMemory, e)))?;
            let range = memory.range();
            let Ok(span) = range.span(0, usize::from(packets)) else {
                continue;
            };
            let message = Outgoing {
                target: SocketAddr::new(local, port),
                segs: &[span.seg()],
                part: None,
                options: TxOptions {
                    segment: Some(1),
                    ..TxOptions::default()
                },
            };
            match ring.send(socket.as_fd(), core::iter::once(message)) {
                Ok(_) => return Ok(Self::new(local, packets)),
                Err(e) if means_no_gso(&e) => {}
                Err(e) => return Err(io(e)),
            }
        }
        Ok(Self::new(local, 1))
    }
}

/// What a failed send means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No room at the moment.
    Blocked,
    /// Interrupted: try again at once.
    Again,
    /// The path cannot do GSO: send the same packets one by one.
    NoGso,
    /// Gone, as if the network had lost it.
    Lost,
}

/// Decides what `error` of a send means; `gso`: the send was to be cut by the kernel.
pub(crate) fn judge(error: &io::Error, gso: bool) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => Refusal::Blocked,
        Some(libc::EINTR) => Refusal::Again,
        _ if gso && means_no_gso(error) => Refusal::NoGso,
        _ => Refusal::Lost,
    }
}

fn means_no_gso(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP)
    )
}

/// Remembers which targets take GSO sends.
#[derive(Debug)]
pub struct Offload {
    gso: bool,
    lowered: Vec<IpAddr>,
    table_full: bool,
}

impl Offload {
    /// GSO for all targets, or for none.
    #[must_use]
    pub fn new(gso: bool) -> Self {
        Self {
            gso,
            lowered: Vec::with_capacity(MAX_LOWERED),
            table_full: false,
        }
    }

    /// A run to `target` may leave in one send.
    #[must_use]
    pub fn gso(&self, target: IpAddr) -> bool {
        self.gso && !self.table_full && !self.lowered.contains(&target)
    }

    /// Targets that refused GSO: runs to them should be built with one packet each.
    #[must_use]
    pub fn lowered(&self) -> &[IpAddr] {
        &self.lowered
    }

    /// No more GSO to `target`. When the table is full, no more GSO to anybody.
    pub(crate) fn lower(&mut self, target: IpAddr) {
        if self.lowered.contains(&target) {
            return;
        }
        if self.lowered.len() == MAX_LOWERED {
            self.table_full = true;
            return;
        }
        self.lowered.push(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn os(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn each_errno_has_its_meaning() {
        for gso in [false, true] {
            assert_eq!(judge(&os(libc::EAGAIN), gso), Refusal::Blocked);
            assert_eq!(judge(&os(libc::ENOBUFS), gso), Refusal::Blocked);
            assert_eq!(judge(&os(libc::EINTR), gso), Refusal::Again);
            for code in [
                libc::EPERM,
                libc::ECONNREFUSED,
                libc::EHOSTUNREACH,
                libc::ENETUNREACH,
            ] {
                assert_eq!(judge(&os(code), gso), Refusal::Lost);
            }
        }
        for code in [libc::EINVAL, libc::EMSGSIZE, libc::EIO] {
            assert_eq!(judge(&os(code), true), Refusal::NoGso);
            assert_eq!(
                judge(&os(code), false),
                Refusal::Lost,
                "one packet cannot be split"
            );
        }
    }

    #[test]
    fn a_refused_target_stays_lowered_alone() {
        let address = |n: u32| IpAddr::from(Ipv4Addr::from(0x7f00_0000 + n));
        let mut offload = Offload::new(true);
        offload.lower(address(1));
        offload.lower(address(1));
        assert_eq!(offload.lowered(), [address(1)]);
        assert!(!offload.gso(address(1)) && offload.gso(address(2)));
        for n in 0..=u32::try_from(MAX_LOWERED).unwrap() {
            offload.lower(address(n));
        }
        assert!(
            !offload.gso(address(1 << 20)),
            "a full table errs on the safe side"
        );
        assert!(!Offload::new(false).gso(address(1)));
    }

    #[test]
    fn the_kernel_is_asked_for_its_limit() {
        // proves: roce-158
        let limit = GsoLimit::probe(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(
            [1, 2, GSO_PACKETS_OLD, GSO_PACKETS].contains(&limit.packets),
            "{limit:?}"
        );
        assert_eq!(limit.bytes, MAX_BYTES_V4);
    }
}
