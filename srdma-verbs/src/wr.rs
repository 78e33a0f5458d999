//! One send request under construction: what a batch lends out between two of its methods.
//!
//! ```text
//! kind         local  inline  remote  solicited  to        every kind: signaled, fence
//! Send           x      x               x        x
//! Write          x      x       x
//! WriteImm       x      x       x       x
//! Read, Atomic   x              x
//! AtomicWrite                   x
//! Local
//!
//! on XRC initiators every kind but Local: xrc_srqn
//! ```
//!
//! The request is written when the value is dropped, at the end of the statement.

use crate::ah::Ah;
use crate::mw::{BindInfo, Mw};
use crate::post::SendBatch;
use crate::wc::WrId;
use core::fmt;
use core::marker::PhantomData;
use srdma_core::hw::wqe::{RemoteAddr, UdTarget, WrFlags};
use srdma_core::hw::{Sge, SqOp};
use srdma_core::mem::{Access, Bind};
use srdma_core::num::{Qkey, Qpn, Rkey, SrqId};

/// Everything of a request but its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) id: WrId,
    pub(crate) op: SqOp,
    pub(crate) flags: WrFlags,
    pub(crate) solicited: bool,
    pub(crate) imm: Option<u32>,
    pub(crate) inv: Option<Rkey>,
    pub(crate) remote: Option<RemoteAddr>,
    pub(crate) ud: Option<UdTarget>,
    pub(crate) xrc_srq: Option<SrqId>,
    pub(crate) operands: [u64; 2],
}

impl Desc {
    #[inline]
    pub(crate) fn new(id: WrId, op: SqOp) -> Self {
        Self {
            id,
            op,
            flags: WrFlags::default(),
            solicited: false,
            imm: None,
            inv: None,
            remote: None,
            ud: None,
            xrc_srq: None,
            operands: [0; 2],
        }
    }

    /// What a bind says besides; it lies with the payload, so that other requests do not carry it.
    pub(crate) fn bind(mw: &Mw, info: &BindInfo<'_>, rkey: Rkey, type1: bool) -> Bind {
        // The key's index is the window's; the program chooses the low byte only.
        let window = (mw.rkey().value() & !0xff) | (rkey.value() & 0xff);
        Bind {
            window,
            parent: info.mr.lkey().value(),
            va: info.addr,
            len: info.len,
            access: info.access.without(Access::ZERO_BASED),
            zero_based: info.access.contains(Access::ZERO_BASED),
            type1,
        }
    }
}

/// The kinds of requests, as types, so that each offers what it has.
pub mod kind {
    /// SEND and its variants.
    #[derive(Debug)]
    pub struct Send;
    /// RDMA WRITE.
    #[derive(Debug)]
    pub struct Write;
    /// RDMA WRITE with immediate.
    #[derive(Debug)]
    pub struct WriteImm;
    /// RDMA READ.
    #[derive(Debug)]
    pub struct Read;
    /// Compare and swap, fetch and add.
    #[derive(Debug)]
    pub struct Atomic;
    /// ATOMIC WRITE.
    #[derive(Debug)]
    pub struct AtomicWrite;
    /// Requests without data: local invalidate, bind, NOP.
    #[derive(Debug)]
    pub struct Local;

    /// Has memory of ours.
    pub trait HasLocal {}
    impl HasLocal for Send {}
    impl HasLocal for Write {}
    impl HasLocal for WriteImm {}
    impl HasLocal for Read {}
    impl HasLocal for Atomic {}

    /// May carry its payload in the request.
    pub trait HasInline {}
    impl HasInline for Send {}
    impl HasInline for Write {}
    impl HasInline for WriteImm {}

    /// Names memory of the peer.
    pub trait HasRemote {}
    impl HasRemote for Write {}
    impl HasRemote for WriteImm {}
    impl HasRemote for Read {}
    impl HasRemote for Atomic {}
    impl HasRemote for AtomicWrite {}

    /// Leaves as a request: everything but local work.
    pub trait HasRequest {}
    impl HasRequest for Send {}
    impl HasRequest for Write {}
    impl HasRequest for WriteImm {}
    impl HasRequest for Read {}
    impl HasRequest for Atomic {}
    impl HasRequest for AtomicWrite {}

