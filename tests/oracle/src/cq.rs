//! A completion queue that the oracle polls and arms.
//!
//! The oracle follows the pointer in each completion. So a queue knows the queue pairs that may
//! complete in it, and refuses to poll an entry that names anything else: that would be a bug of
//! ours, and must not become a wild access.

use crate::ffi::{self, CqInit, Object, PollInfo, poll};
use crate::{OracleQp, Refused};
use srdma_core::mem::{HostBuf, HostWords};
use std::sync::Arc;

/// Words of a shadow area; the arm word is the fifth.                  [E810 3.9]
const SHADOW_BYTES: usize = 64;

/// How the oracle calls the outcome of a completion.                   [E810 3.4]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "all that polling produces")]
pub enum Status {
    /// Done.
    Success,
    /// Flushed; the minor code says why.
    Flushed,
    /// An error that it does not know.
    Unknown,
    /// None of the above.
    Other(i32),
}

/// A completion as the oracle reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// The work request.
    pub wr_id: u64,
    /// The queue pair's context.
    pub context: u64,
    /// Of the SQ.
    pub sq: bool,
    /// SQ: opcode. RQ: 0x3e, or 0x3f with an immediate.
    pub op: u8,
    /// Bytes.
    pub bytes: u32,
    /// PSN, or what stands in its place.
    pub psn: u32,
    /// Local queue pair number.
    pub qpn: u32,
    /// Source of a datagram.
    pub ud_source: u32,
    /// Invalidated key.
    pub inv_stag: Option<u32>,
    /// IPv4 network header.
    pub ipv4: bool,
    /// Solicited event.
    pub solicited: bool,
    /// Error flag.
    pub error: bool,
    /// Outcome.
    pub status: Status,
    /// Major code.
    pub major: u16,
    /// Minor code.
    pub minor: u16,
    /// Immediate.
    pub imm: Option<u32>,
    /// Source MAC.
    pub mac: Option<[u8; 6]>,
    /// VLAN tag.
    pub vlan: Option<u16>,
}

/// The oracle's completion queue and its memory.
#[derive(Debug)]
pub struct OracleCq {
    uk: Object,
    ring: Arc<HostBuf>,
    shadow: Object,
    doorbell: Object,
    size: u32,
    wide: bool,
    qps: Vec<Object>,
}

impl OracleCq {
    /// A queue of `size` slots of 32 bytes, or of 64 if `wide`.
    ///
    /// # Panics
    ///
    /// Without memory.
    #[must_use]
    pub fn new(id: u32, size: u32, wide: bool) -> Self {
        let cq = Self {
            uk: Object::new(ffi::cq::BYTES),
            ring: ring(size, wide),
            shadow: Object::new(SHADOW_BYTES),
            doorbell: Object::new(4096),
            size,
            wide,
            qps: Vec::new(),
        };
        let mut info = CqInit {
            arm_doorbell: cq.doorbell.ptr(),
            ack_doorbell: cq.doorbell.ptr(),
            base: ffi::pointer(cq.ring.addr()),
            shadow: cq.shadow.ptr(),
            size,
            id,
            wide,
        };
        // SAFETY: why needed: a call into C. Why sound: `uk` is zeroed memory longer than its
        // structure; every pointer in `info` is of memory that `cq` owns, and long enough.
        let code = unsafe { ffi::cq_init(cq.uk.ptr(), &raw mut info) };
        assert_eq!(code, 0, "making a queue cannot fail");
        cq
    }

    /// Lets a queue pair complete here.
    pub fn attach(&mut self, qp: &OracleQp) {
        self.qps.push(qp.object().clone());
    }

    /// The ring.
    #[must_use]
    pub const fn ring(&self) -> &Arc<HostBuf> {
        &self.ring
    }

    /// The words of the ring.
    #[must_use]
    pub fn words(&self) -> HostWords {
        self.ring.words()
    }

    /// The shadow area.
    #[must_use]
    pub const fn shadow(&self) -> &HostWords {
        self.shadow.words()
    }

