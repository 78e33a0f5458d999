//! Control messages: what rides beside a datagram through `sendmsg` and `recvmsg`.
//!
//! ```text
//! | length (word) | level (int) | type (int) | data … pad to a word | next …
//! ```
//!
//! | message | level, type | data | direction |
//! |---|---|---|---|
//! | UDP_SEGMENT | 17, 103 | u16 | send |
//! | IP_TOS | 0, 1 | int out, byte in | both |
//! | IP_TTL | 0, 2 | int | both |
//! | IPV6_TCLASS, IPV6_HOPLIMIT | 41, 67 and 52 | int | both |
//! | IP_PKTINFO | 0, 8 | interface, source, destination | receive |
//! | IPV6_PKTINFO | 41, 50 | destination, interface | receive |
//! | UDP_GRO | 17, 104 | int | receive |
//! | SO_RXQ_OVFL | 1, 40 | u32 | receive |
//!
//! Written and read as bytes, so nothing here is unsafe. Unknown messages are skipped, damaged ones
//! end the walk.                                                   [RoCEv2 7.7]

use core::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a header; the data follows without a gap.
const HEADER: usize = size_of::<libc::cmsghdr>();
/// Headers start at multiples of a word.
const WORD: usize = size_of::<usize>();
/// Room for what we send: three messages of one word of data each.
const TX_ROOM: usize = 3 * (HEADER + WORD);
/// Room for all that we ask the kernel for, and one unknown message more.
const RX_ROOM: usize = 224;

const _: () = assert!(HEADER.is_multiple_of(WORD));
const _: () = assert!(offset_of!(libc::cmsghdr, cmsg_len) == 0);
const _: () = assert!(RX_ROOM.is_multiple_of(WORD));

/// `SOL_UDP`; `libc` has it for some targets only.
pub(crate) const SOL_UDP: libc::c_int = 17;

/// What a datagram or a run is sent with besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TxOptions {
    /// GSO: cut the bytes into datagrams of this length.
    pub(crate) segment: Option<u16>,
    /// TOS or traffic class, if it is not the socket's own.
    pub(crate) tclass: Option<u8>,
    /// TTL or hop limit, if it is not the socket's own.
    pub(crate) hop_limit: Option<u8>,
}

/// Control bytes of one outgoing message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct TxControl {
    bytes: [u8; TX_ROOM],
    len: usize,
}

impl TxControl {
    /// No messages.
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; TX_ROOM],
        len: 0,
    };

    /// Writes the messages for `options`; `v6` chooses the family's types.
    pub(crate) fn set(&mut self, v6: bool, options: &TxOptions) {
        self.len = 0;
        if let Some(size) = options.segment {
            self.push(SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        let (level, tclass, hops) = if v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        };
        if let Some(value) = options.tclass {
            self.push(level, tclass, &libc::c_int::from(value).to_ne_bytes());
        }
        if let Some(value) = options.hop_limit {
            self.push(level, hops, &libc::c_int::from(value).to_ne_bytes());
        }
    }

    /// The encoded messages.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        // The room is for three messages, and `set` writes three at most.
        self.len += encode(room, level, kind, data).unwrap_or(0);
    }
}

/// Writes one message, and returns the space that it takes; `None` if it does not fit.
fn encode(out: &mut [u8], level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Option<usize> {
    let len = HEADER + data.len();
    let space = len.next_multiple_of(WORD);
    let out = out.get_mut(..space)?;
    out.fill(0);
    out.get_mut(..WORD)?.copy_from_slice(&len.to_ne_bytes());
    let at = offset_of!(libc::cmsghdr, cmsg_level);
    out.get_mut(at..at + 4)?
        .copy_from_slice(&level.to_ne_bytes());
    let at = offset_of!(libc::cmsghdr, cmsg_type);
    out.get_mut(at..at + 4)?
        .copy_from_slice(&kind.to_ne_bytes());
    out.get_mut(HEADER..len)?.copy_from_slice(data);
    Some(space)
}

/// What the kernel tells of a received datagram besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RxInfo {
    /// The address that it was sent to.
    pub(crate) local: Option<IpAddr>,
    /// TOS or traffic class.
    pub(crate) tclass: u8,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
    /// GRO: the length of each datagram but the last.
    pub(crate) stride: Option<usize>,
    /// Datagrams that this socket has dropped since it was opened, modulo 2^32.
    pub(crate) drops: Option<u32>,
}

/// Control bytes of one incoming message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct RxControl([u8; RX_ROOM]);

impl RxControl {
    /// Room for the kernel.
    pub(crate) const EMPTY: Self = Self([0; RX_ROOM]);
    /// The room that the kernel may fill.
    pub(crate) const ROOM: usize = RX_ROOM;

    /// Reads the first `len` bytes.
    pub(crate) fn parse(&self, len: usize) -> RxInfo {
        parse(self.0.get(..len).unwrap_or(&self.0))
    }
}

fn parse(mut bytes: &[u8]) -> RxInfo {
    let mut info = RxInfo::default();
    while let Some((level, kind, data, rest)) = split(bytes) {
        take(&mut info, level, kind, data);
        bytes = rest;
    }
    info
}

fn take(info: &mut RxInfo, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            info.tclass = small(data).unwrap_or(info.tclass);
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            info.hop_limit = small(data).unwrap_or(info.hop_limit);
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let at = offset_of!(libc::in_pktinfo, ipi_addr);
            let addr = data.get(at..).and_then(<[u8]>::first_chunk::<4>);
            info.local = addr.map(|octets| Ipv4Addr::from(*octets).into());
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let addr = data.first_chunk::<16>();
            info.local = addr.map(|octets| Ipv6Addr::from(*octets).into());
        }
        (SOL_UDP, libc::UDP_GRO) => {
            let size = data
                .first_chunk::<4>()
                .map(|raw| libc::c_int::from_ne_bytes(*raw));
            info.stride = size
                .and_then(|size| usize::try_from(size).ok())
                .filter(|&size| size > 0);
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
            info.drops = data.first_chunk::<4>().map(|raw| u32::from_ne_bytes(*raw));
        }
        _ => {}
    }
}

