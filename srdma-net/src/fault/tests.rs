//! The injector's promises, by seed.

use super::hold::MAX_HELD;
use super::*;
use core::time::Duration;
use srdma_core::hw::AeCode;
use srdma_core::num::Qpn;
use srdma_core::wire::flow::Ecn;

fn meta(stride: usize) -> RxMeta {
    RxMeta {
        source: "127.0.0.1:50000".parse().unwrap(),
        local: "127.0.0.2".parse().unwrap(),
        port: 4791,
        ecn: Ecn::NotEct,
        tclass: 0,
        hop_limit: 64,
        stride,
        first: 0,
    }
}

fn all(injector: &mut FaultInjector, now: Instant) -> Vec<Bytes> {
    core::iter::from_fn(|| injector.poll(now))
        .map(|arrival| {
            assert_eq!(arrival.meta.stride, arrival.bytes.len());
            arrival.bytes
        })
        .collect()
}

/// What of a buffer of packets of four bytes goes on at once: bytes, stride and first number.
fn sifted(injector: &mut FaultInjector, now: Instant, bytes: &[u8]) -> Vec<(Vec<u8>, usize, u16)> {
    let mut seen = Vec::new();
    injector.sift(now, &meta(4), bytes, |meta, bytes| {
        seen.push((bytes.to_vec(), meta.stride, meta.first));
    });
    seen
}

#[test]
fn nothing_to_do_needs_no_injector() {
    assert!(FaultInjector::new(&FaultConfig::default()).is_none());
    assert!(
        FaultInjector::new(&FaultConfig {
            delay_ns: 1,
            ..FaultConfig::default()
        })
        .is_some()
    );
}

#[test]
fn delayed_buffers_are_taken_apart_and_keep_their_order() {
    let config = FaultConfig {
        delay_ns: 100,
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    injector.offer(Instant(0), &meta(4), b"aaaabbbbcc");
    injector.offer(Instant(0), &meta(3), b"ddd");
    assert_eq!(injector.next_due(), Some(Instant(100)));
    assert!(injector.poll(Instant(99)).is_none());
    let want: [&[u8]; 4] = [b"aaaa", b"bbbb", b"cc", b"ddd"];
    assert_eq!(all(&mut injector, Instant(100)), want);
    assert_eq!(injector.next_due(), None);
}

#[test]
fn every_datagram_is_accounted_for_and_a_seed_repeats() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let config = FaultConfig {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        corrupt: 0.1,
        delay_ns: 10,
        reorder_ns: 1000,
        seed,
        rules: Vec::new(),
    };
    let run = || {
        let mut injector = FaultInjector::new(&config).unwrap();
        let mut got = Vec::new();
        for n in 0..4000u32 {
            injector.offer(
                Instant(n.into()),
                &meta(8),
                &[n.to_be_bytes(), [0; 4]].concat(),
            );
            got.extend(all(&mut injector, Instant(n.into())));
        }
        got.extend(all(&mut injector, Instant(u64::MAX)));
        (got, *injector.counters())
    };
    let (got, counters) = run();
    assert_eq!(
        (&got, &counters),
        (&run().0, &run().1),
        "the seed decides everything"
    );
    assert_eq!(counters.offered, 4000);
    assert_eq!(counters.delivered, got.len() as u64);
    assert_eq!(
        counters.delivered,
        4000 - counters.lost + counters.duplicated
    );
    for part in [
        counters.lost,
        counters.duplicated,
        counters.reordered,
        counters.corrupted,
    ] {
        assert!((200..700).contains(&part), "{counters:?}");
    }
    let damaged = got.iter().filter(|bytes| bytes[4..] != [0; 4]).count() as u64;
    assert!(damaged > 0 && damaged <= counters.corrupted);
}

