//! Round trips, one at a time, each timed.
//!
//! | operation | polling | events |
//! |---|---|---|
//! | SEND | SEND and SEND back | the same, both asleep in between |
//! | WRITE | the peer looks into its memory, and writes back | WRITE with immediate, and back |
//! | READ, atomic | until the answer is there; the peer's device works alone | the same, asleep |
//!
//! A WRITE without immediate wakes nobody, so in event mode it carries one.

use super::case::Op;
use super::control::{Control, Message};
use super::rig::{Live, Part};
use super::stream::attend;
use crate::error::{CliError, Result};
use hdrhistogram::Histogram;
use srdma_verbs::{Completion, Qp, WcOpcode, WrId};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Receives kept posted.
const RECEIVES: u64 = 16;
/// Sends between two that report completion.
const SIGNALED: u64 = 16;

/// Measures; returns the times and the number of round trips of all time.
pub(super) fn client(live: &mut Live, control: &mut Control) -> Result<(Histogram<u64>, u64)> {
    let mut times = crate::cmd::histogram();
    let mut number = 0;
    let warm = live.case.duration() / 5;
    run(live, control, &mut times, &mut number, warm)?;
    times.reset();
    let duration = live.case.duration();
    run(live, control, &mut times, &mut number, duration)?;
    Ok((times, number))
}

fn run(
    live: &mut Live,
    control: &mut Control,
    times: &mut Histogram<u64>,
    number: &mut u64,
    duration: Duration,
) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        let start = Instant::now();
        if start >= end && !times.is_empty() {
            return Ok(());
        }
        *number += 1;
        trip(live, control, *number)?;
        let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.saturating_record(took);
        if two_sided(live) {
            post_receive(live)?;
        }
    }
}

/// There and back.
fn trip(live: &mut Live, control: &mut Control, number: u64) -> Result<()> {
    match live.case.op {
        Op::Send | Op::Write => {
            send(live, number)?;
            wait(live, control, number)
        }
        Op::Read => {
            let (addr, key) = live.remote(live.out(0, 0));
            let at = live.inbound(0, 0);
            let target = live.mr.sge(at..at + live.case.size as usize);
            let mut batch = qp(live)?.post_send();
            drop(
                batch
                    .read(WrId(number))
                    .local(target)
                    .remote(addr, key)
                    .signaled(),
            );
            batch.ring()?;
            wait_done(live, control)
        }
        Op::Atomic => {
            let at = live.inbound(0, 0);
            let (addr, key) = live.remote(at);
            let target = live.mr.sge(at..at + 8);
            let mut batch = qp(live)?.post_send();
            let swap = batch.compare_swap(WrId(number), number - 1, number);
            drop(swap.local(target).remote(addr, key).signaled());
            batch.ring()?;
            wait_done(live, control)?;
            match live.mr.load(at, Ordering::Acquire)? {
                found if found == number - 1 => Ok(()),
                _ => Err(CliError::Damaged {
                    what: "compare-and-swap",
                    bad: 1,
                }),
            }
        }
    }
}

fn qp(live: &Live) -> Result<&Qp> {
    let none = || CliError::Usage("a latency measurement has one QP".to_owned());
    live.qps.first().ok_or_else(none)
}

/// Receives are taken: SEND, and WRITE in event mode.
fn two_sided(live: &Live) -> bool {
    live.case.op == Op::Send || (live.case.op == Op::Write && live.case.events)
}

/// Sends ping or pong `number`.
fn send(live: &Live, number: u64) -> Result<()> {
    let size = live.case.size as usize;
    let at = live.out(0, 0);
    let looked_at = live.case.op == Op::Write && !live.case.events;
    if looked_at {
        live.mr.store(at + size - 8, number, Ordering::Relaxed)?;
    }
    let mut inline = [0; 64];
    let inline = if live.inline() {
        inline.get_mut(..size)
    } else {
        None
    };
    let mut batch = qp(live)?.post_send();
    let id = WrId(number);
    let signaled = number.is_multiple_of(SIGNALED);
    macro_rules! post {
        ($wr:expr) => {{
            let wr = match inline {
                Some(bytes) => {
                    live.mr.read(at, bytes)?;
                    $wr.inline(bytes)
                }
                None => $wr.local(live.mr.sge(at..at + size)),
            };
            if signaled {
                drop(wr.signaled());
            }
        }};
    }
    let (addr, key) = live.remote(live.inbound(0, 0));
    if looked_at {
        post!(batch.write(id).remote(addr, key));
    } else if live.case.op == Op::Write {
        post!(batch.write_imm(id, 0).remote(addr, key));
    } else {
        post!(batch.send(id));
    }
    batch.ring()?;
    Ok(())
}

/// Client: waits for pong `number`.
fn wait(live: &mut Live, control: &mut Control, number: u64) -> Result<()> {
    loop {
        if arrived(live, number)? {
            return Ok(());
        }
        live.check_stall()?;
        if control.alarm() {
            return Err(control.interruption());
        }
    }
}

/// Lets the device work, and says whether ping or pong `number` is there.
fn arrived(live: &mut Live, number: u64) -> Result<bool> {
    let mut done = [Completion::EMPTY; 8];
    let got = live.take(&mut done)?;
    if two_sided(live) {
        let is_receive =
            |wc: &Completion| matches!(wc.opcode(), WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        return Ok(done.iter().take(got).any(is_receive));
    }
    let word = live.inbound(0, 0) + live.case.size as usize - 8;
    Ok(live.mr.load(word, Ordering::Acquire)? == number)
}

/// Waits for the completion of the only request outstanding.
fn wait_done(live: &mut Live, control: &mut Control) -> Result<()> {
    let mut done = [Completion::EMPTY; 1];
    while live.take(&mut done)? == 0 {
        live.check_stall()?;
        if control.alarm() {
            return Err(control.interruption());
        }
    }
    Ok(())
}

/// The server's part, until the client says that it is over; returns what the client said.
pub(super) fn server(live: &mut Live, control: &mut Control) -> Result<Message> {
    if matches!(live.case.op, Op::Read | Op::Atomic) {
        return attend(live, control);
    }
    let mut number = 1;
    while !control.alarm() {
        if arrived(live, number)? {
            send(live, number)?;
            number += 1;
            if two_sided(live) {
                post_receive(live)?;
            }
        }
    }
    control.hear(Duration::from_secs(1))
}

/// Both sides: everything that must be posted before the client starts.
pub(super) fn prepare(live: &Live) -> Result<()> {
    debug_assert!(matches!(live.part, Part::Client | Part::Server));
    if two_sided(live) {
        for _ in 0..RECEIVES {
            post_receive(live)?;
        }
    }
    Ok(())
}

fn post_receive(live: &Live) -> Result<()> {
    let at = live.inbound(0, 0);
    let mut batch = qp(live)?.post_recv();
    drop(
        batch
            .recv(WrId(0))
            .local(live.mr.sge(at..at + live.case.size as usize)),
    );
    batch.ring()?;
    Ok(())
}
