//! Opcodes of messages: what a requester asks for each packet of a SEND or WRITE.
//!
//! ```text
//! row    service 2 bits │ key to invalidate │ immediate │ WRITE      known with the request
//! entry  last │ first                                                known with the packet
//! ```
//!
//! A table of what [`Opcode::of`] answers, since that is asked for every packet.

use super::{Opcode, Position, Service, Verb};

/// What decides the opcodes of a SEND or WRITE: its row in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageForm(u8);

impl MessageForm {
    /// A SEND without anything, of RC.
    pub const SEND: Self = Self(0);
    /// How many there are.
    const COUNT: usize = 32;
    /// The services that have messages.
    const SERVICES: [Service; 4] = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc];

    /// A message of `service`: a WRITE or a SEND, with immediate data or a key to invalidate in its
    /// last packet. Of a service without messages there are no opcodes.
    #[inline]
    #[must_use]
    pub const fn new(service: Service, write: bool, imm: bool, inv: bool) -> Self {
        let class = match service {
            Service::Rc => 0,
            Service::Uc => 1,
            Service::Ud => 2,
            Service::Xrc => 3,
            // No row of the table.
            _ => return Self(u8::MAX),
        };
        Self(class << 3 | (inv as u8) << 2 | (imm as u8) << 1 | write as u8)
    }
}

/// Opcodes by form, and then by first and last.
#[allow(
    clippy::indexing_slicing,
    reason = "computed at compile time, and checked there"
)]
static MESSAGES: [[Option<Opcode>; 4]; MessageForm::COUNT] = {
    let mut table = [[None; 4]; MessageForm::COUNT];
    let mut row = 0;
    while row < table.len() {
        let verb = if row & 1 != 0 {
            Verb::Write
        } else {
            Verb::Send
        };
        let (imm, inv) = (row & 2 != 0, row & 4 != 0);
        let service = MessageForm::SERVICES[row >> 3];
        let mut at = 0;
        while at < 4 {
            let (first, last) = (at & 1 != 0, at & 2 != 0);
            let position = Position::new(first, last);
            table[row][at] = Opcode::of(service, verb, position, last && imm, last && inv);
            at += 1;
        }
        row += 1;
    }
    table
};

impl Opcode {
    /// The opcode of a packet of a SEND or WRITE that is or isn't the first and the last, if there
    /// is one.
    #[inline]
    #[must_use]
    pub fn of_message(form: MessageForm, first: bool, last: bool) -> Option<Self> {
        let row = MESSAGES.get(usize::from(form.0))?;
        *row.get(usize::from(first) | usize::from(last) << 1)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_answers_what_the_rules_answer() {
        for bits in 0..1 << 7 {
            let bit = |n: u32| bits >> n & 1 != 0;
            let (write, imm, inv, first, last) = (bit(0), bit(1), bit(2), bit(3), bit(4));
            let service = MessageForm::SERVICES[bits >> 5];
            let verb = if write { Verb::Write } else { Verb::Send };
            let position = Position::new(first, last);
            let opcode = Opcode::of(service, verb, position, last && imm, last && inv);
            let form = MessageForm::new(service, write, imm, inv);
            assert_eq!(Opcode::of_message(form, first, last), opcode);
        }
        let form = MessageForm::new(Service::Cnp, false, false, false);
        assert_eq!(Opcode::of_message(form, true, true), None);
        assert_eq!(
            MessageForm::new(Service::Rc, false, false, false),
            MessageForm::SEND
        );
    }
}
