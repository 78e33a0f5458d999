//! Tests of packets: every opcode there and back, and everything that is refused.

use proptest::prelude::*;

use super::*;
use crate::limits::{MAX_DATAGRAM, MAX_HEADER};
use crate::num::{Msn, Qkey};

/// Every opcode that has a row.
pub(super) fn defined() -> Vec<Opcode> {
    (0..=u8::MAX)
        .map(Opcode)
        .filter(|opcode| opcode.info().is_some())
        .collect()
}

/// Headers of `opcode`, filled from `seed` so that no two fields are alike by chance.
fn sample(opcode: Opcode, seed: u64) -> Emit {
    let mut rng = fastrand::Rng::with_seed(seed);
    let has = |header| opcode.info().unwrap().headers.contains(header);
    Emit {
        bth: Bth {
            opcode,
            solicited: rng.bool(),
            migrated: rng.bool(),
            ack_req: rng.bool(),
            pad: 0,
            place: rng.u8(..=FAR),
            pkey: Pkey(rng.u16(..)),
            dest: Qpn::new(rng.u32(..)),
            psn: Psn::new(rng.u32(..)),
            becn: rng.bool(),
            fecn: rng.bool(),
        },
        xrceth: has(HeaderSet::XRCETH).then(|| rng.u32(..1 << 24)),
        deth: has(HeaderSet::DETH).then(|| Deth {
            qkey: Qkey(rng.u32(..)),
            source: Qpn::new(rng.u32(..)),
        }),
        reth: has(HeaderSet::RETH).then(|| Reth {
            addr: rng.u64(..),
            rkey: Rkey(rng.u32(..)),
            len: rng.u32(..),
        }),
        atomic: has(HeaderSet::ATOMIC).then(|| AtomicEth {
            addr: rng.u64(..),
            rkey: Rkey(rng.u32(..)),
            swap_add: rng.u64(..),
            compare: rng.u64(..),
        }),
        aeth: has(HeaderSet::AETH).then(|| Aeth {
            syndrome: Syndrome::from_byte(rng.u8(..)),
            msn: Msn::new(rng.u32(..)),
        }),
        atomic_ack: has(HeaderSet::ATOMIC_ACK).then(|| rng.u64(..)),
        imm: has(HeaderSet::IMM).then(|| ImmDt(rng.u32(..).to_ne_bytes())),
        ieth: has(HeaderSet::IETH).then(|| Rkey(rng.u32(..))),
        feth: has(HeaderSet::FETH).then(|| Feth {
            placement: rng.u8(..16),
            selectivity: rng.u8(..4),
        }),
        rider: has(HeaderSet::RIDER).then(|| Rider {
            aeth: Aeth {
                syndrome: Syndrome::from_byte(rng.u8(..)),
                msn: Msn::new(rng.u32(..)),
            },
            psn: Psn::new(rng.u32(..)),
        }),
    }
}

/// Byte `i` of every payload.
fn pattern(i: usize) -> u8 {
    i.wrapping_mul(7).to_le_bytes()[0]
}

/// The datagram with these headers and `len` bytes of payload; the ICRC is 01020304.
fn build(mut emit: Emit, len: usize) -> Vec<u8> {
    emit.bth.pad = Bth::pad_for(len);
    let mut header = [0xee; MAX_HEADER];
    let header_len = emit.write(&mut header);
    let mut bytes = header[..header_len].to_vec();
    bytes.extend((0..len).map(pattern));
    bytes.extend(std::iter::repeat_n(0, usize::from(emit.bth.pad)));
    bytes.extend([1, 2, 3, 4]);
    bytes
}

/// Sizes at every edge of the pad and of the MTU.
const SIZES: [usize; 9] = [0, 1, 2, 3, 4, 5, 255, 4095, 4096];

