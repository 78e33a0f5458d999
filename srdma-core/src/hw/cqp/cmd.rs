//! The bodies of control commands: typed fields, and both directions of their words.
//!
//! `encode` leaves opcode and valid bit to its caller; `decode` takes any bits.

use super::CQP_WORDS;
use super::words::*;
use crate::hw::qp_ctx::{ip_from_words, ip_words};
use crate::hw::{AeCode, AeSource, FlushCode, HwQpState, HwQpType, Major};
use crate::mem::{Access, PblIndex};
use crate::num::{AhId, CeqId, CqId, MsixVector, PdId, Qpn, SrqId};
use crate::obj::ah::AddressVector;
use crate::qp::attr::AttrMask;
use core::net::IpAddr;

type Words = [u64; CQP_WORDS];

/// CREATE_QP and MODIFY_QP.                                           [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpCmd {
    /// The QP.
    pub qpn: Qpn,
    /// Transport.
    pub qp_type: HwQpType,
    /// State to go to.
    pub next_state: HwQpState,
    /// MODIFY_QP: what to take over from the context. `[srdma]`
    pub mask: AttrMask,
    /// Address of the context (256 bytes).
    pub ctx_addr: u64,
    /// Address of the QP's shadow area (64 bytes).
    pub shadow_addr: u64,
}

impl QpCmd {
    pub(super) fn encode(&self, create: bool) -> Words {
        let header = QpHeader::ZERO
            .with_qpn(self.qpn)
            .with_cq_valid(create)
            .with_qp_type(self.qp_type)
            .with_next_state(self.next_state);
        let mask = QpMaskWord::ZERO.with_mask(self.mask.0);
        [
            mask.bits(),
            0,
            self.ctx_addr,
            header.bits(),
            0,
            self.shadow_addr,
            0,
            0,
        ]
    }

    pub(super) fn decode(&[mask, _, ctx_addr, header, _, shadow_addr, _, _]: &Words) -> Self {
        let header = QpHeader::from_bits(header);
        Self {
            qpn: header.qpn(),
            qp_type: header.qp_type(),
            next_state: header.next_state(),
            mask: AttrMask(QpMaskWord::from_bits(mask).mask()),
            ctx_addr,
            shadow_addr,
        }
    }
}

/// CREATE_CQ, and MODIFY_CQ for a resize.                             [E810 7.2, 3.8]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqCmd {
    /// The CQ.
    pub id: CqId,
    /// CEQ that hears of completions.
    pub ceq: Option<CeqId>,
    /// What CEQEs and AEQEs carry; even.
    pub cookie: u64,
    /// Entries of the ring: slots of 32 bytes, or of 64 in a wide CQ.
    pub size: u32,
    /// How few free entries make the device read the shadow area.
    pub threshold: u32,
    /// Address of the ring.
    pub addr: u64,
    /// Address of the shadow area (64 bytes).
    pub shadow_addr: u64,
    /// Report an overflow.
    pub check_overflow: bool,
    /// 64-byte slots.
    pub wide: bool,
}

impl CqCmd {
    pub(super) fn encode(&self, resize: bool) -> Words {
        let header = CqHeader::ZERO
            .with_id(self.id)
            .with_ceq(self.ceq.unwrap_or_default())
            .with_resize(resize)
            .with_check_overflow(self.check_overflow)
            .with_encode_ceqe(self.ceq.is_some())
            .with_ceq_valid(self.ceq.is_some())
            .with_wide(self.wide);
        let size = CqSize::ZERO.with_size(self.size).bits();
        let threshold = CqThreshold::ZERO.with_threshold(self.threshold).bits();
        let cookie = self.cookie >> 1;
        [
            size,
            cookie,
            threshold,
            header.bits(),
            self.addr,
            self.shadow_addr,
            0,
            0,
        ]
    }

