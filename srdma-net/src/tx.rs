//! `TxBatch` to the kernel: one `sendmmsg` for all runs of one local address.
//!
//! ```text
//! run    → one message, cut by the kernel (UDP_SEGMENT), if the target takes GSO
//!        → one message per packet otherwise: the same bytes, sent with IP ID 0 each
//! ```
//!
//! A run that is cut here and not by the kernel was signed for IDs 0, 1, 2 … and is sent with ID 0.
//! Our own receivers solve for the ID, so nothing is lost; receivers that do not (rxe, NICs) drop
//! those packets once. So the core is told which targets refused ([`Offload::lowered`]).
//!
//! Nothing waits here. A socket without room is reported as blocked.

use crate::offload::{Offload, Refusal, judge};
use crate::room::{Note, Question, Room};
use crate::socket::RoceSocket;
use crate::sys::cmsg::TxOptions;
use crate::sys::mmsg::{Outgoing, SendRing};
use srdma_core::tx::{Run, Seg, TxBatch};
use std::io;
use std::net::IpAddr;

/// Messages of one system call.
const MESSAGES: usize = 256;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sent {
    /// The first so many runs left, or count as lost on the way.
    pub runs: usize,
    /// The rest found no room: go on when the socket is writable.
    pub blocked: bool,
}

/// What the sending side has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxCounters {
    /// `sendmmsg` calls.
    pub calls: u64,
    /// Runs handed to the kernel.
    pub runs: u64,
    /// Packets in them.
    pub packets: u64,
    /// Bytes of UDP payload in them.
    pub bytes: u64,
    /// Times that a socket had no room.
    pub blocked: u64,
    /// Times that something waited for a receiver to have room.
    pub held: u64,
    /// Targets to which GSO was given up.
    pub gso_lowered: u64,
    /// Runs refused because something is longer than the path allows (EMSGSIZE).
    pub lost_too_long: u64,
    /// Runs refused by policy (EPERM, EACCES).
    pub lost_forbidden: u64,
    /// Runs without a way to the target (EHOSTUNREACH, ENETUNREACH, ENETDOWN, ECONNREFUSED).
    pub lost_unreachable: u64,
    /// Runs refused for another reason.
    pub lost_other: u64,
    /// Runs from a local address without a socket.
    pub lost_no_socket: u64,
}

/// The sending side of the sockets of a device.
#[derive(Debug)]
pub struct Sender {
    ring: SendRing,
    offload: Offload,
    room: Room,
    counters: TxCounters,
}

/// Where a batch stands: the first packet that has not left.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    run: usize,
    packet: u16,
}

impl Sender {
    /// A sender that may use GSO, or not.
    #[must_use]
    pub fn new(gso: bool) -> Self {
        let counters = TxCounters::default();
        Self {
            ring: SendRing::new(MESSAGES),
            offload: Offload::new(gso),
            room: Room::new(),
            counters,
        }
    }

    /// A sender that asks receivers nothing, if `plain`.
    pub(crate) const fn plain(mut self, plain: bool) -> Self {
        self.room.speak_plainly(plain);
        self
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> &TxCounters {
        &self.counters
    }

    /// Which targets take GSO sends.
    #[must_use]
    pub const fn offload(&self) -> &Offload {
        &self.offload
    }

    /// True while a receiver has no room for what it held back.
    pub(crate) fn is_held(&mut self) -> bool {
        self.room.is_held()
    }

    /// Bytes that nobody acknowledges which may be worth building.
    pub(crate) const fn room(&self) -> u32 {
        self.room.hint()
    }

    /// What is to be asked of receivers, behind what was sent, each once.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = Question> {
        self.room.questions()
    }

    /// A receiver at `from` has answered.
    pub(crate) fn hear(&mut self, from: IpAddr, reply: &Note) {
        self.room.hear(from, reply);
    }

    /// Sends a batch, each run from the socket of its local address.
    ///
    /// Costs one system call for each local address in turn, and one more after each refusal.
    pub fn send(&mut self, sockets: &[RoceSocket], batch: &TxBatch<'_>) -> Sent {
        let mut at = Cursor { run: 0, packet: 0 };
        let end = self.room.admit(batch);
        self.counters.held += u64::from(end < batch.runs.len());
        let admitted = batch.runs.get(..end).unwrap_or_default();
        while let Some(run) = admitted.get(at.run) {
            let Some(socket) = RoceSocket::on(sockets, run.local) else {
                self.counters.lost_no_socket += 1;
                at = Cursor {
                    run: at.run + 1,
                    packet: 0,
                };
                continue;
            };
            if let Some(blocked) = self.step(socket, batch, admitted, &mut at) {
                self.counters.blocked += u64::from(blocked);
                // A run of which some packets left is rewound whole: duplicates do no harm.
                return Sent {
                    runs: at.run,
                    blocked,
                };
            }
        }
        Sent {
            runs: at.run,
            blocked: end < batch.runs.len(),
        }
    }

