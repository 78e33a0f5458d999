//! One measurement: operation, mode and sizes, as client and server agree on them.
//!
//! What a client asks for is input to a server, so both call [`Case::check`].

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    /// SEND into posted receives
    Send,
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// Compare-and-swap (lat), fetch-and-add (rate)
    Atomic,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Bytes a second
    Bw,
    /// Round-trip time
    Lat,
    /// Messages a second
    Rate,
}

/// One measurement, as client and server agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) op: Op,
    pub(crate) mode: Mode,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Queue pairs.
    pub(crate) qps: u32,
    /// Requests outstanding on each.
    pub(crate) depth: u32,
    /// Requests that are posted together, if not as many as is usual for the size.
    pub(crate) batch: Option<u32>,
    /// The server sends to the client at the same time.
    pub(crate) both: bool,
    /// Largest path MTU; what the ports carry, if not given.
    pub(crate) mtu: Option<u16>,
    /// Sleep until an event comes, instead of polling.
    pub(crate) events: bool,
    pub(crate) duration_ns: u64,
}

/// Most bytes of buffers on one side.
const MAX_MEMORY: u64 = 4 << 30;
/// Most queue pairs of a measurement.
const MAX_QPS: u32 = 16_384;
/// Most requests outstanding on all queue pairs together.
const MAX_REQUESTS: u32 = 1 << 21;
/// Most requests outstanding on one queue pair.
const MAX_DEPTH: u32 = 2048;
/// Longest measurement.
const MAX_DURATION: Duration = Duration::from_secs(3600);
/// Least buffer: small messages walk through it.
const MIN_BUFFER: u32 = 4096;

impl Case {
    /// With the usual numbers.
    pub(crate) fn new(op: Op, mode: Mode, duration: Duration) -> Self {
        let size = match (op, mode) {
            (Op::Atomic, _) => 8,
            (_, Mode::Bw) => 1 << 20,
            (_, Mode::Lat | Mode::Rate) => 64,
        };
        Self {
            op,
            mode,
            size,
            qps: 1,
            depth: usual_depth(mode, size),
            batch: None,
            both: false,
            mtu: None,
            events: false,
            duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// With messages of `size` bytes, and the depth that is usual for it.
    pub(crate) const fn sized(mut self, size: u32) -> Self {
        self.size = size;
        self.depth = usual_depth(self.mode, size);
        self
    }

    /// Sleeping or polling.
    pub(crate) const fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// On `qps` queue pairs, with `depth` requests outstanding on each.
    pub(crate) const fn many(mut self, qps: u32, depth: u32) -> Self {
        (self.qps, self.depth) = (qps, depth);
        self
    }

    /// With `batch` requests posted together.
    pub(crate) const fn batched(mut self, batch: u32) -> Self {
        self.batch = Some(batch);
        self
    }

    /// In both directions at a time.
    pub(crate) const fn both_ways(mut self) -> Self {
        self.both = true;
        self
    }

    /// How long to measure.
    pub(crate) const fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns)
    }

    /// Requests that are posted together; the last of them reports completion.
    pub(crate) const fn batch(&self) -> u32 {
        if let Some(batch) = self.batch {
            return batch;
        }
        let batch = match self.size {
            0..=4096 => 32,
            4097..=131_072 => 4,
            _ => 1,
        };
        let quarter = self.depth / 4;
        match (quarter < batch, quarter) {
            (true, 0) => 1,
            (true, quarter) => quarter,
            (false, _) => batch,
        }
    }

    /// Receives that a side keeps posted on one queue pair at most.
    pub(crate) const fn receives(&self) -> u32 {
        if matches!(self.mode, Mode::Lat) || matches!(self.op, Op::Send) {
            2 * self.depth
        } else {
            1
        }
    }

    /// Bytes of the buffer of one queue pair: whole messages, at least a page of them.
    pub(crate) const fn buffer(&self) -> u32 {
        self.slots() * self.size
    }

    /// Messages that fit the buffer; they are used one after the other, again and again.
    pub(crate) const fn slots(&self) -> u32 {
        if matches!(self.op, Op::Atomic) || self.size >= MIN_BUFFER || self.size == 0 {
            1
        } else {
            MIN_BUFFER / self.size
        }
    }

