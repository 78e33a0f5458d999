//! The receiving half of a pump.

use super::{CRC, HEADER, MEMORY, QUIET, Shape, credit_bytes};
use crate::cmd::limit::spec::{Kind, Ready, Spec};
use crate::error::{CliError, Result};
use srdma_net::bare::{BareConfig, BareSocket};
use std::net::SocketAddr;

/// Counts, checks and places what comes.
pub(super) struct Receiver {
    socket: BareSocket,
    shape: Shape,
    buffer: Vec<u8>,
    place: Place,
    giver: Giver,
    knocked: Option<SocketAddr>,
}

impl Receiver {
    /// Opens its socket.
    pub(super) fn open(spec: &Spec) -> Result<Self> {
        let merged = spec.kind != Kind::Single && !spec.sockets.no_gro;
        let config = BareConfig {
            gro: merged,
            rx_buffer: spec.sockets.rcvbuf_cap,
            ..BareConfig::default()
        };
        let socket = BareSocket::open(spec.local, &config)?;
        let shape = Shape::new(spec, socket.rx_buffer());
        Ok(Self {
            socket,
            shape,
            buffer: vec![0; 65_536],
            place: Place::new(MEMORY),
            giver: Giver::default(),
            knocked: None,
        })
    }

    /// What a sender must know.
    pub(super) const fn ready(&self) -> Ready {
        Ready {
            addr: self.socket.local(),
            rx_buffer: self.socket.rx_buffer(),
        }
    }

    pub(super) const fn socket(&self) -> &BareSocket {
        &self.socket
    }

    /// Tells the opposite receiver where we are.
    pub(super) fn knock(&self, peer: &Ready) -> Result<()> {
        let sent = self.socket.send(&[0], peer.addr);
        sent.map_err(CliError::io("send to the opposite process"))?;
        Ok(())
    }

    /// Where the opposite receiver is, once it has told us.
    pub(super) const fn knocked(&self) -> Option<SocketAddr> {
        self.knocked
    }

    /// Packets that have arrived since the start.
    pub(super) const fn arrived(&self) -> u64 {
        self.giver.arrived
    }

    /// Those of them that were damaged.
    pub(super) const fn bad(&self) -> u64 {
        self.giver.bad
    }

    /// Takes one message of the kernel's; false if there is none. After `QUIET` looks without any,
    /// what credit there is is given.
    pub(super) fn step(&mut self, looks: u32) -> Result<bool> {
        let got = self
            .socket
            .receive(&mut self.buffer)
            .map_err(CliError::io("receive from the sending process"))?;
        let Some((len, from)) = got else {
            if looks == QUIET {
                self.giver.tell(&self.socket)?;
            }
            return Ok(false);
        };
        if len == 1 {
            self.knocked = Some(from);
            return Ok(true);
        }
        self.giver.to = Some(from);
        let (payload, packet) = (self.shape.payload, self.shape.packet);
        for packet in self.buffer.get(..len).unwrap_or_default().chunks(packet) {
            self.giver.arrived += 1;
            if self.shape.heavy && !self.place.take(packet, payload) {
                self.giver.bad += 1;
            }
        }
        if self.giver.arrived - self.giver.told >= self.shape.ack_every as u64 {
            self.giver.tell(&self.socket)?;
        }
        Ok(true)
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

/// Where payload goes.
pub(super) struct Place {
    memory: Vec<u8>,
    at: usize,
}

impl Place {
    /// Room for `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self {
            memory: vec![0; len],
            at: 0,
        }
    }

    /// Where the next payload goes.
    #[cfg(test)]
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// All of it.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Checks the packet and copies its payload; false if it is damaged.
    pub(super) fn take(&mut self, packet: &[u8], payload: usize) -> bool {
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
