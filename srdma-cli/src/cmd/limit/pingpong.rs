//! There and back, one packet at a time, each round trip timed.
//!
//! ```text
//! | number, u64 | zeros to 84 bytes |   ──►   ◄──   the same bytes
//! ```
//!
//! Spinning: both sides ask the kernel again and again. Blocking: both sleep in the receive call.

use super::spec::{Kind, Ready, Report, Rtt, Spec};
use crate::child;
use crate::cmd::relax;
use crate::error::{CliError, Result};
use hdrhistogram::Histogram;
use srdma_net::bare::{BareConfig, BareSocket};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// 64 bytes of payload and 20 of headers, as a SEND has.
const PACKET: usize = 84;
/// An answer that takes longer counts as lost.
const SILENCE: Duration = Duration::from_secs(1);

fn open(spec: &Spec) -> Result<BareSocket> {
    let blocking = (spec.kind == Kind::Block).then_some(SILENCE);
    let config = BareConfig {
        blocking,
        ..BareConfig::default()
    };
    Ok(BareSocket::open(spec.local, &config)?)
}

/// The asking process.
pub(super) fn ask(spec: &Spec) -> Result<()> {
    let peer = spec.peer()?.addr;
    let socket = open(spec)?;
    let mut times = crate::cmd::histogram();
    let duration = Duration::from_nanos(spec.duration_ns);
    let mut asked = Asked::default();
    asked.run_for(duration / 5, &socket, peer, &mut times)?;
    times.reset();
    let start = Instant::now();
    asked.run_for(duration, &socket, peer, &mut times)?;
    child::say(&Report {
        packets: times.len(),
        payload: 64,
        elapsed_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        lost: asked.lost,
        bad: 0,
        rtt_ns: Some(Rtt::from(&times)),
    })
}

#[derive(Default)]
struct Asked {
    number: u64,
    lost: u64,
}

impl Asked {
    fn run_for(
        &mut self,
        duration: Duration,
        socket: &BareSocket,
        peer: SocketAddr,
        times: &mut Histogram<u64>,
    ) -> Result<()> {
        let end = Instant::now() + duration;
        let mut bytes = [0; PACKET];
        loop {
            self.number += 1;
            let number = self.number.to_le_bytes();
            if let Some(head) = bytes.first_chunk_mut::<8>() {
                *head = number;
            }
            let start = Instant::now();
            if start >= end {
                return Ok(());
            }
            socket
                .send(&bytes, peer)
                .map_err(CliError::io("send to the answering process"))?;
            if wait(socket, start, number)? {
                let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                times.saturating_record(took);
            } else {
                self.lost += 1;
            }
        }
    }
}

/// Waits for the answer with this number; false if it did not come.
fn wait(socket: &BareSocket, start: Instant, number: [u8; 8]) -> Result<bool> {
    let mut bytes = [0; PACKET];
    let mut looks = 0u32;
    loop {
        let got = socket
            .receive(&mut bytes)
            .map_err(CliError::io("receive from the answering process"))?;
        match got {
            Some(_) if bytes.starts_with(&number) => return Ok(true),
            // A late answer to a question that was given up.
            Some(_) => {}
            None => {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(64) && start.elapsed() > SILENCE {
                    return Ok(false);
                }
                relax(looks);
            }
        }
    }
}

/// The answering process; ends with its parent.
pub(super) fn answer(spec: &Spec) -> Result<()> {
    let socket = open(spec)?;
    child::say(&Ready {
        addr: socket.local(),
        rx_buffer: socket.rx_buffer(),
    })?;
    let mut bytes = [0; PACKET];
    let mut looks = 0u32;
    loop {
        let got = socket
            .receive(&mut bytes)
            .map_err(CliError::io("receive from the asking process"))?;
        match got {
            Some((len, from)) => {
                looks = 0;
                let bytes = bytes.get(..len).unwrap_or_default();
                socket
                    .send(bytes, from)
                    .map_err(CliError::io("send to the asking process"))?;
            }
            None => {
                looks = looks.wrapping_add(1);
                relax(looks);
            }
        }
    }
}
