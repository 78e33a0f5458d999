//! The QP context: 256 bytes of attributes that CREATE_QP and MODIFY_QP name by address.
//!
//! ```text
//! +0    [srdma] 2:0 type | 3 IPv4 | 9:8 RQ stride shift
//! +8    SQ address             +16  RQ address (0: no RQ)
//! +24   63:48 UDP target | 47:32 UDP source | 31:24 TOS | 15:12 SQ size | 11:8 RQ size | 7:0 TTL
//! +32   target IP, first half  +40  second half (IPv4: low dword)
//! +48   15:0 path MTU          +56  63:48 P_Key | 47:30 PD | 19:0 flow label
//! +64   63:32 Q_Key | 23:0 target QPN
//! +80   23:0 next PSN          +88  23:0 expected PSN
//! +128  63:57 timeout | 56:54 RNR retries | 53:48 retries
//!       [srdma] 31:16 P_Key index | 4:0 RNR timer
//! +136  56:32 receive CQ | 24:0 send CQ
//! +152  [srdma] 7:0 GID index
//! +160  7:0 ORD | 18:16 IRD class | [srdma] 31:24 IRD, 41:32 rights
//! +168  completion context
//! +184  local IP, first half   +192 second half
//! +200  [srdma] 63 valid | 23:0 SRQ
//! +208  [srdma] 63 valid | 23:0 XRC domain
//! ```
//!
//! The positions inside +24, +48, +56, +160 are ours where the data at hand names only the word.
//! Words not listed are written as 0 and not read. The driver always writes the whole context; the
//! attribute mask of the command says which parts a modify takes over.   [E810 6.1]

use crate::mem::Access;
use crate::num::{CqId, PdId, Pkey, Psn, Qkey, Qpn, SrqId, XrcdId};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Words of a context.
pub const QP_CTX_WORDS: usize = 32;
/// Bytes of a context.
pub const QP_CTX_BYTES: usize = 8 * QP_CTX_WORDS;

open_enum! {
    /// State of a QP in commands and events.                          [E810 6.1]
    pub struct HwQpState: u8 {
        /// Reset, or destroyed.
        INVALID = 0,
        /// Init.
        IDLE = 1,
        /// Ready to send.
        RTS = 2,
        /// Send queue drained or draining.
        SQD = 3,
        /// Ready to receive.
        RTR = 4,
        /// Send queue error; the E810 calls it TERMINATE. `[srdma]` for RoCE
        SQE = 5,
        /// Error.
        ERROR = 6,
    }
}

open_enum! {
    /// Type of a QP in commands and contexts.                         [E810 9]
    pub struct HwQpType: u8 {
        /// iWARP; not served.
        IWARP = 1,
        /// Raw datagrams.
        UDA = 2,
        /// Reliable connection.
        RC = 3,
        /// Unreliable datagram.
        UD = 4,
        /// Unreliable connection. `[srdma]`
        UC = 5,
        /// XRC initiator. `[srdma]`
        XRC_SEND = 6,
        /// XRC target. `[srdma]`
        XRC_RECV = 7,
    }
}

