//! WQEs: golden words of Intel's provider, and build → parse for everything.

use super::*;
use crate::hw::Polarity;
use crate::mem::{Access, Bind, Sge};
use crate::num::Lkey;
use proptest::prelude::*;

const ADDR: u64 = 0x7f00_1122_3344_5000;

fn sge(addr: u64, len: u32, lkey: u32) -> Sge {
    Sge {
        addr,
        len,
        lkey: Lkey(lkey),
    }
}

/// The words as they stand in a ring.
fn placed(buf: &WqeBuf, polarity: Polarity) -> Vec<u64> {
    (0..buf.words().len())
        .map(|word| buf.word(word, polarity))
        .collect()
}

fn parsed(buf: &WqeBuf, polarity: Polarity) -> SqCmd {
    let mut cmd = SqCmd::new();
    cmd.parse(&placed(buf, polarity)).unwrap();
    assert_eq!(u32::from(cmd.quanta), buf.quanta());
    cmd
}

fn ud(ah: u32, qkey: u32, dest: u32) -> UdTarget {
    UdTarget {
        ah: AhId(ah),
        qkey: Qkey(qkey),
        dest: Qpn::new(dest),
    }
}

#[test]
fn golden_send_of_one_fragment() {
    let mut buf = WqeBuf::new();
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        ..SendWr::default()
    };
    buf.send(&wr, &[sge(ADDR, 0x100, 0xaabb_cc01)]).unwrap();
    let words = [ADDR, 0x8000_0100_aabb_cc01, 0, 0xc000_0003_0000_0000];
    assert_eq!(placed(&buf, Polarity::ONE), words);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!((cmd.op, cmd.signaled, cmd.imm), (SqOp::SEND, true, None));
    assert_eq!(cmd.sges.as_slice(), [sge(ADDR, 0x100, 0xaabb_cc01)]);
}

#[test]
fn golden_solicited_send_with_immediate() {
    let mut buf = WqeBuf::new();
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        solicited: true,
        imm: Some(0xcafe_f00d),
        ..SendWr::default()
    };
    buf.send(&wr, &[sge(ADDR, 0x100, 0xaabb_cc01)]).unwrap();
    let mut words = placed(&buf, Polarity::ONE);
    let golden = [
        0xcafe_f00d,
        0,
        0,
        0xc000_8085_0000_0000,
        ADDR,
        0x8000_0100_aabb_cc01,
        0,
        0x8000_0000_0000_0000,
    ];
    assert_eq!(words, golden);
    // Intel's driver does not write +8 here: clear-ahead may have left all ones.
    words[1] = u64::MAX;
    let mut cmd = SqCmd::new();
    cmd.parse(&words).unwrap();
    assert_eq!(cmd.sges.as_slice(), [sge(ADDR, 0x100, 0xaabb_cc01)]);
    assert_eq!((cmd.imm, cmd.solicited), (Some(0xcafe_f00d), true));
}

#[test]
fn golden_write_of_two_fragments() {
    let mut buf = WqeBuf::new();
    let sges = [sge(ADDR, 16, 1), sge(ADDR + 64, 32, 2)];
    let remote = RemoteAddr {
        addr: 0x1234_5678_9abc,
        rkey: Rkey(0x7766_5544),
    };
    let wr = WriteWr {
        flags: WrFlags::SIGNALED,
        remote,
        ..WriteWr::default()
    };
    buf.write(&wr, &sges).unwrap();
    let words = placed(&buf, Polarity::ONE);
    assert_eq!(words[2], 0x1234_5678_9abc);
    assert_eq!(words[3], 0xc000_0080_7766_5544);
    assert_eq!(words[4..6], [ADDR + 64, 0x8000_0020_0000_0002]);
    assert_eq!(words[6..8], [0, 0x8000_0000_0000_0000]);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!(cmd.sges.as_slice(), sges);
    assert_eq!((cmd.remote_addr, cmd.rkey), (remote.addr, remote.rkey));
}