#[test]
fn every_opcode_goes_there_and_back() {
    // proves: roce-8
    // proves: roce-13
    for opcode in defined() {
        for (seed, len) in SIZES.into_iter().enumerate() {
            let mut emit = sample(opcode, seed as u64);
            let bytes = build(emit, len);
            emit.bth.pad = Bth::pad_for(len);
            let packet = Packet::parse(&bytes).unwrap_or_else(|e| panic!("{opcode:?}: {e}"));
            assert_eq!(packet.headers(), emit);
            assert_eq!(emit.len(), usize::from(packet.info().header_len));
            assert_eq!(emit.headers(), packet.info().headers);
            assert_eq!(packet.payload().len(), len);
            assert!(
                packet
                    .payload()
                    .iter()
                    .enumerate()
                    .all(|(i, &b)| b == pattern(i))
            );
            assert_eq!(packet.icrc(), 0x0403_0201);
            assert_eq!(packet.bytes(), bytes);
            let bth = packet.bth();
            assert_eq!((packet.opcode(), packet.dest()), (bth.opcode, bth.dest));
            assert_eq!((packet.psn(), packet.pkey()), (bth.psn, bth.pkey));
            assert_eq!(
                (packet.ack_req(), packet.solicited()),
                (bth.ack_req, bth.solicited)
            );
            assert_eq!((packet.pad(), packet.place()), (bth.pad, bth.place));
        }
    }
}

#[test]
fn numbers_at_their_edges_go_there_and_back() {
    // proves: roce-8
    for value in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff] {
        let bth = Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(value), Psn::new(value ^ 1));
        let bytes = build(Emit::new(bth), 4);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(
            (packet.dest().value(), packet.psn().value()),
            (value, value ^ 1)
        );
    }
}

#[test]
fn reserved_bits_are_sent_as_zero_and_ignored() {
    // proves: roce-10, place-1
    for opcode in defined() {
        let mut plain = sample(opcode, 7);
        plain.bth.place = 0;
        let clean = build(plain, 4);
        assert_eq!((clean[4] & 0x3f, clean[8] & 0x7f), (0, 0));
        let mut dirty = clean.clone();
        dirty[4] |= 0x3f;
        dirty[8] |= 0x7f;
        // Those before the PSN are the place that our own kind tells.
        let mut expected = Packet::parse(&clean).unwrap().headers();
        expected.bth.place = FAR;
        let dirty = Packet::parse(&dirty).unwrap();
        assert_eq!((dirty.headers(), dirty.place()), (expected, FAR));
    }
}

#[test]
fn another_version_is_refused() {
    // proves: roce-9
    for version in 1..16 {
        let mut bytes = build(sample(Opcode::RC_SEND_ONLY, 1), 8);
        bytes[1] |= version;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), Malformed::Version);
    }
}

#[test]
fn a_pad_that_does_not_fit_is_refused() {
    // proves: roce-14
    for opcode in defined() {
        let whole = build(sample(opcode, 2), 8);
        for extra in 1..4 {
            let mut bytes = whole.clone();
            bytes.extend(std::iter::repeat_n(0, extra));
            assert_eq!(Packet::parse(&bytes).unwrap_err(), Malformed::Pad);
        }
        let mut bytes = build(sample(opcode, 2), 0);
        bytes[1] |= 0x10;
        assert_eq!(Packet::parse(&bytes).unwrap_err(), Malformed::Pad);
    }
}

#[test]
fn a_datagram_shorter_than_its_headers_is_refused() {
    // proves: roce-15
    for opcode in defined() {
        let whole = build(sample(opcode, 3), 0);
        for len in 0..whole.len() {
            assert_eq!(
                Packet::parse(&whole[..len]).unwrap_err(),
                Malformed::TooShort
            );
        }
        assert_eq!(Packet::parse(&whole).unwrap().bytes(), whole);
    }
}

#[test]
fn more_than_the_largest_mtu_is_refused() {
    let long = build(sample(Opcode::RC_SEND_ONLY, 4), 4097);
    assert_eq!(Packet::parse(&long).unwrap_err(), Malformed::Length);
    let huge = vec![0; 65_508];
    assert_eq!(Packet::parse(&huge).unwrap_err(), Malformed::Length);
}

#[test]
fn undefined_opcodes_are_refused() {
    // proves: roce-16
    let rc_holes = [0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f];
    let ours = [0xe4, 0xe5, 0xe7, 0xe8, 0xea, 0xeb, 0xee];
    let undefined = |op: u8| match op >> 5 {
        0b000 | 0b101 => rc_holes.contains(&(op & 0x1f)),
        0b001 => op & 0x1f > 0x0b,
        0b011 => op != 0x64 && op != 0x65,
        0b100 => op != 0x81,
        0b111 => !ours.contains(&op),
        _ => true,
    };
    for op in 0..=u8::MAX {
        assert_eq!(Opcode(op).info().is_none(), undefined(op), "{op:#x}");
        if undefined(op) {
            let mut bytes = [0; 64];
            bytes[0] = op;
            assert_eq!(Packet::parse(&bytes).unwrap_err(), Malformed::UnknownOpcode);
        }
        assert_eq!(Opcode(op).name().is_none(), undefined(op), "{op:#x}");
    }
    assert_eq!(Opcode(0xe4).service(), Some(Service::Manufacturer));
    assert_eq!(Opcode(0x44).service(), Some(Service::Rd));
}

