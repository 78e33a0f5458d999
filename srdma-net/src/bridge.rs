//! The bridge: between devices of one machine, packets go through memory that both share.
//!
//! ```text
//!  sender                      yard of the receiver (a sealed file in memory)
//!  outbox ─ lane ─ copy in ──► [ record | record | … ]   4 MiB ─ copy out ─► inbox ─► device
//!              └─ sleeps it? ── an empty datagram to its socket wakes it
//! ```
//!
//! | at | what | written by |
//! |---|---|---|
//! | 0 | magic while the yard is open | owner |
//! | 64 | how often it was rung | senders |
//! | 128 | who sleeps on the sockets, a bit each | owner |
//! | 192 | lanes that were ever used, a bit each | senders |
//! | 256 | addresses and ports that it receives for, 24 bytes each of 32 | owner |
//! | 4096 | 64 lanes of 256 bytes, see `LaneWords` | both |
//! | 65536 | 64 rings of 4 MiB: records of length 0..4, stride 4..6, TOS 6, TTL 7, packets | sender |
//!
//! A yard is found by a link in the folder of the registries (`share/place.rs`), named after the
//! port that a device of ours has to itself; so only this user's processes cross, in one network
//! namespace. A lane has one sender: a lock on its byte of the file, which goes with the process.
//!
//! What crosses are the packets that would leave through the socket, ICRC and all, so the device
//! knows of nothing. Whatever stands in a yard is input: it is checked, and copied before it is
//! read. A receiver that takes nothing is waited for as a full socket is (`room.rs`), and then what
//! goes to it is lost, as on a network.

mod inbox;
mod outbox;
#[cfg(test)]
mod tests;
mod yard;

pub(crate) use yard::{OwnYard, Sleeper, check, is_dead};

use crate::share::Share;
use crate::socket::RoceSocket;
use inbox::Inbox;
use outbox::Outbox;
use srdma_core::tx::TxBatch;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Passes after a record while which the sockets are looked at less often.
const LIVELY: u32 = 4096;

/// Both ends of a device.
#[derive(Debug)]
pub(crate) struct Bridge {
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    share: Arc<Share>,
    /// Passes since something came.
    passes: u32,
}

impl Bridge {
    /// One that receives for the ports that `sockets` have to themselves.
    pub(crate) fn open(share: &Arc<Share>, sockets: &[RoceSocket]) -> io::Result<Self> {
        let mut this = Self {
            inbox: Inbox::open()?,
            outbox: Outbox::default(),
            share: Arc::clone(share),
            passes: LIVELY,
        };
        for socket in sockets {
            this.add(socket)?;
        }
        Ok(this)
    }

    /// Receives for one more.
    pub(crate) fn add(&mut self, socket: &RoceSocket) -> io::Result<()> {
        let at = SocketAddr::new(socket.local(), socket.tx_port());
        self.inbox.receive_for(at, self.share.bridge_link(at))
    }

    /// A pass begins: true if records have been coming lately.
    pub(crate) const fn begin_pass(&mut self) -> bool {
        self.passes = self.passes.saturating_add(1);
        self.passes < LIVELY
    }

    /// A pass took so many records.
    pub(crate) const fn took(&mut self, records: usize) {
        if records > 0 {
            self.passes = 0;
        }
    }

    /// How many of the runs of `batch`, from `first` on, are for sockets.
    pub(crate) fn lets_pass(
        &mut self,
        sockets: &[RoceSocket],
        batch: &TxBatch<'_>,
        first: usize,
    ) -> usize {
        let runs = batch.runs.get(first..).unwrap_or_default();
        let (outbox, share) = (&mut self.outbox, &*self.share);
        let cross = runs
            .iter()
            .position(|run| outbox.leads(share, sockets, run));
        cross.unwrap_or(runs.len())
    }

    /// Names and values.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 10] {
        let (rx, tx) = (self.inbox.counters(), self.outbox.counters());
        [
            ("bridge_rx_records", rx.records),
            ("bridge_rx_bytes", rx.bytes),
            ("bridge_rx_senders", rx.senders),
            ("bridge_rx_refused", rx.refused),
            ("bridge_rx_kept", self.inbox.kept()),
            ("bridge_tx_runs", tx.runs),
            ("bridge_tx_packets", tx.packets),
            ("bridge_tx_full", tx.full),
            ("bridge_tx_lost", tx.lost),
            ("bridge_tx_knocks", tx.knocks),
        ]
    }
}
