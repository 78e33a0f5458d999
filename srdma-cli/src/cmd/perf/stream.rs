//! Bandwidth and message rate: as many requests outstanding as the queues take.
//!
//! ```text
//! client   post a batch per QP while there is room; the last request of each batch completes
//! server   SEND: keeps receives posted; both ways: does what the client does; else: lets its
//!          device work until the client is done
//! ```
//!
//! Messages count when they complete at the client, which means that the server has them.

use super::case::Op;
use super::control::{Control, Message, Moved};
use super::rig::{Live, Part};
use crate::error::{CliError, Result};
use srdma_verbs::{Completion, Qp, WcOpcode, WrId};
use std::time::{Duration, Instant};

/// Completions taken at a time.
const TAKE: usize = 64;
/// How long a server waits for a client that is measuring, beyond what it measures.
const EXTRA: Duration = Duration::from_secs(120);

/// What a measurement found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// In the measured time.
    pub(super) messages: u64,
    pub(super) elapsed: Duration,
    /// Of all time, and of the queue pair with the fewest.
    pub(super) total: u64,
    pub(super) least: u64,
}

/// What is under way on one queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    completed: u64,
}

/// All queue pairs. A pass costs what has completed, not how many there are.
#[derive(Debug)]
struct Lanes {
    lanes: Vec<Lane>,
    /// Those that may have room.
    ready: Vec<usize>,
    posted: u64,
    completed: u64,
}

impl Lanes {
    fn new(count: usize) -> Self {
        Self {
            lanes: vec![Lane::default(); count],
            ready: (0..count).collect(),
            posted: 0,
            completed: 0,
        }
    }

    /// Posts and completes, once.
    fn pass(&mut self, live: &mut Live) -> Result<()> {
        let (batch, depth) = (u64::from(live.case.batch()), u64::from(live.case.depth));
        for index in self.ready.drain(..) {
            let Some(lane) = self.lanes.get_mut(index) else {
                continue;
            };
            while lane.posted - lane.completed + batch <= depth {
                post(live, index, lane.posted)?;
                lane.posted += batch;
                self.posted += batch;
            }
        }
        self.complete(live)
    }

    /// Takes what has completed, once.
    fn complete(&mut self, live: &mut Live) -> Result<()> {
        let mut done = [Completion::EMPTY; TAKE];
        let got = live.take(&mut done)?;
        live.check_stall()?;
        for wc in done.iter().take(got) {
            let index = usize::try_from(wc.wr_id().0).unwrap_or(usize::MAX);
            if let Some(lane) = self.lanes.get_mut(index) {
                let batch = u64::from(live.case.batch());
                lane.completed += batch;
                self.completed += batch;
                self.ready.push(index);
            }
        }
        Ok(())
    }

    /// Passes for as long as `more` says of the time and of what has completed.
    fn run(
        &mut self,
        live: &mut Live,
        control: &mut Control,
        more: impl Fn(Instant, u64) -> bool,
    ) -> Result<()> {
        while more(Instant::now(), self.completed) {
            self.pass(live)?;
            if control.alarm() {
                return Err(control.interruption());
            }
        }
        Ok(())
    }

    /// Completes all that is outstanding.
    fn drain(&mut self, live: &mut Live) -> Result<()> {
        while self.completed < self.posted {
            self.complete(live)?;
        }
        Ok(())
    }

    /// Messages of the queue pair with the fewest.
    fn least(&self) -> u64 {
        let counts = self.lanes.iter().map(|lane| lane.completed);
        counts.min().unwrap_or(0)
    }
}

/// Measures. Afterwards nothing is outstanding.
pub(super) fn client(live: &mut Live, control: &mut Control) -> Result<Measured> {
    let mut lanes = Lanes::new(live.qps.len());
    let warm = Instant::now() + live.case.duration() / 5;
    lanes.run(live, control, |now, _| now < warm)?;
    let before = lanes.completed;
    let start = Instant::now();
    let end = start + live.case.duration();
    // A short measurement of long messages goes on until there is one.
    lanes.run(live, control, |now, done| now < end || done == before)?;
    let (elapsed, messages) = (start.elapsed(), lanes.completed - before);
    lanes.drain(live)?;
    Ok(Measured {
        messages,
        elapsed,
        total: lanes.completed,
        least: lanes.least(),
    })
}

