//! What is measured together, and how its rows are put together.
//!
//! A group is measured round by round, each measurement once a round: so a figure and what it is
//! compared with are seconds apart, whatever else the machine does.

use super::measure::{Measure, Setting};
use super::sample::Metric;
use crate::cmd::limit::Kind;
use crate::cmd::perf::case::Case;
use crate::units;

/// What round trips are compared with.
pub(super) const SPIN: &str = "spinning ping-pong";

/// Measurements that are compared with each other.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) measures: Vec<Measure>,
    pub(super) lines: Vec<Line>,
    /// Most rounds.
    pub(super) rounds: usize,
}

/// One row of the result.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) title: String,
    /// Which measurement of the group.
    pub(super) of: usize,
    pub(super) metric: Metric,
    pub(super) against: Against,
    pub(super) goal: Option<Goal>,
    /// The goal is missed, too, if a packet found a socket full.
    pub(super) lossless: bool,
    pub(super) point: Option<Point>,
}

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Against {
    Nothing,
    /// The same figure of another measurement of the group.
    Measure(usize, &'static str),
    /// Another figure of the same measurement.
    Metric(Metric, &'static str),
    /// A number.
    Value(f64),
}

/// What the ratio must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// Where a row stands in a plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) plot: Plot,
    pub(super) series: &'static str,
    pub(super) x: f64,
}

/// The plots of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plot {
    Throughput,
    Latency,
    Rate,
    Goodput,
}

impl Group {
    /// An empty one.
    pub(super) const fn new(title: &'static str, rounds: usize) -> Self {
        Self {
            title,
            measures: Vec::new(),
            lines: Vec::new(),
            rounds,
        }
    }

    pub(super) fn add(&mut self, measure: Measure) -> usize {
        self.measures.push(measure);
        self.measures.len() - 1
    }

    pub(super) fn limit(&mut self, kind: Kind, mtu: u16, setting: Setting) -> usize {
        self.add(Measure::Limit { kind, mtu, setting })
    }

    pub(super) fn case(&mut self, case: Case, setting: Setting) -> usize {
        self.add(Measure::Case { case, setting })
    }

    pub(super) fn line(
        &mut self,
        title: &str,
        of: usize,
        metric: Metric,
        against: Against,
    ) -> &mut Line {
        let at = self.lines.len();
        let line = Line {
            title: title.to_owned(),
            of,
            metric,
            against,
            goal: None,
            lossless: false,
            point: None,
        };
        self.lines.push(line);
        let (_, new) = self.lines.split_at_mut(at);
        let line = new.first_mut();
        line.unwrap_or_else(|| unreachable!("it was just pushed"))
    }

    /// The same case with the receive buffer that most users have.
    pub(super) fn capped(&mut self, name: &str, case: &Case, usual: usize, metric: Metric) {
        let of = self.case(*case, Setting::Capped);
        let title = format!("{name}, receive buffer of 212,992 B");
        let line = self.line(
            &title,
            of,
            metric,
            Against::Measure(usual, "without the cap"),
        );
        line.goal(Goal::AtLeast(0.85)).lossless = true;
    }

    pub(super) fn last_point(&mut self, plot: Plot, series: &'static str, x: f64) {
        if let Some(line) = self.lines.last_mut() {
            line.point(plot, series, x);
        }
    }

    /// Rows of a round trip's percentiles, for the plot.
    pub(super) fn percentiles(&mut self, of: usize, limit: usize, size: u32) {
        for (metric, series) in [
            (Metric::P50, "SEND p50"),
            (Metric::P99, "SEND p99"),
            (Metric::P999, "SEND p99.9"),
        ] {
            let title = format!("{series}, {}", units::size(size));
            self.line(&title, of, metric, Against::Measure(limit, SPIN))
                .point(Plot::Latency, series, size.into());
        }
    }
}

impl Line {
    pub(super) fn goal(&mut self, goal: Goal) -> &mut Self {
        self.goal = Some(goal);
        self
    }

    pub(super) fn point(&mut self, plot: Plot, series: &'static str, x: f64) -> &mut Self {
        self.point = Some(Point { plot, series, x });
        self
    }
}
