//! Scores against a model that keeps every PSN by itself.

use super::*;
use std::collections::BTreeSet;

fn holes(score: &Score) -> Vec<(u32, u32)> {
    let holes = score.holes();
    holes.map(|hole| (hole.first.value(), hole.len)).collect()
}

#[test]
fn holes_are_what_is_missing_before_the_last_that_is_there() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for start in [0, 5000, 0xff_fff0, 0x7f_ff00] {
        let mut score = Score::default();
        // Numbers of the model do not wrap.
        let psn = |n: u32| Psn::new(start + n);
        let (mut una, mut there) = (0, BTreeSet::new());
        for _ in 0..4000 {
            score.begin(psn(una));
            let span = random.u32(1..200);
            let n = una + random.u32(..span);
            if n == una {
                // In its turn: whoever owns the score sees to it.
                score.fill(psn(n));
                una += 1;
                while there.remove(&una) {
                    una += 1;
                }
                assert_eq!(score.advance(psn(n + 1)), psn(una), "seed {seed}");
            } else {
                let fresh = score.settle(psn(n), psn(una), Instant(0)).is_ok();
                assert_eq!(fresh, there.insert(n), "seed {seed}");
            }
            let mut model: Vec<(u32, u32)> = Vec::new();
            for n in una..there.last().copied().unwrap_or(una) {
                match model.last_mut() {
                    _ if there.contains(&n) => {}
                    Some((first, len)) if *first + *len == n => *len += 1,
                    _ => model.push((n, 1)),
                }
            }
            let model: Vec<_> = model
                .into_iter()
                .map(|(first, len)| (psn(first).value(), len))
                .collect();
            if model.len() < MAX_HOLES {
                assert_eq!(holes(&score), model, "seed {seed}");
            }
            assert_eq!(score.is_idle(), there.is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn a_hole_is_asked_for_again_later_and_later_or_when_it_is_outlived() {
    let (una, wait) = (Psn::new(10), 5);
    let mut score = Score::default();
    score.begin(una);
    score.settle(Psn::new(13), una, Instant(1000)).unwrap();
    assert_eq!(score.next_due(wait, |_| true), Some(Instant(1005)));
    assert!(score.due(Instant(1004), wait, 0).is_none());
    let (at, hole) = score.due(Instant(1005), wait, 0).unwrap();
    assert_eq!((at, hole.first, hole.len), (0, una, 3));
    let mut now = 1005;
    for times in 0..12 {
        score.asked(0, Instant(now), 100, Psn::new(20));
        now += 100 << u32::min(times, MAX_DOUBLINGS);
        assert_eq!(
            score.next_due(wait, |_| true),
            Some(Instant(now)),
            "{times}"
        );
    }
    score.outlived(Psn::new(19), Instant(now));
    score.asked(0, Instant(now), 100, Psn::new(20));
    assert_ne!(score.next_due(wait, |_| true), Some(Instant(now + 5)));
    score.outlived(Psn::new(20), Instant(now));
    assert_eq!(score.next_due(wait, |_| true), Some(Instant(now + 5)));
    // A part that comes leaves the rest of what was known.
    let filled = score.fill(Psn::new(11)).unwrap();
    assert_eq!((filled.since, filled.times), (Instant(now), 13));
    assert_eq!(holes(&score), [(10, 1), (12, 1)]);
}

#[test]
fn what_is_sent_again_anyway_has_no_holes() {
    let una = Psn::new(0);
    let mut score = Score::default();
    for n in [3, 6, 9] {
        score.settle(Psn::new(n), una, Instant(0)).unwrap();
    }
    score.forget_holes(Psn::new(5));
    assert_eq!(holes(&score), [(0, 3), (4, 1)]);
    // What is there is not missing, whatever comes behind it.
    score.settle(Psn::new(11), una, Instant(0)).unwrap();
    assert_eq!(holes(&score), [(0, 3), (4, 1), (5, 1), (7, 2), (10, 1)]);
    score.insist(Psn::new(12), 1, una);
    score.settle(Psn::new(14), una, Instant(0)).unwrap();
    assert_eq!(holes(&score).last(), Some(&(12, 2)));
}

#[test]
fn holes_are_bounded() {
    let una = Psn::new(0);
    let mut score = Score::default();
    for n in 0..1000 {
        let _ = score.settle(Psn::new(2 * n + 1), una, Instant(0));
    }
    assert_eq!(holes(&score).len(), MAX_HOLES);
    for psn in [MAX_PSN_WINDOW, 0xff_ffff] {
        let outside = score.settle(Psn::new(psn), una, Instant(0));
        outside.unwrap_err();
    }
}

#[test]
fn the_next_is_no_other() {
    let (una, now) = (Psn::new(100), Instant(1));
    let mut score = Score::default();
    assert!(!score.is_next(una, una), "nothing is known");
    score.begin(una);
    score.settle(Psn::new(101), una, now).unwrap();
    assert!(score.is_next(Psn::new(102), una));
    assert!(!score.is_next(Psn::new(103), una) && !score.is_next(Psn::new(101), una));
    score.settle_next(Psn::new(102));
    assert_eq!(score.settle(Psn::new(103), una, now), Ok(Settled::Next));
    // One that is asked for at once, though nothing behind it came, fills a hole.
    score.insist(Psn::new(104), 1, una);
    assert!(!score.is_next(Psn::new(104), una));
}
