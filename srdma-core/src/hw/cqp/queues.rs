//! Commands about queues: QPs, CQs, SRQs, event queues, flush.         [E810 6.4, 7.2]
//!
//! `encode` leaves opcode and valid bit to its caller; `decode` takes any bits. The table of
//! words is in `docs/rings.md`, section 7.

use super::Words;
use super::words::*;
use crate::hw::{AeCode, AeSource, FlushCode, HwQpState, HwQpType, Major};
use crate::num::{CeqId, CqId, MsixVector, PdId, Qpn, SrqId, XrcdId};
use crate::qp::attr::AttrMask;

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
    /// Every completion says when it was written. `[srdma]`
    pub timestamps: bool,
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
            .with_wide(self.wide)
            .with_timestamps(self.timestamps);
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
            timestamps: header.timestamps(),
        }
    }
}

/// What makes a shared receive queue one of XRC. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcHome {
    /// The XRC domain: targets of it may use the queue.
    pub xrcd: XrcdId,
    /// CQ of every receive of the queue.
    pub cq: CqId,
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
    /// Domain and CQ of an XRC queue; `None` for a basic one, whose CQs are its users'.
    pub xrc: Option<XrcHome>,
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
            .with_xrc(self.xrc.is_some())
            .bits();
        let xrc = self.xrc.map_or(SrqXrc::ZERO, |home| {
            SrqXrc::ZERO.with_xrcd(home.xrcd).with_cq(home.cq)
        });
        [
            size,
            self.context,
            domain,
            header,
            self.addr,
            self.shadow_addr,
            xrc.bits(),
            0,
        ]
    }

    pub(super) fn decode(words: &Words) -> Self {
        let &[size, context, domain, header, addr, shadow_addr, xrc, _] = words;
        let (header, xrc) = (SrqHeader::from_bits(header), SrqXrc::from_bits(xrc));
        let (size, domain) = (SrqSize::from_bits(size), SrqDomain::from_bits(domain));
        Self {
            id: header.id(),
            pd: domain.pd(),
            context,
            wqes: size.wqes(),
            shift: domain.shift(),
            addr,
            shadow_addr,
            limit: size.limit(),
            xrc: header.xrc().then(|| XrcHome {
                xrcd: xrc.xrcd(),
                cq: xrc.cq(),
            }),
        }
    }
}

/// MODIFY_SRQ: arms the limit event, or moves to another ring. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModifySrq {
    /// The SRQ.
    pub id: SrqId,
    /// Tell once when fewer entries are left; 0 for never.
    pub limit: u32,
    /// Where the queue goes on, with the limit as it was.
    pub ring: Option<SrqRing>,
}

/// A zeroed ring and shadow area that a shared receive queue moves to. `[srdma]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqRing {
    /// Entries: a power of two, not 0.
    pub wqes: u32,
    /// Address of the ring.
    pub addr: u64,
    /// Address of the shadow area (64 bytes).
    pub shadow_addr: u64,
}

impl ModifySrq {
    pub(super) fn encode(&self) -> Words {
        let header = SrqHeader::ZERO
            .with_id(self.id)
            .with_arm_limit(self.limit != 0)
            .bits();
        let (wqes, addr, shadow_addr) = self
            .ring
            .map_or((0, 0, 0), |ring| (ring.wqes, ring.addr, ring.shadow_addr));
        let size = SrqSize::ZERO.with_wqes(wqes).with_limit(self.limit);
        [size.bits(), 0, 0, header, addr, shadow_addr, 0, 0]
    }

    pub(super) fn decode(&[size, _, _, header, addr, shadow_addr, _, _]: &Words) -> Self {
        let size = SrqSize::from_bits(size);
        let wqes = size.wqes();
        Self {
            id: SrqHeader::from_bits(header).id(),
            limit: size.limit(),
            ring: (wqes != 0).then_some(SrqRing {
                wqes,
                addr,
                shadow_addr,
            }),
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