    pub(super) fn decode(words: &Words) -> Self {
        let &[size, cookie, threshold, header, addr, shadow_addr, _, _] = words;
        let header = CqHeader::from_bits(header);
        Self {
            id: header.id(),
            ceq: header.ceq_valid().then(|| header.ceq()),
            cookie: cookie << 1,
            size: CqSize::from_bits(size).size(),
            threshold: CqThreshold::from_bits(threshold).threshold(),
            addr,
            shadow_addr,
            check_overflow: header.check_overflow(),
            wide: header.wide(),
        }
    }
}

/// CREATE_SRQ. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqCmd {
    /// The SRQ.
    pub id: SrqId,
    /// Protection domain.
    pub pd: PdId,
    /// What events carry.
    pub context: u64,
    /// Entries: a power of two.
    pub wqes: u32,
    /// Stride: 32 << shift bytes.
    pub shift: u8,
    /// Address of the ring.
    pub addr: u64,
    /// Address of the shadow area (64 bytes).
    pub shadow_addr: u64,
    /// Tell when fewer entries are left; 0 for never.
    pub limit: u32,
}

impl SrqCmd {
    pub(super) fn encode(&self) -> Words {
        let size = SrqSize::ZERO
            .with_wqes(self.wqes)
            .with_limit(self.limit)
            .bits();
        let domain = SrqDomain::ZERO
            .with_pd(self.pd)
            .with_shift(self.shift)
            .bits();
        let header = SrqHeader::ZERO
            .with_id(self.id)
            .with_arm_limit(self.limit != 0)
            .bits();
        [
            size,
            self.context,
            domain,
            header,
            self.addr,
            self.shadow_addr,
            0,
            0,
        ]
    }

    pub(super) fn decode(words: &Words) -> Self {
        let &[size, context, domain, header, addr, shadow_addr, _, _] = words;
        let (size, domain) = (SrqSize::from_bits(size), SrqDomain::from_bits(domain));
        Self {
            id: SrqHeader::from_bits(header).id(),
            pd: domain.pd(),
            context,
            wqes: size.wqes(),
            shift: domain.shift(),
            addr,
            shadow_addr,
            limit: size.limit(),
        }
    }
}

/// MODIFY_SRQ: arms the limit event. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifySrq {
    /// The SRQ.
    pub id: SrqId,
    /// Tell once when fewer entries are left; 0 for never.
    pub limit: u32,
}

impl ModifySrq {
    pub(super) fn encode(&self) -> Words {
        let header = SrqHeader::ZERO
            .with_id(self.id)
            .with_arm_limit(self.limit != 0)
            .bits();
        [
            SrqSize::ZERO.with_limit(self.limit).bits(),
            0,
            0,
            header,
            0,
            0,
            0,
            0,
        ]
    }

    pub(super) fn decode(&[size, _, _, header, ..]: &Words) -> Self {
        Self {
            id: SrqHeader::from_bits(header).id(),
            limit: SrqSize::from_bits(size).limit(),
        }
    }
}

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

/// REG_MR.                                                            [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegMr {
    /// Index and key.
    pub stag: u32,
    /// Protection domain.
    pub pd: PdId,
    /// Address the first byte is known by; 0 if zero-based.
    pub va: u64,
    /// Bytes; 46 bits.
    pub len: u64,
    /// Rights; `ZERO_BASED` among them.
    pub access: Access,
    /// Names the memory.
    pub pbl: PblIndex,
}

