//! Control commands: every one decodes to what was encoded.

use super::*;
use crate::hw::{AeCode, AeSource, FlushCode, HwQpState, HwQpType, Major};
use crate::mem::{Access, PblIndex};
use crate::num::{MsixVector, PdId, XrcdId};
use crate::obj::ah::AddressVector;
use crate::qp::attr::AttrMask;
use proptest::prelude::*;
use std::net::IpAddr;

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn ips() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (a.into(), b.into())),
        any::<[[u8; 16]; 2]>().prop_map(|[a, b]| (a.into(), b.into()))
    ]
}

fn access() -> impl Strategy<Value = Access> {
    (0_u32..0x400).prop_map(Access::from_hw)
}

fn kind() -> impl Strategy<Value = StagKind> {
    prop::sample::select(vec![StagKind::Mr, StagKind::Mw1, StagKind::Mw2])
}

fn pd() -> impl Strategy<Value = PdId> {
    (0_u32..1 << 18).prop_map(PdId)
}

fn qpn() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::new)
}

fn qp_cmd() -> impl Strategy<Value = QpCmd> {
    let numbers = (0_u8..8, 0_u8..8, any::<u32>(), any::<u64>(), any::<u64>());
    (qpn(), numbers).prop_map(
        |(qpn, (qp_type, state, mask, ctx_addr, shadow_addr))| QpCmd {
            qpn,
            qp_type: HwQpType(qp_type),
            next_state: HwQpState(state),
            mask: AttrMask(mask),
            ctx_addr,
            shadow_addr,
        },
    )
}

fn cq_cmd() -> impl Strategy<Value = CqCmd> {
    let ids = (0_u32..1 << 19, prop::option::of(0_u16..1024), any::<u64>());
    let sizes = (0_u32..1 << 21, 0_u32..1 << 18, any::<u64>(), any::<u64>());
    (ids, sizes, any::<[bool; 3]>()).prop_map(|(ids, sizes, [check_overflow, wide, timestamps])| {
        CqCmd {
            timestamps,
            id: CqId(ids.0),
            ceq: ids.1.map(CeqId),
            cookie: ids.2 & !1,
            size: sizes.0,
            threshold: sizes.1,
            addr: sizes.2,
            shadow_addr: sizes.3,
            check_overflow,
            wide,
        }
    })
}

fn srq_cmd() -> impl Strategy<Value = SrqCmd> {
    let sizes = (any::<u32>(), 0_u8..4, any::<u32>());
    let xrc = proptest::option::of((0_u32..1 << 24, 0_u32..1 << 19));
    (0_u32..1 << 24, pd(), any::<[u64; 3]>(), sizes, xrc).prop_map(
        |(id, pd, [context, addr, shadow_addr], (wqes, shift, limit), xrc)| SrqCmd {
            id: SrqId(id),
            pd,
            context,
            wqes,
            shift,
            addr,
            shadow_addr,
            limit,
            xrc: xrc.map(|(xrcd, cq)| XrcHome {
                xrcd: XrcdId(xrcd),
                cq: CqId(cq),
            }),
        },
    )
}

fn stag_cmd() -> impl Strategy<Value = CqpCmd> {
    let reg = (
        any::<u32>(),
        pd(),
        any::<u64>(),
        0_u64..1 << 46,
        access(),
        any::<u32>(),
    );
    prop_oneof![
        (any::<u32>(), pd(), kind()).prop_map(|(stag, pd, kind)| CqpCmd::AllocStag(AllocStag {
            stag,
            pd,
            kind
        })),
        (any::<u32>(), pd(), kind())
            .prop_map(|(stag, pd, kind)| CqpCmd::DeallocStag(DeallocStag { stag, pd, kind })),
        reg.prop_map(|(stag, pd, va, len, access, pbl)| CqpCmd::RegMr(RegMr {
            stag,
            pd,
            va,
            len,
            access,
            pbl: PblIndex(pbl),
        })),
    ]
}

fn event_cmd() -> impl Strategy<Value = CqpCmd> {
    let numbers = (0_u32..1 << 19, any::<u64>(), 0_u16..2048);
    prop_oneof![
        (0_u16..1024, numbers.clone()).prop_map(|(id, (entries, addr, vector))| {
            CqpCmd::CreateCeq(CreateCeq {
                id: CeqId(id),
                entries,
                addr,
                vector: MsixVector(vector),
            })
        }),
        (0_u16..1024).prop_map(|id| CqpCmd::DestroyCeq(CeqId(id))),
        numbers.prop_map(|(entries, addr, vector)| CqpCmd::CreateAeq(CreateAeq {
            entries,
            addr,
            vector: MsixVector(vector),
        })),
        Just(CqpCmd::DestroyAeq),
    ]
}

fn ah_cmd() -> impl Strategy<Value = CqpCmd> {
    let numbers = (0_u32..1 << 17, any::<[u8; 2]>(), 0_u32..1 << 20);
    (numbers, pd(), ips()).prop_map(|((id, [hop_limit, tclass], flow_label), pd, ips)| {
        let (target, local) = ips;
        CqpCmd::CreateAh(CreateAh {
            id: AhId(id),
            pd,
            av: AddressVector {
                target,
                local,
                hop_limit,
                tclass,
                flow_label,
            },
        })
    })
}

