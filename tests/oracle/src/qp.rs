//! A queue pair whose driver is the oracle.
//!
//! ```text
//! one buffer:  [ SQ, whole pages ][ RQ, whole pages ][ shadow 64 B ]   [E810 1.7]
//! ```
//!
//! Its tracking arrays are as long as the largest ring, so that no index that a completion can name
//! leads out of them. What this does *not* do: look into the rings; tests do, by `sq` and `rq`.

use crate::ffi::{self, Fragment, Object, PostRq, PostSq, QpInit, post};
use crate::wr::{Payload, Work, Wr};
use crate::{Refused, depth};
use core::ffi::{c_int, c_void};
use srdma_core::hw::SqOp;
use srdma_core::mem::{HostBuf, HostWords, Sge};
use std::sync::Arc;

/// Quanta of the largest ring, and entries of the tracking arrays.    [E810 1.7]
const MOST: usize = 32_768;

/// What a program asks for.
#[derive(Debug, Clone, Copy)]
pub struct Caps {
    /// Send work requests.
    pub send_wrs: u32,
    /// Fragments of each.
    pub send_sges: u32,
    /// Receive work requests.
    pub recv_wrs: u32,
    /// Fragments of each.
    pub recv_sges: u32,
    /// Inline bytes.
    pub inline: u32,
}

/// The oracle's queue pair and its memory.
#[derive(Debug)]
pub struct OracleQp {
    uk: Object,
    rings: Arc<HostBuf>,
    doorbell: Object,
    rq_at: usize,
    shadow_at: usize,
    _attrs: Object,
    _sq_track: Object,
    _rq_wr_ids: Object,
}

impl OracleQp {
    /// Makes it; the sizes of its rings follow from the oracle's own rules.
    ///
    /// # Panics
    ///
    /// If the caps are beyond an E810's.
    #[must_use]
    pub fn new(qpn: u32, caps: Caps) -> Self {
        let sq_shift = depth::wqe_shift(caps.send_sges + 1, caps.inline);
        let rq_shift = depth::wqe_shift(caps.recv_sges, 0);
        let sq_quanta = depth::sq_depth(caps.send_wrs, sq_shift).expect("an SQ that exists");
        let rq_quanta = depth::rq_depth(caps.recv_wrs, rq_shift).expect("an RQ that exists");
        assert!(sq_quanta >= 512 && sq_quanta.is_power_of_two() && sq_quanta as usize <= MOST);
        assert!(rq_quanta.is_power_of_two() && rq_quanta as usize <= MOST);
        let rq_at = (sq_quanta as usize * 32).next_multiple_of(4096);
        let shadow_at = rq_at + (rq_quanta as usize * 32).next_multiple_of(4096);
        let rings = HostBuf::new(shadow_at + 64).expect("memory for a test");
        let qp = Self {
            uk: Object::new(ffi::qp::BYTES),
            rings,
            doorbell: Object::new(4096),
            rq_at,
            shadow_at,
            _attrs: ffi::e810(),
            _sq_track: Object::new(MOST * 16),
            _rq_wr_ids: Object::new(MOST * 8),
        };
        let mut info = QpInit {
            sq: ffi::pointer(qp.sq_addr()),
            rq: ffi::pointer(qp.rq_addr()),
            attrs: qp._attrs.ptr(),
            doorbell: qp.doorbell.ptr(),
            shadow: ffi::pointer(qp.shadow_addr()),
            sq_track: qp._sq_track.ptr(),
            rq_wr_ids: qp._rq_wr_ids.ptr(),
            qp_id: qpn,
            caps: 0,
            sq_wrs: sq_quanta >> sq_shift,
            rq_wrs: rq_quanta >> rq_shift,
            sq_frags: caps.send_sges,
            rq_frags: caps.recv_sges,
            inline: caps.inline,
            first_sq_wq: 0,
            kind: 3,
            abi: 5,
            legacy: false,
        };
        // SAFETY: why needed: a call into C. Why sound: `uk` is zeroed memory longer than its
        // structure; every pointer in `info` is of memory that `qp` owns, and long enough.
        let code = unsafe { ffi::qp_init(qp.uk.ptr(), &raw mut info) };
        assert_eq!(code, 0, "the oracle takes what it computed itself");
        assert_eq!(qp.sq_quanta(), sq_quanta);
        assert_eq!(qp.rq_wqes() << qp.rq_shift(), rq_quanta);
        assert_eq!(qp.rq_shift(), rq_shift);
        assert_eq!(1 << rq_shift, qp.uk.u8(ffi::qp::RQ_QUANTA));
        qp
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.uk
    }