impl RegMr {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "five and three bits of the rights"
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
            StagRange::ZERO.with_len(self.len).with_pd(self.pd).bits(),
            StagName::ZERO.with_stag(self.stag).bits(),
            header.bits(),
            0,
            0,
            StagPbl::ZERO.with_pbl(self.pbl.0).bits(),
            0,
        ]
    }

    pub(super) fn decode(&[va, range, name, header, _, _, pbl, _]: &Words) -> Self {
        let (range, header) = (StagRange::from_bits(range), StagHeader::from_bits(header));
        Self {
            stag: StagName::from_bits(name).stag(),
            pd: range.pd(),
            va,
            len: range.len(),
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

/// CREATE_CEQ.                                                        [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateCeq {
    /// The CEQ.
    pub id: CeqId,
    /// Entries of 8 bytes.
    pub entries: u32,
    /// Address of the ring.
    pub addr: u64,
    /// Vector that is signalled. `[srdma]`
    pub vector: MsixVector,
}

impl CreateCeq {
    pub(super) fn encode(&self) -> Words {
        let [_, vector, entries, _, addr, ..] = event_words(self.vector, self.entries, self.addr);
        [
            0,
            vector,
            entries,
            CeqHeader::ZERO.with_id(self.id).bits(),
            addr,
            0,
            0,
            0,
        ]
    }

    pub(super) fn decode(&[_, vector, entries, header, addr, ..]: &Words) -> Self {
        Self {
            id: CeqHeader::from_bits(header).id(),
            entries: EventSize::from_bits(entries).entries(),
            addr,
            vector: EventVector::from_bits(vector).vector(),
        }
    }
}

/// CREATE_AEQ.                                                        [E810 7.2]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateAeq {
    /// Entries of 16 bytes.
    pub entries: u32,
    /// Address of the ring.
    pub addr: u64,
    /// Vector that is signalled. `[srdma]`
    pub vector: MsixVector,
}

impl CreateAeq {
    pub(super) fn encode(&self) -> Words {
        event_words(self.vector, self.entries, self.addr)
    }

    pub(super) fn decode(&[_, vector, entries, _, addr, ..]: &Words) -> Self {
        Self {
            entries: EventSize::from_bits(entries).entries(),
            addr,
            vector: EventVector::from_bits(vector).vector(),
        }
    }
}

fn event_words(vector: MsixVector, entries: u32, addr: u64) -> Words {
    let vector = EventVector::ZERO.with_vector(vector).bits();
    let entries = EventSize::ZERO.with_entries(entries).bits();
    [0, vector, entries, 0, addr, 0, 0, 0]
}

/// FLUSH_WQES.                                                        [E810 6.4]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushWqes {
    /// The QP.
    pub qpn: Qpn,
    /// Flush the SQ, with this code.
    pub sq: Option<FlushCode>,
    /// Flush the RQ, with this code.
    pub rq: Option<FlushCode>,
    /// The codes count; else the device uses its own.
    pub user_codes: bool,
    /// Raise this event.
    pub ae: Option<(AeCode, AeSource)>,
}

impl FlushWqes {
    pub(super) fn encode(&self) -> Words {
        let header = FlushHeader::ZERO
            .with_qpn(self.qpn)
            .with_generate_ae(self.ae.is_some())
            .with_user_codes(self.user_codes)
            .with_sq(self.sq.is_some())
            .with_rq(self.rq.is_some());
        let (code, source) = self.ae.unwrap_or((AeCode::NONE, AeSource::NONE));
        let major = |code: Option<FlushCode>| code.map_or(Major::NONE, |_| Major::FLUSH);
        let codes = FlushCodes::ZERO
            .with_rq_minor(self.rq.unwrap_or(FlushCode::INVALID))
            .with_rq_major(major(self.rq))
            .with_sq_minor(self.sq.unwrap_or(FlushCode::INVALID))
            .with_sq_major(major(self.sq));
        let ae = FlushAe::ZERO.with_code(code).with_source(source);
        [0, ae.bits(), codes.bits(), header.bits(), 0, 0, 0, 0]
    }

    pub(super) fn decode(&[_, ae, codes, header, ..]: &Words) -> Self {
        let (ae, codes) = (FlushAe::from_bits(ae), FlushCodes::from_bits(codes));
        let header = FlushHeader::from_bits(header);
        Self {
            qpn: header.qpn(),
            sq: header.sq().then(|| codes.sq_minor()),
            rq: header.rq().then(|| codes.rq_minor()),
            user_codes: header.user_codes(),
            ae: header.generate_ae().then(|| (ae.code(), ae.source())),
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
