//! The sockets of a device, and the bridge beside them.

use super::super::quiet::Quiet;
use crate::bridge::Bridge;
use crate::room::{self, Desk};
use crate::rx::RxRing;
use crate::share::Share;
use crate::share::door::Door;
use crate::socket::{ROCE_PORT, RoceSocket, SocketConfig};
use crate::tx::{Sender, Sent};
use srdma_core::hca::Hca;
use srdma_core::hca::ports::BLOCK_BITS;
use srdma_core::num::Qpn;
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::tx::TxBatch;
use std::sync::Arc;

/// Buffers of sockets in one pass before the first records of a new sender, about: with more of
/// them, it waits for the next pass.
const GREETING: usize = 1024;
/// So many passes it waits at most: no socket holds more than they took.
const WAITS: u32 = 64;

/// The sockets of a device.
pub(crate) struct UdpLink {
    /// The way to devices on this machine, if it is wanted and can be had; it is left before the
    /// ports are given back.
    pub(super) bridge: Option<Bridge>,
    pub(super) sockets: Vec<RoceSocket>,
    /// How long each socket has given nothing: private one and door of each address.
    pub(super) quiet: Vec<[Quiet; 2]>,
    pub(super) share: Option<Arc<Share>>,
    /// Of each address: an interface had it. One that none ever had cannot go.
    pub(super) listed: Vec<bool>,
    /// Interfaces whose further addresses are taken in.
    pub(super) interfaces: Vec<String>,
    pub(super) settings: SocketConfig,
    pub(super) door: Door,
    pub(super) desk: Desk,
    /// Questions that left.
    pub(super) asked: u64,
    pub(super) passes: u32,
    /// Passes that have not emptied the sockets while a new sender waited.
    pub(super) waits: u32,
    pub(super) rx: RxRing,
    pub(super) tx: Sender,
    pub(super) segments: u16,
}

/// Which sockets are looked at.
#[derive(Clone, Copy, Debug)]
enum Looks {
    /// All of them.
    Everywhere,
    /// Not those that rest; `bridged`: packets come over the bridge.
    InTurn { bridged: bool },
}

/// Has `f` look at what lies in a slab, of which the device may keep a share if it wants to.
fn lending<'a>(
    hca: &mut Hca,
    slab: impl FnOnce() -> Option<&'a Arc<[u8]>>,
    f: impl FnOnce(&mut Hca),
) {
    let lends = hca.wants_slabs();
    if lends {
        hca.lend(slab());
    }
    f(hca);
    if lends {
        hca.lend(None);
    }
}

impl UdpLink {
    pub(super) fn receive(
        &mut self,
        now: Instant,
        hca: &mut Hca,
        mut f: impl FnMut(&mut Hca, &RxMeta, &[u8]),
    ) -> usize {
        self.passes = self.passes.wrapping_add(1);
        let mut total = 0;
        let mut bridged = false;
        if let Some(bridge) = &mut self.bridge {
            bridged = bridge.begin_pass();
            if bridge.inbox.rang() {
                total += self.cross(hca, &mut f);
                total += self.welcome(hca, now, &mut f);
            }
        }
        total += self.look(hca, Looks::InTurn { bridged }, now, &mut f);
        let tx = &mut self.tx;
        self.desk
            .serve(now, &self.sockets, |from, reply| tx.hear(from, reply));
        total
    }

    /// Takes what has come over the bridge.
    fn cross(&mut self, hca: &mut Hca, f: &mut impl FnMut(&mut Hca, &RxMeta, &[u8])) -> usize {
        let Some(bridge) = &mut self.bridge else {
            return 0;
        };
        let taken = bridge.inbox.take(|meta, bytes, slabs| {
            lending(hca, || slabs.lendable(0), |hca| f(hca, meta, bytes));
        });
        bridge.took(taken);
        taken
    }

    /// Listens to new senders, if there are some. What they sent before lies in the sockets, and
    /// comes first; returns how many buffers that was.
    fn welcome(
        &mut self,
        hca: &mut Hca,
        now: Instant,
        f: &mut impl FnMut(&mut Hca, &RxMeta, &[u8]),
    ) -> usize {
        let Some(bridge) = &mut self.bridge else {
            return 0;
        };
        if !bridge.inbox.notice() {
            return 0;
        }
        let (taken, all) = self.empty_sockets(hca, now, f);
        self.waits = if all { 0 } else { self.waits + 1 };
        if self.waits >= WAITS {
            self.waits = 0;
        } else if !all {
            return taken;
        }
        if let Some(bridge) = &mut self.bridge {
            bridge.inbox.greet();
        }
        taken + self.cross(hca, f)
    }