    /// The buffer of the shadow area.
    #[must_use]
    pub fn shadow_buf(&self) -> &Arc<HostBuf> {
        self.shadow.buf()
    }

    /// Slots.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// True with 64-byte slots.
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// The next slot that it looks at.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.uk.u32(ffi::cq::HEAD)
    }

    /// The valid bit that it waits for.
    #[must_use]
    pub fn polarity(&self) -> u8 {
        self.uk.u8(ffi::cq::POLARITY)
    }

    /// What it last wrote to the arm doorbell, which is cleared.
    pub fn take_doorbell(&mut self) -> u32 {
        let rung = self.doorbell.u32(0);
        self.doorbell.words().store(0, 0);
        rung
    }

    /// Asks for an event, and rings.
    pub fn arm(&mut self, solicited_only: bool) {
        // SAFETY: why needed: a call into C. Why sound: `uk` was initialised, and all that it
        // points to lives as long as `self`.
        unsafe { ffi::request_notification(self.uk.ptr(), solicited_only.into()) }
    }

    /// Goes on in a new ring, which is handed out; the old one has been read.
    pub fn resize(&mut self, size: u32) -> HostWords {
        self.ring = ring(size, self.wide);
        self.size = size;
        let base = ffi::pointer(self.ring.addr());
        // SAFETY: why needed: a call into C. Why sound: as in `arm`; the new ring has the size.
        unsafe { ffi::cq_resize(self.uk.ptr(), base, size.cast_signed()) }
        self.words()
    }

    /// Tells the device that `count` old rings are done with.
    pub fn retire(&mut self, count: u16) {
        // SAFETY: why needed: a call into C. Why sound: as in `arm`.
        unsafe { ffi::cq_set_resized_count(self.uk.ptr(), count) }
    }

    /// Makes the unread completions of a queue pair name none.
    pub fn clean(&mut self, qp: &OracleQp) {
        // SAFETY: why needed: a call into C. Why sound: as in `arm`; the queue pair's address is
        // only compared.
        unsafe { ffi::clean_cq(qp.object().ptr(), self.uk.ptr()) }
    }

    /// Takes the next completion.
    pub fn poll(&mut self) -> Result<Polled, Refused> {
        self.check_contexts();
        let mut info = PollInfo::default();
        // SAFETY: why needed: a call into C. Why sound: as in `arm`; the entries that it may look
        // at name queue pairs whose memory `self` keeps, or none (checked above).
        Refused::check(unsafe { ffi::poll_cq(self.uk.ptr(), &raw mut info) })?;
        let has = |flag: u8| info.flags & flag != 0;
        Ok(Polled {
            wr_id: info.wr_id,
            context: info.qp,
            sq: info.queue == 1,
            op: info.op,
            bytes: info.bytes,
            psn: info.psn,
            qpn: info.qp_id,
            ud_source: info.ud_source,
            inv_stag: has(poll::STAG).then_some(info.inv_stag),
            ipv4: has(poll::IPV4),
            solicited: has(poll::SOLICITED),
            error: has(poll::ERROR),
            status: match info.status {
                0 => Status::Success,
                1 => Status::Flushed,
                24 => Status::Unknown,
                other => Status::Other(other),
            },
            major: info.major,
            minor: info.minor,
            imm: has(poll::IMM).then_some(info.imm),
            mac: has(poll::MAC).then_some(info.mac),
            vlan: has(poll::VLAN).then_some(info.vlan),
        })
    }

    /// One call may pass over several entries, so all of the ring is looked at.
    fn check_contexts(&self) {
        let words = self.words();
        let stride = if self.wide { 8 } else { 4 };
        for slot in 0..self.size as usize {
            let context = words.load(slot * stride + 1);
            let known = context == 0 || self.qps.iter().any(|qp| qp.addr() == context);
            assert!(known, "slot {slot} names no queue pair: {context:#x}");
        }
    }
}

fn ring(size: u32, wide: bool) -> Arc<HostBuf> {
    let slot = if wide { 64 } else { 32 };
    HostBuf::new(size as usize * slot).expect("memory for a test")
}
