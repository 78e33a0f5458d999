//! What one side of a measurement needs: queue pairs, a completion queue, memory.
//!
//! ```text
//! region   | out, QP 0 | out, QP 1 | … | in, QP 0 | in, QP 1 | … |      [qps × 2 × buffer]
//!            a pattern that names the side   what the peer sends, or answers
//! ```
//!
//! Each side reads from its own or the peer's `out`, and writes to its own or the peer's `in`. So
//! every operation has a pattern to be checked at its end.

use super::case::{Case, Mode, Op};
use super::control::Side;
use crate::cmd::relax;
use crate::error::{CliError, Result};
use srdma_verbs::{
    Access, Buffer, CompChannel, Completion, Context, Cq, Mr, Mtu, PreparedQp, Qp, QpType, Rkey,
};
use std::time::{Duration, Instant};

/// Longest sleep in a channel: how soon an end of the measurement is noticed.
const NAP: Duration = Duration::from_millis(50);
/// A client without any completion for so long gives up.
const STALL: Duration = Duration::from_secs(30);
/// Empty looks between two looks at the clock.
const LOOKS: u32 = 1024;
/// Bytes that are filled or checked at a time.
const CHUNK: usize = 64 << 10;
/// Payload up to this rides in the request itself.
const INLINE: u32 = 64;

/// Which side of the measurement this is; also what its pattern begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Client = 1,
    Server = 2,
}

/// A side whose queue pairs are not connected yet.
#[derive(Debug)]
pub(super) struct Rig {
    prepared: Vec<PreparedQp>,
    live: Live,
}

/// A side at work.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) case: Case,
    pub(super) part: Part,
    pub(super) qps: Vec<Qp>,
    pub(super) mr: Mr,
    /// Path MTU of the queue pairs.
    pub(super) mtu: u16,
    peer_addr: u64,
    peer_key: Rkey,
    cq: Cq,
    channel: Option<CompChannel>,
    armed: bool,
    idle: u32,
    last: Instant,
}

impl Rig {
    /// Makes everything that `case` needs on this side.
    pub(super) fn build(context: &Context, case: &Case, part: Part) -> Result<Self> {
        let qps = case.qps as usize;
        let pd = context.alloc_pd()?;
        let channel = if case.events {
            Some(context.create_comp_channel()?)
        } else {
            None
        };
        // Each queue pair completes at most `depth` sends, and its receives.
        let entries = case.depth.saturating_add(case.receives());
        let cq = context.create_cq(case.qps.saturating_mul(entries));
        let cq = match &channel {
            Some(channel) => cq.on_channel(channel).build()?,
            None => cq.build()?,
        };
        let memory = Buffer::zeroed(2 * qps * case.buffer() as usize)?;
        let mr = pd.register(&memory, Access::LOCAL_WRITE | Access::REMOTE)?;
        // As many READs and atomics under way as are posted, if the device takes so many.
        let reads = context.query_device().max_qp_rd_atomic;
        let reads = u8::try_from(case.depth).map_or(reads, |depth| depth.min(reads));
        let mut prepared = Vec::with_capacity(qps);
        for _ in 0..qps {
            let mut qp = pd
                .create_qp(QpType::Rc)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(case.depth + case.batch())
                .rd_atomic(reads)
                .max_recv_wr(case.receives())
                .max_inline(INLINE);
            if let Some(mtu) = case.mtu.and_then(Mtu::from_bytes) {
                qp = qp.mtu(mtu);
            }
            prepared.push(qp.build()?);
        }
        let live = Live {
            case: *case,
            part,
            qps: Vec::with_capacity(qps),
            mr,
            mtu: u16::MAX,
            peer_addr: 0,
            peer_key: Rkey(0),
            cq,
            channel,
            armed: false,
            idle: 0,
            last: Instant::now(),
        };
        live.fill()?;
        Ok(Self { prepared, live })
    }

    /// What the peer must know.
    pub(super) fn side(&self) -> Side {
        Side {
            endpoints: self.prepared.iter().map(PreparedQp::endpoint).collect(),
            addr: self.live.mr.addr(),
            rkey: self.live.mr.rkey().value(),
        }
    }

    /// Connects to what the peer said.
    pub(super) fn connect(self, theirs: &Side) -> Result<Live> {
        let mut live = self.live;
        if theirs.endpoints.len() != self.prepared.len() {
            let text = format!("{} endpoints", theirs.endpoints.len());
            return Err(CliError::garbled("peer", &text));
        }
        (live.peer_addr, live.peer_key) = (theirs.addr, Rkey(theirs.rkey));
        for (qp, end) in self.prepared.into_iter().zip(&theirs.endpoints) {
            live.mtu = live.mtu.min(qp.endpoint().mtu().min(end.mtu()).bytes());
            live.qps.push(qp.connect(end)?);
        }
        Ok(live)
    }
}

