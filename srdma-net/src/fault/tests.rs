//! The injector's promises, by seed.

use super::*;
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
        .map(|(meta, bytes)| {
            assert_eq!(meta.stride, bytes.len());
            bytes
        })
        .collect()
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
