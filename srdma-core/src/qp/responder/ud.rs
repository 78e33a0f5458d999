//! Datagrams: a 40-byte area for the network header, then the payload, in one receive WQE.
//!
//! ```text
//!   IPv4   bytes 0..20 zero, 20..40 the IPv4 header as it came
//!   IPv6   bytes 0..40 the IPv6 header
//! ```
//!
//! A socket does not show the header; it is built again from what the socket tells, with a right
//! checksum, so that programs can make an address handle from it.      [RoCEv2 1.9]

use super::Fault;
use crate::hca::ctx::Ctx;
use crate::hw::cqe::{CqeInfo, rq_op};
use crate::qp::Qp;
use crate::qp::attr::QpState;
use crate::rx::RxMeta;
use crate::wire::Packet;
use std::net::IpAddr;

/// Bytes in front of the payload.
pub(super) const GRH: usize = 40;

impl Qp {
    /// A datagram for this queue pair, Q_Key already checked.
    // rule: roce-121
    // rule: roce-122
    pub(crate) fn on_datagram(
        &mut self,
        ctx: &mut Ctx<'_>,
        packet: &Packet<'_>,
        meta: &RxMeta,
        ip_id: u16,
    ) {
        if !self.can_receive() {
            ctx.counters.bad_state += 1;
            return;
        }
        if self.state == QpState::Rtr && !self.established {
            self.established = true;
        }
        match self.deliver(ctx, packet, meta, ip_id) {
            Ok(()) => {}
            Err(Fault::Overrun) => self.cq_overrun(ctx),
            Err(Fault::NotReady) => ctx.counters.no_recv_wqe += 1,
            // The WQE serves the next datagram.
            Err(_) => ctx.counters.ud_dropped += 1,
        }
    }

    fn deliver(
        &mut self,
        ctx: &mut Ctx<'_>,
        packet: &Packet<'_>,
        meta: &RxMeta,
        ip_id: u16,
    ) -> Result<(), Fault> {
        let Some(deth) = packet.deth() else {
            return Err(Fault::Drop);
        };
        if !self.rsp.recv.taken {
            self.take_recv(ctx)?;
        }
        // rule: puda-2
        let payload = if self.id.raw {
            packet.bytes()
        } else {
            packet.payload()
        };
        let len = GRH + payload.len();
        // rule: e810-30
        if len as u64 > self.rsp.recv.room {
            return Err(Fault::TooLong);
        }
        let header = network_header(meta, packet.bytes().len(), ip_id);
        self.place_recv(ctx, 0, &header)?;
        self.place_recv(ctx, GRH as u64, payload)?;
        let cqe = CqeInfo {
            op: rq_op(packet.opcode().0),
            qpn: self.id.qpn,
            context: self.id.cookie,
            wqe_index: self.rsp.recv.index,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            psn: packet.psn(),
            peer: deth.source.value(),
            // rule: e810-10
            stag_or_ipv4: meta.local.is_ipv4(),
            // No peer says when the driver is woken.
            solicited: packet.solicited() && !self.id.raw,
            imm: packet.imm().map(|imm| u32::from_be_bytes(imm.0)),
            ..CqeInfo::default()
        };
        self.post_recv_cqe(ctx, cqe)
    }
}

/// The network header as it came, as far as a socket can tell.
// rule: roce-123
// rule: roce-124
pub(super) fn network_header(meta: &RxMeta, datagram: usize, ip_id: u16) -> [u8; GRH] {
    let mut area = [0u8; GRH];
    match (meta.source.ip(), meta.local) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let total = u16::try_from(28 + datagram)
                .unwrap_or(u16::MAX)
                .to_be_bytes();
            let id = ip_id.to_be_bytes();
            let [a, b, c, d] = source.octets();
            let [e, f, g, h] = target.octets();
            let mut ip = [
                0x45,
                meta.tclass,
                total[0],
                total[1],
                id[0],
                id[1],
                0x40,
                0,
                meta.hop_limit,
                17,
                0,
                0,
                a,
                b,
                c,
                d,
                e,
                f,
                g,
                h,
            ];
            let sum = internet_checksum(&ip).to_be_bytes();
            [ip[10], ip[11]] = sum;
            if let Some(to) = area.get_mut(20..) {
                to.copy_from_slice(&ip);
            }
        }
        (source, target) => {
            let length = u16::try_from(8 + datagram).unwrap_or(u16::MAX);
            let first = 0x6000_0000u32 | u32::from(meta.tclass) << 20;
            let mut put = |at: usize, bytes: &[u8]| {
                if let Some(to) = area.get_mut(at..at + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            };
            put(0, &first.to_be_bytes());
            put(4, &length.to_be_bytes());
            put(6, &[17, meta.hop_limit]);
            put(8, &octets(source));
            put(24, &octets(target));
        }
    }
    area
}

const fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// One's complement sum of 16-bit words, complemented.                [RFC 1071]
fn internet_checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| match *pair {
            [a, b] => u32::from(u16::from_be_bytes([a, b])),
            [a] => u32::from(u16::from_be_bytes([a, 0])),
            _ => 0,
        })
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}