    /// Takes all that lies in the sockets; returns how many buffers that was, and whether nothing
    /// is left.
    #[cold]
    fn empty_sockets(
        &mut self,
        hca: &mut Hca,
        now: Instant,
        mut f: &mut dyn FnMut(&mut Hca, &RxMeta, &[u8]),
    ) -> (usize, bool) {
        let mut total = 0;
        while total < GREETING {
            match self.look(hca, Looks::Everywhere, now, &mut f) {
                0 => return (total, true),
                more => total += more,
            }
        }
        (total, false)
    }

    /// Looks at sockets.
    fn look(
        &mut self,
        hca: &mut Hca,
        looks: Looks,
        now: Instant,
        f: &mut impl FnMut(&mut Hca, &RxMeta, &[u8]),
    ) -> usize {
        let mut total = 0;
        for (at, (socket, quiet)) in self.sockets.iter().zip(&mut self.quiet).enumerate() {
            let [private, door] = quiet;
            for (end, quiet) in [(Some(socket.private()), private), (socket.door(), door)] {
                let rests = |quiet: &mut Quiet| match looks {
                    Looks::Everywhere => false,
                    Looks::InTurn { bridged } => quiet.rests(now, self.passes, bridged),
                };
                let Some(end) = end.filter(|_| !rests(quiet)) else {
                    continue;
                };
                let got = self.rx.receive(end);
                if got == 0 {
                    continue;
                }
                quiet.gave();
                total += got;
                for (index, buffer) in self.rx.filled() {
                    let (desk, door) = (&mut self.desk, &mut self.door);
                    let slab = || self.rx.slab(index);
                    lending(hca, slab, |hca| {
                        let mut f = |meta: &RxMeta, bytes: &[u8]| {
                            desk.sift(meta, bytes, |meta, bytes| f(hca, meta, bytes));
                        };
                        match &self.share {
                            None => f(buffer.0, buffer.1),
                            Some(share) if end.port == ROCE_PORT => {
                                door.sort(share, (at, socket), now, buffer, f);
                            }
                            Some(share) => door.unpack(share, buffer, f),
                        }
                    });
                }
            }
        }
        total
    }

    pub(super) fn send(&mut self, batch: &TxBatch<'_>) -> Sent {
        let Self {
            tx,
            sockets,
            bridge,
            ..
        } = self;
        let Some(bridge) = bridge else {
            return tx.send(sockets, batch);
        };
        let mut done = 0;
        while done < batch.runs.len() {
            let crossed = bridge.outbox.send(sockets, batch, done);
            done += crossed.runs;
            if crossed.full {
                return Sent {
                    runs: done,
                    blocked: true,
                };
            }
            let stays = bridge.lets_pass(sockets, batch, done);
            if stays == 0 {
                continue;
            }
            let part = TxBatch {
                runs: batch.runs.get(done..done + stays).unwrap_or_default(),
                ..*batch
            };
            let sent = tx.send(sockets, &part);
            done += sent.runs;
            if sent.blocked {
                return Sent {
                    runs: done,
                    blocked: true,
                };
            }
        }
        Sent {
            runs: done,
            blocked: false,
        }
    }

    /// Asks receivers, behind what was just sent to them, what they have taken.
    pub(super) fn ask(&mut self) {
        let Self {
            tx, sockets, share, ..
        } = self;
        for question in tx.questions() {
            let socket = RoceSocket::on(sockets, question.local);
            let block = share.as_ref().map_or(1, |share| share.name());
            let home = Qpn::new(u32::from(block) << BLOCK_BITS);
            let asked = socket.is_some_and(|socket| room::ask(socket, &question, home));
            self.asked += u64::from(asked);
        }
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.socket_counters();
        all.extend(self.bridge.iter().flat_map(Bridge::counters));
        all
    }

    fn socket_counters(&self) -> Vec<(&'static str, u64)> {
        let (rx, tx, door) = (self.rx.counters(), self.tx.counters(), self.door.counters());
        vec![
            ("socket_rx_calls", rx.calls),
            ("socket_rx_buffers", rx.buffers),
            ("socket_rx_merged", rx.merged),
            ("socket_rx_kept", rx.kept),
            ("socket_rx_dropped_full", rx.dropped_full),
            ("socket_rx_truncated", rx.dropped_truncated),
            ("socket_rx_empty", rx.empty),
            ("door_passed_on", door.passed),
            ("door_lost", door.lost),
            ("door_taken", door.taken),
            ("door_refused", door.refused),
            ("socket_tx_calls", tx.calls),
            ("socket_tx_runs", tx.runs),
            ("socket_tx_packets", tx.packets),
            ("socket_tx_blocked", tx.blocked),
            ("socket_tx_held", tx.held),
            ("notes_asked", self.asked),
            ("notes_answered", self.desk.counters().answered),
            ("notes_refused", self.desk.counters().refused),
            ("socket_tx_gso_lowered", tx.gso_lowered),
            (
                "socket_tx_lost",
                tx.lost_too_long
                    + tx.lost_forbidden
                    + tx.lost_unreachable
                    + tx.lost_other
                    + tx.lost_no_socket,
            ),
        ]
    }
}