#[test]
fn golden_fenced_read_and_local_invalidate() {
    let mut buf = WqeBuf::new();
    let flags = WrFlags {
        signaled: true,
        read_fence: true,
        local_fence: false,
    };
    let remote = RemoteAddr {
        addr: 8,
        rkey: Rkey(0x20),
    };
    let wr = ReadWr {
        flags,
        remote,
        local_inv: false,
    };
    buf.read(&wr, &[sge(ADDR, 8, 1)]).unwrap();
    assert_eq!(buf.word(3, Polarity::ONE), 0xd000_0001_0000_0020);
    assert!(parsed(&buf, Polarity::ONE).read_fence);

    let flags = WrFlags {
        signaled: true,
        read_fence: false,
        local_fence: true,
    };
    buf.local_invalidate(flags, 0x00ab_cd12);
    let words = [0, 0x00ab_cd12, 0, 0xe000_000a_0000_0000];
    assert_eq!(placed(&buf, Polarity::ONE), words);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!((cmd.local_stag, cmd.local_fence), (0x00ab_cd12, true));
}

#[test]
fn golden_send_with_invalidate() {
    let mut buf = WqeBuf::new();
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        inv: Some(Rkey(0x0bad_beef)),
        ..SendWr::default()
    };
    buf.send(&wr, &[sge(ADDR, 1, 1), sge(ADDR, 2, 2)]).unwrap();
    assert_eq!(buf.word(3, Polarity::ONE), 0xc000_0084_0bad_beef);
    assert_eq!(parsed(&buf, Polarity::ONE).inv_key, Some(Rkey(0x0bad_beef)));
    buf.nop(WrFlags::default());
    assert_eq!(buf.word(3, Polarity::ONE), 0x8000_000c_0000_0000);
}

#[test]
fn golden_inline_datagram_of_40_bytes() {
    let mut buf = WqeBuf::new();
    let target = ud(0x1_f00f, 0x1111_1111, 0xab_cdef);
    let wr = SendWr {
        flags: WrFlags::SIGNALED,
        ud: Some(target),
        ..SendWr::default()
    };
    let bytes: Vec<u8> = (1..=40).collect();
    buf.send_inline(&wr, &bytes).unwrap();
    let words = placed(&buf, Polarity::ONE);
    assert_eq!(words.len(), 12);
    assert_eq!(words[2], 0x00ab_cdef_1111_1111);
    assert_eq!(words[3], 0xc228_0003_0001_f00f);
    assert_eq!(words[1].to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(words[7].to_le_bytes(), [33, 34, 35, 36, 37, 38, 39, 0x80]);
    assert_eq!(words[8..12], [40, 0, 0, 0x8000_0000_0000_0000]);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!((cmd.inline_data(), cmd.ud), (Some(&bytes[..]), target));
}

#[test]
fn golden_inline_write_with_immediate() {
    let mut buf = WqeBuf::new();
    let wr = WriteWr {
        flags: WrFlags::SIGNALED,
        imm: Some(0x0102_0304),
        remote: RemoteAddr {
            addr: ADDR,
            rkey: Rkey(0x5678),
        },
        ..WriteWr::default()
    };
    buf.write_inline(&wr, b"abcdefgh").unwrap();
    let data = u64::from_le_bytes(*b"abcdefgh");
    let words = [0x0102_0304, data, ADDR, 0xc208_8000_0000_5678];
    assert_eq!(placed(&buf, Polarity::ONE), words);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!(cmd.imm, Some(0x0102_0304));
    assert_eq!(cmd.inline_data(), Some(&b"abcdefgh"[..]));
}

#[test]
fn golden_receive_of_two_fragments() {
    let mut buf = WqeBuf::new();
    buf.recv(&[sge(ADDR, 1, 1), sge(ADDR, 2, 2)], None).unwrap();
    let words = placed(&buf, Polarity::ONE);
    assert_eq!((words[2], words[3]), (0, 0x8000_0080_0000_0000));
    assert_eq!(words[7], 0x8000_0000_0000_0000);
}

#[test]
fn quanta_follow_the_tables() {
    let frags = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8];
    for (count, quanta) in (0_u32..).zip(frags) {
        assert_eq!(sq_quanta(count), quanta);
    }
    for (len, quanta) in [
        (0, 1),
        (8, 1),
        (9, 2),
        (39, 2),
        (40, 3),
        (70, 3),
        (71, 4),
        (101, 4),
        (102, 5),
        (132, 5),
        (133, 6),
        (163, 6),
        (164, 7),
        (194, 7),
        (195, 8),
        (255, 8),
    ] {
        assert_eq!(inline_quanta(len), quanta, "{len} bytes");
    }
}