    /// What its completions carry.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.uk.addr()
    }

    /// The number it rings the doorbell with.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.uk.u32(ffi::qp::QP_ID)
    }

    /// The buffer with both rings and the shadow area.
    #[must_use]
    pub const fn rings(&self) -> &Arc<HostBuf> {
        &self.rings
    }

    /// Address of the SQ.
    #[must_use]
    pub fn sq_addr(&self) -> u64 {
        self.rings.addr()
    }

    /// Address of the RQ.
    #[must_use]
    pub fn rq_addr(&self) -> u64 {
        self.rings.addr() + self.rq_at as u64
    }

    /// Address of the shadow area.
    #[must_use]
    pub fn shadow_addr(&self) -> u64 {
        self.rings.addr() + self.shadow_at as u64
    }

    /// The words of the SQ.
    #[must_use]
    pub fn sq(&self) -> HostWords {
        let words = self.sq_quanta() as usize * 4;
        self.rings.words().slice(0, words).expect("inside")
    }

    /// The words of the RQ.
    #[must_use]
    pub fn rq(&self) -> HostWords {
        let words = (self.rq_wqes() as usize * 4) << self.rq_shift();
        let first = self.rq_at / 8;
        self.rings.words().slice(first, words).expect("inside")
    }

    /// Quanta of the SQ.
    #[must_use]
    pub fn sq_quanta(&self) -> u32 {
        self.uk.u32(ffi::qp::SQ_SIZE)
    }

    /// Where the next quantum of the SQ goes.
    #[must_use]
    pub fn sq_head(&self) -> u32 {
        self.uk.u32(ffi::qp::SQ_HEAD)
    }

    /// The first quantum of the SQ that is not completed.
    #[must_use]
    pub fn sq_tail(&self) -> u32 {
        self.uk.u32(ffi::qp::SQ_TAIL)
    }

    /// The valid bit that it puts into the SQ now.
    #[must_use]
    pub fn sq_polarity(&self) -> u8 {
        self.uk.u8(ffi::qp::SQ_POLARITY)
    }

    /// Entries of the RQ.
    #[must_use]
    pub fn rq_wqes(&self) -> u32 {
        self.uk.u32(ffi::qp::RQ_SIZE)
    }

    /// Stride of the RQ: 32 << shift bytes.
    #[must_use]
    pub fn rq_shift(&self) -> u8 {
        self.uk.u8(ffi::qp::RQ_SHIFT)
    }

    /// Where the next entry of the RQ goes.
    #[must_use]
    pub fn rq_head(&self) -> u32 {
        self.uk.u32(ffi::qp::RQ_HEAD)
    }

    /// The first entry of the RQ that is not completed.
    #[must_use]
    pub fn rq_tail(&self) -> u32 {
        self.uk.u32(ffi::qp::RQ_TAIL)
    }

    /// The valid bit that it puts into the RQ now.
    #[must_use]
    pub fn rq_polarity(&self) -> u8 {
        self.uk.u8(ffi::qp::RQ_POLARITY)
    }

    /// What it last wrote to the doorbell, which is cleared.
    pub fn take_doorbell(&mut self) -> u32 {
        let rung = self.doorbell.u32(0);
        self.doorbell.words().store(0, 0);
        rung
    }

    /// From here on its completions are swallowed.
    pub fn set_destroy_pending(&mut self) {
        let word = ffi::qp::FLAGS / 8;
        let flags = self.uk.words().load(word);
        self.uk
            .words()
            .store(word, flags | ffi::qp::DESTROY_PENDING);
    }

    /// Rings the doorbell for everything that was posted.
    pub fn ring(&mut self) {
        // SAFETY: why needed: a call into C. Why sound: `uk` was initialised, and all that it
        // points to lives as long as `self`.
        unsafe { ffi::ring_doorbell(self.uk.ptr()) }
    }

    /// Posts a receive.
    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), Refused> {
        let list: Vec<Fragment> = sges.iter().map(Fragment::from).collect();
        let mut info = PostRq {
            wr_id,
            sges: list_pointer(&list),
            count: list.len() as u32,
        };
        // SAFETY: why needed: a call into C. Why sound: as in `ring`; the list lives until after
        // the call, and its addresses are only copied.
        Refused::check(unsafe { ffi::post_receive(self.uk.ptr(), &raw mut info) })
    }

    /// Posts a send work request; rings the doorbell if `ring`.
    pub fn post(&mut self, wr: &Wr, ring: bool) -> Result<(), Refused> {
        let mut info = PostSq {
            wr_id: wr.id,
            op: wr.op().0,
            flags: common_flags(wr),
            ..PostSq::default()
        };
        match &wr.work {
            Work::Send(send, payload) => {
                if let Some(imm) = send.imm {
                    info.flags |= post::IMM;
                    info.imm = imm;
                }
                info.inv_stag = send.inv.map_or(0, |key| key.value());
                let ud = send.ud.unwrap_or_default();
                info.body[2] = pair(ud.dest.value(), ud.ah.value());
                self.post_payload(
                    info,
                    payload,
                    ud.qkey.value(),
                    ring,
                    ffi::send,
                    ffi::inline_send,
                )
            }
            Work::Write(write, payload) => {
                if let Some(imm) = write.imm {
                    info.flags |= post::IMM;
                    info.imm = imm;
                }
                info.body[2] = write.remote.addr;
                info.body[3] = pair(0, write.remote.rkey.value());
                let (plain, inline) = (ffi::rdma_write, ffi::inline_rdma_write);
                self.post_payload(info, payload, 0, ring, plain, inline)
            }
            Work::Read(read, sges) => {
                let list: Vec<Fragment> = sges.iter().map(Fragment::from).collect();
                info.body[0] = list_pointer(&list).expose_provenance() as u64;
                info.body[1] = pair(list.len() as u32, 0);
                info.body[2] = read.remote.addr;
                info.body[3] = pair(0, read.remote.rkey.value());
                let (qp, invalidate) = (self.uk.ptr(), read.local_inv);
                // SAFETY: why needed: a call into C. Why sound: as in `recv`.
                let code = unsafe { ffi::rdma_read(qp, &raw mut info, invalidate, ring) };
                Refused::check(code)
            }
            Work::Invalidate(stag) => {
                info.body[0] = pair(*stag, 0);
                // SAFETY: why needed: a call into C. Why sound: as in `ring`.
                let code = unsafe { ffi::local_invalidate(self.uk.ptr(), &raw mut info, ring) };
                Refused::check(code)
            }
            Work::Bind(bind) => {
                // This member of the union is not in [E810 10.2]; the tests show its layout.
                let rights = bind.access.to_hw() >> 2 & 3;
                info.body[0] = pair(bind.parent, 0);
                info.body[1] = bind.len;
                info.body[2] = bind.va;
                info.body[3] = pair(u32::from(!bind.zero_based), rights);
                info.body[4] = pair(bind.window, u32::from(bind.type1));
                // SAFETY: why needed: a call into C. Why sound: as in `ring`.
                let code = unsafe { ffi::mw_bind(self.uk.ptr(), &raw mut info, ring) };
                Refused::check(code)
            }
            Work::Nop => {
                let signaled = wr.flags.signaled;
                // SAFETY: why needed: a call into C. Why sound: as in `ring`.
                Refused::check(unsafe { ffi::nop(self.uk.ptr(), wr.id, signaled, ring) })
            }
        }
    }

    /// Fills in the payload and posts. Inline bytes are handed over in up to three pieces.
    fn post_payload(
        &mut self,
        mut info: PostSq,
        payload: &Payload,
        qkey: u32,
        ring: bool,
        plain: PostFn,
        inline: PostFn,
    ) -> Result<(), Refused> {
        let (list, call) = match payload {
            Payload::Sges(sges) => (sges.iter().map(Fragment::from).collect(), plain),
            Payload::Inline(bytes) => {
                info.flags |= post::INLINE;
                (pieces(bytes, wanted_pieces(bytes, self)), inline)
            }
        };
        let list: Vec<Fragment> = list;
        info.body[0] = list_pointer(&list).expose_provenance() as u64;
        info.body[1] = pair(list.len() as u32, qkey);
        // SAFETY: why needed: a call into C. Why sound: as in `ring`; the list and the inline bytes
        // that it may name live until after the call.
        Refused::check(unsafe { call(self.uk.ptr(), &raw mut info, ring) })
    }
}

