//! The port follows its interfaces; what changes is an event.            [events 2.4]
//!
//! ```text
//! interfaces up, down      link ──► PORT_ACTIVE, PORT_DOWN ──┐
//! addresses come and go    GID table ──► GID_CHANGE ─────────┴─► AEQ, with the number of the port
//! ```
//!
//! An E810's driver learns of these from its operating system and not from the chip. Here the
//! device tells them, so that a fault of the port that is injected tells the same.
//!
//! What this does *not* do: look at interfaces; whoever drives the device does.

use super::Hca;
use crate::hca::LocalAddr;
use crate::hw::HwQpState;
use crate::hw::aeqe::{AeCode, AeSource, Aeqe};
use crate::obj::port::LinkState;

/// The only port, as events number it.
const PORT: u32 = 1;

impl Hca {
    /// Sets the state of the link; an edge is an event.
    // rule: event-53
    pub fn follow_link(&mut self, link: LinkState) {
        if self.dev.port.set_link(link) {
            self.tell_port(match link {
                LinkState::Active => AeCode::PORT_ACTIVE,
                LinkState::Down => AeCode::PORT_DOWN,
            });
        }
    }

    /// Puts addresses at indices of the GID table, or takes them away. One event tells of all that
    /// changed.
    // rule: event-54
    pub fn follow_gids(&mut self, gids: impl IntoIterator<Item = (u8, Option<LocalAddr>)>) {
        let mut changed = false;
        for (index, addr) in gids {
            let entry = addr.map(|addr| (addr.ip, addr.source_port));
            changed |= self.dev.port.gids.set(index, entry);
        }
        if changed {
            self.tell_port(AeCode::GID_CHANGE);
        }
    }

    fn tell_port(&mut self, code: AeCode) {
        self.dev.events.raise_ae(&Aeqe {
            code,
            source: AeSource::NONE,
            id: PORT,
            context: 0,
            state: HwQpState::INVALID,
            wqe_index: 0,
            overflow: false,
        });
    }
}