#[test]
fn zero_fragments_are_one_null_fragment() {
    let mut buf = WqeBuf::new();
    buf.send(&SendWr::default(), &[]).unwrap();
    let words = [0, 1 << 63, 0, 0x8000_0003_0000_0000];
    assert_eq!(placed(&buf, Polarity::ONE), words);
    let cmd = parsed(&buf, Polarity::ONE);
    assert_eq!((cmd.sges.len(), cmd.payload_len()), (0, 0));
}

#[test]
fn too_much_is_refused_when_building() {
    let mut buf = WqeBuf::new();
    let wr = SendWr::default();
    let many = [sge(1, 1, 1); 14];
    assert_eq!(buf.send(&wr, &many), Err(WqeError::TooManySges));
    assert_eq!(
        buf.send_inline(&wr, &[0; 102]),
        Err(WqeError::InlineTooLong)
    );
    assert_eq!(
        buf.send(&wr, &[sge(1, 1 << 31, 1)]),
        Err(WqeError::SgeTooLong)
    );
}

#[test]
fn faults_keep_the_header() {
    let mut cmd = SqCmd::new();
    let header = SqHeader::ZERO.with_op(SqOp(0x2a)).with_signaled(true);
    assert_eq!(
        cmd.parse(&[0, 0, 0, header.bits()]),
        Err(WqeFault::BadOpcode(SqOp(0x2a)))
    );
    assert!(cmd.signaled && cmd.op == SqOp(0x2a));

    let mut buf = WqeBuf::new();
    buf.send(&SendWr::default(), &[sge(1, 1, 1); 5]).unwrap();
    let mut words = placed(&buf, Polarity::ONE);
    assert_eq!(cmd.parse(&words[..8]), Err(WqeFault::Truncated));
    words[11] ^= 1 << 63;
    assert_eq!(cmd.parse(&words), Err(WqeFault::QuantumNotValid));
    assert_eq!(cmd.quanta, 3);

    let inline = SqHeader::ZERO.with_op(SqOp::SEND).with_inline(true);
    let words = [0, 0, 0, inline.with_inline_len(102).bits()];
    let words: Vec<u64> = words.into_iter().chain([0; 16]).collect();
    assert_eq!(cmd.parse(&words), Err(WqeFault::BadInline));

    let full = SqHeader::ZERO.with_op(SqOp::SEND).with_more_frags(15);
    let mut words = [7; 32];
    words[3] = full.bits();
    assert_eq!(cmd.parse(&words), Err(WqeFault::TooManyFragments));
}

#[test]
fn a_window_bind_keeps_its_words() {
    let mut buf = WqeBuf::new();
    let bind = Bind {
        window: 0x1122_3344,
        parent: 0x5566_7788,
        va: ADDR,
        len: 4096,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        zero_based: false,
        type1: true,
    };
    buf.bind_mw(WrFlags::SIGNALED, &bind);
    let header = 1 << 62 | 1 << 54 | 1 << 53 | 0b01100 << 48 | 0x08 << 32;
    let words = [ADDR, 0x5566_7788_1122_3344, 4096, header];
    assert_eq!(placed(&buf, Polarity::ZERO), words);
    assert_eq!(parsed(&buf, Polarity::ZERO).bind, bind);
}