type PostFn = unsafe extern "C" fn(*mut c_void, *mut PostSq, bool) -> c_int;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The oracle reads the first fragment of a list that is there, however long it is.
const fn list_pointer(list: &[Fragment]) -> *const Fragment {
    if list.is_empty() {
        core::ptr::null()
    } else {
        list.as_ptr()
    }
}

/// How many pieces the inline bytes are handed over in: it has to come to the same.
fn wanted_pieces(bytes: &[u8], qp: &OracleQp) -> usize {
    let most = qp.uk.u32(ffi::qp::MAX_SQ_FRAGS) as usize;
    (bytes.len() % 3 + 1).min(most)
}

fn pieces(bytes: &[u8], count: usize) -> Vec<Fragment> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let parts = bytes.chunks(bytes.len().div_ceil(count));
    let fragment = |part: &[u8]| Fragment {
        addr: part.as_ptr().expose_provenance() as u64,
        len: part.len() as u32,
        lkey: 0,
    };
    parts.map(fragment).collect()
}

fn common_flags(wr: &Wr) -> u8 {
    let flags = [
        (wr.flags.signaled, post::SIGNALED),
        (wr.flags.read_fence, post::READ_FENCE),
        (wr.flags.local_fence, post::LOCAL_FENCE),
    ];
    let set = flags.iter().filter(|(on, _)| *on);
    set.fold(0, |bits, (_, bit)| bits | bit)
}

const _: () = assert!(SqOp::NOP.0 == 0x0c);
