//! Notes between sockets of our kind: how far has what was sent been taken?
//!
//! ```text
//! question   BTH e0, to the queue pair that the packets go to ─► behind them, on their way
//! answer     BTH e1, to a number of the process that asks     ◄─ when they have been received
//!
//!   0     12      16      24     32     34      36      40     44
//!   │ BTH │ magic │ token │ mark │ port │ block │ value │ ICRC │
//! ```
//!
//! The opcodes are of the class that the specification leaves to manufacturers, and the packets
//! are whole otherwise: any other device drops them, as opcodes that its queue pairs do not have.
//! A question goes only where bulk traffic of UC or UD goes anyway, an answer only to who asked.
//! `value` is a number of the queue pairs of who asks, where the answer goes to; in the answer,
//! how many bytes the socket may hold of who asked. The rest comes back as it was. `[srdma]`

use super::told::Question;
use crate::socket::{ROCE_PORT, RoceSocket};
use srdma_core::hca::ports::block_of;
use srdma_core::num::{Psn, Qpn};
use srdma_core::rx::RxMeta;
use srdma_core::time::Instant;
use srdma_core::wire::{
    BTH_LEN, Bth, FlowTuple, ICRC_LEN, IcrcCheck, IcrcFlow, Opcode, icrc::verify,
};
use std::net::{IpAddr, SocketAddr};

const QUESTION: u8 = 0xe0;
const ANSWER: u8 = 0xe1;
const MAGIC: [u8; 4] = *b"sRn\x01";
const BODY: usize = 28;
/// Length of a note.
pub(super) const LEN: usize = BTH_LEN + BODY + ICRC_LEN;
/// Questions of one look at the sockets that are answered; who asked beyond asks again.
const ANSWERS: usize = 64;
/// Who asked within this time shares the socket with others that did.
const SHARES_NS: u64 = 100_000_000;

/// What a note says besides its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(super) token: u64,
    /// So much was sent; in an answer, it has been taken.
    pub(super) mark: u64,
    /// Where it is asked.
    pub(super) port: u16,
    pub(super) block: u16,
    /// Who asks; in an answer, bytes that the socket may hold of us.
    pub(super) value: u32,
}

/// Who asked, and what.
#[derive(Clone, Copy, Debug)]
struct Asked {
    local: IpAddr,
    source: SocketAddr,
    note: Note,
}

/// What went through the desk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeskCounters {
    /// Questions that were answered.
    pub(crate) answered: u64,
    /// Notes that were damaged, or too many.
    pub(crate) refused: u64,
}

/// Where notes are taken in, and answered.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    asked: Vec<Asked>,
    /// Who asked lately, and when.
    askers: Vec<(SocketAddr, Instant)>,
    replies: Vec<(IpAddr, Note)>,
    counters: DeskCounters,
    /// Notes are nothing to it: they go on, as to any other device.
    plain: bool,
}

impl Desk {
    pub(crate) const fn plain(mut self, plain: bool) -> Self {
        self.plain = plain;
        self
    }

    pub(crate) const fn counters(&self) -> DeskCounters {
        self.counters
    }

    /// Takes the notes out of a buffer, and hands on what is left of it. A note ends a merged
    /// buffer, or all parts of it are as long as one.
    #[inline]
    pub(crate) fn sift(
        &mut self,
        meta: &RxMeta,
        bytes: &[u8],
        mut rest: impl FnMut(&RxMeta, &[u8]),
    ) {
        let stride = meta.stride.max(1);
        if bytes.len() == stride && stride != LEN || self.plain {
            return rest(meta, bytes);
        }
        if stride < LEN || (stride != LEN && bytes.len() % stride != LEN) {
            return rest(meta, bytes);
        }
        let first = if stride == LEN { 0 } else { bytes.len() - LEN };
        let mut start = 0;
        for (index, note) in bytes
            .get(first..)
            .unwrap_or_default()
            .chunks(LEN)
            .enumerate()
        {
            let at = first + index * LEN;
            if self.take(&part_of(meta, at), note) {
                hand_on(meta, bytes, start..at, &mut rest);
                start = at + note.len();
            }
        }
        hand_on(meta, bytes, start..bytes.len(), &mut rest);
    }

    /// True if `packet` was a note.
    fn take(&mut self, meta: &RxMeta, packet: &[u8]) -> bool {
        let Some((kind, note)) = read(packet) else {
            return false;
        };
        let flow = FlowTuple {
            source: meta.source.ip(),
            target: meta.local,
            source_port: meta.source.port(),
            target_port: meta.port,
        };
        if verify(&IcrcFlow::new(&flow), packet, meta.first) == IcrcCheck::Bad {
            self.counters.refused += 1;
        } else if kind == ANSWER {
            if self.replies.len() < ANSWERS {
                self.replies.push((meta.source.ip(), note));
            }
        } else {
            self.file(meta, note);
        }
        true
    }

    /// A question; only the last one of each who asks is answered.
    fn file(&mut self, meta: &RxMeta, note: Note) {
        let (local, source) = (meta.local, meta.source);
        let asked = Asked {
            local,
            source,
            note,
        };
        let same = |other: &&mut Asked| {
            let place = |asked: &Asked| (asked.source, asked.note.token, asked.note.block);
            place(other) == place(&asked)
        };
        if let Some(before) = self.asked.iter_mut().find(same) {
            *before = asked;
        } else if self.asked.len() < ANSWERS {
            self.asked.push(asked);
        } else {
            self.counters.refused += 1;
        }
    }