#[test]
fn atomics_keep_their_words() {
    let mut buf = WqeBuf::new();
    let remote = RemoteAddr {
        addr: 0x88,
        rkey: Rkey(9),
    };
    buf.compare_swap(WrFlags::SIGNALED, (ADDR, Lkey(7)), remote, 5, 6);
    let header = 0xc000_0000_0000_0009 | 1 << 38 | 0x11 << 32;
    let words = [ADDR, 7, 0x88, header, 6, 5, 0, 1 << 63];
    assert_eq!(placed(&buf, Polarity::ONE), words);
    let cmd = parsed(&buf, Polarity::ONE);
    let operands = AtomicOperands {
        swap_or_add: 6,
        compare: 5,
    };
    assert_eq!((cmd.atomic, cmd.rkey), (operands, Rkey(9)));
    assert_eq!(cmd.sges.as_slice(), [sge(ADDR, 8, 7)]);

    buf.fetch_add(WrFlags::default(), (ADDR, Lkey(7)), remote, u64::MAX);
    assert_eq!(parsed(&buf, Polarity::ONE).atomic.swap_or_add, u64::MAX);
    buf.atomic_write(WrFlags::default(), remote, *b"01234567");
    let cmd = parsed(&buf, Polarity::ZERO);
    assert_eq!(cmd.op, SqOp::ATOMIC_WRITE);
    assert_eq!(cmd.inline_data(), Some(&b"01234567"[..]));
}

fn any_sge() -> impl Strategy<Value = Sge> {
    (any::<u64>(), 0_u32..1 << 31, 1_u32..).prop_map(|(addr, len, lkey)| sge(addr, len, lkey))
}

fn any_flags() -> impl Strategy<Value = WrFlags> {
    any::<[bool; 3]>().prop_map(|[signaled, read_fence, local_fence]| WrFlags {
        signaled,
        read_fence,
        local_fence,
    })
}

fn any_polarity() -> impl Strategy<Value = Polarity> {
    any::<bool>().prop_map(|one| if one { Polarity::ONE } else { Polarity::ZERO })
}

/// Every quantum's last word has the lap's valid bit, and the header tells the quanta.
fn check_shape(buf: &WqeBuf, polarity: Polarity) {
    let words = placed(buf, polarity);
    assert_eq!(SqHeader::from_bits(words[3]).quanta(), buf.quanta());
    for quantum in words.chunks(4) {
        assert!(polarity.matches(quantum[3]));
    }
}

