//! The QP context: encode → decode, and the positions that are given.

use super::*;
use proptest::prelude::*;

fn any_context() -> impl Strategy<Value = QpContext> {
    let ips = prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[a, b]| (IpAddr::from(a), IpAddr::from(b))),
        any::<[[u8; 16]; 2]>().prop_map(|[a, b]| (a.into(), b.into()))
    ];
    let rings = (any::<u64>(), 2_u32..16, any::<u64>(), 2_u32..16, 0_u8..4);
    let ids = (
        0_u32..1 << 25,
        0_u32..1 << 25,
        0_u32..1 << 18,
        prop::option::of(0_u32..1 << 24),
    );
    let keys = any::<(u64, u32, u16, u32, u32, u32)>();
    let path = (
        any::<u8>(),
        any::<u16>(),
        any::<u16>(),
        any::<u16>(),
        0_u32..1 << 20,
    );
    let timers = (0_u8..32, 0_u8..8, 0_u8..8, 0_u8..32, any::<[u8; 4]>());
    let head = (0_u8..8, 0_u32..0x400);
    (ips, rings, ids, keys, path, timers, head).prop_map(
        |(ips, rings, ids, keys, path, timers, head)| {
            let [ord, ird, traffic_class, hop_limit] = timers.4;
            QpContext {
                qp_type: HwQpType(head.0),
                sq_addr: rings.0,
                sq_quanta: 1 << rings.1,
                rq_addr: rings.2,
                rq_wqes: if rings.2 == 0 { 0 } else { 1 << rings.3 },
                rq_shift: rings.4,
                send_cq: CqId(ids.0),
                recv_cq: CqId(ids.1),
                pd: PdId(ids.2),
                srq: ids.3.map(SrqId),
                xrcd: ids.3.map(|id| XrcdId(!id & 0xff_ffff)),
                completion_context: keys.0,
                dest_qpn: Qpn::new(keys.1),
                dest_ip: ips.0,
                local_ip: ips.1,
                gid_index: path.0,
                udp_src_port: path.1,
                path_mtu: path.2,
                peer_rx: u32::from(path.2) << 9,
                pkey_index: path.3,
                pkey: Pkey(keys.2),
                qkey: Qkey(keys.3),
                sq_psn: Psn::new(keys.4),
                rq_psn: Psn::new(keys.5),
                timeout: timers.0,
                retry_cnt: timers.1,
                rnr_retry: timers.2,
                min_rnr_timer: timers.3,
                max_rd_atomic: ord,
                max_dest_rd_atomic: ird,
                access: Access::from_hw(head.1),
                traffic_class,
                hop_limit,
                flow_label: path.4,
            }
        },
    )
}

proptest! {
    #[test]
    fn contexts_decode_back(context in any_context()) {
        prop_assert_eq!(QpContext::decode(&context.encode()), context);
    }
}

#[test]
fn given_positions_hold() {
    let context = QpContext {
        dest_ip: "192.168.1.2".parse().unwrap(),
        local_ip: "192.168.1.1".parse().unwrap(),
        qkey: Qkey(0x1111_1111),
        dest_qpn: Qpn::new(0x22_3344),
        sq_psn: Psn::new(0x55_6677),
        send_cq: CqId(5),
        recv_cq: CqId(6),
        retry_cnt: 7,
        rnr_retry: 6,
        timeout: 14,
        ..QpContext::default()
    };
    let words = context.encode();
    assert_eq!((words[4], words[5]), (0, 0xc0a8_0102));
    assert_eq!((words[23], words[24]), (0, 0xc0a8_0101));
    assert_eq!(words[8], 0x1111_1111_0022_3344);
    assert_eq!(words[10], 0x55_6677);
    assert_eq!(words[16], 14 << 57 | 6 << 54 | 7 << 48);
    assert_eq!(words[17], 6 << 32 | 5);
}

#[test]
fn ird_classes_are_the_smallest_that_fit() {
    for (ird, class) in [
        (0, 0),
        (2, 0),
        (3, 1),
        (8, 1),
        (9, 2),
        (32, 2),
        (33, 3),
        (64, 3),
    ] {
        assert_eq!(ird_class(ird), class, "{ird}");
    }
    assert_eq!((ird_class(65), ird_class(128), ird_class(255)), (4, 4, 4));
}
