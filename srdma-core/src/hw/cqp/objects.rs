//! Commands about memory keys, address handles and multicast groups.   [E810 2.8, 7.2]
//!
//! `encode` leaves opcode and valid bit to its caller; `decode` takes any bits. The table of
//! words is in `docs/rings.md`, section 7.

use super::Words;
use super::words::*;
use crate::hw::qp_ctx::{ip_from_words, ip_words};
use crate::mem::{Access, PblIndex};
use crate::num::{AhId, PdId, Qpn};
use crate::obj::ah::AddressVector;
use core::net::IpAddr;

/// What a stag names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "two bits with three meanings")]
pub enum StagKind {
    /// A region.
    Mr,
    /// A type 1 window.
    Mw1,
    /// A type 2 window.
    Mw2,
}

impl StagKind {
    fn header(self) -> StagHeader {
        StagHeader::ZERO
            .with_mr(self == Self::Mr)
            .with_mw_type1(self == Self::Mw1)
    }

    fn of(header: StagHeader) -> Self {
        match (header.mr(), header.mw_type1()) {
            (true, _) => Self::Mr,
            (false, true) => Self::Mw1,
            (false, false) => Self::Mw2,
        }
    }
}

/// ALLOC_STAG: a window that is not bound, or a region without memory. [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocStag {
    /// Index and key.
    pub stag: u32,
    /// Protection domain.
    pub pd: PdId,
    /// Region or window.
    pub kind: StagKind,
}

impl AllocStag {
    pub(super) fn encode(&self) -> Words {
        stag_words(self.stag, self.pd, self.kind)
    }

    pub(super) fn decode(&[_, range, name, header, ..]: &Words) -> Self {
        Self {
            stag: StagName::from_bits(name).stag(),
            pd: StagRange::from_bits(range).pd(),
            kind: StagKind::of(StagHeader::from_bits(header)),
        }
    }
}

/// DEALLOC_STAG.                                                      [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeallocStag {
    /// Index and key.
    pub stag: u32,
    /// Protection domain.
    pub pd: PdId,
    /// Region or window.
    pub kind: StagKind,
}

impl DeallocStag {
    pub(super) fn encode(&self) -> Words {
        stag_words(self.stag, self.pd, self.kind)
    }

    pub(super) fn decode(words: &Words) -> Self {
        let AllocStag { stag, pd, kind } = AllocStag::decode(words);
        Self { stag, pd, kind }
    }
}

fn stag_words(stag: u32, pd: PdId, kind: StagKind) -> Words {
    let range = StagRange::ZERO.with_pd(pd).bits();
    let name = StagName::ZERO.with_stag(stag).bits();
    [0, range, name, kind.header().bits(), 0, 0, 0, 0]
}

/// Bits of a length in [`StagRange`].                                 [E810 7.2]
const LENGTH_BITS: u32 = 46;

/// REG_MR.                                                            [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegMr {
    /// Index and key.
    pub stag: u32,
    /// Protection domain.
    pub pd: PdId,
    /// Address the first byte is known by; 0 if zero-based.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// Rights; `ZERO_BASED` among them.
    pub access: Access,
    /// Names the memory.
    pub pbl: PblIndex,
}

impl RegMr {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "five and three bits of the rights, 18 of the length"
    )]
    pub(super) fn encode(&self) -> Words {
        let hw = self.access.to_hw();
        let header = StagKind::Mr
            .header()
            .with_rights((hw & 0x1f) as u8)
            .with_more_rights((hw >> 7) as u8)
            .with_remote_access(self.access.intersects(Access::REMOTE))
            .with_va_based(!self.access.contains(Access::ZERO_BASED))
            .with_remote_atomic(self.access.contains(Access::REMOTE_ATOMIC));
        [
            self.va,
            StagRange::ZERO.with_bytes(self.len).with_pd(self.pd).bits(),
            StagName::ZERO.with_stag(self.stag).bits(),
            header.bits(),
            StagLength::ZERO
                .with_high((self.len >> LENGTH_BITS) as u32)
                .bits(),
            0,
            StagPbl::ZERO.with_pbl(self.pbl.0).bits(),
            0,
        ]
    }

    pub(super) fn decode(&[va, range, name, header, high, _, pbl, _]: &Words) -> Self {
        let (range, header) = (StagRange::from_bits(range), StagHeader::from_bits(header));
        Self {
            stag: StagName::from_bits(name).stag(),
            pd: range.pd(),
            va,
            len: range.bytes() | u64::from(StagLength::from_bits(high).high()) << LENGTH_BITS,
            access: stag_access(header),
            pbl: PblIndex(StagPbl::from_bits(pbl).pbl()),
        }
    }
}

