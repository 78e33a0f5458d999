//! Messages in line behind the one in progress, as far as packets that came ahead tell of them.
//!
//! ```text
//! in progress ─► in line ─► in line ─► …       each begins where the one before surely ends
//! └ hole, hole …  └ its first packet is held
//! ```
//!
//! What it does not do: find out what follows what (`qp/responder/line.rs` does).

use crate::mem::{Claim, Sge};
use crate::num::Psn;

/// Messages in line at most: what comes behind them waits as it is.
const MOST: usize = 4;

/// Where the payload of a message goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// What a WRITE named.
    Claimed(Claim),
    /// The only fragment of a receive WQE.
    Received(Sge),
}

/// A message in line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLine {
    /// Its first packet.
    pub(crate) first: Psn,
    /// How many it has: a WRITE says so, of a SEND it is known when the next one is in line.
    pub(crate) packets: Option<u32>,
    /// Address and bytes of the memory that it may fill.
    pub(crate) memory: (u64, u64),
    pub(crate) to: Target,
}

impl InLine {
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self.to, Target::Claimed(_))
    }
}

/// The messages in line, in their order.
#[derive(Debug, Default)]
pub(crate) struct Line {
    list: Vec<InLine>,
}

impl Line {
    pub(crate) fn all(&self) -> &[InLine] {
        &self.list
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.list.len() >= MOST
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut InLine> {
        self.list.last_mut()
    }

    /// Puts a message behind the last one, if the line is not [full](Self::is_full).
    pub(crate) fn push(&mut self, message: InLine) {
        self.list.push(message);
    }

    /// The turn of those that begin at `epsn` or before has come.
    pub(crate) fn take_upto(&mut self, epsn: Psn) {
        self.list.retain(|message| message.first.since(epsn) > 0);
    }

    /// Nothing is held from `psn` on.
    pub(crate) fn cut(&mut self, psn: Psn) {
        self.list.retain(|message| message.first.since(psn) < 0);
        if let Some(last) = self.list.last_mut().filter(|last| !last.is_write()) {
            last.packets = None;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }
}