/// A value of one byte, whether the kernel spells it as a byte or as an int.
fn small(data: &[u8]) -> Option<u8> {
    match data.first_chunk::<4>() {
        Some(raw) => u8::try_from(libc::c_int::from_ne_bytes(*raw)).ok(),
        None => data.first().copied(),
    }
}

/// Splits off the first message: level, type, data, and what follows it.
fn split(bytes: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let header = bytes.get(..HEADER)?;
    let len = usize::from_ne_bytes(*header.first_chunk::<WORD>()?);
    let int = |at: usize| {
        header
            .get(at..)
            .and_then(<[u8]>::first_chunk::<4>)
            .map(|raw| i32::from_ne_bytes(*raw))
    };
    let level = int(offset_of!(libc::cmsghdr, cmsg_level))?;
    let kind = int(offset_of!(libc::cmsghdr, cmsg_type))?;
    let data = bytes.get(HEADER..len)?;
    let rest = bytes.get(len.next_multiple_of(WORD)..).unwrap_or_default();
    Some((level, kind, data, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(out: &mut Vec<u8>, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let mut space = [0; 64];
        let len = encode(&mut space, level, kind, data).unwrap();
        out.extend_from_slice(&space[..len]);
    }

    #[test]
    fn layout_is_that_of_libc() {
        // SAFETY: why needed: a macro of libc, an unsafe function. Why sound: pure arithmetic.
        let len = unsafe { libc::CMSG_LEN(2) };
        // SAFETY: why needed and why sound: as above.
        let space = unsafe { libc::CMSG_SPACE(2) };
        let mut out = [0xff; 64];
        assert_eq!(encode(&mut out, 17, 103, &[1, 2]), Some(space as usize));
        assert_eq!(out[..WORD], (len as usize).to_ne_bytes());
        assert_eq!(out[HEADER..HEADER + 2], [1, 2]);
        assert_eq!(
            encode(&mut out[..8], 17, 103, &[1, 2]),
            None,
            "no room, no message"
        );
    }

    #[test]
    fn sent_options_read_back() {
        let options = TxOptions {
            segment: Some(1040),
            tclass: Some(0x0a),
            hop_limit: Some(7),
        };
        for v6 in [false, true] {
            let mut control = TxControl::EMPTY;
            control.set(v6, &options);
            assert_eq!(
                control.bytes().len(),
                TX_ROOM,
                "three messages fill the room"
            );
            let info = parse(control.bytes());
            assert_eq!((info.tclass, info.hop_limit), (0x0a, 7));
            let (level, kind, data, _) = split(control.bytes()).unwrap();
            assert_eq!((level, kind, data), (17, 103, &1040u16.to_ne_bytes()[..]));
            control.set(v6, &TxOptions::default());
            assert!(control.bytes().is_empty());
        }
    }

    #[test]
    fn all_received_messages_are_understood() {
        let mut raw = Vec::new();
        let mut pktinfo = [0u8; 12];
        pktinfo[8..].copy_from_slice(&[127, 1, 2, 3]);
        message(&mut raw, libc::IPPROTO_IP, libc::IP_PKTINFO, &pktinfo);
        message(&mut raw, libc::IPPROTO_IP, libc::IP_TOS, &[2]);
        message(
            &mut raw,
            libc::IPPROTO_IP,
            libc::IP_TTL,
            &64i32.to_ne_bytes(),
        );
        message(&mut raw, 99, 99, &[1; 20]);
        message(&mut raw, SOL_UDP, libc::UDP_GRO, &1040i32.to_ne_bytes());
        message(
            &mut raw,
            libc::SOL_SOCKET,
            libc::SO_RXQ_OVFL,
            &5u32.to_ne_bytes(),
        );
        let want = RxInfo {
            local: Some(Ipv4Addr::new(127, 1, 2, 3).into()),
            tclass: 2,
            hop_limit: 64,
            stride: Some(1040),
            drops: Some(5),
        };
        assert_eq!(parse(&raw), want);

        let mut raw = Vec::new();
        let mut pktinfo = [0u8; 20];
        pktinfo[15] = 1;
        message(&mut raw, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &pktinfo);
        message(
            &mut raw,
            libc::IPPROTO_IPV6,
            libc::IPV6_TCLASS,
            &3i32.to_ne_bytes(),
        );
        message(
            &mut raw,
            libc::IPPROTO_IPV6,
            libc::IPV6_HOPLIMIT,
            &255i32.to_ne_bytes(),
        );
        let want = RxInfo {
            local: Some(Ipv6Addr::LOCALHOST.into()),
            tclass: 3,
            hop_limit: 255,
            ..RxInfo::default()
        };
        assert_eq!(parse(&raw), want);
    }

    #[test]
    fn damaged_control_bytes_end_the_walk() {
        let mut raw = Vec::new();
        message(&mut raw, SOL_UDP, libc::UDP_GRO, &1040i32.to_ne_bytes());
        for cut in 0..raw.len() {
            let _ = parse(&raw[..cut]);
        }
        for len in [0usize, 1, HEADER - 1, 1000, usize::MAX] {
            raw[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(parse(&raw), RxInfo::default(), "length {len}");
        }
    }
}
