//! Responses that come ahead of their turn: placed at once, and what is missing before them is
//! asked for alone.
//!
//! ```text
//!   READ of 9 packets   0 1 2 x 4 5 x 7 8      placed: their PSNs say where they belong
//!   asked for again           3     6          each a READ of its own, with its own PSN
//! ```
//!
//! Completions stay in order: `una` waits at the first hole, and then jumps. Where two answers go
//! to one place, the later one stays, and what cannot be told apart waits for its turn. An
//! acknowledgement behind a hole is remembered. One hole at a time is asked for, the first, because
//! some responders answer no part before one that they answered last; our own kind takes all.
//! [RoCEv2 6.3]

use super::Qp;
use super::lost::Piece;
use super::requester::{Requester, Step};
use super::score::{Filled, Score, Settled};
use super::window::{Kind, SendCtx};
use crate::hca::ctx::Ctx;
use crate::hca::peer::packet_cost;
use crate::num::Psn;
use crate::puda::reorder::Patience;
use crate::time::{Instant, earliest};
use crate::tx::TxArena;
use crate::wire::{Packet, Verb};

/// A hole that was asked for is not asked for again within this time, however near the peer is.
const LEAST_REPEAT_NS: u64 = 200_000;

/// Which responses are there already; made when the first is out of order.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    score: Score,
    patience: Patience,
    /// Responses that came and could not be taken before their turn: from the first of them to
    /// behind the last. They are asked for again when it is there, and none behind them is taken
    /// before.
    refused: Option<(Psn, Psn)>,
    /// Requests that were looked up last.
    apart: [Option<Apart>; LOOKED_UP as usize],
    /// The last of them.
    usual: Option<u64>,
}

/// Whether the data of a request shares a place with that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Apart {
    number: u64,
    /// Of all before this one.
    end: u64,
    apart: bool,
}

/// Responses of so many requests may come mixed before any is looked up again.
const LOOKED_UP: u8 = 4;

fn place_of(number: u64) -> usize {
    usize::from(number.to_le_bytes()[0] % LOOKED_UP)
}

impl Ahead {
    /// A response with `psn` cannot be taken before its turn.
    fn refuse(&mut self, psn: Psn) {
        let (low, high) = self.refused.unwrap_or((psn, psn));
        let low = if psn.since(low) < 0 { psn } else { low };
        let high = if high.since(psn) > 0 {
            high
        } else {
            psn.add(1)
        };
        self.refused = Some((low, high));
    }

    /// Whether request `number` is apart from all others before `end`, if it was looked up.
    fn known_apart(&self, number: u64, end: u64) -> Option<bool> {
        let known = self.apart.get(place_of(number)).copied().flatten()?;
        ((known.number, known.end) == (number, end)).then_some(known.apart)
    }

    /// `psn` lies behind one that was refused.
    fn refuses(&self, psn: Psn) -> bool {
        self.refused.is_some_and(|(low, _)| psn.since(low) >= 0)
    }

    /// Everything before `to` was answered.
    fn reach(&mut self, to: Psn, una: Psn, now: Instant) {
        self.score.begin(una);
        let to = match self.refused {
            Some((low, _)) if to.since(low) > 0 => low,
            _ => to,
        };
        self.score.reach(to, una, now);
    }

    /// `filled` was a hole until `psn` came.
    fn learn(&mut self, psn: Psn, filled: Option<Filled>, now: Instant) {
        if let Some(filled) = filled {
            let asked = filled.asked.map(|at| now.since(at));
            let age = now.since(filled.since);
            self.patience.filled(psn, age, (filled.times > 0, asked));
        }
    }
}

impl Qp {
    /// How long a hole is waited for. One that was outlived counts as known from then on, and is
    /// waited for as well.
    fn ask_wait(&self, ctx: &Ctx<'_>) -> u64 {
        let ahead = self.req.ahead.as_ref();
        ahead.map_or(0, |ahead| ahead.patience.wait_ns(ctx.ieq.gap_max_ns))
    }

    /// How long the answer to what is sent again may take.
    pub(super) fn answer_ns(&self, now: Instant) -> u64 {
        self.req.rtt.round_trip(now).max(LEAST_REPEAT_NS)
    }

    /// Holes that may be asked for at a time.
    const fn most_asked(&self) -> usize {
        if self.conn.peer_is_ours() {
            usize::MAX
        } else {
            1
        }
    }

    /// A response with data for a READ or atomic, while one before it is missing.
    // rule: roce-70
    pub(super) fn on_ahead(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        if !self.on_next_ahead(ctx, packet, psn) {
            self.on_any_ahead(ctx, packet, psn);
        }
    }

