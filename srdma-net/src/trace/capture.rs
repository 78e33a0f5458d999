//! Captures: pcapng files of packets, with the headers that UDP sockets do not show.
//!
//! ```text
//! section header | interface: raw IP, times in ns | packet | packet | …
//! packet   in or out, comment: the device, and what faults did to it
//! ```
//!
//! The first writer of a file writes its head; every packet is one append, so several processes
//! may write one file. Packets between processes of one address go to a port that nobody takes for
//! RoCE: the capture says 4791 there, an ICRC that was right is made right for that, and the
//! comment has the true port.

use crate::socket::ROCE_PORT;
use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};
use srdma_core::trace::{Kind, PacketPath, Record};
use srdma_core::wire::icrc::{self, IcrcCheck, IcrcFlow};
use srdma_core::wire::{FlowTuple, ICRC_LEN};
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

/// Raw IP packets.                                                     [pcapng, LINKTYPE_RAW]
const LINK_TYPE: u16 = 101;
const UDP_HEADER: usize = 8;

/// A capture that packets are appended to.
#[derive(Debug)]
pub struct Capture {
    file: File,
}

impl Capture {
    /// Opens a file, and writes its head if nobody has.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = super::append(path)?;
        file.lock()?;
        let fresh = file.metadata()?.len() == 0;
        let written = if fresh {
            file.write_all(&head())
        } else {
            Ok(())
        };
        file.unlock()?;
        written.map(|()| Self { file })
    }

    /// The block of a record; empty if it is no packet.
    #[must_use]
    pub fn block(&self, record: &Record<'_>, device: &str) -> Vec<u8> {
        let inbound = matches!(record.kind, Kind::IN | Kind::FAULT_IN);
        let Some(path) = record.path() else {
            return Vec::new();
        };
        let (packet, port) = packet(&path, &record.bytes);
        let mut comment = format!("{} pid {}", device, std::process::id());
        let faults = path.note.faults();
        if !faults.is_empty() {
            comment = format!("{comment}; fault: {faults}");
        }
        if path.note.bad_icrc() {
            comment.push_str("; ICRC is wrong");
        }
        if let Some(port) = port {
            comment = format!("{comment}; to port {port} of a process, ICRC made for {ROCE_PORT}");
        }
        packet_block(record.time_ns, inbound, &comment, &packet)
    }

    /// Appends a block. A full disk stops nobody.
    pub fn append(&mut self, block: &[u8]) {
        if !block.is_empty() {
            let _ = self.file.write_all(block);
        }
    }
}

/// The IP packet, and the UDP port that it went to if that is not shown.
fn packet(path: &PacketPath, bytes: &[u8]) -> (Vec<u8>, Option<u16>) {
    let (source, mut target) = (path.source, path.target);
    let mut payload = bytes.to_vec();
    let moved = (target.port() != ROCE_PORT).then_some(target.port());
    if moved.is_some() {
        let old = flow(path, target.port());
        if !path.note.bad_icrc() && !path.note.malformed() {
            sign(&old, &flow(path, ROCE_PORT), path.ip_id, &mut payload);
        }
        target.set_port(ROCE_PORT);
    }
    let len = u16::try_from(UDP_HEADER + payload.len()).unwrap_or(u16::MAX);
    let mut udp = UdpHeader {
        source_port: source.port(),
        destination_port: target.port(),
        length: len,
        checksum: 0,
    };
    let mut out = Vec::with_capacity(48 + payload.len());
    match (source.ip(), target.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header {
                total_len: 20 + len,
                identification: path.ip_id,
                dont_fragment: true,
                time_to_live: path.hop_limit,
                protocol: IpNumber::UDP,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            ip.dscp = etherparse::IpDscp::try_new(path.tclass >> 2).unwrap_or_default();
            ip.ecn = etherparse::IpEcn::try_new(path.tclass & 3).unwrap_or_default();
            ip.header_checksum = ip.calc_header_checksum();
            out.extend(ip.to_bytes());
        }
        (from, to) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let ip = Ipv6Header {
                traffic_class: path.tclass,
                flow_label: Ipv6FlowLabel::default(),
                payload_length: len,
                next_header: IpNumber::UDP,
                hop_limit: path.hop_limit,
                source: octets(from),
                destination: octets(to),
            };
            udp.checksum = udp.calc_checksum_ipv6(&ip, &payload).unwrap_or(0);
            out.extend(ip.to_bytes());
        }
    }
    out.extend(udp.to_bytes());
    out.extend(&payload);
    (out, moved)
}

fn flow(path: &PacketPath, target_port: u16) -> IcrcFlow {
    IcrcFlow::new(&FlowTuple {
        source: path.source.ip(),
        target: path.target.ip(),
        source_port: path.source.port(),
        target_port,
    })
}

/// Gives a packet that was right for one flow the ICRC for another.
fn sign(old: &IcrcFlow, new: &IcrcFlow, ip_id: u16, datagram: &mut [u8]) {
    let right = match icrc::verify(old, datagram, ip_id) {
        IcrcCheck::Good { ip_id: found } | IcrcCheck::DfClear { ip_id: found } => found == ip_id,
        IcrcCheck::Bad => false,
    };
    let len = datagram.len();
    if let Some((body, crc)) = datagram.split_last_chunk_mut::<ICRC_LEN>()
        && let Some((bth, rest)) = body.split_first_chunk()
        && right
    {
        let mut sum = new.start(len, ip_id, bth);
        sum.bytes(rest);
        *crc = sum.finish();
    }
}

// ---- blocks --------------------------------------------------------------------------------

/// Section header and interface.
fn head() -> Vec<u8> {
    let mut section = Vec::new();
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend(1u16.to_le_bytes());
    section.extend(0u16.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes());
    let mut interface = Vec::new();
    interface.extend(LINK_TYPE.to_le_bytes());
    interface.extend(0u16.to_le_bytes());
    interface.extend(0u32.to_le_bytes());
    option(&mut interface, 2, b"srdma");
    // Times are in units of 10^-9 s.
    option(&mut interface, 9, &[9]);
    option(&mut interface, 0, &[]);
    [block(0x0a0d_0d0a, &section), block(1, &interface)].concat()
}

#[allow(clippy::cast_possible_truncation, reason = "the halves of a time")]
fn packet_block(time_ns: u64, inbound: bool, comment: &str, packet: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(packet.len() + 128);
    let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    for word in [0, (time_ns >> 32) as u32, time_ns as u32, len, len] {
        body.extend(word.to_le_bytes());
    }
    body.extend(packet);
    pad(&mut body);
    option(&mut body, 1, comment.as_bytes());
    let flags = if inbound { 1u32 } else { 2 };
    option(&mut body, 2, &flags.to_le_bytes());
    option(&mut body, 0, &[]);
    block(6, &body)
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let total = u32::try_from(body.len() + 12)
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    [&kind.to_le_bytes()[..], &total, body, &total].concat()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
