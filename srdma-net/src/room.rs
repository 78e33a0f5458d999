//! Room in the sockets of receivers, for packets that nobody acknowledges.
//!
//! ```text
//! run of UC or UD ─┬─ to a process on this machine: what does its socket hold?   (`seen.rs`)
//!                  ╰─ to anybody else: what has been taken of what was sent?     (`told.rs`)
//!                                         └─ fits ─► send          else: later
//! ```
//!
//! The kernel drops silently what a full socket does not take. Reliable services count what is
//! under way; for the others the socket of the receiver is the only measure. On this machine the
//! kernel shows it; elsewhere receivers of our kind are asked (`note.rs`). Nobody is waited for
//! long, so whoever tells nothing is sent everything at once, as any network card would.

mod note;
mod seen;
mod told;

pub(crate) use note::{Desk, Note, ask};
pub(crate) use told::Question;

use crate::sys::gather;
use crate::tx::segs;
use seen::Seen;
use srdma_core::hca::ports::block_of;
use srdma_core::num::Qpn;
use srdma_core::tx::{Run, TxBatch};
use srdma_core::wire::BTH_LEN;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use told::{Line, Told};

/// How long a full receiver is waited for that takes nothing.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// Whether there is room; `None` if that cannot be known.
type Answer = Option<bool>;

/// What waits for a receiver.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// For a socket on this machine.
    Seen(SocketAddr),
    /// For news of a receiver, before it takes so much more.
    Told(Line, u32),
}

/// What is known of receivers.
#[derive(Debug)]
pub(crate) struct Room {
    seen: Seen,
    told: Told,
    /// What held the last batch back.
    held: Option<Held>,
    /// Receivers that cannot be seen are not asked.
    plain: bool,
    /// Bytes of a batch that probably are not held back.
    hint: u32,
}

/// What fits the emptiest receiver.
const LEAST: u32 = 64 << 10;

impl Room {
    pub(crate) fn new() -> Self {
        Self {
            seen: Seen::new(),
            told: Told::new(),
            plain: false,
            held: None,
            hint: u32::MAX,
        }
    }

    /// Whether nobody is asked: what cannot be seen goes at once.
    pub(crate) const fn speak_plainly(&mut self, plain: bool) {
        self.plain = plain;
    }

    /// Bytes that may be worth building: what a receiver took of the last batch that was cut off,
    /// and a quarter more after each that was not.
    pub(crate) const fn hint(&self) -> u32 {
        self.hint
    }

    /// How many runs of `batch` may go, from the first on.
    pub(crate) fn admit(&mut self, batch: &TxBatch<'_>) -> usize {
        self.held = None;
        let mut bytes = 0;
        for (at, run) in batch.runs.iter().enumerate() {
            if !run.unreliable || run.target.ip().is_multicast() {
                continue;
            }
            self.held = self.waits(batch, run);
            if self.held.is_some() {
                self.hint = bytes.max(LEAST);
                return at;
            }
            bytes = run.bytes.saturating_add(bytes);
        }
        if bytes > 0 {
            self.hint = self.hint.saturating_add(self.hint / 4);
        }
        batch.runs.len()
    }

    /// What `run` has to wait for.
    fn waits(&mut self, batch: &TxBatch<'_>, run: &Run) -> Option<Held> {
        let cost = cost(run);
        if run.target.port() != srdma_core::wire::ROCE_PORT
            && let Some(fits) = self.seen.fits(run.target, cost)
        {
            return (!fits).then_some(Held::Seen(run.target));
        }
        if self.plain {
            return None;
        }
        let bth: [u8; BTH_LEN] = gather::first(segs(batch, run));
        let [_, _, _, _, _, a, b, c, ..] = bth;
        let dest = Qpn::new(u32::from_be_bytes([0, a, b, c]));
        let line = Line {
            target: run.target,
            block: block_of(dest),
        };
        let fits = self.told.fits(line, (run.local, dest), cost);
        (!fits).then_some(Held::Told(line, cost))
    }

    /// True while the receiver that held the last batch back has no room: there is no use in
    /// building such packets again.
    pub(crate) fn is_held(&mut self) -> bool {
        let waits = match self.held {
            None => false,
            Some(Held::Seen(addr)) => self.seen.ask(addr) == Some(false),
            Some(Held::Told(line, cost)) => self.told.waits(line, cost, Instant::now()),
        };
        if !waits {
            self.held = None;
        }
        waits
    }

    /// What is to be asked now, each once.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = Question> {
        self.told.questions()
    }

    /// A receiver at `from` has answered.
    pub(crate) fn hear(&mut self, from: IpAddr, reply: &Note) {
        self.told.hear(from, reply);
    }
}

/// What the kernel may charge for a run: memory is given out in powers of two.
fn cost(run: &Run) -> u32 {
    const PACKET: u32 = 768;
    run.bytes + run.bytes / 4 + u32::from(run.packets) * PACKET
}

#[cfg(test)]
mod tests;