/// The server's part where both sides send, until the client says that it is over; returns what
/// the client said, and what was sent here meanwhile.
pub(super) fn counterpart(live: &mut Live, control: &mut Control) -> Result<(Message, Moved)> {
    let mut lanes = Lanes::new(live.qps.len());
    let mut start = Instant::now();
    let (warm, mut before) = (start + live.case.duration() / 5, None);
    while !control.alarm() {
        lanes.pass(live)?;
        let now = Instant::now();
        if before.is_none() && now >= warm {
            (start, before) = (now, Some(lanes.completed));
        }
    }
    let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let messages = lanes.completed - before.unwrap_or(0);
    lanes.drain(live)?;
    let least = lanes.least();
    let moved = Moved {
        messages,
        nanos,
        least,
    };
    Ok((control.hear(EXTRA)?, moved))
}

/// Posts one batch on queue pair `index`, from message `first` on.
fn post(live: &Live, index: usize, first: u64) -> Result<()> {
    let Some(qp) = live.qps.get(index) else {
        return Ok(());
    };
    let batch = u64::from(live.case.batch());
    let size = live.case.size as usize;
    let id = WrId(index as u64);
    let mut posts = qp.post_send();
    for number in first..first + batch {
        let out = live.out(index, number);
        let inbound = live.inbound(index, number);
        let last = number + 1 == first + batch;
        // A request is written when it is dropped.
        macro_rules! post {
            ($wr:expr) => {{
                let wr = $wr;
                if last {
                    drop(wr.signaled());
                }
            }};
        }
        match live.case.op {
            Op::Send => post!(posts.send(id).local(live.mr.sge(out..out + size))),
            Op::Write => {
                let (addr, key) = live.remote(inbound);
                post!(
                    posts
                        .write(id)
                        .local(live.mr.sge(out..out + size))
                        .remote(addr, key)
                );
            }
            Op::Read => {
                let (addr, key) = live.remote(out);
                let target = live.mr.sge(inbound..inbound + size);
                post!(posts.read(id).local(target).remote(addr, key));
            }
            Op::Atomic => {
                let (addr, key) = live.remote(inbound);
                let target = live.mr.sge(inbound..inbound + 8);
                post!(posts.fetch_add(id, 1).local(target).remote(addr, key));
            }
        }
    }
    posts.ring()?;
    Ok(())
}

/// The server's part, until the client says that it is over; returns what the client said.
pub(super) fn server(live: &mut Live, control: &mut Control) -> Result<Message> {
    if live.case.op != Op::Send {
        return attend(live, control);
    }
    let batch = u64::from(live.case.batch());
    let mut lanes = vec![Lane::default(); live.qps.len()];
    for lane in &mut lanes {
        // Posted by `prepare`.
        lane.posted = receives(live);
    }
    let mut done = [Completion::EMPTY; TAKE];
    while !control.alarm() {
        let got = live.take(&mut done)?;
        for wc in done.iter().take(got) {
            let index = usize::try_from(wc.wr_id().0).unwrap_or(usize::MAX);
            let (Some(lane), Some(qp)) = (lanes.get_mut(index), live.qps.get(index)) else {
                continue;
            };
            lane.completed += 1;
            if lane.completed.is_multiple_of(batch) {
                post_receives(live, qp, index, lane.posted, batch)?;
                lane.posted += batch;
            }
        }
    }
    control.hear(EXTRA)
}

/// Lets the device work for one-sided operations.
pub(super) fn attend(live: &mut Live, control: &mut Control) -> Result<Message> {
    let limit = live.case.duration() * 2 + EXTRA;
    if !live.case.events {
        let mut done = [Completion::EMPTY; 1];
        let end = Instant::now() + limit;
        while !control.alarm() {
            let got = live.take(&mut done)?;
            let expected = done
                .iter()
                .take(got)
                .all(|wc| wc.opcode() != WcOpcode::Recv);
            if !expected || Instant::now() > end {
                return Err(CliError::PeerSilent { within: limit });
            }
        }
    }
    control.hear(limit)
}

/// Server: everything that must be posted before the client starts.
pub(super) fn prepare(live: &Live) -> Result<()> {
    if live.case.op != Op::Send || live.part != Part::Server {
        return Ok(());
    }
    for (index, qp) in live.qps.iter().enumerate() {
        post_receives(live, qp, index, 0, receives(live))?;
    }
    Ok(())
}

/// Receives posted at the start: as many as the client sends, and more for what is under way.
fn receives(live: &Live) -> u64 {
    u64::from(live.case.receives())
}

fn post_receives(live: &Live, qp: &Qp, index: usize, first: u64, count: u64) -> Result<()> {
    let size = live.case.size as usize;
    let mut posts = qp.post_recv();
    for number in first..first + count {
        let at = live.inbound(index, number);
        drop(
            posts
                .recv(WrId(index as u64))
                .local(live.mr.sge(at..at + size)),
        );
    }
    posts.ring()?;
    Ok(())
}
