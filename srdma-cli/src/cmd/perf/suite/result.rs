//! From rounds of measurements to rows: medians, ratios, and whether goals hold.
//!
//! The ratio is that of each round, and then their median: what disturbs a whole round moves both
//! its figures. A row without any whole round says why.

use super::group::{Against, Goal, Group, Line, Plot};
use super::sample::{Metric, Missing, Sample};
use crate::error::{CliError, Result};
use serde::Serialize;

/// What one measurement found in each round.
pub(super) type Rounds = Vec<core::result::Result<Sample, Missing>>;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) row: String,
    #[serde(skip)]
    pub(super) metric: Metric,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) figure: Option<f64>,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<f64>,
    /// What the limit is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    /// Lowest and highest ratio of a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spread: Option<[f64; 2]>,
    pub(super) rounds: usize,
    /// Packets that found a socket full, of all rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holds: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
    #[serde(skip)]
    pub(super) point: Option<(Plot, &'static str, f64)>,
}

impl Row {
    /// As JSON.
    pub(super) fn json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|_| CliError::garbled("program", "row"))
    }
}

impl Goal {
    /// Whether a ratio reaches it.
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }

    /// For people.
    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least:.2}"),
            Self::AtMost(most) => format!("≤ {most:.2}"),
        }
    }
}

/// The rows of a group, of whose measurements `rounds` tells.
pub(super) fn rows(group: &Group, rounds: &[Rounds]) -> Vec<Row> {
    let one = |line| row(group.title, line, rounds);
    group.lines.iter().map(one).collect()
}

fn row(title: &'static str, line: &Line, rounds: &[Rounds]) -> Row {
    let empty = Rounds::new();
    let of = rounds.get(line.of).unwrap_or(&empty);
    let (other, against) = match line.against {
        Against::Measure(other, name) => (rounds.get(other), Some(name)),
        Against::Metric(_, name) => (None, Some(name)),
        Against::Value(_) => (None, Some("goal")),
        Against::Nothing => (None, None),
    };
    let mut pairs = Vec::new();
    let mut missing = None;
    for (at, sample) in of.iter().enumerate() {
        let other = other.and_then(|other| other.get(at));
        match pair(line, sample, other) {
            Ok(pair) => pairs.push(pair),
            Err(why) => missing = missing.or(Some(why)),
        }
    }
    let mut ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median_of = |pick: fn(&(f64, Option<f64>)) -> Option<f64>| {
        median(pairs.iter().filter_map(pick).collect())
    };
    let dropped = line.lossless.then(|| {
        let samples = of.iter().flatten();
        samples
            .filter_map(|sample| sample.get(Metric::Dropped))
            .sum::<f64>()
    });
    let ratio = median(ratios.clone());
    let no_loss = dropped.is_none_or(|dropped| dropped <= 0.0);
    let holds = line.goal.zip(ratio);
    // Without any figure, the reason counts; with some, the rest were bad luck.
    let why = missing.filter(|_| pairs.is_empty());
    let (skipped, failed) = match why {
        Some(Missing::Skipped(text)) => (Some(text), None),
        Some(Missing::Failed(text)) => (None, Some(text)),
        None => (None, None),
    };
    Row {
        group: title,
        row: line.title.clone(),
        metric: line.metric,
        figure: median_of(|pair| Some(pair.0)),
        unit: line.metric.unit(),
        limit: median_of(|pair| pair.1),
        against,
        ratio,
        spread: ratios
            .first()
            .copied()
            .zip(ratios.last().copied())
            .map(Into::into),
        rounds: pairs.len(),
        dropped,
        goal: line.goal.map(Goal::text),
        holds: holds.map(|(goal, ratio)| goal.holds(ratio) && no_loss),
        skipped,
        failed,
        point: line.point.map(|point| (point.plot, point.series, point.x)),
    }
}

type Found<'a> = &'a core::result::Result<Sample, Missing>;

/// The figure of a round and what it is compared with.
fn pair(
    line: &Line,
    sample: Found<'_>,
    other: Option<Found<'_>>,
) -> core::result::Result<(f64, Option<f64>), Missing> {
    let get = |sample: Found<'_>, metric| {
        let sample = sample.as_ref().map_err(Clone::clone)?;
        let figure = sample.get(metric);
        figure.ok_or_else(|| Missing::Failed("it was measured without this figure".to_owned()))
    };
    let figure = get(sample, line.metric)?;
    let limit = match (line.against, other) {
        (Against::Nothing, _) => None,
        (Against::Value(value), _) => Some(value),
        (Against::Metric(metric, _), _) => Some(get(sample, metric)?),
        (Against::Measure(..), Some(other)) => Some(get(other, line.metric)?),
        (Against::Measure(..), None) => {
            return Err(Missing::Failed("it has nothing to compare with".to_owned()));
        }
    };
    Ok((figure, limit))
}

