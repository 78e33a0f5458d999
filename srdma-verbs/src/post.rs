//! Posting sends: work requests written straight into the ring, and made visible together.
//!
//! ```text
//! qp.post_send()                       takes the send queue
//!   .write(id) .local(sge) .remote(..) staged in the ring when the statement ends
//!   .send(id)  .inline(bytes)          …
//!   .ring()                            visible, one doorbell, one pass of the device
//! drop instead of ring                 taken back
//! ```
//!
//! A request that cannot be written (no room, too many entries, not possible on this type) spoils
//! the batch: [`SendBatch::ring`] says why and posts nothing. What only the device can know (keys,
//! addresses) comes as a completion. Receives: `post_recv.rs`.

use crate::driver::engine::Doorbell;
use crate::driver::ids::lock;
use crate::driver::track::SqRecord;
use crate::error::{Arg, Error, Reason, Result};
use crate::qp::QpInner;
use crate::wc::WrId;
use crate::wr::{Desc, Wr, kind};
use crate::{BindInfo, Mw};
use core::fmt;
use srdma_core::hw::wqe::{ReadWr, SendWr, WriteWr};
use srdma_core::hw::{Sge, SgeList, SqOp, WqeBuf};
use srdma_core::limits::MAX_INLINE;
use srdma_core::mem::Bind;
use srdma_core::num::Rkey;
use srdma_core::qp::attr::QpType;
use srdma_core::ring::{PushFault, SqProducer};
use std::sync::MutexGuard;

/// The posting end of a send queue, with room to put a request together.
#[derive(Debug)]
pub(crate) struct SqEnd {
    pub(crate) ring: SqProducer,
    wqe: WqeBuf,
    pub(crate) payload: Payload,
}

/// The payload of the request that is being put together.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) sges: SgeList,
    pub(crate) too_many: bool,
    pub(crate) bytes: [u8; MAX_INLINE],
    /// Inline bytes, if the payload is inline.
    pub(crate) inline: Option<usize>,
    /// Of a bind: what it binds.
    pub(crate) bind: Option<Bind>,
}

impl Payload {
    pub(crate) const fn clear(&mut self) {
        self.sges.clear();
        self.too_many = false;
        self.inline = None;
        self.bind = None;
    }

    /// Appends to the inline bytes; of too many, only the number is kept.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let start = self.inline.unwrap_or(0);
        let end = start.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(start..end) {
            room.copy_from_slice(bytes);
        }
        self.sges.clear();
        self.inline = Some(end);
    }
}

impl SqEnd {
    pub(crate) fn new(ring: SqProducer) -> Self {
        let payload = Payload {
            sges: SgeList::EMPTY,
            too_many: false,
            bytes: [0; MAX_INLINE],
            inline: None,
            bind: None,
        };
        Self {
            ring,
            wqe: WqeBuf::new(),
            payload,
        }
    }
}

/// Send requests being posted. Holds the send queue until rung or dropped.
#[must_use = "a batch that is dropped posts nothing"]
pub struct SendBatch<'q> {
    qp: &'q QpInner,
    pub(crate) end: MutexGuard<'q, SqEnd>,
    /// A request that parts may still be added to.
    pub(crate) pending: Option<Desc>,
    written: usize,
    error: Option<Reason>,
}

impl<'q> SendBatch<'q> {
    pub(crate) fn new(qp: &'q QpInner) -> Self {
        Self {
            qp,
            end: lock(&qp.sq),
            pending: None,
            written: 0,
            error: None,
        }
    }

    /// SEND. Needs a payload ([`Wr::local`], [`Wr::inline`]); none is a message of no bytes. On a
    /// datagram queue pair it needs [`Wr::to`].
    pub fn send(&mut self, id: WrId) -> Wr<'_, 'q, kind::Send> {
        self.start(Desc::new(id, SqOp::SEND))
    }

    /// SEND with an immediate value.
    pub fn send_imm(&mut self, id: WrId, imm: u32) -> Wr<'_, 'q, kind::Send> {
        self.start(Desc {
            imm: Some(imm),
            ..Desc::new(id, SqOp::SEND)
        })
    }

