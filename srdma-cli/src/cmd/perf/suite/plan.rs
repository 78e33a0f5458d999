//! What the suite measures, in which order, and the goals.
//!
//! The numbers of the goals stand here alone.

use super::group::{Against, Goal, Group, Plot, SPIN};
use super::measure::{Measure, Setting};
use super::perftest::Program;
use super::probe::Probe;
use super::sample::Metric;
use crate::cmd::limit::Kind;
use crate::cmd::perf::case::{Case, Mode, Op};
use std::time::Duration;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
const MTU: u16 = 4096;
const OPS: [(Op, &str); 3] = [(Op::Send, "SEND"), (Op::Write, "WRITE"), (Op::Read, "READ")];
const PUMP: &str = "pump, CRC and copy";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// For each measurement.
    pub(super) duration: Duration,
    /// Of the usual groups.
    pub(super) rounds: usize,
    /// Queue pairs of the row of many, and of that of very many.
    pub(super) many: u32,
    pub(super) very_many: u32,
}

/// Everything.
pub(super) fn groups(extent: &Extent) -> Vec<Group> {
    let plan = Plan(extent);
    let mut groups = vec![
        plan.bandwidth("bandwidth, 1 MiB", MIB, 0.90),
        plan.bandwidth("bandwidth, 64 KiB", 64 * KIB, 0.85),
        plan.bandwidth("bandwidth, 4 KiB", 4 * KIB, 0.75),
        plan.both_ways(),
        plan.batches(),
        plan.one_by_one(),
        plan.polling(),
        plan.events(),
        plan.many(),
        plan.connecting(),
        plan.registering(),
        plan.idle(),
        plan.loss(),
        plan.cable(),
        plan.drop_in(),
        plan.start(),
    ];
    groups.extend([64, 256, KIB, 16 * KIB].map(|size| plan.size(size)));
    groups.extend([plan.latencies(), plan.queue_pairs()]);
    groups
}

struct Plan<'a>(&'a Extent);

