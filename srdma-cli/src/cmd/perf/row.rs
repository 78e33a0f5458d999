//! One line of the result, as JSON and for people, and what it is compared with.
//!
//! | mode | limit | ratio |
//! |---|---|---|
//! | bw | GSO/GRO pump with CRC and one copy | ours / limit: more is better |
//! | rate | one-packet pump | ours / limit: above 1 is faster than a packet a call |
//! | lat | ping-pong, spinning for polling, blocking for events | p50 ours / limit: less is better |

use super::case::{Case, Mode, Op};
use crate::cmd::limit::{self, Kind, Report, Rtt, Setup};
use crate::error::{CliError, Result};
use crate::units;
use serde::{Deserialize, Serialize};

/// What a measurement found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    #[serde(skip)]
    pub(super) mtu: u16,
    /// Packets that found a socket full, on either side.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_sec: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) msgs_per_sec: Option<f64>,
    #[serde(rename = "rtt_ns", skip_serializing_if = "Option::is_none")]
    pub(super) rtt: Option<Rtt>,
}

impl Figures {
    /// Counts `rate` messages a second of `size` bytes to what was found.
    pub(super) fn add(&mut self, rate: f64, size: u32) {
        let bytes = rate * f64::from(size);
        self.msgs_per_sec = Some(self.msgs_per_sec.unwrap_or(0.0) + rate);
        self.bytes_per_sec = Some(self.bytes_per_sec.unwrap_or(0.0) + bytes);
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    op: Op,
    mode: Mode,
    size: u32,
    qps: u32,
    mtu: u16,
    events: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    both: bool,
    #[serde(flatten)]
    figures: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

/// The limits of this run, each measured when it is first asked for.
#[derive(Debug)]
pub(super) struct Limits {
    setup: Setup,
    known: Vec<(Kind, Report)>,
}

impl Limits {
    /// None measured yet.
    pub(super) const fn new(setup: Setup) -> Self {
        Self {
            setup,
            known: Vec::new(),
        }
    }

    /// The limit of a case.
    pub(super) fn of(&mut self, case: &Case) -> Result<Figures> {
        let kind = kind_of(case);
        let known = self.known.iter().find(|(known, _)| *known == kind);
        let report = match known {
            Some((_, report)) => *report,
            None => {
                let report = limit::measure(kind, &self.setup)?;
                self.known.push((kind, report));
                report
            }
        };
        Ok(Figures {
            mtu: self.setup.mtu,
            dropped: report.lost,
            bytes_per_sec: (case.mode == Mode::Bw).then(|| report.bytes_per_sec()),
            msgs_per_sec: (case.mode == Mode::Rate).then(|| report.packets_per_sec()),
            rtt: report.rtt_ns,
        })
    }
}

const fn kind_of(case: &Case) -> Kind {
    match (case.mode, case.events) {
        (Mode::Bw, _) => Kind::Bulk,
        (Mode::Rate, _) => Kind::Single,
        (Mode::Lat, false) => Kind::Spin,
        (Mode::Lat, true) => Kind::Block,
    }
}

impl Row {
    /// The line of a case.
    pub(super) fn new(case: &Case, figures: Figures, limit: Option<Figures>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a ratio has three digits")]
        let p50 = |figures: &Figures| figures.rtt.map(|rtt| rtt.p50 as f64);
        let figure = |figures: &Figures| match case.mode {
            Mode::Bw => figures.bytes_per_sec,
            Mode::Rate => figures.msgs_per_sec,
            Mode::Lat => p50(figures),
        };
        let ratio = |limit: &Figures| {
            let (ours, limit) = (figure(&figures)?, figure(limit)?);
            (limit > 0.0).then(|| ours / limit)
        };
        Self {
            op: case.op,
            mode: case.mode,
            size: case.size,
            qps: case.qps,
            mtu: figures.mtu,
            events: case.events,
            both: case.both,
            figures,
            limit,
            ratio: limit.as_ref().and_then(ratio),
        }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|_| CliError::garbled("program", "row"))
    }

    /// The heading above lines of this kind.
    pub(super) fn heading(&self) -> String {
        let (what, columns) = match self.mode {
            Mode::Lat => ("round trip", ["p50", "p99", "p99.9"]),
            Mode::Bw => ("bandwidth", ["", "", ""]),
            Mode::Rate => ("message rate", ["", "", ""]),
        };
        let (limit, ratio) = match self.limit {
            Some(_) => ("bare UDP", "ratio"),
            None => ("", ""),
        };
        line([what, "size", ""], columns, [limit, ratio])
    }

    /// For people, under [`Self::heading`].
    pub(super) fn text(&self) -> String {
        let name = match (self.op, self.mode) {
            (Op::Send, _) => "SEND",
            (Op::Write, _) => "WRITE",
            (Op::Read, _) => "READ",
            (Op::Atomic, Mode::Lat) => "CAS",
            (Op::Atomic, _) => "FETCH-ADD",
        };
        let limit = self.limit.map_or_else(String::new, |limit| {
            let [first, ..] = columns(self.mode, &limit);
            first
        });
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
        let how = if self.events { "events" } else { "polling" };
        let size = units::size(self.size);
        let figures = columns(self.mode, &self.figures);
        let figures = figures.each_ref().map(String::as_str);
        let limit = [&limit, ratio.as_deref().unwrap_or_default()];
        line([name, &size, how], figures, limit)
    }

    /// True if `other` stands under another heading.
    pub(super) fn differs(&self, other: &Self) -> bool {
        self.mode != other.mode
    }
}

/// The columns of the table, without blanks at the end.
fn line(name: [&str; 3], figures: [&str; 3], limit: [&str; 2]) -> String {
    let ([name, size, how], [a, b, c], [limit, ratio]) = (name, figures, limit);
    let text = format!("{name:14} {size:>8} {how:8} {a:>12} {b:>9} {c:>9} {limit:>12} {ratio:>6}");
    text.trim_end().to_owned()
}

fn columns(mode: Mode, figures: &Figures) -> [String; 3] {
    match (mode, figures.rtt) {
        (Mode::Lat, Some(rtt)) => [rtt.p50, rtt.p99, rtt.p999].map(units::nanos),
        (Mode::Bw, _) => {
            let rate = figures.bytes_per_sec.map(units::bytes_per_sec);
            [rate.unwrap_or_default(), String::new(), String::new()]
        }
        _ => {
            let rate = figures.msgs_per_sec.map(units::msgs_per_sec);
            [rate.unwrap_or_default(), String::new(), String::new()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn json_has_the_agreed_form() {
        let case = Case::new(Op::Write, Mode::Bw, Duration::from_secs(1));
        let figures = Figures {
            mtu: 4096,
            dropped: 0,
            bytes_per_sec: Some(2e9),
            msgs_per_sec: Some(2000.0),
            rtt: None,
        };
        let limit = Figures {
            bytes_per_sec: Some(4e9),
            ..Figures::default()
        };
        let row = Row::new(&case, figures, Some(limit));
        assert_eq!(
            row.json().unwrap(),
            "{\"op\":\"write\",\"mode\":\"bw\",\"size\":1048576,\"qps\":1,\"mtu\":4096,\
             \"events\":false,\"bytes_per_sec\":2000000000.0,\"msgs_per_sec\":2000.0,\
             \"limit\":{\"bytes_per_sec\":4000000000.0},\"ratio\":0.5}"
        );
        assert!(row.text().contains("2.00 GB/s") && row.text().contains("0.50"));
    }

    #[test]
    fn latency_is_compared_by_its_median() {
        let case = Case::new(Op::Atomic, Mode::Lat, Duration::from_secs(1)).events(true);
        let rtt = |p50| {
            Some(Rtt {
                p50,
                p99: p50 * 2,
                p999: p50 * 3,
            })
        };
        let figures = Figures {
            rtt: rtt(9000),
            ..Figures::default()
        };
        let limit = Figures {
            rtt: rtt(6000),
            ..Figures::default()
        };
        let json = Row::new(&case, figures, Some(limit)).json().unwrap();
        assert!(
            json.contains("\"rtt_ns\":{\"p50\":9000,\"p99\":18000,\"p999\":27000}"),
            "{json}"
        );
        assert!(json.ends_with("\"ratio\":1.5}"), "{json}");
        assert_eq!(kind_of(&case), Kind::Block);
        let json = Row::new(&case, figures, None).json().unwrap();
        assert!(!json.contains("limit") && !json.contains("ratio"), "{json}");
    }
}
