//! Receivers elsewhere: what they have taken, as they tell when they are asked.
//!
//! ```text
//!            heard            asked   sent
//!  ────────────┼────────────────┼──────┤
//!   taken      │ under way: at most the window
//! ```
//!
//! What goes to a receiver is summed up, and once in half a window it is asked, behind what was
//! sent, whether it has come so far (`note.rs`). So few bytes are under way to it as its socket
//! holds for sure. Who never answers is no receiver of ours, or has gone: it is waited for once,
//! and then everything goes at once; it is asked again from time to time, while there is traffic.
//!
//! | who | is waited for |
//! |---|---|
//! | somebody new, after a first window | 100 ms |
//! | somebody who has answered before | 200 ms without news |
//! | somebody who then told nothing | never, until it tells something |

use super::PATIENCE;
use super::note::Note;
use srdma_core::num::Qpn;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long somebody is waited for who never answered. A program that has only just started may
/// not get a processor sooner.
const STRANGER: Duration = Duration::from_millis(100);
/// An answer that is on its way comes within this time.
const PROMPT: Duration = Duration::from_micros(100);
/// The first pause before a question is asked again, while somebody waits; it doubles.
const AGAIN: Duration = Duration::from_millis(1);
/// The pause between two questions to somebody who is not waited for any more.
const DEAF: Duration = Duration::from_secs(1);
/// What may be under way to somebody who has told nothing: a quarter of the usual socket.
const WINDOW: u32 = srdma_core::limits::DEFAULT_RMEM / 4;
/// The part of a socket that was told of: half, as for what is acknowledged.
const FILLED: u32 = 2;
/// Largest window: small packets would overrun receive queues. Smallest: a few full packets.
const MAX_WINDOW: u32 = 256 << 10;
const MIN_WINDOW: u32 = 16 << 10;
/// Receivers that are remembered. Those beyond are not waited for.
const LINES: usize = 1024;
/// Who was not sent to for so long is forgotten when there are too many.
const STALE: Duration = Duration::from_secs(10);
/// Questions of one batch; the rest is asked with a later one.
const QUESTIONS: usize = 64;

/// Whom packets go to: a process, by the numbers of its queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) target: SocketAddr,
    pub(super) block: u16,
}

/// What is asked: have you taken everything up to `mark`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Our own address.
    pub(crate) local: IpAddr,
    /// Where to.
    pub(crate) target: SocketAddr,
    /// A queue pair there, as packets go to: what comes to it comes to the process.
    pub(crate) dest: Qpn,
    /// Comes back with the answer, so that nobody who did not see the question can give one.
    pub(crate) token: u64,
    /// How much was sent until now.
    pub(crate) mark: u64,
}

/// What is under way to a receiver.
#[derive(Clone, Copy, Debug)]
struct Flow {
    local: IpAddr,
    dest: Qpn,
    sent: u64,
    asked: u64,
    heard: u64,
    window: u32,
    /// It has answered.
    ours: bool,
    /// It is not waited for.
    deaf: bool,
    /// Something waits for it since then, and it has told nothing.
    since: Option<Instant>,
    /// When to ask again, and the pause after that.
    again: Option<Instant>,
    pause: Duration,
    /// When it was last looked at with a clock at hand.
    used: Instant,
}

impl Flow {
    fn new((local, dest): (IpAddr, Qpn), now: Instant) -> Self {
        Self {
            local,
            dest,
            sent: 0,
            asked: 0,
            heard: 0,
            window: WINDOW,
            ours: false,
            deaf: false,
            since: None,
            again: None,
            pause: AGAIN,
            used: now,
        }
    }

    /// Something always fits if nothing is under way.
    const fn has_room(&self, cost: u32) -> bool {
        let under_way = self.sent - self.heard;
        self.deaf || under_way == 0 || under_way + cost as u64 <= self.window as u64
    }

    /// Something does not fit at `now`. True: it waits; then, whether to ask.
    fn waits(&mut self, now: Instant) -> (bool, bool) {
        let since = *self.since.get_or_insert(now);
        self.used = now;
        let patience = if self.ours { PATIENCE } else { STRANGER };
        if now - since >= patience {
            self.deaf = true;
            self.since = None;
            self.again = Some(now + DEAF);
            return (false, false);
        }
        let news = self.asked < self.sent;
        let again = *self.again.get_or_insert(now + self.pause);
        if !news && now < again {
            return (true, false);
        }
        if !news {
            self.pause *= 2;
        }
        self.again = Some(now + self.pause);
        (true, true)
    }