/// The rights of the E810 lie together, ours and two flags elsewhere in the word.
fn stag_access(header: StagHeader) -> Access {
    let mut hw = u32::from(header.rights()) | u32::from(header.more_rights()) << 7;
    if !header.va_based() {
        hw |= Access::ZERO_BASED.to_hw();
    }
    if header.remote_atomic() {
        hw |= Access::REMOTE_ATOMIC.to_hw();
    }
    Access::from_hw(hw)
}

/// CREATE_AH.                                                         [E810 2.8]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateAh {
    /// The address handle.
    pub id: AhId,
    /// Protection domain.
    pub pd: PdId,
    /// Where to.
    pub av: AddressVector,
}

impl CreateAh {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a PD id split into 16 and 2 bits"
    )]
    pub(super) fn encode(&self) -> Words {
        let av = &self.av;
        let [dest_high, dest_low] = ip_words(av.target);
        let [src_high, src_low] = ip_words(av.local);
        let header = AhHeader::ZERO
            .with_id(self.id)
            .with_ipv4(av.target.is_ipv4());
        let domain = AhDomain::ZERO
            .with_traffic_class(av.tclass)
            .with_pd_low(self.pd.value() as u16);
        let flow = AhFlow::ZERO
            .with_flow_label(av.flow_label)
            .with_pd_high((self.pd.value() >> 16) as u8)
            .with_hop_limit(av.hop_limit);
        [
            0,
            domain.bits(),
            flow.bits(),
            header.bits(),
            dest_high,
            dest_low,
            src_high,
            src_low,
        ]
    }

    pub(super) fn decode(words: &Words) -> Self {
        let &[
            _,
            domain,
            flow,
            header,
            dest_high,
            dest_low,
            src_high,
            src_low,
        ] = words;
        let (domain, flow) = (AhDomain::from_bits(domain), AhFlow::from_bits(flow));
        let header = AhHeader::from_bits(header);
        Self {
            id: header.id(),
            pd: PdId(u32::from(domain.pd_low()) | u32::from(flow.pd_high()) << 16),
            av: AddressVector {
                target: ip_from_words([dest_high, dest_low], header.ipv4()),
                local: ip_from_words([src_high, src_low], header.ipv4()),
                hop_limit: flow.hop_limit(),
                tclass: domain.traffic_class(),
                flow_label: flow.flow_label(),
            },
        }
    }
}

/// CREATE_MCAST attaches a QP to a group, DESTROY_MCAST detaches it. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McastCmd {
    /// The member.
    pub qpn: Qpn,
    /// The group's address.
    pub group: IpAddr,
}

impl McastCmd {
    pub(super) fn encode(&self) -> Words {
        let [high, low] = ip_words(self.group);
        let header = McastHeader::ZERO
            .with_qpn(self.qpn)
            .with_ipv4(self.group.is_ipv4());
        [0, 0, 0, header.bits(), high, low, 0, 0]
    }

    pub(super) fn decode(&[_, _, _, header, high, low, _, _]: &Words) -> Self {
        let header = McastHeader::from_bits(header);
        Self {
            qpn: header.qpn(),
            group: ip_from_words([high, low], header.ipv4()),
        }
    }
}
