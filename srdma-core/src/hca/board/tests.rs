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
    board.mark(Doorbell::Sq(Qpn::new(5)));
    board.mark(Doorbell::Sq(Qpn::new(5)));
    board.mark(Doorbell::Cq(CqId(6)));
    board.mark(Doorbell::Srq(SrqId(7)));
    board.mark(Doorbell::Irq(MsixVector(8)));
    board.mark(Doorbell::AeqAck { entries: 2 });
    board.mark(Doorbell::AeqAck { entries: 3 });
    board.mark(Doorbell::Cqp);
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
    board.mark(Doorbell::Cq(CqId(1 << 24)));
    board.mark(Doorbell::Srq(SrqId(u32::MAX)));
    assert!(!board.is_dirty());
}

/// Two threads ring and wait until they were heard. A ring that gets lost stops the test for good.
#[test]
fn no_ring_is_lost() {
    const ROUNDS: usize = 20_000;
    let board = Arc::new(Board::new());
    let heard = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let rung = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let ringers: Vec<_> = (0..2usize)
        .map(|me| {
            let (board, heard, rung) = (Arc::clone(&board), Arc::clone(&heard), Arc::clone(&rung));
            std::thread::spawn(move || {
                for round in 1..=ROUNDS {
                    rung[me].store(round, std::sync::atomic::Ordering::Relaxed);
                    let qpn = Qpn::new(u32::try_from(me * 4097 + round % 3).unwrap());
                    board.mark(Doorbell::Sq(qpn));
                    while heard[me].load(std::sync::atomic::Ordering::Relaxed) < round {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
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
        if !any {
            std::thread::yield_now();
        }
    }
    for ringer in ringers {
        ringer.join().unwrap();
    }
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
    time("ring, not taken", &|| board.mark(what));
    time("ring and take", &|| {
        board.mark(what);
        board.take(|_| ());
    });
    time("take of nothing", &|| {
        board.take(|_| ());
    });
}