#[test]
fn headers_stand_in_the_order_of_the_wire() {
    // proves: roce-18
    // proves: roce-19
    // proves: roce-20
    // proves: roce-21
    let at = |opcode: Opcode, header| opcode.info().unwrap().offset(header);
    assert_eq!(at(Opcode::RC_FLUSH, HeaderSet::FETH), Some(12));
    assert_eq!(at(Opcode::RC_FLUSH, HeaderSet::RETH), Some(16));
    assert_eq!(at(Opcode::RC_WRITE_ONLY_IMM, HeaderSet::RETH), Some(12));
    assert_eq!(at(Opcode::RC_WRITE_ONLY_IMM, HeaderSet::IMM), Some(28));
    assert_eq!(at(Opcode::UD_SEND_ONLY_IMM, HeaderSet::DETH), Some(12));
    assert_eq!(at(Opcode::UD_SEND_ONLY_IMM, HeaderSet::IMM), Some(20));
    assert_eq!(at(Opcode::XRC_WRITE_ONLY_IMM, HeaderSet::XRCETH), Some(12));
    assert_eq!(at(Opcode::XRC_WRITE_ONLY_IMM, HeaderSet::RETH), Some(16));
    assert_eq!(at(Opcode::XRC_ACKNOWLEDGE, HeaderSet::XRCETH), None);
    assert_eq!(at(Opcode::RC_READ_RESP_FIRST, HeaderSet::AETH), Some(12));
    assert_eq!(at(Opcode::RC_READ_RESP_MIDDLE, HeaderSet::AETH), None);
    assert_eq!(at(Opcode::RC_READ_RESP_LAST, HeaderSet::AETH), Some(12));
    assert_eq!(at(Opcode::RC_READ_RESP_ONLY, HeaderSet::AETH), Some(12));
    assert_eq!(at(Opcode::RC_ATOMIC_ACK, HeaderSet::ATOMIC_ACK), Some(16));
    assert_eq!(at(Opcode::RC_SEND_ONLY, HeaderSet::NONE), None);
}

#[test]
fn immediate_data_keeps_its_bytes() {
    // proves: roce-17
    let mut emit = sample(Opcode::RC_SEND_ONLY_IMM, 5);
    emit.imm = Some(ImmDt([0xde, 0xad, 0xbe, 0xef]));
    let bytes = build(emit, 0);
    assert_eq!(bytes[12..16], [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(Packet::parse(&bytes).unwrap().imm(), emit.imm);
}

#[test]
fn syndromes_go_there_and_back() {
    // proves: roce-23
    assert_eq!(Syndrome::ACK.to_byte(), 0x1f);
    assert_eq!(
        Syndrome::from_byte(0x60),
        Syndrome::Nak(NakCode::PSN_SEQUENCE)
    );
    assert_eq!(
        Syndrome::from_byte(0x64),
        Syndrome::Nak(NakCode::INVALID_RD)
    );
    assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak { timer: 12 });
    assert_eq!(Syndrome::from_byte(0x9f), Syndrome::Reserved(0x9f));
    for byte in 0..=u8::MAX {
        assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
    }
}

#[test]
fn not_ready_codes_have_their_delays() {
    // proves: roce-24
    // Two codes an octave: each delay is the one two codes before, doubled; code 0 is the last.
    let delay = |timer: u8| match Syndrome::from_byte(0x20 | timer) {
        Syndrome::RnrNak { timer } => crate::time::rnr_timer_ns(timer),
        other => panic!("{other:?}"),
    };
    assert_eq!([1, 2, 3, 4].map(delay), [10_000, 20_000, 30_000, 40_000]);
    for timer in 5..32 {
        assert_eq!(delay(timer), 2 * delay(timer - 2), "code {timer}");
    }
    assert_eq!(delay(0), 2 * delay(30));
}

#[test]
fn payload_rules() {
    let rule = |opcode: Opcode| opcode.info().unwrap().payload;
    assert!(!rule(Opcode::RC_SEND_FIRST).allows(1023, 1024));
    assert!(rule(Opcode::RC_SEND_MIDDLE).allows(1024, 1024));
    assert!(!rule(Opcode::RC_SEND_LAST).allows(0, 1024));
    assert!(rule(Opcode::RC_SEND_LAST_IMM).allows(1, 1024));
    assert!(rule(Opcode::RC_SEND_ONLY).allows(0, 1024));
    assert!(!rule(Opcode::RC_SEND_ONLY).allows(1025, 1024));
    assert!(!rule(Opcode::RC_ACKNOWLEDGE).allows(1, 1024));
    assert!(rule(Opcode::RC_ATOMIC_WRITE).allows(8, 256));
    assert!(!rule(Opcode::RC_ATOMIC_WRITE).allows(4, 256));
}

#[test]
fn reasons_have_each_a_counter() {
    for (index, reason) in Malformed::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
    }
}