    /// One system call. `Some(true)`: blocked.
    fn step(
        &mut self,
        socket: &RoceSocket,
        batch: &TxBatch<'_>,
        admitted: &[Run],
        at: &mut Cursor,
    ) -> Option<bool> {
        self.counters.calls += 1;
        socket.adapt();
        let messages = Messages {
            socket,
            batch,
            admitted,
            at: *at,
            offload: &self.offload,
        };
        match self.ring.send(socket.tx_fd(), messages) {
            Ok(0) => self.lose(batch, at, None),
            Ok(sent) => self.advance(batch, at, sent),
            Err(error) => {
                let run = batch.runs.get(at.run)?;
                let gso = run.packets > 1 && self.offload.gso(run.target.ip());
                match judge(&error, gso) {
                    Refusal::Blocked => return Some(true),
                    Refusal::Again => {}
                    Refusal::NoGso => {
                        self.offload.lower(run.target.ip());
                        self.counters.gso_lowered += 1;
                    }
                    Refusal::Lost => self.lose(batch, at, Some(&error)),
                }
            }
        }
        None
    }

    /// Moves on by `sent` messages, counting.
    fn advance(&mut self, batch: &TxBatch<'_>, at: &mut Cursor, sent: usize) {
        for _ in 0..sent {
            let Some(run) = batch.runs.get(at.run) else {
                return;
            };
            if at.packet == 0 {
                self.counters.runs += 1;
                self.counters.packets += u64::from(run.packets);
                self.counters.bytes += u64::from(run.bytes);
            }
            step_over(at, run, self.offload.gso(run.target.ip()));
        }
    }

    /// Counts the message at the cursor as lost, and moves on.
    fn lose(&mut self, batch: &TxBatch<'_>, at: &mut Cursor, error: Option<&io::Error>) {
        let counter = match error.and_then(io::Error::raw_os_error) {
            Some(libc::EMSGSIZE) => &mut self.counters.lost_too_long,
            Some(libc::EPERM | libc::EACCES) => &mut self.counters.lost_forbidden,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::ECONNREFUSED) => {
                &mut self.counters.lost_unreachable
            }
            _ => &mut self.counters.lost_other,
        };
        *counter += 1;
        if let Some(run) = batch.runs.get(at.run) {
            step_over(at, run, self.offload.gso(run.target.ip()));
        }
    }
}

/// The cursor after the message at the cursor.
fn step_over(at: &mut Cursor, run: &Run, gso: bool) {
    at.packet += 1;
    if gso || at.packet >= run.packets {
        *at = Cursor {
            run: at.run + 1,
            packet: 0,
        };
    }
}

/// The messages from the cursor on, as long as they leave from the same socket.
struct Messages<'a> {
    socket: &'a RoceSocket,
    batch: &'a TxBatch<'a>,
    admitted: &'a [Run],
    at: Cursor,
    offload: &'a Offload,
}

impl<'a> Iterator for Messages<'a> {
    type Item = Outgoing<'a>;

    fn next(&mut self) -> Option<Outgoing<'a>> {
        let run = self.admitted.get(self.at.run)?;
        if run.local != self.socket.local() {
            return None;
        }
        let gso = self.offload.gso(run.target.ip());
        let packet = self.at.packet;
        step_over(&mut self.at, run, gso);
        let (tclass, hop_limit) = self.socket.usual_marks((run.tclass, run.hop_limit));
        let many = run.packets > 1;
        Some(Outgoing {
            target: run.target,
            segs: segs(self.batch, run),
            part: (many && !gso).then(|| part(run, packet)),
            options: TxOptions {
                // rule: roce-157
                segment: (many && gso).then_some(run.segment_len),
                tclass: (run.tclass != tclass).then_some(run.tclass),
                // Multicast has a default of its own, so it is always told.
                hop_limit: (run.hop_limit != hop_limit || run.target.ip().is_multicast())
                    .then_some(run.hop_limit),
            },
        })
    }
}

/// The gather entries of `run`; none if the batch contradicts itself.
pub(crate) fn segs<'a>(batch: &'a TxBatch<'a>, run: &Run) -> &'a [Seg<'a>] {
    let start = usize::try_from(run.segs.start).unwrap_or(usize::MAX);
    let end = usize::try_from(run.segs.end).unwrap_or(usize::MAX);
    batch.segs.get(start..end).unwrap_or_default()
}

/// Offset and length of packet `packet` in the bytes of `run`.
pub(crate) fn part(run: &Run, packet: u16) -> (usize, usize) {
    let stride = usize::from(run.segment_len);
    let total = usize::try_from(run.bytes).unwrap_or(usize::MAX);
    let start = stride * usize::from(packet);
    (start, stride.min(total.saturating_sub(start)))
}

#[cfg(test)]
mod tests;
