//! One way, as fast as it goes: the sender has credit, the receiver gives it back.
//!
//! ```text
//! sender    | header 12 | payload | crc 4 |  × per_send, one system call
//! receiver  counts, (checks the CRC, copies the payload); each `ack_every` packets:
//!           | packets arrived, u64 | of them damaged, u64 |
//! ```
//!
//! What is outstanding never exceeds what the receiver's buffer surely holds, so the kernel drops
//! nothing. Should it all the same, the sender goes on after a pause and reports the loss.

use super::spec::{Kind, Ready, Report, Spec};
use crate::child;
use crate::error::{CliError, Result};
use srdma_net::bare::{BareConfig, BareSocket};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Headers in front of a payload: as many bytes as a BTH has.
const HEADER: usize = 12;
/// Behind it.
const CRC: usize = 4;
/// Payload of a small packet. With 20 bytes around it, as a 64-byte SEND with its ICRC.
const SMALL: usize = 64;
/// What the kernel accounts for a packet beside its bytes, generously.
const OVERHEAD: usize = 1024;
/// Where payload is placed, and taken from: as a 1 MiB message.
const MEMORY: usize = 1 << 20;
/// Most UDP payload of one send.
const SEND_BYTES: usize = 65_507;
/// Most bytes and packets outstanding: more does not speed up two processes, and leaves the cache.
const MAX_BYTES: usize = 512 << 10;
const MAX_PACKETS: usize = 4096;
/// Looks at an empty socket before sleeping: about 30 µs, more than the other side ever needs
/// while it runs. On a busy machine it may not run, and looking on would keep it from running.
const LOOKS: u32 = 100;
/// Empty looks after which the receiver gives what credit it has: the sender waits for it.
const QUIET: u32 = 8;
/// How long to sleep at most.
const NAP: Duration = Duration::from_millis(20);
/// Without news for so long, what is outstanding counts as lost.
const SILENCE: Duration = Duration::from_millis(200);

/// The numbers of a pump.
#[derive(Clone, Copy, Debug)]
struct Shape {
    payload: usize,
    packet: usize,
    per_send: usize,
    ack_every: usize,
    window: usize,
    /// CRC on both sides, and placement.
    heavy: bool,
}

impl Shape {
    fn new(spec: &Spec, rx_buffer: u32) -> Self {
        let heavy = spec.kind == Kind::Bulk;
        let payload = if heavy { usize::from(spec.mtu) } else { SMALL };
        let packet = HEADER + payload + CRC + if heavy { 0 } else { 4 };
        let per_send = match spec.kind {
            Kind::Single => 1,
            _ if spec.sockets.no_gso => 1,
            _ => (SEND_BYTES / packet).min(64),
        };
        // Without GRO the kernel cuts a send up before it queues it.
        let pieces = if spec.sockets.no_gro { per_send } else { 1 };
        let queued = per_send * packet * 3 / 2 + pieces * OVERHEAD;
        let buffer = usize::try_from(rx_buffer)
            .unwrap_or(usize::MAX)
            .min(MAX_BYTES);
        let window = (buffer / queued * per_send).min(MAX_PACKETS);
        let window = window.max(per_send);
        Self {
            payload,
            packet,
            per_send,
            ack_every: (window / 4).max(1),
            window,
            heavy,
        }
    }
}

/// The sending process.
pub(super) fn send(spec: &Spec) -> Result<()> {
    let peer = spec.peer()?;
    let mut sender = Sender::open(spec, peer)?;
    let duration = Duration::from_nanos(spec.duration_ns);
    sender.run_for(duration / 5)?;
    let before = sender.credit;
    let start = Instant::now();
    sender.run_for(duration)?;
    let elapsed = start.elapsed();
    let credit = sender.credit;
    child::say(&Report {
        packets: credit.arrived - before.arrived,
        payload: u32::try_from(sender.shape.payload).unwrap_or(u32::MAX),
        elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        lost: credit.lost,
        bad: credit.bad,
        rtt_ns: None,
    })
}

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

struct Sender {
    socket: BareSocket,
    target: SocketAddr,
    shape: Shape,
    /// Packets, one behind the other.
    source: Vec<u8>,
    at: usize,
    credit: Credit,
}

