//! Completions: positions, and encode → decode.

use super::*;
use proptest::prelude::*;

#[test]
fn fields_stand_where_the_table_says() {
    let info = CqeInfo {
        sq: true,
        op: 0x3f,
        qpn: Qpn::new(0xab_cdef),
        context: 0x1122_3344_5566_7788,
        wqe_index: 0x7fff,
        len: 0x0102_0304,
        psn: Psn::new(0x0a_0b0c),
        peer: 0xdead_beef,
        stag_or_ipv4: true,
        solicited: true,
        error: Some((Major::FLUSH, FlushCode::RETRY_EXC.0)),
        ..CqeInfo::default()
    };
    let words = [
        0x000a_0b0c_0102_0304,
        0x1122_3344_5566_7788,
        0x00ab_cdef_dead_beef,
        0x7fe0_7fff_0001_0008,
    ];
    assert_eq!(info.encode(), words);
    assert_eq!(info.flush_code(), Some(FlushCode::RETRY_EXC));
}

#[test]
fn the_extension_has_mac_bytes_from_the_top() {
    let info = CqeInfo {
        imm: Some(0x0102_0304),
        mac: Some([0x10, 0x20, 0x30, 0x40, 0x50, 0x60]),
        vlan: Some(0x0fff),
        ..CqeInfo::default()
    };
    let words = [0x0102_0304, 0, 0x0fff_1020_3040_5060, 0x7000_0000_0000_0000];
    assert_eq!(info.encode_ext(), words);
    assert_eq!(info.encode()[3], 1 << 50);
}

#[test]
fn an_srq_receive_swaps_the_contexts() {
    let info = CqeInfo {
        context: 0xc0,
        srq_wr_id: Some(0x1d),
        ..CqeInfo::default()
    };
    assert_eq!((info.encode()[1], info.encode_ext()[1]), (0x1d, 0xc0));
    assert_eq!(info.encode()[3], 1 << 50 | 1 << 52);
}

#[test]
fn write_with_immediate_is_told_by_the_packets_opcode() {
    for bth in [0x09, 0x0b, 0x29, 0x2b] {
        assert!(rq_op_is_write_imm(rq_op(bth)), "{bth:#x}");
    }
    for bth in [0x02, 0x03, 0x04, 0x05, 0x16, 0x17, 0x22, 0x25, 0x64, 0x65] {
        assert!(!rq_op_is_write_imm(rq_op(bth)), "{bth:#x}");
    }
    assert_eq!((rq_op(0x64), rq_op(0x65)), (0x24, 0x25));
}

fn any_info() -> impl Strategy<Value = CqeInfo> {
    let base = (
        any::<bool>(),
        0_u8..64,
        0_u32..1 << 24,
        any::<u64>(),
        0_u16..0x8000,
    );
    let numbers = (
        any::<u32>(),
        0_u32..1 << 24,
        any::<u32>(),
        any::<[bool; 2]>(),
    );
    let error = any::<Option<(u16, u16)>>();
    let link = any::<(Option<[u8; 6]>, Option<u16>)>();
    let ext = (any::<(Option<u64>, Option<u32>, Option<u64>)>(), link);
    (base, numbers, error, ext).prop_map(|(base, numbers, error, ext)| {
        let (sq, op, qpn, context, wqe_index) = base;
        let (len, psn, peer, [stag_or_ipv4, solicited]) = numbers;
        let ((srq_wr_id, imm, timestamp), link) = ext;
        // A timestamp stands where they would.
        let (mac, vlan) = if timestamp.is_some() {
            (None, None)
        } else {
            link
        };
        CqeInfo {
            sq,
            op,
            qpn: Qpn::new(qpn),
            context,
            wqe_index,
            len,
            psn: Psn::new(psn),
            peer,
            stag_or_ipv4,
            solicited,
            error: error.map(|(major, minor)| (Major(major), minor)),
            srq_wr_id,
            srqn: 0,
            imm,
            mac,
            vlan,
            timestamp,
        }
    })
}

proptest! {
    #[test]
    fn completions_decode_back(info in any_info()) {
        let ext = info.extended().then(|| info.encode_ext());
        let base = info.encode();
        prop_assert_eq!(base[3] >> 63, 0);
        prop_assert_eq!(CqeHeader::from_bits(base[3]).extended(), ext.is_some());
        prop_assert_eq!(CqeInfo::decode(&base, ext.as_ref()), info);
    }
}