    /// SEND that also invalidates a key of the peer. Connected queue pairs only.
    pub fn send_inv(&mut self, id: WrId, rkey: Rkey) -> Wr<'_, 'q, kind::Send> {
        self.start(Desc {
            inv: Some(rkey),
            ..Desc::new(id, SqOp::SEND_INV)
        })
    }

    /// RDMA WRITE. Needs [`Wr::remote`].
    pub fn write(&mut self, id: WrId) -> Wr<'_, 'q, kind::Write> {
        self.start(Desc::new(id, SqOp::WRITE))
    }

    /// RDMA WRITE that takes a receive of the peer and gives it an immediate value.
    pub fn write_imm(&mut self, id: WrId, imm: u32) -> Wr<'_, 'q, kind::WriteImm> {
        self.start(Desc {
            imm: Some(imm),
            ..Desc::new(id, SqOp::WRITE)
        })
    }

    /// RDMA READ into [`Wr::local`] from [`Wr::remote`].
    pub fn read(&mut self, id: WrId) -> Wr<'_, 'q, kind::Read> {
        self.start(Desc::new(id, SqOp::READ))
    }

    /// Compares the 64-bit word at [`Wr::remote`] with `compare`, and if they are equal stores
    /// `swap`. The word as it was goes to [`Wr::local`], eight bytes.
    pub fn compare_swap(&mut self, id: WrId, compare: u64, swap: u64) -> Wr<'_, 'q, kind::Atomic> {
        self.start(Desc {
            operands: [swap, compare],
            ..Desc::new(id, SqOp::COMPARE_SWAP)
        })
    }

    /// Adds to the 64-bit word at [`Wr::remote`]. The word as it was goes to [`Wr::local`], eight
    /// bytes.
    pub fn fetch_add(&mut self, id: WrId, addend: u64) -> Wr<'_, 'q, kind::Atomic> {
        self.start(Desc {
            operands: [addend, 0],
            ..Desc::new(id, SqOp::FETCH_ADD)
        })
    }

    /// Writes eight bytes to [`Wr::remote`] in one piece.
    pub fn atomic_write(&mut self, id: WrId, value: [u8; 8]) -> Wr<'_, 'q, kind::AtomicWrite> {
        let operands = [u64::from_le_bytes(value), 0];
        self.start(Desc {
            operands,
            ..Desc::new(id, SqOp::ATOMIC_WRITE)
        })
    }

    /// Makes a local key of a type 2 window (or of a region registered by request) invalid.
    pub fn local_inv(&mut self, id: WrId, rkey: Rkey) -> Wr<'_, 'q, kind::Local> {
        self.start(Desc {
            inv: Some(rkey),
            ..Desc::new(id, SqOp::LOCAL_INVALIDATE)
        })
    }

    /// Binds a type 2 window; it has the key `rkey` afterwards, usually [`Mw::next_rkey`].
    pub fn bind_mw(
        &mut self,
        id: WrId,
        mw: &Mw,
        info: &BindInfo<'_>,
        rkey: Rkey,
    ) -> Wr<'_, 'q, kind::Local> {
        self.start_bind(id, Desc::bind(mw, info, rkey, false))
    }

    pub(crate) fn bind_mw1(
        &mut self,
        id: WrId,
        mw: &Mw,
        info: &BindInfo<'_>,
        rkey: Rkey,
    ) -> Wr<'_, 'q, kind::Local> {
        self.start_bind(id, Desc::bind(mw, info, rkey, true))
    }

    /// Nothing, in its place among the others.
    pub fn nop(&mut self, id: WrId) -> Wr<'_, 'q, kind::Local> {
        self.start(Desc::new(id, SqOp::NOP))
    }