fn ratio((figure, limit): &(f64, Option<f64>)) -> Option<f64> {
    let limit = limit.filter(|limit| *limit > 0.0)?;
    Some(figure / limit)
}

/// The one in the middle, or between the two there.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(high);
    }
    let low = *values.get(middle - 1)?;
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(goal: Goal, lossless: bool) -> Group {
        let mut group = Group::new("a group", 3);
        let line = group.line("a row", 1, Metric::Bytes, Against::Measure(0, "pump"));
        line.goal(goal).lossless = lossless;
        group
    }

    fn found(bytes: &[f64], dropped: f64) -> Rounds {
        let sample = |bytes: &f64| {
            let sample = Sample::default().with(Metric::Bytes, *bytes);
            Ok(sample.with(Metric::Dropped, dropped))
        };
        bytes.iter().map(sample).collect()
    }

    fn one(group: &Group, rounds: &[Rounds]) -> Row {
        rows(group, rounds).remove(0)
    }

    #[test]
    fn the_ratio_is_that_of_each_round() {
        let rounds = [found(&[10.0, 2.0, 4.0], 0.0), found(&[5.0, 2.0, 3.0], 0.0)];
        let row = one(&group(Goal::AtLeast(0.75), false), &rounds);
        assert_eq!((row.figure, row.limit), (Some(3.0), Some(4.0)));
        assert_eq!((row.ratio, row.spread), (Some(0.75), Some([0.5, 1.0])));
        assert_eq!((row.holds, row.rounds), (Some(true), 3));
        let row = one(&group(Goal::AtMost(0.74), false), &rounds);
        assert_eq!(row.holds, Some(false));
    }

    #[test]
    fn lost_packets_miss_a_goal() {
        let rounds = [found(&[1.0], 0.0), found(&[1.0], 1.0)];
        let row = one(&group(Goal::AtLeast(0.5), true), &rounds);
        assert_eq!((row.holds, row.dropped), (Some(false), Some(1.0)));
        let row = one(&group(Goal::AtLeast(0.5), false), &rounds);
        assert_eq!((row.holds, row.dropped), (Some(true), None));
    }

    #[test]
    fn what_is_missing_says_why() {
        let group = group(Goal::AtLeast(0.5), false);
        let why = |missing: &Missing| vec![Err(missing.clone())];
        let skipped = Missing::Skipped("no namespaces".to_owned());
        let row = one(&group, &[why(&skipped), found(&[1.0], 0.0)]);
        assert_eq!(row.skipped.as_deref(), Some("no namespaces"));
        assert_eq!(
            (row.holds, row.figure, row.failed.as_deref()),
            (None, None, None)
        );
        let failed = Missing::Failed("the peer is gone".to_owned());
        let row = one(&group, &[found(&[1.0], 0.0), why(&failed)]);
        assert_eq!(row.failed.as_deref(), Some("the peer is gone"));
        // One round of two is enough for a figure.
        let mut ours = why(&failed);
        ours.extend(found(&[1.0], 0.0));
        let row = one(&group, &[found(&[1.0, 2.0], 0.0), ours]);
        assert_eq!((row.ratio, row.rounds, row.failed), (Some(0.5), 1, None));
    }

    #[test]
    fn medians_of_few() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![2.0, 1.0]), Some(1.5));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn json_has_the_agreed_form() {
        let rounds = [found(&[4.0], 0.0), found(&[3.0], 0.0)];
        let row = one(&group(Goal::AtLeast(0.9), false), &rounds);
        assert_eq!(
            row.json().unwrap(),
            "{\"group\":\"a group\",\"row\":\"a row\",\"figure\":3.0,\"unit\":\"B/s\",\
             \"limit\":4.0,\"against\":\"pump\",\"ratio\":0.75,\"spread\":[0.75,0.75],\
             \"rounds\":1,\"goal\":\"≥ 0.90\",\"holds\":false}"
        );
    }
}