fn flush_cmd() -> impl Strategy<Value = CqpCmd> {
    let codes = any::<(Option<u16>, Option<u16>, bool)>();
    let ae = prop::option::of((any::<u16>(), 0_u8..16));
    (qpn(), codes, ae).prop_map(|(qpn, (sq, rq, user_codes), ae)| {
        CqpCmd::FlushWqes(FlushWqes {
            qpn,
            sq: sq.map(FlushCode),
            rq: rq.map(FlushCode),
            user_codes,
            ae: ae.map(|(code, source)| (AeCode(code), AeSource(source))),
        })
    })
}

fn any_cmd() -> impl Strategy<Value = CqpCmd> {
    let mcast = || (qpn(), ip()).prop_map(|(qpn, group)| McastCmd { qpn, group });
    let srq = (0_u32..1 << 24).prop_map(SrqId);
    prop_oneof![
        qp_cmd().prop_map(CqpCmd::CreateQp),
        qp_cmd().prop_map(CqpCmd::ModifyQp),
        qpn().prop_map(CqpCmd::DestroyQp),
        qpn().prop_map(CqpCmd::SuspendQp),
        qpn().prop_map(CqpCmd::ResumeQp),
        cq_cmd().prop_map(CqpCmd::CreateCq),
        cq_cmd().prop_map(CqpCmd::ModifyCq),
        (0_u32..1 << 19).prop_map(|id| CqpCmd::DestroyCq(CqId(id))),
        srq_cmd().prop_map(CqpCmd::CreateSrq),
        (srq.clone(), any::<u32>()).prop_map(|(id, limit)| {
            let ring = (limit % 3 == 0).then_some(SrqRing {
                wqes: 8 << (limit % 5),
                addr: u64::from(limit) << 6,
                shadow_addr: 64,
            });
            CqpCmd::ModifySrq(ModifySrq { id, limit, ring })
        }),
        srq.prop_map(CqpCmd::DestroySrq),
        stag_cmd(),
        event_cmd(),
        ah_cmd(),
        (0_u32..1 << 17).prop_map(|id| CqpCmd::DestroyAh(AhId(id))),
        flush_cmd(),
        mcast().prop_map(CqpCmd::McastCreate),
        mcast().prop_map(CqpCmd::McastDestroy),
        any::<(u64, u32)>().prop_map(|(addr, len)| CqpCmd::QueryFeatures { addr, len }),
        Just(CqpCmd::Nop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn commands_decode_back(cmd in any_cmd()) {
        let words = cmd.encode();
        prop_assert_eq!(words[CQP_HEADER] >> 63, 0);
        prop_assert_eq!(CqpHeader::from_bits(words[CQP_HEADER]).op(), cmd.op());
        prop_assert_eq!(CqpCmd::decode(&words), Ok(cmd));
    }

    #[test]
    fn any_words_give_a_command_or_a_fault(words: [u64; 8], op in 0_u8..64) {
        let mut words = words;
        words[3] = CqpHeader::from_bits(words[3]).with_op(CqpOp(op)).bits();
        if let Ok(cmd) = CqpCmd::decode(&words) {
            prop_assert_eq!(cmd.op(), CqpOp(op));
        }
    }
}

#[test]
fn fields_stand_where_the_data_sheet_has_them() {
    let cmd = CqpCmd::CreateQp(QpCmd {
        qpn: Qpn::new(0x12_3456),
        qp_type: HwQpType::RC,
        next_state: HwQpState::IDLE,
        mask: AttrMask::NONE,
        ctx_addr: 0x1000,
        shadow_addr: 0x2000,
    });
    let header = 1 << 60 | 3 << 48 | 1 << 47 | 0x12_3456;
    assert_eq!(cmd.encode(), [0, 0, 0x1000, header, 0, 0x2000, 0, 0]);

    let cmd = CqpCmd::RegMr(RegMr {
        stag: 0x0012_3407,
        pd: PdId(0x2_0003),
        va: 0x7000,
        len: 0x3000,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        pbl: PblIndex(9),
    });
    let header = 1 << 59 | 1 << 53 | 0b01011 << 48 | 1 << 43 | 0x0a << 32;
    let range = 0x2_0003 << 46 | 0x3000;
    assert_eq!(
        cmd.encode(),
        [0x7000, range, 0x0012_3407, header, 0, 0, 9, 0]
    );

    let cmd = CqpCmd::FlushWqes(FlushWqes {
        qpn: Qpn::new(5),
        sq: Some(FlushCode::PROT),
        rq: Some(FlushCode::GENERAL),
        user_codes: true,
        ae: None,
    });
    let header = 7 << 60 | 0x22 << 32 | 5;
    assert_eq!(
        cmd.encode(),
        [0, 0, 0x0001_0002_0001_0001, header, 0, 0, 0, 0]
    );
}

#[test]
fn unserved_opcodes_are_named() {
    let words = [0, 0, 0, 0x1f << 32, 0, 0, 0, 0];
    assert_eq!(
        CqpCmd::decode(&words),
        Err(CqpFault::NotServed(CqpOp::UPDATE_PE_SDS))
    );
}

#[test]
fn completions_decode_back() {
    let done = CqpCompletion {
        context: 0x1234,
        wqe_index: 0x7ff,
        major: Major::CQP_ERROR,
        minor: CqpMinor::INVALID_STATE,
        value: 7,
        detail: 8,
    };
    let words = done.encode();
    assert_eq!(words[3], 1 << 62 | 1 << 55 | 0x7ff << 32 | 0xffff_8002);
    assert_eq!(CqpCompletion::decode(&words), done);
}