    /// Requests that are written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.written
    }

    /// True if nothing is written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Posts the batch with one doorbell, and lets the device work on this thread if it is free.
    ///
    /// On an error nothing is posted.
    pub fn ring(mut self) -> Result<()> {
        self.settle();
        match self.error.take() {
            None => self.post(),
            Some(reason) => Err(reason.of("post_send")),
        }
    }

    /// Posts what comes before the first request that could not be written, and says how many that
    /// are: what `ibv_post_send` does.
    pub fn ring_valid(mut self) -> (usize, Result<()>) {
        self.settle();
        let (written, error) = (self.written, self.error.take());
        match (self.post(), error) {
            (Err(error), _) => (0, Err(error)),
            (Ok(()), None) => (written, Ok(())),
            (Ok(()), Some(reason)) => (written, Err(reason.of("post_send"))),
        }
    }

    fn post(mut self) -> Result<()> {
        let qp = self.qp;
        let state = qp.shared.state();
        if !state.takes_sends() || !qp.is_live() {
            return Err(Error::new("post_send", Reason::State(state)));
        }
        if self.written == 0 {
            return Ok(());
        }
        self.end.ring.commit();
        qp.shared.sq.publish(self.end.ring.head());
        let alone = self.written == 1;
        // Nothing is staged any more, so dropping takes nothing back.
        drop(self);
        let engine = &qp.driver().engine;
        engine.ring(Doorbell::Sq(qp.shared.qpn));
        if alone {
            engine.drive_joined();
        } else {
            engine.drive_posted();
        }
        Ok(())
    }

    fn start<K>(&mut self, desc: Desc) -> Wr<'_, 'q, K> {
        self.settle();
        self.end.payload.clear();
        Wr::new(self, desc)
    }

    fn start_bind<K>(&mut self, id: WrId, bind: Bind) -> Wr<'_, 'q, K> {
        let wr = self.start(Desc::new(id, SqOp::BIND_MW));
        wr.bound_to(bind)
    }

    /// Writes the request that waits for further parts.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(desc) = self.pending.take() {
            self.commit(&desc);
        }
    }

    /// Spoils the batch from the request that is being put together on.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        self.pending = None;
        self.error.get_or_insert(reason);
    }

    /// Writes the request into the ring, or remembers why not.
    pub(crate) fn commit(&mut self, desc: &Desc) {
        if self.error.is_some() {
            return;
        }
        match self.stage(desc) {
            Ok(()) => self.written += 1,
            Err(reason) => self.error = Some(reason),
        }
    }

    fn stage(&mut self, desc: &Desc) -> core::result::Result<(), Reason> {
        let qp = self.qp;
        qp.check_sends(desc.op)?;
        let end = &mut *self.end;
        check_payload(qp, &end.payload)?;
        let len = build(&mut end.wqe, desc, &end.payload, qp)?;
        let slot = match end.ring.stage(&end.wqe) {
            Err(PushFault::Full) => {
                end.ring.release_to(qp.shared.sq.tail());
                end.ring.stage(&end.wqe)
            }
            staged => staged,
        };
        let slot = slot.map_err(|_| Reason::Full)?;
        let track = &qp.shared.sq;
        if slot.padding != 0 {
            track.put_padding(slot.index, slot.padding);
        }
        let quanta = end.wqe.quanta();
        track.put(
            slot.index,
            SqRecord {
                wr_id: desc.id,
                len,
                quanta,
                op: Some(desc.op),
            },
        );
        Ok(())
    }
}

impl Drop for SendBatch<'_> {
    fn drop(&mut self) {
        self.end.ring.rollback();
    }
}

impl fmt::Debug for SendBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBatch({} on {:?})", self.written, self.qp)
    }
}

impl QpInner {
    /// What each type of queue pair can send.
    fn check_sends(&self, op: SqOp) -> core::result::Result<(), Reason> {
        let kind = self.shared.qp_type;
        let possible = match kind {
            QpType::Rc | QpType::XrcSend => true,
            QpType::XrcRecv => false,
            QpType::Uc => !matches!(
                op,
                SqOp::READ | SqOp::COMPARE_SWAP | SqOp::FETCH_ADD | SqOp::ATOMIC_WRITE
            ),
            _ => matches!(op, SqOp::SEND | SqOp::NOP),
        };
        if possible {
            Ok(())
        } else {
            Err(Reason::QpType(kind))
        }
    }
}