impl Sender {
    fn open(spec: &Spec, peer: Ready) -> Result<Self> {
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
        })
    }

    /// Sends for `duration`.
    fn run_for(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        let mut news = Instant::now();
        let mut looks = 0;
        let (window, per_send) = (self.shape.window as u64, self.shape.per_send as u64);
        loop {
            while self.credit.outstanding() + per_send <= window {
                self.send_one()?;
            }
            let heard = self.hear()?;
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            if heard {
                (news, looks) = (now, 0);
            } else if now - news > SILENCE {
                self.credit.lost += self.credit.outstanding();
                news = now;
            } else {
                rest(&self.socket, &mut looks)?;
            }
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

/// The receiving process; ends with its parent.
pub(super) fn receive(spec: &Spec) -> Result<()> {
    let merged = spec.kind != Kind::Single && !spec.sockets.no_gro;
    let config = BareConfig {
        gro: merged,
        rx_buffer: spec.sockets.rcvbuf_cap,
        ..BareConfig::default()
    };
    let socket = BareSocket::open(spec.local, &config)?;
    let shape = Shape::new(spec, socket.rx_buffer());
    child::say(&Ready {
        addr: socket.local(),
        rx_buffer: socket.rx_buffer(),
    })?;
    let mut buffer = vec![0; 65_536];
    let mut place = Place {
        memory: vec![0; MEMORY],
        at: 0,
    };
    let mut giver = Giver::default();
    let mut looks = 0;
    loop {
        let got = socket
            .receive(&mut buffer)
            .map_err(CliError::io("receive from the sending process"))?;
        let Some((len, from)) = got else {
            if looks == QUIET {
                giver.tell(&socket)?;
            }
            rest(&socket, &mut looks)?;
            continue;
        };
        looks = 0;
        giver.to = Some(from);
        for packet in buffer.get(..len).unwrap_or_default().chunks(shape.packet) {
            giver.arrived += 1;
            if shape.heavy && !place.take(packet, shape.payload) {
                giver.bad += 1;
            }
        }
        if giver.arrived - giver.told >= shape.ack_every as u64 {
            giver.tell(&socket)?;
        }
    }
}

/// Gives credit back.
#[derive(Default)]
struct Giver {
    to: Option<SocketAddr>,
    arrived: u64,
    bad: u64,
    told: u64,
}

impl Giver {
    /// Tells what has arrived, if that is news.
    fn tell(&mut self, socket: &BareSocket) -> Result<()> {
        let Some(to) = self.to.filter(|_| self.told < self.arrived) else {
            return Ok(());
        };
        // Credit that finds no room is given with the next packets.
        let sent = socket
            .send(&credit_bytes(self.arrived, self.bad), to)
            .map_err(CliError::io("send to the sending process"))?;
        if sent {
            self.told = self.arrived;
        }
        Ok(())
    }
}

/// Between two looks at an empty socket.
fn rest(socket: &BareSocket, looks: &mut u32) -> Result<()> {
    *looks += 1;
    if *looks < LOOKS {
        std::hint::spin_loop();
        return Ok(());
    }
    *looks = 0;
    socket
        .wait(NAP)
        .map_err(CliError::io("wait for the other process"))
}

/// Where payload goes.
struct Place {
    memory: Vec<u8>,
    at: usize,
}

impl Place {
    /// Checks the packet and copies its payload; false if it is damaged.
    fn take(&mut self, packet: &[u8], payload: usize) -> bool {
        let Some((signed, crc)) = packet.split_last_chunk::<CRC>() else {
            return false;
        };
        if crc32fast::hash(signed) != u32::from_le_bytes(*crc) {
            return false;
        }
        let Some(from) = signed.get(HEADER..HEADER + payload) else {
            return false;
        };
        let Some(to) = self.memory.get_mut(self.at..self.at + payload) else {
            return false;
        };
        to.copy_from_slice(from);
        self.at += payload;
        if self.at + payload > self.memory.len() {
            self.at = 0;
        }
        true
    }
}

/// Writes the CRC behind a packet.
fn sign(packet: &mut [u8]) {
    if let Some((signed, crc)) = packet.split_last_chunk_mut::<CRC>() {
        *crc = crc32fast::hash(signed).to_le_bytes();
    }
}

fn credit_bytes(arrived: u64, bad: u64) -> [u8; 16] {
    (u128::from(bad) << 64 | u128::from(arrived)).to_le_bytes()
}

fn parse_credit(bytes: &[u8]) -> Option<(u64, u64)> {
    let (arrived, bad) = bytes.split_first_chunk::<8>()?;
    let bad = bad.first_chunk::<8>()?;
    Some((u64::from_le_bytes(*arrived), u64::from_le_bytes(*bad)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_packet_is_not_placed() {
        let mut packet = vec![9; HEADER + 256 + CRC];
        sign(&mut packet);
        let mut place = Place {
            memory: vec![0; 600],
            at: 0,
        };
        assert!(place.take(&packet, 256) && place.take(&packet, 256));
        assert_eq!(place.at, 0, "the third would not fit");
        packet[20] ^= 1;
        assert!(!place.take(&packet, 256));
        assert!(!place.take(&[1, 2], 256));
        assert!(place.memory[..512].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn credit_reads_back() {
        assert_eq!(parse_credit(&credit_bytes(77, 3)), Some((77, 3)));
        assert_eq!(parse_credit(&[0; 12]), None);
    }
}
