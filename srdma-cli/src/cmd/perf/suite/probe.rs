//! What one process does alone, measured in one of its own: making queue pairs, registering memory,
//! starting, being idle.
//!
//! ```text
//! suite ── Job, as an argument ──► srdma-cli probe ── Sample ──► suite
//! ```
//!
//! The two ends of each connection are two devices of this process, on the two addresses.

use super::sample::{Metric, Sample, float};
use crate::child::{self, Child};
use crate::cmd::{DeviceArgs, SocketArgs, device, per_sec, relax};
use crate::error::{CliError, Result};
use serde::{Deserialize, Serialize};
use srdma_verbs::{Access, Buffer, Completion, Context, Cq, Mr, Pd, PreparedQp, Qp, QpType, WrId};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a probe may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Without a completion for so long, the others do not come.
const STALL: Duration = Duration::from_secs(10);
/// Requests and receives that each queue pair has room for.
const DEPTH: u32 = 16;
/// What rings of that depth take: requests of two quanta and receives of one, in whole pages.
const RINGS: u64 = 2 * 4096;
/// Messages that are under way at a time.
const BURST: u32 = 256;
/// How long regions are registered, and how large they are.
const REGISTERING: Duration = Duration::from_millis(200);
const SMALL: usize = 4096;
const BIG: usize = 1 << 30;
/// How long nothing is done, after everybody has had time to fall asleep.
const IDLE: Duration = Duration::from_secs(1);
const SETTLE: Duration = Duration::from_millis(500);

/// What is probed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Probe {
    /// From nothing to the end of the first message.
    Startup,
    /// This many queue pairs a side are made, connected and used.
    Connect { qps: u32 },
    /// Regions come and go.
    Register,
    /// This many connected queue pairs have nothing to do.
    Idle { qps: u32 },
}

/// What a process is to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Job {
    probe: Probe,
    addrs: [IpAddr; 2],
    sockets: SocketArgs,
}

/// The hidden subcommand's arguments.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ProbeArgs {
    /// What to do, as JSON
    job: String,
}

/// Starts a process and hears what it found.
pub(super) fn measure(probe: &Probe, addrs: [IpAddr; 2], sockets: SocketArgs) -> Result<Sample> {
    let job = Job {
        probe: *probe,
        addrs,
        sockets,
    };
    let job = serde_json::to_string(&job).map_err(|_| CliError::garbled("program", "job"))?;
    let mut child = Child::start("probing", &["probe".to_owned(), job])?;
    let sample = child.hear(PATIENCE)?;
    child.finish(PATIENCE)?;
    Ok(sample)
}

/// The hidden subcommand.
pub(crate) fn run(args: &ProbeArgs) -> Result<()> {
    child::end_with_parent();
    let job: Job = serde_json::from_str(&args.job)
        .map_err(|_| CliError::garbled("parent process", &args.job))?;
    let sample = match job.probe {
        Probe::Startup => startup(&job),
        Probe::Connect { qps } => connect(&job, qps),
        Probe::Register => register(&job),
        Probe::Idle { qps } => idle(&job, qps),
    };
    child::say(&sample?)
}

/// One side of all connections.
struct Side {
    context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Side {
    fn open(job: &Job, addr: IpAddr) -> Result<Self> {
        let args = DeviceArgs {
            sockets: job.sockets,
            ..DeviceArgs::default()
        };
        let context = device::open(addr, &args)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(BURST).build()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE;
        let mr = pd.register(Buffer::zeroed(SMALL)?, access)?;
        Ok(Self {
            context,
            pd,
            cq,
            mr,
        })
    }

    fn qp(&self) -> Result<PreparedQp> {
        let qp = self.pd.create_qp(QpType::Rc);
        let qp = qp.send_cq(&self.cq).recv_cq(&self.cq);
        Ok(qp.max_send_wr(DEPTH).max_recv_wr(DEPTH).build()?)
    }

    /// Writes to the peer's memory, without waiting.
    fn write(&self, qp: &Qp, peer: &Self) -> Result<()> {
        let mut batch = qp.post_send();
        let (addr, key) = (peer.mr.addr(), peer.mr.rkey());
        let write = batch.write(WrId(0)).local(self.mr.sge(..64));
        drop(write.remote(addr, key).signaled());
        Ok(batch.ring()?)
    }

    /// Waits for `count` good completions; how many came.
    fn wait(&self, count: usize) -> Result<usize> {
        let mut done = [Completion::EMPTY; 64];
        let (mut found, mut looks, mut last) = (0, 0, Instant::now());
        while found < count {
            let got = self.cq.poll_into(&mut done);
            for wc in done.iter().take(got) {
                if !wc.is_ok() {
                    let (status, vendor) = (wc.status(), wc.vendor_err());
                    return Err(CliError::Completion { status, vendor });
                }
            }
            found += got;
            if got > 0 {
                (last, looks) = (Instant::now(), 0);
            } else if last.elapsed() > STALL {
                break;
            } else {
                looks += 1;
                relax(looks);
            }
        }
        Ok(found)
    }
}

/// Both sides, and their connections.
struct Pairs {
    here: Side,
    there: Side,
    qps: Vec<(Qp, Qp)>,
}

impl Pairs {
    fn open(job: &Job) -> Result<Self> {
        let [local, remote] = job.addrs;
        Ok(Self {
            here: Side::open(job, local)?,
            there: Side::open(job, remote)?,
            qps: Vec::new(),
        })
    }

