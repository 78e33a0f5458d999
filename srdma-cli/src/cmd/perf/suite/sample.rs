//! What one measurement found: figures by what they are of, and why there may be none.

use crate::cmd::limit::{Report, Rtt};
use crate::cmd::perf::row::Figures;
use crate::error::{CliError, chain};
use crate::units;
use serde::{Deserialize, Serialize};

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Metric {
    /// Bytes a second.
    Bytes,
    /// Messages a second.
    Messages,
    /// Percentiles of a time, in nanoseconds.
    P50,
    P99,
    P999,
    /// Packets that found a socket full.
    Dropped,
    /// From opening a device to the end of its first message, in nanoseconds.
    Startup,
    /// Queue pairs made and connected, a second.
    Connects,
    /// Memory of a queue pair beside its rings, in bytes.
    QpBytes,
    /// Queue pairs that moved a message.
    Worked,
    /// Regions registered and deregistered, a second.
    Registers,
    /// The same of one region, in nanoseconds: of 4 KiB and of 1 GiB.
    SmallRegion,
    BigRegion,
    /// Time that threads ran while there was nothing to do, as a share of one core.
    IdleShare,
    /// The size of a file.
    FileBytes,
}

impl Metric {
    /// The name of its unit in JSON.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Bytes => "B/s",
            Self::Messages => "msg/s",
            Self::P50
            | Self::P99
            | Self::P999
            | Self::Startup
            | Self::SmallRegion
            | Self::BigRegion => "ns",
            Self::Connects | Self::Registers => "1/s",
            Self::QpBytes | Self::FileBytes => "B",
            Self::Dropped | Self::Worked => "1",
            Self::IdleShare => "cores",
        }
    }

    /// A figure for people.
    pub(super) fn show(self, value: f64) -> String {
        match self.unit() {
            "B/s" => units::bytes_per_sec(value),
            "msg/s" => units::msgs_per_sec(value),
            "ns" => units::nanos(whole(value)),
            "1/s" => units::per_sec(value),
            "B" if value >= 100_000.0 => format!("{:.2} MiB", value / f64::from(1 << 20)),
            "B" => format!("{value:.0} B"),
            "cores" => format!("{value:.4} cores"),
            _ => format!("{value:.0}"),
        }
    }
}

/// Rounded, for a value that is no less than zero and far below 2^53.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates"
)]
const fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// All figures of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample(Vec<(Metric, f64)>);

impl Sample {
    /// With one more figure.
    pub(super) fn with(mut self, metric: Metric, value: f64) -> Self {
        self.0.push((metric, value));
        self
    }

    /// A figure, if it was measured.
    pub(super) fn get(&self, metric: Metric) -> Option<f64> {
        let found = self.0.iter().find(|(known, _)| *known == metric);
        found.map(|(_, value)| *value)
    }

    fn rtt(self, rtt: Option<Rtt>) -> Self {
        let Some(rtt) = rtt else { return self };
        self.with(Metric::P50, float(rtt.p50))
            .with(Metric::P99, float(rtt.p99))
            .with(Metric::P999, float(rtt.p999))
    }
}

/// Exact for what is measured here: far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "figures have three digits")]
pub(super) const fn float(value: u64) -> f64 {
    value as f64
}

impl From<Figures> for Sample {
    fn from(figures: Figures) -> Self {
        let mut sample = Self::default().with(Metric::Dropped, float(figures.dropped));
        if let Some(bytes) = figures.bytes_per_sec {
            sample = sample.with(Metric::Bytes, bytes);
        }
        if let Some(messages) = figures.msgs_per_sec {
            sample = sample.with(Metric::Messages, messages);
        }
        sample.rtt(figures.rtt)
    }
}

impl From<Report> for Sample {
    fn from(report: Report) -> Self {
        Self::default()
            .with(Metric::Bytes, report.bytes_per_sec())
            .with(Metric::Messages, report.packets_per_sec())
            .with(Metric::Dropped, float(report.lost))
            .rtt(report.rtt_ns)
    }
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// This machine does not offer what it takes.
    Skipped(String),
    /// It was tried.
    Failed(String),
}

impl From<CliError> for Missing {
    fn from(error: CliError) -> Self {
        Self::Failed(chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_what_they_are_of() {
        let rtt = Rtt {
            p50: 5000,
            p99: 7000,
            p999: 9000,
        };
        let sample = Sample::from(Figures {
            rtt: Some(rtt),
            dropped: 2,
            ..Figures::default()
        });
        assert_eq!(sample.get(Metric::P99), Some(7000.0));
        assert_eq!(sample.get(Metric::Dropped), Some(2.0));
        assert_eq!(sample.get(Metric::Bytes), None);
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }

    #[test]
    fn people_see_units() {
        assert_eq!(Metric::P50.show(4213.0), "4.21 µs");
        assert_eq!(Metric::Connects.show(20_000.0), "20.0 k/s");
        assert_eq!(Metric::QpBytes.show(1234.4), "1234 B");
        assert_eq!(Metric::FileBytes.show(1_048_576.0), "1.00 MiB");
        assert_eq!(Metric::IdleShare.show(0.0), "0.0000 cores");
    }
}
