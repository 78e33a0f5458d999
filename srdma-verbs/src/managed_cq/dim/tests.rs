//! Decisions against a table worked out by hand from the rules, and a search for its edges.

use super::*;

/// Feeds one measurement: 64 runs of `each` completions within `micros`.
fn measure(dim: &mut Dim, each: usize, micros: u64) -> Option<Profile> {
    if dim.state == State::Start {
        assert_eq!(dim.sample(dim.now.micros, 0), None, "it only starts");
    }
    let end = dim.now.micros + micros;
    for run in 1..u64::from(SAMPLES) {
        let at = end - micros + micros * run / u64::from(SAMPLES);
        assert_eq!(dim.sample(at, each), None, "no decision before 64");
    }
    dim.sample(end, each)
}

fn at(ix: u8, going: Going, prev: (u64, u64)) -> Dim {
    let prev = Rates {
        completions: prev.0,
        ratio: prev.1,
    };
    Dim {
        at: ix,
        going,
        prev,
        ..Dim::new()
    }
}

#[test]
fn the_profiles_are_nine() {
    // proves: mcq-14
    let expected = "1,1 1,4 2,4 2,8 4,8 16,8 16,16 32,16 32,32";
    let found: Vec<String> = (0..=LAST)
        .map(|ix| {
            let profile = at(ix, Going::Left, (0, 0)).profile();
            format!("{},{}", profile.micros, profile.completions)
        })
        .collect();
    assert_eq!(found.join(" "), expected);
}

#[test]
fn nothing_is_decided_before_64_samples() {
    // proves: mcq-12
    let mut dim = Dim::new();
    for at in 0..=64 {
        // The first starts; 63 more are too few.
        assert_eq!(dim.sample(at, 9), None, "sample {at}");
    }
    // The first measurement has nothing to compare with: same, and a low profile is kept.
    assert_eq!((dim.at, dim.state), (0, State::Measuring));
    assert_ne!(dim.prev, Rates::default());

    let mut dim = at(3, Going::Right, (1000, 100));
    let decided = measure(&mut dim, 1000, 64_000).unwrap();
    assert_eq!(decided, dim.profile());
    for micros in 0..1000 {
        assert_eq!(dim.sample(100_000 + micros, 1), None, "not applied yet");
    }
    dim.applied();
    assert!(measure(&mut dim, 2000, 64_000).is_some());

    // Without time there are no rates.
    let mut dim = at(3, Going::Right, (1000, 100));
    for _ in 0..1000 {
        assert_eq!(dim.sample(5, 100), None);
    }
    assert_eq!(dim.at, 3);
}

type Tuned = (u8, Going);
type Row = (Tuned, (u64, u64), (usize, u64), Tuned);

/// Profile and direction before, rates before, runs of so many completions in so many
/// microseconds; profile and direction afterwards.
#[rustfmt::skip]
const DECISIONS: &[Row] = &[
    // Nothing before: same. The ratio is 100 for one completion a run.
    ((0, Going::Right), (0, 0), (1, 64_000), (0, Going::Right)),
    ((1, Going::Right), (0, 0), (1, 64_000), (1, Going::Right)),
    ((2, Going::Right), (0, 0), (1, 64_000), (0, Going::Right)),
    ((8, Going::Left), (0, 0), (4, 64_000), (0, Going::Left)),
    ((8, Going::Left), (0, 0), (5, 64_000), (8, Going::Left)),
    // Ten percent are nothing; the ratio decides whether it stays.
    ((4, Going::Right), (10, 1000), (11, 64_000), (4, Going::Right)),
    ((4, Going::Right), (10, 1000), (9, 64_000), (4, Going::Right)),
    // Eleven are.
    ((4, Going::Right), (100, 10_000), (111, 64_000), (5, Going::Right)),
    ((4, Going::Right), (100, 10_000), (89, 64_000), (3, Going::Left)),
    ((4, Going::Left), (100, 10_000), (111, 64_000), (3, Going::Left)),
    ((4, Going::Left), (100, 10_000), (89, 64_000), (5, Going::Right)),
    // The same rate, and a better or a worse ratio.
    ((4, Going::Right), (100, 9_000), (100, 64_000), (5, Going::Right)),
    ((4, Going::Right), (100, 12_000), (100, 64_000), (3, Going::Left)),
    ((4, Going::Right), (100, 0), (100, 64_000), (4, Going::Right)),
    // At the edges it turns and stays.
    ((8, Going::Right), (10, 1000), (20, 64_000), (8, Going::Left)),
    ((0, Going::Left), (10, 1000), (20, 64_000), (0, Going::Right)),
    ((8, Going::Left), (20, 2000), (10, 64_000), (8, Going::Left)),
    ((0, Going::Right), (20, 2000), (10, 64_000), (0, Going::Right)),
    // Rates are rounded up: 640 in 100 seconds are one a millisecond, and so are 64 runs.
    ((3, Going::Right), (1, 100), (10, 100_000_000), (0, Going::Right)),
];

#[test]
fn decisions_are_those_of_the_table() {
    // proves: mcq-13
    for (ix, (before, prev, (each, micros), after)) in DECISIONS.iter().enumerate() {
        let mut dim = at(before.0, before.1, *prev);
        let changed = measure(&mut dim, *each, *micros);
        assert_eq!((dim.at, dim.going), *after, "row {ix}");
        assert_eq!(changed.is_some(), before.0 != after.0, "row {ix}");
        assert_ne!(dim.prev, Rates::default(), "row {ix}: remembered");
    }
}

#[test]
fn whatever_comes_the_profile_is_one_of_the_nine() {
    // proves: mcq-14
    let seed = 0x5eed_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut dim = Dim::new();
    let mut seen = [false; PROFILES.len()];
    for _ in 0..200_000 {
        let micros = dim.now.micros + random(40);
        let most = 1 + random(300);
        let each = usize::try_from(random(most)).unwrap();
        if dim.sample(micros, each).is_some() {
            dim.applied();
        }
        assert!(dim.at <= LAST);
        seen[usize::from(dim.at)] = true;
    }
    assert_eq!(seen, [true; PROFILES.len()], "it goes everywhere");
}

#[test]
fn steady_growth_climbs_to_the_top_and_a_fall_comes_down() {
    let mut dim = Dim::new();
    let mut each = 10;
    for _ in 0..9 {
        if measure(&mut dim, each, 6_400).is_some() {
            dim.applied();
        }
        each *= 2;
    }
    assert_eq!(dim.at, LAST);
    let first = measure(&mut dim, each / 8, 6_400);
    assert!(first.is_some() && dim.at == LAST - 1 && dim.going == Going::Left);
}