    fn connect(&mut self, count: u32) -> Result<()> {
        self.qps.reserve(count as usize);
        for _ in 0..count {
            let (near, far) = (self.here.qp()?, self.there.qp()?);
            let (ours, theirs) = (near.endpoint(), far.endpoint());
            self.qps.push((near.connect(&theirs)?, far.connect(&ours)?));
        }
        Ok(())
    }

    /// A message on each; how many arrived.
    fn use_all(&self) -> Result<usize> {
        let mut worked = 0;
        for some in self.qps.chunks(BURST as usize) {
            for (qp, _) in some {
                self.here.write(qp, &self.there)?;
            }
            worked += self.here.wait(some.len())?;
        }
        Ok(worked)
    }
}

fn startup(job: &Job) -> Result<Sample> {
    let [local, remote] = job.addrs;
    let there = Side::open(job, remote)?;
    let start = Instant::now();
    let here = Side::open(job, local)?;
    let (near, far) = (here.qp()?, there.qp()?);
    let (ours, theirs) = (near.endpoint(), far.endpoint());
    let (qp, _peer) = (near.connect(&theirs)?, far.connect(&ours)?);
    here.write(&qp, &there)?;
    if here.wait(1)? == 0 {
        return Err(CliError::Stalled { within: STALL });
    }
    Ok(Sample::default().with(Metric::Startup, float(nanos(start))))
}

fn connect(job: &Job, qps: u32) -> Result<Sample> {
    let mut pairs = Pairs::open(job)?;
    pairs.connect(1)?;
    pairs.use_all()?;
    let (before, start) = (resident()?, Instant::now());
    pairs.connect(qps - 1)?;
    let rate = per_sec(2 * u64::from(qps - 1), nanos(start));
    let worked = pairs.use_all()? as u64;
    let grown = resident()?.saturating_sub(before);
    let each = float(grown) / (2.0 * f64::from((qps - 1).max(1)));
    let sample = Sample::default()
        .with(Metric::Connects, rate)
        .with(Metric::Worked, float(worked))
        .with(Metric::QpBytes, (each - float(RINGS)).max(0.0));
    child::say(&sample)?;
    // Taking all down one by one would take as long again, and shows nothing.
    std::process::exit(0)
}

fn register(job: &Job) -> Result<Sample> {
    let side = Side::open(job, job.addrs[0])?;
    let (small, big) = (Buffer::zeroed(SMALL)?, Buffer::zeroed(BIG)?);
    let time = |buffer: &Buffer| -> Result<(u64, u64)> {
        let (mut count, start) = (0, Instant::now());
        while start.elapsed() < REGISTERING {
            // The clock is asked now and then only.
            for _ in 0..64 {
                let access = Access::LOCAL_WRITE | Access::REMOTE;
                side.pd.register(buffer, access)?.dereg()?;
                count += 1;
            }
        }
        Ok((count, nanos(start)))
    };
    time(&small)?;
    let ((count, took), (big_count, big_took)) = (time(&small)?, time(&big)?);
    Ok(Sample::default()
        .with(Metric::Registers, per_sec(count, took))
        .with(Metric::SmallRegion, float(took) / float(count))
        .with(Metric::BigRegion, float(big_took) / float(big_count)))
}

fn idle(job: &Job, qps: u32) -> Result<Sample> {
    let mut pairs = Pairs::open(job)?;
    pairs.connect(qps)?;
    pairs.use_all()?;
    std::thread::sleep(SETTLE);
    let (before, start) = (others_ran()?, Instant::now());
    std::thread::sleep(IDLE);
    let (ran, took) = (others_ran()?.saturating_sub(before), nanos(start));
    // Both devices are open all the time.
    drop(pairs.here.context.counters());
    Ok(Sample::default().with(Metric::IdleShare, float(ran) / float(took)))
}

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Memory of this process that is there, in bytes.
fn resident() -> Result<u64> {
    let path = "/proc/self/statm";
    let text = std::fs::read_to_string(path).map_err(CliError::io("read /proc/self/statm"))?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse::<u64>().ok());
    let page = rustix::param::page_size() as u64;
    Ok(pages.ok_or_else(|| CliError::garbled("kernel", &text))? * page)
}

/// How long all threads of this process but the calling one have run, in nanoseconds.
fn others_ran() -> Result<u64> {
    let io = |what| CliError::io(what);
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").map_err(io("list threads"))?;
    let mut sum = 0;
    for task in tasks {
        let task = task.map_err(io("list threads"))?;
        if task.file_name().to_string_lossy() == own {
            continue;
        }
        let text = std::fs::read_to_string(task.path().join("schedstat"));
        let text = text.map_err(io("read how long a thread ran"))?;
        let ran = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        sum += ran.ok_or_else(|| CliError::garbled("kernel", &text))?;
    }
    Ok(sum)
}