le_word! {
    /// Word 0. `[srdma]`
    pub struct CtxFlags {
        qp_type / with_qp_type: HwQpType = [2:0],
        ipv4 / with_ipv4: bool = [3:3],
        rq_shift / with_rq_shift: u8 = [9:8],
    }
}
le_word! {
    /// Word 3.
    pub struct CtxSizes {
        ttl / with_ttl: u8 = [7:0],
        rq_size / with_rq_size: u8 = [11:8],
        sq_size / with_sq_size: u8 = [15:12],
        tos / with_tos: u8 = [31:24],
        src_port / with_src_port: u16 = [47:32],
        dest_port / with_dest_port: u16 = [63:48],
    }
}
le_word! {
    /// Word 6.
    pub struct CtxMss {
        path_mtu / with_path_mtu: u16 = [15:0],
        /// `[srdma]`
        peer_rx / with_peer_rx: u32 = [63:32],
    }
}
le_word! {
    /// Word 7.
    pub struct CtxDomain {
        flow_label / with_flow_label: u32 = [19:0],
        pd / with_pd: PdId = [47:30],
        pkey / with_pkey: Pkey = [63:48],
    }
}
le_word! {
    /// Word 8.                                                        [E810 6.1]
    pub struct CtxPeer {
        dest / with_dest: Qpn = [23:0],
        qkey / with_qkey: Qkey = [63:32],
    }
}
le_word! {
    /// Words 10 and 11.                                               [E810 6.1]
    pub struct CtxPsn {
        psn / with_psn: Psn = [23:0],
    }
}
le_word! {
    /// Word 16.                                                       [E810 6.1]
    pub struct CtxRetry {
        min_rnr_timer / with_min_rnr_timer: u8 = [4:0],
        pkey_index / with_pkey_index: u16 = [31:16],
        retry_cnt / with_retry_cnt: u8 = [53:48],
        rnr_retry / with_rnr_retry: u8 = [56:54],
        timeout / with_timeout: u8 = [63:57],
    }
}
le_word! {
    /// Word 17.                                                       [E810 6.1]
    pub struct CtxCqs {
        send / with_send: CqId = [24:0],
        recv / with_recv: CqId = [56:32],
    }
}
le_word! {
    /// Word 19. `[srdma]`
    pub struct CtxGid {
        gid_index / with_gid_index: u8 = [7:0],
    }
}
le_word! {
    /// Word 20.
    pub struct CtxReads {
        ord / with_ord: u8 = [7:0],
        ird_class / with_ird_class: u8 = [18:16],
        ird / with_ird: u8 = [31:24],
        access / with_access: u16 = [41:32],
    }
}
le_word! {
    /// Word 25. `[srdma]`
    pub struct CtxSrq {
        id / with_id: SrqId = [23:0],
        valid / with_valid: bool = [63:63],
    }
}
le_word! {
    /// Word 26. `[srdma]`
    pub struct CtxXrcd {
        id / with_id: XrcdId = [23:0],
        valid / with_valid: bool = [63:63],
    }
}

/// Every attribute of a QP that the device acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpContext {
    /// Transport.
    pub qp_type: HwQpType,
    /// Address of the SQ.
    pub sq_addr: u64,
    /// Size of the SQ in quanta: a power of two, at least 4.
    pub sq_quanta: u32,
    /// Address of the RQ; 0 if there is none (SRQ, or no receives).
    pub rq_addr: u64,
    /// Size of the RQ in entries: a power of two, at least 4. Not kept without an RQ.
    pub rq_wqes: u32,
    /// Stride of the RQ: 32 << shift bytes.
    pub rq_shift: u8,
    /// CQ of the SQ.
    pub send_cq: CqId,
    /// CQ of the RQ.
    pub recv_cq: CqId,
    /// Protection domain.
    pub pd: PdId,
    /// Shared receive queue.
    pub srq: Option<SrqId>,
    /// XRC domain of a target. `[srdma]`
    pub xrcd: Option<XrcdId>,
    /// What completions and events of this QP carry.
    pub completion_context: u64,
    /// Peer's QPN.
    pub dest_qpn: Qpn,
    /// Peer's address; same family as `local_ip`.
    pub dest_ip: IpAddr,
    /// Own address.
    pub local_ip: IpAddr,
    /// Index of the own GID.
    pub gid_index: u8,
    /// UDP source port the driver asks for; 0 leaves it to the device.
    pub udp_src_port: u16,
    /// Path MTU in bytes.
    pub path_mtu: u16,
    /// Receive buffer of the peer's socket in bytes; 0 if not known. `[srdma]`
    pub peer_rx: u32,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// The P_Key itself.
    pub pkey: Pkey,
    /// Q_Key of a datagram QP.
    pub qkey: Qkey,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// First PSN to expect.
    pub rq_psn: Psn,
    /// ACK timeout code: 4.096 µs · 2^code, 0 for none; 5 bits.
    pub timeout: u8,
    /// Retries; 3 bits.
    pub retry_cnt: u8,
    /// RNR retries; 7 is for ever.
    pub rnr_retry: u8,
    /// RNR timer code to ask of peers; 5 bits.
    pub min_rnr_timer: u8,
    /// Outbound READs and atomics (ORD).
    pub max_rd_atomic: u8,
    /// Inbound READs and atomics (IRD).
    pub max_dest_rd_atomic: u8,
    /// What the peer may do; windows may be bound.
    pub access: Access,
    /// Traffic class of packets.
    pub traffic_class: u8,
    /// Hop limit of packets.
    pub hop_limit: u8,
    /// Flow label of packets.
    pub flow_label: u32,
}