impl Live {
    /// Offset of message `number` of queue pair `qp` in the outgoing half.
    pub(super) fn out(&self, qp: usize, number: u64) -> usize {
        let slots = if self.case.mode == Mode::Lat {
            1
        } else {
            self.case.slots()
        };
        let slot = number % u64::from(slots);
        let size = self.case.size as usize;
        qp * self.case.buffer() as usize + usize::try_from(slot).unwrap_or(0) * size
    }

    /// Offset of message `number` of queue pair `qp` in the incoming half.
    pub(super) fn inbound(&self, qp: usize, number: u64) -> usize {
        self.half() + self.out(qp, number)
    }

    /// Address and key of the byte at `offset` of the peer's region.
    pub(super) const fn remote(&self, offset: usize) -> (u64, Rkey) {
        (self.peer_addr.wrapping_add(offset as u64), self.peer_key)
    }

    /// Payload rides in the request.
    pub(super) const fn inline(&self) -> bool {
        self.case.size <= INLINE
    }

    const fn half(&self) -> usize {
        self.case.qps as usize * self.case.buffer() as usize
    }

    /// Takes completions, all of which must be good. In event mode, sleeps for a moment if there
    /// are none. Polling runs the device.
    pub(super) fn take(&mut self, done: &mut [Completion]) -> Result<usize> {
        let got = self.cq.poll_into(done);
        if got == 0 {
            self.rest()?;
            return Ok(0);
        }
        self.idle = 0;
        for wc in done.iter().take(got) {
            if !wc.is_ok() {
                let (status, vendor) = (wc.status(), wc.vendor_err());
                return Err(CliError::Completion { status, vendor });
            }
        }
        Ok(got)
    }

    fn rest(&mut self) -> Result<()> {
        match &self.channel {
            // What completed before the arm gives no event: the caller looks once more.
            Some(_) if !self.armed => {
                self.cq.arm(false)?;
                self.armed = true;
            }
            Some(channel) => {
                self.armed = channel.wait_for(NAP).is_none();
                self.idle = if self.armed { LOOKS } else { 0 };
            }
            None => {
                self.idle += 1;
                relax(self.idle);
            }
        }
        Ok(())
    }

    /// Client: an error if nothing has completed for long. Cheap; to be asked after empty looks.
    pub(super) fn check_stall(&mut self) -> Result<()> {
        if self.idle == 0 {
            self.last = Instant::now();
        } else if self.idle >= LOOKS {
            self.idle = 1;
            if self.last.elapsed() > STALL {
                return Err(CliError::Stalled { within: STALL });
            }
        }
        Ok(())
    }

    /// Writes this side's pattern to the outgoing half.
    fn fill(&self) -> Result<()> {
        let pattern = pattern(self.part);
        let half = self.half();
        let mut at = 0;
        while at < half {
            let len = CHUNK.min(half - at);
            self.mr.write(at, pattern.get(..len).unwrap_or_default())?;
            at += len;
        }
        Ok(())
    }

    /// Checks what came in against the peer's pattern; returns the number of wrong bytes.
    ///
    /// `messages`: how many came for each queue pair, at least.
    pub(super) fn damage(&self, messages: u64) -> Result<u64> {
        let peer = match self.part {
            Part::Client => Part::Server,
            Part::Server => Part::Client,
        };
        // Of a WRITE ping-pong, the last word is a number.
        let numbered = self.case.op == Op::Write && self.case.mode == Mode::Lat;
        let slots = if self.case.mode == Mode::Lat {
            1
        } else {
            u64::from(self.case.slots())
        };
        let slots = usize::try_from(messages.min(slots)).unwrap_or(usize::MAX);
        let len = slots * self.case.size as usize - if numbered && slots > 0 { 8 } else { 0 };
        let pattern = pattern(peer);
        let mut bytes = vec![0; CHUNK];
        let mut wrong = 0;
        for qp in 0..self.qps.len() {
            let (from, start) = (self.out(qp, 0), self.inbound(qp, 0));
            let mut at = 0;
            while at < len {
                // The pattern repeats every chunk, from the beginning of the half on.
                let phase = (from + at) % CHUNK;
                let piece = (CHUNK - phase).min(len - at);
                let bytes = bytes.get_mut(..piece).unwrap_or_default();
                self.mr.read(start + at, bytes)?;
                let expected = pattern.get(phase..phase + piece).unwrap_or_default();
                wrong += bytes.iter().zip(expected).filter(|(a, b)| a != b).count() as u64;
                at += piece;
            }
        }
        Ok(wrong)
    }
}

/// One chunk of the pattern of a side.
fn pattern(part: Part) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 256 * 7 + part as usize * 101).to_le_bytes()[0];
    (0..CHUNK).map(byte).collect()
}
