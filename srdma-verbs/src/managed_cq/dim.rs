//! Adaptive moderation: how long an event waits follows how completions come.   [events 3.7]
//!
//! ```text
//! sample ─► 64 of them ─► rates ─► better, same, worse than before ─► a profile up, down, or keep
//! ```
//!
//! A run of a poll context is a sample: how many completions it handled. Few a run want an event at
//! once; many a run cost less when their events wait. Nothing here knows a queue or a clock.

/// Profiles: microseconds that an event may wait, and completions that it may wait for.
const PROFILES: [(u16, u16); 9] = [
    (1, 1),
    (1, 4),
    (2, 4),
    (2, 8),
    (4, 8),
    (16, 8),
    (16, 16),
    (32, 16),
    (32, 32),
];
/// The last profile.
const LAST: u8 = 8;
const _: () = assert!(LAST as usize + 1 == PROFILES.len());
/// Samples of a measurement.
const SAMPLES: u16 = 64;
/// Percent by which a rate has to differ to mean something.
const SIGNIFICANT: u64 = 10;
/// Completions a hundred runs that the lowest profile but `n` is worth, for each step.
const WORTH: u64 = 50;

/// How long an event may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) micros: u16,
    pub(crate) completions: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next sample starts a measurement.
    Start,
    /// Samples are counted.
    Measuring,
    /// A decision waits to be carried out.
    Apply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Better,
    Worse,
}

/// Samples and completions so far, and when; counters wrap.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    micros: u64,
    events: u16,
    completions: u32,
}

/// Rates of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    /// Completions a millisecond.
    completions: u64,
    /// Completions of a hundred runs.
    ratio: u64,
}

/// The moderation of one queue.
#[derive(Debug)]
pub(crate) struct Dim {
    state: State,
    going: Going,
    at: u8,
    prev: Rates,
    start: Sample,
    now: Sample,
}

impl Dim {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            going: Going::Right,
            at: 0,
            prev: Rates::default(),
            start: Sample::default(),
            now: Sample::default(),
        }
    }

    /// The profile that was decided on last.
    pub(crate) fn profile(&self) -> Profile {
        let (micros, completions) = PROFILES
            .get(usize::from(self.at))
            .copied()
            .unwrap_or((1, 1));
        Profile {
            micros,
            completions,
        }
    }

    /// A run handled so many completions. Gives a profile to be set; samples are ignored until
    /// [`Self::applied`].
    // rule: mcq-12
    pub(crate) fn sample(&mut self, micros: u64, completions: usize) -> Option<Profile> {
        let completions = u32::try_from(completions).unwrap_or(u32::MAX);
        self.now = Sample {
            micros,
            events: self.now.events.wrapping_add(1),
            completions: self.now.completions.wrapping_add(completions),
        };
        match self.state {
            State::Apply => None,
            State::Start => {
                self.begin();
                None
            }
            State::Measuring => {
                if self.now.events.wrapping_sub(self.start.events) < SAMPLES {
                    return None;
                }
                let rates = rates(&self.start, &self.now)?;
                if self.decide(rates) {
                    self.state = State::Apply;
                    return Some(self.profile());
                }
                self.begin();
                None
            }
        }
    }

    /// The profile is set.
    pub(crate) const fn applied(&mut self) {
        self.state = State::Start;
    }

    const fn begin(&mut self) {
        self.start = self.now;
        self.state = State::Measuring;
    }

    /// True if the profile changed.
    // rule: mcq-13
    fn decide(&mut self, rates: Rates) -> bool {
        let before = self.at;
        match compare(rates, self.prev) {
            Verdict::Same => {
                if rates.ratio <= WORTH * u64::from(self.at) {
                    self.at = 0;
                }
            }
            Verdict::Worse => {
                self.turn();
                self.step();
            }
            Verdict::Better => self.step(),
        }
        self.prev = rates;
        self.at != before
    }

    // rule: mcq-14
    const fn step(&mut self) {
        match self.going {
            Going::Right if self.at < LAST => self.at += 1,
            Going::Left if self.at > 0 => self.at -= 1,
            _ => self.turn(),
        }
    }

    const fn turn(&mut self) {
        self.going = match self.going {
            Going::Right => Going::Left,
            Going::Left => Going::Right,
        };
    }
}

/// `None` if no time has passed.
fn rates(start: &Sample, end: &Sample) -> Option<Rates> {
    let micros = end.micros.saturating_sub(start.micros);
    if micros == 0 {
        return None;
    }
    let completions = u64::from(end.completions.wrapping_sub(start.completions));
    let completions = (completions * 1000).div_ceil(micros);
    let runs = (u64::from(SAMPLES) * 1000).div_ceil(micros);
    let ratio = completions * 100 / runs;
    Some(Rates { completions, ratio })
}

fn compare(now: Rates, prev: Rates) -> Verdict {
    if prev.completions == 0 {
        return Verdict::Same;
    }
    let differ = |now: u64, prev: u64| {
        let percent = (now.abs_diff(prev) * 100).checked_div(prev);
        percent.is_some_and(|percent| percent > SIGNIFICANT)
    };
    let (now, prev) = if differ(now.completions, prev.completions) {
        (now.completions, prev.completions)
    } else if differ(now.ratio, prev.ratio) {
        (now.ratio, prev.ratio)
    } else {
        return Verdict::Same;
    };
    if now > prev {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}

#[cfg(test)]
mod tests;