    /// Takes a receive of the peer.
    pub trait HasSolicited {}
    impl HasSolicited for Send {}
    impl HasSolicited for WriteImm {}
}

/// A send request of kind `K` under construction. Written to the batch when dropped.
#[allow(
    clippy::module_name_repetitions,
    reason = "the field's name for a work request"
)]
pub struct Wr<'b, 'q, K> {
    batch: &'b mut SendBatch<'q>,
    desc: Desc,
    _kind: PhantomData<K>,
}

impl<'b, 'q, K> Wr<'b, 'q, K> {
    #[inline]
    pub(crate) const fn new(batch: &'b mut SendBatch<'q>, desc: Desc) -> Self {
        Self {
            batch,
            desc,
            _kind: PhantomData,
        }
    }

    pub(crate) fn bound_to(self, bind: Bind) -> Self {
        self.batch.end.payload.bind = Some(bind);
        self
    }

    /// Reports success with a completion. Failures are always reported.
    #[inline]
    pub const fn signaled(mut self) -> Self {
        self.desc.flags.signaled = true;
        self
    }

    /// [`Self::signaled`] if `yes`.
    #[inline]
    pub const fn signaled_if(mut self, yes: bool) -> Self {
        self.desc.flags.signaled = yes;
        self
    }

    /// Waits for all earlier READs and atomics of this queue pair.
    #[inline]
    pub const fn fence(mut self) -> Self {
        self.desc.flags.read_fence = true;
        self
    }

    /// Waits for all earlier requests of this queue pair.
    #[inline]
    pub const fn local_fence(mut self) -> Self {
        self.desc.flags.local_fence = true;
        self
    }
}

impl<K: kind::HasLocal> Wr<'_, '_, K> {
    /// Memory of ours to take the payload from, or to put it to. May be called several times.
    #[inline]
    pub fn local(self, sge: Sge) -> Self {
        let payload = &mut self.batch.end.payload;
        payload.inline = None;
        payload.too_many |= !payload.sges.push(sge);
        self
    }

    /// Several pieces of memory at once.
    #[inline]
    pub fn locals(mut self, sges: impl IntoIterator<Item = Sge>) -> Self {
        for sge in sges {
            self = self.local(sge);
        }
        self
    }
}

impl<K: kind::HasInline> Wr<'_, '_, K> {
    /// Payload that is copied into the request: the bytes are free at once.
    #[inline]
    pub fn inline(self, bytes: &[u8]) -> Self {
        let payload = &mut self.batch.end.payload;
        payload.sges.clear();
        if let Some(room) = payload.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        payload.inline = Some(bytes.len());
        self
    }
}

impl<K: kind::HasRemote> Wr<'_, '_, K> {
    /// Memory of the peer.
    #[inline]
    pub const fn remote(mut self, addr: u64, rkey: Rkey) -> Self {
        self.desc.remote = Some(RemoteAddr { addr, rkey });
        self
    }
}

impl<K: kind::HasRequest> Wr<'_, '_, K> {
    /// The shared receive queue of the peer that the request is for: on XRC initiators, and there
    /// in every request. Also a request that takes no receive needs it, since memory is reached
    /// with the rights of that queue's protection domain.
    #[inline]
    pub const fn xrc_srqn(mut self, srq: SrqId) -> Self {
        self.desc.xrc_srq = Some(srq);
        self
    }
}

impl<K: kind::HasSolicited> Wr<'_, '_, K> {
    /// Asks for a solicited event at the peer.
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.desc.solicited = true;
        self
    }
}

impl Wr<'_, '_, kind::Send> {
    /// Where a datagram goes.
    #[inline]
    pub fn to(mut self, ah: &Ah, qpn: Qpn, qkey: Qkey) -> Self {
        self.desc.ud = Some(UdTarget {
            ah: ah.id(),
            qkey,
            dest: qpn,
        });
        self
    }
}

impl<K> Drop for Wr<'_, '_, K> {
    #[inline]
    fn drop(&mut self) {
        self.batch.commit(&self.desc);
    }
}

impl<K> fmt::Debug for Wr<'_, '_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.desc.fmt(f)
    }
}
