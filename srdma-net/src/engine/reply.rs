//! Whether acknowledgements wait for a reply of the program.
//!
//! ```text
//! message ─► program ─► reply                   the reply takes the acknowledgement along:
//!    └── acknowledgement waits ──┘              one send, and a peer that waits for the
//!                                               acknowledgement has the reply as well
//! ```
//!
//! A program that has just been given a message, or whose memory a message was written to, may
//! answer at once. If it does not, the wait was in vain: then so many messages are not waited for,
//! twice as many after each further wait in vain.

use srdma_core::time::Instant;

/// How long a program may take to answer a message before its acknowledgement leaves alone.
const WAIT_NS: u64 = 20_000;
/// How long after the program's last request it counts as one that answers.
const ANSWERS_NS: u64 = 2_000_000;
/// Messages of one pass that still look like somebody waiting for an answer. Under load there are
/// many, and none waits.
const FEW: u64 = 3;
/// Most messages that are not waited for after a wait in vain. Few: one answer that comes in time
/// lets two programs that poll memory find back into step.
const MAX_PENALTY: u32 = 7;

/// What is known of the program's replies.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Until when acknowledgements wait.
    until: Option<Instant>,
    /// The program's last request.
    posted: Option<Instant>,
    /// Messages that will not be waited for.
    skip: u32,
    /// The same, after the next wait in vain.
    penalty: u32,
}

impl Reply {
    /// The program has posted a request: what was waited for, if anything was.
    pub(super) fn posted(&mut self, now: Instant) {
        self.posted = Some(now);
        if self.until.take().is_some() {
            self.penalty = 0;
        }
    }

    /// There will be no reply: the program ends something.
    pub(super) const fn give_up(&mut self) {
        self.until = None;
    }

    /// `count` messages came in one pass.
    pub(super) fn messages(&mut self, count: u64, now: Instant) {
        let answers = self.posted.is_some_and(|at| now.since(at) < ANSWERS_NS);
        if !answers || self.until.is_some() || !(1..=FEW).contains(&count) {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.until = Some(now.after(WAIT_NS));
        }
    }

    /// True if acknowledgements wait; a wait that ends here was in vain.
    pub(super) fn holds(&mut self, now: Instant) -> bool {
        if self.until.take_if(|until| *until <= now).is_some() {
            self.penalty = (2 * self.penalty + 1).min(MAX_PENALTY);
            self.skip = self.penalty;
        }
        self.until.is_some()
    }

    /// When the wait ends.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_post_are_waited_for() {
        let mut reply = Reply::default();
        reply.messages(1, Instant(5));
        assert!(!reply.holds(Instant(5)));
        reply.posted(Instant(10));
        reply.messages(FEW + 1, Instant(20));
        assert!(!reply.holds(Instant(20)), "load");
        reply.messages(0, Instant(20));
        assert!(!reply.holds(Instant(20)), "nothing came");
        reply.messages(1, Instant(20));
        assert!(reply.holds(Instant(20)));
        assert_eq!(reply.until(), Some(Instant(20 + WAIT_NS)));
        reply.posted(Instant(30));
        assert!(!reply.holds(Instant(30)), "it has answered");
        reply.messages(1, Instant(30 + ANSWERS_NS));
        assert!(
            !reply.holds(Instant(30 + ANSWERS_NS)),
            "it has fallen silent"
        );
    }

    #[test]
    fn who_does_not_answer_is_waited_for_ever_less() {
        let mut reply = Reply::default();
        let mut waits = Vec::new();
        for message in 0..30 {
            let now = Instant(message * 2 * WAIT_NS);
            reply.posted = Some(now);
            reply.messages(1, now);
            waits.extend(reply.until.map(|_| message));
            assert!(!reply.holds(now.after(WAIT_NS)));
        }
        assert_eq!(waits.get(..5), Some(&[0, 2, 6, 14, 22][..]));
        // An answer makes up for all.
        while reply.until.is_none() {
            reply.messages(1, Instant(0));
        }
        reply.posted(Instant(1));
        reply.messages(1, Instant(2));
        assert!(reply.holds(Instant(2)));
        // The next wait in vain is the first again: one message is passed over.
        assert!(!reply.holds(Instant(2 + WAIT_NS)));
        for waits in [false, true] {
            reply.messages(1, Instant(3 + WAIT_NS));
            assert_eq!(reply.holds(Instant(3 + WAIT_NS)), waits);
        }
    }
}
