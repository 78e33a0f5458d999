//! The arena: where headers, trailers and small payloads of one send batch are built.
//!
//! ```text
//! arena bytes   | hdr | icrc hdr | icrc hdr | icrc |        one packet after the other
//!                     ^payload   ^payload    gathered in place from registered memory
//! segs          [seam][payload][seam][payload][seam]        2n + 1 entries for n packets
//! ```
//!
//! Payloads up to `COPY_MAX` bytes are copied into the arena, so a run of small packets is one
//! entry, and a word that a program changes while its packet is built cannot spoil the ICRC.
//!
//! A run is one GSO send. The kernel cuts it at `segment_len` without looking, so the join rule
//! here is the only guard: same path, no packet longer than the first, a shorter one closes.
//!
//! What this module does not do: decide what to send, or send it.

use super::{Run, Seg, TxBatch, TxToken};
use crate::mem::{HostBuf, HostFault, Span};
use crate::obj::table::Slot;
use crate::tx::path::Path;
use crate::tx::payload::Payload;
use crate::wire::{Head, ICRC_LEN, IcrcLen};
use std::net::IpAddr;
use std::sync::Arc;

/// Gather entries that one `sendmsg` takes.                          [UIO_MAXIOV]
const MAX_SEGS_PER_RUN: u32 = 1024;
/// Bytes of UDP payload in one datagram or GSO send over IPv4.
const MAX_RUN_V4: u32 = 65_507;
/// The same over IPv6.
const MAX_RUN_V6: u32 = 65_527;

/// How many segments a GSO send may have, for whom it may not be used at all, and what may not go.
#[derive(Clone, Debug)]
pub struct TxLimits {
    /// Segments of one GSO send; 1 switches GSO off.
    pub max_segments: u16,
    /// Targets that do not take GSO (the kernel refused it once).
    pub refused: Vec<IpAddr>,
    /// Bytes of packets that nobody acknowledges, about: a receiver has no room for more. What else
    /// there is of them stays where it is.
    pub unreliable: u32,
}

impl Default for TxLimits {
    fn default() -> Self {
        Self {
            max_segments: 64,
            refused: Vec::new(),
            unreliable: u32::MAX,
        }
    }
}

/// What has to be told about a part of a batch once it left, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Whose packets.
    pub(crate) qp: Slot,
    /// In which run.
    pub(crate) run: u32,
    /// What they were.
    pub(crate) kind: MarkKind,
}

/// What the packets of a mark were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    /// Requests from this PSN on (raw 24-bit number).
    Request(u32),
    /// A request that was missing and was sent again alone, and those right behind it.
    Mended(u32),
    /// A part of a READ that was asked for again alone, and those behind it.
    Asked(u32),
    /// A response: what the responder has to take up again, above a PSN of 24 bits.
    Response(u64),
    /// One response that is sent again alone, and where its part of the message ends.
    Repeated(u64, u32),
}

impl MarkKind {
    #[inline]
    const fn same_stream(self, other: Self) -> bool {
        match self {
            Self::Request(_) => matches!(other, Self::Request(_)),
            Self::Mended(_) => matches!(other, Self::Mended(_)),
            Self::Asked(_) => matches!(other, Self::Asked(_)),
            Self::Response(a) => matches!(other, Self::Response(b) if a >> 24 == b >> 24),
            Self::Repeated(..) => false,
        }
    }
}

/// The run that packets may still join; what it has grown to is told when it is closed.
#[derive(Clone, Copy, Debug)]
struct OpenRun {
    path: u32,
    segment_len: u32,
    packets: u16,
    /// How many packets it may have: no more than it has once a shorter one closed it.
    limit: u16,
    bytes: u32,
    /// Bytes that it may have.
    max: u32,
    /// One past the last gather entry that it may have.
    last_seg: u32,
    /// What the ICRCs of its packets have in common.
    icrc: IcrcLen,
    unreliable: bool,
}

/// Reusable space for one send batch. Owned by the engine, filled by the device.
#[derive(Debug)]
pub struct TxArena {
    space: Arc<HostBuf>,
    used: usize,
    seam: usize,
    segs: Vec<Seg<'static>>,
    runs: Vec<Run>,
    marks: Vec<Mark>,
    open: Option<OpenRun>,
    next_token: u64,
    packets: u32,
    bytes: u64,
    /// Payload that cannot be gathered in place, on its way in.
    pub(crate) copy: Vec<u8>,
    /// GSO limits; the socket side lowers them when the kernel objects.
    pub limits: TxLimits,
}