    /// Whether half a window was sent since the last question.
    fn is_due(&mut self) -> bool {
        if self.sent - self.asked < u64::from(self.window / 2) {
            return false;
        }
        if !self.deaf {
            return true;
        }
        let now = Instant::now();
        self.used = now;
        let due = self.again.is_none_or(|again| again <= now);
        if due {
            self.again = Some(now + DEAF);
        }
        due
    }
}

/// What is known of receivers elsewhere.
#[derive(Debug)]
pub(super) struct Told {
    lines: HashMap<Line, Flow>,
    questions: Vec<Question>,
    token: u64,
    /// When it was last tried to forget somebody.
    swept: Option<Instant>,
}

impl Told {
    pub(super) fn new() -> Self {
        Self {
            lines: HashMap::new(),
            questions: Vec::with_capacity(QUESTIONS),
            // Hard to guess for who does not see our questions.
            token: getrandom::u64().unwrap_or_else(|_| fastrand::u64(..)),
            swept: None,
        }
    }

    /// May something go to `line` that costs so much? Then it counts as sent. `ends`: our address,
    /// and a queue pair there.
    pub(super) fn fits(&mut self, line: Line, ends: (IpAddr, Qpn), cost: u32) -> bool {
        if !self.lines.contains_key(&line) && !self.has_place() {
            return true;
        }
        let new = || Flow::new(ends, Instant::now());
        let flow = self.lines.entry(line).or_insert_with(new);
        (flow.local, flow.dest) = ends;
        if !flow.has_room(cost) {
            let now = Instant::now();
            if self.waits(line, cost, now) {
                return false;
            }
        }
        let Some(flow) = self.lines.get_mut(&line) else {
            return true;
        };
        flow.since = None;
        flow.sent += u64::from(cost);
        if flow.is_due() {
            self.ask(line);
        }
        true
    }

    /// Whether something that costs so much still has to wait for `line`.
    pub(super) fn waits(&mut self, line: Line, cost: u32, now: Instant) -> bool {
        let Some(flow) = self.lines.get_mut(&line) else {
            return false;
        };
        if flow.has_room(cost) {
            return false;
        }
        let (waits, asks) = flow.waits(now);
        // On a crowded machine the receiver may need this very processor to answer; where others
        // are busy as well, it is a long time until we have it back.
        if waits && flow.since.is_some_and(|since| now - since > PROMPT) {
            std::thread::yield_now();
        }
        if asks {
            self.ask(line);
        }
        waits
    }

    /// Puts a question to `line`, behind all that was sent.
    fn ask(&mut self, line: Line) {
        let Some(flow) = self.lines.get_mut(&line) else {
            return;
        };
        if self.questions.len() < QUESTIONS {
            flow.asked = flow.sent;
            self.questions.push(Question {
                local: flow.local,
                target: line.target,
                dest: flow.dest,
                token: self.token,
                mark: flow.sent,
            });
        }
    }

    /// What is to be asked now, each once.
    pub(super) fn questions(&mut self) -> impl Iterator<Item = Question> {
        self.questions.drain(..)
    }

    /// A receiver at `from` has answered. What does not fit a question that was asked is ignored.
    pub(super) fn hear(&mut self, from: IpAddr, reply: &Note) {
        let line = Line {
            target: SocketAddr::new(from, reply.port),
            block: reply.block,
        };
        let flow = self.lines.get_mut(&line);
        let Some(flow) = flow.filter(|flow| {
            reply.token == self.token && flow.heard < reply.mark && reply.mark <= flow.sent
        }) else {
            return;
        };
        flow.heard = reply.mark;
        flow.window = (reply.value / FILLED).clamp(MIN_WINDOW, MAX_WINDOW);
        (flow.ours, flow.deaf) = (true, false);
        (flow.since, flow.again, flow.pause) = (None, None, AGAIN);
    }

    /// Whether one more receiver can be remembered.
    fn has_place(&mut self) -> bool {
        if self.lines.len() < LINES {
            return true;
        }
        let now = Instant::now();
        if self.swept.is_some_and(|at| now - at < STALE) {
            return false;
        }
        self.swept = Some(now);
        self.lines.retain(|_, flow| now - flow.used < STALE);
        self.lines.len() < LINES
    }
}

#[cfg(test)]
mod tests;
