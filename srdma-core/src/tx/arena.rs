//! The arena: where headers, trailers and small payloads of one send batch are built.
//!
//! ```text
//! arena bytes   | hdr | icrc hdr | icrc hdr | icrc |        one packet after the other
//!                     ^payload   ^payload    gathered in place from registered memory
//! segs          [seam][payload][seam][payload][seam]        2n + 1 entries for n packets
//! ```
//!
//! Payloads up to [`COPY_MAX`] bytes are copied into the arena, so a run of small packets is one
//! entry, and a word that a program changes while its packet is built cannot spoil the ICRC.
//!
//! A run is one GSO send. The kernel cuts it at `segment_len` without looking, so the join rule
//! here is the only guard: same path, no packet longer than the first, a shorter one closes.
//!
//! What this module does not do: decide what to send, or send it.

use super::{Run, Seg, TxBatch, TxToken};
use crate::mem::{HostBuf, HostFault, HostRange, Span};
use crate::obj::table::Slot;
use crate::tx::path::Path;
use crate::wire::Emit;
use crate::wire::opcode::Service;
use std::net::IpAddr;

/// Payloads up to this many bytes are copied into the arena instead of gathered.
pub const COPY_MAX: usize = 512;
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

/// What a packet carries behind its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Nothing.
    None,
    /// Bytes of our own (inline data, atomic results).
    Bytes(&'a [u8]),
    /// Checked windows of registered memory, in order.
    Spans(&'a [Span<'a>]),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Spans(spans) => spans.iter().map(Span::len).sum(),
        }
    }

    const fn pieces(&self) -> usize {
        match self {
            Self::None | Self::Bytes(_) => 0,
            Self::Spans(spans) => spans.len(),
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
    const fn same_stream(self, other: Self) -> bool {
        match (self, other) {
            (Self::Request(_), Self::Request(_))
            | (Self::Mended(_), Self::Mended(_))
            | (Self::Asked(_), Self::Asked(_)) => true,
            (Self::Response(a), Self::Response(b)) => a >> 24 == b >> 24,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenRun {
    path: u32,
    closed: bool,
    limit: u16,
}

/// Reusable space for one send batch. Owned by the engine, filled by the device.
#[derive(Debug)]
pub struct TxArena {
    space: HostRange,
    used: usize,
    seam: usize,
    segs: Vec<Seg<'static>>,
    runs: Vec<Run>,
    marks: Vec<Mark>,
    open: Option<OpenRun>,
    next_token: u64,
    packets: u32,
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
            space: HostBuf::new(Self::BYTES)?.range(),
            used: 0,
            seam: 0,
            segs: Vec::with_capacity(Self::SEGS),
            runs: Vec::with_capacity(Self::RUNS),
            marks: Vec::with_capacity(Self::MARKS),
            open: None,
            next_token: 0,
            packets: 0,
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
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.bytes)).sum()
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
    /// `emit`'s pad count is filled in here. Returns false when the arena is full: the batch has to
    /// leave first, nothing was changed.
    // rule: roce-30
    // rule: roce-31
    // rule: roce-40
    pub(crate) fn push(
        &mut self,
        path: &Path,
        mark: (Slot, MarkKind),
        emit: &mut Emit,
        payload: Payload<'_>,
    ) -> bool {
        if !self.has_room(payload.pieces()) {
            return false;
        }
        let len = payload.len();
        let pad = len.wrapping_neg() & 3;
        #[allow(clippy::cast_possible_truncation, reason = "0..=3")]
        {
            emit.bth.pad = pad as u8;
        }
        let total = emit.len() + len + pad + 4;
        let service = emit.bth.opcode.service();
        let unreliable = matches!(service, Some(Service::Uc | Service::Ud));
        let Some(ip_id) = self.join(path, total, payload.pieces(), unreliable) else {
            return false;
        };
        self.mark(mark);
        self.build(path, ip_id, total, pad, emit, payload);
        self.packets += 1;
        true
    }

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
    /// identification.                                                  [RoCEv2 7.6]
    fn join(&mut self, path: &Path, total: usize, pieces: usize, unreliable: bool) -> Option<u16> {
        #[allow(clippy::cast_possible_truncation, reason = "below MAX_DATAGRAM")]
        let total32 = total as u32;
        let max = if path.target.is_ipv4() {
            MAX_RUN_V4
        } else {
            MAX_RUN_V6
        };
        #[allow(clippy::cast_possible_truncation, reason = "at most SEGS entries")]
        let (have, need) = (self.segs.len() as u32, pieces as u32 + 2);
        if let (Some(open), Some(run)) = (&mut self.open, self.runs.last_mut())
            && open.path == path.id
            && !open.closed
            && total32 <= u32::from(run.segment_len)
            && run.packets < open.limit
            && run.bytes + total32 <= max
            && have - run.segs.start + need <= MAX_SEGS_PER_RUN
        {
            let index = run.packets;
            run.packets += 1;
            run.bytes += total32;
            run.unreliable |= unreliable;
            open.closed = total32 < u32::from(run.segment_len);
            return Some(index);
        }
        self.close_run();
        let first = u32::try_from(self.segs.len()).ok()?;
        let limit = self.segments_for(path.target.ip());
        self.runs.push(Run {
            // rule: roce-1
            target: path.target,
            local: path.local,
            tclass: path.tclass,
            hop_limit: path.hop_limit,
            segment_len: u16::try_from(total).ok()?,
            packets: 1,
            bytes: total32,
            unreliable,
            segs: first..first,
        });
        self.open = Some(OpenRun {
            path: path.id,
            closed: false,
            limit,
        });
        Some(0)
    }

    fn build(
        &mut self,
        path: &Path,
        ip_id: u16,
        total: usize,
        pad: usize,
        emit: &Emit,
        payload: Payload<'_>,
    ) {
        let mut header = [0u8; crate::limits::MAX_HEADER + 8];
        let header_len = emit.write(&mut header);
        let header = header.get(..header_len).unwrap_or(&[]);
        let mut icrc = path.icrc.start(total, ip_id);
        icrc.headers(header);
        let arena = self.space.whole();
        arena.copy_in(self.used, header);
        self.used += header_len;
        let mut gathered = false;
        match payload {
            Payload::None => {}
            Payload::Bytes(bytes) => {
                arena.copy_in(self.used, bytes);
                icrc.bytes(bytes);
                self.used += bytes.len();
            }
            Payload::Spans(spans) => {
                let len: usize = spans.iter().map(Span::len).sum();
                if len <= COPY_MAX {
                    let from = self.used;
                    for span in spans {
                        arena.copy_span(self.used, *span);
                        self.used += span.len();
                    }
                    if let Some(copy) = arena.slice(from, len) {
                        copy.crc(icrc.hasher());
                    }
                } else {
                    gathered = true;
                    for span in spans {
                        span.crc(icrc.hasher());
                    }
                }
            }
        }
        if let (true, Payload::Spans(spans)) = (gathered, payload) {
            self.cut_seam();
            self.segs.extend(
                spans
                    .iter()
                    .map(|span| Seg::from_raw(span.seg().base(), span.len())),
            );
        }
        let mut trailer = [0u8; 7];
        if let Some(bytes) = trailer.get(..pad) {
            icrc.bytes(bytes);
        }
        if let Some(end) = trailer.get_mut(pad..pad + 4) {
            end.copy_from_slice(&icrc.finish());
        }
        if let Some(bytes) = trailer.get(..pad + 4) {
            self.space.whole().copy_in(self.used, bytes);
        }
        self.used += pad + 4;
    }

    /// Makes the arena bytes since the last cut one gather entry.
    fn cut_seam(&mut self) {
        if self.used > self.seam
            && let Some(span) = self.space.whole().slice(self.seam, self.used - self.seam)
        {
            self.segs.push(Seg::from_raw(span.seg().base(), span.len()));
            self.seam = self.used;
        }
    }

    fn close_run(&mut self) {
        self.cut_seam();
        if let Some(run) = self.runs.last_mut() {
            run.segs.end = u32::try_from(self.segs.len()).unwrap_or(u32::MAX);
        }
        self.open = None;
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