impl Plan<'_> {
    fn case(&self, op: Op, mode: Mode) -> Case {
        Case::new(op, mode, self.0.duration)
    }

    const fn group(&self, title: &'static str) -> Group {
        Group::new(title, self.0.rounds)
    }

    /// All three operations beside the pump, and with a small receive buffer beside themselves.
    fn bandwidth(&self, title: &'static str, size: u32, goal: f64) -> Group {
        let mut group = self.group(title);
        let pump = group.limit(Kind::Bulk, MTU, Setting::Plain);
        let cases = OPS.map(|(op, name)| (name, self.case(op, Mode::Bw).sized(size)));
        let plain = cases.map(|(name, case)| (name, case, group.case(case, Setting::Plain)));
        for (name, _, of) in plain {
            group
                .line(name, of, Metric::Bytes, Against::Measure(pump, PUMP))
                .goal(Goal::AtLeast(goal))
                .point(Plot::Throughput, name, size.into());
        }
        for (name, case, usual) in plain {
            group.capped(name, &case, usual, Metric::Bytes);
        }
        group
    }

    fn both_ways(&self) -> Group {
        let mut group = self.group("bandwidth, 1 MiB, both directions");
        let pumps = group.limit(Kind::Opposed, MTU, Setting::Plain);
        let case = self.case(Op::Write, Mode::Bw).both_ways();
        let of = group.case(case, Setting::Plain);
        group
            .line(
                "WRITE",
                of,
                Metric::Bytes,
                Against::Measure(pumps, "opposed pumps"),
            )
            .goal(Goal::AtLeast(0.90));
        group
    }

    fn batches(&self) -> Group {
        let mut group = self.group("rate, 64 B, batches");
        let pump = group.limit(Kind::Many, MTU, Setting::Plain);
        let against = Against::Measure(pump, "64-segment pump");
        let mut usual = Vec::new();
        for (op, name) in [(Op::Send, "SEND"), (Op::Write, "WRITE")] {
            let one = self.case(op, Mode::Rate);
            for (qps, case) in [(1, one), (16, one.many(16, 64).batched(32))] {
                let of = group.case(case, Setting::Plain);
                group
                    .line(&qps_title(name, qps), of, Metric::Messages, against)
                    .goal(Goal::AtLeast(0.60));
                if op == Op::Write {
                    group.last_point(Plot::Rate, "WRITE, 64 B", qps.into());
                }
                usual.push((name, case, of, qps));
            }
        }
        for (name, case, of, _) in usual.into_iter().filter(|(.., qps)| *qps == 1) {
            group.capped(name, &case, of, Metric::Messages);
        }
        group
    }

    fn one_by_one(&self) -> Group {
        let mut group = self.group("rate, 64 B, one post and completion a time, depth 64");
        let pump = group.limit(Kind::Single, MTU, Setting::Plain);
        let ops = [(Op::Send, "SEND"), (Op::Write, "WRITE")];
        let plain = ops.map(|(op, name)| {
            let case = self.case(op, Mode::Rate).many(1, 64).batched(1);
            (name, case, group.case(case, Setting::Plain))
        });
        for (name, _, of) in plain {
            let against = Against::Measure(pump, "one-packet pump");
            group
                .line(name, of, Metric::Messages, against)
                .goal(Goal::AtLeast(3.0));
        }
        for (name, case, usual) in plain {
            group.capped(name, &case, usual, Metric::Messages);
        }
        group
    }

    fn polling(&self) -> Group {
        let mut group = self.group("round trip, 64 B, polling");
        let limit = group.limit(Kind::Spin, MTU, Setting::Plain);
        for (op, name, goal) in [
            (Op::Send, "SEND", 1.35),
            (Op::Write, "WRITE, polled in memory", 2.0),
            (Op::Read, "READ", 1.5),
            (Op::Atomic, "CAS", 1.5),
        ] {
            let of = group.case(self.case(op, Mode::Lat), Setting::Plain);
            group
                .line(name, of, Metric::P50, Against::Measure(limit, SPIN))
                .goal(Goal::AtMost(goal));
            if op == Op::Send {
                group.percentiles(of, limit, 64);
            }
        }
        group
    }

    fn events(&self) -> Group {
        let mut group = self.group("round trip, 64 B, events");
        let limit = group.limit(Kind::Block, MTU, Setting::Plain);
        let ops = OPS.into_iter().chain([(Op::Atomic, "CAS")]);
        for (op, name) in ops {
            let case = self.case(op, Mode::Lat).events(true);
            let of = group.case(case, Setting::Plain);
            let against = Against::Measure(limit, "blocking ping-pong");
            group
                .line(name, of, Metric::P50, against)
                .goal(Goal::AtMost(1.6));
        }
        group
    }

    fn many(&self) -> Group {
        let mut group = self.group("many queue pairs, traffic on all");
        group.rounds = group.rounds.min(3);
        let qps = self.0.many;
        let rate = self.case(Op::Write, Mode::Rate);
        let bulk = self.case(Op::Write, Mode::Bw).sized(4 * KIB);
        for (what, metric, one, many) in [
            (
                "rate, 64 B",
                Metric::Messages,
                rate,
                rate.many(qps, 32).batched(32),
            ),
            (
                "bandwidth, 4 KiB",
                Metric::Bytes,
                bulk,
                bulk.many(qps, 4).batched(4),
            ),
        ] {
            let usual = group.case(one, Setting::Plain);
            let of = group.case(many, Setting::Plain);
            let title = format!("WRITE {what}, {qps} queue pairs");
            group
                .line(&title, of, metric, Against::Measure(usual, "1 queue pair"))
                .goal(Goal::AtLeast(0.75));
            if metric == Metric::Messages {
                group.last_point(Plot::Rate, "WRITE, 64 B", qps.into());
            }
        }
        group
    }

    fn connecting(&self) -> Group {
        let mut group = self.group("queue pairs, made and connected");
        group.rounds = group.rounds.min(3);
        let of = group.add(Measure::Probe(Probe::Connect { qps: self.0.many }));
        group
            .line("rate", of, Metric::Connects, Against::Value(20_000.0))
            .goal(Goal::AtLeast(1.0));
        let qps = self.0.very_many;
        let of = group.add(Measure::Probe(Probe::Connect { qps }));
        let all = Against::Value(qps.into());
        group
            .line(&format!("that work, of {qps}"), of, Metric::Worked, all)
            .goal(Goal::AtLeast(1.0));
        let title = format!("memory of each beside its rings, of {qps}");
        group
            .line(&title, of, Metric::QpBytes, Against::Value(4096.0))
            .goal(Goal::AtMost(1.0));
        group
    }

    fn registering(&self) -> Group {
        let mut group = self.group("regions, registered and deregistered");
        let of = group.add(Measure::Probe(Probe::Register));
        group
            .line(
                "rate of 4 KiB",
                of,
                Metric::Registers,
                Against::Value(500_000.0),
            )
            .goal(Goal::AtLeast(1.0));
        let small = Against::Metric(Metric::SmallRegion, "one of 4 KiB");
        group
            .line("time of 1 GiB", of, Metric::BigRegion, small)
            .goal(Goal::AtMost(2.0));
        group
    }

    fn idle(&self) -> Group {
        let mut group = self.group("1,000 idle queue pairs");
        group.rounds = 1;
        let of = group.add(Measure::Probe(Probe::Idle { qps: 1000 }));
        group
            .line("CPU", of, Metric::IdleShare, Against::Value(0.001))
            .goal(Goal::AtMost(1.0));
        group
    }

    fn loss(&self) -> Group {
        let mut group = self.group("WRITE, 1 MiB, packets lost both ways");
        let case = self.case(Op::Write, Mode::Bw);
        let usual = group.case(case, Setting::Plain);
        group
            .line("0 %", usual, Metric::Bytes, Against::Nothing)
            .point(Plot::Goodput, "WRITE, 1 MiB", 0.01);
        for (share, title, goal) in [
            (0.001, "0.1 %", Some(0.95)),
            (0.01, "1 %", Some(0.80)),
            (0.03, "3 %", None),
        ] {
            let of = group.case(case, Setting::Loss(share));
            let against = Against::Measure(usual, "lossless");
            let line = group.line(title, of, Metric::Bytes, against);
            line.goal = goal.map(Goal::AtLeast);
            line.point(Plot::Goodput, "WRITE, 1 MiB", share * 100.0);
        }
        group
    }

    fn cable(&self) -> Group {
        let mut group = self.group("path MTU 1024 on a 1500-byte veth");
        let pump = group.limit(Kind::Bulk, 1024, Setting::Cable);
        for (op, name) in OPS {
            let mut case = self.case(op, Mode::Bw);
            case.mtu = Some(1024);
            let of = group.case(case, Setting::Cable);
            group
                .line(name, of, Metric::Bytes, Against::Measure(pump, PUMP))
                .goal(Goal::AtLeast(0.80));
        }
        group
    }

    fn drop_in(&self) -> Group {
        let mut group = self.group("perftest on the drop-in library");
        group.rounds = group.rounds.min(3);
        let cli = |of| Against::Measure(of, "srdma-cli perf");
        for (op, program) in [
            (Op::Send, "ib_send_bw"),
            (Op::Write, "ib_write_bw"),
            (Op::Read, "ib_read_bw"),
        ] {
            let usual = group.case(self.case(op, Mode::Bw), Setting::Plain);
            let of = group.add(Measure::Perftest(Program::bandwidth(program, MIB, 16)));
            group
                .line(&format!("{program}, 1 MiB"), of, Metric::Bytes, cli(usual))
                .goal(Goal::AtLeast(0.95));
        }
        for (op, program) in [
            (Op::Send, "ib_send_lat"),
            (Op::Write, "ib_write_lat"),
            (Op::Read, "ib_read_lat"),
        ] {
            let usual = group.case(self.case(op, Mode::Lat), Setting::Plain);
            let of = group.add(Measure::Perftest(Program::latency(program, 64)));
            group
                .line(&format!("{program}, 64 B"), of, Metric::P50, cli(usual))
                .goal(Goal::AtMost(1.05));
        }
        group
    }

    fn start(&self) -> Group {
        let mut group = self.group("start-up");
        let of = group.add(Measure::Probe(Probe::Startup));
        group
            .line(
                "device to first message",
                of,
                Metric::Startup,
                Against::Value(2e6),
            )
            .goal(Goal::AtMost(1.0));
        let of = group.add(Measure::Library);
        let limit = Against::Value(f64::from(2 * MIB));
        group
            .line("libsrdma.so, as loaded", of, Metric::FileBytes, limit)
            .goal(Goal::AtMost(1.0));
        group
    }

    /// A size that has no goal, for the plot.
    fn size(&self, size: u32) -> Group {
        let mut group = self.group(match size {
            64 => "bandwidth, 64 B",
            256 => "bandwidth, 256 B",
            KIB => "bandwidth, 1 KiB",
            _ => "bandwidth, 16 KiB",
        });
        group.rounds = 1;
        let packet = u16::try_from(size).unwrap_or(MTU).min(MTU);
        let pump = group.limit(Kind::Bulk, packet, Setting::Plain);
        for (op, name) in OPS {
            let case = self.case(op, Mode::Bw).sized(size);
            // Small messages come in batches, as many as hide what a pass costs.
            let case = if size <= KIB { case.many(1, 512) } else { case };
            let of = group.case(case, Setting::Plain);
            group
                .line(name, of, Metric::Bytes, Against::Measure(pump, PUMP))
                .point(Plot::Throughput, name, size.into());
        }
        group
    }

    fn latencies(&self) -> Group {
        let mut group = self.group("round trip by size, polling");
        group.rounds = 1;
        let limit = group.limit(Kind::Spin, MTU, Setting::Plain);
        for size in [512, 4 * KIB, 32 * KIB] {
            let case = self.case(Op::Send, Mode::Lat).sized(size);
            let of = group.case(case, Setting::Plain);
            group.percentiles(of, limit, size);
        }
        group
    }

    fn queue_pairs(&self) -> Group {
        let mut group = self.group("rate by queue pairs, 64 B");
        group.rounds = 1;
        let pump = group.limit(Kind::Many, MTU, Setting::Plain);
        for qps in [4, 64, 1000] {
            let case = self.case(Op::Write, Mode::Rate);
            let case = case.many(qps, if qps < 1000 { 64 } else { 32 }).batched(32);
            let of = group.case(case, Setting::Plain);
            let against = Against::Measure(pump, "64-segment pump");
            group
                .line(&qps_title("WRITE", qps), of, Metric::Messages, against)
                .point(Plot::Rate, "WRITE, 64 B", qps.into());
        }
        group
    }
}

fn qps_title(name: &str, qps: u32) -> String {
    let plural = if qps == 1 { "" } else { "s" };
    format!("{name}, {qps} queue pair{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_measured_and_compared() {
        let extent = Extent {
            duration: Duration::from_millis(100),
            rounds: 5,
            many: 10_000,
            very_many: 100_000,
        };
        let groups = groups(&extent);
        for group in &groups {
            let count = group.measures.len();
            for measure in &group.measures {
                if let Measure::Case { case, .. } = measure {
                    assert_eq!(case.check(), Ok(()), "{}", group.title);
                }
            }
            for line in &group.lines {
                let other = match line.against {
                    Against::Measure(other, _) => other,
                    _ => line.of,
                };
                assert!(line.of < count && other < count, "{}", line.title);
            }
        }
        let goals = groups.iter().flat_map(|group| &group.lines);
        assert_eq!(goals.filter(|line| line.goal.is_some()).count(), 58);
        for plot in [Plot::Throughput, Plot::Latency, Plot::Rate, Plot::Goodput] {
            let lines = groups.iter().flat_map(|group| &group.lines);
            let points = lines.filter_map(|line| line.point);
            assert!(points.filter(|point| point.plot == plot).count() >= 4);
        }
    }
}
