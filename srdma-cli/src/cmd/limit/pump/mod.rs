//! One way, as fast as it goes: the sender has credit, the receiver gives it back.
//!
//! ```text
//! sender    | header 12 | payload | crc 4 |  × per_send, one system call
//! receiver  counts, (checks the CRC, copies the payload); each `ack_every` packets:
//!           | packets arrived, u64 | of them damaged, u64 |
//! opposed   each process is both, with a socket for each; the first packet of the one that starts
//!           last has one byte and says where its receiver is
//! ```
//!
//! What is outstanding never exceeds what the receiver's buffer surely holds, so the kernel drops
//! nothing. Should it all the same, the sender goes on after a pause and reports the loss.

mod receiver;
mod sender;

use super::spec::{Kind, Ready, Spec};
use crate::child;
use crate::error::{CliError, Result};
use receiver::Receiver;
use sender::Sender;
use srdma_net::bare::BareSocket;
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
        let heavy = spec.kind.is_heavy();
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
    let mut sender = Sender::open(spec, spec.peer()?)?;
    let duration = Duration::from_nanos(spec.duration_ns);
    sender.run_for(duration / 5)?;
    let before = sender.arrived();
    let start = Instant::now();
    sender.run_for(duration)?;
    let elapsed = start.elapsed();
    child::say(&sender.report(sender.arrived() - before, 0, elapsed))
}

/// The receiving process; ends with its parent.
pub(super) fn receive(spec: &Spec) -> Result<()> {
    let mut receiver = Receiver::open(spec)?;
    child::say(&receiver.ready())?;
    let mut looks = 0;
    loop {
        if receiver.step(looks)? {
            looks = 0;
        } else {
            rest(receiver.socket(), &mut looks)?;
        }
    }
}

/// The process of two opposed pumps that starts last, and reports for both.
pub(super) fn oppose(spec: &Spec) -> Result<()> {
    let peer = spec.peer()?;
    let mut receiver = Receiver::open(spec)?;
    receiver.knock(&peer)?;
    let mut sender = Sender::open(spec, peer)?;
    let duration = Duration::from_nanos(spec.duration_ns);
    let run_for = |sender: &mut Sender, receiver: &mut Receiver, duration| -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            step_both(sender, receiver)?;
        }
        Ok(())
    };
    run_for(&mut sender, &mut receiver, duration / 5)?;
    let (sent, received) = (sender.arrived(), receiver.arrived());
    let start = Instant::now();
    run_for(&mut sender, &mut receiver, duration)?;
    let elapsed = start.elapsed();
    let packets = sender.arrived() - sent + receiver.arrived() - received;
    child::say(&sender.report(packets, receiver.bad(), elapsed))
}

/// The process of two opposed pumps that starts first; ends with its parent.
pub(super) fn face(spec: &Spec) -> Result<()> {
    let mut receiver = Receiver::open(spec)?;
    child::say(&receiver.ready())?;
    let mut looks = 0;
    let addr = loop {
        receiver.step(looks)?;
        match receiver.knocked() {
            Some(addr) => break addr,
            None => rest(receiver.socket(), &mut looks)?,
        }
    };
    let peer = Ready {
        addr,
        rx_buffer: receiver.ready().rx_buffer,
    };
    let mut sender = Sender::open(spec, peer)?;
    loop {
        step_both(&mut sender, &mut receiver)?;
    }
}

/// Sends what credit there is for, and takes one message of what has come.
fn step_both(sender: &mut Sender, receiver: &mut Receiver) -> Result<()> {
    let heard = sender.step(Instant::now())?;
    if !receiver.step(QUIET)? && !heard {
        // Nobody sleeps: there are two sockets to look at, and both sides always have work.
        std::thread::yield_now();
    }
    Ok(())
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
    use super::receiver::Place;
    use super::*;

    #[test]
    fn a_damaged_packet_is_not_placed() {
        let mut packet = vec![9; HEADER + 256 + CRC];
        sign(&mut packet);
        let mut place = Place::new(600);
        assert!(place.take(&packet, 256) && place.take(&packet, 256));
        assert_eq!(place.at(), 0, "the third would not fit");
        packet[20] ^= 1;
        assert!(!place.take(&packet, 256));
        assert!(!place.take(&[1, 2], 256));
        assert!(place.memory()[..512].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn credit_reads_back() {
        assert_eq!(parse_credit(&credit_bytes(77, 3)), Some((77, 3)));
        assert_eq!(parse_credit(&[0; 12]), None);
    }
}
