//! Completion queues: made, resized, moderated, armed, destroyed.
//!
//! Both ways to make one give the same object: `ibv_cq_ex` starts with the fields of `ibv_cq`.
//! Polling: `post.rs` (by array) and `cq_poll.rs` (one by one).

use crate::channel::{self, Channel};
use crate::context::{self, Context};
use crate::cq_poll;
use crate::domain::Resource;
use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status, status_errno,
};
use crate::pd::Pd;
use crate::types::{Ptr, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr};
use core::cell::Cell;
use core::ffi::c_int;
use core::time::Duration;
use srdma_verbs::{Completion, Poll};
use std::sync::Arc;

/// Fields of a completion that a program may ask for: those of InfiniBand without more.
const WC_STANDARD: u64 = 0x7f;
/// When a completion came, by the clock of the device and by the time of day.
const WC_TIMES: u64 = 1 << 7 | 1 << 11;
/// Bits of `comp_mask` when a queue is made.
const MASK_FLAGS: u32 = 1;
const MASK_PD: u32 = 2;
/// Flags of a queue: one thread uses it; overruns do not matter.
const FLAGS: u32 = 3;

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: ibv_cq_ex,
    tag: Tag,
    /// A poll that goes on until `end_poll`.
    pub(crate) poll: Cell<Option<Poll<'static>>>,
    /// The completion that it found last.
    pub(crate) current: Cell<Completion>,
    pub(crate) verbs: srdma_verbs::Cq,
    _pd: Option<Arc<()>>,
}

object!(Cq, Cq);

impl Cq {
    /// What the program wants to hear of with an event.
    pub(crate) const fn cq_context(&self) -> Ptr {
        self.c.cq_context
    }
}

fn create(context: &Context, attr: &ibv_cq_init_attr_ex) -> Outcome<*mut Cq> {
    if attr.comp_mask & !(MASK_FLAGS | MASK_PD) != 0 {
        return Err(Errno::INVAL);
    }
    let flags = if attr.comp_mask & MASK_FLAGS == 0 {
        0
    } else {
        attr.flags
    };
    if flags & !FLAGS != 0 || attr.wc_flags & !(WC_STANDARD | WC_TIMES) != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    let domain = if attr.comp_mask & MASK_PD == 0 {
        None
    } else {
        let pd: &Pd = borrow_raw(attr.parent_domain.cast_const().cast())?;
        Some(pd)
    };
    let channel = channel::of(attr.channel)?;
    let vectors = u32::try_from(context.comp_vectors()).unwrap_or(0);
    if attr.comp_vector >= vectors {
        return Err(Errno::INVAL);
    }
    let vector = u16::try_from(attr.comp_vector).map_err(|_| Errno::INVAL)?;
    let mut builder = context.verbs.create_cq(attr.cqe).comp_vector(vector);
    if attr.wc_flags & WC_TIMES != 0 {
        builder = builder.timestamps();
    }
    if let Some(channel) = channel {
        builder = builder.on_channel(&channel.verbs);
    }
    if let Some(alloc) = domain.and_then(|pd| pd.ring_alloc(Resource::Cq)) {
        builder = builder.ring_alloc(alloc);
    }
    let verbs = builder.build()?;
    let entries = c_int::try_from(verbs.entries()).unwrap_or(c_int::MAX);
    let number = verbs.id().value();
    let mut c = cq_poll::table();
    (c.context, c.channel, c.cq_context) = (context.c(), attr.channel, attr.cq_context);
    (c.handle, c.cqe) = (number, Cell::new(entries));
    let cq = ffi::own(Box::new(Cq {
        c,
        tag: Tag::new(Kind::Cq),
        poll: Cell::new(None),
        current: Cell::new(Completion::EMPTY),
        verbs,
        _pd: domain.map(Pd::hold),
    }));
    context.enter(Kind::Cq, number, cq);
    if let Some(channel) = channel {
        Channel::add_cq(channel);
    }
    Ok(cq)
}

/// `ibv_create_cq`
pub(crate) extern "C" fn create_cq(
    context: Option<&Context>,
    cqe: c_int,
    cq_context: Ptr,
    channel: Ptr,
    comp_vector: c_int,
) -> *mut Cq {
    pointer((|| {
        let attr = ibv_cq_init_attr_ex {
            cqe: u32::try_from(cqe).map_err(|_| Errno::INVAL)?,
            cq_context,
            channel,
            comp_vector: u32::try_from(comp_vector).map_err(|_| Errno::INVAL)?,
            wc_flags: WC_STANDARD,
            comp_mask: 0,
            flags: 0,
            parent_domain: core::ptr::null_mut(),
        };
        create(borrow(context)?, &attr)
    })())
}

/// `create_cq_ex` of the extended table.
pub(crate) extern "C" fn create_cq_ex(
    context: Option<&Context>,
    attr: Option<&ibv_cq_init_attr_ex>,
) -> *mut Cq {
    pointer((|| create(borrow(context)?, attr.ok_or(Errno::INVAL)?))())
}

/// `ibv_resize_cq`
pub(crate) extern "C" fn resize_cq(cq: Option<&Cq>, cqe: c_int) -> c_int {
    status_errno((|| {
        let cq = borrow(cq)?;
        let entries = u32::try_from(cqe).map_err(|_| Errno::INVAL)?;
        if entries < cq.verbs.pending() {
            return Err(Errno::INVAL);
        }
        cq.verbs.resize(entries)?;
        let entries = c_int::try_from(cq.verbs.entries()).unwrap_or(c_int::MAX);
        cq.c.cqe.set(entries);
        Ok(())
    })())
}

/// `modify_cq` of the extended table: moderation.
pub(crate) extern "C" fn modify_cq(cq: Option<&Cq>, attr: Option<&ibv_modify_cq_attr>) -> c_int {
    const MODERATE: u32 = 1;
    status((|| {
        let (cq, attr) = (borrow(cq)?, attr.ok_or(Errno::INVAL)?);
        if attr.attr_mask & !MODERATE != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if attr.attr_mask & MODERATE != 0 {
            let period = Duration::from_micros(u64::from(attr.moderate.cq_period));
            cq.verbs.moderate_events(attr.moderate.cq_count, period)?;
        }
        Ok(())
    })())
}

/// `req_notify_cq` of the context's table.
pub(crate) extern "C" fn req_notify_cq(cq: Option<&Cq>, solicited_only: c_int) -> c_int {
    status((|| Ok(borrow(cq)?.verbs.arm(solicited_only != 0)?))())
}

/// `ibv_destroy_cq`: waits until the events that were given are acknowledged.
pub(crate) extern "C" fn destroy_cq(handle: *mut Cq) -> c_int {
    status_errno((|| {
        let cq: &Cq = borrow_raw(handle)?;
        cq.verbs.destroy()?;
        context::of(cq.c.context)?.leave(Kind::Cq, cq.verbs.id().value(), handle);
        if let Some(channel) = channel::of(cq.c.channel)? {
            channel.remove_cq();
        }
        ffi::release(handle);
        Ok(())
    })())
}