    /// Says why this cannot be measured. Servers ask too: what a client says is input.
    pub(crate) fn check(&self) -> Result<(), String> {
        let range = |name: &str, value: u32, low: u32, high: u32| {
            let fits = (low..=high).contains(&value);
            fits.then_some(())
                .ok_or_else(|| format!("{name} must be {low} to {high}, not {value}"))
        };
        range("size", self.size, 1, 1 << 30)?;
        range("qps", self.qps, 1, MAX_QPS)?;
        range("depth", self.depth, 1, MAX_DEPTH)?;
        range("batch", self.batch(), 1, self.depth)?;
        if self.qps * self.depth > MAX_REQUESTS {
            return Err(format!(
                "qps times depth must be at most {MAX_REQUESTS}, not {}",
                self.qps * self.depth
            ));
        }
        if self.both && (self.op, self.mode) != (Op::Write, Mode::Bw) {
            return Err("both directions are measured with the bandwidth of WRITE".to_owned());
        }
        if let Some(mtu) = self.mtu
            && ![256, 512, 1024, 2048, 4096].contains(&mtu)
        {
            return Err(format!(
                "mtu must be 256, 512, 1024, 2048 or 4096, not {mtu}"
            ));
        }
        if self.duration() > MAX_DURATION || self.duration_ns == 0 {
            return Err("duration must be more than nothing and at most an hour".to_owned());
        }
        if 2 * u64::from(self.buffer()) * u64::from(self.qps) > MAX_MEMORY {
            return Err("size times qps needs more than 4 GiB of buffers".to_owned());
        }
        match (self.op, self.mode) {
            (Op::Atomic, Mode::Bw) => {
                Err("atomics move eight bytes: measure their rate or latency".to_owned())
            }
            (Op::Atomic, _) if self.size != 8 => Err("atomics have eight bytes".to_owned()),
            (Op::Write, Mode::Lat) if !self.size.is_multiple_of(8) => {
                Err("a WRITE ping-pong needs messages of a multiple of eight bytes".to_owned())
            }
            (_, Mode::Lat) if self.qps != 1 => Err("latency is measured on one QP".to_owned()),
            _ => Ok(()),
        }
    }
}

const fn usual_depth(mode: Mode, size: u32) -> u32 {
    match (mode, size) {
        (Mode::Lat, _) => 64,
        (Mode::Rate, _) => 512,
        // As many as perftest has.
        (Mode::Bw, 0..=16_384) => 128,
        (Mode::Bw, 0..=131_072) => 64,
        (Mode::Bw, _) => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(op: Op, mode: Mode) -> Case {
        Case::new(op, mode, Duration::from_secs(1))
    }

    #[test]
    fn usual_numbers_can_be_measured() {
        for op in [Op::Send, Op::Write, Op::Read, Op::Atomic] {
            for mode in [Mode::Lat, Mode::Rate, Mode::Bw] {
                let usual = case(op, mode);
                let wrong = (op, mode) == (Op::Atomic, Mode::Bw);
                assert_eq!(usual.check().is_err(), wrong, "{usual:?}");
            }
        }
        let rate = case(Op::Send, Mode::Rate);
        assert_eq!((rate.batch(), rate.slots(), rate.buffer()), (32, 64, 4096));
        let bulk = case(Op::Write, Mode::Bw);
        assert_eq!((bulk.batch(), bulk.buffer(), bulk.depth), (1, 1 << 20, 16));
        assert_eq!(bulk.sized(65_536).batch(), 4);
    }

    #[test]
    fn numbers_that_are_not_usual() {
        let single = case(Op::Send, Mode::Rate).many(1, 64).batched(1);
        assert_eq!((single.batch(), single.check()), (1, Ok(())));
        let many = case(Op::Write, Mode::Rate).many(10_000, 32).batched(32);
        assert_eq!(
            (many.batch(), many.receives(), many.check()),
            (32, 1, Ok(()))
        );
        assert_eq!(case(Op::Write, Mode::Bw).both_ways().check(), Ok(()));
    }

    #[test]
    fn numbers_that_do_not_fit_together_are_named() {
        let bad = [
            (
                case(Op::Write, Mode::Rate).many(16_384, 512),
                "qps times depth",
            ),
            (case(Op::Send, Mode::Rate).batched(513), "batch"),
            (case(Op::Send, Mode::Bw).both_ways(), "directions"),
        ];
        for (case, word) in bad {
            let text = case.check().unwrap_err();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let bad = [
            (
                Case {
                    size: 0,
                    ..case(Op::Send, Mode::Bw)
                },
                "size",
            ),
            (
                Case {
                    qps: 0,
                    ..case(Op::Send, Mode::Bw)
                },
                "qps",
            ),
            (
                Case {
                    qps: 2,
                    ..case(Op::Send, Mode::Lat)
                },
                "one QP",
            ),
            (
                Case {
                    depth: 1 << 20,
                    ..case(Op::Send, Mode::Bw)
                },
                "depth",
            ),
            (
                Case {
                    mtu: Some(1500),
                    ..case(Op::Send, Mode::Bw)
                },
                "mtu",
            ),
            (
                Case {
                    size: 64,
                    ..case(Op::Atomic, Mode::Rate)
                },
                "eight",
            ),
            (
                Case {
                    size: 4,
                    ..case(Op::Write, Mode::Lat)
                },
                "eight",
            ),
            (
                Case {
                    size: 1 << 30,
                    qps: 8,
                    ..case(Op::Send, Mode::Bw)
                },
                "GiB",
            ),
            (
                Case {
                    duration_ns: u64::MAX,
                    ..case(Op::Send, Mode::Bw)
                },
                "duration",
            ),
        ];
        for (case, word) in bad {
            let text = case.check().unwrap_err();
            assert!(text.contains(word), "{text}");
        }
    }
}
