//! Shared receive queues.

use crate::context::{self, Context};
use crate::cq::Cq;
use crate::domain::Resource;
use crate::ffi;
use crate::handle::{
    Errno, Kind, Outcome, Tag, borrow, borrow_raw, object, pointer, status, status_errno,
};
use crate::pd::Pd;
use crate::types::{Ptr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::xrcd::{self, Xrcd};
use core::cell::Cell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::sync::Arc;

/// Bits of `comp_mask` when a queue is made.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 2;
const MASK_XRCD: u32 = 4;
const MASK_CQ: u32 = 8;
/// Types of queues: `IBV_SRQT_BASIC`, `IBV_SRQT_XRC`.
const BASIC: u32 = 0;
const XRC: u32 = 1;
/// Bits of the mask of [`modify_srq`].
const MAX_WR: c_int = 1;
const LIMIT: c_int = 2;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: ibv_srq,
    tag: Tag,
    pub(crate) verbs: srdma_verbs::Srq,
    _pd: Arc<()>,
}

object!(Srq, Srq);

/// Makes a queue; `attr` says what it came to afterwards.
fn create(
    pd: &Pd,
    srq_context: Ptr,
    attr: &mut ibv_srq_attr,
    xrc: Option<(&Xrcd, &Cq)>,
) -> Outcome<*mut Srq> {
    let context = pd.context()?;
    // The limit is armed by a modify call only.
    let mut builder = pd.verbs.create_srq(attr.max_wr).max_sge(attr.max_sge);
    if let Some((xrcd, cq)) = xrc {
        builder = builder.xrcd(&xrcd.verbs).cq(&cq.verbs);
    }
    if let Some(alloc) = pd.ring_alloc(Resource::Srq) {
        builder = builder.ring_alloc(alloc);
    }
    let verbs = builder.build()?;
    let real = verbs.query();
    (attr.max_wr, attr.max_sge) = (real.max_wr, real.max_sge);
    let number = verbs.id().value();
    let srq = ffi::own(Box::new(Srq {
        c: ibv_srq {
            context: context.c(),
            srq_context,
            pd: pd.c(),
            handle: number,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        },
        tag: Tag::new(Kind::Srq),
        verbs,
        _pd: pd.hold(),
    }));
    context.enter(Kind::Srq, number, srq);
    Ok(srq)
}

/// `ibv_create_srq`
pub(crate) extern "C" fn create_srq(
    pd: Option<&Pd>,
    attr: Option<&Cell<ibv_srq_init_attr>>,
) -> *mut Srq {
    pointer((|| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let mut value = attr.get();
        let srq = create(borrow(pd)?, value.srq_context, &mut value.attr, None)?;
        attr.set(value);
        Ok(srq)
    })())
}

/// `create_srq_ex` of the extended table.
pub(crate) extern "C" fn create_srq_ex(
    context: Option<&Context>,
    attr: Option<&Cell<ibv_srq_init_attr_ex>>,
) -> *mut Srq {
    pointer((|| {
        borrow(context)?;
        let attr = attr.ok_or(Errno::INVAL)?;
        let mut value = attr.get();
        let has = |bit: u32| value.comp_mask & bit != 0;
        let kind = if has(MASK_TYPE) {
            value.srq_type
        } else {
            BASIC
        };
        let xrc = match kind {
            BASIC => None,
            XRC if has(MASK_XRCD) && has(MASK_CQ) => {
                let cq: &Cq = borrow_raw(value.cq.cast_const().cast())?;
                Some((xrcd::of(value.xrcd)?, cq))
            }
            XRC => return Err(Errno::INVAL),
            _ => return Err(Errno::UNSUPPORTED),
        };
        if value.comp_mask & !(MASK_TYPE | MASK_PD | MASK_XRCD | MASK_CQ) != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if !has(MASK_PD) {
            return Err(Errno::INVAL);
        }
        let pd: &Pd = borrow_raw(value.pd.cast_const().cast())?;
        let srq = create(pd, value.srq_context, &mut value.attr, xrc)?;
        attr.set(value);
        Ok(srq)
    })())
}

/// `ibv_modify_srq`
pub(crate) extern "C" fn modify_srq(
    srq: Option<&Srq>,
    attr: Option<&ibv_srq_attr>,
    mask: c_int,
) -> c_int {
    status_errno((|| {
        let (srq, attr) = (borrow(srq)?, attr.ok_or(Errno::INVAL)?);
        if mask & MAX_WR != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if mask & !LIMIT != 0 {
            return Err(Errno::INVAL);
        }
        if mask & LIMIT != 0 {
            srq.verbs.set_limit(attr.srq_limit)?;
        }
        Ok(())
    })())
}

/// `ibv_query_srq`
pub(crate) extern "C" fn query_srq(
    srq: Option<&Srq>,
    attr: Option<&mut MaybeUninit<ibv_srq_attr>>,
) -> c_int {
    status_errno((|| {
        let value = borrow(srq)?.verbs.query();
        attr.ok_or(Errno::INVAL)?.write(ibv_srq_attr {
            max_wr: value.max_wr,
            max_sge: value.max_sge,
            srq_limit: value.limit,
        });
        Ok(())
    })())
}

/// `get_srq_num` of the extended table.
pub(crate) extern "C" fn get_srq_num(
    srq: Option<&Srq>,
    number: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    status((|| {
        let value = borrow(srq)?.verbs.id().value();
        number.ok_or(Errno::INVAL)?.write(value);
        Ok(())
    })())
}

/// `ibv_destroy_srq`: waits until the events that were given are acknowledged.
pub(crate) extern "C" fn destroy_srq(handle: *mut Srq) -> c_int {
    status_errno((|| {
        let srq: &Srq = borrow_raw(handle)?;
        srq.verbs.destroy()?;
        context::of(srq.c.context)?.leave(Kind::Srq, srq.verbs.id().value(), handle);
        ffi::release(handle);
        Ok(())
    })())
}