fn check_payload(qp: &QpInner, payload: &Payload) -> core::result::Result<(), Reason> {
    let caps = qp.caps();
    let sges = u64::from(caps.max_send_sge);
    if payload.too_many || payload.sges.len() as u64 > sges {
        return Err(Reason::Range {
            arg: Arg::SendSge,
            limit: sges,
        });
    }
    let inline = u64::from(caps.max_inline);
    if payload.inline.is_some_and(|len| len as u64 > inline) {
        return Err(Reason::Range {
            arg: Arg::Inline,
            limit: inline,
        });
    }
    Ok(())
}

/// Requests of XRC initiators name a shared receive queue of the peer, and no others do.
#[inline]
fn name_srq(wqe: &mut WqeBuf, desc: &Desc, qp: &QpInner) -> core::result::Result<(), Reason> {
    let local = matches!(desc.op, SqOp::LOCAL_INVALIDATE | SqOp::BIND_MW | SqOp::NOP);
    let needed = qp.shared.qp_type == QpType::XrcSend && !local;
    if desc.xrc_srq.is_some() != needed {
        return Err(Reason::IncompleteWr);
    }
    wqe.set_xrc_srq(desc.xrc_srq);
    Ok(())
}

/// Builds the WQE, and says how many payload bytes it has.
#[inline]
fn build(
    wqe: &mut WqeBuf,
    desc: &Desc,
    payload: &Payload,
    qp: &QpInner,
) -> core::result::Result<u32, Reason> {
    let mut flags = desc.flags;
    flags.signaled |= qp.signals_all();
    let sges = payload.sges.as_slice();
    let inline = payload.inline.and_then(|len| payload.bytes.get(..len));
    let len = inline.map_or_else(|| payload.sges.total_len(), |bytes| bytes.len() as u64);
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let remote = || desc.remote.ok_or(Reason::IncompleteWr);
    name_srq(wqe, desc, qp)?;
    match desc.op {
        SqOp::SEND | SqOp::SEND_INV => {
            if qp.shared.qp_type.is_datagram() != desc.ud.is_some() {
                return Err(Reason::IncompleteWr);
            }
            let (solicited, imm, inv, ud) = (desc.solicited, desc.imm, desc.inv, desc.ud);
            let wr = SendWr {
                flags,
                solicited,
                imm,
                inv,
                ud,
            };
            match inline {
                Some(bytes) => wqe.send_inline(&wr, bytes)?,
                None => wqe.send(&wr, sges)?,
            }
        }
        SqOp::WRITE => {
            let (solicited, imm) = (desc.solicited, desc.imm);
            let wr = WriteWr {
                flags,
                solicited,
                imm,
                remote: remote()?,
            };
            match inline {
                Some(bytes) => wqe.write_inline(&wr, bytes)?,
                None => wqe.write(&wr, sges)?,
            }
        }
        SqOp::READ => wqe.read(
            &ReadWr {
                flags,
                remote: remote()?,
                local_inv: false,
            },
            sges,
        )?,
        SqOp::COMPARE_SWAP | SqOp::FETCH_ADD => {
            let &[Sge { addr, len: 8, lkey }] = sges else {
                return Err(Reason::IncompleteWr);
            };
            let [first, compare] = desc.operands;
            if desc.op == SqOp::FETCH_ADD {
                wqe.fetch_add(flags, (addr, lkey), remote()?, first);
            } else {
                wqe.compare_swap(flags, (addr, lkey), remote()?, compare, first);
            }
        }
        SqOp::ATOMIC_WRITE => {
            let [value, _] = desc.operands;
            wqe.atomic_write(flags, remote()?, value.to_le_bytes());
            return Ok(8);
        }
        SqOp::LOCAL_INVALIDATE => {
            wqe.local_invalidate(flags, desc.inv.unwrap_or_default().value());
        }
        SqOp::BIND_MW => wqe.bind_mw(flags, payload.bind.as_ref().ok_or(Reason::IncompleteWr)?),
        _ => wqe.nop(flags),
    }
    Ok(len)
}