#[test]
fn lines() {
    let mut bth = Bth::new(Opcode::RC_SEND_ONLY_IMM, Qpn::new(0x12), Psn::new(1));
    bth.ack_req = true;
    let imm = Some(ImmDt([0xca, 0xfe, 0xf0, 0x0d]));
    let line = Pretty(&build(
        Emit {
            imm,
            ..Emit::new(bth)
        },
        64,
    ))
    .to_string();
    assert_eq!(
        line,
        "RC SEND_ONLY_IMM qp 0x000012 psn 0x000001 ack imm 0xcafef00d 64 B"
    );

    let bth = Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::new(0x21), Psn::new(0x100));
    let syndrome = Syndrome::Nak(NakCode::PSN_SEQUENCE);
    let aeth = Some(Aeth {
        syndrome,
        msn: Msn::new(0xabc),
    });
    let line = Pretty(&build(
        Emit {
            aeth,
            ..Emit::new(bth)
        },
        0,
    ))
    .to_string();
    assert_eq!(
        line,
        "RC ACKNOWLEDGE qp 0x000021 psn 0x000100 nak PSN_SEQUENCE msn 0x000abc 0 B"
    );

    let bth = Bth::new(Opcode::CNP, Qpn::new(1), Psn::new(0));
    assert_eq!(
        Pretty(&build(Emit::new(bth), 0)).to_string(),
        "CNP qp 0x000001 psn 0x000000 0 B"
    );
    assert_eq!(
        Pretty(&[0xe1; 20]).to_string(),
        "malformed (the transport version is not 0) opcode 0xe1 20 B"
    );
    for opcode in defined() {
        let line = Pretty(&build(sample(opcode, 9), 8)).to_string();
        assert!(
            !line.contains("malformed") && !line.contains('\n'),
            "{line}"
        );
    }
}

proptest! {
    /// Whatever is accepted is written again byte for byte, but for reserved bits.
    #[test]
    fn what_is_accepted_is_written_again(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        op in any::<proptest::sample::Index>(),
        words in any::<bool>(),
    ) {
        let opcodes = defined();
        if words {
            bytes.truncate(bytes.len() & !3);
        }
        if let [first, flags, ..] = bytes.as_mut_slice() {
            *first = opcodes[op.index(opcodes.len())].0;
            *flags &= 0xf0;
        }
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        let mut again = [0; MAX_DATAGRAM];
        let len = packet.headers().write(&mut again);
        prop_assert_eq!(len, usize::from(packet.info().header_len));
        let expected = without_reserved(&packet, &bytes[..len]);
        prop_assert_eq!(&again[..len], &expected[..]);
        let end = len + packet.payload().len();
        prop_assert_eq!(packet.payload(), &bytes[len..end]);
        prop_assert_eq!(end + usize::from(packet.pad()) + ICRC_LEN, bytes.len());
    }

    /// No datagram makes the parser, or the line printer, do anything but answer.
    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Pretty(&bytes).to_string();
    }
}

/// `header` with every reserved bit cleared.
fn without_reserved(packet: &Packet<'_>, header: &[u8]) -> Vec<u8> {
    let mut header = header.to_vec();
    let at = |kind| packet.info().offset(kind);
    header[4] &= 0xc0;
    if let Some(at) = at(HeaderSet::XRCETH) {
        header[at] = 0;
    }
    if let Some(at) = at(HeaderSet::RIDER) {
        header[at + 4] = 0;
    }
    if let Some(at) = at(HeaderSet::DETH) {
        header[at + 4] = 0;
    }
    if let Some(at) = at(HeaderSet::FETH) {
        header[at..at + 3].fill(0);
        header[at + 3] &= 0x3f;
    }
    if let Some(at) = at(HeaderSet::CNP) {
        header[at..at + 16].fill(0);
    }
    header
}
