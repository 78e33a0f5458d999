//! The sending half of a pump.

use super::{MEMORY, SILENCE, Shape, parse_credit, rest, sign};
use crate::cmd::limit::spec::{Ready, Report, Spec};
use crate::error::{CliError, Result};
use srdma_net::bare::{BareConfig, BareSocket};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What was sent and what is known of it, in packets since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    sent: u64,
    arrived: u64,
    lost: u64,
    bad: u64,
}

impl Credit {
    const fn outstanding(&self) -> u64 {
        self.sent
            .saturating_sub(self.lost)
            .saturating_sub(self.arrived)
    }
}

/// Sends, as far as there is credit.
pub(super) struct Sender {
    socket: BareSocket,
    target: SocketAddr,
    shape: Shape,
    /// Packets, one behind the other.
    source: Vec<u8>,
    at: usize,
    credit: Credit,
    /// When credit came last.
    news: Instant,
}

impl Sender {
    /// Opens its socket.
    pub(super) fn open(spec: &Spec, peer: Ready) -> Result<Self> {
        let shape = Shape::new(spec, peer.rx_buffer);
        let segment = u16::try_from(shape.packet)
            .ok()
            .filter(|_| shape.per_send > 1);
        let config = BareConfig {
            segment,
            ..BareConfig::default()
        };
        let socket = BareSocket::open(spec.local, &config)?;
        let one = shape.per_send * shape.packet;
        let source = (0..(MEMORY / one).max(1) * one).map(|at| (at % 251).to_le_bytes()[0]);
        let source = source.collect();
        let credit = Credit::default();
        Ok(Self {
            socket,
            target: peer.addr,
            shape,
            source,
            at: 0,
            credit,
            news: Instant::now(),
        })
    }

    /// Sends for `duration`.
    pub(super) fn run_for(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        let mut looks = 0;
        loop {
            let now = Instant::now();
            let heard = self.step(now)?;
            if now >= end {
                return Ok(());
            }
            if heard {
                looks = 0;
            } else {
                rest(&self.socket, &mut looks)?;
            }
        }
    }

    /// Sends what there is credit for, and takes new credit; false if there was none.
    pub(super) fn step(&mut self, now: Instant) -> Result<bool> {
        let (window, per_send) = (self.shape.window as u64, self.shape.per_send as u64);
        while self.credit.outstanding() + per_send <= window {
            self.send_one()?;
        }
        let heard = self.hear()?;
        if heard {
            self.news = now;
        } else if now.saturating_duration_since(self.news) > SILENCE {
            self.credit.lost += self.credit.outstanding();
            self.news = now;
        }
        Ok(heard)
    }

    /// Packets that have arrived since the start.
    pub(super) const fn arrived(&self) -> u64 {
        self.credit.arrived
    }

    /// What is told of `packets` in `elapsed`; `bad` were damaged the other way.
    pub(super) fn report(&self, packets: u64, bad: u64, elapsed: Duration) -> Report {
        Report {
            packets,
            payload: u32::try_from(self.shape.payload).unwrap_or(u32::MAX),
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            lost: self.credit.lost,
            bad: self.credit.bad + bad,
            rtt_ns: None,
        }
    }

    /// One system call's worth of packets.
    fn send_one(&mut self) -> Result<()> {
        let len = self.shape.per_send * self.shape.packet;
        let bytes = self
            .source
            .get_mut(self.at..self.at + len)
            .unwrap_or_default();
        if self.shape.heavy {
            bytes.chunks_exact_mut(self.shape.packet).for_each(sign);
        }
        let sent = self
            .socket
            .send(bytes, self.target)
            .map_err(CliError::io("send to the receiving process"))?;
        if sent {
            self.credit.sent += self.shape.per_send as u64;
            self.at = (self.at + len) % self.source.len();
        }
        Ok(())
    }

    /// Takes all credit that has come back; false if there was none.
    fn hear(&mut self) -> Result<bool> {
        let mut heard = false;
        let mut bytes = [0; 64];
        while let Some((len, _)) = self
            .socket
            .receive(&mut bytes)
            .map_err(CliError::io("receive from the receiving process"))?
        {
            if let Some((arrived, bad)) = bytes.get(..len).and_then(parse_credit) {
                self.credit.arrived = self.credit.arrived.max(arrived);
                self.credit.bad = self.credit.bad.max(bad);
                heard = true;
            }
        }
        Ok(heard)
    }
}
