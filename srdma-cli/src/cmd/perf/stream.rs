//! Bandwidth and message rate: as many requests outstanding as the queues take.
//!
//! ```text
//! client   post a batch per QP while there is room; the last request of each batch completes
//! server   SEND: keeps receives posted; else: lets its device work until the client is done
//! ```
//!
//! Messages count when they complete at the client, which means that the server has them.

use super::case::Op;
use super::control::{Control, Message};
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

/// Measures. Afterwards nothing is outstanding.
pub(super) fn client(live: &mut Live, control: &mut Control) -> Result<Measured> {
    let mut lanes = vec![Lane::default(); live.qps.len()];
    let warm = Instant::now() + live.case.duration() / 5;
    run(live, control, &mut lanes, |now, _| now < warm)?;
    let before = completed(&lanes);
    let start = Instant::now();
    let end = start + live.case.duration();
    // A short measurement of long messages goes on until there is one.
    run(live, control, &mut lanes, |now, done| {
        now < end || done == before
    })?;
    let (elapsed, messages) = (start.elapsed(), completed(&lanes) - before);
    drain(live, control, &mut lanes)?;
    let least = lanes.iter().map(|lane| lane.completed).min().unwrap_or(0);
    Ok(Measured {
        messages,
        elapsed,
        total: completed(&lanes),
        least,
    })
}

fn completed(lanes: &[Lane]) -> u64 {
    lanes.iter().map(|lane| lane.completed).sum()
}

/// Posts and completes for as long as `more` says.
fn run(
    live: &mut Live,
    control: &mut Control,
    lanes: &mut [Lane],
    more: impl Fn(Instant, u64) -> bool,
) -> Result<()> {
    let (batch, depth) = (u64::from(live.case.batch()), u64::from(live.case.depth));
    while more(Instant::now(), completed(lanes)) {
        for (index, lane) in lanes.iter_mut().enumerate() {
            while lane.posted - lane.completed + batch <= depth {
                post(live, index, lane.posted)?;
                lane.posted += batch;
            }
        }
        complete(live, control, lanes)?;
    }
    Ok(())
}

/// Completes all that is outstanding.
fn drain(live: &mut Live, control: &mut Control, lanes: &mut [Lane]) -> Result<()> {
    while lanes.iter().any(|lane| lane.completed < lane.posted) {
        complete(live, control, lanes)?;
    }
    Ok(())
}

/// Takes what has completed, once.
fn complete(live: &mut Live, control: &mut Control, lanes: &mut [Lane]) -> Result<()> {
    let mut done = [Completion::EMPTY; TAKE];
    let got = live.take(&mut done)?;
    live.check_stall()?;
    for wc in done.iter().take(got) {
        let lane = usize::try_from(wc.wr_id().0)
            .ok()
            .and_then(|index| lanes.get_mut(index));
        if let Some(lane) = lane {
            lane.completed += u64::from(live.case.batch());
        }
    }
    if control.alarm() {
        return Err(control.interruption());
    }
    Ok(())
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
    2 * u64::from(live.case.depth)
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