    /// The next response behind all that is known, of the request that the last one was for, whose
    /// data goes to a place of its own: most are. False, and nothing was done, if it is another.
    #[inline]
    fn on_next_ahead(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) -> bool {
        let (una, end) = (self.req.una, self.req.end());
        let Some((number, work)) = self.usual_work(psn) else {
            return false;
        };
        let due = self.req.ask_at.is_some_and(|at| at <= ctx.now);
        let Some(ahead) = self.req.ahead.as_deref_mut() else {
            return false;
        };
        if due
            || ahead.refused.is_some()
            || !ahead.score.outlives_nothing(psn)
            || !work.kind.needs_response()
            || ahead.known_apart(number, end) != Some(true)
            || !ahead.score.is_next(psn, una)
        {
            return false;
        }
        let stored = self.store_unless(false, ctx, packet, (number, &work), psn);
        if stored.is_err() {
            return false;
        }
        if let Some(ahead) = self.req.ahead.as_deref_mut() {
            ahead.score.settle_next(psn);
        }
        self.on_placed_ahead(ctx, packet, psn);
        true
    }

    #[cold]
    fn on_any_ahead(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        let (una, now) = (self.req.una, ctx.now);
        let has = |ahead: &Ahead| ahead.score.has(psn, una);
        let copy = self.req.ahead.as_deref().is_some_and(has);
        let refuses = |ahead: &Ahead| ahead.refuses(psn);
        let refused = self.req.ahead.as_deref().is_some_and(refuses);
        let placed = !copy && !refused && self.place_ahead(ctx, packet, psn);
        let ahead = self.req.ahead.get_or_insert_default();
        ahead.score.begin(una);
        let mut news = true;
        if copy {
            ahead.patience.copy_of(psn, ctx.ieq.gap_max_ns);
            ctx.counters.stale_response += 1;
        } else if placed && let Ok(filled) = ahead.score.settle(psn, una, now) {
            news = filled != Settled::Next;
            ahead.learn(psn, filled.hole(), now);
            self.on_placed_ahead(ctx, packet, psn);
        } else if !ahead.score.is_asked(psn, now) {
            ahead.refuse(psn);
            ahead.reach(psn, una, now);
        }
        let ahead = self.req.ahead.get_or_insert_default();
        news |= ahead.score.outlived(psn, now);
        if news || self.req.ask_at.is_some_and(|at| at <= now) {
            self.plan_asking(ctx);
        }
    }

    /// It counts as progress, and holds nothing of our socket any more.
    fn on_placed_ahead(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        ctx.counters.responses_ahead += 1;
        self.reload(true, ctx.now);
        let reads = &mut self.req.reads;
        // It is mostly of one of the first.
        let read = reads.iter_mut().find(|read| read.last.since(psn) >= 0);
        if let Some(read) = read {
            let len = u32::try_from(packet.payload().len()).unwrap_or(0);
            let cost = packet_cost(len).min(read.cost);
            read.cost -= cost;
            if cost > 0 {
                ctx.read_credit.refund(cost, ctx.ready);
            }
        }
    }

    /// Places the data of a response; false if it is not what was asked for, which is judged when
    /// its turn comes, or if order decides what is left where it goes.
    fn place_ahead(&mut self, ctx: &Ctx<'_>, packet: &Packet<'_>, psn: Psn) -> bool {
        let Some((number, work)) = self.usual_work(psn).or_else(|| self.work_at(psn)) else {
            return false;
        };
        let apart = self.is_apart((number, &work));
        let (una, mtu) = (self.req.una, self.conn.mtu);
        let before = usize::try_from(number.saturating_sub(self.req.retired)).unwrap_or(0);
        let mut earlier = self.req.inflight.iter().take(before);
        let index = u32::try_from(psn.since(work.first)).unwrap_or(0);
        work.kind.needs_response()
            && (apart
                || !earlier
                    .any(|other| other.end_after(una) > 0 && work.clashes(index, other, mtu)))
            && self.store(ctx, packet, (number, &work), psn).is_ok()
    }

    /// As `work_at`, if it is the request that the last response was for.
    fn usual_work(&self, psn: Psn) -> Option<(u64, SendCtx)> {
        let number = self.req.ahead.as_deref()?.usual?;
        let work = self.req.ctx_of(number)?;
        let within = psn.since(work.first) >= 0 && work.end_after(psn) > 0;
        within.then_some((number, *work))
    }

