//! Probe points: what driver and device do, recorded in order while somebody looks.
//!
//! ```text
//! probe ─ off ─► nothing: one relaxed load
//!   │ on
//!   └─► [ ring, one for the process ] ──► drain ──► text, JSON lines, captures (srdma-net)
//!            full: counted, dropped
//! ```
//!
//! Tracing is a matter of the whole process, so its switch and its ring are static. A probe never
//! waits: it takes a place in the ring or is counted as lost. Time comes from the clock that was
//! given to [`start`], since this crate reads none.
//!
//! What this does *not* do: write anything anywhere.

mod record;
mod ring;
mod show;
mod show_dialect;
mod show_packet;

pub use record::{Kind, PacketNote, PacketPath, Record};
pub use ring::Ring;
pub use show::{Field, Shown, show};

use crate::hca::board::Doorbell;
use crate::hw::Polarity;
use crate::hw::cqp::{CQP_HEADER, CQP_WORDS};
use crate::hw::dialect::{Dialect, ENTRY_WORDS, SlotWords};
use crate::num::{CeqId, CqId, MsixVector};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Words of the ring if nothing else is said: 8 MiB, some thousand full packets.
pub const RING_WORDS: usize = 1 << 20;

static ON: AtomicBool = AtomicBool::new(false);
static SINK: OnceLock<Sink> = OnceLock::new();

struct Sink {
    ring: Ring,
    clock: fn() -> u64,
    /// Whoever drains; one at a time.
    reader: Mutex<Vec<u64>>,
}

thread_local! {
    static DEVICE: Cell<u8> = const { Cell::new(0) };
    static NOTE: Cell<PacketNote> = const { Cell::new(PacketNote::NONE) };
}

/// Somebody looks. A relaxed load.
#[inline]
#[must_use]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Switches the probes on. `clock` gives nanoseconds; the ring has `words` words, a power of two.
/// Clock and ring of the first call stay for the life of the process.
pub fn start(clock: fn() -> u64, words: usize) {
    SINK.get_or_init(|| Sink {
        ring: Ring::new(words),
        clock,
        reader: Mutex::default(),
    });
    ON.store(true, Ordering::SeqCst);
}

/// Switches the probes off. What was recorded can still be drained.
pub fn stop() {
    ON.store(false, Ordering::SeqCst);
}