#[test]
fn what_is_held_is_bounded() {
    let config = FaultConfig {
        delay_ns: 1,
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    injector.offer(Instant(0), &meta(1), &vec![0; MAX_HELD + 5]);
    assert_eq!(injector.counters().overflowed, 5);
    assert_eq!(all(&mut injector, Instant(1)).len(), MAX_HELD);
}

/// A packet of this opcode, queue pair and sequence number.
fn packet(opcode: u8, qp: u32, psn: u32) -> Vec<u8> {
    let word = |value: u32| value.to_be_bytes();
    [word(u32::from(opcode) << 24), word(qp), word(psn)].concat()
}

/// Which of `packets` come through under `rules`.
fn through(rules: &str, packets: &[Vec<u8>]) -> Vec<usize> {
    let config: FaultConfig = rules.parse().unwrap();
    let mut injector = FaultInjector::new(&config).unwrap();
    let mut left = Vec::new();
    for (at, bytes) in packets.iter().enumerate() {
        injector.offer(Instant(0), &meta(64), bytes);
        left.extend(std::iter::repeat_n(
            at,
            all(&mut injector, Instant(0)).len(),
        ));
    }
    left
}

#[test]
fn rules_pick_packets() {
    let packets: Vec<_> = (0..8)
        .map(|n| packet(if n % 2 == 0 { 4 } else { 0x11 }, n, n))
        .collect();
    for (rules, left) in [
        ("drop nth=3", vec![0, 1, 3, 4, 5, 6, 7]),
        ("drop every=2", vec![0, 2, 4, 6]),
        ("drop op=RC_ACKNOWLEDGE times=2", vec![0, 2, 4, 5, 6, 7]),
        ("drop op=RC_SEND*; drop op=0x11 nth=1", vec![3, 5, 7]),
        ("drop qp=0x5; in drop psn=6-7", vec![0, 1, 2, 3, 4]),
        (
            "duplicate nth=2, op=*SEND*",
            vec![0, 1, 2, 2, 3, 4, 5, 6, 7],
        ),
        ("out drop; drop p=0", vec![0, 1, 2, 3, 4, 5, 6, 7]),
        ("drop 100% times=7", vec![7]),
    ] {
        assert_eq!(through(rules, &packets), left, "{rules}");
    }
}

#[test]
fn messages_are_known_whatever_goes_along() {
    let packets: Vec<_> = [0x04, 0xe4, 0x05, 0xe5, 0x0a, 0xea, 0x11]
        .map(|opcode| packet(opcode, 0, 0))
        .into();
    for (rules, left) in [
        ("drop op=RC_SEND_ONLY", vec![2, 3, 4, 5, 6]),
        ("drop op=RC_SEND_ONLY_ACK", vec![0, 2, 3, 4, 5, 6]),
        ("drop op=*_IMM", vec![0, 1, 4, 5, 6]),
        ("drop op=*_ACK", vec![0, 2, 4, 6]),
        ("drop op=0x04", vec![1, 2, 3, 4, 5, 6]),
        ("drop op=RC_ACKNOWLEDGE", vec![0, 1, 2, 3, 4, 5]),
    ] {
        assert_eq!(through(rules, &packets), left, "{rules}");
    }
}

#[test]
fn rules_are_read_and_wrong_ones_named() {
    let config: FaultConfig = "seed=0x7; stall=5ms nth=1;\n# note\nae=local_qp_catastrophic"
        .parse()
        .unwrap();
    assert_eq!((config.seed, config.rules.len()), (7, 2));
    let stall = DeviceFault::Stall(Duration::from_millis(5));
    assert_eq!(config.rules[0].action, FaultAction::Device(stall));
    let ae = DeviceFault::Async(AeCode::LOCAL_QP_CATASTROPHIC);
    assert_eq!(config.rules[1].action, FaultAction::Device(ae));
    for (text, part) in [
        ("dorp", "dorp"),
        ("drop 101%", "101%"),
        ("drop nth=0", "nth=0"),
        ("delay", "delay"),
        ("delay=5", "delay=5"),
        ("delay=9999999999s", "delay=9999999999s"),
        ("drop op=RC_NOTHING", "op=RC_NOTHING"),
        ("drop qp=0x1000000", "qp=0x1000000"),
        ("drop now", "now"),
        ("out fatal", "out fatal"),
        ("ae=none", "ae=none"),
        ("seed=x", "seed=x"),
        ("in", "in"),
    ] {
        let error = text.parse::<FaultConfig>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{part}`")), "{text}: {error}");
    }
}

#[test]
fn mishaps_come_with_their_packet() {
    let config: FaultConfig = "fatal nth=2; drop nth=2; delay=3us".parse().unwrap();
    let mut injector = FaultInjector::new(&config).unwrap();
    for n in 0..2 {
        injector.offer(Instant(0), &meta(64), &packet(4, n, n));
    }
    assert!(injector.poll(Instant(2_999)).is_none());
    let first = injector.poll(Instant(3_000)).unwrap();
    assert!(first.device.is_empty() && first.note.held_us() == 3);
    let second = injector.poll(Instant(3_000)).unwrap();
    assert_eq!(second.device, [DeviceFault::Fatal]);
    assert!(second.bytes.is_empty(), "the packet itself is lost");
    assert!(DeviceFault::NotReady.injection(Qpn::new(1)).is_some());
    assert!(
        DeviceFault::Stall(Duration::ZERO)
            .injection(Qpn::new(1))
            .is_none()
    );
}

#[test]
fn what_leaves_meets_rules_of_its_own() {
    let config: FaultConfig = "out drop nth=1; out delay=1us nth=2".parse().unwrap();
    let mut injector = FaultInjector::new(&config).unwrap();
    assert!(injector.acts_on_departures());
    let run = Run {
        target: "127.0.0.2:4791".parse().unwrap(),
        local: "127.0.0.1".parse().unwrap(),
        tclass: 0,
        hop_limit: 64,
        segment_len: 12,
        packets: 3,
        bytes: 36,
        unreliable: false,
        segs: 0..1,
    };
    for n in 0..3 {
        let bytes = Bytes::from(packet(4, n, n));
        assert!(injector.offer_out(Instant(0), &run, 7, &bytes));
    }
    let third = injector.poll_out(Instant(0)).unwrap();
    assert_eq!(
        (&third.bytes[..], third.run.packets),
        (&packet(4, 2, 2)[..], 1)
    );
    injector.put_back(third);
    assert!(
        injector.poll_out(Instant(0)).is_some(),
        "it is the next again"
    );
    assert!(injector.poll_out(Instant(0)).is_none());
    assert_eq!(injector.next_due(), Some(Instant(1_000)));
    assert!(injector.poll_out(Instant(1_000)).is_some());
    assert_eq!(
        (injector.counters().lost, injector.counters().delivered),
        (1, 2)
    );
}

#[test]
fn what_nothing_happens_to_goes_on_in_place_and_in_its_order() {
    // The third of five is lost; the fifth waits for 100 ns, and what comes later overtakes it.
    let rules: Vec<FaultRule> = ["drop nth=3", "delay=100ns nth=5"]
        .iter()
        .map(|rule| rule.parse().unwrap())
        .collect();
    let config = FaultConfig {
        rules,
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    let mut seen = sifted(&mut injector, Instant(0), b"aaaabbbbccccddddeeee");
    seen.extend(sifted(&mut injector, Instant(0), b"ff"));
    // What is due comes before what has just arrived.
    seen.extend(sifted(&mut injector, Instant(100), b"gggghh"));
    let want: [(&[u8], usize, u16); 3] = [(b"aaaabbbb", 4, 0), (b"dddd", 4, 3), (b"ff", 2, 0)];
    assert_eq!(
        seen,
        want.map(|(bytes, stride, first)| (bytes.to_vec(), stride, first))
    );
    let want: [&[u8]; 3] = [b"eeee", b"gggg", b"hh"];
    assert_eq!(all(&mut injector, Instant(100)), want);
    let counters = injector.counters();
    assert_eq!(
        (counters.offered, counters.delivered, counters.lost),
        (8, 7, 1)
    );
}

#[test]
fn what_goes_on_between_losses_keeps_its_numbers() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let config = FaultConfig {
        loss: 0.2,
        seed,
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    // Each packet of four bytes has its number in it; the last one is short.
    let buffer: Vec<u8> = (0..60u8).flat_map(|n| [n; 4]).take(238).collect();
    let (mut rounds, mut delivered) = (0, 0);
    for _ in 0..200 {
        let seen = sifted(&mut injector, Instant(0), &buffer);
        rounds += usize::from(seen.len() > 1);
        for (bytes, stride, first) in seen {
            assert_eq!(stride, bytes.len().min(4), "seed {seed}");
            for (n, packet) in (first..).zip(bytes.chunks(4)) {
                assert!(
                    packet.iter().all(|byte| u16::from(*byte) == n),
                    "seed {seed}"
                );
                delivered += 1;
            }
        }
    }
    assert!(rounds > 100, "seed {seed}: most buffers lose something");
    let counters = injector.counters();
    assert_eq!((counters.offered, counters.delivered), (12_000, delivered));
    assert_eq!(counters.lost, 12_000 - delivered, "seed {seed}");
}

#[test]
fn a_copy_follows_in_place_and_delays_nobody() {
    let config = FaultConfig {
        rules: vec!["duplicate nth=2".parse().unwrap()],
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    let seen = sifted(&mut injector, Instant(0), b"aaaabbbbcc");
    let want: [(&[u8], usize, u16); 3] = [(b"aaaabbbb", 4, 0), (b"bbbb", 4, 1), (b"cc", 2, 2)];
    assert_eq!(
        seen,
        want.map(|(bytes, stride, first)| (bytes.to_vec(), stride, first))
    );
    assert_eq!(injector.next_due(), None, "nothing is held");
    let counters = injector.counters();
    assert_eq!((counters.delivered, counters.duplicated), (4, 1));
}

#[test]
fn what_arrivals_were_held_in_is_used_again() {
    let config = FaultConfig {
        delay_ns: 100,
        ..FaultConfig::default()
    };
    let mut injector = FaultInjector::new(&config).unwrap();
    let mut place = None;
    for bytes in [&b"first"[..], b"2nd", b"third"] {
        injector.offer(Instant(0), &meta(8), bytes);
        let arrival = injector.poll(Instant(100)).unwrap();
        assert_eq!(arrival.bytes, bytes);
        let at = arrival.bytes.as_ptr();
        assert_eq!(*place.get_or_insert(at), at);
        assert!(injector.spares.is_empty(), "it is in use");
        injector.recycle(arrival.bytes);
        assert_eq!(injector.spares.len(), 1);
    }
}