    /// The data of a request shares no place with that of another. Looked up once a request, and
    /// again when there are new ones.
    fn is_apart(&mut self, (number, work): (u64, &SendCtx)) -> bool {
        let req = &mut self.req;
        let end = req.end();
        let Some(ahead) = req.ahead.as_deref_mut() else {
            return false;
        };
        ahead.usual = Some(number);
        if let Some(apart) = ahead.known_apart(number, end) {
            return apart;
        }
        let others = (req.retired..).zip(&req.inflight);
        let mut others = others.filter(|(other, _)| *other != number);
        let apart = others.all(|(_, other)| work.is_apart(other));
        if let Some(place) = ahead.apart.get_mut(place_of(number)) {
            *place = Some(Apart { number, end, apart });
        }
        apart
    }

    /// What a later request asked for is there already, and where this one's data would go.
    pub(super) fn is_overwritten(&self, (number, work): (u64, &SendCtx), psn: Psn) -> bool {
        let Some(ahead) = self.req.ahead.as_deref() else {
            return false;
        };
        if ahead.score.is_idle() || ahead.known_apart(number, self.req.end()) == Some(true) {
            return false;
        }
        let (una, mtu) = (self.req.una, self.conn.mtu);
        let behind = usize::try_from(number.saturating_sub(self.req.retired)).unwrap_or(0) + 1;
        let index = u32::try_from(psn.since(work.first)).unwrap_or(0);
        let mut later = self.req.inflight.iter().skip(behind);
        later.any(|other| {
            let twin = work.twin(index, other, mtu);
            twin.is_some_and(|at| ahead.score.has(other.first.add(at), una))
        })
    }

    /// Everything before `to` was answered, and some answer has not come.
    // rule: roce-48
    #[cold]
    pub(super) fn on_missing(&mut self, ctx: &mut Ctx<'_>, to: Psn) {
        if !ctx.ieq.keeps() {
            self.on_gap(ctx);
            return;
        }
        let (una, now) = (self.req.una, ctx.now);
        let ahead = self.req.ahead.get_or_insert_default();
        ahead.reach(to, una, now);
        self.on_outlived(ctx, to.prev());
    }

    fn on_outlived(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        if let Some(ahead) = self.req.ahead.as_mut() {
            ahead.score.outlived(psn, ctx.now);
        }
        self.plan_asking(ctx);
    }

    /// Decides when something is asked for next.
    pub(super) fn plan_asking(&mut self, ctx: &mut Ctx<'_>) {
        let (wait, most) = (self.ask_wait(ctx), self.most_asked());
        let una = self.req.una;
        let asks = self.req.ahead.as_deref_mut().and_then(|ahead| {
            ahead.score.trim(una);
            let first = ahead.score.first_hole();
            ahead
                .score
                .next_due(wait, |hole| most > 1 || Some(hole.first) == first)
        });
        let resends = self.next_resend();
        self.req.ask_at = earliest([asks, resends]);
        if self.req.ask_at.is_some_and(|at| at <= ctx.now) {
            self.ask_now(ctx);
        }
    }

    /// What is due is asked for in the next turn.
    pub(super) fn ask_now(&mut self, ctx: &mut Ctx<'_>) {
        self.req.ask_at = None;
        self.req.asks = true;
        self.make_ready(ctx);
    }

    /// The response before `una` has just come in its turn: what waited behind it follows.
    pub(super) fn join_ahead(&mut self, ctx: &mut Ctx<'_>) {
        let Some(ahead) = self.req.ahead.as_mut() else {
            return;
        };
        if !ahead.score.is_idle() {
            let psn = self.req.una.prev();
            let filled = ahead.score.fill(psn);
            ahead.learn(psn, filled, ctx.now);
        }
        loop {
            let before = self.req.una;
            if let Some(ahead) = self.req.ahead.as_mut() {
                self.req.una = ahead.score.advance(before);
            }
            // What was acknowledged behind the hole counts now.
            let acked = self.req.acked;
            let _ = self.ack_through(ctx, acked);
            if self.req.una == before {
                break;
            }
        }
        let una = self.req.una;
        let refused = self.req.ahead.as_mut().and_then(|ahead| {
            let past = |&mut (low, _): &mut (Psn, Psn)| una.since(low) >= 0;
            let (_, high) = ahead.refused.take_if(past)?;
            // They were here, so there is nothing to wait for.
            ahead.reach(high, una, Instant(0));
            Some(())
        });
        if refused.is_some() || self.req.ask_at.is_some() {
            self.plan_asking(ctx);
        }
    }