/// Hands every record that is complete to `see`, oldest first.
pub fn drain(mut see: impl FnMut(&Record<'_>)) {
    let Some(sink) = SINK.get() else { return };
    let mut words = sink.reader.lock().unwrap_or_else(PoisonError::into_inner);
    while sink.ring.pop(&mut words) {
        if let Some(record) = Record::parse(&words) {
            see(&record);
        }
    }
}

/// Records that found no room since the last call.
#[must_use]
pub fn take_lost() -> u64 {
    SINK.get().map_or(0, |sink| sink.ring.take_lost())
}

/// Records of this thread are of this device from here on.
#[inline]
pub fn enter(device: u8) {
    if on() {
        DEVICE.set(device);
    }
}

/// What was done to the next packet that this thread records.
pub fn note(note: PacketNote) {
    if on() {
        NOTE.set(note);
    }
}

/// The time of the trace's clock; 0 while nobody looks.
#[must_use]
pub fn time() -> u64 {
    SINK.get().map_or(0, |sink| (sink.clock)())
}

#[cold]
fn put(kind: Kind, words: &[u64], bytes: &[u8]) {
    put_at(time(), kind, words, bytes);
}

#[cold]
fn put_at(time: u64, kind: Kind, words: &[u64], bytes: &[u8]) {
    if let Some(sink) = SINK.get() {
        let header = Record::header(kind, DEVICE.get(), words.len(), bytes.len());
        sink.ring.push(&[header, time], words, bytes);
    }
}

/// A device is there: its name, or its addresses.
pub fn device(name: &str) {
    if on() {
        put(Kind::DEVICE, &[], name.as_bytes());
    }
}

/// A doorbell was rung by the driver half.
#[inline]
pub fn doorbell(what: Doorbell) {
    if on() {
        let (which, number) = record::doorbell_words(what);
        put(Kind::DOORBELL, &[which, number], &[]);
    }
}

/// A doorbell was seen by the device.
#[inline]
pub fn taken(what: Doorbell) {
    if on() {
        let (which, number) = record::doorbell_words(what);
        put(Kind::TAKEN, &[which, number], &[]);
    }
}

/// A work queue entry was fetched: `owner` is the queue pair or the shared receive queue.
#[cold]
pub fn wqe(kind: Kind, owner: u32, index: u32, words: &[u64]) {
    let mut all = [0; 2 + crate::hw::wqe::MAX_WORDS];
    let [to_owner, to_index, rest @ ..] = &mut all;
    (*to_owner, *to_index) = (u64::from(owner), u64::from(index));
    rest.iter_mut()
        .zip(words)
        .for_each(|(to, from)| *to = *from);
    let used = 2 + words.len();
    put(kind, all.get(..used).unwrap_or_default(), &[]);
}

/// A control command was fetched; its words without the valid bit of `lap`.
#[cold]
pub(crate) fn command(index: u32, lap: Polarity, words: &[u64; CQP_WORDS]) {
    let mut all = [0; 1 + CQP_WORDS];
    let [to_index, rest @ ..] = &mut all;
    (*to_index, *rest) = (u64::from(index), *words);
    if let Some(header) = rest.get_mut(CQP_HEADER) {
        *header = lap.stamp(*header);
    }
    put(Kind::COMMAND, &all, &[]);
}

/// A completion was written: its words as they stand in memory, the extension behind them.
#[cold]
pub fn cqe(cq: CqId, index: u32, base: &[u64; 4], ext: Option<&[u64; 4]>) {
    let [a, b, c, d] = *base;
    let head = [u64::from(cq.0), u64::from(index), a, b, c, d];
    match ext {
        None => put(Kind::CQE, &head, &[]),
        Some(&[e, f, g, h]) => {
            let [i, j, ..] = head;
            put(Kind::CQE, &[i, j, a, b, c, d, e, f, g, h], &[]);
        }
    }
}

/// A completion was written in a dialect with 64-byte slots: its words as they stand in memory.
#[cold]
pub fn slot(dialect: Dialect, cq: CqId, index: u32, words: &SlotWords) {
    let kind = match dialect {
        Dialect::Mlx5 => Kind::MLX5_CQE,
        _ => Kind::HNS_CQE,
    };
    put_entry(kind, &[u64::from(cq.0), u64::from(index)], words);
}

/// A completion event was written.
#[inline]
pub fn ceqe(dialect: Dialect, ceq: CeqId, index: u32, words: &[u64]) {
    if on() {
        let kind = match dialect {
            Dialect::E810 => Kind::CEQE,
            Dialect::Mlx5 => Kind::MLX5_EQE,
            Dialect::Hns => Kind::HNS_CEQE,
        };
        put_entry(kind, &[u64::from(ceq.0), u64::from(index)], words);
    }
}

/// An asynchronous event was written.
#[inline]
pub fn aeqe(dialect: Dialect, index: u32, words: &[u64]) {
    if on() {
        match dialect {
            Dialect::E810 => put_entry(Kind::AEQE, &[u64::from(index)], words),
            Dialect::Mlx5 => put_entry(Kind::MLX5_ASYNC, &[u64::from(index)], words),
            Dialect::Hns => put_entry(Kind::HNS_AEQE, &[u64::from(index)], words),
        }
    }
}

/// Some words that say where an entry stands, and the entry.
#[cold]
fn put_entry(kind: Kind, place: &[u64], words: &[u64]) {
    let mut all = [0; 2 + ENTRY_WORDS];
    let used = place.len() + words.len();
    all.iter_mut()
        .zip(place.iter().chain(words))
        .for_each(|(to, from)| *to = *from);
    put(kind, all.get(..used).unwrap_or_default(), &[]);
}

/// The driver half asked for an event: the word that it wrote.
#[inline]
pub fn arm(dialect: Dialect, cq: CqId, word: u64) {
    if on() {
        let kind = match dialect {
            Dialect::E810 => Kind::ARM,
            Dialect::Mlx5 => Kind::MLX5_ARM,
            Dialect::Hns => Kind::HNS_ARM,
        };
        put(kind, &[u64::from(cq.0), word], &[]);
    }
}

/// A vector fired.
#[inline]
pub fn interrupt(vector: MsixVector) {
    if on() {
        put(Kind::INTERRUPT, &[u64::from(vector.0)], &[]);
    }
}

/// Something about an object with a number and a value: see [`Kind`] for which.
#[inline]
pub fn object(kind: Kind, number: u32, value: u64) {
    if on() {
        put(kind, &[u64::from(number), value], &[]);
    }
}

/// As [`object`], with a name.
pub fn named(kind: Kind, number: u32, name: &str) {
    if on() {
        put(kind, &[u64::from(number)], name.as_bytes());
    }
}

/// A packet came in or left. `time`: when; `None` for now.
#[cold]
pub fn packet(kind: Kind, time: Option<u64>, path: &PacketPath, bytes: &[u8]) {
    let noted = NOTE.replace(PacketNote::NONE);
    let words = path.words(path.note.with(noted));
    put_at(time.unwrap_or_else(self::time), kind, &words, bytes);
}

#[cfg(test)]
mod tests;