impl Default for QpContext {
    fn default() -> Self {
        Self::decode(&[0; QP_CTX_WORDS])
    }
}

/// UDP target port of RoCEv2.
const ROCE_PORT: u16 = 4791;

impl QpContext {
    /// The words of the context.
    #[must_use]
    pub fn encode(&self) -> [u64; QP_CTX_WORDS] {
        let [dest_high, dest_low] = ip_words(self.dest_ip);
        let [local_high, local_low] = ip_words(self.local_ip);
        let mut words = [0; QP_CTX_WORDS];
        let mut put = |byte: usize, word: u64| {
            if let Some(to) = words.get_mut(byte / 8) {
                *to = word;
            }
        };
        put(0, self.flags().bits());
        put(8, self.sq_addr);
        put(16, self.rq_addr);
        put(24, self.sizes().bits());
        put(32, dest_high);
        put(40, dest_low);
        let mss = CtxMss::ZERO.with_path_mtu(self.path_mtu);
        put(48, mss.with_peer_rx(self.peer_rx).bits());
        let domain = CtxDomain::ZERO.with_flow_label(self.flow_label);
        put(56, domain.with_pd(self.pd).with_pkey(self.pkey).bits());
        put(
            64,
            CtxPeer::ZERO
                .with_dest(self.dest_qpn)
                .with_qkey(self.qkey)
                .bits(),
        );
        put(80, CtxPsn::ZERO.with_psn(self.sq_psn).bits());
        put(88, CtxPsn::ZERO.with_psn(self.rq_psn).bits());
        put(128, self.retry().bits());
        put(
            136,
            CtxCqs::ZERO
                .with_send(self.send_cq)
                .with_recv(self.recv_cq)
                .bits(),
        );
        put(152, CtxGid::ZERO.with_gid_index(self.gid_index).bits());
        put(160, self.reads().bits());
        put(168, self.completion_context);
        put(184, local_high);
        put(192, local_low);
        let srq = CtxSrq::ZERO.with_id(self.srq.unwrap_or_default());
        put(200, srq.with_valid(self.srq.is_some()).bits());
        let xrcd = CtxXrcd::ZERO.with_id(self.xrcd.unwrap_or_default());
        put(208, xrcd.with_valid(self.xrcd.is_some()).bits());
        words
    }

    fn flags(&self) -> CtxFlags {
        CtxFlags::ZERO
            .with_qp_type(self.qp_type)
            .with_ipv4(self.dest_ip.is_ipv4())
            .with_rq_shift(self.rq_shift)
    }

    fn sizes(&self) -> CtxSizes {
        let rq_size = if self.rq_addr == 0 {
            0
        } else {
            encode_size(self.rq_wqes)
        };
        CtxSizes::ZERO
            .with_ttl(self.hop_limit)
            .with_rq_size(rq_size)
            .with_sq_size(encode_size(self.sq_quanta))
            .with_tos(self.traffic_class)
            .with_src_port(self.udp_src_port)
            .with_dest_port(ROCE_PORT)
    }

    fn retry(&self) -> CtxRetry {
        CtxRetry::ZERO
            .with_min_rnr_timer(self.min_rnr_timer)
            .with_pkey_index(self.pkey_index)
            .with_retry_cnt(self.retry_cnt)
            .with_rnr_retry(self.rnr_retry)
            .with_timeout(self.timeout)
    }

    #[allow(clippy::cast_possible_truncation, reason = "ten bits of rights")]
    fn reads(&self) -> CtxReads {
        CtxReads::ZERO
            .with_ord(self.max_rd_atomic)
            .with_ird_class(ird_class(self.max_dest_rd_atomic))
            .with_ird(self.max_dest_rd_atomic)
            .with_access(self.access.to_hw() as u16)
    }