    /// Answers, since everything that came before the questions has been taken. What was answered
    /// to us is handed out.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        sockets: &[RoceSocket],
        mut hear: impl FnMut(IpAddr, &Note),
    ) {
        for (from, reply) in self.replies.drain(..) {
            hear(from, &reply);
        }
        for at in 0..self.asked.len() {
            let Some(asked) = self.asked.get(at).copied() else {
                break;
            };
            let socket = RoceSocket::on(sockets, asked.local);
            let Some(socket) = socket else { continue };
            let share = socket.buffers().rx / self.sharers(asked.source, now);
            let note = Note {
                value: share,
                ..asked.note
            };
            let target = SocketAddr::new(asked.source.ip(), ROCE_PORT);
            let home = Qpn::new(asked.note.value);
            let bytes = write(ANSWER, home, &note, &flow_to(socket, target));
            // Lost or not, who asked asks again.
            self.counters.answered += u64::from(socket.send_parts(&[&bytes, &[]], target).is_ok());
        }
        self.asked.clear();
    }

    /// Among how many the socket is shared, `source` among them.
    fn sharers(&mut self, source: SocketAddr, now: Instant) -> u32 {
        self.askers
            .retain(|(asker, at)| *asker != source && now.since(*at) < SHARES_NS);
        if self.askers.len() < ANSWERS {
            self.askers.push((source, now));
        }
        u32::try_from(self.askers.len()).unwrap_or(1)
    }
}

/// What is known of the packets from `start` on.
fn part_of(meta: &RxMeta, start: usize) -> RxMeta {
    let index = u16::try_from(start / meta.stride.max(1)).unwrap_or(u16::MAX);
    RxMeta {
        first: meta.first.wrapping_add(index),
        ..*meta
    }
}

fn hand_on(
    meta: &RxMeta,
    bytes: &[u8],
    part: core::ops::Range<usize>,
    rest: &mut impl FnMut(&RxMeta, &[u8]),
) {
    let meta = part_of(meta, part.start);
    if let Some(bytes) = bytes.get(part).filter(|bytes| !bytes.is_empty()) {
        rest(&meta, bytes);
    }
}

/// The flow of packets from `socket` to `target`.
fn flow_to(socket: &RoceSocket, target: SocketAddr) -> IcrcFlow {
    IcrcFlow::new(&FlowTuple {
        source: socket.local(),
        target: target.ip(),
        source_port: socket.tx_port(),
        target_port: target.port(),
    })
}

/// Puts a question; the answer goes to `home`, one of the numbers of this process.
pub(crate) fn ask(socket: &RoceSocket, question: &Question, home: Qpn) -> bool {
    let note = Note {
        token: question.token,
        mark: question.mark,
        port: question.target.port(),
        block: block_of(question.dest),
        value: home.value(),
    };
    let flow = flow_to(socket, question.target);
    let bytes = write(QUESTION, question.dest, &note, &flow);
    socket.send_parts(&[&bytes, &[]], question.target).is_ok()
}

fn write(kind: u8, dest: Qpn, note: &Note, flow: &IcrcFlow) -> [u8; LEN] {
    let bth = Bth::new(Opcode(kind), dest, Psn::new(0)).to_bytes();
    let body = MAGIC
        .into_iter()
        .chain(note.token.to_be_bytes())
        .chain(note.mark.to_be_bytes())
        .chain(note.port.to_be_bytes())
        .chain(note.block.to_be_bytes())
        .chain(note.value.to_be_bytes());
    let mut bytes = [0; LEN];
    let all = bth.into_iter().chain(body);
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    // Sent alone, it has the identification 0.
    let mut icrc = flow.start(LEN, 0, &bth);
    if let Some((covered, end)) = bytes.split_last_chunk_mut::<ICRC_LEN>() {
        icrc.bytes(covered.get(BTH_LEN..).unwrap_or(&[]));
        *end = icrc.finish();
    }
    bytes
}

/// The kind of a note and what it says; its sum is not looked at.
fn read(packet: &[u8]) -> Option<(u8, Note)> {
    let packet: &[u8; LEN] = packet.try_into().ok()?;
    let (bth, rest) = packet.split_first_chunk::<BTH_LEN>()?;
    let &[kind @ (QUESTION | ANSWER), ..] = bth else {
        return None;
    };
    let (magic, rest) = rest.split_first_chunk::<4>()?;
    let (token, rest) = rest.split_first_chunk::<8>()?;
    let (mark, rest) = rest.split_first_chunk::<8>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (block, rest) = rest.split_first_chunk::<2>()?;
    let (value, _) = rest.split_first_chunk::<4>()?;
    let note = Note {
        token: u64::from_be_bytes(*token),
        mark: u64::from_be_bytes(*mark),
        port: u16::from_be_bytes(*port),
        block: u16::from_be_bytes(*block),
        value: u32::from_be_bytes(*value),
    };
    (*magic == MAGIC).then_some((kind, note))
}

#[cfg(test)]
mod tests;
