//! The board with real threads.

use super::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

fn taken(board: &Board) -> Vec<Doorbell> {
    let mut seen = Vec::new();
    board.take(|what| seen.push(what));
    seen
}

#[test]
fn all_kinds_are_visited_once_and_control_first() {
    let board = Board::new();
    assert!(!board.is_dirty() && taken(&board).is_empty());
    let wake = || panic!("nobody sleeps");
    board.ring(Doorbell::Sq(Qpn::new(5)), wake);
    board.ring(Doorbell::Sq(Qpn::new(5)), wake);
    board.ring(Doorbell::Cq(CqId(6)), wake);
    board.ring(Doorbell::Srq(SrqId(7)), wake);
    board.ring(Doorbell::Irq(MsixVector(8)), wake);
    board.ring(Doorbell::AeqAck { entries: 2 }, wake);
    board.ring(Doorbell::AeqAck { entries: 3 }, wake);
    board.ring(Doorbell::Cqp, wake);
    assert!(board.is_dirty());
    let want = [
        Doorbell::Cqp,
        Doorbell::AeqAck { entries: 5 },
        Doorbell::Irq(MsixVector(8)),
        Doorbell::Srq(SrqId(7)),
        Doorbell::Cq(CqId(6)),
        Doorbell::Sq(Qpn::new(5)),
    ];
    assert_eq!(taken(&board), want);
    assert!(!board.is_dirty() && taken(&board).is_empty());
}

#[test]
fn any_set_of_numbers_comes_back() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let board = Board::new();
    for _ in 0..50 {
        let mut want = BTreeSet::new();
        for _ in 0..random.usize(1..200) {
            let near = [0, 0xff_ffff, random.u32(..1 << 24), random.u32(..200)];
            let number = near[random.usize(..near.len())];
            want.insert(number);
            board.mark(Doorbell::Sq(Qpn::new(number)));
        }
        let mut seen = BTreeSet::new();
        assert!(board.take(|what| {
            let Doorbell::Sq(qpn) = what else {
                panic!("{what:?}")
            };
            assert!(seen.insert(qpn.value()), "visited twice");
        }));
        assert_eq!(seen, want);
    }
}

#[test]
fn a_number_beyond_the_set_is_ignored() {
    let board = Board::new();
    board.ring(Doorbell::Cq(CqId(1 << 24)), || ());
    board.ring(Doorbell::Srq(SrqId(u32::MAX)), || ());
    assert!(!board.is_dirty());
}

#[test]
fn a_sleeper_is_woken_once() {
    let board = Board::new();
    let mut wakes = 0;
    assert!(board.prepare_sleep());
    board.mark(Doorbell::Cqp);
    for _ in 0..3 {
        board.ring(Doorbell::Sq(Qpn::new(1)), || wakes += 1);
    }
    assert_eq!(wakes, 1);
    assert!(!board.prepare_sleep(), "something is rung");
    board.ring(Doorbell::Cqp, || panic!("the announcement was withdrawn"));
    board.take(|_| ());
    assert!(board.prepare_sleep());
    board.awake();
    board.ring(Doorbell::Cqp, || panic!("it is awake"));
}

/// Two threads ring and wait until they were heard; the driver sleeps whenever it can. A ring or
/// wake-up that gets lost stops the test for good.
#[test]
fn no_ring_and_no_wake_up_is_lost() {
    const ROUNDS: usize = 20_000;
    let board = Arc::new(Board::new());
    let heard = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let rung = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let driver = std::thread::current();
    let ringers: Vec<_> = (0..2usize)
        .map(|me| {
            let (board, heard, rung) = (Arc::clone(&board), Arc::clone(&heard), Arc::clone(&rung));
            let driver = driver.clone();
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    rung[me].store(round, std::sync::atomic::Ordering::Relaxed);
                    let qpn = Qpn::new(u32::try_from(me * 4097 + round % 3).unwrap());
                    board.ring(Doorbell::Sq(qpn), || driver.unpark());
                    while heard[me].load(std::sync::atomic::Ordering::Relaxed) < round {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut sleeps = 0;
    while heard
        .iter()
        .any(|count| count.load(std::sync::atomic::Ordering::Relaxed) < ROUNDS)
    {
        let any = board.take(|what| {
            let Doorbell::Sq(qpn) = what else {
                panic!("{what:?}")
            };
            let who = usize::from(qpn.value() >= 4096);
            let round = rung[who].load(std::sync::atomic::Ordering::Relaxed);
            heard[who].store(round, std::sync::atomic::Ordering::Relaxed);
        });
        if !any && board.prepare_sleep() {
            sleeps += 1;
            // A token of an earlier wake-up may end this at once, which does no harm. The last
            // round may have been heard already: nobody would wake us.
            if heard
                .iter()
                .any(|c| c.load(std::sync::atomic::Ordering::Relaxed) < ROUNDS)
            {
                std::thread::park();
            }
            board.awake();
        }
    }
    for ringer in ringers {
        ringer.join().unwrap();
    }
    println!("slept {sleeps} times");
}

/// Cost of a ring: `cargo test --release -p srdma-core --lib board -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost() {
    const ROUNDS: u32 = 10_000_000;
    let board = Board::new();
    let what = Doorbell::Sq(Qpn::new(0x1234));
    let time = |name: &str, each: &dyn Fn()| {
        let start = std::time::Instant::now();
        for _ in 0..ROUNDS {
            each();
        }
        println!(
            "{name}: {:.1} ns",
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        );
    };
    time("ring, not taken", &|| board.ring(what, || ()));
    time("ring and take", &|| {
        board.ring(what, || ());
        board.take(|_| ());
    });
    time("take of nothing", &|| {
        board.take(|_| ());
    });
}
