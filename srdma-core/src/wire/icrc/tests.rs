//! Tests of the ICRC against a bit-serial one over real IP and UDP headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;
use crate::wire::Opcode;

/// CRC-32 as the standard describes it, one bit at a time.
fn bit_serial(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for &byte in bytes {
        register ^= u32::from(byte);
        for _ in 0..8 {
            register = (register >> 1) ^ (0xedb8_8320 * (register & 1));
        }
    }
    !register
}

/// The ICRC of a whole IP packet, from its own headers, by the table of masks.   [RoCEv2 1.7]
fn reference(l3: &[u8]) -> [u8; 4] {
    let mut masked = l3[..l3.len() - 4].to_vec();
    let udp = if masked[0] >> 4 == 4 {
        masked[1] = 0xff;
        masked[8] = 0xff;
        masked[10..12].fill(0xff);
        20
    } else {
        masked[0] |= 0x0f;
        masked[1..4].fill(0xff);
        masked[7] = 0xff;
        40
    };
    masked[udp + 6..udp + 8].fill(0xff);
    masked[udp + 8 + 4] = 0xff;
    let mut covered = vec![0xff; 8];
    covered.extend(masked);
    bit_serial(&covered).to_le_bytes()
}

fn flow(v6: bool) -> FlowTuple {
    let (source, target): (IpAddr, IpAddr) = if v6 {
        (
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 2).into(),
        )
    } else {
        (
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv4Addr::new(198, 51, 100, 77).into(),
        )
    };
    FlowTuple::to_roce(source, 0xc123, target)
}

/// The IP packet around a datagram, with fields that routers may change set to odd values.
fn ip_packet(flow: &FlowTuple, id: u16, df: bool, datagram: &[u8]) -> Vec<u8> {
    let builder = match (flow.source, flow.target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let payload = u16::try_from(8 + datagram.len()).unwrap();
            let protocol = etherparse::IpNumber::UDP;
            let mut header = etherparse::Ipv4Header::new(
                payload,
                63,
                protocol,
                source.octets(),
                target.octets(),
            )
            .unwrap();
            header.identification = id;
            header.dont_fragment = df;
            header.dscp = etherparse::IpDscp::try_new(26).unwrap();
            PacketBuilder::ip(etherparse::IpHeaders::Ipv4(header, Default::default()))
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            PacketBuilder::ipv6(source.octets(), target.octets(), 17)
        }
        _ => panic!("one family"),
    };
    let mut out = Vec::new();
    let builder = builder.udp(flow.source_port, flow.target_port);
    builder.write(&mut out, datagram).unwrap();
    out
}

/// A datagram with `len` covered bytes after the BTH, signed through our transmit path.
fn signed(flow: &FlowTuple, len: usize, id: u16, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..))
        .take(BTH_LEN + len)
        .collect();
    bytes[0] = Opcode::RC_SEND_ONLY.0;
    let (bth, rest) = bytes.split_first_chunk().unwrap();
    let mut icrc = IcrcFlow::new(flow).start(bytes.len() + 4, id, bth);
    icrc.bytes(&rest[..rest.len() / 3]);
    icrc.hasher().update(&rest[rest.len() / 3..]);
    bytes.extend(icrc.finish());
    bytes
}

#[test]
fn our_sum_is_the_sum_over_the_whole_packet() {
    // proves: roce-5, roce-27
    for v6 in [false, true] {
        let flow = flow(v6);
        for (seed, len) in [0, 1, 4, 8, 16, 20, 64, 100, 256, 1024, 4096, 4120]
            .into_iter()
            .enumerate()
        {
            for id in [0, 1, 0x80, 0xbeef, 0xffff] {
                let datagram = signed(&flow, len, id, seed as u64);
                let l3 = ip_packet(&flow, id, true, &datagram);
                assert_eq!(
                    datagram[datagram.len() - 4..],
                    reference(&l3),
                    "{v6} {len} {id}"
                );
            }
        }
    }
}

#[test]
fn the_identification_is_found() {
    // proves: roce-34
    // proves: roce-35
    let flow = flow(false);
    let sums = IcrcFlow::new(&flow);
    for len in [0, 4, 20, 256, 1024, 4096, 4120, 5000, 9000, 65_000] {
        for id in [0, 1, 127, 0x1234, 0xbeef, 0xffff] {
            let mut datagram = signed(&flow, len, id, 3);
            for hint in [0, 1, id, 0x8000] {
                assert_eq!(
                    verify(&sums, &datagram, hint),
                    IcrcCheck::Good { ip_id: id }
                );
            }
            let icrc = reference(&ip_packet(&flow, id, false, &datagram));
            let end = datagram.len() - 4;
            datagram[end..].copy_from_slice(&icrc);
            assert_eq!(
                verify(&sums, &datagram, 2),
                IcrcCheck::DfClear { ip_id: id }
            );
        }
    }
}

#[test]
fn other_flags_are_refused() {
    // proves: roce-36
    let flow = flow(false);
    let sums = IcrcFlow::new(&flow);
    for flag in [0x8000_u16, 0x2000, 0x6000, 0x0001, 0x1fff] {
        let mut datagram = signed(&flow, 64, 5, 3);
        let mut l3 = ip_packet(&flow, 5, true, &datagram);
        let flags = u16::from_be_bytes([l3[6], l3[7]]) ^ flag;
        l3[6..8].copy_from_slice(&flags.to_be_bytes());
        let end = datagram.len() - 4;
        datagram[end..].copy_from_slice(&reference(&l3));
        assert_eq!(verify(&sums, &datagram, 0), IcrcCheck::Bad, "{flag:#x}");
    }
}

