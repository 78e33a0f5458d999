//! The control queue itself: fetching commands, and answering them in order.  [E810 7.3]
//!
//! ```text
//! CQP ring ──fetch──► command ─ … ─► complete ──► CCQ entry, event if armed
//!                                       └──────► tail and error code, for polling before there is
//!                                                a CCQ                               [E810 4.5]
//! ```
//!
//! One command is open at a time, so completions are in order. Without room in the CCQ nothing is
//! fetched; the next doorbell looks again.
//!
//! What this does *not* do: execute commands (see `Control::dispatch`).

use super::CqpStatus;
use crate::hca::events::Events;
use crate::hw::CqpCmd;
use crate::hw::cqp::{CqpCompletion, CqpFault, CqpMinor};
use crate::limits::{MAX_CQP, MIN_CQP};
use crate::mem::HostWords;
use crate::obj::cq::CqTable;
use crate::ring::{Consumer, CqpWqe, RingFault};
use crate::time::Instant;
use crate::trace;

/// A command on its way: must be completed before the next is fetched.
#[derive(Debug)]
#[must_use = "every command completes"]
pub struct Fetched {
    /// What to do, or why that means nothing.
    pub cmd: Result<CqpCmd, CqpFault>,
    index: u16,
}

/// What the CQP's registers show.                                      [E810 4.5]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqpTail {
    /// Commands up to here are completed.
    pub tail: u32,
    /// The last refusal; `OK` if there was none.
    pub last_error: CqpStatus,
}

/// The device's end of the control queue.
#[derive(Debug)]
pub struct Cqp {
    ring: Consumer<CqpWqe>,
    context: u64,
    tail: u32,
    size: u32,
    last_error: CqpStatus,
}

impl Cqp {
    /// A fresh (zeroed) ring of `size` commands: a power of two, 4 to 2048. `context`: what
    /// completions carry.
    pub fn new(words: HostWords, size: u32, context: u64) -> Result<Self, RingFault> {
        if !size.is_power_of_two() || !(MIN_CQP..=MAX_CQP).contains(&size) {
            return Err(RingFault::BadSize);
        }
        let ring = Consumer::new(words, size)?;
        Ok(Self {
            ring,
            context,
            tail: 0,
            size,
            last_error: CqpStatus::OK,
        })
    }

    /// The registers.
    #[must_use]
    pub const fn tail(&self) -> CqpTail {
        CqpTail {
            tail: self.tail,
            last_error: self.last_error,
        }
    }

    /// Commands of the ring: how many one doorbell may bring.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The next command, if there is one and the CCQ has room for its completion.
    pub fn fetch(&mut self, cqs: &mut CqTable) -> Option<Fetched> {
        if !cqs.ccq_has_room() {
            return None;
        }
        let CqpWqe(words) = self.ring.peek()?;
        let lap = self.ring.polarity();
        // A ring has at most 2048 commands.
        let index = u16::try_from(self.ring.index()).unwrap_or(u16::MAX);
        self.ring.advance();
        if trace::on() {
            trace::command(u32::from(index), lap, &words);
        }
        Some(Fetched {
            cmd: CqpCmd::decode(&words),
            index,
        })
    }

    /// Answers a command.
    pub fn complete(
        &mut self,
        cqs: &mut CqTable,
        events: &mut Events,
        fetched: &Fetched,
        status: CqpStatus,
        now: Instant,
    ) {
        if !status.is_ok() {
            self.last_error = status;
        }
        self.tail = (u32::from(fetched.index) + 1) % self.size;
        let completion = CqpCompletion {
            context: self.context,
            wqe_index: fetched.index,
            major: status.major,
            minor: status.minor,
            value: status.value,
            detail: status.detail,
        };
        // Without a CCQ the registers are the only answer.
        let _polled = !cqs.post_ccq(events, &completion, now);
    }
}

impl Fetched {
    /// The status of a command that means nothing to the device.
    #[must_use]
    pub const fn meaningless() -> CqpStatus {
        CqpStatus::refused(CqpMinor::INVALID_COMMAND)
    }
}