    /// A response came that was there already, or that nobody wait for.
    #[cold]
    pub(super) fn on_stale_response(&mut self, ctx: &mut Ctx<'_>, packet: &Packet<'_>, psn: Psn) {
        // Nothing new but what it says of packets behind.
        if packet.info().verb == Verb::Ack
            && psn.add(1) == self.req.una
            && self.on_sack(ctx, packet, self.req.una)
        {
            self.after_progress(ctx);
            return;
        }
        ctx.counters.stale_response += 1;
        if let Some(ahead) = self.req.ahead.as_mut() {
            ahead.patience.copy_of(psn, ctx.ieq.gap_max_ns);
        }
    }

    /// Asks for what is missing and due.
    #[cold]
    pub(super) fn emit_asked(&mut self, ctx: &mut Ctx<'_>, arena: &mut TxArena) -> Step {
        let (wait, most) = (self.ask_wait(ctx), self.most_asked());
        let (mut at, mut bytes) = (0, 0);
        if let Some(ahead) = self.req.ahead.as_mut() {
            ahead.score.trim(self.req.una);
        }
        while let Some((index, hole)) = self.req.ahead.as_deref().and_then(|ahead| {
            let due = ahead.score.due(ctx.now, wait, at);
            due.filter(|(index, _)| *index < most)
        }) {
            if let Err(end) = self.emit_hole(ctx, arena, hole, missing_response, &mut bytes) {
                return end;
            }
            ctx.counters.implied_nak += u64::from(hole.times == 0);
            let (sent, ns) = (self.req.sent, self.answer_ns(ctx.now));
            if let Some(ahead) = self.req.ahead.as_mut() {
                ahead.score.asked(index, ctx.now, ns, sent);
            }
            at = index + 1;
        }
        Step::Sent(bytes)
    }

    /// What was asked for from `psn` on did not leave.
    pub(super) fn ask_later(&mut self, ctx: &mut Ctx<'_>, psn: Psn) {
        if let Some(ahead) = self.req.ahead.as_mut() {
            ahead.score.unask(psn);
        }
        self.resend_later(psn);
        self.plan_asking(ctx);
    }

    /// Everything from `psn` on is sent and asked for again anyway.
    pub(super) fn ask_no_more(&mut self, psn: Psn) {
        if let Some(ahead) = self.req.ahead.as_mut() {
            ahead.score.forget_holes(psn);
            ahead.refused = ahead.refused.filter(|(_, high)| psn.since(*high) >= 0);
        }
        if let Some(held) = self.req.held.as_mut() {
            held.forget(psn);
        }
    }

    /// Nothing was heard for a while, and responses are due: asks for what tells most. False: there
    /// is nothing to ask for, or the peer is one that has to be asked for everything in order.
    pub(super) fn probe_reads(&mut self, ctx: &mut Ctx<'_>) -> bool {
        if !ctx.ieq.keeps() {
            return false;
        }
        let (una, last) = (self.req.una, self.req.sent.prev());
        let (Some((first, front)), Some((of_last, back))) = (self.work_at(una), self.work_at(last))
        else {
            return false;
        };
        let index = |psn: Psn, first: Psn| u32::try_from(psn.since(first)).unwrap_or(0);
        let rest = self.req.chunk_left(index(una, front.first));
        let in_one = first == of_last && last.since(una.add(rest)) < 0;
        let ahead = self.req.ahead.get_or_insert_default();
        ahead.score.begin(una);
        if front.kind.needs_response() && (in_one || self.req.acked.since(una) > 0) {
            // The first hole; all of it if it is the last thing that was asked for.
            let len = if in_one { index(last, una) + 1 } else { 1 };
            ahead.score.insist(una, len, una);
        } else if self.conn.peer_is_ours() && back.kind.needs_response() {
            // Its answer tells of all before it; if it never got there, a NAK does.
            ahead.score.insist(last, 1, una);
        } else {
            return false;
        }
        self.plan_asking(ctx);
        true
    }
}

/// Responses are asked for in READs that end where those did which asked first.
fn missing_response(req: &Requester, work: &SendCtx, index: u32, left: u32) -> Piece {
    let rest = (work.packets - index).min(left);
    let (covers, asks) = match work.kind {
        Kind::Read => {
            let asks = rest.min(req.chunk_left(index));
            (asks, Some(asks))
        }
        kind if kind.needs_response() => (1, Some(1)),
        _ => (rest, None),
    };
    Piece { covers, asks }
}
