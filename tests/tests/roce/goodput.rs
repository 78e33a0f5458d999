//! What loss and reordering cost, in the time of a simulated link.       [RoCEv2 6.2, 6.3]

use srdma_core::hca::HcaConfig;
use srdma_core::limits::DEFAULT_RMEM;
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

/// What is measured: WRITE or READ, and whether the devices know that they are of one kind.
#[derive(Clone, Copy, Debug)]
struct Case {
    mode: IeqMode,
    read: bool,
    own: bool,
}

/// WRITE between devices of which neither knows what the other is.
const fn write(mode: IeqMode) -> Case {
    Case {
        mode,
        read: false,
        own: false,
    }
}

/// Between two of one kind.
const fn own(read: bool) -> Case {
    Case {
        mode: IeqMode::Reorder,
        read,
        own: true,
    }
}

/// Nanoseconds that `count` requests take, and packets sent again.
fn time(link: &Link, case: Case, count: u32, seed: u64) -> (u64, u64) {
    time_at(link, case, count, seed, 16)
}

/// The same; READs land in so many places.
fn time_at(link: &Link, case: Case, count: u32, seed: u64, places: u32) -> (u64, u64) {
    let node = |ip| {
        let mut config = HcaConfig::default();
        config.ieq = case.mode;
        config.peer_budget = link.window;
        config.read_budget = link.window;
        Node::with(ip, config)
    };
    let spec = QpSpec {
        mtu: 4096,
        peer_rx: if case.own { DEFAULT_RMEM } else { 0 },
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
    while done < count {
        while posted < count && posted - done < if case.read { 16 } else { 32 } {
            // READs do not land on each other.
            let at = if case.read { posted % places } else { 0 };
            let sge = pair.ma.sge(u64::from(at * LEN), LEN);
            if case.read {
                pair.a.read(qa, &[sge], to, key);
            } else {
                pair.a.write(qa, &[sge], to, key);
            }
            posted += 1;
        }
        pair.step();
        for wc in pair.a.poll() {
            assert_eq!(wc.status, None, "{link:?} {case:?} seed {seed}");
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
fn total(link: &Link, case: Case) -> (f64, u64) {
    let runs = (1..5).map(|seed| time(link, case, 256, seed));
    let (ns, again) = runs.fold((0, 0), |(ns, again), run| (ns + run.0, again + run.1));
    (ns as f64, again)
}

#[test]
fn a_lost_packet_costs_little_more_than_itself() {
    // proves: roce-143
    let lossy = Link { loss: 10, ..LINK };
    let (clean, none) = total(&LINK, write(IeqMode::Reorder));
    let (kept, again) = total(&lossy, write(IeqMode::Reorder));
    let (back, all) = total(&lossy, write(IeqMode::Off));
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

/// What is left of the speed of a good link, and packets sent again.
fn left(link: &Link, case: Case) -> (f64, u64) {
    let (clean, none) = total(&LINK, case);
    assert_eq!(none, 0, "{case:?}: nothing again without loss");
    let (lossy, again) = total(link, case);
    let left = clean / lossy;
    println!("{case:?} {link:?}: {left:.2}, {again} packets again");
    (left, again)
}

#[test]
fn devices_of_one_kind_mend_all_holes_at_once() {
    // proves: sack-1
    let one_in_a_hundred = Link { loss: 10, ..LINK };
    let one_in_a_thousand = Link { loss: 1, ..LINK };
    for read in [false, true] {
        let (kept, again) = left(&one_in_a_hundred, own(read));
        assert!(kept >= 0.8, "{kept}");
        // 4 times 256 messages of 16 packets, of which one in a hundred is lost: little more.
        assert!(again < 164 * 2, "{again}");
        assert!(left(&one_in_a_thousand, own(read)).0 >= 0.95);
    }
    // Many are lost: still none is sent again for nothing.
    let (_, again) = left(&Link { loss: 100, ..LINK }, own(false));
    assert!(again < 1640 * 3 / 2, "{again}");
}

#[test]
fn late_packets_do_not_hold_up_devices_of_one_kind() {
    // proves: roce-145, sack-1
    let shuffled = Link {
        reorder: 50,
        ..LINK
    };
    for read in [false, true] {
        assert!(left(&shuffled, own(read)).0 >= 0.9);
    }
}

#[test]
fn a_read_loses_little_with_its_responses() {
    // proves: roce-70
    let lossy = Link { loss: 10, ..LINK };
    let strange = |mode| Case {
        mode,
        read: true,
        own: false,
    };
    let (kept, _) = left(&lossy, strange(IeqMode::Reorder));
    assert!(kept >= 0.6, "{kept}");
    let (back, _) = left(&lossy, strange(IeqMode::Off));
    assert!(kept / back >= 3.0, "{kept} {back}");
}

#[test]
fn reads_that_land_on_each_other_get_on() {
    // proves: roce-70
    let lossy = Link { loss: 10, ..LINK };
    let case = own(true);
    let one = |link: &Link| {
        (1..5)
            .map(|seed| time_at(link, case, 256, seed, 1).0)
            .sum::<u64>()
    };
    let left = one(&LINK) as f64 / one(&lossy) as f64;
    println!("{left:.2}");
    assert!(left >= 0.15, "{left}");
}

#[test]
fn a_late_packet_costs_next_to_nothing() {
    // proves: roce-145
    let shuffled = Link {
        reorder: 50,
        ..LINK
    };
    let (clean, _) = total(&LINK, write(IeqMode::Reorder));
    let (kept, again) = total(&shuffled, write(IeqMode::Reorder));
    let (back, all) = total(&shuffled, write(IeqMode::Off));
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
    let (_, again) = total(&shuffled, write(IeqMode::Reorder));
    // A few at first, until the receiver has seen how late packets may be.
    println!("{again} packets again");
    assert!(again <= 4 * 16, "{again}");
}
