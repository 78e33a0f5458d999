//! Asking for the next event: what a driver remembers, and what a device reads.
//!
//! ```text
//! E810    a program may ask again before it has fetched the event: a weaker request is put off
//!         until it has, and then made as a stronger one           [E810 3.10]
//! others  every request is written, with the number of the event that it is for; the number moves
//!         when the program fetches an event, and where a callback stands for the program, when
//!         the driver takes it                                     [events 4.5, 4.8]
//! ```

use super::Dialect;

/// The driver's side of arming one completion queue.
#[derive(Clone, Copy, Debug)]
pub struct Arming {
    dialect: Dialect,
    armed: bool,
    /// The E810's driver owes a request.
    again: bool,
    sn: u8,
}

impl Arming {
    /// Of a queue that was never armed.
    #[must_use]
    pub const fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            armed: false,
            again: false,
            sn: dialect.first_event(),
        }
    }

    /// The program asks; true if the request is to be written and the doorbell rung.
    // rule: event-74
    pub const fn ask(&mut self, solicited_only: bool) -> bool {
        let put_off = matches!(self.dialect, Dialect::E810) && self.armed && solicited_only;
        if put_off {
            self.again = true;
        } else if !self.armed {
            self.armed = true;
            self.again = false;
        }
        !put_off
    }

    /// The program fetched an event; true if a request for any completion is to be written now.
    // rule: event-74
    pub const fn fetched(&mut self) -> bool {
        self.told(1);
        self.noticed()
    }

    /// So many more events reached a callback.
    pub const fn told(&mut self, events: u8) {
        self.sn = self.sn.wrapping_add(events) & 3;
    }

    /// A callback looks, for an event or for none; the answer is that of
    /// [`fetched`](Self::fetched).
    pub const fn noticed(&mut self) -> bool {
        if self.dialect.counts_events() {
            self.armed = false;
            return false;
        }
        let again = core::mem::replace(&mut self.again, false);
        self.armed = again;
        again
    }

    /// The program asked and has not fetched the event yet.
    #[must_use]
    pub const fn is_armed(&self) -> bool {
        self.armed
    }

    /// The number of the event that requests are for, modulo 4.
    #[must_use]
    pub const fn sn(&self) -> u8 {
        self.sn
    }
}

/// What the device reads: the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmRequest {
    /// What tells requests apart: an E810's sequence and whatever a driver counts above it, else
    /// the number of the event.
    pub seq: u64,
    /// Tell about the next completion.
    pub next: bool,
    /// Tell about the next solicited completion.
    pub solicited: bool,
    /// How far the driver had read, and what this is counted modulo.
    pub read: Option<(u32, u32)>,
}