impl TxArena {
    const BYTES: usize = 256 * 1024;
    const SEGS: usize = 4096;
    const RUNS: usize = 64;
    const MARKS: usize = 4096;

    /// An empty arena of the usual size.
    pub fn new() -> Result<Self, HostFault> {
        Ok(Self {
            space: HostBuf::new(Self::BYTES)?,
            used: 0,
            seam: 0,
            segs: Vec::with_capacity(Self::SEGS),
            runs: Vec::with_capacity(Self::RUNS),
            marks: Vec::with_capacity(Self::MARKS),
            open: None,
            next_token: 0,
            packets: 0,
            bytes: 0,
            copy: Vec::with_capacity(crate::limits::MAX_MTU),
            limits: TxLimits::default(),
        })
    }

    /// True if nothing was pushed since the last reset.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Packets pushed since the last reset.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Bytes of the packets pushed since the last reset, BTH to ICRC.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets the last batch.
    pub(crate) fn reset(&mut self) {
        self.used = 0;
        self.seam = 0;
        self.segs.clear();
        self.runs.clear();
        self.marks.clear();
        self.open = None;
        self.packets = 0;
        self.bytes = 0;
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Segments that a GSO send to `target` may have.
    #[must_use]
    pub fn segments_for(&self, target: IpAddr) -> u16 {
        if self.limits.refused.contains(&target) {
            1
        } else {
            self.limits.max_segments.max(1)
        }
    }

    /// True if one more packet with `pieces` gathered pieces certainly fits.
    pub(crate) fn has_room(&self, pieces: usize) -> bool {
        self.used + crate::limits::MAX_DATAGRAM <= self.space.len()
            && self.segs.len() + pieces + 2 <= Self::SEGS
            && self.runs.len() < Self::RUNS
            && self.marks.len() < Self::MARKS
    }

    /// Builds one packet and appends it to the open run, or opens the next run for it.
    ///
    /// The pad count of `head` is filled in here. Returns false when the arena is full: the batch
    /// has to leave first, nothing was changed.
    // rule: roce-30
    // rule: roce-31
    // rule: roce-40
    pub(crate) fn push<P: Payload>(
        &mut self,
        path: &Path,
        mark: (Slot, MarkKind),
        head: &mut Head,
        payload: P,
    ) -> bool {
        let pieces = payload.pieces();
        if !self.has_room(pieces) {
            return false;
        }
        let len = payload.len();
        let pad = head.pad_for(len);
        let total = head.len() + len + pad + ICRC_LEN;
        let unreliable = head.opcode().is_unreliable();
        let Some((ip_id, of_len)) = self.join(path, total, pieces, unreliable) else {
            return false;
        };
        self.mark(mark);
        let bth = head.bth();
        let mut icrc = of_len.start(ip_id, &bth);
        self.put_bytes(&bth);
        let ext = head.ext();
        if !ext.is_empty() {
            self.put_bytes(ext);
            icrc.bytes(ext);
        }
        payload.put(self, &mut icrc);
        if pad > 0 {
            let zeros = [0; 3];
            let zeros = zeros.get(..pad).unwrap_or(&[]);
            self.put_bytes(zeros);
            icrc.bytes(zeros);
        }
        self.put_bytes(&icrc.finish());
        self.packets += 1;
        self.bytes += total as u64;
        true
    }

    #[inline(always)]
    fn mark(&mut self, (qp, kind): (Slot, MarkKind)) {
        #[allow(clippy::cast_possible_truncation, reason = "at most RUNS runs")]
        let run = (self.runs.len() - 1) as u32;
        // The first mark of a stream in a run says enough: going back starts there.
        if let Some(last) = self.marks.last()
            && last.qp == qp
            && last.run == run
            && last.kind.same_stream(kind)
        {
            return;
        }
        self.marks.push(Mark { qp, run, kind });
    }

    /// Joins the open run or opens one. Returns the packet's index in its run, which is its IPv4
    /// identification, and what its length adds to the ICRC.             [RoCEv2 7.6]
    #[inline(always)]
    fn join(
        &mut self,
        path: &Path,
        total: usize,
        pieces: usize,
        unreliable: bool,
    ) -> Option<(u16, IcrcLen)> {
        #[allow(clippy::cast_possible_truncation, reason = "below MAX_DATAGRAM")]
        let total = total as u32;
        #[allow(clippy::cast_possible_truncation, reason = "at most SEGS entries")]
        let segs = (self.segs.len() + pieces) as u32 + 2;
        if let Some(open) = &mut self.open
            && open.path == path.id
            && total <= open.segment_len
            && open.packets < open.limit
            && open.bytes + total <= open.max
            && segs <= open.last_seg
        {
            let index = open.packets;
            open.packets += 1;
            open.bytes += total;
            open.unreliable |= unreliable;
            let mut icrc = open.icrc;
            if total < open.segment_len {
                open.limit = open.packets;
                icrc = path.icrc.of_len(total as usize);
            }
            return Some((index, icrc));
        }
        self.open_run(path, total, unreliable)
    }

    /// Opens a run with its first packet.
    fn open_run(&mut self, path: &Path, total: u32, unreliable: bool) -> Option<(u16, IcrcLen)> {
        self.close_run();
        let icrc = path.icrc.of_len(total as usize);
        let first = u32::try_from(self.segs.len()).ok()?;
        self.runs.push(Run {
            // rule: roce-1
            target: path.target,
            local: path.local,
            tclass: path.tclass,
            hop_limit: path.hop_limit,
            segment_len: u16::try_from(total).ok()?,
            packets: 1,
            bytes: total,
            unreliable,
            segs: first..first,
        });
        self.open = Some(OpenRun {
            path: path.id,
            segment_len: total,
            packets: 1,
            limit: self.segments_for(path.target.ip()),
            bytes: total,
            max: if path.target.is_ipv4() {
                MAX_RUN_V4
            } else {
                MAX_RUN_V6
            },
            last_seg: first + MAX_SEGS_PER_RUN,
            icrc,
            unreliable,
        });
        Some((0, icrc))
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        self.space.span().copy_in(self.used, bytes);
        self.used += bytes.len();
    }

    /// Appends a copy of `len` bytes of registered memory, and lends it.
    #[inline(always)]
    pub(super) fn put_copy(&mut self, spans: &[Span<'_>], len: usize) -> Span<'_> {
        let from = self.used;
        for span in spans {
            self.space.span().copy_span(self.used, *span);
            self.used += span.len();
        }
        self.space.span().slice(from, len).unwrap_or(Span::empty())
    }

    /// Appends registered memory where it is.
    #[inline]
    pub(super) fn gather(&mut self, spans: &[Span<'_>]) {
        self.cut_seam();
        for span in spans {
            self.segs.push(Seg::from_raw(span.seg().base(), span.len()));
        }
    }

    /// Makes the arena bytes since the last cut one gather entry.
    fn cut_seam(&mut self) {
        if self.used > self.seam
            && let Some(span) = self.space.span().slice(self.seam, self.used - self.seam)
        {
            self.segs.push(Seg::from_raw(span.seg().base(), span.len()));
            self.seam = self.used;
        }
    }

    fn close_run(&mut self) {
        self.cut_seam();
        if let (Some(open), Some(run)) = (self.open.take(), self.runs.last_mut()) {
            (run.packets, run.bytes) = (open.packets, open.bytes);
            run.unreliable = open.unreliable;
            run.segs.end = u32::try_from(self.segs.len()).unwrap_or(u32::MAX);
        }
    }

    /// Closes the batch and lends it out; `None` if it is empty.
    pub(crate) fn batch<'a>(&'a mut self) -> Option<TxBatch<'a>> {
        if self.runs.is_empty() {
            return None;
        }
        self.close_run();
        self.next_token += 1;
        Some(TxBatch {
            runs: &self.runs,
            segs: &self.segs,
            token: TxToken(self.next_token),
        })
    }

    /// The token of the batch lent out last.
    pub(crate) const fn token(&self) -> TxToken {
        TxToken(self.next_token)
    }
}