    /// From the words of a context. Never fails; what the values mean is for the device to check.
    #[must_use]
    pub fn decode(words: &[u64; QP_CTX_WORDS]) -> Self {
        let at = |byte: usize| words.get(byte / 8).copied().unwrap_or(0);
        let flags = CtxFlags::from_bits(at(0));
        let sizes = CtxSizes::from_bits(at(24));
        let domain = CtxDomain::from_bits(at(56));
        let peer = CtxPeer::from_bits(at(64));
        let retry = CtxRetry::from_bits(at(128));
        let cqs = CtxCqs::from_bits(at(136));
        let reads = CtxReads::from_bits(at(160));
        let srq = CtxSrq::from_bits(at(200));
        let xrcd = CtxXrcd::from_bits(at(208));
        let rq_addr = at(16);
        Self {
            qp_type: flags.qp_type(),
            sq_addr: at(8),
            sq_quanta: decode_size(sizes.sq_size()),
            rq_addr,
            rq_wqes: if rq_addr == 0 {
                0
            } else {
                decode_size(sizes.rq_size())
            },
            rq_shift: flags.rq_shift(),
            send_cq: cqs.send(),
            recv_cq: cqs.recv(),
            pd: domain.pd(),
            srq: srq.valid().then(|| srq.id()),
            xrcd: xrcd.valid().then(|| xrcd.id()),
            completion_context: at(168),
            dest_qpn: peer.dest(),
            dest_ip: ip_from_words([at(32), at(40)], flags.ipv4()),
            local_ip: ip_from_words([at(184), at(192)], flags.ipv4()),
            gid_index: CtxGid::from_bits(at(152)).gid_index(),
            udp_src_port: sizes.src_port(),
            path_mtu: CtxMss::from_bits(at(48)).path_mtu(),
            peer_rx: CtxMss::from_bits(at(48)).peer_rx(),
            pkey_index: retry.pkey_index(),
            pkey: domain.pkey(),
            qkey: peer.qkey(),
            sq_psn: CtxPsn::from_bits(at(80)).psn(),
            rq_psn: CtxPsn::from_bits(at(88)).psn(),
            timeout: retry.timeout(),
            retry_cnt: retry.retry_cnt(),
            rnr_retry: retry.rnr_retry(),
            min_rnr_timer: retry.min_rnr_timer(),
            max_rd_atomic: reads.ord(),
            max_dest_rd_atomic: reads.ird(),
            access: Access::from_hw(reads.access().into()),
            traffic_class: sizes.tos(),
            hop_limit: sizes.ttl(),
            flow_label: domain.flow_label(),
        }
    }
}

/// Size field of a work queue: log2 - 2.                              [E810 1.7]
fn encode_size(size: u32) -> u8 {
    u8::try_from(size.checked_ilog2().unwrap_or(0).saturating_sub(2)).unwrap_or(0)
}

fn decode_size(code: u8) -> u32 {
    4 << (code & 0xf)
}

/// IRD field: the class of the next power of two of twice the IRD.    [E810 1.7]
#[must_use]
pub const fn ird_class(ird: u8) -> u8 {
    match 2 * ird as u16 {
        0..=4 => 0,
        5..=16 => 1,
        17..=64 => 2,
        65..=128 => 3,
        _ => 4,
    }
}

/// An address as two words; IPv4 stands in the low dword of the second. [E810 2.8]
#[must_use]
pub const fn ip_words(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [0, ip.to_bits() as u64],
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            #[allow(
                clippy::cast_possible_truncation,
                reason = "splits 128 bits into halves"
            )]
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

/// The address of two words.
#[must_use]
pub fn ip_from_words([high, low]: [u64; 2], ipv4: bool) -> IpAddr {
    if ipv4 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the low dword is the address"
        )]
        IpAddr::V4(Ipv4Addr::from_bits(low as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(
            u128::from(high) << 64 | u128::from(low),
        ))
    }
}

#[cfg(test)]
mod tests;
