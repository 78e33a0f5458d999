//! What loss and reordering cost, in the time of a simulated link.       [RoCEv2 6.2, 6.3]

use srdma_core::hca::HcaConfig;
use srdma_core::puda::IeqMode;
use srdma_tests::node::{Node, QpSpec};
use srdma_tests::pair::{Fate, Pair};

/// Bytes of one WRITE.
const LEN: u32 = 64 * 1024;

/// A link and what it does to packets.
#[derive(Clone, Copy, Debug)]
struct Link {
    latency: u64,
    byte_ps: u64,
    window: u32,
    loss: u32,
    reorder: u32,
    late_ns: u64,
}

/// Nanoseconds that `writes` WRITEs take, and packets sent again.
fn time(link: &Link, mode: IeqMode, writes: u32, seed: u64) -> (u64, u64) {
    let node = |ip| {
        let mut config = HcaConfig::default();
        config.ieq = mode;
        config.peer_budget = link.window;
        Node::with(ip, config)
    };
    let spec = QpSpec {
        mtu: 4096,
        ..QpSpec::default()
    };
    let mut pair = Pair::of(node("10.0.0.1"), node("10.0.0.2"), &spec);
    (pair.latency, pair.byte_ps) = (link.latency, link.byte_ps);
    let mut rng = fastrand::Rng::with_seed(seed);
    let Link {
        loss,
        reorder,
        late_ns,
        ..
    } = *link;
    pair.hook(move |_, _, _| match rng.u32(..1000) {
        n if n < loss => Fate::Drop,
        n if n < loss + reorder => Fate::Late(rng.u64(1..late_ns)),
        _ => Fate::Deliver,
    });
    let (qa, key, to) = (pair.qa, pair.mb.rkey(), pair.mb.at(0));
    let (mut posted, mut done) = (0, 0);
    let start = pair.now();
    while done < writes {
        while posted < writes && posted - done < 32 {
            pair.a.write(qa, &[pair.ma.sge(0, LEN)], to, key);
            posted += 1;
        }
        pair.step();
        for wc in pair.a.poll() {
            assert_eq!(wc.status, None, "{link:?} {mode:?} seed {seed}");
            done += 1;
        }
    }
    (
        pair.now().since(start),
        pair.a.hca.counters().retransmitted_pkts,
    )
}

/// 25 Gbit/s, 20 µs each way, and sockets as large as they may be.
const LINK: Link = Link {
    latency: 20_000,
    byte_ps: 320,
    window: 1 << 20,
    loss: 0,
    reorder: 0,
    late_ns: 50_000,
};

/// Time over several seeds; and packets sent again.
fn total(link: &Link, mode: IeqMode) -> (f64, u64) {
    let runs = (1..5).map(|seed| time(link, mode, 256, seed));
    let (ns, again) = runs.fold((0, 0), |(ns, again), run| (ns + run.0, again + run.1));
    (ns as f64, again)
}

#[test]
fn a_lost_packet_costs_little_more_than_itself() {
    // proves: roce-143
    let lossy = Link { loss: 10, ..LINK };
    let (clean, none) = total(&LINK, IeqMode::Reorder);
    let (kept, again) = total(&lossy, IeqMode::Reorder);
    let (back, all) = total(&lossy, IeqMode::Off);
    println!(
        "clean 1, kept {:.2}, gone back {:.2}; {again} and {all} packets again",
        clean / kept,
        clean / back
    );
    assert_eq!(none, 0);
    assert!(clean / kept >= 0.8);
    assert!(back / kept >= 3.0, "{}", back / kept);
    assert!(again * 20 < all);
}

#[test]
fn a_late_packet_costs_next_to_nothing() {
    // proves: roce-145
    let shuffled = Link {
        reorder: 50,
        ..LINK
    };
    let (clean, _) = total(&LINK, IeqMode::Reorder);
    let (kept, again) = total(&shuffled, IeqMode::Reorder);
    let (back, all) = total(&shuffled, IeqMode::Off);
    println!(
        "clean 1, kept {:.2}, gone back {:.2}; {again} and {all} packets again",
        clean / kept,
        clean / back
    );
    assert!(clean / kept >= 0.9);
    assert!(back / kept >= 3.0, "{}", back / kept);
}

#[test]
fn packets_a_few_places_late_are_not_sent_again() {
    // proves: roce-145
    // 16 packets of 4 KiB take 21 µs.
    let shuffled = Link {
        reorder: 50,
        late_ns: 21_000,
        ..LINK
    };
    let (_, again) = total(&shuffled, IeqMode::Reorder);
    // A few at first, until the receiver has seen how late packets may be.
    println!("{again} packets again");
    assert!(again <= 4 * 16, "{again}");
}