#[test]
fn what_routers_change_does_not_matter() {
    // proves: roce-28
    // proves: roce-11
    for v6 in [false, true] {
        let flow = flow(v6);
        let l3 = ip_packet(&flow, 9, true, &signed(&flow, 40, 9, 1));
        let (masked, udp): (&[usize], usize) = if v6 {
            (&[1, 2, 3, 7], 40)
        } else {
            (&[1, 8, 10, 11], 20)
        };
        for at in masked.iter().copied().chain([udp + 6, udp + 7]) {
            let mut changed = l3.clone();
            changed[at] ^= 0xff;
            assert_eq!(reference(&changed), reference(&l3), "byte {at}");
        }
        let mut datagram = l3[udp + 8..].to_vec();
        datagram[4] ^= 0xff;
        let id = if v6 { 0 } else { 9 };
        let check = verify(&IcrcFlow::new(&flow), &datagram, 0);
        assert_eq!(check, IcrcCheck::Good { ip_id: id });
    }
}

#[test]
fn everything_else_matters() {
    // proves: roce-12
    // proves: roce-29
    // proves: roce-37
    for v6 in [false, true] {
        let flow = flow(v6);
        let sums = IcrcFlow::new(&flow);
        let datagram = signed(&flow, 40, 9, 1);
        let bad = |flow: &FlowTuple, datagram: &[u8]| {
            assert_eq!(verify(&IcrcFlow::new(flow), datagram, 9), IcrcCheck::Bad);
        };
        for at in (0..datagram.len()).filter(|&at| at != 4) {
            for bit in 0..8 {
                let mut changed = datagram.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(
                    verify(&sums, &changed, 9),
                    IcrcCheck::Bad,
                    "byte {at} bit {bit}"
                );
            }
        }
        bad(&flow, &datagram[..datagram.len() - 4]);
        bad(
            &FlowTuple {
                source_port: flow.source_port ^ 1,
                ..flow
            },
            &datagram,
        );
        bad(
            &FlowTuple {
                target_port: flow.target_port ^ 1,
                ..flow
            },
            &datagram,
        );
        bad(
            &FlowTuple {
                source: flow.target,
                ..flow
            },
            &datagram,
        );
        bad(
            &FlowTuple {
                target: flow.source,
                ..flow
            },
            &datagram,
        );
        for id in [8, 0x8009] {
            let same = signed(&flow, 40, id, 1) == datagram;
            assert_eq!(same, v6, "the identification counts on IPv4 only");
        }
    }
    let mut wrong = signed(&flow(true), 40, 0, 1);
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(
        verify(&IcrcFlow::new(&flow(true)), &wrong, 0),
        IcrcCheck::Bad
    );
}

#[test]
fn short_datagrams_are_bad() {
    let sums = IcrcFlow::new(&flow(false));
    for len in 0..16 {
        assert_eq!(verify(&sums, &vec![0; len], 0), IcrcCheck::Bad);
    }
}

#[test]
fn mapped_addresses_are_ipv4() {
    let v4 = flow(false);
    let map = |address| match address {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        v6 @ IpAddr::V6(_) => v6,
    };
    let mapped = FlowTuple {
        source: map(v4.source),
        target: map(v4.target),
        ..v4
    };
    assert_eq!(IcrcFlow::new(&mapped), IcrcFlow::new(&v4));
    assert!(!IcrcFlow::new(&mapped).is_v6());
}

#[test]
fn anchors() {
    // The published anchors of [RoCEv2 8], which need no file.
    let (a, b) = (
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv4Addr::new(192, 0, 2, 2).into(),
    );
    let sums = IcrcFlow::new(&FlowTuple::to_roce(a, 49443, b));
    let send = [
        0x04, 0x70, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 1, 0, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0, 0,
        0, 0xe6, 0x45, 0xb6, 0x7a,
    ];
    assert_eq!(verify(&sums, &send, 0), IcrcCheck::Good { ip_id: 0 });
    let rxe_like = [
        0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 1, 5, 0x61, 0x62, 0x63, 0x64, 0x48, 0xbb,
        0x40, 0xcd,
    ];
    assert_eq!(
        verify(&sums, &rxe_like, 0),
        IcrcCheck::Good { ip_id: 0xbeef }
    );
}

proptest! {
    #[test]
    fn moving_to_another_slot_is_signing_again(
        words in 0..1040_usize, old in any::<u16>(), new in any::<u16>(), seed in any::<u64>(),
    ) {
        // proves: roce-40
        let flow = flow(false);
        let before = signed(&flow, 4 * words, old, seed);
        let after = signed(&flow, 4 * words, new, seed);
        let icrc = *before.last_chunk().unwrap();
        prop_assert_eq!(resign(icrc, before.len(), old, new), *after.last_chunk().unwrap());
    }

    #[test]
    fn there_and_back_is_nothing(register in any::<u32>(), bytes in 0..20_000_usize) {
        prop_assert_eq!(poly::unshift(poly::shift(register, bytes), bytes), register);
    }
}