proptest! {
    #[test]
    fn sends_parse_back(
        flags in any_flags(), solicited: bool, imm: Option<u32>, inv: Option<u32>,
        sges in prop::collection::vec(any_sge(), 0..=13), polarity in any_polarity(),
    ) {
        let wr = SendWr { flags, solicited, imm, inv: inv.map(Rkey), ud: None };
        let mut buf = WqeBuf::new();
        buf.send(&wr, &sges).unwrap();
        check_shape(&buf, polarity);
        let cmd = parsed(&buf, polarity);
        prop_assert!(cmd.op.is_send());
        prop_assert_eq!((cmd.solicited, cmd.imm, cmd.inv_key), (solicited, imm, wr.inv));
        prop_assert_eq!(cmd.sges.as_slice(), &sges[..]);
        let back = WrFlags {
            signaled: cmd.signaled, read_fence: cmd.read_fence, local_fence: cmd.local_fence,
        };
        prop_assert_eq!(back, flags);
    }

    #[test]
    fn inline_parses_back(
        imm: Option<u32>, bytes in prop::collection::vec(any::<u8>(), 0..=101),
        solicited: bool, addr: u64, key: u32, dest in 0_u32..1 << 24, ah in 0_u32..1 << 17,
        polarity in any_polarity(),
    ) {
        let mut buf = WqeBuf::new();
        let remote = RemoteAddr { addr, rkey: Rkey(key) };
        let wr = WriteWr { flags: WrFlags::default(), solicited, imm, remote };
        buf.write_inline(&wr, &bytes).unwrap();
        check_shape(&buf, polarity);
        let cmd = parsed(&buf, polarity);
        prop_assert_eq!(cmd.inline_data(), Some(&bytes[..]));
        prop_assert_eq!((cmd.remote_addr, cmd.rkey, cmd.imm), (addr, Rkey(key), imm));
        prop_assert_eq!(cmd.solicited, solicited && imm.is_some());

        let target = ud(ah, key, dest);
        let wr = SendWr { imm, solicited, ud: Some(target), ..SendWr::default() };
        buf.send_inline(&wr, &bytes).unwrap();
        check_shape(&buf, polarity);
        let cmd = parsed(&buf, polarity);
        prop_assert_eq!(cmd.inline_data(), Some(&bytes[..]));
        prop_assert_eq!((cmd.ud, cmd.imm, cmd.solicited), (target, imm, solicited));
    }

    #[test]
    fn reads_parse_back(
        addr: u64, key: u32, local_inv: bool,
        sges in prop::collection::vec(any_sge(), 0..=13), polarity in any_polarity(),
    ) {
        let remote = RemoteAddr { addr, rkey: Rkey(key) };
        let mut buf = WqeBuf::new();
        buf.read(&ReadWr { flags: WrFlags::SIGNALED, remote, local_inv }, &sges).unwrap();
        check_shape(&buf, polarity);
        let cmd = parsed(&buf, polarity);
        prop_assert_eq!(cmd.op == SqOp::READ_LOC_INV, local_inv);
        prop_assert_eq!(cmd.sges.as_slice(), &sges[..]);
        prop_assert_eq!((cmd.remote_addr, cmd.rkey), (addr, Rkey(key)));
    }

    #[test]
    fn receives_parse_back(
        sges in prop::collection::vec(any_sge(), 0..=13), wr_id: Option<u64>,
        polarity in any_polarity(), stale: u64,
    ) {
        let mut buf = WqeBuf::new();
        buf.recv(&sges, wr_id).unwrap();
        let mut words = placed(&buf, polarity);
        words.resize(32, stale);
        let mut cmd = crate::hw::RqCmd::default();
        cmd.parse(&words).unwrap();
        prop_assert_eq!(cmd.sges.as_slice(), &sges[..]);
        prop_assert_eq!(cmd.wr_id, wr_id.unwrap_or(0));
    }

    #[test]
    fn any_words_give_a_command_or_a_fault(
        words in prop::collection::vec(any::<u64>(), 0..=32), op in 0_u8..0x14,
    ) {
        let mut words = words;
        if let Some(header) = words.get_mut(3) {
            *header = SqHeader::from_bits(*header).with_op(SqOp(op)).bits();
        }
        let mut cmd = SqCmd::new();
        let _ = cmd.parse(&words);
        let _ = (cmd.inline_data().map(<[u8]>::len), cmd.payload_len());
        let _ = crate::hw::RqCmd::default().parse(&words);
    }
}

#[test]
fn one_fragment_is_written_as_a_list_of_one() {
    for wr in [
        SendWr::default(),
        SendWr {
            flags: WrFlags::SIGNALED,
            solicited: true,
            inv: Some(Rkey(7)),
            ..SendWr::default()
        },
    ] {
        let sges = [Sge {
            addr: 0x1234_5678_9abc,
            len: (1 << 31) - 1,
            lkey: Lkey(0x900),
        }];
        let (mut one, mut list) = (WqeBuf::new(), WqeBuf::new());
        one.send(&wr, &sges).unwrap();
        list.fragment_list(wr.header(), None, &sges).unwrap();
        assert_eq!(one.words(), list.words());
        assert_eq!(one.valid_words(), list.valid_words());
        assert_eq!(one.quanta(), list.quanta());
    }
}
